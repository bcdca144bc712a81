"""What stragglers cost a job: replay it as if equal operations took equal time."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._job_replay import BACKWARD, FORWARD, Job, job
from workbench.tables import JOB_SLOWDOWN, JOB_SLOWDOWN_BY

Part: TypeAlias = Literal["worker", "stage", "dp_rank", "operation"]
Mask: TypeAlias = NDArray[np.bool_]

_VERDICTS = ("no straggler", "worker", "sequence lengths", "last stage", "other")


def job_slowdown(
    operations: pd.DataFrame,
    *,
    worst_share: float = 0.03,
    straggling_from: float = 1.1,
    explained_from: float = 0.5,
    correlated_from: float = 0.9,
) -> pd.DataFrame:
    """Measure how much slower a job is than with equal operations, and say why.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    worst_share
        Share of the workers that count as the worst ones, rounded up.
    straggling_from
        Slowdown from which a job counts as straggling.
    explained_from
        Share of the excess from which workers, or the last stage, explain it.
    correlated_from
        Correlation of forward and backward from which micro-batches differ in length.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_SLOWDOWN`, one row.

    Raises
    ------
    WorkbenchError
        If operations are missing or doubled, or the pipeline cannot be put together.

    Notes
    -----
    Replay: a computation begins when the one before it on its stage is over and its input
    has arrived; a transfer begins when both ends are ready and the one before it of its
    kind is over; a collective begins with its last member. T takes own durations, without
    the waiting for peers and without launch delays; T_ideal takes for every computation
    (and the optimizer) the mean of its kind, for everything else the median. S = T /
    T_ideal, waste = 1 - 1 / S. M_W and M_S = (T - T') / (T - T_ideal), T' with the worst
    workers, or the last stage, made ideal.

    The worst workers are looked at before the correlation: one slow worker makes forward
    and backward long together, as long documents do.

    References
    ----------
    arXiv:2505.05713.
    """
    it = job(operations)
    own, ideal = it.replay(it.own).mean(), it.replay(it.ideal).mean()
    by_worker = job_slowdown_by(operations, "worker")
    count = max(1, int(np.ceil(worst_share * len(by_worker))))
    worst = by_worker.nlargest(count, "slowdown_ratio")
    workers = np.zeros(it.own.shape, dtype=bool)
    for rank, stage in zip(worst["dp_rank"], worst["stage"], strict=True):
        workers |= _of_rank(it, int(rank)) & _of_stage(it, int(stage))
    excess = own - ideal
    shares = [
        _share(own - _without(it, mask), excess) for mask in (workers, _of_stage(it, it.stages[-1]))
    ]
    correlation = _correlation(it)
    row = {
        "step_count": len(it.steps),
        "worker_count": len(by_worker),
        "actual_ns": it.actual.mean(),
        "replay_ns": own,
        "ideal_ns": ideal,
        "slowdown_ratio": own / ideal,
        "waste_ratio": 1 - ideal / own,
        "delay_ratio": 1 - own / it.actual.mean(),
        "worst_workers_ratio": shares[0],
        "last_stage_ratio": shares[1],
        "forward_backward_correlation": correlation,
    }
    reasons = (
        ("no straggler", own / ideal < straggling_from),
        ("worker", _at_least(shares[0], explained_from)),
        ("sequence lengths", _at_least(correlation, correlated_from)),
        ("last stage", _at_least(shares[1], explained_from)),
        ("other", True),
    )
    row["verdict"] = next(name for name, holds in reasons if holds)
    return JOB_SLOWDOWN.check(JOB_SLOWDOWN.cast(pd.DataFrame([row])))


def job_slowdown_by(operations: pd.DataFrame, part: Part) -> pd.DataFrame:
    """Measure the slowdown that each part of a job would cause by itself.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    part
        ``"worker"`` (data-parallel rank and stage), ``"stage"``, ``"dp_rank"`` or
        ``"operation"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_SLOWDOWN_BY`, the worst part first:
        ``dp_rank``, ``stage``, ``operation`` (missing where the part is any of them) and
        ``slowdown_ratio``.

    Raises
    ------
    WorkbenchError
        As :func:`job_slowdown`.
    ValueError
        If ``part`` is none of these.

    Notes
    -----
    All operations take their ideal duration but those of the part, which keep their own;
    the slowdown is that replay over T_ideal (S_w, S_t of the paper).

    References
    ----------
    arXiv:2505.05713.
    """
    if part not in get_args(Part):
        msg = f"part must be one of {get_args(Part)}, not {part!r}"
        raise ValueError(msg)
    it = job(operations)
    names = sorted({key.operation for key in it.keys})
    stages: list[int | None] = list(it.stages) if part in {"worker", "stage"} else [None]
    ranks: list[int | None] = it.dp_ranks.tolist() if part in {"worker", "dp_rank"} else [None]
    kinds: list[str | None] = list(names) if part == "operation" else [None]
    ideal = it.replay(it.ideal).mean()
    rows = []
    for stage in stages:
        for rank in ranks:
            for kind in kinds:
                mask = _of_stage(it, stage) & _of_rank(it, rank) & _of_kind(it, kind)
                kept = it.replay(np.where(mask, it.own, it.ideal)).mean()
                rows.append((rank, stage, kind, kept / ideal))
    table = pd.DataFrame(rows, columns=list(JOB_SLOWDOWN_BY.columns))
    table = table.sort_values("slowdown_ratio", ascending=False, kind="stable", ignore_index=True)
    return JOB_SLOWDOWN_BY.check(JOB_SLOWDOWN_BY.cast(table))


def _without(it: Job, mask: Mask) -> float:
    return float(it.replay(np.where(mask, it.ideal, it.own)).mean())


def _share(part: float, whole: float) -> float | None:
    # Below a nanosecond there is no excess to explain.
    return part / whole if whole >= 1 else None


def _at_least(value: float | None, limit: float) -> bool:
    return value is not None and value >= limit


def _of_stage(it: Job, stage: int | None) -> Mask:
    mine = [stage is None or key.stage == stage for key in it.keys]
    return np.array(mine)[:, None, None]


def _of_rank(it: Job, rank: int | None) -> Mask:
    mine = np.ones(len(it.dp_ranks), dtype=bool) if rank is None else it.dp_ranks == rank
    return np.asarray(mine)[None, None, :]


def _of_kind(it: Job, kind: str | None) -> Mask:
    return np.array([kind is None or key.operation == kind for key in it.keys])[:, None, None]


def _correlation(it: Job) -> float | None:
    """Correlate forward and backward durations of the micro-batches of the first stage."""
    both = {}
    for name in (FORWARD, BACKWARD):
        rows = [
            at
            for at, key in enumerate(it.keys)
            if key.stage == it.stages[0] and key.operation == name
        ]
        both[name] = it.own[rows].ravel()
    forward, backward = both[FORWARD], both[BACKWARD]
    if len(forward) != len(backward) or len(forward) < 2:
        return None
    if not (np.ptp(forward) and np.ptp(backward)):
        return None
    return float(np.corrcoef(forward, backward)[0, 1])
