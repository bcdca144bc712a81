"""Goodput against the size of the job: more GPUs fail more often, and take longer to restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, get_args

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
from workbench.tables import GOODPUT_AT_SCALE, GOODPUT_LADDER, GOODPUT_SENSITIVITY, GOODPUT_SWEEP

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


_INTERVAL = "failure_interval_min"
_OF_JOB = ("replicas", "recovery_min", "stall_min", "rejoin_min")
_OF_CHECKPOINTS = ("checkpoint_interval_min", "checkpoint_write_min")


def goodput_sweep(
    job: FaultTolerance,
    parameter: str,
    values: Sequence[float],
    *,
    failure_interval_min: float,
    conventions: Sequence[Convention] = get_args(Convention),
) -> pd.DataFrame:
    """Vary one input and give the productive share under every convention.

    Parameters
    ----------
    job
        The other inputs.
    parameter
        ``"failure_interval_min"``, ``"replicas"``, ``"recovery_min"``, ``"stall_min"``,
        ``"rejoin_min"``, ``"checkpoint_interval_min"`` or ``"checkpoint_write_min"``.
    values
        Its values.
    failure_interval_min
        Mean time between failures of the whole job, in minutes.
    conventions
        How failures are counted; see :func:`goodput`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_SWEEP`: ``parameter``, ``value``,
        ``convention``, ``productive_share`` (missing where a convention has no answer: all GPUs
        would stand still throughout, or there is no closed form). Only replays have ``low_share``
        and ``high_share``: see :func:`goodput_replay_sweep`.

    Raises
    ------
    WorkbenchError
        If the parameter is none of these, or a value out of its range.
    ValueError
        If a convention is unknown.

    Examples
    --------
    >>> table = goodput_sweep(
    ...     FaultTolerance(), "replicas", [1, 12], failure_interval_min=18, conventions=["interval"]
    ... )
    >>> table["productive_share"].round(4).tolist()
    [0.4444, 0.8009]
    """
    if parameter not in (allowed := (_INTERVAL, *_OF_JOB, *_OF_CHECKPOINTS)):
        msg = f"parameter must be one of {allowed}, not {parameter!r}"
        raise WorkbenchError(msg)
    for convention in conventions:
        check_convention(convention)
    refuse_minimum(job)
    rows = []
    for value in values:
        interval, changed = value, job
        if parameter != _INTERVAL:
            interval, changed = failure_interval_min, _with(job, parameter, value)
        rows += [(parameter, value, c, share_or_nan(changed, interval, c)) for c in conventions]
    names = ["parameter", "value", "convention", "productive_share"]
    return GOODPUT_SWEEP.of(pd.DataFrame(rows, columns=names))


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


def goodput_sensitivity(
    job: FaultTolerance, *, failure_interval_min: float, convention: Convention
) -> pd.DataFrame:
    """Halve and double every input alone, to see what buys most.

    Parameters
    ----------
    job
        The base case. Recoveries and stalls given by phase are changed phase by phase.
    failure_interval_min, convention
        As for :func:`goodput`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_SENSITIVITY`, the largest effect first:
        ``parameter``, ``value``, ``base_share``, ``halved_share``, ``doubled_share`` (missing
        where the convention has no answer). Inputs of 0 are dropped.

    Raises
    ------
    ValueError
        If the convention is unknown.
    WorkbenchError
        If the base case has no answer.

    Examples
    --------
    >>> table = goodput_sensitivity(
    ...     FaultTolerance(), failure_interval_min=18, convention="interval"
    ... )
    >>> table["parameter"].tolist()
    ['failure_interval_min', 'stall_min', 'recovery_min', 'replicas']
    """
    base = productive_share(job, failure_interval_min=failure_interval_min, convention=convention)
    rows = []
    for name, value, change in _knobs(job, failure_interval_min):
        shares = [share_or_nan(*change(factor), convention) for factor in (0.5, 2.0)]
        rows.append((name, value, base, *shares))
    table = GOODPUT_SENSITIVITY.cast(pd.DataFrame(rows, columns=list(GOODPUT_SENSITIVITY.columns)))
    ends = table[["base_share", "halved_share", "doubled_share"]]
    # max and min skip missing ends: an input with one answer is still ranked by it.
    reach = ends.max(axis=1) - ends.min(axis=1)
    order = reach.sort_values(ascending=False, kind="stable").index
    return GOODPUT_SENSITIVITY.check(table.loc[order].reset_index(drop=True))


_Change: TypeAlias = Callable[[float], tuple[FaultTolerance, float]]


def _knobs(job: FaultTolerance, interval: float) -> Iterator[tuple[str, float, _Change]]:
    yield _INTERVAL, interval, lambda factor: (job, interval * factor)
    fields = ["recovery_min", *_OF_CHECKPOINTS]
    # With one replica nobody else stalls, so stall and re-join have no effect.
    if job.replicas > 1:

        def resized(factor: float) -> tuple[FaultTolerance, float]:
            return replace(job, replicas=max(round(job.replicas * factor), 1)), interval

        yield "replicas", job.replicas, resized
        fields[1:1] = ["stall_min", "rejoin_min"]
    for field in fields:
        value = getattr(job, field)
        phases = value if isinstance(value, Mapping) else {"": value}
        for phase, minutes in phases.items():
            if minutes:
                name = f"{field}: {phase}" if phase else field
                yield name, minutes, _scaled(job, interval, field, phase)


def _scaled(job: FaultTolerance, interval: float, field: str, phase: str) -> _Change:
    value = getattr(job, field)

    def change(factor: float) -> tuple[FaultTolerance, float]:
        changed: Any = {**value, phase: value[phase] * factor} if phase else value * factor
        return replace(job, **{field: changed}), interval

    return change


def _with(job: FaultTolerance, parameter: str, value: float) -> FaultTolerance:
    if parameter in _OF_CHECKPOINTS and job.checkpoint_interval_min is None:
        msg = f"{parameter} can be varied only of a job with checkpoint_interval_min"
        raise WorkbenchError(msg)
    return replace(job, **{parameter: value})  # type: ignore[arg-type]


def share_or_nan(job: FaultTolerance, interval: float, convention: Convention) -> float:
    """Return the productive share, or NaN where the convention has no answer."""
    positive("failure_interval_min", interval)
    if not has_answer(job, interval, convention):
        return float("nan")
    return productive_share(job, failure_interval_min=interval, convention=convention)
