"""What usual measures of imbalance say of a job, beside what stragglers really cost it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._imbalance.jobs.arranged import job
from workbench.analyze._imbalance.jobs.replay import (
    COMPUTES,
    FORWARD,
    OVER_RANKS,
    RECEIVE,
    SEND,
    Floats,
    Job,
)
from workbench.tables import JOB_DISPERSION

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
