"""What-if analysis of a recorded job: its steps resampled whole, changed and replayed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats
from workbench.analyze._imbalance.jobs.arranged import arranged
from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    COMPUTES,
    FORWARD,
    Compute,
    Job,
    Operation,
)
from workbench.analyze._imbalance.packers import is_whole
from workbench.analyze._lib.pipelines import FORWARD as FORWARD_PASS
from workbench.analyze._lib.pipelines import (
    INPUT,
    V_SHAPED,
    WEIGHT,
    Order,
    ScheduleKind,
    order,
    refusal,
)
from workbench.errors import PerformanceModelError
from workbench.tables import JOB_HELD_OUT, JOB_PREDICTION

AS_RECORDED = "as recorded"
_WEIGHTS = "backward-weights"
_FEW_STEPS = 10
# How often micro-batches are redrawn for each step.
_REPEATS = 8


@dataclass(frozen=True)
class JobChange:
    """A change of a recorded job; fields that are not given stay as recorded.

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
        Of a backward computation, the part that makes gradients of weights; for ``"zero_bubble"``.
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
    confidence_level: float = 0.95,
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
    confidence_level
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

    In another schedule computations keep their durations, transfers and pauses. Other micro-batches
    are drawn from those of the same step and rank: without repeats where fewer are wanted,
    otherwise each once and the rest again. Collectives, which do not depend on them, stay.

    References
    ----------
    arXiv:2505.05713 for the replay.
    """
    if not (is_whole(draws) and 0 < confidence_level < 1):
        msg = "draws must be a whole number of at least 1 and confidence_level between 0 and 1, "
        msg += f"not {draws} and {confidence_level}"
        raise PerformanceModelError(msg)
    job = arranged(operations)
    rng = np.random.default_rng(seed)
    # Time between operations, such as launches and data loading, which no change here shortens.
    delay = job.actual - job.replay(job.own)
    # Drawn once for all changes, so that what steps have in common cancels in their differences.
    drawn = rng.integers(len(job.steps), size=(draws, len(job.steps)))
    tails = [(1 - confidence_level) / 2, (1 + confidence_level) / 2]
    rows = [_row(AS_RECORDED, job.actual[None], job.actual, drawn, tails) | {"basis": "measured"}]
    doubts: list[list[str]] = [[]]
    for name, change in (changes or {}).items():
        _refuse(job, name, change)
        steps, doubt = _changed(job, change, rng, delay)
        basis = {"basis": "modelled" if change.is_rearranged else "scaled"}
        rows.append(_row(name, steps, job.actual, drawn, tails) | basis)
        doubts.append(doubt)
    count = len(job.steps)
    short = [f"{count} steps only: their interval means little"] if count < _FEW_STEPS else []
    for row, doubt in zip(rows, doubts, strict=True):
        row |= {"step_count": count, "doubt": "; ".join([*job.doubts, *short, *doubt]) or None}
    return JOB_PREDICTION.of(pd.DataFrame(rows).astype({"basis": "category"}))


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
    job = arranged(operations)
    if len(job.steps) < 2 or not is_whole(splits):
        msg = (
            f"{len(job.steps)} steps in {splits} splits: there must be 2 steps or more, one for "
            "each half, and at least 1 split"
        )
        raise PerformanceModelError(msg)
    replay, actual = job.replay(job.own), job.actual
    predicted: list[tuple[float, ...]] = []
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        # Both from one permutation: no step may be in the half that predicts and in the other.
        half, held_out = np.array_split(rng.permutation(len(actual)), 2)
        mean = job.replay(job.own[:, half].mean(axis=1, keepdims=True))[0]
        means = (replay[half].mean(), actual[half].mean(), mean)
        predicted.append(tuple(float(value / actual[held_out].mean() - 1) for value in means))
    names = ("joint steps", "joint steps with delays", "mean durations")
    errors = {"own step": replay / actual - 1} | dict(
        zip(names, np.array(predicted).T, strict=True)
    )
    return JOB_HELD_OUT.of(
        {
            "method": pd.Categorical(list(errors)),
            "split_count": [len(error) for error in errors.values()],
            "error_ratio": [np.mean(error) for error in errors.values()],
            "absolute_error_ratio": [np.abs(error).mean() for error in errors.values()],
            "largest_error_ratio": [np.abs(error).max() for error in errors.values()],
        }
    )


def _refuse(job: Job, name: str, change: JobChange) -> None:
    batches = change.micro_batches
    reasons = {
        f"{AS_RECORDED!r} is the name of the job without a change; take another": (
            name == AS_RECORDED
        ),
        f"{name}: factor must be 0 or more, not {change.factor}": not 0 <= change.factor < np.inf,
        f"{name}: weight_share must be between 0 and 1, not {change.weight_share}": (
            not 0 <= change.weight_share <= 1
        ),
        f"{name}: micro_batches must be a whole number of at least 1": (
            batches is not None and not is_whole(batches)
        ),
    }
    for noun, value, choices in (
        ("operation", change.operation, sorted({key.operation for key in job.keys})),
        ("dp_rank", change.dp_rank, job.dp_ranks.tolist()),
        ("stage", change.stage, job.stages),
    ):
        listed = ", ".join(map(str, choices[:12])) + " ..." * (len(choices) > 12)
        reason = f"{name}: the job has no {noun} {value!r}; it has {listed}"
        reasons[reason] = value is not None and value not in choices
    for reason, holds in reasons.items():
        if holds:
            raise PerformanceModelError(reason)


def _changed(
    job: Job, change: JobChange, rng: np.random.Generator, delay: Floats
) -> tuple[Floats, list[str]]:
    """Return the steps after a change, by repeat and step, and what is doubtful about them."""
    names = COMPUTES if change.operation is None else {change.operation}
    rows = [key.operation in names and change.stage in (None, key.stage) for key in job.keys]
    ranks = np.array([change.dp_rank in (None, rank) for rank in job.dp_ranks.tolist()])
    own = np.where(np.array(rows)[:, None, None] & ranks, job.own * change.factor, job.own)
    if not change.is_rearranged:
        return (job.replay(own) + delay)[None], []
    placed = layout(job)
    recorded = len(placed.batches)
    kind, count = change.schedule or placed.kind, change.micro_batches or recorded
    base = replace(job, own=own)
    steps = []
    # Without draws of micro-batches every repeat would be the same.
    for _ in range(1 if count == recorded else _REPEATS):
        pick = _pick(recorded, count, own.shape[1:], rng)
        changed = rearranged(base, placed, kind, pick, change.weight_share)
        steps.append(changed.replay(changed.own) + delay * count / recorded)
    share = change.weight_share
    doubts = {
        f"the recorded order is not that of {placed.kind}": not runs_as(job, placed, placed.kind),
        f"the weight-gradient pass is taken to be {share:.0%} of a backward pass": (
            kind == "zero_bubble"
        ),
        f"{count} micro-batches drawn from the {recorded} of each step": count != recorded,
    }
    return np.array(steps), [doubt for doubt, holds in doubts.items() if holds]


def _pick(
    recorded: int, wanted: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Choose recorded micro-batches for each step and rank: as few repeats as possible."""
    if wanted == recorded:
        return np.broadcast_to(
            np.arange(recorded).reshape(-1, *[1] * len(shape)), (recorded, *shape)
        )
    rounds = -(-wanted // recorded)
    shuffled = [rng.random((recorded, *shape)).argsort(axis=0) for _ in range(rounds)]
    return np.concatenate(shuffled)[:wanted]


def _row(
    name: str, steps: Floats, actual: Floats, drawn: NDArray[np.int64], tails: list[float]
) -> dict[str, object]:
    """Sum up steps: their mean, the spread of steps, and intervals over draws of steps."""
    mean_by_step = steps.mean(axis=0)
    means = mean_by_step[drawn].mean(axis=1)
    low, high = np.quantile(means, tails)
    p5, p95 = np.quantile(steps, [0.05, 0.95])
    change_low, change_high = np.quantile(means / actual[drawn].mean(axis=1) - 1, tails)
    return {
        "change": name, "step_ns": mean_by_step.mean(), "step_low_ns": low, "step_high_ns": high,
        "step_p5_ns": p5, "step_p95_ns": p95,
        "change_ratio": mean_by_step.mean() / actual.mean() - 1,
        "change_low_ratio": change_low, "change_high_ratio": change_high,
    }  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How a recorded job placed on its stages, and the order it would need to run otherwise."""

    stages: list[int]
    chunks: list[int]
    batches: list[int]
    kind: ScheduleKind

    @property
    def per_stage(self) -> int:
        return len(self.chunks) // len(self.stages)


def layout(job: Job) -> Layout:
    """Read off how a job placed on its stages."""
    home = {item.produces[1]: item.key.stage for item in job.items}
    stages, chunks = sorted(job.computes), sorted(home)
    on_stages = [home[chunk] for chunk in chunks]
    if len(chunks) % len(stages) or on_stages != stages * (len(chunks) // len(stages)):
        msg = (
            f"chunks lie on stages {on_stages[:12]}; only those that go round the stages in turn "
            "can be given another schedule or other micro-batches"
        )
        raise PerformanceModelError(msg)
    kind: ScheduleKind = "1f1b" if len(chunks) == len(stages) else "interleaved"
    return Layout(stages, chunks, sorted({item.produces[2] for item in job.items}), kind)


def runs_as(job: Job, placed: Layout, kind: ScheduleKind) -> bool:
    """Return whether the job was recorded in the order of a schedule."""
    size = (len(placed.stages), len(placed.batches), placed.per_stage)
    if refusal(kind, *size):
        return False
    recorded: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for item in job.items:
        name, chunk, batch = item.produces
        position = (placed.chunks.index(chunk), placed.batches.index(batch))
        recorded[item.key.stage].append((name, *position))
    return recorded == _actions(order(kind, *size), placed)


def _actions(schedule: Order, placed: Layout) -> dict[int, list[tuple[str, int, int]]]:
    actions: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    columns = (schedule.stage, schedule.action, schedule.chunk, schedule.micro_batch)
    for at, action, chunk, batch in zip(*(column.tolist() for column in columns), strict=True):
        name = {FORWARD_PASS: FORWARD, WEIGHT: _WEIGHTS}.get(action, BACKWARD)
        actions[placed.stages[at]].append((name, chunk, batch))
    return dict(actions)


def rearranged(
    job: Job, placed: Layout, kind: ScheduleKind, pick: NDArray[np.int64], weight_share: float
) -> Job:
    """Return the job in the order of a schedule, with micro-batches picked from the recorded.

    ``pick`` says for each new micro-batch which recorded one it is, by step and rank.
    """
    size = (len(placed.stages), len(pick), placed.per_stage)
    reason = refusal(kind, *size)
    if kind in V_SHAPED:
        reason = f"{kind} lays the model down the stages and back, which the job did not"
    if reason:
        msg = f"the job has {size[2]} chunks per stage, {size[1]} micro-batches: {reason}"
        raise PerformanceModelError(msg)
    schedule = order(kind, *size)
    # Only a schedule with input-gradient passes splits the backward pass.
    split = weight_share if (schedule.action == INPUT).any() else 0.0
    moved = _Taken(job, placed, pick, split)
    computes = {
        stage: [moved.compute(stage, *action) for action in actions]
        for stage, actions in _actions(schedule, placed).items()
    }
    rows = {key: row for row, key in enumerate(job.keys)}
    outside = [*job.before, *job.after]
    own = np.concatenate([np.stack(moved.durations), job.own[[rows[key] for key in outside]]])
    return replace(job, keys=[*moved.keys, *outside], own=own, computes=computes)


class _Taken:
    """Operations taken over from a job: their new keys and durations."""

    def __init__(self, job: Job, placed: Layout, pick: NDArray[np.int64], split: float) -> None:
        self.keys: list[Operation] = []
        self.durations: list[Floats] = []
        self._own, self._pick, self._split, self._lies = job.own, pick, split, placed
        self._row = {key: at for at, key in enumerate(job.keys)}
        self._items = {item.produces: item for items in job.computes.values() for item in items}
        self._numbers: dict[tuple[int, str], int] = defaultdict(int)

    def compute(self, stage: int, name: str, chunk: int, batch: int) -> Compute:
        """Return a computation of the new order, with the transfers and the pause beside it."""
        recorded = BACKWARD if name == _WEIGHTS else name
        items = [
            self._items[recorded, self._lies.chunks[chunk], source] for source in self._lies.batches
        ]
        factor = {_WEIGHTS: self._split, BACKWARD: 1 - self._split}.get(name, 1.0)
        key = self._take(stage, name, batch, [item.key for item in items], factor)
        product = (name, chunk, batch)
        assert key is not None
        if name == _WEIGHTS:
            return Compute(key, None, None, product, None)
        step = 1 if name == FORWARD else -1
        needs: tuple[str, int, int] | None = (name, chunk - step, batch)
        if not 0 <= chunk - step < len(self._lies.chunks):
            needs = None if name == FORWARD else (FORWARD, chunk, batch)
        receive, send, pause = (
            self._take(stage, "", batch, [getattr(item, link) for item in items])
            for link in ("receive", "send", "pause")
        )
        late = any(item.pauses_late for item in items)
        return Compute(key, receive, send, product, needs, pause, late)

    def _take(
        self, stage: int, name: str, batch: int, keys: list[Operation | None], factor: float = 1.0
    ) -> Operation | None:
        present = [key for key in keys if key is not None]
        if not present:
            return None
        name = name or present[0].operation
        nothing = np.zeros(self._own.shape[1:])
        durations = np.stack(
            [nothing if key is None else self._own[self._row[key]] for key in keys]
        )
        chosen = np.take_along_axis(durations, self._pick[batch][None], axis=0)[0]
        number = self._numbers[stage, name]
        self._numbers[stage, name] += 1
        self.keys.append(Operation(stage, name, number))
        self.durations.append(factor * chosen)
        return self.keys[-1]
