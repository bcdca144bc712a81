"""Goodput against the size of the job: more GPUs fail more often, and take longer to restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from workbench._shared.numbers import is_finite, positive
from workbench.analyze._failures.goodput_model.goodput import (
    Convention,
    FaultTolerance,
    check_convention,
    has_answer,
    productive_share,
    refuse_minimum,
)
from workbench.errors import WorkbenchError
from workbench.tables import GOODPUT_AT_SCALE, GOODPUT_LADDER

_DAY_MIN = 1440.0


def failure_interval_of(
    gpu_count: float, *, failures_per_1000_node_days: float, gpus_per_node: int = 8
) -> float:
    """Return the mean time between failures of a job from the rate of its nodes.

    Parameters
    ----------
    gpu_count
        GPUs of the job.
    failures_per_1000_node_days
        Failures per 1,000 nodes and day.
    gpus_per_node
        GPUs of a node.

    Returns
    -------
    float
        Minutes: ``1,440,000 / (nodes x rate)``.

    Raises
    ------
    WorkbenchError
        If a number is not above 0.

    Examples
    --------
    >>> round(failure_interval_of(98_304, failures_per_1000_node_days=6.5), 2)
    18.03
    """
    nodes = positive("gpu_count", gpu_count) / positive("gpus_per_node", gpus_per_node)
    rate = positive("failures_per_1000_node_days", failures_per_1000_node_days)
    return _DAY_MIN * 1000 / (nodes * rate)


def goodput_at_scale(  # noqa: PLR0913 - every number of an extrapolation, by name
    gpu_counts: Sequence[int] | ArrayLike,
    job: FaultTolerance,
    *,
    reference_gpus: int,
    failure_interval_min: float,
    convention: Convention = "poisson",
    rate_exponent: float = 1.0,
    recovery_exponent: float = 0.0,
    gpus_per_replica: int | None = None,
) -> pd.DataFrame:
    """Take a job to other sizes, with and without fault tolerance.

    Parameters
    ----------
    gpu_counts
        Sizes of the job, in GPUs.
    job
        How the job answers a failure at ``reference_gpus``.
    reference_gpus
        Size at which ``failure_interval_min`` and ``job`` hold.
    failure_interval_min
        Mean time between failures at that size, in minutes.
    convention
        How failures are counted; see :func:`goodput`.
    rate_exponent
        Failures of the job grow as size to this power; 1 if nodes fail independently.
    recovery_exponent
        Recovery grows as size to this power.
    gpus_per_replica
        Size of a replica; a larger job then has more of them. None keeps their number.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_AT_SCALE`.

    Raises
    ------
    WorkbenchError
        If a number is out of range.
    ValueError
        If the convention is unknown.

    Notes
    -----
    ``M(N) = M0 (N0/N)^a`` and ``D(N) = D0 (N/N0)^b``; the stall keeps its length.

    Examples
    --------
    >>> table = goodput_at_scale(
    ...     [16_384, 98_304], FaultTolerance(), reference_gpus=98_304, failure_interval_min=18,
    ...     convention="interval",
    ... )
    >>> table["replica_share"].round(3).tolist()
    [0.967, 0.801]
    """
    counts = np.atleast_1d(np.asarray(gpu_counts, dtype=np.float64))
    if not len(counts) or not (np.isfinite(counts) & (counts >= 1)).all():
        msg = f"gpu_counts must be numbers from 1, not {np.asarray(gpu_counts).tolist()}"
        raise WorkbenchError(msg)
    check_convention(convention)
    refuse_minimum(job)
    reference = positive("reference_gpus", reference_gpus)
    interval = positive("failure_interval_min", failure_interval_min)
    for name, value in (("rate", rate_exponent), ("recovery", recovery_exponent)):
        if not is_finite(value):
            msg = f"{name}_exponent must be a finite number, not {value!r}"
            raise WorkbenchError(msg)
    if gpus_per_replica is not None:
        positive("gpus_per_replica", gpus_per_replica)
    rows = []
    for count in counts.tolist():
        ratio = count / reference
        slower = _power(ratio, recovery_exponent, "recovery")
        phases = {name: minutes * slower for name, minutes in job.phases.items()}
        replicas = job.replicas
        if gpus_per_replica is not None:
            # A job smaller than one replica still is one.
            replicas = max(int(count // gpus_per_replica), 1)
        at = interval / _power(ratio, rate_exponent, "rate")
        scaled = replace(job, recovery_min=phases, replicas=replicas)
        shares = [share_or_nan(case, at, convention) for case in (scaled.synchronous(), scaled)]
        rows.append((int(count), replicas, at, scaled.recovery_total_min, *shares, convention))
    return GOODPUT_AT_SCALE.of(rows)


def _power(ratio: float, exponent: float, name: str) -> float:
    # exp() of more than 709 overflows a double.
    power = np.exp(min(exponent * np.log(ratio), 700.0))
    # Far inside the range of a double, so that products with minutes and rates stay there, too.
    if not 1e-100 < power < 1e100:
        msg = f"{name}_exponent={exponent:g} takes {ratio:g} times the size out of all bounds"
        raise WorkbenchError(msg)
    return float(power)


def goodput_ladder(
    job: FaultTolerance,
    *,
    failure_interval_min: float,
    convention: Convention,
    printed: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Go from the synchronous job to the fault-tolerant one, one change at a time.

    Parameters
    ----------
    job
        The fault-tolerant job.
    failure_interval_min
        Mean time between failures of the whole job, in minutes.
    convention
        How failures are counted; ``"interval"`` or ``"poisson"``.
    printed
        Published shares to show beside a change, by its name: ``"full restart"``, ``"only
        the failed replica restarts"``, ``"global stall"``, ``"and again at re-join"``,
        ``"checkpoints are written"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_LADDER`: ``change``, ``convention``,
        ``productive_share``, ``gain_ratio``, ``printed_share``.

    Raises
    ------
    ValueError
        If the convention is unknown.
    WorkbenchError
        If a case has no answer (see :func:`goodput`), or a printed share belongs to no change.

    Examples
    --------
    >>> ladder = goodput_ladder(FaultTolerance(), failure_interval_min=18, convention="interval")
    >>> ladder["productive_share"].round(3).tolist()
    [0.444, 0.954, 0.801]
    """
    check_convention(convention)
    plain = {"checkpoint_interval_min": None, "checkpoint_write_min": 0.0}
    # Each case differs from the one before by one change, so that the difference is its gain.
    rungs = {
        "full restart": replace(job.synchronous(), stall_min=0.0, **plain),  # type: ignore[arg-type]
        "only the failed replica restarts": replace(job, stall_min=0.0, rejoin_min=0.0, **plain),  # type: ignore[arg-type]
        "global stall": replace(job, rejoin_min=0.0, **plain),  # type: ignore[arg-type]
    }
    if job.rejoin_min:
        rungs["and again at re-join"] = replace(job, **plain)  # type: ignore[arg-type]
    if job.checkpoint_interval_min is not None:
        rungs["checkpoints are written"] = job
    if unknown := [name for name in printed or {} if name not in rungs]:
        msg = f"printed names {unknown}; the changes are {list(rungs)}"
        raise WorkbenchError(msg)
    shares = [
        productive_share(case, failure_interval_min=failure_interval_min, convention=convention)
        for case in rungs.values()
    ]
    table = pd.DataFrame({"change": list(rungs), "convention": convention})
    table["productive_share"] = shares
    table["gain_ratio"] = np.diff(shares, prepend=shares[0])
    table["printed_share"] = [(printed or {}).get(name, np.nan) for name in rungs]
    return GOODPUT_LADDER.of(table)


def share_or_nan(job: FaultTolerance, interval: float, convention: Convention) -> float:
    """Return the productive share, or NaN where the convention has no answer."""
    positive("failure_interval_min", interval)
    if not has_answer(job, interval, convention):
        return float("nan")
    return productive_share(job, failure_interval_min=interval, convention=convention)
