"""Cost of stragglers: a job replayed as if equal operations took equal time."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats
from workbench.analyze._imbalance.jobs.arranged import Grid, arranged, grid
from workbench.analyze._imbalance.jobs.doubts import doubts_of_replay
from workbench.analyze._imbalance.jobs.replay import (
    COMMUNICATION,
    COMPUTES,
    TRANSFERS,
    Job,
)
from workbench.analyze._imbalance.jobs.schedule import micro_batches_of
from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS, JOB_SLOWDOWN, JOB_SLOWDOWN_BY, JOB_STEPS

Part: TypeAlias = Literal["worker", "stage", "dp_rank", "operation"]
Incomplete: TypeAlias = Literal["raise", "leave out"]
Mask: TypeAlias = NDArray[np.bool_]

_BOUNDING: tuple[Part, Part] = ("dp_rank", "stage")
# Cells of one replay of many ranks side by side; more are replayed in parts.
_MOST_CELLS = 20_000_000
# Of T_ideal: a smaller excess is noise, and its shares say nothing.
_LEAST_EXCESS = 0.001
# Errors of a median by which a worker differs from its stage before that is not chance.
_SLOW_ERRORS = 4.0


def job_slowdown(
    operations: pd.DataFrame,
    *,
    worst_share: float = 0.03,
    straggling_from: float = 1.1,
    explained_from: float = 0.5,
    correlated_from: float = 0.9,
    incomplete: Incomplete = "raise",
) -> pd.DataFrame:
    """Measure how much slower a job is than with equal operations, and say why.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    worst_share
        Share of the workers that count as the worst ones, rounded up, and of the
        computations that count as pauses.
    straggling_from
        Slowdown from which a job counts as straggling.
    explained_from
        Share of the excess from which a cause explains it.
    correlated_from
        Correlation of forward and backward from which micro-batches differ in length.
    incomplete
        What to do with steps that were not recorded whole: ``"raise"``, or ``"leave out"``
        as :func:`complete_steps` does; the note then says what was.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_SLOWDOWN`, one row.

    Raises
    ------
    WorkbenchError
        If operations are missing or doubled, or the pipeline cannot be reconstructed.
    ValueError
        If ``incomplete`` is neither of these.

    Notes
    -----
    Replay: a computation begins when the one before it on its stage is over and its input
    has arrived; a transfer begins when both ends are ready and the one before it of its
    kind is over; a collective begins with its last member. T takes own durations, without
    the waiting for peers and without launch delays; T_ideal takes for every computation
    (and the optimizer) the mean of its kind, for everything else the median. S = T /
    T_ideal, waste = 1 - 1 / S. M_W and M_S = (T - T') / (T - T_ideal), T' with the worst
    workers, or the last stage, made ideal; the shares of communication and of pauses
    likewise. They do not add up to 1, and one may exceed it.

    The verdict is the first that holds: pauses that explain more than any other cause, but for
    unequal sequence lengths; worker (M_W, or slow workers), sequence lengths (correlation within
    ranks), last stage (M_S), communication, pauses. Slow workers are
    those whose median computation takes ``straggling_from`` times the median of their
    stage, and are beyond it by four standard errors of their own: all stages of a slow host,
    or a few workers, of which M_W counts too few. They
    are looked at before the correlation: a slow worker makes forward and backward long
    together, as long documents do. Both correlations are those of the first stage; the
    published one takes durations as they are, that within ranks divides them by the median
    of their rank first, so that a slow host does not correlate. A job has no M_S if it has
    one stage, and shares are missing where the excess is below 0.1 % of T_ideal. With one
    rank, the last stage is a stage, not a worker. A garbage collection between computations
    delays the next one; its ideal is 0, and it counts as a pause. The worst workers are those
    with the largest S_w of :func:`job_slowdown_by`; the paper takes a bound of it instead.

    What equal operations share costs no slowdown here: a network that is slow for all, or
    a slow worker's part in the mean. Of a worker that is r times as slow as its n - 1
    equals, the ideal takes 1 + (r - 1) / n.

    References
    ----------
    arXiv:2505.05713. Communication and pauses are measured like its M_W and M_S, but are
    not in it.
    """
    if incomplete not in get_args(Incomplete):
        msg = f"incomplete must be one of {get_args(Incomplete)}, not {incomplete!r}"
        raise ValueError(msg)
    if incomplete == "leave out":
        operations = complete_steps(operations)
    job = arranged(operations)
    own, ideal = job.replay(job.own).mean(), job.replay(job.ideal).mean()
    by_worker = _by(job, "worker")
    delay_ratio = 1 - own / job.actual.mean()
    masks = {
        "worst_workers_ratio": _worst_workers(job, by_worker, worst_share),
        "slow_workers_ratio": slow_workers(job, straggling_from),
        "last_stage_ratio": _of_stage(job, job.stages[-1]) if len(job.stages) > 1 else None,
        "communication_ratio": _of_kinds(job, COMMUNICATION),
        "pauses_ratio": longest(job, worst_share),
    }
    raw, within = correlations(job)
    left_out = operations.attrs.get("left_out", {})
    notes = [f"dropped: {count:,} {reason}" for reason, count in left_out.items()]
    row = {
        "step_count": len(job.steps),
        "worker_count": len(by_worker),
        "actual_ns": job.actual.mean(),
        "replay_ns": own,
        "ideal_ns": ideal,
        "slowdown_ratio": own / ideal,
        "waste_ratio": 1 - ideal / own,
        "delay_ratio": delay_ratio,
        "forward_backward_correlation": raw,
        "within_rank_correlation": within,
        "note": "; ".join([*notes, *job.doubts, *doubts_of_replay(delay_ratio)]) or None,
    }
    row |= {
        name: None if mask is None else _share_of(own - _mixed(job, ~mask), own, ideal)
        for name, mask in masks.items()
    }
    evened = job.replay(_evened(job)).mean()
    row["micro_batches_ratio"] = _share_of(own - evened, own, ideal)
    stage = ("last stage", "last_stage_ratio", explained_from)
    pauses = ("pauses", "pauses_ratio", explained_from)
    # The worst worker of the only rank may be the last stage: then both are the same entity.
    is_stage = len(job.dp_ranks) == 1 and int(by_worker["stage"].iloc[0]) == job.stages[-1]
    # Pauses strike some worker and some stage, which then seem slow: made ideal, these explain a
    # part of what the pauses explain. A slow worker or stage has more than its few longest
    # operations, so of it the pauses are the smaller part. Long documents are not pauses: they
    # take long forward and backward.
    is_pause = (within or 0.0) < correlated_from and (row["pauses_ratio"] or 0.0) > max(
        row[name] or 0.0 for name in masks if name != "pauses_ratio"
    )
    # A loss that takes a share of the step correlates forward and backward, too; micro-batches of
    # unequal length only explain a slowdown that goes when they are made equal.
    is_uneven = (row["micro_batches_ratio"] or 0.0) >= explained_from
    lengths = ("sequence lengths", "within_rank_correlation", correlated_from)
    limits = (
        *([pauses] if is_pause else []),
        *([stage] if is_stage else []),
        ("worker", "worst_workers_ratio", explained_from),
        ("worker", "slow_workers_ratio", explained_from),
        *([lengths] if is_uneven else []),
        stage,
        ("communication", "communication_ratio", explained_from),
        pauses,
    )
    reasons = [
        name
        for name, column, limit in limits
        if isinstance(row[column], float) and row[column] >= limit
    ]
    row["verdict"] = [*reasons, "other"][0] if own / ideal >= straggling_from else "no straggler"
    return JOB_SLOWDOWN.of([row])


def job_slowdown_by(operations: pd.DataFrame, part: Part) -> pd.DataFrame:
    """Measure the slowdown that each part of a job would cause by itself.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    part
        ``"worker"`` (data-parallel rank and stage), ``"stage"``, ``"dp_rank"`` or ``"operation"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_SLOWDOWN_BY`, the worst part first:
        ``dp_rank``, ``stage``, ``operation`` (missing where the part is any of them),
        ``slowdown_ratio`` and, for workers, ``bound_ratio``.

    Raises
    ------
    WorkbenchError
        As :func:`job_slowdown`.
    ValueError
        If ``part`` is none of these.

    Notes
    -----
    All operations take their ideal duration but those of the part, which keep their own;
    the slowdown is that replay over T_ideal (S_w, S_t of the paper). The paper replays
    ranks and stages only and takes S_w = min(S of its rank, S of its stage), which is
    ``bound_ratio``; here every worker is replayed. The two rank workers alike where a few
    are slow, and differently where slowness moves about: then a rank is slow on all its
    stages, and the bound says so of each of them. Beside one rank with own durations all
    others are alike, so one replay of two lanes per rank, itself and any other, serves
    them all.

    References
    ----------
    arXiv:2505.05713.
    """
    if part not in get_args(Part):
        msg = f"part must be one of {get_args(Part)}, not {part!r}"
        raise ValueError(msg)
    job = arranged(operations)
    table = _by(job, part)
    if part == "worker":
        rank, stage = (_by(job, name).set_index(name)["slowdown_ratio"] for name in _BOUNDING)
        bounds = np.minimum(
            rank.loc[table["dp_rank"]].to_numpy(), stage.loc[table["stage"]].to_numpy()
        )
        table["bound_ratio"] = pd.array(bounds, dtype="Float64")
    return JOB_SLOWDOWN_BY.check(table)


def job_steps(operations: pd.DataFrame) -> pd.DataFrame:
    """Measure every step of a job: as recorded, replayed, and with equal operations.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_STEPS`, by step: ``step``, ``actual_ns``,
        ``replay_ns``, ``ideal_ns``, ``slowdown_ratio`` and ``delay_ratio``.

    Raises
    ------
    WorkbenchError
        As :func:`job_slowdown`.

    Notes
    -----
    T and T_ideal of :func:`job_slowdown`, step by step. T_ideal is the same for all, as the
    ideal durations are those of the whole job.
    """
    job = arranged(operations)
    own, ideal, actual = job.replay(job.own), job.replay(job.ideal), job.actual
    return JOB_STEPS.of(
        {
            "step": job.steps,
            "actual_ns": actual,
            "replay_ns": own,
            "ideal_ns": ideal,
            "slowdown_ratio": own / ideal,
            "delay_ratio": 1 - own / actual,
        }
    )


def _by(job: Job, part: Part) -> pd.DataFrame:
    """Replay every part of a job with own durations beside ideal ones, the worst first."""
    rows: list[tuple[int | None, int | None, str | None, float]] = []
    if part == "operation":
        kinds = sorted({key.operation for key in job.keys})
        rows = [(None, None, kind, _mixed(job, _of_kinds(job, {kind}))) for kind in kinds]
    elif part == "stage":
        rows = [(None, stage, None, _mixed(job, _of_stage(job, stage))) for stage in job.stages]
    else:
        for stage in job.stages if part == "worker" else [None]:
            means = zip(job.dp_ranks.tolist(), _rank_by_rank(job, stage).tolist(), strict=True)
            rows += [(rank, stage, None, mean) for rank, mean in means]
    table = pd.DataFrame(rows, columns=["dp_rank", "stage", "operation", "slowdown_ratio"])
    ratio = table["slowdown_ratio"] / job.replay(job.ideal).mean()
    table = table.assign(slowdown_ratio=ratio, bound_ratio=None)
    table = table.sort_values("slowdown_ratio", ascending=False, kind="stable", ignore_index=True)
    return JOB_SLOWDOWN_BY.cast(table)


def _mixed(job: Job, mask: Mask) -> float:
    """Return the mean step with own durations where the mask is set, ideal ones elsewhere."""
    return float(job.replay(np.where(mask, job.own, job.ideal)).mean())


def _rank_by_rank(job: Job, stage: int | None) -> Floats:
    """Return the mean step if one rank (on one stage) kept its own durations, for each rank."""
    mixed = np.where(_of_stage(job, stage), job.own, job.ideal)
    rows, steps, ranks = mixed.shape
    if ranks == 1:
        return np.array([job.replay(mixed).mean()])
    # In blocks, so that memory stays bounded for thousands of ranks.
    size = max(1, _MOST_CELLS // (2 * rows * steps))
    means = []
    for first in range(0, ranks, size):
        block = slice(first, first + size)
        # Two lanes: the rank itself, and any other one, which is ideal.
        lanes = np.stack([mixed[:, :, block], job.ideal[:, :, block]], axis=-1)
        lanes = lanes.reshape(rows, -1, 2)
        means.append(job.replay(lanes).reshape(steps, -1).mean(axis=0))
    return np.concatenate(means)


def _of_stage(job: Job, stage: int | None) -> Mask:
    return np.array([stage in (None, key.stage) for key in job.keys])[:, None, None]


def _of_kinds(job: Job, kinds: frozenset[str] | set[str]) -> Mask:
    return np.array([key.operation in kinds for key in job.keys])[:, None, None]


def _worst_workers(job: Job, by_worker: pd.DataFrame, share: float) -> Mask | None:
    # Rounded up, so that a small job has a worst worker, too.
    count = max(1, int(np.ceil(share * len(by_worker))))
    if count >= len(by_worker):
        # All of the job explains all of it.
        return None
    worst = by_worker.nlargest(count, "slowdown_ratio")
    workers = np.zeros(job.own.shape, dtype=bool)
    for rank, stage in zip(worst["dp_rank"], worst["stage"], strict=True):
        workers |= (job.dp_ranks == int(rank))[None, None, :] & _of_stage(job, int(stage))
    return workers


def _evened(job: Job) -> Floats:
    """Return the durations if every worker's micro-batches all took its mean time."""
    evened = job.own.copy()
    kinds = [(key.stage, key.operation) for key in job.keys]
    for kind in {kind for kind in kinds if kind[1] in COMPUTES}:
        rows = np.array([name == kind for name in kinds])
        evened[rows] = job.own[rows].mean(axis=(0, 1), keepdims=True)
    return evened


def _share_of(gone: float, own: float, ideal: float) -> float | None:
    excess = own - ideal
    return gone / excess if excess >= max(_LEAST_EXCESS * ideal, 1.0) else None


def slow_workers(job: Job, slow_from: float) -> Mask | None:
    """Mark workers that always compute longer than their stage does; None if there are none.

    Fewer than half of a stage: slow beside the median of all ranks.
    """
    mask = np.zeros(job.own.shape, dtype=bool)
    for stage in job.stages:
        is_stage = _of_stage(job, stage)
        usual, error = np.zeros(len(job.dp_ranks)), np.zeros(len(job.dp_ranks))
        for kind in sorted(COMPUTES):
            rows = (is_stage & _of_kinds(job, {kind})).ravel()
            if rows.any():
                middle, deviation = _middle(job.own[rows])
                usual, error = usual + middle, error + deviation
        # The median, since a mean would be moved by the slow workers themselves.
        beyond = usual - np.median(usual)
        # Micro-batches of unequal lengths make some worker the slowest by chance.
        is_slow = (usual >= slow_from * np.median(usual)) & (beyond > _SLOW_ERRORS * error)
        slow = (usual > 0) & is_slow
        mask |= is_stage & slow[None, None, :]
    return mask if mask.any() else None


def _middle(own: Floats) -> tuple[Floats, Floats]:
    """Return the median duration of every rank, and the standard error of it."""
    middle = np.median(own, axis=(0, 1))
    # Of a normal distribution 1.4826 MAD is the deviation, 1.2533 / sqrt(n) of it the error.
    deviation = 1.4826 * np.median(np.abs(own - middle), axis=(0, 1))
    return middle, 1.2533 * deviation / np.sqrt(own.shape[0] * own.shape[1])


def longest(job: Job, share: float) -> Mask:
    """Mark pauses: collections, and the few computations longest beside their kind's median."""
    kinds = [(key.stage, key.operation) for key in job.keys]
    computes = _of_kinds(job, COMPUTES).ravel()
    relative = np.zeros(job.own.shape)
    for kind in {kind for kind in kinds if kind[1] in COMPUTES}:
        rows = np.array([name == kind for name in kinds])
        relative[rows] = job.own[rows] / max(np.median(job.own[rows]), 1.0)
    longest = (relative > np.quantile(relative[computes], 1 - share)) & (relative > 1)
    collected = np.array([key in job.pauses for key in job.keys])
    return np.asarray(longest | collected[:, None, None])


def correlations(job: Job) -> tuple[float | None, float | None]:
    """Correlate forward and backward of micro-batches on the first stage: as is, within ranks."""
    durations = micro_batches_of(job, job.stages[0])
    if durations is None:
        return None, None
    _, *passes = durations
    # Of each rank the median is 1 then, so that a slow rank does not correlate.
    within = [
        times / np.maximum(np.median(times, axis=(0, 1), keepdims=True), 1.0) for times in passes
    ]
    return _correlation(*passes), _correlation(*within)


def _correlation(forward: Floats, backward: Floats) -> float | None:
    if forward.size < 2 or not (np.ptp(forward) and np.ptp(backward)):
        return None
    return float(np.clip(np.corrcoef(forward.ravel(), backward.ravel())[0, 1], -1, 1))


def complete_steps(operations: pd.DataFrame) -> pd.DataFrame:
    """Keep the steps and data-parallel ranks of a job that were recorded whole.

    A replay needs every operation of every worker, exactly once. Recordings are cut off at
    both ends, lose workers and double rows; this drops what is not whole, and counts it.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_OPERATIONS`. ``attrs["left_out"]`` counts what was
        dropped, by reason; it is empty where nothing was.

    Raises
    ------
    WorkbenchError
        If nothing would be left.

    Notes
    -----
    In this order: rows that are the same in every column as another one; rows outside the
    pipeline (no computation, send or receive) of an operation that fewer than half of the
    steps and ranks have; ranks that lack or double operations in more than half of the
    steps, those left aside in which every rank does; steps in which any rank that is left
    lacks or doubles operations, or has computations or transfers that fewer than half have.
    A worker without a garbage collection (``gc``) in a step lacks nothing.

    Without a rank, waiting for it looks like slowness of the collective, and its own
    slowness is gone.
    """
    table = JOB_OPERATIONS.check(operations)
    left_out = dict(operations.attrs.get("left_out", {}))
    # First, or equal rows would count as operations that happened twice.
    doubled = table.duplicated()
    table = table[~doubled]
    count = {"rows that are there twice": int(doubled.sum())}
    if not table.empty:
        cells = grid(table)
        rare = _rare(cells)
        table = table[~rare]
        count["rows of operations that few steps have"] = int(rare.sum())
    if not table.empty:
        bad = _bad(grid(table))
        # A step that is bad for every rank says nothing about one: the recording was cut there.
        cut = bad.all(axis="columns")
        ranks = bad[~cut | bool(cut.all())].mean(axis="index") > 0.5
        steps = bad.loc[:, ~ranks].any(axis="columns")
        count |= _worded(ranks, "data-parallel rank", "that lack operations in most steps")
        count |= _worded(steps, "step", "that lack or double operations")
        if ranks.all() or steps.all():
            why = "; ".join(f"{number:,} {reason}" for reason, number in count.items() if number)
            msg = f"no step of the job is complete: {why}"
            raise WorkbenchError(msg)
        keep = table["dp_rank"].isin(ranks.index[~ranks]) & table["step"].isin(steps.index[~steps])
        table = table[keep]
    table = table.reset_index(drop=True)
    table.attrs["left_out"] = left_out | {reason: n for reason, n in count.items() if n}
    return JOB_OPERATIONS.check(table)


def _rare(cells: Grid) -> Mask:
    """Mark rows of operations outside the pipeline that fewer than half of the steps have."""
    often = (cells.count() > 0).mean(axis=(1, 2)) >= 0.5
    may_go = [key.operation not in COMPUTES | TRANSFERS | {"gc"} for key in cells.keys]
    return np.asarray((np.array(may_go) & ~often)[np.unravel_index(cells.cell, cells.shape)[0]])


def _bad(cells: Grid) -> pd.DataFrame:
    count, wrong = cells.count(), cells.wrong()
    # What few steps have is the exception there, not missing everywhere else.
    often = (count > 0).mean(axis=(1, 2)) >= 0.5
    wrong[~often] = count[~often] > 0
    is_gc = np.array([key.operation == "gc" for key in cells.keys])
    wrong[is_gc] = count[is_gc] > 1
    return pd.DataFrame(np.asarray(wrong.any(axis=0)), index=cells.steps, columns=cells.dp_ranks)


def _worded(bad: pd.Series, noun: str, reason: str) -> dict[str, int]:
    numbers = bad.index[bad].tolist()
    listed = ", ".join(str(number) for number in numbers[:5]) + " ..." * (len(numbers) > 5)
    return {f"of {len(bad):,} {noun}s ({listed}) {reason}": len(numbers)}
