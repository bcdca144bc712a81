"""The order in which the stages of a pipeline run their passes, and when each one ends."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


class Pass(NamedTuple):
    """One forward or backward pass of a micro-batch through one chunk of the model."""

    stage: int
    is_forward: bool
    micro_batch: int
    chunk: int


@cache
def order(stages: int, micro_batches: int, chunks: int) -> tuple[tuple[Pass, ...], ...]:
    """Return the passes of every stage in the order of 1F1B, or interleaved 1F1B.

    After its warm-up of forward passes a stage alternates one forward and one backward.
    Chunks are numbered through the model: chunk k x stages + s is on stage s.
    """
    total = micro_batches * chunks
    lists = []
    for stage in range(stages):
        if chunks == 1:
            warm_up = min(stages - stage - 1, micro_batches)
        else:
            warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)
        passes = []
        for at in range(total + warm_up):
            if at < total:
                passes.append(_forward(at, stage, stages, chunks))
            if at >= warm_up:
                passes.append(_backward(at - warm_up, stage, stages, chunks))
        lists.append(tuple(passes))
    return tuple(lists)


def _place(at: int, stages: int, chunks: int) -> tuple[int, int]:
    if chunks == 1:
        return at, 0
    group, within = divmod(at, stages * chunks)
    return group * stages + at % stages, within // stages


def _forward(at: int, stage: int, stages: int, chunks: int) -> Pass:
    micro_batch, chunk = _place(at, stages, chunks)
    return Pass(stage, True, micro_batch, chunk * stages + stage)


def _backward(at: int, stage: int, stages: int, chunks: int) -> Pass:
    micro_batch, chunk = _place(at, stages, chunks)
    return Pass(stage, False, micro_batch, (chunks - 1 - chunk) * stages + stage)


@cache
def sequence(stages: int, micro_batches: int, chunks: int) -> tuple[Pass, ...]:
    """Return all passes so that each comes after what it needs and after its stage is free.

    That order does not depend on how long passes take, so it is found once.
    """
    lists = order(stages, micro_batches, chunks)
    last = stages * chunks - 1
    done: set[tuple[bool, int, int]] = set()
    position = [0] * stages
    found: list[Pass] = []
    moved = True
    while moved:
        moved = False
        for stage, passes in enumerate(lists):
            while position[stage] < len(passes):
                item = passes[position[stage]]
                needs = _needs(item, last)
                if needs is not None and needs not in done:
                    break
                done.add((item.is_forward, item.chunk, item.micro_batch))
                found.append(item)
                position[stage] += 1
                moved = True
    return tuple(found)


def _needs(item: Pass, last: int) -> tuple[bool, int, int] | None:
    if item.is_forward:
        return (True, item.chunk - 1, item.micro_batch) if item.chunk else None
    if item.chunk == last:
        return (True, item.chunk, item.micro_batch)
    return (False, item.chunk + 1, item.micro_batch)


def ends(forward: Floats, backward: Floats, *, stages: int, chunks: int) -> dict[Pass, Floats]:
    """Return when every pass ends.

    ``forward`` and ``backward`` hold the time of each micro-batch through the whole model
    along the first axis; other axes are independent steps. A chunk takes its equal part.
    """
    parts = stages * chunks
    passes = sequence(stages, len(forward), chunks)
    done: dict[tuple[bool, int, int], Floats] = {}
    free = [np.zeros(forward.shape[1:])] * stages
    found: dict[Pass, Floats] = {}
    for item in passes:
        needs = _needs(item, parts - 1)
        ready = free[item.stage] if needs is None else np.maximum(free[item.stage], done[needs])
        times = forward if item.is_forward else backward
        end = ready + times[item.micro_batch] / parts
        free[item.stage] = done[item.is_forward, item.chunk, item.micro_batch] = end
        found[item] = end
    return found
