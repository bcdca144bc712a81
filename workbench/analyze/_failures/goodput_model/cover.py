"""Unions of many intervals at once, and how much of a line they cover up to a point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[Any]  # float64
Ints: TypeAlias = NDArray[Any]  # int64


@dataclass(frozen=True)
class Pieces:
    """A union cut into disjoint pieces, in order; each belongs to one of the intervals."""

    start: Floats
    end: Floats
    owner: Ints

    @property
    def length(self) -> Floats:
        """Length of every piece."""
        return self.end - self.start


def union(start: Floats, end: Floats) -> Pieces:
    """Cut the union of intervals, sorted by start, into pieces.

    Where intervals overlap, the one that ends last owns the time; of equally long ones that is
    the one that began last.

    ``intervals.union`` merges exact nanoseconds and forgets whose they
    were. Here times are minutes, as floats, and every piece must still tell which
    failure it belongs to, so neighbours that touch are not merged.
    """
    if not len(start):
        return Pieces(start, end, np.zeros(0, dtype=np.int64))
    reach = np.maximum.accumulate(end)
    owner = np.maximum.accumulate(np.where(end >= reach, np.arange(len(end)), 0))
    until = reach.copy()
    np.minimum(until[:-1], start[1:], out=until[:-1])
    kept = until > start
    return Pieces(start[kept], until[kept], owner[kept])


class Covered:
    """How much a set of disjoint pieces, in order, covers before any point."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.sums = np.concatenate(([0.0], np.cumsum(pieces.length)))

    def before(self, points: Floats) -> Floats:
        """Return the length covered before every point."""
        if not len(self.pieces.start):
            return np.zeros(len(points))
        index = np.searchsorted(self.pieces.start, points, side="right")
        last = np.maximum(index - 1, 0)
        beyond = np.maximum(self.pieces.end[last] - points, 0.0)
        covered: Floats = np.where(index > 0, self.sums[index] - beyond, 0.0)
        return covered

    def free_before(self, points: Floats) -> Floats:
        """Return the length that is not covered before every point, counted from 0."""
        free: Floats = points - self.before(points)
        return free

    def point_of(self, free: Floats) -> Floats:
        """Return the point before which so much is free; the inverse of ``free_before``."""
        at_start = self.pieces.start - self.sums[:-1]
        points: Floats = free + self.sums[np.searchsorted(at_start, free, side="left")]
        return points
