"""How many faults are judged per second, against flip and run and against PyTorchFI.

    python benchmarks/injections.py [--no-peer] [--no-exhaustive]

One thread, CPU seconds, after the engine was set up and one call that is not counted. Every
site is judged on all inputs, and the counts of both engines must be equal on the sites that
both run. PyTorchFI 0.6.0 goes into a folder of its own (``.venv-pytorchfi``). The table goes
to the screen and to ``benchmarks/results/injections.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, one_thread, seconds
from benchmarks._table import RESULTS, Row, publish
from workbench import inject
from workbench.inject._model import torch
from workbench.inject.designs.changes import changes
from workbench.inject.engines.fast_engine import FastEngine
from workbench.inject.engines.flip_and_run import FlipAndRun

PEER = "PyTorchFI 0.6.0"
PEER_FOLDER = Path(__file__).resolve().parents[1] / ".venv-pytorchfi"
NAIVE_SITES = 60


@dataclass(frozen=True)
class Part:
    """What is measured: parameters of a shipped model, and how many sites per second."""

    model: str
    name: str
    where: tuple[str, ...]
    sites: int
    target: float | None = None


PARTS = (
    Part("dlrm", "top MLP", ("top.*",), 100_000, 50_000),
    Part("dlrm", "bottom MLP", ("bottom.*",), 20_000, 3_900),
    Part("dlrm", "embeddings", ("tables.*",), 1_000_000, 300_000),
    Part("lenet", "all layers", ("*",), 20_000),
    Part("tickets", "word embeddings", ("words.*",), 300),
    Part("tickets", "first block", ("blocks.0.*",), 60),
    Part("tickets", "last block", ("blocks.1.*",), 60),
    Part("tickets", "pooler and classifier", ("pooler.*", "classifier.*"), 3_000),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--no-peer", action="store_true", help="leave PyTorchFI out")
    parser.add_argument("--no-exhaustive", action="store_true", help="leave all faults out")
    parser.add_argument("--peer", default="pytorchfi==0.6.0", help="what pip installs as the peer")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine() | {"torch": str(torch().__version__)}
    with one_thread():
        rows = [_part(part) for part in PARTS]
        rows += [_net(name, count) for name in NETS for count in (16, 200)]
        if not options.no_peer:
            rows.append(_against_peer(options.peer))
        if not options.no_exhaustive:
            rows.append(_exhaustive())
    remarks = [
        "Sites per CPU second on one thread, each judged on all inputs of the shipped model "
        "(1,000 clicks, 500 digits, 500 tickets); faults drawn uniformly over elements and bits. "
        f"Flip and run and the peer run {NAIVE_SITES} of the same sites and find the same counts.",
    ]
    publish("injections", rows, about, remarks, options.out)
    return 0


def _seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of an action, and what it gives."""
    began = time.process_time()
    given = action()
    return time.process_time() - began, given


