"""Edges between moments on the CPU: along a thread, and from one thread to another."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib.intervals import measure_within, union
from workbench.analyze._lib.rows import MISSING, Ints, gpu_work
from workbench.analyze._perfmodel.graph.draft import Draft, Step
from workbench.analyze._perfmodel.graph.rank_rows import (
    DEVICE_SYNC,
    END,
    START,
    WAIT_END,
    GraphRules,
)
from workbench.analyze._perfmodel.timing.replay import binding_edges, replay
from workbench.tables import EDGE_KINDS, ExecutionGraph

_NEVER = np.iinfo(np.int64).min
_LEAST_RECURRENCE = 2


def host_edges(draft: Draft) -> None:
    """Join every moment of a thread to the next one, and threads to each other.

    A wait costs the CPU little of its own; the rest of it comes from what it waits for. What
    the profiler did not see between two operators (Python, mostly) keeps its length.
    """
    points, rules = draft.points, draft.rules
    if not len(points.time):
        return
    draft.step("CPU")
    number = draft.first + np.arange(len(points.time))
    inside = np.append(False, points.thread[1:] == points.thread[:-1])
    lag = np.diff(points.time, prepend=0)
    # A gap leads to the start of an outermost row: time that no operator covers, mostly Python.
    is_wait, is_gap = points.kind == WAIT_END, inside & (points.kind == START)
    # Where nothing else is to account for the time in a call, the call keeps all of it.
    is_launch = draft.cpu.effect[points.cpu] < DEVICE_SYNC
    short = lag[is_wait & is_launch & ~draft.lasting[points.cpu] & (lag <= rules.blocked_ns)]
    usual = int(np.median(short)) if len(short) else rules.blocked_ns
    # Without the step that gives a wait its cause, the call keeps all of its time.
    blocked = np.where((lag > rules.blocked_ns) & ("queue limit" not in draft.without), usual, lag)
    synced = lag if "synchronise" in draft.without else rules.sync_ns
    own = np.minimum(lag, np.where(is_launch, blocked, synced))
    own = np.where(draft.lasting[points.cpu], lag, own)
    plain, waits = inside & ~is_gap & ~is_wait, inside & is_wait
    draft.add(number[plain] - 1, number[plain], lag[plain], "CPU")
    draft.add(number[waits] - 1, number[waits], own[waits], "call")
    gap, head = np.flatnonzero(is_gap), np.flatnonzero(~inside)
    # Short gaps are Python between two operators; only a long one may be a wait for a thread.
    wait = np.append(gap[lag[gap] > rules.longest_gap_ns], head)
    begin = np.append(points.time[wait[: len(wait) - len(head)] - 1], np.full(len(head), -1))
    step = draft.step("inter-thread")
    cause = np.full(len(points.time), MISSING)
    if step.is_used:
        cause[wait] = _causes(draft, wait, begin)
    _add(draft, np.append(gap, head), cause, lag)


def _causes(draft: Draft, wait: Ints, begin: Ints) -> Ints:
    """Find what another thread ended while a thread did nothing; -1 where there is nothing.

    What ended last may have done so by chance. So what came with at least half of the points of
    the same name goes first. Where nothing recurs, what ended last ties the threads together:
    a gap of fixed length would let a loader that waits for the step keep its own pace.
    """
    points, name = draft.points, draft.cpu.name[draft.points.cpu]
    ends = np.flatnonzero(points.kind == END)
    best = np.full(len(wait), MISSING)
    best_time = np.full((2, len(wait)), _NEVER)
    group = np.unique(np.stack([points.thread[wait], name[wait]]), axis=1, return_inverse=True)[1]
    group = group.reshape(-1)
    # How often a point of this name occurs on this thread, for the share that recurs below.
    times = np.bincount(group)[group]
    for thread in np.unique(points.thread[ends]).tolist():
        own_ends = ends[points.thread[ends] == thread]
        cause = own_ends[
            np.searchsorted(points.time[own_ends], points.time[wait], side="right") - 1
        ]
        time = points.time[cause]
        fits = (time > begin) & (time <= points.time[wait]) & (points.thread[wait] != thread)
        number = np.unique(group * (int(name.max()) + 1) + name[cause], return_inverse=True)[1]
        together = np.bincount(number, fits)[number]
        recurs = (together >= _LEAST_RECURRENCE) & (2 * together >= times)
        # A cause that recurs is better than one that does not; then the later one.
        rank = np.stack([np.where(recurs, 1, 0), time])
        better = fits & (
            (rank[0] > best_time[0]) | ((rank[0] == best_time[0]) & (time > best_time[1]))
        )
        best = np.where(better, cause, best)
        best_time = np.where(better, rank, best_time)
    return best


def _add(draft: Draft, wait: Ints, cause: Ints, lag: Ints) -> None:
    """Add the edges into points that follow a gap, or are the first of their thread."""
    points, first = draft.points, draft.first
    has_length = "gaps" not in draft.without
    caused = wait[cause[wait] != MISSING]
    lag_ns = points.time[caused] - points.time[cause[caused]] if has_length else 0
    draft.add(first + cause[caused], first + caused, lag_ns, "inter-thread", inferred=True)
    draft.step("gaps")
    # Heads are the first points of a thread: nothing on it comes before.
    is_head = np.append(True, points.thread[1:] != points.thread[:-1])[wait]
    gap, head = wait[~is_head], wait[is_head & (cause[wait] == MISSING)]
    own = np.where(cause[gap] == MISSING, lag[gap], 0) if has_length else 0
    draft.add(first + gap - 1, first + gap, own, "gap")
    draft.add(0, first + head, points.time[head] if has_length else 0, "trace start")


# Time between two moments of a thread that keeps its length; of it, what no row accounts for.
_UNTRACED = [EDGE_KINDS.index(kind) for kind in ("gap", "inter-thread")]
_OWN = [*_UNTRACED, EDGE_KINDS.index("CPU")]
# From these shares of the time on, polling is told, and makes predictions unreliable if work on
# the GPU takes nearly as long without it.
_TOLD, _MOST, _AS_LONG = 0.1, 0.5, 0.9


def polling_doubts(
    graph: ExecutionGraph, events: pd.DataFrame, rules: GraphRules, step: Step
) -> list[str]:
    """Return how much of the critical path a host seems to poll, and what that means.

    A host that waits for the GPU by polling has no call that says so: the wait is a gap of
    fixed length, or a long operator, and it would stay if the GPU were made faster. So it is
    recognised by two signs: gaps that end as communication does, and gaps that are most of the
    critical path of a GPU that is hardly ever idle. ``step`` gets a note.
    """
    busy = _Busy(graph, events)
    doubts = _with_communication(graph, events, busy, rules, step)
    if not any(doubt.startswith("what-ifs are unreliable") for doubt in doubts):
        doubts += _co_critical(graph, busy, rules)
    return doubts


class _Busy:
    """When the GPUs of every rank are busy, on the clock of the graph."""

    def __init__(self, graph: ExecutionGraph, events: pd.DataFrame) -> None:
        self.work = gpu_work(events)
        self.spans = {}
        for rank in np.unique(self.work.rank).tolist():
            of_rank = self.work.rank == rank
            start, end = self.work.start[of_rank], self.work.end[of_rank]
            self.spans[rank] = union(start - graph.origin_ns, end - graph.origin_ns)

    def within(self, rank: int, begin: Ints, end: Ints) -> Ints:
        """Return how long the GPUs of a rank are busy in some windows [ns]."""
        return np.asarray(measure_within(*self.spans[rank], begin, end))


def _with_communication(
    graph: ExecutionGraph, events: pd.DataFrame, busy: _Busy, rules: GraphRules, step: Step
) -> list[str]:
    polled = _polled_ns(graph, busy, rules.polling_ns)
    if not polled.any():
        return []
    length, on_path = _on_path(graph, polled, graph.weight_ns)
    near = ""
    # Where the GPU is behind by a little, gaps bind as soon as communication is faster.
    if on_path / length <= _MOST:
        talks = events.index[(events["kind"] == "communication").to_numpy(dtype=bool)]
        is_work = graph.edge_kind == EDGE_KINDS.index("GPU work")
        is_talk = is_work & np.isin(graph.event[graph.source], talks)
        host_ns, beside = _on_path(graph, polled, np.where(is_talk, 0, graph.weight_ns))
        if host_ns >= _AS_LONG * length and beside > on_path:
            on_path, near = beside, " but for communication"
    words = (
        f"{int((polled > 0).sum()):,} gaps of the CPU end as communication does (the host polls?), "
        f"{on_path / 1e6:.1f} ms ({on_path / length:.0%}) of the critical path{near}"
    )
    step.notes.append(words)
    if on_path / length < _TOLD:
        return []
    # If all is nearly as long without polling, the GPU binds too, and a faster one would show.
    weight = np.maximum(graph.weight_ns - polled, 0)
    if on_path / length > _MOST and replay(graph, weight_ns=weight).max() >= _AS_LONG * length:
        return [f"what-ifs are unreliable: {words}, and the GPU is busy as long"]
    return [f"{words}: they would not shrink with communication"]


def _co_critical(graph: ExecutionGraph, busy: _Busy, rules: GraphRules) -> list[str]:
    """Doubt a critical path of gaps beside a GPU that is nearly always busy."""
    window_ns = max(int(graph.time_ns.max()), 1)
    window = np.array([0]), np.array([window_ns])
    shares = {rank: int(busy.within(rank, *window)[0]) / window_ns for rank in busy.spans}
    busiest = [rank for rank, share in shares.items() if share > rules.co_critical_busy_share]
    if not busiest:
        return []
    untraced = np.isin(graph.edge_kind, _UNTRACED)
    is_work = graph.edge_kind == EDGE_KINDS.index("GPU work")
    doubts = []
    for rank in busiest:
        gap = np.where(untraced & (graph.point_rank[graph.target] == rank), graph.weight_ns, 0)
        length, on_path = _on_path(graph, gap, graph.weight_ns)
        # Where the GPU binds by a little, the gaps do as soon as it is faster.
        host, beside = _on_path(graph, gap, np.where(is_work, 0, graph.weight_ns))
        if host >= _AS_LONG * length:
            on_path = max(on_path, beside)
        if on_path / length > rules.co_critical_gap_share:
            doubts.append(
                f"what-ifs are unreliable: the GPU of rank {rank} is busy for {shares[rank]:.0%} "
                f"of the window while {on_path / length:.0%} of the critical path is time of the "
                "CPU that nothing in the trace accounts for; the host may poll for the GPU"
            )
    return doubts


def _on_path(graph: ExecutionGraph, polled: Ints, weight_ns: Ints) -> tuple[int, int]:
    """Return the length of the longest path, and what of it may be polling [ns]."""
    time = replay(graph, weight_ns=weight_ns)
    path = binding_edges(graph, time, int(np.argmax(time)), weight_ns=weight_ns)
    return max(int(time.max()), 1), int(polled[path].sum())


def _polled_ns(graph: ExecutionGraph, busy: _Busy, window_ns: int) -> Ints:
    """Return for every edge the time that may be polling: communication runs, and ends with it.

    Other work may have run before it on the GPU: the host waits for all of it.
    """
    # DeepEP, for one, spins on counters on the CPU: no runtime call says that the host waits.
    polled = np.zeros(len(graph.weight_ns), dtype=np.int64)
    begin, end = graph.time_ns[graph.source], graph.time_ns[graph.target]
    # A gap shorter than the window ends near some communication by chance.
    keeps = graph.weight_ns >= end - begin
    rows = np.flatnonzero(np.isin(graph.edge_kind, _OWN) & (end - begin > window_ns) & keeps)
    work = busy.work
    talks = work.kind == KINDS.index("communication")
    for rank in np.unique(work.rank[talks]).tolist():
        gaps = rows[graph.point_rank[graph.target[rows]] == rank]
        of_rank = talks & (work.rank == rank)
        start, stop = (moments[of_rank] - graph.origin_ns for moments in (work.start, work.end))
        gaps = gaps[_end_together(begin[gaps], end[gaps], start, stop, window_ns)]
        polled[gaps] = busy.within(rank, begin[gaps], end[gaps])
    return polled


def _end_together(
    begin: Ints, end: Ints, start: Ints, stop: Ints, window_ns: int
) -> NDArray[np.bool_]:
    """Return in which gaps communication ran that ended about as they did."""
    # By end, so that the kernels that end near a gap are neighbours and the loop below is short.
    order = np.argsort(stop, kind="stable")
    start, stop = start[order], stop[order]
    first = np.searchsorted(stop, end - window_ns)
    count: NDArray[np.int64] = np.searchsorted(stop, end + window_ns, side="right") - first
    ran = np.zeros(len(begin), dtype=bool)
    for offset in range(int(count.max(initial=0))):
        at = np.flatnonzero(count > offset)
        kernel = first[at] + offset
        ran[at] |= np.minimum(stop[kernel], end[at]) > np.maximum(start[kernel], begin[at])
    return ran
