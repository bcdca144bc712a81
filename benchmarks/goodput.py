"""How fast failures are drawn and replayed, and how soon a slider answers.

    python benchmarks/goodput.py [--rounds N]

Everything runs in this process after one run that is not counted, and the median of the
rounds is reported. The peer is the event loop that anybody would write: one heap, one failure
at a time; its answer must be the same. The table goes to the screen and to
``benchmarks/results/goodput.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish
from workbench import analyze, plot, simulate
from workbench.analyze import FaultTolerance
from workbench.simulate import FailureProcess

HORIZON_MIN = 54 * 1440.0
RUNS = 100
JOB = FaultTolerance()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    rows, agreed = _replay(options.rounds)
    rows += [_redraw(options.rounds), _nodes(options.rounds)]
    remarks = [
        f"Medians of {options.rounds} rounds in one process, after one that is not counted; numpy "
        "and pandas, nothing compiled. Histories are 54 days of a job on 98,304 GPUs that fails "
        "every 18 min, 12 replicas.",
        agreed,
    ]
    publish("goodput", rows, about, remarks, options.out)
    return 0


def _seconds(action: Callable[[], object], rounds: int) -> list[float]:
    """Return how long every round took, shortest first."""
    action()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return sorted(times)


def _drawn(runs: int) -> pd.DataFrame:
    return simulate.failure_times(
        FailureProcess(), horizon_min=HORIZON_MIN, seed=1, runs=runs, warm_up_min=10
    )


def _replay(rounds: int) -> tuple[list[Row], str]:
    table = _drawn(RUNS)
    times = _seconds(lambda: analyze.goodput_replay(table, JOB, horizon_min=HORIZON_MIN), rounds)
    rate, slowest, fastest = (
        len(table) / each / 1e6 for each in (statistics.median(times), times[-1], times[0])
    )
    few = table[table["run"] < 4]
    began = time.perf_counter()
    there = [event_loop(part, JOB, HORIZON_MIN) for _, part in few.groupby("run")]
    peer = len(few) / (time.perf_counter() - began) / 1e6
    here = analyze.goodput_replay(few, JOB, horizon_min=HORIZON_MIN)
    here = here.loc[here["state"] == "productive", "gpu_time_share"].to_numpy()
    worst = float(np.abs(here - there).max())
    if worst > 1e-9:
        msg = f"the event loop finds other shares: they differ by {worst:g}"
        raise ValueError(msg)
    what = f"replay of {len(table):,} failures in {RUNS} runs"
    rows = [
        Row(what, f"{statistics.median(times):.3f} s", "", rate, 1.0, "M failures/s",
            note=f"{slowest:.2f} to {fastest:.2f}"),
        Row("replay against an event loop in Python", f"{rate:.2f} M failures/s",
            f"{peer:.3f} M failures/s", rate / peer),
    ]  # fmt: skip
    return rows, f"The event loop finds the same shares of four runs, to {worst:.0e}."


def event_loop(failures: pd.DataFrame, job: FaultTolerance, horizon: float) -> float:
    """Give the productive share of one run, one event after another."""
    down = failures["other_min"].to_numpy()
    heap = [
        (at, "failure", int(replica), minutes)
        for at, replica, minutes in zip(
            failures["time_min"].tolist(), failures["replica"].tolist(), down.tolist(), strict=True
        )
    ]
    heapq.heapify(heap)
    back, running_from = [0.0] * job.replicas, 0.0
    now, worked = 0.0, 0.0
    while heap:
        at, what, replica, minutes = heapq.heappop(heap)
        until = min(max(at, 0.0), horizon)
        if until > now:
            if now >= running_from:
                worked += (until - now) * sum(each <= now for each in back)
            now = until
        if at >= horizon:
            break
        if what == "failure":
            back[replica] = max(back[replica], at + minutes)
            running_from = max(running_from, at + job.stall_total_min)
            heapq.heappush(heap, (at + minutes, "back", replica, 0.0))
            heapq.heappush(heap, (at + job.stall_total_min, "run", replica, 0.0))
    return worked / job.replicas / horizon


def _redraw(rounds: int) -> Row:
    table = _drawn(1)

    def redraw() -> str:
        runs = analyze.goodput_replay(table, JOB, horizon_min=HORIZON_MIN)
        return str(plot.goodput(analyze.goodput_mean(runs), synthetic=True).to_json())

    times = _seconds(redraw, rounds)
    taken = 1e3 * statistics.median(times)
    return Row(
        f"one redraw of a slider: replay of {len(table):,} failures and figure",
        f"{taken:.0f} ms", "", taken, 100, "ms", smaller_is_better=True,
        note=f"{1e3 * times[0]:.0f} to {1e3 * times[-1]:.0f}",
    )  # fmt: skip


def _nodes(rounds: int) -> Row:
    process = FailureProcess(
        process="weibull", weibull_shape=0.7, is_aged=True, lemon_share=0.012,
        lemon_failure_share=0.15,
    )  # fmt: skip
    runs = 10

    def both() -> None:
        drawn = simulate.failure_times(process, horizon_min=HORIZON_MIN, seed=1, runs=runs)
        for job in (JOB, JOB.synchronous()):
            analyze.goodput_replay(drawn, job, horizon_min=HORIZON_MIN)

    times = _seconds(both, rounds)
    taken = 1e3 * statistics.median(times) / runs
    return Row(
        "one run drawn node by node (12,288, lemons, Weibull), replayed with and without replicas",
        f"{taken:.1f} ms", "", taken, None, "ms", smaller_is_better=True,
        note=f"{1e3 * times[0] / runs:.1f} to {1e3 * times[-1] / runs:.1f}",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
