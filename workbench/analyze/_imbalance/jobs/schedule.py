"""One step of a job at a time: as recorded, as replayed, and if all operations were equal."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats
from workbench.analyze._imbalance.jobs.arranged import arranged
from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    COMPUTES,
    FORWARD,
    OVER_RANKS,
    RECEIVE,
    SEND,
    Job,
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
    job = arranged(operations)
    at_step = _position(job.steps.tolist(), step, "step")
    if at_step is None:
        # The step that loses most, which need not be the longest.
        at_step = int(np.argmax(job.replay(job.own) / job.replay(job.ideal)))
    chosen = slice(at_step, at_step + 1)
    begin = job.start[:, at_step].min()
    recorded = {
        key: (job.start[row, chosen] - begin, job.end[row, chosen] - begin)
        for row, key in enumerate(job.keys)
    }
    versions: dict[str, Times] = {"recorded": recorded, "actual": {}, "ideal": {}}
    ends = job.replay(job.own[:, chosen], versions["actual"])
    job.replay(job.ideal[:, chosen], versions["ideal"])
    at_rank = _position(job.dp_ranks.tolist(), dp_rank, "dp_rank")
    if at_rank is None:
        computed = [e[0] for key, (_, e) in versions["actual"].items() if key.operation in COMPUTES]
        at_rank = int(np.argmax(np.max(computed, axis=0)))
    labels = {item.key: item.produces for item in job.items}
    rows: list[tuple[object, ...]] = []
    for version, times in versions.items():
        for key, (starts, stops) in times.items():
            start, stop = float(starts[0, at_rank]), float(stops[0, at_rank])
            _, chunk, batch = labels.get(key, (None, None, None))
            span = (round(start), round(stop - start))
            rows.append((version, key.stage, key.operation, batch, chunk, *span))
    names = ["version", "stage", "operation", "micro_batch", "chunk", "start_ns", "dur_ns"]
    table = pd.DataFrame(rows, columns=names)
    table = table.assign(step=int(job.steps[at_step]), dp_rank=int(job.dp_ranks[at_rank]))
    table["version"] = pd.Categorical(table["version"], list(versions))
    table = table.sort_values(["version", "stage", "start_ns"], kind="stable", ignore_index=True)
    return JOB_SCHEDULE.of(table, {"replay_error_ratio": float(ends[0] / job.actual[at_step] - 1)})


def job_micro_batches(operations: pd.DataFrame, *, stage: int | None = None) -> pd.DataFrame:
    """Return the durations of the forward and the backward pass of every micro-batch.

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
    job = arranged(operations)
    chosen = job.stages[_position(job.stages, stage, "stage") or 0]
    durations = micro_batches_of(job, chosen)
    if durations is None:
        return JOB_MICRO_BATCHES.empty()
    batches, forward, backward = durations
    number, step, rank = (index.ravel() for index in np.indices(forward.shape))
    table = pd.DataFrame(
        {
            "step": job.steps[step],
            "dp_rank": job.dp_ranks[rank],
            "stage": chosen,
            "micro_batch": np.array(batches)[number],
            "forward_ns": np.rint(forward.ravel()),
            "backward_ns": np.rint(backward.ravel()),
        }
    ).sort_values(["step", "dp_rank", "micro_batch"], kind="stable", ignore_index=True)
    return JOB_MICRO_BATCHES.of(table)


def micro_batches_of(job: Job, stage: int) -> tuple[list[int], Floats, Floats] | None:
    """Return micro-batches of a stage and both durations by micro-batch, step and rank.

    None if no micro-batch has both. The chunks of a stage are added up.
    """
    row = {key: at for at, key in enumerate(job.keys)}
    rows: dict[str, dict[int, list[int]]] = {name: defaultdict(list) for name in COMPUTES}
    for item in job.computes.get(stage, []):
        name, _, batch = item.produces
        rows[name][batch].append(row[item.key])
    batches = sorted(set(rows[FORWARD]) & set(rows[BACKWARD]))
    if not batches:
        return None
    forward, backward = (
        np.stack([job.own[rows[name][batch]].sum(axis=0) for batch in batches])
        for name in (FORWARD, BACKWARD)
    )
    return batches, forward, backward


def _position(values: list[int], wanted: int | None, name: str) -> int | None:
    if wanted is None:
        return None
    if wanted not in values:
        listed = ", ".join(str(value) for value in values[:12]) + " ..." * (len(values) > 12)
        msg = f"the job has no {name} {wanted!r}; it has {listed}"
        raise WorkbenchError(msg)
    return values.index(wanted)


