"""Goodput against the size of the job: more GPUs fail more often, and take longer to restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from workbench._numbers import is_finite, positive
from workbench.analyze._failures.goodput_model.changes import share_or_nan
from workbench.analyze._failures.goodput_model.fault_tolerance import FaultTolerance
from workbench.analyze._failures.goodput_model.goodput import (
    Convention,
    check_convention,
    refuse_minimum,
)
from workbench.errors import WorkbenchError
from workbench.tables import GOODPUT_AT_SCALE

_DAY_MIN = 1440.0


def failure_interval_of(
    gpu_count: float, *, failures_per_1000_node_days: float, gpus_per_node: int = 8
) -> float:
    """Give the mean time between failures of a job from the rate of its nodes.

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
        phases = {name: each * slower for name, each in job.phases.items()}
        replicas = job.replicas
        if gpus_per_replica is not None:
            replicas = max(int(count // gpus_per_replica), 1)
        at = interval / _power(ratio, rate_exponent, "rate")
        here = replace(job, recovery_min=phases, replicas=replicas)
        shares = [share_or_nan(each, at, convention) for each in (here.synchronous(), here)]
        rows.append((int(count), replicas, at, here.recovery_total_min, *shares, convention))
    table = pd.DataFrame(rows, columns=list(GOODPUT_AT_SCALE.columns))
    return GOODPUT_AT_SCALE.check(GOODPUT_AT_SCALE.cast(table))


def _power(ratio: float, exponent: float, name: str) -> float:
    """Give a power that is neither 0 nor too large for a number."""
    power = np.exp(min(exponent * np.log(ratio), 700.0))
    if not 1e-100 < power < 1e100:
        msg = f"{name}_exponent={exponent:g} takes {ratio:g} times the size out of all bounds"
        raise WorkbenchError(msg)
    return float(power)
