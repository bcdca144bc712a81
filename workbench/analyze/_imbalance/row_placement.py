"""How much each memory unit has to do when rows of unequal popularity are spread over units.

Rows come in classes of equal popularity, so that a hundred million rows cost no more
than there are classes.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class Classes(NamedTuple):
    """Rows by falling popularity: how many are equally popular, and how popular each is."""

    rows: Ints
    share: Floats
    """Of all look-ups, each row of the class."""

    @property
    def first(self) -> Ints:
        """Number of the first row of each class."""
        ends: Ints = np.cumsum(self.rows)
        return ends - self.rows

    def cut(self, row: int) -> tuple[Classes, Classes]:
        """Split into the rows before a row and the others."""
        ends = np.cumsum(self.rows)
        at = int(np.searchsorted(ends, row, side="right"))
        if at == len(ends):
            return self, Classes(self.rows[:0], self.share[:0])
        inside = row - int(ends[at] - self.rows[at])
        head = Classes(self.rows[: at + (inside > 0)].copy(), self.share[: at + (inside > 0)])
        tail = Classes(self.rows[at:].copy(), self.share[at:])
        if inside:
            head.rows[-1] = inside
            tail.rows[0] -= inside
        return head, tail

    def each(self) -> Floats:
        """Give the popularity of every single row."""
        return np.repeat(self.share, self.rows)

    def total(self) -> float:
        """Share of all look-ups."""
        # Not a dot product: on a busy machine the threads of BLAS wait for each other.
        return float((self.rows * self.share).sum())


def contiguous(classes: Classes, first: int, count: int, units: int) -> Floats:
    """Load the units with blocks of equally many rows, as they come.

    ``first`` is the number of the first row given, ``count`` how many rows there are in all.
    """
    borders = np.arange(units + 1) * count // units
    rows = np.concatenate([[0], np.cumsum(classes.rows)]) + first
    done = np.concatenate([[0.0], np.cumsum(classes.rows * classes.share)])
    return np.diff(np.interp(borders, rows, done))


def round_robin(classes: Classes, first: int, units: int) -> Floats:
    """Load the units with rows dealt out in turn; row 0 goes to unit 0."""
    every, left = np.divmod(classes.rows, units)
    load = np.full(units, float((every * classes.share).sum()))
    # What is left of a class goes to the units from start on: up at the first, down after the last.
    start = (classes.first + first) % units
    share = np.where(left > 0, classes.share, 0.0)
    steps = np.bincount(start, weights=share, minlength=2 * units + 1)
    steps -= np.bincount(start + left, weights=share, minlength=2 * units + 1)
    level: Floats = np.cumsum(steps, dtype=np.float64)
    total: Floats = load + level[:units] + level[units : 2 * units]
    return total


def random(classes: Classes, units: int, rng: np.random.Generator) -> Floats:
    """Load the units with rows that go anywhere."""
    single = classes.rows == 1
    shares = classes.share[single]
    load: Floats = np.zeros(units)
    load += np.bincount(rng.integers(0, units, len(shares)), weights=shares, minlength=units)
    for rows, share in zip(classes.rows[~single], classes.share[~single], strict=True):
        load += share * rng.multinomial(rows, np.full(units, 1 / units))
    return load


def largest_first(classes: Classes, load: Floats, single_rows: int) -> Floats:
    """Add rows to loaded units: the most popular one by one to the least loaded, then in turn."""
    units = len(load)
    head, tail = classes.cut(single_rows)
    heap = [(each, unit) for unit, each in enumerate(load.tolist())]
    heapq.heapify(heap)
    for share in head.each().tolist():
        least, unit = heap[0]
        heapq.heapreplace(heap, (least + share, unit))
    filled = np.empty(units)
    for each, unit in heap:
        filled[unit] = each
    if len(tail.rows):
        dealt = round_robin(tail, 0, units)
        # The unit that is dealt most is the one that has least.
        filled[np.argsort(filled, kind="stable")] += np.sort(dealt)[::-1]
    return filled


def copied(classes: Classes, copies: int, units: int, single_rows: int) -> Floats:
    """Load empty units with copies of rows, each row on as many of the least loaded ones.

    After the first rows, which go one by one, each is so small that the others fill up the
    least loaded units like water; a unit gets at most one copy of each.
    """
    load: Floats = np.zeros(units)
    if copies >= units:
        load += classes.total() / units
        return load
    head, tail = classes.cut(single_rows)
    for share in head.each():
        load[np.argpartition(load, copies - 1)[:copies]] += share / copies
    return _filled_up(load, tail.total(), tail.total() / copies)


def _filled_up(load: Floats, whole: float, most: float) -> Floats:
    """Raise the lowest loads to one level, each by no more than ``most``, by ``whole`` in all."""
    low, high = load.min(), load.max() + most
    for _ in range(64):
        level = (low + high) / 2
        added = np.clip(level - load, 0.0, most)
        low, high = (level, high) if added.sum() < whole else (low, level)
    filled: Floats = load + added
    return filled
