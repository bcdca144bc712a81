"""Goodput under failures: which share of the GPU time trains the model, and where the rest goes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd

from workbench._shared.numbers import not_negative, positive, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import GOODPUT

Convention: TypeAlias = Literal["interval", "poisson", "renewal"]
PRODUCTIVE, DEGRADED = "productive", "degraded capacity"
LOST, WRITING, REJOIN = "lost work", "checkpoint", "re-join stall"
STRAGGLER = "straggler"
NOBODY, EVERYBODY, HIT = "nobody", "all GPUs", "failed replica"
# Shares of one case: state, scope, share of GPU time.
Shares: TypeAlias = list[tuple[str, str, float]]


def goodput(
    job: FaultTolerance, *, failure_interval_min: float, convention: Convention
) -> pd.DataFrame:
    """Divide the GPU time of a job that fails now and then, by closed form.

    The same inputs give 44, 57 or 64 % under three ways of counting; each is right for its
    assumption, so the assumption is never dropped:

    ``"interval"`` one failure every ``failure_interval_min`` of wall time, of any replica;
    ``"poisson"`` failures keep arriving during recovery, and a new one restarts it;
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
        If a number is out of range, failures stop all GPUs for as long as there is between two
        (``interval``), or there is no closed form (``renewal`` with replicas, or a minimum
        of live replicas).

    Notes
    -----
    With mean time between failures *M*, recovery *D*, stall *S*, re-join stall *J* and *R*
    replicas, a failure costs ``L = D/R + S (1 - 1/R) + J`` cluster-minutes; productive are
    ``1 - L/M``, ``exp(-L/M)`` and, for R = 1, ``M/(M + D)``. The second is exact: a replica
    works at *t* if nothing failed in [t - S, t] and it did not fail itself in [t - D, t]. A
    phase that lasts from age *a* to *b* after a failure takes ``exp(-a/M) - exp(-b/M)``.
    ``1 - L/M`` holds as long as losses do not overlap. Once a replica is out for longer than
    *M*, others fail and stall meanwhile, and what they lose together counts once: of the
    replicas, ``(1 - 1/R)^n`` work at a time that *n* recoveries reach, where nothing stalls. A
    re-join that falls into the next stall counts once with it, so of failures at a regular
    interval a longer recovery may lose less.
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
    """Return the productive share alone, as :func:`goodput` has it.

    Parameters
    ----------
    job, failure_interval_min, convention
        As for :func:`goodput`.

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
    """Return the states of a case without making a table of them, the productive one first."""
    check_convention(convention)
    interval = positive("failure_interval_min", failure_interval_min)
    refuse_minimum(job)
    shares = _synchronous if job.replicas == 1 else _replicated
    return shares(job, interval, convention)


def check_convention(convention: str) -> None:
    if convention not in get_args(Convention):
        msg = (
            f"convention must be one of {get_args(Convention)}, not {convention!r}; a log is "
            "replayed by goodput_replay"
        )
        raise ValueError(msg)


def refuse_minimum(job: FaultTolerance) -> None:
    if job.min_replicas > 1:
        msg = (
            f"min_replicas={job.min_replicas} has no closed form; simulate failures and "
            "use goodput_replay"
        )
        raise WorkbenchError(msg)


def as_goodput(shares: Shares, convention: str) -> pd.DataFrame:
    """Make the table of exact shares; states that take no time are dropped."""
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
    return GOODPUT.of(table)


def _synchronous(job: FaultTolerance, interval: float, convention: Convention) -> Shares:
    down = job.recovery_total_min
    if convention == "interval" and not has_answer(job, interval, convention):
        raise _never_runs(down, interval)
    if convention == "poisson":
        up, phases = math.exp(-down / interval), list(_by_age(job.phases, interval))
    else:
        up, per_phase = 1 - down / interval, 1 / interval
        if convention == "renewal":
            up, per_phase = interval / (interval + down), 1 / (interval + down)
        phases = [(name, minutes * per_phase) for name, minutes in job.phases.items()]
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
    """Return the shares of the time up that are kept and that writing takes."""
    work, write = job.checkpoint_interval_min or 0.0, job.checkpoint_write_min
    cycle = work + write
    if convention == "interval":
        gap = interval - job.recovery_total_min
        # A gap of whole cycles must not lose one to rounding.
        count = math.floor(gap / cycle + 1e-12)
        remainder = max(gap - count * cycle, 0.0)
        return count * work / gap, (count * write + max(remainder - work, 0.0)) / gap
    # Exponential gaps: whole cycles are kept; a write is cut short if a failure strikes in it.
    # expm1 keeps its digits for cycles far shorter than the interval; exp() overflows at 709.
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
        up, running = _of_fixed_interval(job, interval)
        degraded = running - up
        phases = [(name, minutes / interval) for name, minutes in job.stall_phases.items()]
        again = 1 - running - stall / interval
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
    """Yield the share of every phase: the last failure is as old as the phase lasts."""
    begin = 0.0
    for name, minutes in phases.items():
        yield name, math.exp(-begin / interval) * -math.expm1(-minutes / interval)
        begin += minutes


def has_answer(job: FaultTolerance, interval: float, convention: Convention) -> bool:
    if convention == "renewal":
        return job.replicas == 1
    if convention == "poisson":
        return True
    if job.replicas == 1:
        return job.recovery_total_min < interval
    return job.stall_total_min < interval and any(not n.is_stopped for n in _ages(job, interval))


class _Ages(NamedTuple):
    """Ages of the last failure, between two of which nothing changes."""

    share: float
    is_stopped: bool
    recoveries: float
    """Failures, the last and those before it, whose replica is still out."""


def _of_fixed_interval(job: FaultTolerance, interval: float) -> tuple[float, float]:
    if not has_answer(job, interval, "interval"):
        raise _never_runs(job.stopped_min, interval)
    alive = 1 - 1 / job.replicas
    running = [ages for ages in _ages(job, interval) if not ages.is_stopped]
    up = math.fsum(ages.share * alive**ages.recoveries for ages in running)
    return up, math.fsum(ages.share for ages in running)


def _ages(job: FaultTolerance, interval: float) -> Iterator[_Ages]:
    """Cut the time between two failures where a stall, a recovery or a re-join ends."""
    stall, down = job.stall_total_min, job.recovery_total_min
    back = down + job.rejoin_min
    # Longer than an interval, a recovery ends at the age that is left over.
    ends = (stall, math.fmod(down, interval), math.fmod(back, interval))
    cuts = sorted({0.0, interval, *(end for end in ends if end < interval)})
    for first, last in pairwise(cuts):
        # Any instant between two cuts stands for all of them.
        age = (first + last) / 2
        recoveries = _reached(down - age, interval)
        # One that returned less than a re-join ago has been counted in the second only.
        is_stopped = age < stall or _reached(back - age, interval) > recoveries
        yield _Ages((last - first) / interval, is_stopped, recoveries)


def _reached(minutes: float, interval: float) -> float:
    """Count the failures, one every interval, that lie less than some minutes back."""
    return max(float(np.ceil(minutes / interval)), 0.0)


def _never_runs(loss: float, interval: float) -> WorkbenchError:
    msg = (
        f"one failure stops all GPUs for {loss / interval:.2f} intervals, so they would never "
        "run; use convention='poisson' instead"
    )
    return WorkbenchError(msg)


# What a job does when something fails: the one description all goodput models share.

Minutes: TypeAlias = float | Mapping[str, float]


@dataclass(frozen=True)
class FaultTolerance:
    """How a job answers a failure. All times in minutes.

    With one replica the job is synchronous: every failure stops all GPUs for ``recovery_min``. With
    more, only the failed replica is out that long, counted from the failure; all replicas stand
    still for ``stall_min``, and again for ``rejoin_min`` when the hit one comes back.

    Parameters
    ----------
    recovery_min
        From the failure until whoever was hit works again, detection included; a number, or
        minutes by phase in the order they happen, e.g. ``{"detection": 1, "allocation": 5}``.
    stall_min
        How long every failure stops all replicas; a number or minutes by phase.
    replicas
        Data-parallel replicas that fail alone; 1 for synchronous training.
    rejoin_min
        How long the return of a replica stops all of them.
    min_replicas
        With fewer than these alive, everybody restarts together; only replays know this. With
        1 each replica comes back on its own, even if all of them are out.
    global_recovery_min
        How long such a restart takes; by default ``recovery_min``.
    checkpoint_interval_min
        Useful time between checkpoints; None for none.
    checkpoint_write_min
        How long writing one stops all GPUs.

    Raises
    ------
    WorkbenchError
        If a number is negative or not finite, there is less than one replica, or more are
        needed than there are.
    """

    recovery_min: Minutes = 10.0
    stall_min: Minutes = 3.0
    replicas: int = 12
    rejoin_min: float = 0.0
    min_replicas: int = 1
    global_recovery_min: float | None = None
    checkpoint_interval_min: float | None = None
    checkpoint_write_min: float = 0.0
    phases: dict[str, float] = field(init=False, repr=False, compare=False)
    stall_phases: dict[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "phases", _phases(self.recovery_min, "recovery", "recovery_min"))
        set_field(self, "stall_phases", _phases(self.stall_min, "global stall", "stall_min"))
        for name in ("rejoin_min", "checkpoint_write_min"):
            not_negative(name, getattr(self, name))
        if self.global_recovery_min is not None:
            not_negative("global_recovery_min", self.global_recovery_min)
        if self.checkpoint_interval_min is not None:
            positive("checkpoint_interval_min", self.checkpoint_interval_min)
        elif self.checkpoint_write_min > 0:
            msg = "checkpoint_write_min needs checkpoint_interval_min: how often is one written?"
            raise WorkbenchError(msg)
        for name in ("replicas", "min_replicas"):
            set_field(self, name, whole_number(name, getattr(self, name), least=1))
        if self.min_replicas > self.replicas:
            msg = (
                f"min_replicas is {self.min_replicas}, but there are only {self.replicas} replicas"
            )
            raise WorkbenchError(msg)

    @property
    def recovery_total_min(self) -> float:
        """Recovery of whoever was hit, all phases together."""
        return sum(self.phases.values())

    @property
    def stall_total_min(self) -> float:
        """Standstill of all replicas, all phases together."""
        return sum(self.stall_phases.values())

    @property
    def outage_min(self) -> float:
        """Recovery when everybody restarts together."""
        minutes = self.global_recovery_min
        return self.recovery_total_min if minutes is None else minutes

    @property
    def stopped_min(self) -> float:
        """Time after a failure in which all replicas stand still, at its beginning and end."""
        stall, down, rejoin = self.stall_total_min, self.recovery_total_min, self.rejoin_min
        if self.replicas == 1:
            return down
        return stall + rejoin if down >= stall else max(stall, down + rejoin)

    @property
    def loss_min(self) -> float:
        """Minutes of the whole job that a failure costs, checkpoints aside."""
        if self.replicas == 1:
            return self.recovery_total_min
        out = max(self.stall_total_min, self.recovery_total_min + self.rejoin_min)
        return out / self.replicas + self.stopped_min * (1 - 1 / self.replicas)

    def synchronous(self) -> FaultTolerance:
        """Return the same job without fault tolerance."""
        return replace(self, replicas=1, min_replicas=1, rejoin_min=0.0)


def _phases(restart: Minutes, alone: str, name: str) -> dict[str, float]:
    phases = dict(restart) if isinstance(restart, Mapping) else {alone: restart}
    if not phases:
        msg = f"{name} names no phase; give a number of minutes, or minutes by phase"
        raise WorkbenchError(msg)
    for phase, minutes in phases.items():
        if phase == "productive":
            msg = f"{name} has a phase {phase!r}, which is what the rest is called; rename it"
            raise WorkbenchError(msg)
        not_negative(f"{name}[{phase!r}]" if isinstance(restart, Mapping) else name, minutes)
    return {str(phase): float(minutes) for phase, minutes in phases.items()}
