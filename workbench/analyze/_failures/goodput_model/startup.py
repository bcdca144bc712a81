"""Start-up of the communication library as a part of every recovery."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from workbench._shared.numbers import not_negative
from workbench.analyze._failures.goodput_model.at_scale import failure_interval_of, share_or_nan
from workbench.analyze._failures.goodput_model.goodput import (
    Convention,
    FaultTolerance,
    check_convention,
    refuse_minimum,
)
from workbench.tables import STARTUP_GOODPUT, STARTUP_TIME

_PHASE = "NCCL init"


def with_startup(job: FaultTolerance, startup_s: float) -> FaultTolerance:
    """Add the start-up of the communication library to the recovery of a job.

    Parameters
    ----------
    job
        The job; a phase ``"NCCL init"`` of its recovery is replaced. Give a recovery in one
        number without the start-up, else it counts twice.
    startup_s
        Start-up time in seconds, as of :func:`workbench.analyze.startup_time`.

    Returns
    -------
    FaultTolerance
        The same job with the phase ``"NCCL init"`` last.

    Raises
    ------
    WorkbenchError
        If the time is negative or not finite.

    Examples
    --------
    >>> with_startup(FaultTolerance(recovery_min=10), 120).recovery_min
    {'recovery': 10.0, 'NCCL init': 2.0}
    """
    phases = {name: minutes for name, minutes in job.phases.items() if name != _PHASE}
    return replace(job, recovery_min={**phases, _PHASE: not_negative("startup_s", startup_s) / 60})


def startup_goodput(
    startup: pd.DataFrame,
    job: FaultTolerance,
    *,
    failures_per_1000_node_days: float,
    gpus_per_node: int = 8,
    convention: Convention = "poisson",
) -> pd.DataFrame:
    """Carry start-up times into goodput: every failure starts the job again.

    Parameters
    ----------
    startup
        Table :data:`workbench.tables.STARTUP_TIME`; a rank is a GPU.
    job
        How the job answers a failure otherwise; see :func:`with_startup`.
    failures_per_1000_node_days, gpus_per_node
        Failures per 1,000 nodes and day, and GPUs of a node; larger jobs fail more often.
    convention
        How failures are counted; see :func:`workbench.analyze.goodput`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.STARTUP_GOODPUT`, in the order of ``startup``.

    Raises
    ------
    WorkbenchError
        If a number is out of range.
    ValueError
        If the convention is unknown.
    """
    STARTUP_TIME.check(startup, "startup")
    check_convention(convention)
    refuse_minimum(job)
    rows = []
    for row in startup.to_dict("records"):
        interval = failure_interval_of(
            row["rank_count"],
            failures_per_1000_node_days=failures_per_1000_node_days,
            gpus_per_node=gpus_per_node,
        )
        times = [0.0, row["startup_s"], row["high_s"], row["low_s"]]
        free, share, low, high = (
            share_or_nan(with_startup(job, seconds), interval, convention) for seconds in times
        )
        rows.append({
            **row, "gpu_count": row["rank_count"], "failure_interval_min": interval,
            "productive_share": share, "low_share": low, "high_share": high,
            "startup_share": max(free - share, 0.0), "convention": convention,
        })  # fmt: skip
    return STARTUP_GOODPUT.of(rows)
