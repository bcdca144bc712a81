"""Train a small transformer so that one run gives all three kinds of input on one clock.

Run it under the recorder, which samples power meanwhile:

    workbench record --out run1 -- python examples/train_and_record.py --out run1

Afterwards the folder holds

    power_0001.parquet ...   power, clocks, limits, throttle reasons (by `workbench record`)
    recording.json           how they were sampled, and what could not be
    steps.jsonl              every step, checkpoint and evaluation, stamped by the wall clock
    traces/                  Kineto traces of some steps, with CUDA sync records on a GPU
    checkpoints/             the weights

and `workbench lab --data run1` opens the notebooks on it. Without a GPU it trains on the CPU and
says what is missing. It needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

VOCABULARY = 256


class Transformer(nn.Module):
    """A decoder that predicts the next byte."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Give the scores of the next byte at every place."""
        count = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(count, device=tokens.device)
        places = torch.arange(count, device=tokens.device)
        hidden = self.token(tokens) + self.position(places)
        scores: torch.Tensor = self.head(self.layers(hidden, mask=mask, is_causal=True))
        return scores


class StepLog:
    """Writes a line per event, with the time in UTC; each line is on disk at once."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, event: str, **facts: Any) -> None:
        """Write one event."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._file.write(json.dumps({"time": now, "event": event, "attempt": 1, **facts}) + "\n")
        self._file.flush()


def batch(data: torch.Tensor, size: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw pieces of the text, and the same pieces one byte on."""
    starts = torch.randint(len(data) - context - 1, (size,)).tolist()
    pieces = torch.stack([data[at : at + context + 1] for at in starts])
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(
    model: nn.Module, data: torch.Tensor, options: argparse.Namespace, device: torch.device
) -> torch.Tensor:
    """Give the mean loss of one batch."""
    tokens, targets = (part.to(device) for part in batch(data, options.batch, options.context))
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        scores = model(tokens)
    return nn.functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten())


def profiler(device: torch.device) -> profile:
    """Make a profiler; on a GPU it also records waits of the host and of streams."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    from torch._C._profiler import _ExperimentalConfig

    settings = _ExperimentalConfig(enable_cuda_sync_events=device.type == "cuda")
    return profile(activities=activities, record_shapes=True, experimental_config=settings)


def synchronised(device: torch.device) -> None:
    """Wait for the GPU, so that a step's time is that of its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def train(options: argparse.Namespace, device: torch.device, log: StepLog) -> None:
    """Train, evaluate and save, and log each of them."""
    torch.manual_seed(options.seed)
    # The script's own text is training data that every copy of the project has.
    data = torch.tensor(list(Path(__file__).read_bytes()), dtype=torch.long)
    model = Transformer(options.width, options.layers, options.heads, options.context).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    log.write("running", step=0)
    recording: profile | None = None
    for step in range(options.steps):
        if step == options.trace_from:
            recording = profiler(device)
            recording.start()
        start = time.perf_counter()
        with record_function(f"ProfilerStep#{step}"):
            optimiser.zero_grad()
            loss = loss_of(model, data, options, device)
            loss.backward()
            optimiser.step()
            synchronised(device)
        took = time.perf_counter() - start
        log.write(
            "step", step=step, step_time_ms=round(1e3 * took, 3),
            tokens=options.batch * options.context, loss=round(loss.item(), 4),
        )  # fmt: skip
        if recording is not None and step + 1 == options.trace_from + options.trace_steps:
            recording = written(recording, options.out)
        if (step + 1) % options.evaluate_every == 0:
            evaluate(model, data, options, device, log, step)
        if (step + 1) % options.checkpoint_every == 0:
            checkpoint(model, optimiser, options, log, step)
    if recording is not None:
        written(recording, options.out)


def written(recording: profile, out: Path) -> None:
    """Stop the profiler and write its trace."""
    recording.stop()
    folder = out / "traces"
    folder.mkdir(exist_ok=True)
    recording.export_chrome_trace(str(folder / "rank_0.pt.trace.json.gz"))


def evaluate(
    model: nn.Module,
    data: torch.Tensor,
    options: argparse.Namespace,
    device: torch.device,
    log: StepLog,
    step: int,
) -> None:
    """Work out the loss on some batches."""
    log.write("evaluation_start", step=step)
    with torch.no_grad():
        losses = [loss_of(model, data, options, device) for _ in range(options.evaluate_batches)]
        synchronised(device)
    log.write("evaluation_end", step=step, loss=round(float(torch.stack(losses).mean()), 4))


def checkpoint(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    options: argparse.Namespace,
    log: StepLog,
    step: int,
) -> None:
    """Save weights and the optimiser's state; keep the last two."""
    log.write("checkpoint_start", step=step)
    folder = options.out / "checkpoints"
    folder.mkdir(exist_ok=True)
    path = folder / f"step_{step:06d}.pt"
    unfinished = path.with_suffix(".part")
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, unfinished)
    unfinished.replace(path)
    for old in sorted(folder.glob("step_*.pt"))[:-2]:
        old.unlink()
    log.write("checkpoint_end", step=step, bytes=path.stat().st_size)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--evaluate-every", type=int, default=50)
    parser.add_argument("--evaluate-batches", type=int, default=10)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--trace-from", type=int, default=10, help="first step to trace")
    parser.add_argument("--trace-steps", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    """Train; say what is missing without a GPU."""
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        print(
            "no GPU: training on the CPU; the trace has no kernels and no CUDA sync records, "
            "and no GPU power is sampled",
            file=sys.stderr,
        )
    with (options.out / "steps.jsonl").open("w") as file:
        log = StepLog(file)
        name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
        log.write("start", ranks=1, device=name, torch=torch.__version__)
        try:
            train(options, device, log)
        except KeyboardInterrupt:
            log.write("interrupt")
            return 130
        log.write("end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
