"""How far the clocks of ranks are apart, from moments that they all recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import Ints, grouped

Floats = NDArray[np.float64]

_ROUNDS = 10
# The median absolute deviation times this is the standard deviation of normal noise.
_NORMAL = 1.4826


class Moments(NamedTuple):
    """What several ranks recorded of the same moments: one entry per moment and rank."""

    moment: Ints
    """Number of the moment, from 0."""
    rank: Ints
    """Number of the rank, from 0."""
    time: Ints
    """When it was on the clock of the rank [ns]."""


class Offsets(NamedTuple):
    """What has to be subtracted from each rank's clock, one entry per rank."""

    clock: Ints
    """Number of the common clock; ranks that no moments join have different ones."""
    offset: Ints
    """Offset from that clock [ns]; 0 for the median rank."""
    left: Floats
    """What the offsets leave of the differences [ns], one entry per moment and rank."""


def offsets(moments: Moments) -> Offsets:
    """Find the offsets with which ranks agree best about when the moments were.

    Notes
    -----
    Moments with the same ranks are taken together: the offset of rank r inside them is
    the median over moments of its time minus the median time of all ranks, iterated once
    with the offsets found. Where sets of ranks overlap, ``sum w (d - o - t)^2`` over sets
    and ranks is minimised, with d the offset inside the set, o that of the rank, t that of
    the set and w the number of moments; w is lowered where the misfit exceeds the median
    misfit (Huber), until nothing changes by a nanosecond.
    """
    count = int(moments.rank.max()) + 1
    # Clocks may be years apart: floats hold what is left beyond each rank's first moment.
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, moments.rank, moments.time)
    since = (moments.time - first[moments.rank]).astype(np.float64)
    sets = _sets(moments)
    clock = _joined(sets, count)
    inside = [
        (ranks, _inside(since[rows].reshape(-1, len(ranks))), len(rows) // len(ranks))
        for ranks, rows in sets
    ]
    relative = _solved(inside, clock)
    corrected = since - relative[moments.rank]
    middle = pd.Series(corrected).groupby(moments.moment).transform("median").to_numpy()
    # The first moment of each rank is no common one, so it goes back into the offset.
    offset = _centred(first, np.rint(relative).astype(np.int64), clock)
    return Offsets(clock, offset, corrected - middle)


def joined(moments: Moments) -> Ints:
    """Give ranks that moments join, directly or through others, the same number."""
    return _joined(_sets(moments), int(moments.rank.max(initial=-1)) + 1)


def spread(left: Floats, time: Ints) -> int:
    """Return the robust standard deviation of differences [ns].

    Whole microseconds, as profilers wrote them until 2024, hide half a microsecond.
    """
    coarse = bool(((time - time[0]) % 1000 == 0).all())
    return max(int(np.ceil(_NORMAL * np.median(np.abs(left)))), 500 if coarse else 0)


def drift(left: Floats, time: Ints) -> float | None:
    """Return by how much differences grow with time; None if it cannot be told from none.

    Notes
    -----
    A line is laid through the medians of the first and the last third. Their distance has
    to exceed 3 of its standard errors, ``1.25 s sqrt(6 / n)``, with s the robust standard
    deviation around the line and n the number of differences, at least 9.
    """
    third = len(left) // 3
    if third < 3:
        return None
    order = np.argsort(time, kind="stable")
    moment = (time[order] - time[order[0]]).astype(np.float64)
    value = left[order]
    run = float(np.median(moment[-third:]) - np.median(moment[:third]))
    rise = float(np.median(value[-third:]) - np.median(value[:third]))
    if run == 0:
        return None
    slope = rise / run
    around = value - slope * moment
    noise = _NORMAL * float(np.median(np.abs(around - np.median(around))))
    return slope if abs(rise) > 3 * 1.25 * noise * np.sqrt(6 / len(left)) else None


def _sets(moments: Moments) -> list[tuple[Ints, Ints]]:
    """Gather moments that the same ranks recorded: the ranks, and the rows, moment by moment."""
    order = np.lexsort((moments.rank, moments.moment))
    parts = np.split(order, np.flatnonzero(np.diff(moments.moment[order])) + 1)
    found: dict[bytes, list[Ints]] = {}
    for rows in parts:
        found.setdefault(moments.rank[rows].tobytes(), []).append(rows)
    return [(moments.rank[rows[0]], np.concatenate(rows)) for rows in found.values()]


def _joined(sets: list[tuple[Ints, Ints]], count: int) -> Ints:
    """Give ranks that sets join, directly or through others, the same number."""
    lowest = np.arange(count)
    changed = True
    while changed:
        changed = False
        for ranks, _ in sets:
            low = lowest[ranks].min()
            if (lowest[ranks] != low).any():
                lowest[ranks] = low
                changed = True
    return grouped(lowest).number


def _inside(times: Floats) -> Floats:
    """Give the offsets of the ranks (columns) that recorded some moments (rows)."""
    offset = np.zeros(times.shape[1])
    for _ in range(2):
        middle = np.median(times - offset, axis=1, keepdims=True)
        offset = np.median(times - middle, axis=0)
    return offset


def _solved(inside: list[tuple[Ints, Floats, int]], clock: Ints) -> Floats:
    """Find one offset per rank from its offsets inside sets of ranks."""
    offset = np.zeros(len(clock))
    weights = [np.full(len(ranks), float(count)) for ranks, _, count in inside]
    same = (clock[:, None] == clock[None, :]).astype(np.float64)
    for _ in range(_ROUNDS):
        matrix, right = same.copy(), np.zeros(len(clock))
        for (ranks, value, _), weight in zip(inside, weights, strict=True):
            share = weight / weight.sum()
            matrix[np.ix_(ranks, ranks)] += np.diag(weight) - np.outer(weight, share)
            right[ranks] += weight * (value - share @ value)
        found = np.linalg.solve(matrix, right)
        moved = np.abs(found - offset).max()
        offset = found
        if moved < 1:
            break
        misfits = _misfits(inside, weights, offset)
        usual = max(float(np.median(np.concatenate(misfits))), 1.0)
        weights = [
            count * np.minimum(1.0, usual / np.maximum(misfit, 1.0))
            for (_, _, count), misfit in zip(inside, misfits, strict=True)
        ]
    return offset


def _misfits(
    inside: list[tuple[Ints, Floats, int]], weights: list[Floats], offset: Floats
) -> list[Floats]:
    """Say how far each offset inside a set is from that of its rank, but for a common shift."""
    misfits = []
    for (ranks, value, _), weight in zip(inside, weights, strict=True):
        apart = value - offset[ranks]
        misfits.append(np.abs(apart - weight @ apart / weight.sum()))
    return misfits


def _centred(first: Ints, relative: Ints, clock: Ints) -> Ints:
    """Make the offsets of every clock those from its median rank, in whole nanoseconds."""
    offset = np.zeros(len(clock), dtype=np.int64)
    for number in range(int(clock.max(initial=-1)) + 1):
        mine = np.flatnonzero(clock == number)
        absolute = (first[mine] - first[mine[0]]) + relative[mine]
        offset[mine] = absolute - np.sort(absolute)[(len(mine) - 1) // 2]
    return offset
