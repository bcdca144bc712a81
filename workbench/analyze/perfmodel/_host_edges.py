"""Edges between moments on the CPU: along a thread, and from one thread to another."""

from __future__ import annotations

import numpy as np

from workbench.analyze._rows import MISSING, Ints
from workbench.analyze.perfmodel._cpu_points import END, START, WAIT_END
from workbench.analyze.perfmodel._draft import Draft
from workbench.analyze.perfmodel._rank_rows import DEVICE_SYNC


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
    is_launch = draft.cpu.what[points.cpu] < DEVICE_SYNC
    # Without the limit of the queue nothing else accounts for the time in a blocked launch.
    own_ns = rules.blocked_launch_ns if "queue limit" not in draft.without else lag
    own = np.minimum(lag, np.where(is_launch, own_ns, rules.sync_ns))
    plain, waits = inside & ~is_gap & ~is_wait, inside & is_wait
    draft.add(number[plain] - 1, number[plain], lag[plain], "CPU")
    draft.add(number[waits] - 1, number[waits], own[waits], "call")
    ends = np.flatnonzero(points.kind == END)
    ends = ends[np.argsort(points.time[ends], kind="stable")]
    _gaps(draft, np.flatnonzero(is_gap), lag, ends)
    _first_points(draft, np.flatnonzero(~inside), ends)


def _gaps(draft: Draft, gap: Ints, lag: Ints, ends: Ints) -> None:
    """Keep the length of a gap, or find what another thread ended in it."""
    points, first = draft.points, draft.first
    waited = draft.step("inter-thread")
    has_length = "gaps" not in draft.without
    found = np.full(len(gap), MISSING)
    if waited.is_used and len(ends):
        begin, end = points.time[gap - 1], points.time[gap]
        latest = ends[np.searchsorted(points.time[ends], end, side="right") - 1]
        usable = (points.time[latest] > begin) & (points.time[latest] <= end)
        usable &= (lag[gap] > draft.rules.longest_gap_ns) & (
            points.thread[latest] != points.thread[gap]
        )
        found = np.where(usable, latest, MISSING)
    has = found != MISSING
    rest = points.time[gap[has]] - points.time[found[has]]
    draft.add(
        first + found[has],
        first + gap[has],
        rest if has_length else 0,
        "inter-thread",
        inferred=True,
    )
    draft.step("gaps")
    own = np.where(has, 0, lag[gap]) if has_length else 0
    draft.add(first + gap - 1, first + gap, own, "gap")


def _first_points(draft: Draft, heads: Ints, ends: Ints) -> None:
    """Start a thread when another one has ended something, or with the trace."""
    points, first = draft.points, draft.first
    draft.step("first points")
    has_length = "gaps" not in draft.without
    for point in heads:
        moment = points.time[point]
        earlier = ends[: np.searchsorted(points.time[ends], moment, side="right")]
        earlier = earlier[points.thread[earlier] != points.thread[point]]
        if len(earlier) and "inter-thread" not in draft.without:
            lag = moment - points.time[earlier[-1]] if has_length else 0
            draft.add([first + earlier[-1]], [first + point], lag, "inter-thread", inferred=True)
        else:
            draft.add([0], [first + point], moment if has_length else 0, "trace start")
