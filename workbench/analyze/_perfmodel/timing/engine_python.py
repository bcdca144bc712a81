"""Longest paths through a graph, slowly: the same answers as the compiled engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def first_pass(
    bounds: NDArray[np.int32],
    target: NDArray[np.int32],
    weight: NDArray[np.int64],
    waiting: NDArray[np.int32],
    order: NDArray[np.int32],
    time: NDArray[np.int64],
) -> int:
    left, when, first = waiting.tolist(), time.tolist(), bounds.tolist()
    targets, weights = target.tolist(), weight.tolist()
    queue = np.flatnonzero(waiting == 0).tolist()
    for point in queue:  # grows while it is walked
        now = when[point]
        for edge in range(first[point], first[point + 1]):
            after = targets[edge]
            when[after] = max(when[after], now + weights[edge])
            left[after] -= 1
            if left[after] == 0:
                queue.append(after)
    order[: len(queue)] = queue
    time[:] = when
    return len(queue)


def next_pass(
    order: NDArray[np.int32],
    bounds: NDArray[np.int32],
    target: NDArray[np.int32],
    weight: NDArray[np.int64],
    time: NDArray[np.int64],
) -> None:
    when, first = time.tolist(), bounds.tolist()
    targets, weights = target.tolist(), weight.tolist()
    for point in order.tolist():
        now = when[point]
        for edge in range(first[point], first[point + 1]):
            after = targets[edge]
            when[after] = max(when[after], now + weights[edge])
    time[:] = when
