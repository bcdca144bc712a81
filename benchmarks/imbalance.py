"""How fast documents are packed, recipes compared and real jobs replayed.

    python benchmarks/imbalance.py [--rounds N]

Everything runs in this process after one run that is not counted, and the median of the
rounds is reported. No tool that does the same can be installed from PyPI: packing is compared
with the same algorithm written with numpy's argmin per document, the replay with the time the
published artifact of the paper takes. The table goes to the screen and to
``benchmarks/results/imbalance.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish
from workbench import analyze, datasets, load
from workbench.analyze import PackingPlan, Parallelism

MIRROR = Path(__file__).resolve().parents[2] / "shared" / "data"
K = 1024
# Seconds the artifact of arXiv:2505.05713 takes for the same job, on two cores, pandas 2.
ARTIFACT_S = (2.4, 3.6)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if MIRROR.is_dir():
        os.environ.setdefault(datasets.MIRROR_ENV, str(MIRROR))
    about = machine()
    rows = [*_packing(options.rounds), _recipes(options.rounds), _replay(options.rounds)]
    remarks = [
        f"Medians of {options.rounds} rounds in one process, after one that is not counted; pure "
        "Python and numpy, nothing compiled. Documents are drawn from the public lengths of "
        "hao-ai-lab/DistCA, contexts are 128K, global batches have 4 micro-batches.",
    ]
    publish("imbalance", rows, about, remarks, options.out)
    return 0


def _seconds(action: Callable[[], object], rounds: int) -> float:
    action()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _lengths(batches: int) -> pd.DataFrame:
    path = datasets.path("lengths-documents") / "dist_wlbllm.json"
    tokens = batches * 4 * 128 * K
    return analyze.sample_documents(load.document_lengths(path), token_count=tokens)


def _packing(rounds: int) -> list[Row]:
    stream = _lengths(2_000)
    rows = []
    peer = _with_argmin(stream["length_tokens"].to_numpy())
    for plan in (
        PackingPlan("plain"),
        PackingPlan("greedy"),
        PackingPlan("greedy", window_batches=8),
        PackingPlan("delay queues"),
        PackingPlan("delay queues", batch_sequences=16),
        PackingPlan("best fit"),
    ):
        seconds = _seconds(lambda plan=plan: analyze.packing(stream, plan), rounds)
        rate = len(stream) / seconds / 1e6
        same = plan.strategy == "delay queues" and plan.batch_sequences == 4
        rows.append(
            Row(
                f"packing, {plan.label()}, {plan.batch_sequences} micro-batches "
                f"({len(stream):,} documents)",
                f"{seconds:.3f} s",
                f"{peer:.2f} M documents/s with argmin" if same else "",
                rate,
                0.7,
                "M documents/s",
            )
        )
    return rows


def _with_argmin(lengths: np.ndarray) -> float:
    """Give every document to the lightest of 4 micro-batches with numpy; return M documents/s."""
    some = lengths[:50_000]
    work = (some / (28 * K)) ** 2 + some / (28 * K)
    began = time.perf_counter()
    load_, used = np.zeros(4), np.zeros(4, dtype=np.int64)
    for number, (length, cost) in enumerate(zip(some, work, strict=True)):
        if number % 130 == 0:
            load_[:], used[:] = 0, 0
        at = load_.argmin()
        if used[at] + length >= 160 * K:
            at = used.argmin()
        load_[at] += cost
        used[at] += length
    return len(some) / (time.perf_counter() - began) / 1e6


def _recipes(rounds: int) -> Row:
    stream = _lengths(600)
    plan = replace(PackingPlan(), crossover_tokens=49_408)
    shape = Parallelism(pipeline=4, context=2, chunks=2)
    seconds = _seconds(lambda: analyze.training_speed(stream, plan, shape), rounds)
    what = f"seven recipes of one configuration, 600 steps ({len(stream):,} documents)"
    return Row(what, f"{seconds:.2f} s", "", seconds, 0.5, "s", smaller_is_better=True)


def _replay(rounds: int) -> Row:
    path = datasets.path("stragglers-bytedance") / "trace-SE.parquet"
    operations = load.job_operations(path)

    def everything() -> None:
        analyze.job_slowdown(operations)
        analyze.job_slowdown_by(operations, "worker")
        analyze.job_slowdown_by(operations, "operation")

    seconds = _seconds(everything, rounds)
    low, high = ARTIFACT_S
    return Row(
        f"slowdown of a job, all S_w and S_t ({len(operations):,} operations)",
        f"{seconds:.2f} s",
        f"{low}-{high} s, the published artifact",
        seconds,
        0.5,
        "s",
        smaller_is_better=True,
    )


if __name__ == "__main__":
    sys.exit(main())
