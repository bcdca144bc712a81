"""Replay with streams as queues; plain Python that numba compiles where it is installed."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Points = NDArray[np.int32]


def play(  # noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917 - one loop, compiled as a whole
    bounds: Points,
    target: Points,
    weight: Ints,
    is_launch: NDArray[np.bool_],
    waiting: Points,
    stream: Points,
    gap: Ints,
    queue: Points,
    length: Points,
) -> tuple[Ints, int]:
    """Give when each point comes, and how many came.

    ``stream`` is the stream of points that start GPU work, -1 elsewhere; the next point is the
    end of the work. ``queue`` holds for every stream room for its work, at ``length`` of the
    streams before it. Work that nothing launches is queued from the start. A stream takes its
    work in the order of launch, one at a time, ``gap`` after the work before.
    """
    count = len(waiting)
    time = np.zeros(count, np.int64)
    streams = len(length) - 1
    head, tail = length[:-1].copy(), length[:-1].copy()
    last = np.full(streams, -(1 << 62), np.int64)
    launched = np.zeros(count, np.bool_)
    for edge in range(len(target)):
        if is_launch[edge]:
            launched[target[edge]] = True
    for first in range(count):
        number = stream[first]
        if number >= 0 and not launched[first]:
            queue[tail[number]] = first
            tail[number] += 1
    heap = [(np.int64(0), np.int64(0))]
    heap.pop()
    for first in range(count):
        if waiting[first] == 0 and (stream[first] < 0 or queue[head[stream[first]]] == first):
            heapq.heappush(heap, (time[first], np.int64(first)))
    done = 0
    while len(heap) > 0:
        now, point = heapq.heappop(heap)
        time[point] = now
        done += 1
        for edge in range(bounds[point], bounds[point + 1]):
            after = target[edge]
            time[after] = max(time[after], now + weight[edge])
            waiting[after] -= 1
            number = stream[after]
            if number >= 0:
                if is_launch[edge]:
                    queue[tail[number]] = after
                    tail[number] += 1
                if waiting[after] == 0 and queue[head[number]] == after:
                    begin = max(time[after], last[number] + gap[after])
                    heapq.heappush(heap, (begin, np.int64(after)))
            elif waiting[after] == 0:
                heapq.heappush(heap, (time[after], np.int64(after)))
        if point > 0 and stream[point - 1] >= 0:
            number = stream[point - 1]
            last[number] = now
            head[number] += 1
            if head[number] < tail[number]:
                following = queue[head[number]]
                if waiting[following] == 0:
                    begin = max(time[following], now + gap[following])
                    heapq.heappush(heap, (begin, np.int64(following)))
    return time, done


def compiled() -> Any:
    """Give the same function, compiled; the result is kept on disk."""
    import numba as nb

    return nb.njit(cache=True)(play)
