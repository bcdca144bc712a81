"""What a recorded job would do if: its steps drawn whole, changed and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._imbalance.jobs.arranged import job
from workbench.analyze._imbalance.jobs.changed import layout, rearranged, runs_as
from workbench.analyze._imbalance.jobs.replay import COMPUTES, Floats, Job
from workbench.analyze._imbalance.packing_plan import is_whole
from workbench.analyze._lib.pipeline_order import ScheduleKind
from workbench.errors import PerformanceModelError
from workbench.tables import JOB_HELD_OUT, JOB_PREDICTION

AS_RECORDED = "as recorded"
_FEW_STEPS = 10
# How often micro-batches are drawn anew for each step.
_REPEATS = 8


@dataclass(frozen=True)
class JobChange:
    """What is changed about a recorded job; what is not named stays as it was.

    Parameters
    ----------
    factor
        The durations of the chosen operations are multiplied by it.
    operation
        Which operations those are, e.g. ``"forward-compute"``; None for the forward and
        backward computations.
    dp_rank
        Only those of this data-parallel rank; None for all.
    stage
        Only those of this pipeline stage; None for all.
    schedule
        Another pipeline schedule for the same chunks: ``"gpipe"``, ``"1f1b"``,
        ``"interleaved"`` or ``"zero_bubble"``.
    micro_batches
        Another number of micro-batches per rank and step.
    weight_share
        Of a backward computation, the part that makes gradients of weights; for
        ``"zero_bubble"``.
    """

    factor: float = 1.0
    operation: str | None = None
    dp_rank: int | None = None
    stage: int | None = None
    schedule: ScheduleKind | None = None
    micro_batches: int | None = None
    weight_share: float = 0.5

    @property
    def is_rearranged(self) -> bool:
        """Whether the order or the number of passes changes, not only their durations."""
        return self.schedule is not None or self.micro_batches is not None


def job_prediction(
    operations: pd.DataFrame,
    changes: Mapping[str, JobChange] | None = None,
    *,
    draws: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Predict the steps of a recorded job under changes, as a distribution over real steps.

    The slowest of many ranks decides, so that the replay of mean durations is far too short
    where work varies. Here every recorded step is changed and replayed as a whole, all ranks
    together, and the steps are drawn.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    changes
        Each change by a name of your own; the job as recorded always comes first.
    draws
        How often the steps are drawn for the intervals.
    confidence
        Share of the draws inside the intervals.
    seed
        Seed of the draws.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_PREDICTION`, one row per change.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`.
    PerformanceModelError
        If a change names what the job does not have, or is not possible.

    Notes
    -----
    Step = replay of its changed operations + its launch delay, recorded - replayed, which is
    taken to stay (and to grow with the number of micro-batches). As recorded, it is the
    recorded step. The interval of the mean is that of bootstrapped steps, and that of the
    change is of the same draws, so that what steps have in common cancels. Steps that follow
    each other may be alike; then the intervals are too narrow.

    In another schedule computations keep their durations, transfers and pauses. Other
    micro-batches are drawn from those of the same step and rank: without repeats where fewer
    are wanted, otherwise each once and the rest again. Collectives, which
    do not depend on them, stay.

    References
    ----------
    arXiv:2505.05713 for the replay.
    """
    _check(draws, confidence)
    it = job(operations)
    rng = np.random.default_rng(seed)
    delay = it.actual - it.replay(it.own)
    drawn = rng.integers(len(it.steps), size=(draws, len(it.steps)))
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    rows = [_row(AS_RECORDED, "measured", it.actual[None], it.actual, drawn, tails)]
    doubts = [_few(it)]
    for name, change in (changes or {}).items():
        _refuse(it, name, change)
        steps, doubt = _changed(it, change, rng, delay)
        basis = "modelled" if change.is_rearranged else "scaled"
        rows.append(_row(name, basis, steps, it.actual, drawn, tails))
        doubts.append([*_few(it), *doubt])
    for row, each in zip(rows, doubts, strict=True):
        row |= {"step_count": len(it.steps), "doubt": "; ".join([*it.doubts, *each]) or None}
    table = pd.DataFrame(rows)
    table["basis"] = table["basis"].astype("category")
    return JOB_PREDICTION.check(JOB_PREDICTION.cast(table))


def job_held_out(operations: pd.DataFrame, *, splits: int = 100, seed: int = 0) -> pd.DataFrame:
    """Measure how well the mean step of a job is predicted from half of its steps.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    splits
        Random halves to predict from; the other half is the truth.
    seed
        Seed of the halves.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_HELD_OUT`: ``method``, ``split_count``,
        ``error_ratio``, ``absolute_error_ratio`` and ``largest_error_ratio``.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`.
    PerformanceModelError
        If there are fewer than 2 steps or splits below 1.

    Notes
    -----
    *own step*: the replay of every step by itself, without launch delays. *joint steps*: the
    mean replay of whole steps of one half beside the recorded mean of the other. *joint steps
    with delays*: the same with their launch delays, as :func:`job_prediction` takes them.
    *mean durations*: the baseline, one replay with each operation's mean over the half.
    """
    it = job(operations)
    if len(it.steps) < 2 or not is_whole(splits):
        msg = (
            f"{len(it.steps)} steps in {splits} splits: there must be 2 steps or more, one for "
            "each half, and at least 1 split"
        )
        raise PerformanceModelError(msg)
    replay, actual = it.replay(it.own), it.actual
    errors: dict[str, list[float]] = {"joint steps": [], "joint steps with delays": []}
    errors["mean durations"] = []
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        shuffled = rng.permutation(len(actual))
        mine, others = np.array_split(shuffled, 2)
        truth = actual[others].mean()
        mean = it.replay(it.own[:, mine].mean(axis=1, keepdims=True))[0]
        predicted = (replay[mine].mean(), actual[mine].mean(), mean)
        for each, value in zip(errors.values(), predicted, strict=True):
            each.append(float(value / truth - 1))
    found = {"own step": (replay / actual - 1).tolist(), **errors}
    table = pd.DataFrame(
        {
            "method": pd.Categorical(list(found)),
            "split_count": [len(each) for each in found.values()],
            "error_ratio": [np.mean(each) for each in found.values()],
            "absolute_error_ratio": [np.abs(each).mean() for each in found.values()],
            "largest_error_ratio": [np.abs(each).max() for each in found.values()],
        }
    )
    return JOB_HELD_OUT.check(JOB_HELD_OUT.cast(table))


