"""Hosts that ask again and again whether communication is done, which no trace records."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._rows import Ints, gpu_work
from workbench.analyze.perfmodel._draft import Step
from workbench.analyze.perfmodel.graph_rules import GraphRules
from workbench.analyze.perfmodel.replay import binding_edges, replay
from workbench.kernel_kinds import KINDS
from workbench.tables import EDGE_KINDS, ExecutionGraph

# Time between two moments of a thread that keeps its length.
_OWN = [EDGE_KINDS.index(kind) for kind in ("gap", "CPU")]
# From these shares of the time on, polling is told, and makes predictions unreliable if work on
# the GPU takes nearly as long without it.
_TOLD, _MOST, _AS_LONG = 0.1, 0.5, 0.9


def polling_doubts(
    graph: ExecutionGraph, events: pd.DataFrame, rules: GraphRules, step: Step
) -> list[str]:
    """Say how much of the critical path a host seems to poll, and what that means.

    A host that waits for communication by polling has no call that says so: the wait is a gap
    of fixed length, or a long operator, and it would stay if communication were made faster.

    Parameters
    ----------
    graph
        Of all ranks, without circles.
    events
        What it was built from.
    rules
        With ``polling_ns``.
    step
        Step of the builder that gets a note.
    """
    polled = _polled_ns(graph, events, rules.polling_ns)
    if not polled.any():
        return []
    whole, on_path = _on_path(graph, polled, graph.weight_ns)
    near = ""
    # Where the GPU is behind by a little, gaps bind as soon as communication is faster.
    if on_path / whole <= _MOST:
        rest, beside = _on_path(graph, polled, _without(graph, events))
        if rest >= _AS_LONG * whole and beside > on_path:
            on_path, near = beside, " but for communication"
    words = (
        f"{int((polled > 0).sum()):,} gaps of the CPU end as communication does (the host polls?), "
        f"{on_path / 1e6:.1f} ms ({on_path / whole:.0%}) of the critical path{near}"
    )
    step.notes.append(words)
    if on_path / whole < _TOLD:
        return []
    if on_path / whole > _MOST and _gpu_is_as_long(graph, polled, whole):
        return [f"what-ifs are unreliable: {words}, and the GPU is busy as long"]
    return [f"{words}: they would not shrink with communication"]


def _on_path(graph: ExecutionGraph, polled: Ints, weight_ns: Ints) -> tuple[int, int]:
    """Give the length of the longest path, and what of it may be polling [ns]."""
    time = replay(graph, weight_ns=weight_ns)
    path = binding_edges(graph, time, int(np.argmax(time)), weight_ns=weight_ns)
    return max(int(time.max()), 1), int(polled[path].sum())


def _without(graph: ExecutionGraph, events: pd.DataFrame) -> Ints:
    """Give the weights if communication took no time."""
    talks = events.index[(events["kind"] == "communication").to_numpy(dtype=bool)]
    is_work = graph.edge_kind == EDGE_KINDS.index("GPU work")
    is_talk = is_work & np.isin(graph.event[graph.source], talks)
    return np.where(is_talk, 0, graph.weight_ns)


def _polled_ns(graph: ExecutionGraph, events: pd.DataFrame, window_ns: int) -> Ints:
    """Give for every edge the time that may be polling: communication runs, and ends with it."""
    found = np.zeros(len(graph.weight_ns), dtype=np.int64)
    begin, end = graph.time_ns[graph.source], graph.time_ns[graph.target]
    # A gap shorter than the window ends near some communication by chance.
    keeps = graph.weight_ns >= end - begin
    rows = np.flatnonzero(np.isin(graph.edge_kind, _OWN) & (end - begin > window_ns) & keeps)
    work = gpu_work(events)
    talks = work.kind == KINDS.index("communication")
    for rank in np.unique(work.rank[talks]).tolist():
        mine = rows[graph.point_rank[graph.target[rows]] == rank]
        of_rank = talks & (work.rank == rank)
        start, stop = (each[of_rank] - graph.origin_ns for each in (work.start, work.end))
        found[mine] = _with_communication(begin[mine], end[mine], start, stop, window_ns)
    return found


def _with_communication(begin: Ints, end: Ints, start: Ints, stop: Ints, window_ns: int) -> Ints:
    """Give how long communication that ends with a gap ran in it; of several the longest."""
    order = np.argsort(stop, kind="stable")
    start, stop = start[order], stop[order]
    first = np.searchsorted(stop, end - window_ns)
    last = np.searchsorted(stop, end + window_ns, side="right")
    longest = np.zeros(len(begin), dtype=np.int64)
    many: NDArray[np.int64] = last - first
    for offset in range(int(many.max(initial=0))):
        at = np.flatnonzero(many > offset)
        kernel = first[at] + offset
        ran = np.minimum(stop[kernel], end[at]) - np.maximum(start[kernel], begin[at])
        longest[at] = np.maximum(longest[at], ran)
    return longest


def _gpu_is_as_long(graph: ExecutionGraph, polled: Ints, whole: int) -> bool:
    """Say whether all takes nearly as long if the CPU need not poll."""
    weight = np.maximum(graph.weight_ns - polled, 0)
    return bool(replay(graph, weight_ns=weight).max() >= _AS_LONG * whole)
