"""Longest paths through a graph, compiled; importing it takes numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np


def compiled() -> Callable[[Any], Any]:
    """Compile a function and keep the code; without a folder to write to, once per process."""

    def compile_it(function: Any) -> Any:
        try:
            return nb.njit(cache=True)(function)
        except RuntimeError:  # an installation and a home that are read-only, as on many nodes
            return nb.njit(function)

    return compile_it


@compiled()
def ordered(source, target, point_count):  # type: ignore[no-untyped-def]
    """Return edges gathered by source as (bounds, positions), and predecessors per point."""
    bounds = np.zeros(point_count + 1, np.int32)
    waiting = np.zeros(point_count, np.int32)
    for edge in range(len(source)):
        bounds[source[edge] + 1] += 1
        waiting[target[edge]] += 1
    for point in range(point_count):
        bounds[point + 1] += bounds[point]
    free = bounds[:-1].copy()
    by_source = np.empty(len(source), np.int32)
    for edge in range(len(source)):
        by_source[free[source[edge]]] = edge
        free[source[edge]] += 1
    return bounds, by_source, waiting


@compiled()
def first_pass(bounds, target, weight, waiting, order, time):  # type: ignore[no-untyped-def]
    """Walk the graph once: fill an order and the times; give how many points were reached."""
    head = tail = 0
    for point in range(len(waiting)):
        if waiting[point] == 0:
            order[tail] = point
            tail += 1
    while head < tail:
        point = order[head]
        head += 1
        now = time[point]
        for edge in range(bounds[point], bounds[point + 1]):
            after = target[edge]
            end = now + weight[edge]
            if end > time[after]:
                time[after] = end
            waiting[after] -= 1
            if waiting[after] == 0:
                order[tail] = after
                tail += 1
    return tail


@compiled()
def next_pass(order, bounds, target, weight, time):  # type: ignore[no-untyped-def]
    """Fill the times in an order that is known."""
    for position in range(len(order)):
        point = order[position]
        now = time[point]
        for edge in range(bounds[point], bounds[point + 1]):
            after = target[edge]
            end = now + weight[edge]
            if end > time[after]:
                time[after] = end
