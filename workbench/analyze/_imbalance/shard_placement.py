"""Which place each of many loads goes to: a rank, a host, or all ranks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class NoRoomError(Exception):
    """A load fits nowhere; says which, and how much room is left at best."""

    def __init__(self, position: int, room: int) -> None:
        super().__init__(position, room)
        self.position, self.room = position, room


class Loads(NamedTuple):
    """What is to be placed, and where there is how much room."""

    weight: Floats
    memory: Ints
    places: int
    room: int
    """Of each place."""


def least_loaded(loads: Loads, order: Ints) -> Ints:
    """Give each load, in an order, to the least loaded place that has room for it."""
    heap = [(0.0, place) for place in range(loads.places)]
    room = [loads.room] * loads.places
    weights, memory = loads.weight.tolist(), loads.memory.tolist()
    chosen = np.zeros(len(weights), dtype=np.int64)
    for position in order.tolist():
        full = []
        while heap and room[heap[0][1]] < memory[position]:
            full.append(heapq.heappop(heap))
        if not heap:
            raise NoRoomError(position, max(room))
        load, place = heap[0]
        heapq.heapreplace(heap, (load + weights[position], place))
        for each in full:
            heapq.heappush(heap, each)
        room[place] -= memory[position]
        chosen[position] = place
    return chosen


def greedy(loads: Loads, _seed: int) -> Ints:
    """Place the largest load first, each on the least loaded place with room (LPT)."""
    return least_loaded(loads, np.argsort(-loads.weight, kind="stable"))


def in_order(loads: Loads, _seed: int) -> Ints:
    """Place the loads as they come, each on the least loaded place with room."""
    return least_loaded(loads, np.arange(len(loads.weight)))


def round_robin(loads: Loads, _seed: int) -> Ints:
    """Deal the loads out in turn, whatever they weigh."""
    return _wished(loads, (position % loads.places for position in range(len(loads.weight))))


def random(loads: Loads, seed: int) -> Ints:
    """Place every load anywhere."""
    wishes = np.random.default_rng(seed).integers(0, loads.places, len(loads.weight))
    return _wished(loads, iter(wishes.tolist()))


def _wished(loads: Loads, wishes: Iterator[int]) -> Ints:
    """Give each load the place that it wishes, or the next one that has room."""
    room = [loads.room] * loads.places
    chosen = np.zeros(len(loads.weight), dtype=np.int64)
    for position, (wish, memory) in enumerate(zip(wishes, loads.memory.tolist(), strict=True)):
        tried = (place % loads.places for place in range(wish, wish + loads.places))
        place = next((each for each in tried if room[each] >= memory), None)
        if place is None:
            raise NoRoomError(position, max(room))
        room[place] -= memory
        chosen[position] = place
    return chosen


PLANNERS: dict[str, Callable[[Loads, int], Ints]] = {
    "greedy": greedy,
    "in order": in_order,
    "round-robin": round_robin,
    "random": random,
}
