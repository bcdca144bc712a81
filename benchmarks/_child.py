"""One measured action in a process of its own; started by ``_measure.py``.

Runs under any interpreter: that of the workbench, or that of a peer. Prints one line
of JSON. Only what happens between two marks counts; imports are timed by themselves.
"""

from __future__ import annotations

import gc
import gzip
import json
import logging
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_READ_BYTES = 1 << 20
_SMALL_BYTES = 20 << 20


def _status_mib(key: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


def _children_mib() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measured(action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Run ``action``: its result, its wall and CPU time and its peak above the start."""
    gc.collect()
    before_mib = _status_mib("VmRSS")
    wall, cpu = time.perf_counter(), _cpu_s()
    result = action()
    wall, cpu = time.perf_counter() - wall, _cpu_s() - cpu
    peak = _status_mib("VmHWM") + _children_mib() - before_mib
    return result, {"wall_s": wall, "cpu_s": cpu, "peak_mib": peak}


def _twice(action: Callable[[], Any], path: str) -> tuple[Any, dict[str, Any]]:
    """Load, and note what the process has cost by then; a small file a second time."""
    result, first = measured(action)
    parts: dict[str, Any] = {"load": first, "process": {"cpu_s": _cpu_s()}}
    if Path(path).stat().st_size < _SMALL_BYTES:
        parts["again"] = measured(action)[1]
    return result, parts


def _workbench(path: str, cache: str | None, engine: str) -> dict[str, Any]:
    from workbench import analyze, load

    # Names of the faces are imported when they are first used; imports do not count.
    traces = load.traces
    of_events = (analyze.time_breakdown, analyze.communication_overlap, analyze.idle_time)
    trace, parts = _twice(
        lambda: traces(path, cache=cache or None, engine=engine, progress=False), path
    )
    (breakdown, _, _), analyses = measured(
        lambda: [analysis(trace.events) for analysis in of_events]
    )
    seen = {"rows": len(trace.events), "compute_s": _seconds(breakdown, "compute_ns", 1e9)}
    return {**parts, "analyses": analyses, "seen": seen}


def _hta(path: str, *_unused: str | None) -> dict[str, Any]:
    from hta.trace_analysis import TraceAnalysis

    # The last step is dropped by default; both tools shall see the same events.
    analysis, parts = _twice(
        lambda: TraceAnalysis({0: path}, "/", include_last_profiler_step=True), path
    )
    (breakdown, _, _), analyses = measured(
        lambda: (
            analysis.get_temporal_breakdown(visualize=False),
            analysis.get_comm_comp_overlap(visualize=False),
            analysis.get_idle_time_breakdown(visualize=False),
        )
    )
    seen = {
        "rows": len(analysis.t.get_trace(0)),
        "compute_s": _seconds(breakdown, "compute_time(us)", 1e6),
    }
    return {**parts, "analyses": analyses, "seen": seen}


def _seconds(table: Any, column: str, per_second: float) -> float | None:
    return float(table[column].sum()) / per_second if column in table else None


def _gunzip(path: str, *_unused: str | None) -> dict[str, Any]:
    def run() -> int:
        size, buffer = 0, bytearray(_READ_BYTES)
        with gzip.open(path) as file:
            while count := file.readinto(buffer):
                size += count
        return size

    size, cost = measured(run)
    return {"load": cost, "seen": {"size_bytes": size}}


def _json(path: str, *_unused: str | None) -> dict[str, Any]:
    raw = Path(path).read_bytes()
    document, cost = measured(lambda: json.loads(raw))
    return {"load": cost, "seen": {"rows": len(document["traceEvents"])}}


ACTIONS = {"workbench": _workbench, "hta": _hta, "gunzip": _gunzip, "json": _json}


def main(action: str, path: str, cache: str = "", engine: str = "auto") -> None:
    """Run one action on one file and print its costs."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    print(json.dumps(ACTIONS[action](path, cache, engine)))


if __name__ == "__main__":
    main(*sys.argv[1:])
