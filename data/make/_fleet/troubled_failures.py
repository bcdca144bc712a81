"""Failure logs in memory that end with a failure of known cause, or with none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from data.make._fleet.program import SECOND
from workbench._shared.incidents import fold
from workbench.tables import FAILURES, NODE_SPANS, QUALITY, TIMELINE, FailureLog

_START_NS = 1_768_204_800 * SECOND
_HOUR, _NODES, _JOB = 3600.0, 16, "4711"
_WINDOW_S = 600.0


class _Report(NamedTuple):
    """How one reporter writes of a failure."""

    kind: str
    code: str
    cause: str
    category: str
    severity: str = "fatal"


_TIMEOUT = _Report("nccl", "timeout", "NCCL collective timed out", "unknown")
_FAILED = _Report("slurm", "FAILED", "job failed with exit code 1", "unknown")
# What ends the job; the state in which Slurm leaves it says more, or less, than that.
_ENDS = {
    "end: hang": (_TIMEOUT, _FAILED),
    "end: node failure": (
        _Report("slurm", "NODE_FAIL", "node failed", "host"),
        _Report("slurm", "FAILED", "job failed with exit code 143", "unknown"),
    ),
    "end: memory kill": (
        _Report("kernel", "OOM", "process killed, out of memory", "host"),
        _Report("slurm", "OUT_OF_MEMORY", "out of host memory", "software"),
    ),
    "end: time limit": (
        _Report("slurmstepd", "TIMEOUT", "time limit reached", "scheduler"),
        _Report("slurm", "TIMEOUT", "time limit reached", "scheduler"),
    ),
    "end: exit": (
        _Report("torchelastic", "7", "exit code 7 (no traceback recorded)", "unknown"),
        _Report("slurm", "FAILED", "job failed with exit code 7", "unknown"),
    ),
}
END_TROUBLES = tuple(_ENDS)
_HARMLESS = (
    _Report("kernel", "MCE", "corrected hardware error", "host", "info"),
    _Report("amdgpu", "RAS", "corrected memory error", "gpu memory", "info"),
    _Report("slurm", "CANCELLED", "cancelled by user 1000", "planned", "info"),
)
_WARNING = _Report("xid", "63", "GPU memory remapping event", "gpu memory", "warning")
_EARLIER = _Report("xid", "79", "GPU has fallen off the bus", "gpu")


def failure_log(troubles: Mapping[str, float], *, seed: int) -> tuple[FailureLog, str]:
    """Make the failure log of some days, and name the node, rank or job at fault for its end.

    Without an end among the troubles the job completes. With one, other ranks run into their
    timeouts after it, a node warns shortly before it, and earlier failures were overcome; the last
    run of the job takes the strength of the trouble as a share of the log.
    """
    random = np.random.default_rng([seed, 13])
    length_s = random.uniform(24, 240) * _HOUR
    rows = [
        _row(report, random.uniform(0, length_s), node=_node(random))
        for report in _HARMLESS
        for _ in range(random.poisson(2))
    ]
    chosen = [name for name in _ENDS if name in troubles]
    if not chosen:
        runs = [(0.0, length_s, "COMPLETED")]
        return _log(rows, runs, length_s), ""
    name = chosen[0]
    began_s = length_s * (1 - min(troubles[name], 1.0))
    rows += [_row(_EARLIER, began_s - 300, node="node001"),
             _row(_FAILED, began_s - 270, job=_JOB)]  # fmt: skip
    runs = [(0.0, began_s - 270, "FAILED"), (began_s, length_s, _ENDS[name][1].code)]
    # Each of these ends but that of the scheduler is followed by a timeout.
    hit = int(random.integers(2, _NODES + 1))
    lead, left = _ENDS[name]
    places: dict[str, dict[str, Any]] = {
        "end: hang": {"rank": 8 * hit - 8},
        "end: time limit": {"job": _JOB, "node": f"node{hit:03}"},
    }
    place = places.get(name, {"node": f"node{hit:03}"})
    rows += [_row(_WARNING, length_s - random.uniform(60, 900), node="node001"),
             _row(lead, length_s, **place), _row(left, length_s + 20, job=_JOB)]  # fmt: skip
    if name != "end: time limit":
        others = [n for n in range(1, _NODES + 1) if n != hit]
        rows += [_row(_TIMEOUT, length_s + random.uniform(1, 15), rank=8 * n - 8) for n in others]
    # Those that wait run into their timeouts, and not the rank that they wait for.
    named = {"end: hang": "rank", "end: time limit": f"job {_JOB}"}
    return _log(rows, runs, length_s), named.get(name, f"node{hit:03}")


def _node(random: np.random.Generator) -> str:
    return f"node{random.integers(1, _NODES + 1):03}"


def _row(report: _Report, at_s: float, **place: Any) -> dict[str, Any]:
    at_ns = _START_NS + round(at_s * SECOND)
    ranks = {"ranks": str(place["rank"]), "rank_count": 1} if "rank" in place else {}
    texts = dict.fromkeys(("other_codes", "devices", "ranks", "text", "assumed"), "")
    return report._asdict() | texts | {
        "start_ns": at_ns, "end_ns": at_ns, "clock": "epoch", "rank_count": 0, "line_count": 1,
        "source": "synthetic.log", **place, **ranks,
    }  # fmt: skip


def _log(
    rows: list[dict[str, Any]], runs: list[tuple[float, float, str]], length_s: float
) -> FailureLog:
    rows = sorted(rows, key=lambda row: row["start_ns"])
    frame = pd.DataFrame(rows).reindex(columns=list(FAILURES.columns))
    frame["line"] = range(1, len(frame) + 1)
    frame = frame.astype(object).where(frame.notna(), None)
    failures = fold(FAILURES.cast(frame), window_s=_WINDOW_S)
    nodes = [f"node{n:03}" for n in range(1, _NODES + 1)]
    end_ns = _START_NS + round(length_s * SECOND)
    spans = [
        {"node": node, "first_ns": _START_NS, "last_ns": end_ns, "clock": "epoch",
         "gpu_count": 8, "failure_count": int((failures["node"] == node).sum())}
        for node in nodes
    ]  # fmt: skip
    timeline = [
        {"start_ns": _START_NS + round(start * SECOND), "end_ns": _START_NS + round(end * SECOND),
         "clock": "epoch", "job": _JOB, "attempt": n, "state": "running", "outcome": outcome,
         "node_count": _NODES, "gpu_count": 8 * _NODES, "nodes": ",".join(nodes),
         "source": "synthetic.log", "line": n}
        for n, (start, end, outcome) in enumerate(runs, 1)
    ]  # fmt: skip
    return FailureLog(failures, TIMELINE.of(timeline), NODE_SPANS.of(spans), QUALITY.empty())
