"""Sets of time intervals on int64 nanoseconds: the mathematics that the analyses share.

An interval is half-open: it holds its start and not its end, so its length is ``end - start`` and
neighbours that touch share nothing. A set of intervals is two arrays, starts and ends. They may
come in any order and may overlap; intervals of zero or negative length hold nothing and drop out.
Results are sorted, disjoint and do not touch each other. All sums are exact integers, so identities
hold to the nanosecond.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench._shared.compiled import check_source

cover: Callable[..., bool] | None = None
with contextlib.suppress(ImportError):
    from workbench.analyze._lib import _sweep as compiled

    check_source(Path(__file__).with_name("_sweep.c"), compiled.SOURCE_DIGEST)
    cover = compiled.cover

Ns: TypeAlias = NDArray[np.int64]
Intervals: TypeAlias = tuple[Ns, Ns]

# A column per combination of classes: 256 at most.
_MAX_CLASS = 7
# Sums of two places on the line must fit int64.
_LINE_LENGTH = 1 << 62


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """Merge intervals that overlap or touch.

    Examples
    --------
    >>> starts, ends = union([0, 30, 5], [10, 40, 20])
    >>> starts.tolist(), ends.tolist()
    ([0, 30], [20, 40])
    """
    starts, ends = _checked(starts, ends)
    if len(starts) == 0:
        return starts, ends
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")  # of sorted pieces it only merges
        starts, ends = starts[order], ends[order]
    reach = _latest(ends)
    cuts = np.flatnonzero(starts[1:] > reach[:-1])
    opening, closing = starts[np.append(0, cuts + 1)], reach[np.append(cuts, len(reach) - 1)]
    # What holds nothing by itself joins others or stands alone.
    is_proper = closing > opening
    return (opening, closing) if is_proper.all() else (opening[is_proper], closing[is_proper])


def measure(starts: ArrayLike, ends: ArrayLike) -> int:
    """Return the time that the intervals cover [ns]; what overlaps counts once.

    Examples
    --------
    >>> measure([0, 5, 30], [10, 20, 40])
    30
    """
    starts, ends = union(starts, ends)
    return int((ends - starts).sum())


def intersect(
    a_starts: ArrayLike, a_ends: ArrayLike, b_starts: ArrayLike, b_ends: ArrayLike
) -> Intervals:
    """Return the time that lies in both sets.

    Examples
    --------
    >>> starts, ends = intersect([0, 20], [10, 30], [5], [25])
    >>> starts.tolist(), ends.tolist()
    ([5, 20], [10, 25])
    """
    a_starts, a_ends = union(a_starts, a_ends)
    b_starts, b_ends = union(b_starts, b_ends)
    first = np.searchsorted(b_ends, a_starts, side="right")
    partners = np.searchsorted(b_starts, a_ends, side="left") - first
    a_rows = np.repeat(np.arange(len(a_starts)), partners)
    before = np.cumsum(partners) - partners
    b_rows = np.arange(len(a_rows)) + np.repeat(first - before, partners)
    return (
        np.maximum(a_starts[a_rows], b_starts[b_rows]),
        np.minimum(a_ends[a_rows], b_ends[b_rows]),
    )


def subtract(
    a_starts: ArrayLike, a_ends: ArrayLike, b_starts: ArrayLike, b_ends: ArrayLike
) -> Intervals:
    """Return the time that lies in the first set and not in the second.

    Examples
    --------
    >>> starts, ends = subtract([0], [30], [5, 28], [10, 99])
    >>> starts.tolist(), ends.tolist()
    ([0, 10], [5, 28])
    """
    a_starts, a_ends = union(a_starts, a_ends)
    if len(a_starts) == 0:
        return a_starts, a_ends
    window = (int(a_starts[0]), int(a_ends[-1]))
    return intersect(a_starts, a_ends, *gaps(b_starts, b_ends, window=window))


def gaps(starts: ArrayLike, ends: ArrayLike, *, window: tuple[int, int] | None = None) -> Intervals:
    """Return the time that no interval covers.

    Examples
    --------
    >>> starts, ends = gaps([0, 30], [10, 40], window=(-5, 50))
    >>> starts.tolist(), ends.tolist()
    ([-5, 10, 40], [0, 30, 50])
    """
    starts, ends = union(starts, ends)
    if window is None:
        return ends[:-1], starts[1:]
    low, high = window
    opening = np.clip(np.append(low, ends), low, high)
    closing = np.clip(np.append(starts, high), low, high)
    is_open = opening < closing
    return opening[is_open], closing[is_open]


def measure_within(
    starts: ArrayLike, ends: ArrayLike, window_starts: ArrayLike, window_ends: ArrayLike
) -> Ns:
    """Return, for each of many windows, the time in it that the intervals cover.

    Examples
    --------
    >>> measure_within([0, 20], [10, 30], [5, 12], [25, 18]).tolist()
    [10, 0]
    """
    return measure_merged(*union(starts, ends), *_checked(window_starts, window_ends))


def measure_merged(starts: Ns, ends: Ns, low: Ns, high: Ns) -> Ns:
    """Do what :func:`measure_within` does, for intervals that :func:`union` has merged."""
    if len(starts) == 0:
        return np.zeros(len(low), dtype=np.int64)
    until = np.append(0, np.cumsum(ends - starts))
    index = pd.Index(starts)

    def before(moments: Ns) -> Ns:
        if (moments[1:] < moments[:-1]).any():
            passed = np.searchsorted(starts, moments, side="right")
        else:  # both are in order: walking along them is quicker than searching
            passed = index.get_indexer(pd.Index(moments), method="pad") + 1
        unfinished = np.maximum(ends[np.maximum(passed - 1, 0)] - moments, 0)
        return np.asarray(until[passed] - np.where(passed > 0, unfinished, 0))

    return np.asarray(np.maximum(before(high) - before(low), 0))


def measure_levels(
    level: NDArray[np.int8], starts: Ns, lasting: Ns, low: Ns, high: Ns, *, levels: int
) -> Ns:
    """Return the time in windows that intervals of a level or below cover: a row per level [ns].

    Intervals of other levels count nowhere.

    Examples
    --------
    >>> level = np.array([1, 0], dtype=np.int8)
    >>> starts, lasting = np.array([0, 5]), np.array([10, 20])
    >>> measure_levels(level, starts, lasting, np.array([0]), np.array([30]), levels=2).tolist()
    [[20], [25]]
    """
    covered = np.zeros((levels, len(low)), dtype=np.int64)
    arrays = (np.ascontiguousarray(array) for array in (level, starts, lasting, low, high))
    if cover is not None and cover(*arrays, covered):
        return covered
    for number in range(levels):
        covered[number] = covered[number - 1] if number else 0
        if (level == number).any():
            row = np.flatnonzero((level >= 0) & (level <= number))
            opening = starts[row]
            covered[number] = measure_merged(*union(opening, opening + lasting[row]), low, high)
    return covered


def running_end(ends: ArrayLike, groups: ArrayLike) -> Ns:
    """Return, for each interval, the latest end so far in its group, its own included.

    Intervals come in order of their start within each group.
    """
    ends, groups = _checked(ends, groups)
    if len(ends) == 0:
        return ends
    low, count = int(ends.min()), int(groups.max()) + 1
    width = int(ends.max()) - low + 1
    if count * width > _LINE_LENGTH or groups.min() < 0 or (groups[1:] < groups[:-1]).any():
        return pd.Series(ends).groupby(groups).cummax().to_numpy()
    # Laid end to end on one line, no group reaches into the next.
    shift = groups * width - low
    return np.asarray(_latest(ends + shift) - shift)


def coverage(starts: ArrayLike, ends: ArrayLike, classes: ArrayLike, groups: ArrayLike) -> Ns:
    """Measure, per group, how long exactly which classes of intervals are active [ns].

    One sweep over all edges answers every question about overlap: the time in which classes 0 and 2
    are active and no other is column ``0b101``. Column 0, no class active, is the time between the
    intervals of the group. Classes are 0 to 7, groups count from 0 and do not see each other.
    """
    starts, ends = _checked(starts, ends)
    classes, groups = _checked(classes, groups)
    if starts.shape != classes.shape:
        msg = f"{len(starts)} intervals need as many classes and groups, got {len(classes)}"
        raise ValueError(msg)
    if classes.size and not 0 <= classes.min() <= classes.max() <= _MAX_CLASS:
        msg = f"classes must be 0 to {_MAX_CLASS}, got {classes.min()} to {classes.max()}"
        raise ValueError(msg)
    shape = (int(groups.max(initial=-1)) + 1, 1 << (int(classes.max(initial=-1)) + 1))
    is_proper = ends > starts
    if is_proper.all():
        return _sweep(starts, ends, classes, groups, shape)
    return _sweep(starts[is_proper], ends[is_proper], classes[is_proper], groups[is_proper], shape)


# Sweep line: the groups are laid end to end on one line, so that one sort serves all of them.
def _sweep(starts: Ns, ends: Ns, classes: Ns, groups: Ns, shape: tuple[int, int]) -> Ns:
    covered = np.zeros(shape, dtype=np.int64)
    if len(starts) == 0:
        return covered
    low, width = starts.min(), int(ends.max()) - int(starts.min()) + 1
    if shape[0] > 1 and shape[0] * width > _LINE_LENGTH:
        # They do not fit on one line of int64: half of the groups at a time.
        half = shape[0] // 2
        left = groups < half
        halves = ((left, 0, half), (~left, half, shape[0] - half))
        return np.concatenate(
            [
                _sweep(starts[p], ends[p], classes[p], groups[p] - first, (count, shape[1]))
                for p, first, count in halves
            ]
        )
    shift = groups * width - low
    begin, end = starts + shift, ends + shift
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, end, classes, groups = (column[order] for column in (begin, end, classes, groups))
    reach = _latest(end)
    is_clear = np.concatenate([[True], begin[1:] >= reach[:-1], [True]])
    # As long as an interval that meets no other lasts, its class alone is active.
    meets = ~(is_clear[1:] & is_clear[:-1])
    cell = groups * shape[1] + (1 << classes)
    np.add.at(covered.reshape(-1), cell, np.where(meets, 0, end - begin))
    if meets.any():
        time, change = _edges(begin[meets], end[meets], classes[meets])
        cell = time[:-1] // width * shape[1] + np.cumsum(change[:-1])
        np.add.at(covered.reshape(-1), cell, np.diff(time))
    # To those that meet others, the rest and the way to the next group look like no interval.
    opens = np.append(True, groups[1:] != groups[:-1])
    group, extent = groups[opens], reach[np.append(opens[1:], True)] - begin[opens]
    covered[group, 0] = extent - covered[group, 1:].sum(axis=1)
    return covered


# Every class has a bit: where its union begins the bit is added, where it ends it is taken off, so
# that the running sum says which classes are active.
def _edges(starts: Ns, ends: Ns, classes: Ns) -> tuple[Ns, Ns]:
    times, changes = [], []
    for number in range(int(classes.max()) + 1):
        row = np.flatnonzero(classes == number)
        merged = union(starts[row], ends[row])
        times.append(np.column_stack(merged).reshape(-1))
        changes.append(np.tile([1 << number, -(1 << number)], len(merged[0])))
    time, change = np.concatenate(times), np.concatenate(changes)
    order = np.argsort(time, kind="stable")
    return time[order], change[order]


def _latest(ends: Ns) -> Ns:
    """Return the latest end so far; of integers fmax is the maximum, in a quarter of its time."""
    return np.asarray(np.fmax.accumulate(ends))


def _checked(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    starts, ends = np.asarray(starts), np.asarray(ends)
    if starts.shape != ends.shape or starts.ndim != 1:
        msg = f"starts and ends must be lists of one length, got {starts.shape} and {ends.shape}"
        raise ValueError(msg)
    for values in (starts, ends):
        if values.size and values.dtype.kind not in "iu":
            msg = f"intervals are whole nanoseconds (int64), got {values.dtype}"
            raise ValueError(msg)
    return starts.astype(np.int64, copy=False), ends.astype(np.int64, copy=False)
