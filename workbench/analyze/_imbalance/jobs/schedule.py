"""One step of a job at a time: what ran when, as recorded, replayed, and if all were equal."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from workbench.analyze._imbalance.jobs.arranged import job
from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    COMPUTES,
    FORWARD,
    OVER_RANKS,
    RECEIVE,
    SEND,
    Floats,
    Job,
    Operation,
    Times,
)
from workbench.errors import WorkbenchError
from workbench.tables import JOB_DISPERSION, JOB_MICRO_BATCHES, JOB_SCHEDULE


def job_schedule(
    operations: pd.DataFrame, *, step: int | None = None, dp_rank: int | None = None
) -> pd.DataFrame:
    """Lay out one step of one data-parallel rank: recorded, replayed, and with equal operations.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    step
        The step; None for the one that is slowest beside its ideal.
    dp_rank
        The data-parallel rank; None for the one whose last computation of the step ends
        last in the replay, which the others wait for.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_SCHEDULE`, by version, stage and start.
        ``attrs["replay_error_ratio"]`` is the end of the replayed step over that of the
        recorded one, minus 1.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`, or if the step or rank is not there.

    Notes
    -----
    Recorded operations include waiting for peers and launch delays. Replayed ones
    (``actual``) do not: a transfer begins when both ends are ready, so that the gaps
    between operations are the waiting.
    """
    it = job(operations)
    at_step = _chosen(it.steps.tolist(), step, "step")
    if at_step is None:
        at_step = int(np.argmax(it.replay(it.own) / it.replay(it.ideal)))
    mine = slice(at_step, at_step + 1)
    versions: dict[str, Times] = {"actual": {}, "ideal": {}}
    ends = it.replay(it.own[:, mine], versions["actual"])
    it.replay(it.ideal[:, mine], versions["ideal"])
    at_rank = _chosen(it.dp_ranks.tolist(), dp_rank, "dp_rank")
    if at_rank is None:
        at_rank = _last(versions["actual"])
    begin = it.start[:, at_step].min()
    versions["recorded"] = {
        key: (it.start[row, mine] - begin, it.end[row, mine] - begin)
        for row, key in enumerate(it.keys)
    }
    labels = {item.key: item.produces for items in it.computes.values() for item in items}
    rows = [
        (version, *_row(key, labels, begin_end, at_rank))
        for version in ("recorded", "actual", "ideal")
        for key, begin_end in versions[version].items()
    ]
    names = ["version", "stage", "operation", "micro_batch", "chunk", "start_ns", "dur_ns"]
    table = pd.DataFrame(rows, columns=names)
    table = table.assign(step=int(it.steps[at_step]), dp_rank=int(it.dp_ranks[at_rank]))
    table["version"] = pd.Categorical(table["version"], ["recorded", "actual", "ideal"])
    table = table.sort_values(["version", "stage", "start_ns"], kind="stable", ignore_index=True)
    table = JOB_SCHEDULE.cast(table)
    table.attrs["replay_error_ratio"] = float(ends[0] / it.actual[at_step] - 1)
    return JOB_SCHEDULE.check(table)


def job_micro_batches(operations: pd.DataFrame, *, stage: int | None = None) -> pd.DataFrame:
    """Give the durations of the forward and the backward pass of every micro-batch.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    stage
        Pipeline stage; None for the first, which has no loss to compute and waits for no
        earlier one.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_MICRO_BATCHES`, by step, rank and micro-batch:
        ``step``, ``dp_rank``, ``stage``, ``micro_batch``, ``forward_ns`` and
        ``backward_ns``. Empty if there is no micro-batch with both.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`, or if the stage is not there.

    Notes
    -----
    The correlation in :func:`workbench.analyze.job_slowdown` is that of these two columns.
    """
    it = job(operations)
    at = _chosen(it.stages, stage, "stage")
    chosen = it.stages[at or 0]
    both = micro_batches_of(it, chosen)
    if both is None:
        return JOB_MICRO_BATCHES.check(JOB_MICRO_BATCHES.empty())
    batches, forward, backward = both
    number, step, rank = (each.ravel() for each in np.indices(forward.shape))
    table = pd.DataFrame(
        {
            "step": it.steps[step],
            "dp_rank": it.dp_ranks[rank],
            "stage": chosen,
            "micro_batch": np.array(batches)[number],
            "forward_ns": np.rint(forward.ravel()),
            "backward_ns": np.rint(backward.ravel()),
        }
    )
    order = ["step", "dp_rank", "micro_batch"]
    table = table.sort_values(order, kind="stable", ignore_index=True)
    return JOB_MICRO_BATCHES.check(JOB_MICRO_BATCHES.cast(table))


def micro_batches_of(it: Job, stage: int) -> tuple[list[int], Floats, Floats] | None:
    """Return micro-batches of a stage and both durations by micro-batch, step and rank.

    None if no micro-batch has both. The chunks of a stage are added up.
    """
    row = {key: at for at, key in enumerate(it.keys)}
    found: dict[str, dict[int, list[int]]] = {name: defaultdict(list) for name in COMPUTES}
    for item in it.computes.get(stage, []):
        name, _, batch = item.produces
        found[name][batch].append(row[item.key])
    batches = sorted(set(found[FORWARD]) & set(found[BACKWARD]))
    if not batches:
        return None
    forward, backward = (
        np.stack([it.own[found[name][batch]].sum(axis=0) for batch in batches])
        for name in (FORWARD, BACKWARD)
    )
    return batches, forward, backward


def _chosen(values: list[int], wanted: int | None, name: str) -> int | None:
    """Return the position of what is wanted, None if nothing is."""
    if wanted is None:
        return None
    if wanted not in values:
        listed = ", ".join(str(value) for value in values[:12]) + " ..." * (len(values) > 12)
        msg = f"the job has no {name} {wanted!r}; it has {listed}"
        raise WorkbenchError(msg)
    return values.index(wanted)


def _last(times: Times) -> int:
    """Return the position of the rank whose last computation ends last."""
    ends = [end[0] for key, (_, end) in times.items() if key.operation in COMPUTES]
    return int(np.argmax(np.max(ends, axis=0)))


def _row(
    key: Operation,
    labels: dict[Operation, tuple[str, int, int]],
    times: tuple[Floats, Floats],
    rank: int,
) -> tuple[int, str, int | None, int | None, int, int]:
    """Write one operation of one rank as stage, operation, micro-batch, chunk, start, duration."""
    begin, end = (float(each[0, rank]) for each in times)
    _, chunk, batch = labels.get(key, (None, None, None))
    return key.stage, key.operation, batch, chunk, round(begin), round(end - begin)


# What usual measures of imbalance say of a job, beside what stragglers really cost it.

# Measure: what it does not see.
_HIDES = {
    "what-if waste": "what all equal operations share, such as a network slow for everybody",
    "compute of a worker, mean step": "what strikes another worker each time, as long documents do",
    "compute of a worker, each step": "how slow micro-batches of one step add up in the pipeline",
    "compute of a stage": "everything but the split of the layers",
    "compute of a data-parallel rank, each step": "stages: the long ones hide what the short do",
    "forward of a micro-batch": "whether it is on the critical path",
    "forward of a micro-batch, CV": "whether it is on the critical path, and the extremes",
    "waiting in data-parallel collectives": "waiting inside the pipeline, which comes before",
    "time in pipeline receives": "whether it is waiting, filling and draining or the network",
    "time in pipeline sends": "whether it is waiting or the network; sends may not block",
    "computing": "nothing, but it does not tell why the rest is lost",
    "score beside the best rank": "what is random: medians are alike however often it strikes",
    "score beside the own best step": "what is slow from the first step to the last",
}
_FORMULAS = {
    "what-if waste": "S = T / T_ideal; lost 1 - 1 / S",
    "compute of a worker, mean step": "max / mean over workers of the mean over steps",
    "compute of a worker, each step": "mean over steps of max / mean over workers",
    "compute of a stage": "max / mean over stages of the mean over steps and ranks",
    "compute of a data-parallel rank, each step": "mean over steps of max / mean over ranks",
    "forward of a micro-batch": "mean over steps and stages of max / mean",
    "forward of a micro-batch, CV": "mean over steps and stages of sample deviation / mean",
    "waiting in data-parallel collectives": "until the last rank comes / (workers x step)",
    "time in pipeline receives": "durations, waiting included / (workers x step)",
    "time in pipeline sends": "durations, waiting included / (workers x step)",
    "computing": "forward and backward / (workers x step); the rest is lost",
    "score beside the best rank": "worst worker: best median of its stage / its own",
    "score beside the own best step": "worst worker: mean over steps of best step / step",
}


def job_dispersion(operations: pd.DataFrame) -> pd.DataFrame:
    """Put usual measures of imbalance beside what stragglers cost the job.

    Each measure hides some causes: means over steps hide what is random, waiting in one
    kind of operation hides that the wait has moved to another one. Read them together.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_DISPERSION`, always the same measures in the same
        order: ``measure``, ``value_ratio``, ``lost_share``, ``formula`` and ``hides``.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`.

    Notes
    -----
    Compute is the sum of forward and backward passes of a worker in a step. A measure
    max / mean would call 1 - mean / max lost: what all save if the longest were as the
    mean. Shares of time are of the recorded step, over all workers; what the recording
    lacks is missing, not 0. Scores compare medians of forward and of backward passes,
    weighted by their time, with those of the best rank of the same stage, or of the
    worker's own best step; 1 is best, and the usual limit is 0.75.

    References
    ----------
    arXiv:2505.05713 (what-if); scores as in NVIDIA/nvidia-resiliency-ext, straggler
    detection, for computations of one stage instead of kernels of one name.
    """
    it = job(operations)
    waits = {name: _share_of_step(it, kinds, its) for name, kinds, its in _shares(it)}
    values = {
        "what-if waste": float(it.replay(it.own).mean() / it.replay(it.ideal).mean()),
        **_spreads(it),
        **waits,
        **_scores(it),
    }
    table = pd.DataFrame(
        {
            "measure": list(_FORMULAS),
            "value_ratio": [values[name] for name in _FORMULAS],
            "lost_share": [_lost(name, values[name]) for name in _FORMULAS],
            "formula": list(_FORMULAS.values()),
            "hides": [_HIDES[name] for name in _FORMULAS],
        }
    )
    return JOB_DISPERSION.check(JOB_DISPERSION.cast(table))


def _spreads(it: Job) -> dict[str, float | None]:
    """Compare the largest with the mean: workers, stages, ranks, micro-batches."""
    compute = np.stack([_of(it, stage, COMPUTES).sum(axis=0) for stage in it.stages])
    steps = compute.shape[1]
    each = compute.transpose(1, 0, 2).reshape(steps, -1)
    forward = [_of(it, stage, {FORWARD}) for stage in it.stages]
    batches = [one.transpose(1, 0, 2).reshape(steps, -1) for one in forward if one.size]
    return {
        "compute of a worker, mean step": _max_by_mean(each.mean(axis=0)[None, :]),
        "compute of a worker, each step": _max_by_mean(each),
        "compute of a stage": _max_by_mean(compute.mean(axis=(1, 2))[None, :]),
        "compute of a data-parallel rank, each step": _max_by_mean(compute.mean(axis=0)),
        "forward of a micro-batch": _mean([_max_by_mean(one) for one in batches]),
        "forward of a micro-batch, CV": _mean(
            [_variation(one) for one in batches if one.shape[1] > 1]
        ),
    }


def _shares(it: Job) -> list[tuple[str, frozenset[str], Floats]]:
    """List which operations, with which part of their time, make which share."""
    whole = it.end - it.start
    return [
        ("waiting in data-parallel collectives", OVER_RANKS, whole - it.own),
        ("time in pipeline receives", frozenset(RECEIVE.values()), whole),
        ("time in pipeline sends", frozenset(SEND.values()), whole),
        ("computing", COMPUTES, whole),
    ]


def _share_of_step(it: Job, kinds: frozenset[str], times: Floats) -> float | None:
    rows = [at for at, key in enumerate(it.keys) if key.operation in kinds]
    workers = len(it.stages) * len(it.dp_ranks)
    # A step's recorded span may be shorter than what overlapping operations add up to.
    share = times[rows].sum() / (workers * it.actual.sum())
    return min(float(share), 1.0) if rows else None


def _scores(it: Job) -> dict[str, float | None]:
    """Score the worst worker beside the best rank of its stage, and beside its own best step."""
    beside_best, beside_own = [], []
    for stage in it.stages:
        medians = [
            np.median(mine, axis=0)
            for kind in sorted(COMPUTES)
            if (mine := _of(it, stage, {kind})).size
        ]
        weights = [
            mine.sum(axis=0) for kind in sorted(COMPUTES) if (mine := _of(it, stage, {kind})).size
        ]
        usual = [np.median(each, axis=0) for each in medians]
        beside_best.append(
            _weighted(
                [one.min() / _positive(one) for one in usual], [w.sum(axis=0) for w in weights]
            )
        )
        best = [one.min(axis=0) / _positive(one) for one in medians]
        beside_own.append(_weighted(best, weights).mean(axis=0))
    return {
        "score beside the best rank": float(np.min(beside_best)),
        "score beside the own best step": float(np.min(beside_own)),
    }


def _weighted(scores: list[Floats], weights: list[Floats]) -> Floats:
    total = _positive(np.sum(weights, axis=0))
    return np.asarray(np.sum([s * w for s, w in zip(scores, weights, strict=True)], axis=0) / total)


def _of(it: Job, stage: int, kinds: frozenset[str] | set[str]) -> Floats:
    """Return the durations of some kinds on a stage: computations, steps, ranks."""
    rows = [at for at, key in enumerate(it.keys) if key.stage == stage and key.operation in kinds]
    return it.own[rows]


def _max_by_mean(values: Floats) -> float:
    return float((values.max(axis=1) / _positive(values.mean(axis=1))).mean())


def _variation(values: Floats) -> float:
    return float((values.std(axis=1, ddof=1) / _positive(values.mean(axis=1))).mean())


def _positive(values: Floats) -> Floats:
    return np.maximum(values, 1e-9)


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _lost(name: str, value: float | None) -> float | None:
    """Turn a measure into the share of GPU time that it calls lost."""
    if value is None or name.endswith("CV"):
        return None
    if name.startswith(("waiting", "time")):
        return value
    if name.startswith(("computing", "score")):
        return 1 - value
    return max(1 - 1 / value, 0.0) if value else None
