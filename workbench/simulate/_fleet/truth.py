"""The truth about a simulated job: what was injected, where and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from workbench.simulate._fleet.history import History, span_of
from workbench.simulate._fleet.plan import MILLISECOND, SECOND, Job
from workbench.tables import FLEET_TRUTH


def truth_table(history: History) -> pd.DataFrame:
    """List the injected faults, table FLEET_TRUTH."""
    rows = [*_slow(history), *_late(history), *_capped(history), *_failing(history)]
    dtypes = {name: column.dtype for name, column in FLEET_TRUTH.columns.items()}
    table = pd.DataFrame(rows, columns=list(dtypes)).astype(dtypes)
    return FLEET_TRUTH.check(table)


def readme_text(job: Job) -> str:
    """Say in the folder itself that nothing in it was measured."""
    first, last = job.first_traced_step, job.last_traced_step
    return f"""# A synthetic training job

**Nothing here was measured.** `workbench.simulate.fleet` made every file from seed {job.seed}:
one simulation of {job.ranks} GPUs on {job.ranks // job.gpus_per_node} nodes, written in the form \
of each tool. All times are UTC, on one clock.

| file | like | holds |
|---|---|---|
| `traces/` | Kineto traces of PyTorch | steps {first} to {last} of every rank |
| `power/*_nvidia_smi.csv` | `nvidia-smi --query-gpu` | \
power, clock, utilisation of each GPU, 2 per second |
| `power/*_ac.txt` | MLPerf Training power logs | AC power of each node, 1 per second |
| `failures/*_kernel.log` | `dmesg --decode --time-format iso` | Xid lines and others |
| `failures/synthetic_sacct.txt` | `sacct --parsable2 --duplicates` | the job's two runs |
| `steps.jsonl` | a training script's log | every step, checkpoint and interruption |
| `truth.csv` | | what was injected, where and when |

The licence is that of the workbench (MIT).
"""


def _slow(history: History) -> Iterator[dict[str, Any]]:
    faults = history.job.faults
    if faults.slow_rank is not None:
        last = max(step.number for step in history.steps if step.attempt == 1)
        row = _row(history, "slow rank", faults.slow_rank, faults.slow_first_step, last)
        size = {"size": faults.slow_factor, "unit": "x (compute time)"}
        yield {**row, **size, "seen_in": "traces, power, steps"}


def _late(history: History) -> Iterator[dict[str, Any]]:
    faults = history.job.faults
    if faults.late_rank is not None:
        for step in faults.late_steps:
            row = _row(history, "late host", faults.late_rank, step, step)
            size = {"size": faults.late_ns / MILLISECOND, "unit": "ms (longer data loading)"}
            yield {**row, **size, "seen_in": "traces, steps, kernel log"}


def _capped(history: History) -> Iterator[dict[str, Any]]:
    job, faults = history.job, history.job.faults
    if faults.capped_rank is not None:
        first, last = faults.cap_first_step, faults.cap_last_step
        row = _row(history, "power cap", faults.capped_rank, first, last)
        yield {**row, "size": faults.cap_w, "unit": "W", "seen_in": "power"}
        factor = job.cluster.clock_mhz / job.capped_clock_mhz()
        size = {"size": round(factor, 6), "unit": "x (compute time)"}
        yield {**row, **size, "seen_in": "traces"}


def _failing(history: History) -> Iterator[dict[str, Any]]:
    job, rank = history.job, history.job.faults.failing_rank
    if rank is None or history.failed_ns is None or history.interrupted is None:
        return
    detected, restarted = history.detected_ns or 0, history.restarted_ns or 0
    number = history.interrupted.number
    common = {"rank": rank, "node": job.node_of(rank), "first_step": number, "last_step": number}
    yield {
        **common,
        "what": "failing node",
        "start_ns": history.failed_ns,
        "end_ns": detected,
        "size": float(job.faults.xid),
        "unit": "Xid",
        "seen_in": "kernel log, power, sacct",
    }
    running = restarted + job.startup_ns
    resumed = min(step.number for step in history.steps if step.attempt == 2)
    yield {
        **common,
        "what": "job restart",
        "rank": pd.NA,
        "first_step": resumed,
        "last_step": number,
        "start_ns": detected,
        "end_ns": running,
        "size": (running - history.failed_ns) / SECOND,
        "unit": "s (from failure to training)",
        "seen_in": "sacct, steps, power",
    }


def _row(history: History, what: str, rank: int, first: int, last: int) -> dict[str, Any]:
    start, end = span_of(history, rank, first, last)
    return {
        "what": what,
        "rank": rank,
        "node": history.job.node_of(rank),
        "first_step": first,
        "last_step": last,
        "start_ns": start,
        "end_ns": end,
    }
