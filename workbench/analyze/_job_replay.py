"""Replay of a pipelined, data-parallel job from the durations of its operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS

Floats: TypeAlias = NDArray[np.float64]

FORWARD, BACKWARD = "forward-compute", "backward-compute"
# Work that no peer can slow down: its ideal is the mean, that of a transfer the median.
LOCAL = frozenset({FORWARD, BACKWARD, "optimizer", "gc", "layernorm-grads-all-reduce"})
_MEAN = frozenset({FORWARD, BACKWARD, "optimizer"})
_SEND = {FORWARD: "forward-send", BACKWARD: "backward-send"}
_RECEIVE = {FORWARD: "forward-recv", BACKWARD: "backward-recv"}
_TRANSFERS = frozenset({*_SEND.values(), *_RECEIVE.values()})
# Who meets in a collective: all data-parallel ranks of a stage, the stages of a rank, everybody.
_OVER_RANKS = frozenset({"params-all-gather", "grads-reduce-scatter"})
_OVER_STAGES = frozenset({"embedding-grads-all-reduce"})


class Operation(NamedTuple):
    """What is done once per step and data-parallel rank."""

    stage: int
    operation: str
    sequence: int


class _Compute(NamedTuple):
    """One computation of a stage in its order, and the transfers before and after it."""

    key: Operation
    receive: Operation | None
    send: Operation | None
    produces: tuple[str, int, int]
    needs: tuple[str, int, int] | None


@dataclass(frozen=True)
class Job:
    """A job ready to be replayed; arrays are (operations, steps, data-parallel ranks), in ns."""

    keys: list[Operation]
    steps: NDArray[np.int64]
    dp_ranks: NDArray[np.int64]
    stages: list[int]
    start: Floats
    own: Floats
    ideal: Floats
    actual: Floats
    _computes: dict[int, list[_Compute]]
    _before: list[Operation]
    _after: list[Operation]

    def replay(self, durations: Floats) -> Floats:
        """Return when each step would end if its operations took ``durations``."""
        row = {key: durations[at] for at, key in enumerate(self.keys)}
        clock = {stage: np.zeros(durations.shape[1:]) for stage in self.stages}
        for group in _meetings(self._before):
            _meet(group, row, clock)
        self._pipeline(row, clock)
        for group in _meetings(self._after):
            _meet(group, row, clock)
        ends: Floats = np.max(list(clock.values()), axis=(0, 2))
        return ends

    def _pipeline(self, row: dict[Operation, Floats], clock: dict[int, Floats]) -> None:
        """Run forward and backward passes: one computation at a time, transfers beside them."""
        begin = dict(clock)
        made: dict[tuple[str, int, int], tuple[Floats, Operation | None]] = {}
        free: dict[tuple[int, str], Floats] = {}
        position = dict.fromkeys(self.stages, 0)
        moved = True
        while moved:
            moved = False
            for stage, computes in self._computes.items():
                while position[stage] < len(computes):
                    item = computes[position[stage]]
                    ready = clock[stage]
                    if item.needs is not None:
                        if item.needs not in made:
                            break
                        arrived = _transfer(item, made[item.needs], row, free, begin[stage])
                        ready = np.maximum(ready, arrived)
                    clock[stage] = ready + row[item.key]
                    made[item.produces] = (clock[stage], item.send)
                    position[stage] += 1
                    moved = True


def _transfer(
    item: _Compute,
    made: tuple[Floats, Operation | None],
    row: dict[Operation, Floats],
    free: dict[tuple[int, str], Floats],
    begin: Floats,
) -> Floats:
    """Move what a computation needs; sends and receives of a stage queue among themselves."""
    start, send = np.maximum(made[0], begin), made[1]
    ends = [key for key in (send, item.receive) if key is not None]
    for key in ends:
        if (previous := free.get(key[:2])) is not None:
            start = np.maximum(start, previous)
    for key in ends:
        free[key[:2]] = start + row[key]
    return free[item.receive[:2]] if item.receive is not None else start


def _meetings(keys: list[Operation]) -> Iterator[list[Operation]]:
    """Group operations outside the pipeline that happen together, in order."""
    groups: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for key in keys:
        groups[key.operation, key.sequence].append(key)
    yield from groups.values()


def _meet(group: list[Operation], row: dict[Operation, Floats], clock: dict[int, Floats]) -> None:
    """Let the stages of a group run one operation, waiting for whom it waits for."""
    begin = _together(group, {key.stage: clock[key.stage] for key in group})
    for key in group:
        clock[key.stage] = begin[key.stage] + row[key]


def _together(group: list[Operation], ready: dict[int, Floats]) -> dict[int, Floats]:
    """Return when each stage of a group can begin: alone, or with the last of its peers."""
    operation = group[0].operation
    if operation in LOCAL:
        return ready
    if operation in _OVER_RANKS:
        return {stage: _spread(times) for stage, times in ready.items()}
    last = np.max(list(ready.values()), axis=0)
    if operation not in _OVER_STAGES:
        last = _spread(last)
    return dict.fromkeys(ready, last)


def _spread(times: Floats) -> Floats:
    return np.broadcast_to(times.max(axis=1, keepdims=True), times.shape)


def job(operations: pd.DataFrame) -> Job:
    """Arrange the operations of a job for its replay.

    Raises
    ------
    WorkbenchError
        If the steps and ranks do not all have the same operations, or a pass is not whole.
    """
    table = JOB_OPERATIONS.check(operations)
    if table.empty:
        msg = "no operations to replay; load a job with load.job_operations"
        raise WorkbenchError(msg)
    texts = table["operation"].astype(str)
    index = [table["stage"], texts, table["sequence"]]
    groups = table.groupby(index, sort=True)
    first_rows = table.assign(operation=texts)[["stage", "operation", "sequence"]]
    keys = _keys(first_rows.drop_duplicates().sort_values(["stage", "operation", "sequence"]))
    steps, step_at = np.unique(table["step"].to_numpy(), return_inverse=True)
    ranks, rank_at = np.unique(table["dp_rank"].to_numpy(dtype=np.int64), return_inverse=True)
    shape = (len(keys), len(steps), len(ranks))
    cell = np.ravel_multi_index((groups.ngroup().to_numpy(), step_at, rank_at), shape)
    _refuse_ragged(cell, shape, keys, steps, ranks)
    start, end = np.empty(shape), np.empty(shape)
    start.ravel()[cell] = table["start_ns"].to_numpy()
    end.ravel()[cell] = table["start_ns"].to_numpy() + table["dur_ns"].to_numpy()
    stages = sorted({key.stage for key in keys})
    at = {key: number for number, key in enumerate(keys)}
    middle = np.median(start - start.min(axis=(0, 2))[None, :, None], axis=(1, 2))
    computes = _computes(table, texts, at, middle)
    first = min(middle[at[item.key]] for items in computes.values() for item in items)
    outside = [key for key in keys if key.operation not in _TRANSFERS | {FORWARD, BACKWARD}]
    outside.sort(key=lambda key: (middle[at[key]], key))
    own = _without_waiting(keys, at, computes, start, end)
    return Job(
        keys, steps, ranks, stages, start, own, _ideal(keys, own),
        end.max(axis=(0, 2)) - start.min(axis=(0, 2)), computes,
        [key for key in outside if middle[at[key]] < first],
        [key for key in outside if middle[at[key]] >= first],
    )  # fmt: skip


def _refuse_ragged(
    cell: NDArray[np.int64],
    shape: tuple[int, int, int],
    keys: list[Operation],
    steps: NDArray[np.int64],
    ranks: NDArray[np.int64],
) -> None:
    """Raise if an operation is missing or doubled in some step of some rank."""
    count = np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)
    wrong = np.argwhere(count != 1)
    if len(wrong) == 0:
        return
    op, step, rank = wrong[0]
    steps_hit = len(np.unique(wrong[:, 1]))
    msg = (
        f"{len(wrong):,} operations are missing or doubled in {steps_hit} of {len(steps)} steps, "
        f"e.g. {keys[op].operation} number {keys[op].sequence} of stage {keys[op].stage} is there "
        f"{count[op, step, rank]} times in step {steps[step]} of data-parallel rank {ranks[rank]}; "
        "leave such steps out"
    )
    raise WorkbenchError(msg)


def _keys(rows: pd.DataFrame) -> list[Operation]:
    columns = (rows[name].tolist() for name in ("stage", "operation", "sequence"))
    return [Operation(*values) for values in zip(*columns, strict=True)]


def _computes(
    table: pd.DataFrame, texts: pd.Series, at: dict[Operation, int], middle: Floats
) -> dict[int, list[_Compute]]:
    """Return the computations of each stage in order, tied to their transfers."""
    rows = table[texts.isin([FORWARD, BACKWARD])]
    if rows.empty:
        msg = f"no {FORWARD} and no {BACKWARD} among the operations; nothing to replay"
        raise WorkbenchError(msg)
    if rows[["micro_batch", "chunk"]].isna().any(axis=None):
        msg = "computations without micro_batch or chunk: the pipeline cannot be put together"
        raise WorkbenchError(msg)
    labels = rows.assign(operation=texts[rows.index])
    labels = labels.drop_duplicates(["stage", "operation", "sequence"])
    batches, chunks = labels["micro_batch"].tolist(), labels["chunk"].tolist()
    items = list(zip(_keys(labels), batches, chunks, strict=True))
    items.sort(key=lambda item: middle[at[item[0]]])
    stage_of = {chunk: key.stage for key, _, chunk in items}
    take = _counter(at)
    found: dict[int, list[_Compute]] = defaultdict(list)
    for key, batch, chunk in items:
        found[key.stage].append(_tied(key, batch, chunk, stage_of, take))
    _refuse_loose([item for items in found.values() for item in items])
    return dict(found)


def _tied(
    key: Operation,
    batch: int,
    chunk: int,
    stage_of: dict[int, int],
    take: Callable[[int, str], Operation | None],
) -> _Compute:
    """Say what a computation needs, from where, and what it gives on."""
    step = 1 if key.operation == FORWARD else -1
    before, after = chunk - step, chunk + step
    needs: tuple[str, int, int] | None = (key.operation, before, batch)
    if not 0 <= before <= max(stage_of):
        needs = None if key.operation == FORWARD else (FORWARD, chunk, batch)
    crosses_in = stage_of.get(before, key.stage) != key.stage
    crosses_out = stage_of.get(after, key.stage) != key.stage
    receive = take(key.stage, _RECEIVE[key.operation]) if crosses_in else None
    send = take(key.stage, _SEND[key.operation]) if crosses_out else None
    return _Compute(key, receive, send, (key.operation, chunk, batch), needs)


def _refuse_loose(items: list[_Compute]) -> None:
    """Raise if a computation needs what no stage has computed."""
    made = {item.produces for item in items}
    for item in items:
        if item.needs is not None and item.needs not in made:
            (name, chunk, batch), key = item.needs, item.key
            msg = (
                f"{name} of micro-batch {batch} in chunk {chunk} is missing, which "
                f"{key.operation} on stage {key.stage} needs; load all stages of the job"
            )
            raise WorkbenchError(msg)


def _counter(at: dict[Operation, int]) -> Callable[[int, str], Operation | None]:
    """Give the transfers of a stage one after the other, None where none was recorded."""
    used: dict[tuple[int, str], int] = defaultdict(int)

    def take(stage: int, operation: str) -> Operation | None:
        key = Operation(stage, operation, used[stage, operation])
        used[stage, operation] += 1
        return key if key in at else None

    return take


def _without_waiting(
    keys: list[Operation],
    at: dict[Operation, int],
    computes: dict[int, list[_Compute]],
    start: Floats,
    end: Floats,
) -> Floats:
    """Take the waiting for peers out of the durations: an operation begins with its last peer."""
    begin = start.copy()
    sends = {
        item.produces: item.send
        for items in computes.values()
        for item in items
        if item.send is not None
    }
    for item in (item for items in computes.values() for item in items):
        send = sends.get(item.needs) if item.needs is not None else None
        if send is not None and item.receive is not None:
            pair = [at[send], at[item.receive]]
            begin[pair] = start[pair].max(axis=0)
    outside = [key for key in keys if key.operation not in _TRANSFERS | LOCAL]
    for group in _meetings(outside):
        together = _together(group, {key.stage: start[at[key]] for key in group})
        for key in group:
            begin[at[key]] = together[key.stage]
    return np.maximum(end - begin, 0.0)


def _ideal(keys: list[Operation], own: Floats) -> Floats:
    """Give all equal operations one duration: the mean if they compute, else the median."""
    ideal = np.empty_like(own)
    names = np.array([key.operation for key in keys])
    for name in np.unique(names):
        rows = names == name
        ideal[rows] = own[rows].mean() if name in _MEAN else np.median(own[rows])
    return ideal
