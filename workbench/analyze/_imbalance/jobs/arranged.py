"""A job's operations arranged for its replay: what runs where, in which order, and how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats
from workbench.analyze._imbalance.jobs.doubts import doubts_of
from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    COMMUNICATION,
    COMPUTES,
    FORWARD,
    MEAN,
    RECEIVE,
    SEND,
    TRANSFERS,
    Compute,
    Job,
    Operation,
    meetings,
    together,
)
from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS

# Not every worker does these in every step.
_OPTIONAL = frozenset({"gc"})


@dataclass(frozen=True)
class Grid:
    """Where each row of a table of operations belongs: operation, step and data-parallel rank."""

    keys: list[Operation]
    steps: NDArray[np.int64]
    dp_ranks: NDArray[np.int64]
    cell: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of operations, steps and data-parallel ranks."""
        return len(self.keys), len(self.steps), len(self.dp_ranks)

    def count(self) -> NDArray[np.int64]:
        """How often each operation is there in each step and rank."""
        size = int(np.prod(self.shape))
        return np.bincount(self.cell, minlength=size).reshape(self.shape)

    def wrong(self) -> NDArray[np.bool_]:
        """Mark what is not there exactly once; a worker that did not collect garbage is fine."""
        count = self.count()
        optional = np.array([key.operation in _OPTIONAL for key in self.keys])
        return np.asarray(np.where(optional[:, None, None], count > 1, count != 1))


def grid(table: pd.DataFrame) -> Grid:
    texts = table["operation"].astype(str)
    groups = table.groupby([table["stage"], texts, table["sequence"]], sort=True)
    first_rows = table.assign(operation=texts)[["stage", "operation", "sequence"]]
    keys = _keys(first_rows.drop_duplicates().sort_values(["stage", "operation", "sequence"]))
    steps, step_at = np.unique(table["step"].to_numpy(), return_inverse=True)
    ranks, rank_at = np.unique(table["dp_rank"].to_numpy(dtype=np.int64), return_inverse=True)
    shape = (len(keys), len(steps), len(ranks))
    cell = np.ravel_multi_index((groups.ngroup().to_numpy(), step_at, rank_at), shape)
    return Grid(keys, steps, ranks, cell)


def arranged(operations: pd.DataFrame) -> Job:
    """Arrange the operations of a job for its replay."""
    table = JOB_OPERATIONS.check(operations)
    if table.empty:
        msg = "no operations to replay; load a job with load.job_operations"
        raise WorkbenchError(msg)
    cells = grid(table)
    _refuse_ragged(cells)
    # Pauses come after the refusal: they get numbers of their own, and need not be in every step.
    table, paused = with_pauses(table)
    cells = grid(table) if paused else cells
    keys, row_of = cells.keys, {key: row for row, key in enumerate(cells.keys)}
    start, end = _times(table, cells)
    # Steps differ in length, and so in when an operation begins: its usual place decides.
    usual = np.median(start - start.min(axis=(0, 2))[None, :, None], axis=(1, 2))
    computes, unused = _computes(table, row_of, usual, paused)
    first = min(usual[row_of[item.key]] for items in computes.values() for item in items)
    inside = set(paused.values())
    outside = [key for key in keys if key.operation not in TRANSFERS | COMPUTES]
    outside = [key for key in outside if key not in inside]
    # Ties go by name, so that the order does not depend on that of the rows.
    outside.sort(key=lambda key: (usual[row_of[key]], key))
    computes = _timed(computes, row_of, start, end)
    own = _without_waiting(keys, row_of, computes, start, end)
    if not own[[key.operation in COMPUTES for key in keys]].any():
        msg = "all computations take 0 ns: are the durations those of another column or unit?"
        raise WorkbenchError(msg)
    ideal = _ideal(keys, own)
    ideal[[row_of[key] for key in inside]] = 0.0
    job = Job(
        keys, cells.steps, cells.dp_ranks, sorted({key.stage for key in keys}), start, end, own,
        ideal, computes, [key for key in outside if usual[row_of[key]] < first],
        [key for key in outside if usual[row_of[key]] >= first], unused,
    )  # fmt: skip
    doubts = doubts_of(job, operations.attrs.get("resolution_ns", 0))
    return replace(job, doubts=[*operations.attrs.get("doubts", []), *unused, *doubts])


