"""Goodput under failures: which share of the GPU time trains the model, and where the rest goes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from workbench._numbers import positive
from workbench.analyze._fault_tolerance import FaultTolerance
from workbench.errors import WorkbenchError
from workbench.tables import GOODPUT

Convention: TypeAlias = Literal["interval", "poisson", "renewal"]
PRODUCTIVE, DEGRADED = "productive", "degraded capacity"
LOST, WRITING, REJOIN = "lost work", "checkpoint", "re-join stall"
STRAGGLER = "straggler"
NOBODY, EVERYBODY, HIT = "nobody", "all GPUs", "hit replica"
# Shares of one case: state, scope, share of GPU time.
Shares: TypeAlias = list[tuple[str, str, float]]


def goodput(
    job: FaultTolerance, *, failure_interval_min: float, convention: Convention
) -> pd.DataFrame:
    """Divide the GPU time of a job that fails now and then, by closed form.

    The same inputs give 44, 57 or 64 % under three ways of counting; each is right for its
    assumption, so the assumption is never left out:

    ``"interval"`` one failure every ``failure_interval_min`` of wall time, losses never
    overlap; ``"poisson"`` failures keep arriving during recovery, and a new one restarts it;
    ``"renewal"`` nothing can fail while the job is down (synchronous jobs only).

    Parameters
    ----------
    job
        How the job answers a failure.
    failure_interval_min
        Mean time between failures of the whole job, in minutes.
    convention
        How failures are counted, as above. For a log, or whatever has no closed form, see
        :func:`goodput_replay`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT`: ``state``, ``scope``, ``gpu_time_share``,
        ``low_share`` and ``high_share`` (missing: it is exact), ``convention``.

    Raises
    ------
    ValueError
        If the convention is none of the three.
    WorkbenchError
        If a number is out of range, one failure costs more than there is between two
        (``interval``), or there is no closed form (``renewal`` with replicas, or a minimum
        of live replicas).

    Notes
    -----
    With mean time between failures *M*, recovery *D*, stall *S*, re-join stall *J* and *R*
    replicas, a failure costs ``L = D/R + S (1 - 1/R) + J`` cluster-minutes; productive are
    ``1 - L/M``, ``exp(-L/M)`` and, for R = 1, ``M/(M + D)``. The second is exact: a replica
    works at *t* if nothing failed in [t - S, t] and it did not fail itself in [t - D, t]. A
    phase that lasts from age *a* to *b* after a failure takes ``exp(-a/M) - exp(-b/M)``.
    Checkpoints every *tau* that take *w* leave, of a synchronous Poisson job,
    ``tau / (M exp(D/M) (exp((tau + w)/M) - 1))``; with replicas a failure loses no
    checkpointed work, and ``tau/(tau + w)`` of the productive time remains.

    References
    ----------
    FT-HSDP, arXiv:2602.00277 (44 % and 80 % at a failure every 18 min); J. T. Daly, FGCS 22
    (2006) 303, for checkpoints.

    Examples
    --------
    >>> shares = goodput(FaultTolerance(), failure_interval_min=18, convention="interval")
    >>> print(shares.set_index("state")["gpu_time_share"].round(4).to_dict())
    {'productive': 0.8009, 'global stall': 0.1667, 'degraded capacity': 0.0324}
    """
    return as_goodput(shares_of(job, failure_interval_min, convention), convention)


def productive_share(
    job: FaultTolerance, *, failure_interval_min: float, convention: Convention
) -> float:
    """Give the productive share alone, as :func:`goodput` has it.

    Parameters
    ----------
    job
        How the job answers a failure.
    failure_interval_min
        Mean time between failures of the whole job, in minutes.
    convention
        How failures are counted.

    Returns
    -------
    float
        Share of the GPU time.

    Raises
    ------
    ValueError
        As :func:`goodput`.
    WorkbenchError
        As :func:`goodput`.

    Examples
    --------
    >>> alone = FaultTolerance(replicas=1)
    >>> round(productive_share(alone, failure_interval_min=18, convention="renewal"), 4)
    0.6429
    """
    (_, _, share), *_ = shares_of(job, failure_interval_min, convention)
    return min(max(share, 0.0), 1.0)


def shares_of(job: FaultTolerance, failure_interval_min: float, convention: Convention) -> Shares:
    """Give the states of a case without making a table of them; what is productive comes first."""
    check_convention(convention)
    interval = positive("failure_interval_min", failure_interval_min)
    refuse_minimum(job)
    shares = _synchronous if job.replicas == 1 else _replicated
    return shares(job, interval, convention)


def check_convention(convention: str) -> None:
    """Raise if failures cannot be counted this way by closed form."""
    if convention not in get_args(Convention):
        msg = (
            f"convention must be one of {get_args(Convention)}, not {convention!r}; a log is "
            "replayed by goodput_replay"
        )
        raise ValueError(msg)


def refuse_minimum(job: FaultTolerance) -> None:
    """Raise if replicas restart together when too few are alive."""
    if job.min_replicas > 1:
        msg = (
            f"min_replicas={job.min_replicas} has no closed form; simulate failures and "
            "use goodput_replay"
        )
        raise WorkbenchError(msg)


def as_goodput(shares: Shares, convention: str) -> pd.DataFrame:
    """Make the table of exact shares; states that take no time are left out."""
    kept = [row for row in shares if row[2] > 0 or row[0] == PRODUCTIVE]
    table = pd.DataFrame(kept, columns=["state", "scope", "gpu_time_share"])
    # A stall may be called like another state, e.g. lost work.
    table = (
        table.groupby(["state", "scope"], sort=False, as_index=False)
        .sum()
        .assign(low_share=np.nan, high_share=np.nan, convention=convention)
    )
    # Differences of exponentials may miss 0 and 1 by a rounding error.
    table["gpu_time_share"] = table["gpu_time_share"].astype("float64").clip(0, 1)
    return GOODPUT.check(GOODPUT.cast(table))


def _synchronous(job: FaultTolerance, interval: float, convention: Convention) -> Shares:
    down = job.recovery_total_min
    if convention == "interval":
        _refuse_overlap(down, interval)
        up, per_phase = 1 - down / interval, 1 / interval
        phases = [(name, minutes * per_phase) for name, minutes in job.phases.items()]
    elif convention == "renewal":
        up, per_phase = interval / (interval + down), 1 / (interval + down)
        phases = [(name, minutes * per_phase) for name, minutes in job.phases.items()]
    else:
        up = math.exp(-down / interval)
        phases = list(_by_age(job.phases, interval))
    shares: Shares = [(name, EVERYBODY, share) for name, share in phases]
    if job.checkpoint_interval_min is None:
        return [(PRODUCTIVE, NOBODY, up), *shares]
    kept, written = _checkpointed(job, interval, convention)
    lost = up * (1 - kept - written)
    saved: Shares = [(LOST, EVERYBODY, lost), (WRITING, EVERYBODY, up * written)]
    return [(PRODUCTIVE, NOBODY, up * kept), *saved, *shares]


def _checkpointed(
    job: FaultTolerance, interval: float, convention: Convention
) -> tuple[float, float]:
    """Give the shares of the time up that are kept and that writing takes."""
    work, write = job.checkpoint_interval_min or 0.0, job.checkpoint_write_min
    cycle = work + write
    if convention == "interval":
        gap = interval - job.recovery_total_min
        count = math.floor(gap / cycle + 1e-12)
        rest = max(gap - count * cycle, 0.0)
        return count * work / gap, (count * write + max(rest - work, 0.0)) / gap
    # Exponential gaps: whole cycles are kept; a write is cut short if a failure strikes in it.
    cycles = 1 / math.expm1(cycle / interval) if cycle / interval < 700 else 0.0
    reach_write = math.exp(-work / interval) / -math.expm1(-cycle / interval)
    written = reach_write * -math.expm1(-write / interval)
    return cycles * work / interval, written


def _replicated(job: FaultTolerance, interval: float, convention: Convention) -> Shares:
    if convention == "renewal":
        msg = (
            "'renewal' has no closed form with replicas, which fail while others recover; use "
            "'poisson' or goodput_replay"
        )
        raise WorkbenchError(msg)
    stall, stalled, loss = job.stall_total_min, job.stopped_min, job.loss_min
    if convention == "interval":
        _refuse_overlap(loss, interval)
        _refuse_overlap(stalled, interval)
        up, all_stalled, degraded = 1 - loss / interval, stalled / interval, (loss - stalled)
        degraded /= interval
        phases = [(name, minutes / interval) for name, minutes in job.stall_phases.items()]
        again = (stalled - stall) / interval
    else:
        up, running = math.exp(-loss / interval), math.exp(-stalled / interval)
        degraded = running - up
        all_stalled = 1 - running
        phases = list(_by_age(job.stall_phases, interval))
        again = all_stalled + math.expm1(-stall / interval)
    kept, writing = 1.0, 0.0
    if job.checkpoint_interval_min is not None:
        cycle = job.checkpoint_interval_min + job.checkpoint_write_min
        kept, writing = job.checkpoint_interval_min / cycle, job.checkpoint_write_min / cycle
    return [
        (PRODUCTIVE, NOBODY, up * kept),
        (WRITING, EVERYBODY, up * writing),
        *((name, EVERYBODY, share) for name, share in phases),
        (REJOIN, EVERYBODY, again if again > 1e-15 else 0.0),
        (DEGRADED, HIT, degraded),
    ]


def _by_age(phases: dict[str, float], interval: float) -> Iterator[tuple[str, float]]:
    """Give the share of every phase: the last failure is as old as the phase lasts."""
    begin = 0.0
    for name, minutes in phases.items():
        yield name, math.exp(-begin / interval) * -math.expm1(-minutes / interval)
        begin += minutes


def _refuse_overlap(loss: float, interval: float) -> None:
    if loss >= interval:
        msg = (
            f"one failure costs {loss / interval:.2f} intervals, so failures would overlap; "
            "use convention='poisson' instead"
        )
        raise WorkbenchError(msg)
