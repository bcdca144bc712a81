"""When each point of a graph comes at the earliest: the longest path that leads to it."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench._shared.compiled import check_source
from workbench._shared.numbers import Ints
from workbench.analyze._perfmodel.timing import engine_python
from workbench.errors import PerformanceModelError

engine: Any = engine_python
with contextlib.suppress(ImportError):
    from workbench.analyze._perfmodel.timing import _longest_path as compiled

    check_source(Path(__file__).with_name("_longest_path.c"), compiled.SOURCE_DIGEST)
    engine = compiled

Points: TypeAlias = NDArray[np.int32]


class LongestPath:
    """The order of a graph (Kahn's), found once; every replay with other weights follows it."""

    def __init__(self, source: Points, target: Points, point_count: int) -> None:
        self._bounds, self._by_source, self._waiting = _by_source(source, target, point_count)
        # Edges lie by source, so that one walk reads memory in order (CSR).
        self._target = target[self._by_source]
        self._targets = target
        self._order: Points | None = None

    def times(self, weight_ns: Ints) -> Ints:
        """Return when each point comes [ns]."""
        weight = weight_ns[self._by_source]
        count = len(self._waiting)
        time = np.zeros(count, np.int64)
        if self._order is not None:
            engine.next_pass(self._order, self._bounds, self._target, weight, time)
            return time
        if len(left := self._ordered(weight, time)):
            msg = f"{len(left):,} points wait for each other in a circle, e.g. point {left[0]}"
            raise PerformanceModelError(msg)
        return time

    def circled(self, weight_ns: Ints) -> bool:
        time = np.zeros(len(self._waiting), np.int64)
        return len(self._ordered(weight_ns[self._by_source], time)) > 0

    def _ordered(self, weight: Ints, time: Ints) -> NDArray[np.intp]:
        """Fill the times and keep the order; give the points that have none."""
        count = len(self._waiting)
        order, waiting = np.empty(count, np.int32), self._waiting.copy()
        reached = engine.first_pass(self._bounds, self._target, weight, waiting, order, time)
        if reached < count:
            return np.setdiff1d(np.arange(count), order[:reached])
        self._order = order
        return np.zeros(0, np.intp)

    @property
    def nbytes(self) -> int:
        arrays = (self._bounds, self._by_source, self._waiting, self._target, self._order)
        return sum(array.nbytes for array in arrays if array is not None)

    @cached_property
    def _by_target(self) -> tuple[Points, Points]:
        order = np.argsort(self._targets, kind="stable").astype(np.int32)
        count = len(self._waiting)
        return order, np.searchsorted(self._targets[order], np.arange(count + 1)).astype(np.int32)

    def into(self, point: int) -> Points:
        order, bounds = self._by_target
        return order[bounds[point] : bounds[point + 1]]


def _by_source(source: Points, target: Points, point_count: int) -> tuple[Points, Points, Points]:
    """Return edges gathered by source as (bounds, positions), and predecessors per point."""
    bounds = np.zeros(point_count + 1, np.int32)
    bounds[1:] = np.cumsum(np.bincount(source, minlength=point_count))
    waiting = np.bincount(target, minlength=point_count).astype(np.int32)
    return bounds, np.argsort(source, kind="stable").astype(np.int32), waiting
