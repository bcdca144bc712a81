"""Replay of a pipelined, data-parallel job from the durations of its operations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench._shared.numbers import Floats

FORWARD, BACKWARD = "forward-compute", "backward-compute"
COMPUTES = frozenset({FORWARD, BACKWARD})
# Work that no peer can slow down.
LOCAL = frozenset({*COMPUTES, "optimizer", "gc", "layernorm-grads-all-reduce"})
# The ideal of these is the mean of their kind, that of everything else the median.
MEAN = frozenset({*COMPUTES, "optimizer"})
SEND = {FORWARD: "forward-send", BACKWARD: "backward-send"}
RECEIVE = {FORWARD: "forward-recv", BACKWARD: "backward-recv"}
TRANSFERS = frozenset({*SEND.values(), *RECEIVE.values()})
# Who meets in a collective: all data-parallel ranks of a stage, the stages of a rank, everybody.
OVER_RANKS = frozenset({"params-all-gather", "grads-reduce-scatter"})
OVER_STAGES = frozenset({"embedding-grads-all-reduce"})
OVER_ALL = frozenset({"optimizer-clip-main-grad"})
COMMUNICATION = TRANSFERS | OVER_RANKS | OVER_STAGES | OVER_ALL
KNOWN = LOCAL | COMMUNICATION


class Operation(NamedTuple):
    """Work done once per step and data-parallel rank."""

    stage: int
    operation: str
    sequence: int


class Compute(NamedTuple):
    """One computation of a stage in its order, the transfers beside it, the pause before it."""

    key: Operation
    receive: Operation | None
    send: Operation | None
    produces: tuple[str, int, int]
    needs: tuple[str, int, int] | None
    pause: Operation | None = None
    # Whether the pause begins when the input is there, or when the computation before is over.
    pauses_late: bool = False


# When each operation began and ended; arrays are (steps, data-parallel ranks).
Times: TypeAlias = dict[Operation, tuple[Floats, Floats]]


@dataclass(frozen=True)
class Job:
    """A job ready to be replayed; arrays are (operations, steps, data-parallel ranks), in ns."""

    keys: list[Operation]
    steps: NDArray[np.int64]
    dp_ranks: NDArray[np.int64]
    stages: list[int]
    start: Floats
    end: Floats
    own: Floats
    ideal: Floats
    computes: dict[int, list[Compute]]
    before: list[Operation]
    after: list[Operation]
    doubts: list[str]

    @property
    def items(self) -> list[Compute]:
        return [item for items in self.computes.values() for item in items]

    @property
    def pauses(self) -> frozenset[Operation]:
        """Interruptions of the pipeline: garbage collections between computations."""
        return frozenset(item.pause for item in self.items if item.pause is not None)

    @property
    def actual(self) -> Floats:
        return np.asarray(self.end.max(axis=(0, 2)) - self.start.min(axis=(0, 2)))

    def replay(self, durations: Floats, watch: Times | None = None) -> Floats:
        """Return when each step would end if its operations took ``durations``.

        The steps and ranks of ``durations`` need not be those of the job. ``watch`` is
        filled with the times of every operation.
        """
        row = {key: durations[at] for at, key in enumerate(self.keys)}
        clock = {stage: np.zeros(durations.shape[1:]) for stage in self.stages}
        for group in meetings(self.before):
            _meet(group, row, clock, watch)
        self._pipeline(row, clock, watch)
        for group in meetings(self.after):
            _meet(group, row, clock, watch)
        return np.asarray(np.max(list(clock.values()), axis=(0, 2)))

    def _pipeline(
        self, row: dict[Operation, Floats], clock: dict[int, Floats], watch: Times | None
    ) -> None:
        """Run forward and backward passes: one computation at a time, transfers beside them."""
        # Transfers wait for the stage to begin the pipeline, not for its computations.
        begin = dict(clock)
        results: dict[tuple[str, int, int], tuple[Floats, Operation | None]] = {}
        free: dict[tuple[int, str], Floats] = {}
        position = dict.fromkeys(self.stages, 0)
        moved = True
        while moved:
            moved = False
            for stage, computes in self.computes.items():
                while position[stage] < len(computes):
                    item = computes[position[stage]]
                    # The stage stops here and goes on when another one has made its input.
                    if item.needs is not None and item.needs not in results:
                        break
                    ready = _paused(item, row, clock[stage], watch, late=False)
                    if item.needs is not None:
                        wire = _Wire(row, free, begin[stage], watch)
                        ready = np.maximum(ready, wire.carry(item, *results[item.needs]))
                    ready = _paused(item, row, ready, watch, late=True)
                    clock[stage] = ready + row[item.key]
                    if watch is not None:
                        watch[item.key] = (ready, clock[stage])
                    results[item.produces] = (clock[stage], item.send)
                    position[stage] += 1
                    moved = True


def _paused(
    item: Compute, row: dict[Operation, Floats], ready: Floats, watch: Times | None, *, late: bool
) -> Floats:
    """Return when the pause of a computation is over, if it belongs here."""
    if item.pause is None or item.pauses_late != late:
        return ready
    over = ready + row[item.pause]
    if watch is not None:
        watch[item.pause] = (ready, over)
    return over


class _Wire(NamedTuple):
    """State shared by transfers: durations, free times of sends and receives, starts of stages."""

    row: dict[Operation, Floats]
    free: dict[tuple[int, str], Floats]
    begin: Floats
    watch: Times | None

    def carry(self, item: Compute, ready: Floats, send: Operation | None) -> Floats:
        """Move what a computation needs; sends and receives of a stage queue among themselves."""
        start = np.maximum(ready, self.begin)
        ends = [key for key in (send, item.receive) if key is not None]
        for key in ends:
            if (previous := self.free.get(key[:2])) is not None:
                start = np.maximum(start, previous)
        for key in ends:
            self.free[key[:2]] = start + self.row[key]
            if self.watch is not None:
                self.watch[key] = (start, self.free[key[:2]])
        return self.free[item.receive[:2]] if item.receive is not None else start


def meetings(keys: list[Operation]) -> list[list[Operation]]:
    """Group operations outside the pipeline that happen together, in order."""
    groups: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for key in keys:
        groups[key.operation, key.sequence].append(key)
    return list(groups.values())


def _meet(
    group: list[Operation],
    row: dict[Operation, Floats],
    clock: dict[int, Floats],
    watch: Times | None,
) -> None:
    begin = together(group, {key.stage: clock[key.stage] for key in group})
    for key in group:
        clock[key.stage] = begin[key.stage] + row[key]
        if watch is not None:
            watch[key] = (begin[key.stage], clock[key.stage])


def together(group: list[Operation], ready: dict[int, Floats]) -> dict[int, Floats]:
    """Return when each stage of a group can begin: alone, or with the last of its peers."""
    operation = group[0].operation
    if operation not in COMMUNICATION:
        return ready
    # Each stage has its own group of data-parallel ranks.
    if operation in OVER_RANKS:
        return {stage: _spread(times) for stage, times in ready.items()}
    last = np.max(list(ready.values()), axis=0)
    if operation not in OVER_STAGES:
        last = _spread(last)
    return dict.fromkeys(ready, last)


def _spread(times: Floats) -> Floats:
    # A view without memory of its own: all ranks see the time of the last.
    return np.broadcast_to(times.max(axis=1, keepdims=True), times.shape)
