"""A simulated pipelined, data-parallel job, operation by operation, with known causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from data.make._truth import JOB_TRUTH
from workbench._shared.numbers import Floats
from workbench.tables import JOB_OPERATIONS

# The clockwork of a simulated pipeline: in which order stages compute, and what waits for what.

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
    """Yield the passes of a stage in the order of 1F1B: direction, micro-batch, chunk."""
    stages, batches, chunks = shape.stages, shape.micro_batches, shape.chunks
    passes = batches * chunks
    warm_up = min(stages - stage - 1, batches)
    if chunks > 1:
        # Narayanan et al., section 2.2: interleaving deals out chunks in groups of as many
        # micro-batches as there are stages, so a stage warms up for longer.
        warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, passes)
    for number in range(passes + warm_up):
        if number < passes:
            yield "forward", *_pass(number, shape, backward=False)
        if number >= warm_up:
            yield "backward", *_pass(number - warm_up, shape, backward=True)


def _pass(number: int, shape: JobShape, *, backward: bool) -> tuple[int, int]:
    if shape.chunks == 1:
        return number, 0
    group = shape.stages * shape.chunks
    batch = number // group * shape.stages + number % shape.stages
    chunk = number % group // shape.stages
    return batch, shape.chunks - 1 - chunk if backward else chunk


def step_ns(durations: Durations, shape: JobShape) -> Floats:
    ends = np.stack([row.end for row in _run(durations, shape)])
    longest: Floats = ends.max(axis=(0, 2))
    return longest


def record(durations: Durations, shape: JobShape) -> pd.DataFrame:
    """Run the job and write down every operation, table JOB_OPERATIONS."""
    rows = _run(durations, shape)
    lasts = np.stack([row.end for row in rows]).max(axis=(0, 2)) + _GAP_NS
    begins = np.concatenate([[0.0], np.cumsum(lasts)[:-1]])
    step, rank = (index.ravel() for index in np.indices((shape.steps, shape.dp_ranks)))
    start, end = (np.stack([getattr(row, name) for row in rows]) for name in ("start", "end"))
    once = pd.DataFrame([row[:4] for row in rows], columns=list(_Row._fields[:4]))
    once["sequence"] = once.groupby(["stage", "operation"]).cumcount()
    table = once.loc[once.index.repeat(len(step))].assign(
        step=np.tile(step, len(rows)), dp_rank=np.tile(rank, len(rows)),
        start_ns=np.rint(start + begins[:, None]).ravel(), dur_ns=np.rint(end - start).ravel(),
    )  # fmt: skip
    return JOB_OPERATIONS.cast(table.reset_index(drop=True)).sort_values(
        ["step", "dp_rank", "stage", "start_ns", "operation"], kind="stable", ignore_index=True
    )


def _run(durations: Durations, shape: JobShape) -> list[_Row]:
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
            stage: np.broadcast_to(times.max(axis=1, keepdims=True), times.shape)
            for stage, times in begin.items()
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
    results: dict[tuple[str, int, int], Floats] = {}
    free: dict[tuple[int, str], Floats] = {}
    begin = list(clock)
    while any(todo):
        for stage, passes in enumerate(todo):
            while passes:
                direction, batch, local = passes[0]
                # Chunks go round the stages in turn, as Megatron-LM places them.
                chunk = local * shape.stages + stage
                source = _source(direction, chunk, shape)
                if source is not None and (*source, batch) not in results:
                    break
                passes.pop(0)
                ready = clock[stage]
                if source is not None:
                    arrives = results[*source, batch]
                    if source[0] == direction and shape.stages > 1:
                        wire = _Wire(direction, source[1] % shape.stages, stage)
                        lasts = getattr(durations, f"{direction}_transfer")[source[1], batch]
                        arrives = wire.carry(rows, free, arrives, lasts, begin[stage])
                    ready = np.maximum(ready, arrives)
                clock[stage] = ready + getattr(durations, direction)[chunk, batch]
                results[direction, chunk, batch] = clock[stage]
                rows.append(_Row(stage, f"{direction}-compute", batch, chunk, ready, clock[stage]))


def _source(direction: str, chunk: int, shape: JobShape) -> tuple[str, int] | None:
    """Return which pass makes the input of a pass; None for the first forward pass."""
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
        ready: Floats,
        lasts: Floats,
        begin: Floats,
    ) -> Floats:
        """Move what was made as soon as both ends are free; return when it has arrived."""
        send, receive = f"{self.direction}-send", f"{self.direction}-recv"
        posted = free.get((self.receiver, receive), begin)
        # A send waits for the one before it; the receive was posted earlier and waits for the data.
        issued = np.maximum(ready, free.get((self.sender, send), ready))
        end = np.maximum(issued, posted) + lasts
        free[self.sender, send] = free[self.receiver, receive] = end
        rows.append(_Row(self.sender, send, None, None, issued, end))
        rows.append(_Row(self.receiver, receive, None, None, posted, end))
        return end


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
    causes: Mapping[str, float] | None = None, *, seed: int, shape: tuple[int, ...] = _USUAL
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
        :data:`data.make.JOB_TRUTH`, one row per cause).

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
    given = causes or {}
    refuse_strengths("causes", given, CAUSES)
    wanted = {cause: float(given[cause]) for cause in CAUSES if cause in given}
    healthy = step_ns(_durations({}, seed, size), size).mean()
    where = _slow_worker(seed, size)
    rows = []
    for cause, strength in wanted.items():
        mean = step_ns(_durations({cause: strength}, seed, size), size).mean()
        rank, stage = where if cause == "slow worker" else (None, None)
        stage = size.stages - 1 if cause == "last stage" else stage
        rows.append((cause, rank, stage, strength, mean / healthy))
    operations = record(_durations(wanted, seed, size), size)
    return PipelineJob(JOB_OPERATIONS.check(operations), JOB_TRUTH.of(rows))


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


def refuse_strengths(noun: str, given: Mapping[str, float], known: Iterable[str]) -> None:
    if unknown := sorted(set(given) - set(known)):
        msg = f"unknown {noun} {unknown}; there are {list(known)}"
        raise ValueError(msg)
    for name, strength in given.items():
        if not (np.isfinite(strength) and strength > 0):
            msg = f"{name!r} has strength {strength!r}; give a finite number above 0"
            raise ValueError(msg)


def _slow_worker(seed: int, size: JobShape) -> tuple[int, int]:
    """Choose the slow worker: any rank, any stage but the last, which has a cause of its own."""
    random = np.random.default_rng([seed, 1])
    return int(random.integers(size.dp_ranks)), int(random.integers(max(size.stages - 1, 1)))


def _durations(causes: Mapping[str, float], seed: int, size: JobShape) -> Durations:
    compute = (size.stages * size.chunks, size.micro_batches, size.steps, size.dp_ranks)
    # A stream for each cause, so that no cause changes what the others draw.
    noise, lengths, pauses, flaps, network = (np.random.default_rng([seed, n]) for n in range(2, 7))
    forward = _FORWARD_NS / size.chunks * np.exp(_NOISE * noise.standard_normal(compute))
    backward = _BACKWARD_NS / size.chunks * np.exp(_NOISE * noise.standard_normal(compute))
    rank, stage = _slow_worker(seed, size)
    work = _work(causes.get("sequence lengths", 0.0), compute[1:], lengths)
    for times in (forward, backward):
        times[stage :: size.stages, :, :, rank] *= causes.get("slow worker", 1.0)
        times[size.stages - 1 :: size.stages] *= causes.get("last stage", 1.0)
        np.multiply(times, work[None], out=times)
    paused = pauses.random(compute) < _PAUSE_SHARE
    forward[paused] *= causes.get("pauses", 1.0)
    transfer = _TRANSFER_NS * np.exp(_TRANSFER_NOISE * network.standard_normal((2, *compute)))
    transfer[flaps.random((2, *compute)) < _FLAP_SHARE] *= causes.get("slow network", 1.0)
    worker = (size.stages, size.steps, size.dp_ranks)
    collective = _COLLECTIVE_NS * np.exp(_TRANSFER_NOISE * network.standard_normal((4, *worker)))
    optimizer = _OPTIMIZER_NS * np.exp(_NOISE * network.standard_normal(worker))
    return Durations(*(np.rint(times / 1000) * 1000 for times in (
        forward, backward, transfer[0], transfer[1], collective, optimizer
    )))  # fmt: skip


def _work(
    variation: float, shape: tuple[int, ...], random: np.random.Generator
) -> NDArray[np.float64]:
    """Draw the work of micro-batches with mean 1 and a deviation; the same on every stage."""
    # Log-normal with mean 1: minus half the variance of the logarithm keeps the total work.
    deviation = np.sqrt(np.log1p(variation**2))
    drawn: NDArray[np.float64] = np.exp(
        deviation * random.standard_normal(shape) - deviation**2 / 2
    )
    return drawn
