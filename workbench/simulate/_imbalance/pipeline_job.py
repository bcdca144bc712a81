"""A simulated pipelined, data-parallel job, operation by operation, with known causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.simulate._imbalance.pipeline_engine import Durations, JobShape, record, step_ns
from workbench.tables import JOB_OPERATIONS, JOB_TRUTH

CAUSES = ("slow worker", "last stage", "sequence lengths", "pauses", "slow network")
_MS = 1_000_000
_FORWARD_NS, _BACKWARD_NS = 100 * _MS, 200 * _MS
_TRANSFER_NS, _COLLECTIVE_NS, _OPTIMIZER_NS = 2 * _MS, 20 * _MS, 5 * _MS
_USUAL = JobShape()
_NOISE, _TRANSFER_NOISE = 0.01, 0.05
# Of all forward passes the share with a pause; of all transfers the share that is slow.
_PAUSE_SHARE, _FLAP_SHARE = 0.01, 0.05


@dataclass(frozen=True)
class PipelineJob:
    """A simulated job: table JOB_OPERATIONS, and table JOB_TRUTH, one row per cause."""

    operations: pd.DataFrame
    truth: pd.DataFrame


def pipeline_job(
    causes: Mapping[str, float] | None = None,
    *,
    seed: int,
    shape: tuple[int, ...] = _USUAL,
) -> PipelineJob:
    """Simulate a job that trains with 1F1B pipelines, with causes of slowness put in.

    Parameters
    ----------
    causes
        How strong each cause is: ``"slow worker"`` (computes this many times as long),
        ``"last stage"`` (its computations are this many times as long), ``"sequence
        lengths"`` (deviation / mean of the work in a micro-batch), ``"pauses"`` (one in a
        hundred forward passes takes this many times as long), ``"slow network"`` (one in
        twenty transfers takes this many times as long). None for a healthy job.
    seed
        Seed of all that is random: noise of 1 % on computations and 5 % on transfers, which
        worker is slow, where the pauses are. A cause does not change what others draw.
    shape
        Data-parallel ranks, stages, micro-batches per step, steps, and chunks per stage
        (interleaved if more than 1; then stages divide micro-batches): :class:`JobShape`.

    Returns
    -------
    PipelineJob
        ``operations`` (table :data:`workbench.tables.JOB_OPERATIONS`) and ``truth`` (table
        :data:`workbench.tables.JOB_TRUTH`, one row per cause).

    Raises
    ------
    ValueError
        If a cause is unknown or not a finite number above 0, or the shape is not possible.

    Notes
    -----
    A forward pass of a stage takes 100 ms, a backward pass twice as long, a transfer 2 ms, a
    collective 20 ms. A stage computes in the order of 1F1B (Narayanan et al.): warm-up of
    min(stages - stage - 1, micro-batches) forward passes, then one forward, one backward;
    interleaved as there. Sends and receives run beside the computations, each kind in
    order, and a transfer begins when both its ends do. The slowdown in the truth is the
    mean step with a cause alone over that of the same job without any: the simulator's
    own, not an estimate. Estimates that take the mean of equal operations for the ideal
    are lower where the cause is a part of that mean.

    References
    ----------
    arXiv:2104.04473, section 2.2 (schedules).

    Examples
    --------
    >>> job = pipeline_job({"slow worker": 1.5}, seed=1, shape=(4, 2, 4, 2))
    >>> job.truth[["cause", "dp_rank", "stage"]].to_dict("records")
    [{'cause': 'slow worker', 'dp_rank': 2, 'stage': 0}]
    """
    size = _checked(JobShape(*shape))
    wanted = _checked_causes(causes or {})
    healthy = step_ns(_durations({}, seed, size), size).mean()
    where = _slow_worker(seed, size)
    rows = []
    for cause, strength in wanted.items():
        mean = step_ns(_durations({cause: strength}, seed, size), size).mean()
        rank, stage = where if cause == "slow worker" else (None, None)
        stage = size.stages - 1 if cause == "last stage" else stage
        rows.append((cause, rank, stage, strength, mean / healthy))
    truth = pd.DataFrame(rows, columns=list(JOB_TRUTH.columns))
    operations = record(_durations(wanted, seed, size), size)
    return PipelineJob(JOB_OPERATIONS.check(operations), JOB_TRUTH.check(JOB_TRUTH.cast(truth)))


def _checked(size: JobShape) -> JobShape:
    for name, value in size._asdict().items():
        if value != int(value) or value < 1:
            msg = f"{name} is {value!r}; a job needs a whole number from 1"
            raise ValueError(msg)
    if size.chunks > 1 and (size.stages < 2 or size.micro_batches % size.stages):
        msg = (
            f"{size.chunks} chunks per stage need at least 2 stages that divide the micro-batches; "
            f"there are {size.stages} stages and {size.micro_batches} micro-batches"
        )
        raise ValueError(msg)
    return size


def _checked_causes(causes: Mapping[str, float]) -> dict[str, float]:
    if unknown := sorted(set(causes) - set(CAUSES)):
        msg = f"unknown causes {unknown}; there are {list(CAUSES)}"
        raise ValueError(msg)
    for cause, strength in causes.items():
        if not (np.isfinite(strength) and strength > 0):
            msg = f"{cause!r} has strength {strength!r}; give a finite number above 0"
            raise ValueError(msg)
    return {cause: float(causes[cause]) for cause in CAUSES if cause in causes}


def _slow_worker(seed: int, size: JobShape) -> tuple[int, int]:
    """Choose the slow worker: any rank, any stage but the last, which has a cause of its own."""
    random = np.random.default_rng([seed, 1])
    return int(random.integers(size.dp_ranks)), int(random.integers(max(size.stages - 1, 1)))


def _durations(causes: Mapping[str, float], seed: int, size: JobShape) -> Durations:
    """Draw how long everything takes. Every cause has a stream of its own."""
    compute = (size.stages * size.chunks, size.micro_batches, size.steps, size.dp_ranks)
    noise, lengths, pauses, flaps, rest = (np.random.default_rng([seed, n]) for n in range(2, 7))
    forward = _FORWARD_NS / size.chunks * np.exp(_NOISE * noise.standard_normal(compute))
    backward = _BACKWARD_NS / size.chunks * np.exp(_NOISE * noise.standard_normal(compute))
    rank, stage = _slow_worker(seed, size)
    work = _work(causes.get("sequence lengths", 0.0), compute[1:], lengths)
    for each in (forward, backward):
        each[stage :: size.stages, :, :, rank] *= causes.get("slow worker", 1.0)
        each[size.stages - 1 :: size.stages] *= causes.get("last stage", 1.0)
        np.multiply(each, work[None], out=each)
    paused = pauses.random(compute) < _PAUSE_SHARE
    forward[paused] *= causes.get("pauses", 1.0)
    transfer = _TRANSFER_NS * np.exp(_TRANSFER_NOISE * rest.standard_normal((2, *compute)))
    transfer[flaps.random((2, *compute)) < _FLAP_SHARE] *= causes.get("slow network", 1.0)
    worker = (size.stages, size.steps, size.dp_ranks)
    collective = _COLLECTIVE_NS * np.exp(_TRANSFER_NOISE * rest.standard_normal((4, *worker)))
    optimizer = _OPTIMIZER_NS * np.exp(_NOISE * rest.standard_normal(worker))
    return Durations(*(np.rint(each / 1000) * 1000 for each in (
        forward, backward, transfer[0], transfer[1], collective, optimizer
    )))  # fmt: skip


def _work(
    variation: float, shape: tuple[int, ...], random: np.random.Generator
) -> NDArray[np.float64]:
    """Draw the work of micro-batches with mean 1 and a deviation; the same on every stage."""
    deviation = np.sqrt(np.log1p(variation**2))
    drawn: NDArray[np.float64] = np.exp(
        deviation * random.standard_normal(shape) - deviation**2 / 2
    )
    return drawn