# Measure: what it does not see.
_HIDES = {
    "what-if waste": "causes common to all equal operations, such as a slow network",
    "compute of a worker, mean step": "causes that change workers, such as long documents",
    "compute of a worker, each step": "how slow micro-batches of one step add up in the pipeline",
    "compute of a stage": "everything but the split of the layers",
    "compute of a data-parallel rank, each step": "stages: long ones hide short ones",
    "forward of a micro-batch": "whether it is on the critical path",
    "forward of a micro-batch, CV": "whether it is on the critical path, and the extremes",
    "waiting in data-parallel collectives": "waiting inside the pipeline, which comes before",
    "time in pipeline receives": "whether it is waiting, filling and draining or the network",
    "time in pipeline sends": "whether it is waiting or the network; sends may not block",
    "computing": "nothing, but not why the rest is lost",
    "score relative to the best rank": "random causes: medians are equal however often they strike",
    "score relative to its own best step": "slowness that lasts from the first step to the last",
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
    "score relative to the best rank": "worst worker: best median of its stage / its own",
    "score relative to its own best step": "worst worker: mean over steps of best step / step",
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
    job = arranged(operations)
    waste = float(job.replay(job.own).mean() / job.replay(job.ideal).mean())
    values = {"what-if waste": waste, **_spreads(job), **_shares(job), **_scores(job)}
    return JOB_DISPERSION.of(
        {
            "measure": list(_FORMULAS),
            "value_ratio": [values[name] for name in _FORMULAS],
            "lost_share": [_lost(name, values[name]) for name in _FORMULAS],
            "formula": list(_FORMULAS.values()),
            "hides": [_HIDES[name] for name in _FORMULAS],
        }
    )


def _spreads(job: Job) -> dict[str, float | None]:
    """Compare the largest with the mean: workers, stages, ranks, micro-batches."""
    compute = np.stack([_of(job, stage, COMPUTES).sum(axis=0) for stage in job.stages])
    steps = compute.shape[1]
    workers = compute.transpose(1, 0, 2).reshape(steps, -1)
    forward = [_of(job, stage, {FORWARD}) for stage in job.stages]
    batches = [times.transpose(1, 0, 2).reshape(steps, -1) for times in forward if times.size]
    ratios = [_max_by_mean(times) for times in batches]
    variations = [
        # The sample deviation, since a step has few micro-batches.
        float((times.std(axis=1, ddof=1) / _positive(times.mean(axis=1))).mean())
        for times in batches
        if times.shape[1] > 1
    ]
    return {
        "compute of a worker, mean step": _max_by_mean(workers.mean(axis=0)[None, :]),
        "compute of a worker, each step": _max_by_mean(workers),
        "compute of a stage": _max_by_mean(compute.mean(axis=(1, 2))[None, :]),
        "compute of a data-parallel rank, each step": _max_by_mean(compute.mean(axis=0)),
        "forward of a micro-batch": float(np.mean(ratios)) if ratios else None,
        "forward of a micro-batch, CV": float(np.mean(variations)) if variations else None,
    }


def _shares(job: Job) -> dict[str, float | None]:
    """Return the share of the step, over all workers, that some operations take."""
    recorded = job.end - job.start
    worker_ns = len(job.stages) * len(job.dp_ranks) * job.actual.sum()
    shares: dict[str, float | None] = {}
    for name, kinds, times in (
        ("waiting in data-parallel collectives", OVER_RANKS, recorded - job.own),
        ("time in pipeline receives", RECEIVE.values(), recorded),
        ("time in pipeline sends", SEND.values(), recorded),
        ("computing", COMPUTES, recorded),
    ):
        rows = [row for row, key in enumerate(job.keys) if key.operation in kinds]
        # A step's recorded span may be shorter than what overlapping operations add up to.
        shares[name] = min(float(times[rows].sum() / worker_ns), 1.0) if rows else None
    return shares


def _scores(job: Job) -> dict[str, float | None]:
    """Score the worst worker beside the best rank of its stage, and beside its own best step."""
    beside_best, beside_own = [], []
    for stage in job.stages:
        durations = [_of(job, stage, {kind}) for kind in sorted(COMPUTES)]
        durations = [times for times in durations if times.size]
        medians = [np.median(times, axis=0) for times in durations]
        weights = [times.sum(axis=0) for times in durations]
        usual = [np.median(times, axis=0) for times in medians]
        ranks = [times.min() / _positive(times) for times in usual]
        beside_best.append(_weighted(ranks, [weight.sum(axis=0) for weight in weights]))
        steps = [times.min(axis=0) / _positive(times) for times in medians]
        beside_own.append(_weighted(steps, weights).mean(axis=0))
    return {
        "score relative to the best rank": float(np.min(beside_best)),
        "score relative to its own best step": float(np.min(beside_own)),
    }


def _weighted(scores: list[Floats], weights: list[Floats]) -> Floats:
    total = _positive(np.sum(weights, axis=0))
    return np.asarray(np.sum([s * w for s, w in zip(scores, weights, strict=True)], axis=0) / total)


def _of(job: Job, stage: int, kinds: frozenset[str] | set[str]) -> Floats:
    """Return the durations of some kinds on a stage: computations, steps, ranks."""
    rows = [at for at, key in enumerate(job.keys) if key.stage == stage and key.operation in kinds]
    return job.own[rows]


def _max_by_mean(values: Floats) -> float:
    return float((values.max(axis=1) / _positive(values.mean(axis=1))).mean())


def _positive(values: Floats) -> Floats:
    # Far below any duration in ns, so that only 0 / 0 changes.
    return np.maximum(values, 1e-9)


def _lost(name: str, value: float | None) -> float | None:
    if value is None or name.endswith("CV"):
        return None
    if name.startswith(("waiting", "time")):
        return value
    if name.startswith(("computing", "score")):
        return 1 - value
    return max(1 - 1 / value, 0.0) if value else None
