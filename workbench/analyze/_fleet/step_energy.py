"""Energy of steps and of named segments of a job: the join of its log with power meters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.numbers import in_range, whole_number
from workbench.analyze._lib.energy_curves import (
    SECOND,
    EnergyCurves,
    Floats,
    Ints,
    Known,
    offset_ns,
)
from workbench.errors import WorkbenchError
from workbench.tables import (
    LOGGED_STEPS,
    PHASE_POWER,
    POWER_TOTALS,
    STEP_ENERGY,
)


def step_energy(
    power: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    longest_gap_periods: float = 3.0,
    least_covered_share: float = 0.95,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Measure the energy of every step, over all meters, from its start to its end.

    Energy is summed per entity as it was metered, then cut at the steps, so that steps that
    follow each other share nothing and lose nothing. A step shorter than the time between two
    readings gets its part of a straight line: its own energy is then not measured, only that of
    many steps together; ``reading_count`` tells.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope: nodes, or GPUs, not both.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`.
    longest_gap_periods
        Readings of an entity further apart than this many of its median periods leave a gap, of
        which nothing is known.
    least_covered_share
        Below this coverage the energy is missing. Above it, it is the energy of what is covered,
        too low by what is not.
    clock_offset_s
        How far the clock of the meter is ahead of that of the job log, in s; see
        :func:`workbench.analyze.power_clock_offset`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.STEP_ENERGY`, rows as in ``steps``. Without readings nothing
        is covered, and every energy is missing.

    Raises
    ------
    WorkbenchError
        If a GPU and its node are both in ``power``.

    Notes
    -----
    For entity *e* with readings p at t: ``E_e(T) = sum over segments up to T of (p_i + p_{i+1}) / 2
    dt``, inside a segment by the straight line; ``energy = sum_e E_e(end) - E_e(start)``. Sensors
    that average a second are half a second late, which ``clock_offset_s=0.5`` undoes.

    Examples
    --------
    >>> power = pd.DataFrame({"time_ns": [0, 10**9, 2 * 10**9], "power_w": [100.0, 100.0, 300.0]})
    >>> power["entity"] = pd.Categorical(["node1"] * 3)
    >>> step = {"step": [7], "attempt": [1], "start_ns": [0], "end_ns": [2 * 10**9]}
    >>> steps = pd.DataFrame(step | {"token_count": [50], "sample_count": [1]})
    >>> steps = steps.assign(source="log", line=1).astype({"attempt": "int32"})
    >>> steps = steps.astype({"token_count": "Int64", "sample_count": "Int64"})
    >>> print(step_energy(power, steps)[["energy_j", "energy_per_token_j"]].to_string(index=False))
     energy_j  energy_per_token_j
        300.0                 6.0
    """
    LOGGED_STEPS.check(steps)
    curves = EnergyCurves(
        power, longest_gap_periods=longest_gap_periods, clock_offset_s=clock_offset_s
    )
    starts, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    columns = energy_of(curves, starts, ends, least_covered_share)
    table = steps.assign(
        **columns,
        energy_per_token_j=_per(columns["energy_j"], steps["token_count"]),
        energy_per_sample_j=_per(columns["energy_j"], steps["sample_count"]),
    )
    return STEP_ENERGY.of(table.reset_index(drop=True))


def sufficient(known: Known, least_covered_share: float) -> Floats:
    """Return the energies of segments that are covered well enough; missing for the others."""
    least = in_range("least_covered_share", least_covered_share, least=0, most=1)
    enough = (known.covered_share >= least) & (known.covered_share > 0)
    return np.where(enough, known.energy_j, np.nan)


def energy_of(
    curves: EnergyCurves, starts: Ints, ends: Ints, least_covered_share: float
) -> dict[str, Any]:
    """Return the columns that steps and spans share."""
    drawn = curves.between(starts, ends)
    energy = sufficient(drawn, least_covered_share)
    return {
        "energy_j": energy,
        "mean_w": np.where(np.isnan(energy), np.nan, drawn.mean_w),
        "covered_share": drawn.covered_share,
        "entity_count": len(curves.names),
        "reading_count": drawn.reading_count,
    }


def _per(energy: Floats, count: pd.Series) -> Floats:
    """Divide by how much work was done; missing where none is told."""
    work = count.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(np.divide(energy, work, out=np.full(len(energy), np.nan), where=work > 0))