def _check(draws: int, confidence: float) -> None:
    if not (is_whole(draws) and 0 < confidence < 1):
        msg = (
            "draws must be a whole number of at least 1 and confidence between 0 and 1, not "
            f"{draws} and {confidence}"
        )
        raise PerformanceModelError(msg)


def _refuse(it: Job, name: str, change: JobChange) -> None:
    """Raise for a change that the job cannot take."""
    if name == AS_RECORDED:
        msg = f"{AS_RECORDED!r} is the name of the job without a change; take another"
        raise PerformanceModelError(msg)
    if not 0 <= change.factor < np.inf:
        msg = f"{name}: factor must be 0 or more, not {change.factor}"
        raise PerformanceModelError(msg)
    if not 0 <= change.weight_share <= 1:
        msg = f"{name}: weight_share must be between 0 and 1, not {change.weight_share}"
        raise PerformanceModelError(msg)
    if change.micro_batches is not None and not is_whole(change.micro_batches):
        msg = f"{name}: micro_batches must be a whole number of at least 1"
        raise PerformanceModelError(msg)
    operations = sorted({key.operation for key in it.keys})
    for what, value, known in (
        ("operation", change.operation, operations),
        ("dp_rank", change.dp_rank, it.dp_ranks.tolist()),
        ("stage", change.stage, it.stages),
    ):
        if value is not None and value not in known:
            listed = ", ".join(str(each) for each in known[:12]) + " ..." * (len(known) > 12)
            msg = f"{name}: the job has no {what} {value!r}; it has {listed}"
            raise PerformanceModelError(msg)


def _scaled(it: Job, change: JobChange) -> Floats:
    """Return the durations with the chosen ones multiplied."""
    names = COMPUTES if change.operation is None else {change.operation}
    rows = np.array(
        [
            key.operation in names and change.stage in (None, key.stage)
            for key in it.keys
        ]
    )  # fmt: skip
    ranks = np.array([change.dp_rank in (None, rank) for rank in it.dp_ranks.tolist()])
    chosen = rows[:, None, None] & ranks[None, None, :]
    return np.where(chosen, it.own * change.factor, it.own)


def _changed(
    it: Job, change: JobChange, rng: np.random.Generator, delay: Floats
) -> tuple[Floats, list[str]]:
    """Return the steps after a change, by repeat and step, and what is doubtful about them."""
    own = _scaled(it, change)
    if not change.is_rearranged:
        return (it.replay(own) + delay)[None], []
    lies = layout(it)
    kind, count = change.schedule or lies.kind, change.micro_batches or len(lies.batches)
    base = Job(**{**vars(it), "own": own})
    steps = []
    for _ in range(1 if count == len(lies.batches) else _REPEATS):
        pick = _pick(len(lies.batches), count, own.shape[1:], rng)
        other = rearranged(base, lies, kind, pick, change.weight_share)
        steps.append(other.replay(other.own) + delay * count / len(lies.batches))
    doubts = []
    if not runs_as(it, lies, lies.kind):
        doubts.append(f"the recorded order is not that of {lies.kind}")
    if kind == "zero_bubble":
        doubts.append(f"the weights' part is taken to be {change.weight_share:.0%} of a backward")
    if count != len(lies.batches):
        doubts.append(f"{count} micro-batches drawn from the {len(lies.batches)} of each step")
    return np.array(steps), doubts


def _pick(
    known: int, wanted: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Choose recorded micro-batches for each step and rank: as few repeats as possible."""
    if wanted == known:
        return np.broadcast_to(np.arange(known).reshape(-1, *[1] * len(shape)), (known, *shape))
    rounds = -(-wanted // known)
    shuffled = [rng.random((known, *shape)).argsort(axis=0) for _ in range(rounds)]
    return np.concatenate(shuffled)[:wanted]


def _few(it: Job) -> list[str]:
    count = len(it.steps)
    return [f"{count} steps only: their interval says little"] if count < _FEW_STEPS else []


def _row(
    name: str,
    basis: str,
    steps: Floats,
    actual: Floats,
    drawn: NDArray[np.int64],
    tails: list[float],
) -> dict[str, object]:
    """Sum up steps: their mean, the spread of steps, and intervals over draws of steps."""
    mean_by_step = steps.mean(axis=0)
    means = mean_by_step[drawn].mean(axis=1)
    ratios = means / actual[drawn].mean(axis=1) - 1
    low, high = np.quantile(means, tails)
    p5, p95 = np.quantile(steps, [0.05, 0.95])
    change_low, change_high = np.quantile(ratios, tails)
    return {
        "change": name, "basis": basis, "step_ns": mean_by_step.mean(), "step_low_ns": low,
        "step_high_ns": high, "step_p5_ns": p5, "step_p95_ns": p95,
        "change_ratio": mean_by_step.mean() / actual.mean() - 1,
        "change_low_ratio": change_low, "change_high_ratio": change_high,
    }  # fmt: skip
