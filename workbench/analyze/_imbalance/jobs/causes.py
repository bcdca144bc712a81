"""Which operations a cause of slowness is made of, and what speaks for it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._imbalance.jobs.replay import COMPUTES, Floats, Job
from workbench.analyze._imbalance.jobs.schedule import micro_batches_of

Mask: TypeAlias = NDArray[np.bool_]
# Of T_ideal: a smaller excess is noise, and its shares say nothing.
_LEAST_EXCESS = 0.001


def share_of(gone: float, own: float, ideal: float) -> float | None:
    """Return which part of the excess is gone; None if there is hardly any."""
    excess = own - ideal
    return gone / excess if excess >= max(_LEAST_EXCESS * ideal, 1.0) else None


def slow_workers(it: Job, slow_from: float) -> Mask | None:
    """Mark workers that always compute longer than their stage does; None if there are none.

    Fewer than half of a stage: slow beside the median of all ranks.
    """
    mask = np.zeros(it.own.shape, dtype=bool)
    for stage in it.stages:
        medians = []
        for kind in sorted(COMPUTES):
            rows = [
                at for at, key in enumerate(it.keys) if key.stage == stage and key.operation == kind
            ]
            if rows:
                medians.append(np.median(it.own[rows], axis=(0, 1)))
        each = np.sum(medians, axis=0) if medians else np.zeros(len(it.dp_ranks))
        slow = (each > 0) & (each >= slow_from * np.median(each))
        on_stage = np.array([key.stage == stage for key in it.keys])
        mask |= on_stage[:, None, None] & slow[None, None, :]
    return mask if mask.any() else None


def longest(it: Job, share: float) -> Mask:
    """Mark pauses: collections, and the few computations longest beside their kind's median."""
    kinds = [(key.stage, key.operation) for key in it.keys]
    computes = np.array([key.operation in COMPUTES for key in it.keys])
    relative = np.zeros(it.own.shape)
    for kind in set(kinds):
        if kind[1] in COMPUTES:
            mine = np.array([each == kind for each in kinds])
            relative[mine] = it.own[mine] / max(np.median(it.own[mine]), 1.0)
    few = (relative > np.quantile(relative[computes], 1 - share)) & (relative > 1)
    collected = np.array([key in it.pauses for key in it.keys])
    return np.asarray(few | collected[:, None, None])


def correlations(it: Job) -> tuple[float | None, float | None]:
    """Correlate forward and backward of micro-batches on the first stage: as is, within ranks."""
    both = micro_batches_of(it, it.stages[0])
    if both is None:
        return None, None
    _, forward, backward = both
    return _correlation(forward, backward), _correlation(_scaled(forward), _scaled(backward))


def _scaled(durations: Floats) -> Floats:
    """Divide by the median of each rank."""
    return durations / np.maximum(np.median(durations, axis=(0, 1), keepdims=True), 1.0)


def _correlation(forward: Floats, backward: Floats) -> float | None:
    if forward.size < 2 or not (np.ptp(forward) and np.ptp(backward)):
        return None
    return float(np.clip(np.corrcoef(forward.ravel(), backward.ravel())[0, 1], -1, 1))