IN_STEPS, OUTSIDE = "in steps", "outside of steps"


def phase_power(
    totals: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    phase_count: int = 10,
    sample_s: float = 0.5,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Lay all steps over each other and average the power of each part of them.

    A meter that reads every two seconds sees a step of ten seconds five times, but each step at
    other moments; laid over each other, hundreds of steps show what none shows alone. It takes
    that steps are alike and that meter and job log agree about the time.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`: one uniform series.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`.
    phase_count
        Parts of a step, from 1.
    sample_s
        Distance of the samples that are taken from the series, by straight lines between the
        middles of its cells, in s.
    clock_offset_s
        How far the clock of the meter is ahead of that of the job log, in s.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PHASE_POWER`. Samples between first and last step that are
        in no step are the last row. A sample beside a cell without power is counted as missing.

    Raises
    ------
    WorkbenchError
        If the series is not uniform, or an option is not a positive number.

    Notes
    -----
    ``phase = (t - start) / (end - start)`` with the step that holds t; where attempts overlap, the
    later start counts.

    Examples
    --------
    >>> phase_power(POWER_TOTALS.empty(), LOGGED_STEPS.empty()).empty
    True
    """
    LOGGED_STEPS.check(steps)
    phases = whole_number("phase_count", phase_count, least=1)
    every_ns = in_range("sample_s", sample_s, least=1 / SECOND) * SECOND
    if steps.empty:
        return PHASE_POWER.empty()
    ordered = steps.sort_values("start_ns", kind="stable")
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    when = np.arange(starts[0], ends.max(), round(every_ns), dtype=np.int64)
    watts = sampled(totals, when + offset_ns(clock_offset_s))
    row = np.full(len(when), -1)
    bounds = np.searchsorted(when, starts), np.searchsorted(when, ends)
    for step, (first, after) in enumerate(zip(*bounds, strict=True)):
        row[first:after] = step
    phase = (when - starts[row]) / np.maximum(ends[row] - starts[row], 1)
    # The phase behind the last one holds what lies outside of steps.
    number = np.where(row >= 0, np.clip(phase * phases, 0, phases - 1), phases).astype(np.int64)
    rows = [_row(watts[number == at], at, phases) for at in range(phases + 1)]
    return PHASE_POWER.of(rows)


def _row(watts: Floats, phase: int, phases: int) -> dict[str, object]:
    measured = watts[~np.isnan(watts)]
    inside, is_measured = phase < phases, len(measured) > 0
    return {
        "place": IN_STEPS if inside else OUTSIDE,
        "first_share": phase / phases if inside else np.nan,
        "last_share": (phase + 1) / phases if inside else np.nan,
        "power_w": measured.mean() if is_measured else np.nan,
        "deviation_w": measured.std(ddof=1) if len(measured) > 1 else np.nan,
        "low_w": np.quantile(measured, 0.1) if is_measured else np.nan,
        "high_w": np.quantile(measured, 0.9) if is_measured else np.nan,
        "sample_count": len(measured),
        "missing_count": len(watts) - len(measured),
    }


def sampled(totals: pd.DataFrame, when_ns: Ints) -> Floats:
    """Read a uniform series at some times, by straight lines between the middles of known cells."""
    middles, watts = middles_of(totals)
    if len(middles) < 2:
        return np.full(len(when_ns), np.nan)
    # Missing cells make every straight line that touches them missing.
    lines = np.interp(when_ns - middles[0], middles - middles[0], watts, np.nan, np.nan)
    return np.asarray(lines)


def middles_of(totals: pd.DataFrame) -> tuple[Ints, Floats]:
    """Return the middle of each cell and its power; refuse a series that is not uniform."""
    POWER_TOTALS.check(totals)
    start = totals["time_ns"].to_numpy()
    steps = np.diff(start)
    if len(steps) and (steps.min() <= 0 or steps.max() - steps.min() > 1):
        row = int(np.argmax(np.abs(steps - np.median(steps)) > 1))
        msg = (
            f"the series of power is not uniform: after row {row} it goes on "
            f"{steps[row] / SECOND:g} s later, usually {np.median(steps) / SECOND:g} s; make one "
            "with analyze.power_totals(analyze.power_grid(power, period_s=...))"
        )
        raise WorkbenchError(msg)
    period = int(steps[0]) if len(steps) else 0
    return start + period // 2, totals["power_w"].to_numpy(dtype=np.float64)