def _times(table: pd.DataFrame, cells: Grid) -> tuple[Floats, Floats]:
    """Return starts and ends by operation, step and rank; what did not happen took no time."""
    start, end = np.full(cells.shape, np.nan), np.full(cells.shape, np.nan)
    start.ravel()[cells.cell] = table["start_ns"].to_numpy()
    end.ravel()[cells.cell] = table["start_ns"].to_numpy() + table["dur_ns"].to_numpy()
    # Only pauses may lack here; they are set, without duration, where they usually begin.
    absent = np.isnan(start)
    if absent.any():
        begin = np.nanmin(start, axis=(0, 2))[None, :, None]
        usual = np.nanmedian(start - begin, axis=(1, 2))[:, None, None]
        filled = np.minimum(begin + usual, np.nanmax(end, axis=(0, 2))[None, :, None])
        start, end = np.where(absent, filled, start), np.where(absent, filled, end)
    return start, end


def _refuse_ragged(cells: Grid) -> None:
    wrong = np.argwhere(cells.wrong())
    if len(wrong) == 0:
        return
    op, step, rank = wrong[0]
    key = cells.keys[op]
    steps_hit, times = len(np.unique(wrong[:, 1])), cells.count()[op, step, rank]
    msg = (
        f"{len(wrong):,} operations are missing or doubled in {steps_hit} of {len(cells.steps)} "
        f"steps, e.g. {key.operation} number {key.sequence} of stage {key.stage} is there {times} "
        f"times in step {cells.steps[step]} of data-parallel rank {cells.dp_ranks[rank]}; "
        "analyze.complete_steps leaves such steps out and counts them"
    )
    if times > 1:
        msg += (
            ". If every tensor-parallel rank has rows of its own, name their column: "
            "load.job_operations(..., columns={'tp_rank': ...})"
        )
    raise WorkbenchError(msg)


def _timed(
    computes: dict[int, list[Compute]], at: dict[Operation, int], start: Floats, end: Floats
) -> dict[int, list[Compute]]:
    """Return for each pause whether it mostly began before or after the input was there."""
    makers = {item.produces: item.key for items in computes.values() for item in items}

    def late(item: Compute) -> bool:
        arrival = item.receive or (makers[item.needs] if item.needs is not None else None)
        if item.pause is None or arrival is None:
            return False
        lasts = end[at[item.pause]] > start[at[item.pause]]
        after = start[at[item.pause]] >= end[at[arrival]]
        return bool(2 * after[lasts].sum() >= lasts.sum())

    return {
        stage: [item._replace(pauses_late=late(item)) for item in items]
        for stage, items in computes.items()
    }


def _keys(rows: pd.DataFrame) -> list[Operation]:
    columns = (rows[name].tolist() for name in ("stage", "operation", "sequence"))
    return [Operation(*values) for values in zip(*columns, strict=True)]


def _computes(
    table: pd.DataFrame,
    at: dict[Operation, int],
    middle: Floats,
    paused: dict[Operation, Operation],
) -> tuple[dict[int, list[Compute]], list[str]]:
    """Return the computations of each stage in order, tied to their transfers, and doubts."""
    labels = _labels(table)
    batches, chunks = labels["micro_batch"].tolist(), labels["chunk"].tolist()
    items = list(zip(_keys(labels), batches, chunks, strict=True))
    items.sort(key=lambda item: middle[at[item[0]]])
    stage_of = {chunk: key.stage for key, _, chunk in items}
    take, unused = _counter(at)
    computes: dict[int, list[Compute]] = defaultdict(list)
    for key, batch, chunk in items:
        tied = _tied(key, batch, chunk, stage_of, take)
        computes[key.stage].append(tied._replace(pause=paused.get(key)))
    _refuse_loose([item for items in computes.values() for item in items])
    loose, first = unused(), min(stage_of)
    _refuse_open_ends(loose, stage_of, len(set(batches)))
    doubts = [
        f"{count} {operation} of stage {stage} have no other end: is a stage missing?"
        for (stage, operation), count in loose.items()
    ]
    if first:
        doubts.append(f"chunks count from {first}: a first stage that is missing goes unnoticed")
    return dict(computes), doubts


