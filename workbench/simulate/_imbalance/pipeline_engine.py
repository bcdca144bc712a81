"""The clockwork of a simulated pipeline: in which order stages compute, and what waits for what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.tables import JOB_OPERATIONS

Floats: TypeAlias = NDArray[np.float64]
_GAP_NS = 1_000_000  # between two steps


class JobShape(NamedTuple):
    """How large a simulated job is; more than one chunk per stage are interleaved."""

    dp_ranks: int = 8
    stages: int = 4
    micro_batches: int = 8
    steps: int = 8
    chunks: int = 1


class Durations(NamedTuple):
    """How long everything takes, in ns.

    By chunk along the pipeline, micro-batch, step and rank: passes, and transfers of what a
    chunk makes. By stage, step and rank: four collectives (first) and the optimizer.
    """

    forward: Floats
    backward: Floats
    forward_transfer: Floats
    backward_transfer: Floats
    collective: Floats
    optimizer: Floats


class _Row(NamedTuple):
    """One operation of all steps and ranks: when it began and ended."""

    stage: int
    operation: str
    micro_batch: int | None
    chunk: int | None
    start: Floats
    end: Floats


def order(stage: int, shape: JobShape) -> Iterator[tuple[str, int, int]]:
    """Give the passes of a stage in the order of 1F1B: direction, micro-batch, chunk."""
    stages, batches, chunks = shape.stages, shape.micro_batches, shape.chunks
    whole = batches * chunks
    warm_up = min(stages - stage - 1, batches)
    if chunks > 1:
        warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, whole)
    for number in range(whole + warm_up):
        if number < whole:
            yield "forward", *_pass(number, shape, backward=False)
        if number >= warm_up:
            yield "backward", *_pass(number - warm_up, shape, backward=True)


def _pass(number: int, shape: JobShape, *, backward: bool) -> tuple[int, int]:
    """Say which micro-batch and which chunk of a stage the n-th pass is about."""
    if shape.chunks == 1:
        return number, 0
    group = shape.stages * shape.chunks
    batch = number // group * shape.stages + number % shape.stages
    chunk = number % group // shape.stages
    return batch, shape.chunks - 1 - chunk if backward else chunk


def step_ns(durations: Durations, shape: JobShape) -> Floats:
    """Return how long each step takes."""
    ends = np.stack([row.end for row in _run(durations, shape)])
    longest: Floats = ends.max(axis=(0, 2))
    return longest


def record(durations: Durations, shape: JobShape) -> pd.DataFrame:
    """Run the job and write down every operation, table JOB_OPERATIONS."""
    rows = _run(durations, shape)
    lasts = np.stack([row.end for row in rows]).max(axis=(0, 2)) + _GAP_NS
    begins = np.concatenate([[0.0], np.cumsum(lasts)[:-1]])
    step, rank = (each.ravel() for each in np.indices((shape.steps, shape.dp_ranks)))
    used: dict[tuple[int, str], int] = {}
    frames = []
    for row in rows:
        number = used[row[:2]] = used.get(row[:2], -1) + 1
        frames.append(
            {
                "step": step,
                "dp_rank": rank,
                "stage": np.full(len(step), row.stage),
                "operation": np.full(len(step), row.operation),
                "sequence": np.full(len(step), number),
                "micro_batch": np.full(
                    len(step), np.nan if row.micro_batch is None else row.micro_batch
                ),
                "chunk": np.full(len(step), np.nan if row.chunk is None else row.chunk),
                "start_ns": np.rint(row.start + begins[:, None]).ravel(),
                "dur_ns": np.rint(row.end - row.start).ravel(),
            }
        )
    table = pd.DataFrame({name: np.concatenate([f[name] for f in frames]) for name in frames[0]})
    table = JOB_OPERATIONS.cast(table)
    return table.sort_values(
        ["step", "dp_rank", "stage", "start_ns", "operation"], kind="stable", ignore_index=True
    )


def _run(durations: Durations, shape: JobShape) -> list[_Row]:
    """Run all steps and ranks at once: collectives, pipeline, collectives."""
    zero = np.zeros((shape.steps, shape.dp_ranks))
    rows: list[_Row] = []
    clock = [zero.copy() for _ in range(shape.stages)]
    _meet(rows, clock, "params-all-gather", durations.collective[0], over="ranks")
    _pipeline(rows, clock, durations, shape)
    if shape.stages > 1:
        _meet(rows, clock, "embedding-grads-all-reduce", durations.collective[1], over="ends")
    _meet(rows, clock, "grads-reduce-scatter", durations.collective[2], over="ranks")
    _meet(rows, clock, "optimizer-clip-main-grad", durations.collective[3], over="all")
    for stage in range(shape.stages):
        end = clock[stage] + durations.optimizer[stage]
        rows.append(_Row(stage, "optimizer", None, None, clock[stage], end))
    return rows


def _meet(
    rows: list[_Row], clock: list[Floats], operation: str, lasts: Floats, *, over: str
) -> None:
    """Let all ranks of a stage, the two end stages of a rank, or everybody meet."""
    stages = [0, len(clock) - 1] if over == "ends" else list(range(len(clock)))
    begin = {stage: clock[stage] for stage in stages}
    if over != "ranks":
        begin = dict.fromkeys(stages, np.max(list(begin.values()), axis=0))
    if over != "ends":
        begin = {
            stage: np.broadcast_to(each.max(axis=1, keepdims=True), each.shape)
            for stage, each in begin.items()
        }
    # All members move the data together: one duration for those who meet.
    spread = lasts.copy()
    if over != "ends":
        spread = np.broadcast_to(lasts[:, :, :1], lasts.shape)
    if over != "ranks":
        spread = np.broadcast_to(spread[:1], lasts.shape)
    for stage in stages:
        end = begin[stage] + spread[stage]
        rows.append(_Row(stage, operation, None, None, clock[stage], end))
        clock[stage] = end


def _pipeline(rows: list[_Row], clock: list[Floats], durations: Durations, shape: JobShape) -> None:
    """Run the passes of all stages; whoever has its input computes next."""
    todo = [list(order(stage, shape)) for stage in range(shape.stages)]
    made: dict[tuple[str, int, int], Floats] = {}
    free: dict[tuple[int, str], Floats] = {}
    begin = list(clock)
    while any(todo):
        for stage, passes in enumerate(todo):
            while passes:
                direction, batch, local = passes[0]
                chunk = local * shape.stages + stage
                source = _source(direction, chunk, shape)
                if source is not None and (*source, batch) not in made:
                    break
                passes.pop(0)
                ready = clock[stage]
                if source is not None:
                    arrives = made[*source, batch]
                    if source[0] == direction and shape.stages > 1:
                        wire = _Wire(direction, source[1] % shape.stages, stage)
                        lasts = getattr(durations, f"{direction}_transfer")[source[1], batch]
                        arrives = wire.carry(rows, free, arrives, lasts, begin[stage])
                    ready = np.maximum(ready, arrives)
                clock[stage] = ready + getattr(durations, direction)[chunk, batch]
                made[direction, chunk, batch] = clock[stage]
                rows.append(_Row(stage, f"{direction}-compute", batch, chunk, ready, clock[stage]))


def _source(direction: str, chunk: int, shape: JobShape) -> tuple[str, int] | None:
    """Say which pass makes the input of a pass; None for the first forward pass."""
    last = shape.stages * shape.chunks - 1
    if direction == "forward":
        return ("forward", chunk - 1) if chunk else None
    return ("backward", chunk + 1) if chunk < last else ("forward", chunk)


class _Wire(NamedTuple):
    """From which stage to which one something is moved."""

    direction: str
    sender: int
    receiver: int

    def carry(
        self,
        rows: list[_Row],
        free: dict[tuple[int, str], Floats],
        made: Floats,
        lasts: Floats,
        begin: Floats,
    ) -> Floats:
        """Move what was made as soon as both ends are free; return when it has arrived."""
        send, receive = f"{self.direction}-send", f"{self.direction}-recv"
        posted = free.get((self.receiver, receive), begin)
        issued = np.maximum(made, free.get((self.sender, send), made))
        end = np.maximum(issued, posted) + lasts
        free[self.sender, send] = free[self.receiver, receive] = end
        rows.append(_Row(self.sender, send, None, None, issued, end))
        rows.append(_Row(self.receiver, receive, None, None, posted, end))
        return end
