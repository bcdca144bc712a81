"""What would change the goodput: one input varied, one change after another, each input alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd

from workbench._numbers import positive
from workbench.analyze._failures.goodput_model.fault_tolerance import FaultTolerance
from workbench.analyze._failures.goodput_model.goodput import (
    Convention,
    check_convention,
    has_answer,
    productive_share,
    refuse_minimum,
)
from workbench.errors import WorkbenchError
from workbench.tables import GOODPUT_LADDER, GOODPUT_SENSITIVITY, GOODPUT_SWEEP

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
        would stand still throughout, or there is no closed form).

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
    if parameter not in (known := (_INTERVAL, *_OF_JOB, *_OF_CHECKPOINTS)):
        msg = f"parameter must be one of {known}, not {parameter!r}"
        raise WorkbenchError(msg)
    for convention in conventions:
        check_convention(convention)
    refuse_minimum(job)
    rows = []
    for value in values:
        at = {_INTERVAL: failure_interval_min}
        changed = job
        if parameter == _INTERVAL:
            at[_INTERVAL] = value
        else:
            changed = _with(job, parameter, value)
        rows += [
            (parameter, value, each, share_or_nan(changed, at[_INTERVAL], each))
            for each in conventions
        ]
    table = pd.DataFrame(rows, columns=list(GOODPUT_SWEEP.columns))
    return GOODPUT_SWEEP.check(GOODPUT_SWEEP.cast(table))


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
        Published shares to show beside a change, by its name: ``"all GPUs restart"``, ``"only
        the failed replica restarts"``, ``"all replicas stall"``, ``"and again at re-join"``,
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
    rungs = {
        "all GPUs restart": replace(job.synchronous(), stall_min=0.0, **plain),  # type: ignore[arg-type]
        "only the failed replica restarts": replace(job, stall_min=0.0, rejoin_min=0.0, **plain),  # type: ignore[arg-type]
        "all replicas stall": replace(job, rejoin_min=0.0, **plain),  # type: ignore[arg-type]
    }
    if job.rejoin_min:
        rungs["and again at re-join"] = replace(job, **plain)  # type: ignore[arg-type]
    if job.checkpoint_interval_min is not None:
        rungs["checkpoints are written"] = job
    if unknown := [name for name in printed or {} if name not in rungs]:
        msg = f"printed names {unknown}; the changes are {list(rungs)}"
        raise WorkbenchError(msg)
    shares = [
        productive_share(each, failure_interval_min=failure_interval_min, convention=convention)
        for each in rungs.values()
    ]
    table = pd.DataFrame({"change": list(rungs), "convention": convention})
    table["productive_share"] = shares
    table["gain_ratio"] = np.diff(shares, prepend=shares[0])
    table["printed_share"] = [(printed or {}).get(name, np.nan) for name in rungs]
    return GOODPUT_LADDER.check(GOODPUT_LADDER.cast(table))


def goodput_sensitivity(
    job: FaultTolerance, *, failure_interval_min: float, convention: Convention
) -> pd.DataFrame:
    """Halve and double every input alone, to see what buys most.

    Parameters
    ----------
    job
        The base case. Recoveries and stalls given by phase are changed phase by phase.
    failure_interval_min
        Mean time between failures of the whole job, in minutes.
    convention
        How failures are counted; see :func:`goodput`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_SENSITIVITY`, the largest effect first:
        ``parameter``, ``value``, ``base_share``, ``halved_share``, ``doubled_share`` (missing
        where the convention has no answer). Inputs of 0 are left out.

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
    at = {_INTERVAL: failure_interval_min}
    base = productive_share(job, convention=convention, **at)
    rows = []
    for name, value, change in _knobs(job, failure_interval_min):
        shares = []
        for factor in (0.5, 2.0):
            changed, interval = change(factor)
            shares.append(share_or_nan(changed, interval, convention))
        rows.append((name, value, base, *shares))
    table = pd.DataFrame(rows, columns=list(GOODPUT_SENSITIVITY.columns))
    table = GOODPUT_SENSITIVITY.cast(table)
    ends = table[["base_share", "halved_share", "doubled_share"]]
    reach = ends.max(axis=1) - ends.min(axis=1)
    order = reach.sort_values(ascending=False, kind="stable").index
    return GOODPUT_SENSITIVITY.check(table.loc[order].reset_index(drop=True))


def _knobs(
    job: FaultTolerance, interval: float
) -> Iterator[tuple[str, float, Callable[[float], tuple[FaultTolerance, float]]]]:
    """Give every input that is not 0: its name, its value, and the job with it changed."""
    yield _INTERVAL, interval, lambda factor: (job, interval * factor)
    if job.replicas > 1:
        yield (
            "replicas",
            job.replicas,
            lambda factor: (replace(job, replicas=max(round(job.replicas * factor), 1)), interval),
        )
    for field in ("recovery_min", *(("stall_min",) * (job.replicas > 1))):
        given = getattr(job, field)
        parts = given if isinstance(given, Mapping) else {"": given}
        for phase, minutes in parts.items():
            if minutes:
                name = f"{field}: {phase}" if phase else field
                yield name, minutes, _scaled(job, interval, field, phase)
    for field in ("rejoin_min", *_OF_CHECKPOINTS):
        if getattr(job, field) and not (field == "rejoin_min" and job.replicas == 1):
            yield field, getattr(job, field), _scaled(job, interval, field, "")


def _scaled(
    job: FaultTolerance, interval: float, field: str, phase: str
) -> Callable[[float], tuple[FaultTolerance, float]]:
    given = getattr(job, field)

    def change(factor: float) -> tuple[FaultTolerance, float]:
        if phase:
            changed: Any = {field: {**given, phase: given[phase] * factor}}
        else:
            changed = {field: given * factor}
        return replace(job, **changed), interval

    return change


def _with(job: FaultTolerance, parameter: str, value: float) -> FaultTolerance:
    if parameter in _OF_CHECKPOINTS and job.checkpoint_interval_min is None:
        msg = f"{parameter} can be varied only of a job with checkpoint_interval_min"
        raise WorkbenchError(msg)
    if parameter == "replicas":
        return replace(job, replicas=value)  # type: ignore[arg-type]
    return replace(job, **{parameter: value})  # type: ignore[arg-type]


def share_or_nan(job: FaultTolerance, interval: float, convention: Convention) -> float:
    """Give the productive share, or NaN where the convention has no answer."""
    positive("failure_interval_min", interval)
    if not has_answer(job, interval, convention):
        return float("nan")
    return productive_share(job, failure_interval_min=interval, convention=convention)