def _shipped(name: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Give a shipped model, its inputs and their golden outputs."""
    model = inject.shipped_model(name)
    inputs, labels = inject.shipped_inputs(name)
    with torch().no_grad():
        golden = inject.shipped_judge(name).golden(model(*inputs), labels)
    return model, inputs, golden


def _drawn(model: Any, count: int, where: Sequence[str] | str, seed: int) -> Any:
    faults = inject.uniform_faults(model, count, seed=seed, where=where)
    return changes(model, faults)


def _part(part: Part) -> Row:
    model, inputs, golden = _shipped(part.model)
    fast, plain = FastEngine(model, inputs, golden), FlipAndRun(model, inputs, golden)
    fast.counts(_drawn(model, min(part.sites, 2_000), list(part.where), 1))
    work = _drawn(model, part.sites, list(part.where), 2)
    before = fast.rerun_count
    taken, here = _seconds(lambda: fast.counts(work))
    few = work.part(0, NAIVE_SITES)
    naive, there = _seconds(lambda: plain.counts(few))
    if (here.sdc[:NAIVE_SITES] != there.sdc).any() or (here.due[:NAIVE_SITES] != there.due).any():
        msg = f"{part.model}, {part.name}: the engines count differently"
        raise ValueError(msg)
    rate, slow = part.sites / taken, NAIVE_SITES / naive
    again = (fast.rerun_count - before) / part.sites
    print(f"{part.model} {part.name}: {rate:,.0f} sites/s", flush=True)
    return Row(
        f"{part.model}, {part.name}: {part.sites:,} sites x {len(golden):,} inputs",
        f"{rate:,.0f} sites/s", f"flip and run {slow:,.0f} sites/s", rate, part.target, "sites/s",
        note=f"{rate / slow:,.1f} × flip and run; {again:.2%} run again",
    )  # fmt: skip


NETS: dict[str, float] = {
    "CNN": 3.0, "MLP, ReLU": 3.0, "MLP, GELU": 3.0, "deep MLP, GELU": 1.0,
    "GELU and LayerNorm": 1.0,
}  # fmt: skip


def _made(name: str) -> tuple[Any, tuple[int, ...]]:
    """Make a small net of random weights, and the shape of one input."""
    nn = torch().nn
    torch().manual_seed(0)
    if name == "CNN":
        convolutions = (nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))  # fmt: skip
        return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(784, 10)), (1, 28, 28)
    act = nn.ReLU if "ReLU" in name else nn.GELU
    width, depth = (128, 6) if "deep" in name else (32, 2)
    norms = [nn.LayerNorm(width)] if "Norm" in name else []
    layers = [nn.Linear(16, width), act()]
    for _ in range(depth):
        layers += [*norms, nn.Linear(width, width), act()]
    return nn.Sequential(*layers, nn.Linear(width, 10)), (16,)


def _net(name: str, input_count: int) -> Row:
    """Compare with the loop that anybody would write: flip, run, compare, flip back."""
    model, shape = _made(name)
    inputs = (torch().randn(input_count, *shape),)
    with torch().no_grad():
        outputs = model.eval()(*inputs)
    golden, decisions = inject.Judge().golden(outputs), outputs.argmax(1)
    work = _drawn(model, NAIVE_SITES * 5, "*", 2)
    values = dict(model.named_parameters())

    def loop() -> list[int]:
        wrong = []
        with torch().no_grad():
            for n in range(work.experiment_count):
                flat = values[work.targets[work.target[n]]].view(-1)
                elem = int(work.elem[n])
                before = flat[elem].clone()
                flat[elem] = work.after[n]
                faulty = model(*inputs)
                flat[elem] = before
                finite = torch().isfinite(faulty).all(1)
                wrong.append(int(((faulty.argmax(1) != decisions) & finite).sum()))
        return wrong

    engine = FastEngine(model, inputs, golden)
    if engine.counts(work).sdc.tolist() != loop():
        msg = f"{name}: the engine and a plain loop count differently"
        raise ValueError(msg)
    fast, slow = seconds(lambda: engine.counts(work), loop, rounds=3)
    rate, plain = (work.experiment_count / taken for taken in (fast, slow))
    return Row(
        f"{name}: {work.experiment_count} sites x {input_count:,} inputs", f"{rate:,.0f} sites/s",
        f"plain loop {plain:,.0f} sites/s", rate / plain, NETS[name],
    )  # fmt: skip


def _against_peer(wanted: str) -> Row:
    """Measure LeNet's weights, which are what PyTorchFI can hit, on the same sites."""
    core = _peer(wanted)
    model, inputs, golden = _shipped("lenet")
    weights = ["*.weight"]
    fast = FastEngine(model, inputs, golden)
    fast.counts(_drawn(model, 2_000, weights, 1))
    sites = 20_000
    work = _drawn(model, sites, weights, 2)
    taken, here = _seconds(lambda: fast.counts(work))
    few = work.part(0, NAIVE_SITES)
    layers = [name for name, _ in model.named_parameters() if name.endswith("weight")]
    kinds = [torch().nn.Conv2d, torch().nn.Linear]
    tool = core.fault_injection(model, 1, [1, 28, 28], kinds, use_cuda=False)

    def peer() -> list[int]:
        wrong = []
        for target, elem, value in zip(few.target, few.elem, few.after.tolist(), strict=True):
            name = few.targets[target]
            shape = dict(model.named_parameters())[name].shape
            place = [*np.unravel_index(elem, tuple(shape)), None, None][:4]
            k, *rest = ([each if each is None else int(each)] for each in place)
            dims = dict(zip(("dim1", "dim2", "dim3"), rest, strict=True))
            faulty = tool.declare_weight_fi(
                layer_num=[layers.index(name)], k=k, value=[value], **dims
            )
            with torch().no_grad():
                outputs = faulty(*inputs)
            codes = golden.outcomes(outputs, slice(None))
            wrong.append(int((codes >= 2).sum()))
        return wrong

    slow, there = _seconds(peer)
    if ((here.sdc + here.due)[:NAIVE_SITES] != there).any():
        msg = f"{PEER} counts differently"
        raise ValueError(msg)
    rate, other = sites / taken, NAIVE_SITES / slow
    return Row(
        f"lenet, weights: {sites:,} sites x {len(golden)} inputs", f"{rate:,.0f} sites/s",
        f"{PEER}: {other:,.0f} sites/s", rate / other, 60,
    )  # fmt: skip


def _peer(wanted: str) -> Any:
    """Give PyTorchFI's core, installed into its own folder if it is not there yet."""
    if not (PEER_FOLDER / "pytorchfi").is_dir():
        print(f"installing {PEER} into {PEER_FOLDER.name}", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*pip, "--target", str(PEER_FOLDER), wanted],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            msg = f"cannot install {PEER}; --no-peer leaves it out:\n{done.stderr[-2000:]}"
            raise RuntimeError(msg)
    sys.path.append(str(PEER_FOLDER))
    from pytorchfi import core

    return core


def _exhaustive() -> Row:
    model, inputs, golden = _shipped("dlrm")
    names = [name for name, _ in model.named_parameters()]
    bits = list(range(32))

    def all_faults() -> tuple[int, int, int]:
        fast, sites, wrong = FastEngine(model, inputs, golden), 0, 0
        for name in names:
            sdc, due = fast.exhausted(name, bits)
            sites, wrong = sites + sdc.size, wrong + int(sdc.sum()) + int(due.sum())
        return sites, wrong, fast.rerun_count

    taken, (sites, wrong, again) = _seconds(all_faults)
    return Row(
        f"dlrm, every single-bit fault: {sites:,} sites x {len(golden):,} inputs",
        f"{taken:.1f} CPU s, {wrong:,} wrong outputs", "", taken, 90, "CPU s",
        smaller_is_better=True, note=f"{again:,} run again",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
