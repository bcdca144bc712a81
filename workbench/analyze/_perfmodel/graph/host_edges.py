"""Edges between moments on the CPU: along a thread, and from one thread to another."""

from __future__ import annotations

import numpy as np

from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.cpu_points import END, START, WAIT_END
from workbench.analyze._perfmodel.graph.draft import Draft
from workbench.analyze._perfmodel.graph.rank_rows import DEVICE_SYNC

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
    is_wait, is_gap = points.kind == WAIT_END, inside & (points.kind == START)
    # Where nothing else is to account for the time in a call, the call keeps all of it.
    is_launch = draft.cpu.what[points.cpu] < DEVICE_SYNC
    usual = _usual(lag[is_wait & is_launch & ~draft.lasting[points.cpu]], rules.blocked_ns)
    blocked = (
        lag if "queue limit" in draft.without else np.where(lag > rules.blocked_ns, usual, lag)
    )
    synced = lag if "synchronise" in draft.without else rules.sync_ns
    own = np.minimum(lag, np.where(is_launch, blocked, synced))
    own = np.where(draft.lasting[points.cpu], lag, own)
    plain, waits = inside & ~is_gap & ~is_wait, inside & is_wait
    draft.add(number[plain] - 1, number[plain], lag[plain], "CPU")
    draft.add(number[waits] - 1, number[waits], own[waits], "call")
    gap, head = np.flatnonzero(is_gap), np.flatnonzero(~inside)
    wait = np.append(gap[lag[gap] > rules.longest_gap_ns], head)
    begin = np.append(points.time[wait[: len(wait) - len(head)] - 1], np.full(len(head), -1))
    step = draft.step("inter-thread")
    cause = np.full(len(points.time), MISSING)
    if step.is_used:
        cause[wait] = _causes(draft, wait, begin)
    _add(draft, np.append(gap, head), cause, lag)


def _usual(lag: Ints, longest: int) -> int:
    """Give what a launch costs the CPU that does not have to wait."""
    short = lag[lag <= longest]
    return int(np.median(short)) if len(short) else longest


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
    place = np.unique(np.stack([points.thread[wait], name[wait]]), axis=1, return_inverse=True)[1]
    place = place.reshape(-1)
    times = np.bincount(place)[place]
    for thread in np.unique(points.thread[ends]).tolist():
        mine = ends[points.thread[ends] == thread]
        found = mine[np.searchsorted(points.time[mine], points.time[wait], side="right") - 1]
        time = points.time[found]
        fits = (time > begin) & (time <= points.time[wait]) & (points.thread[wait] != thread)
        number = np.unique(place * (int(name.max()) + 1) + name[found], return_inverse=True)[1]
        together = np.bincount(number, fits)[number]
        recurs = (together >= _LEAST_RECURRENCE) & (2 * together >= times)
        # A cause that recurs is better than one that does not; then the later one.
        rank = np.stack([np.where(recurs, 1, 0), time])
        better = fits & (
            (rank[0] > best_time[0]) | ((rank[0] == best_time[0]) & (time > best_time[1]))
        )
        best = np.where(better, found, best)
        best_time = np.where(better, rank, best_time)
    return best


def _add(draft: Draft, wait: Ints, cause: Ints, lag: Ints) -> None:
    """Add the edges into points that follow a gap, or are the first of their thread."""
    points, first = draft.points, draft.first
    has_length = "gaps" not in draft.without
    caused = wait[cause[wait] != MISSING]
    rest = points.time[caused] - points.time[cause[caused]]
    draft.add(
        first + cause[caused],
        first + caused,
        rest if has_length else 0,
        "inter-thread",
        inferred=True,
    )
    draft.step("gaps")
    is_head = np.append(True, points.thread[1:] != points.thread[:-1])[wait]
    gap, head = wait[~is_head], wait[is_head & (cause[wait] == MISSING)]
    own = np.where(cause[gap] == MISSING, lag[gap], 0) if has_length else 0
    draft.add(first + gap - 1, first + gap, own, "gap")
    draft.add(0, first + head, points.time[head] if has_length else 0, "trace start")
