"""A trace of an inference engine: prefill, decode by replayed graphs, and a host between them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._shared.numbers import share_between, whole_number
from workbench.tables import EVENTS, QUALITY, RANKS, Trace
from workbench.tables.traces import SAYS_SYNTHETIC

_ORIGIN_NS = 1_768_204_800_000_000_000
_LAYERS, _KERNELS = 8, ("qkv_gemm", "flash_attention", "out_gemm", "mlp_gemm")
_DECODE_NS, _TOKEN_NS, _HOST_NS = 60_000, 40, 1_000
_PREFILL_EVERY = 8


def serving_trace(
    *, iterations: int = 64, gap_share: float = 0.2, batch_size: int = 16, seed: int = 0
) -> Trace:
    """Make the trace of one rank that serves requests, with annotations as vLLM writes them.

    Every eighth iteration takes a new request in (prefill, kernel by kernel, mixed with decode),
    the others decode by replaying one graph. The host prepares the next iteration when the GPU has
    ended one, so the GPU waits.

    Parameters
    ----------
    iterations
        Number of iterations.
    gap_share
        Truth: share of the time in which the GPU waits between iterations, above 0 and below 1.
    batch_size
        Requests in decode.
    seed
        Of the lengths of prompts.

    Returns
    -------
    workbench.tables.Trace
        Tables ``events``, ``ranks`` and ``quality``; the latter says that it is synthetic.

    Raises
    ------
    WorkbenchError
        If ``iterations`` or ``batch_size`` is not a whole number from 1, or ``gap_share`` is not
        between 0 and 1.
    """
    count = whole_number("iterations", iterations, least=1)
    batch = whole_number("batch_size", batch_size, least=1)
    share_between("gap_share", gap_share)
    prompts = np.random.default_rng(seed).integers(200, 2_000, count)
    rows: list[dict[str, object]] = []
    at = _ORIGIN_NS
    for number, prompt in enumerate(prompts.tolist()):
        is_prefill = number % _PREFILL_EVERY == 0
        tokens = prompt if is_prefill else 0
        name = (
            f"execute_{tokens + batch}_context_{int(is_prefill)}(sq{tokens}sk{tokens}sqsq0sqsk0)"
            f"_generation_{batch}(sq{batch}sk{batch * 500}sqsq0sqsk0)"
        )
        end = at + _LAYERS * len(_KERNELS) * (_DECODE_NS + tokens * _TOKEN_NS) // len(_KERNELS)
        rows += _iteration(name, at, end, is_prefill=is_prefill, label=len(rows))
        at = end + round((end - at) * gap_share / (1 - gap_share))
    return _trace(rows)


def _iteration(
    name: str, begin: int, end: int, *, is_prefill: bool, label: int
) -> list[dict[str, object]]:
    """Return annotation, calls and kernels; the host is done long before the GPU."""
    work = [f"{kernel}_kernel" for _ in range(_LAYERS) for kernel in _KERNELS]
    length = (end - begin) // len(work)
    call = "cudaLaunchKernel" if is_prefill else "cudaGraphLaunch"
    category = "cuda_runtime"
    first = begin - (len(work) + 2) * _HOST_NS if is_prefill else begin - 3 * _HOST_NS
    calls = [
        {"start_ns": first + (1 + at) * _HOST_NS, "dur_ns": _HOST_NS // 2, "name": call,
         "category": category, "label": label + at, "is_gpu": False}
        for at in range(len(work) if is_prefill else 1)
    ]  # fmt: skip
    kernels = [
        {"start_ns": begin + at * length, "dur_ns": length, "name": kernel, "category": "kernel",
         "label": label + (at if is_prefill else 0), "is_gpu": True}
        for at, kernel in enumerate(work)
    ]  # fmt: skip
    mark = {"start_ns": first, "dur_ns": (len(calls) + 1) * _HOST_NS, "name": name,
            "category": "user_annotation", "label": -1, "is_gpu": False}  # fmt: skip
    return [mark, *calls, *kernels]


def _trace(rows: list[dict[str, object]]) -> Trace:
    table = pd.DataFrame(rows).sort_values(
        ["start_ns", "dur_ns"], ascending=[True, False], ignore_index=True
    )
    is_gpu = table["is_gpu"]
    calls = table[~is_gpu & (table["label"] >= 0)]
    position = pd.Series(calls.index, index=calls["label"])
    launch = table["label"].where(is_gpu).map(position).astype("Int64")
    lacking = dict.fromkeys(EVENTS.columns)
    events = EVENTS.of(
        pd.DataFrame(lacking, index=table.index).assign(
            rank=0, start_ns=table["start_ns"], dur_ns=table["dur_ns"], name=table["name"],
            category=table["category"], kind=is_gpu.map({True: "compute"}), process="1",
            thread="1", launch=launch, device=is_gpu.map({True: 0}).astype("Int64"),
            stream=is_gpu.map({True: 7}).astype("Int64"),
            correlation=table["label"].where(table["label"] >= 0).astype("Int64"),
        )
    )  # fmt: skip
    last = int((events["start_ns"] + events["dur_ns"]).max())
    ranks = RANKS.of([
        (0, "trace", 1, None, "synthetic_rank_0", "synthetic", "epoch",
         int(events["start_ns"].iloc[0]), last, len(events), None)
    ])  # fmt: skip
    quality = QUALITY.of([("synthetic_rank_0", "noted", SAYS_SYNTHETIC, 1, None)])
    return Trace.of(events=events, ranks=ranks, quality=quality)