def _refuse_open_ends(
    loose: dict[tuple[int, str], int], stage_of: dict[int, int], batch_count: int
) -> None:
    """Raise if all that the first stage gets, or the last one gives, has no other end."""
    ends = ((min(stage_of), RECEIVE[FORWARD], "before"), (max(stage_of), SEND[FORWARD], "after"))
    for chunk, operation, side in ends:
        count = loose.get((stage_of[chunk], operation), 0)
        if count >= batch_count:
            msg = (
                f"{count} {operation} of stage {stage_of[chunk]} have no other end: the stage "
                f"{side} it is missing; load all stages of the job"
            )
            raise WorkbenchError(msg)


def _labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per computation of a step, with its micro-batch and chunk."""
    texts = table["operation"].astype(str)
    rows = table[texts.isin(COMPUTES)]
    if rows.empty:
        msg = (
            f"no {FORWARD} and no {BACKWARD} among the operations {sorted(set(texts))[:8]}; "
            "nothing to replay. Say what yours are called: "
            "load.job_operations(..., operations={...})"
        )
        raise WorkbenchError(msg)
    if rows[["micro_batch", "chunk"]].isna().any(axis=None):
        msg = "computations without micro_batch or chunk: the pipeline cannot be reconstructed"
        raise WorkbenchError(msg)
    return rows.assign(operation=texts[rows.index]).drop_duplicates(
        ["stage", "operation", "sequence"]
    )


def _tied(
    key: Operation,
    batch: int,
    chunk: int,
    stage_of: dict[int, int],
    take: Callable[[int, str], Operation | None],
) -> Compute:
    # Backward passes run from the last chunk to the first.
    step = 1 if key.operation == FORWARD else -1
    before, after = chunk - step, chunk + step
    needs: tuple[str, int, int] | None = (key.operation, before, batch)
    if not min(stage_of) <= before <= max(stage_of):
        needs = None if key.operation == FORWARD else (FORWARD, chunk, batch)
    crosses_in = stage_of.get(before, key.stage) != key.stage
    crosses_out = stage_of.get(after, key.stage) != key.stage
    receive = take(key.stage, RECEIVE[key.operation]) if crosses_in else None
    send = take(key.stage, SEND[key.operation]) if crosses_out else None
    return Compute(key, receive, send, (key.operation, chunk, batch), needs)


def _refuse_loose(items: list[Compute]) -> None:
    producers: dict[tuple[str, int, int], Operation] = {}
    for item in items:
        (name, chunk, batch), key = item.produces, item.key
        if first := producers.get(item.produces):
            msg = (
                f"{name} of micro-batch {batch} in chunk {chunk} is there twice, as number "
                f"{first.sequence} of stage {first.stage} and number {key.sequence} of stage "
                f"{key.stage}; micro-batches count within a step, chunks along the pipeline"
            )
            raise WorkbenchError(msg)
        producers[item.produces] = key
    for item in items:
        if item.needs is not None and item.needs not in producers:
            (name, chunk, batch), key = item.needs, item.key
            msg = (
                f"{name} of micro-batch {batch} in chunk {chunk} is missing, which "
                f"{key.operation} on stage {key.stage} needs; load all stages of the job"
            )
            raise WorkbenchError(msg)


def _counter(
    at: dict[Operation, int],
) -> tuple[Callable[[int, str], Operation | None], Callable[[], dict[tuple[int, str], int]]]:
    """Return the transfers of a stage one after the other, None where none was recorded.

    The second function counts the transfers that nobody requested.
    """
    used: dict[tuple[int, str], int] = defaultdict(int)

    def take(stage: int, operation: str) -> Operation | None:
        key = Operation(stage, operation, used[stage, operation])
        used[stage, operation] += 1
        return key if key in at else None

    def unused() -> dict[tuple[int, str], int]:
        left: dict[tuple[int, str], int] = defaultdict(int)
        for key in at:
            if key.operation in TRANSFERS and key.sequence >= used[key[:2]]:
                left[key[:2]] += 1
        return dict(left)

    return take, unused


def _without_waiting(
    keys: list[Operation],
    row_of: dict[Operation, int],
    computes: dict[int, list[Compute]],
    start: Floats,
    end: Floats,
) -> Floats:
    """Take the waiting for peers out of the durations: an operation begins with its last peer."""
    begin = start.copy()
    items = [item for stage_items in computes.values() for item in stage_items]
    sends = {item.produces: item.send for item in items}
    for item in items:
        send = sends.get(item.needs) if item.needs is not None else None
        if send is not None and item.receive is not None:
            pair = [row_of[send], row_of[item.receive]]
            # A transfer moves data once both sides are there; before that the earlier one waits.
            begin[pair] = start[pair].max(axis=0)
    for group in meetings([key for key in keys if key.operation in COMMUNICATION - TRANSFERS]):
        began = together(group, {key.stage: start[row_of[key]] for key in group})
        for key in group:
            begin[row_of[key]] = began[key.stage]
    return np.maximum(end - begin, 0.0)


def _ideal(keys: list[Operation], own: Floats) -> Floats:
    """Equalize the durations of equal operations: the mean if they compute, else the median."""
    ideal = np.empty_like(own)
    names = np.array([key.operation for key in keys])
    for name in np.unique(names):
        rows = names == name
        ideal[rows] = own[rows].mean() if name in MEAN else np.median(own[rows])
    return ideal


_WORKER = ["step", "dp_rank", "stage"]


def with_pauses(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[Operation, Operation]]:
    """Renumber the collections between computations by the computation that comes next.

    Gives the table, with those before the same computation as one row, and the pause before
    each computation, by its key. Collections before the first or behind the last computation
    of a worker stay what they are.
    """
    texts = table["operation"].astype(str)
    is_gc, computes = texts.eq("gc"), texts.isin(COMPUTES)
    if not is_gc.any() or not computes.any():
        return table, {}
    table = table.assign(operation=texts)
    inside = _between(table[is_gc], table[computes])
    if inside.empty:
        return table.astype({"operation": "category"}), {}
    columns = (inside[name].tolist() for name in ("stage", "operation_next", "sequence_next"))
    following = [Operation(int(a), b, int(c)) for a, b, c in zip(*columns, strict=True)]
    # Beyond the numbers of all other collections.
    free = int(table.loc[is_gc, "sequence"].max()) + 1
    pauses = {
        key: Operation(key.stage, "gc", free + at) for at, key in enumerate(sorted(set(following)))
    }
    joined = inside.assign(sequence=[pauses[key].sequence for key in following])
    joined = joined.groupby([*_WORKER, "sequence"], as_index=False).agg(
        start_ns=("start_ns", "min"), dur_ns=("dur_ns", "sum")
    )
    table = table.drop(index=inside.index)
    table = pd.concat([table, joined.assign(operation="gc")], ignore_index=True)
    return table.astype({"operation": "category", "sequence": "int32"}), pauses


def _between(collections: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """Return the collections between two computations of their worker, with the next one."""
    table = collections.sort_values("start_ns", kind="stable")
    work = work.sort_values("start_ns", kind="stable")
    work = work[[*_WORKER, "start_ns", "operation", "sequence"]].assign(position=0)
    work["position"] = work.groupby(_WORKER).cumcount()
    tied = pd.merge_asof(
        table, work, on="start_ns", by=_WORKER, direction="forward", suffixes=("", "_next")
    ).set_index(table.index)
    # Without a next one the position is missing, and before the first it is 0.
    return tied[tied["position"] > 0]
