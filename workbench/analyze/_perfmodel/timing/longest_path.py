"""When each point of a graph comes at the earliest: the longest path that leads to it."""

from __future__ import annotations

import importlib.util
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench._shared.numbers import Ints
from workbench.errors import PerformanceModelError

Points: TypeAlias = NDArray[np.int32]


class LongestPath:
    """The order of a graph (Kahn's), found once; every replay with other weights follows it."""

    def __init__(self, source: Points, target: Points, point_count: int) -> None:
        if importlib.util.find_spec("numba") is not None:
            from workbench.analyze._perfmodel.timing import engine_compiled as engine
        else:
            from workbench.analyze._perfmodel.timing import engine_python as engine  # type: ignore[no-redef]
        self._engine = engine
        self._bounds, self._by_source, self._waiting = engine.ordered(source, target, point_count)
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
            self._engine.next_pass(self._order, self._bounds, self._target, weight, time)
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
        reached = self._engine.first_pass(self._bounds, self._target, weight, waiting, order, time)
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
