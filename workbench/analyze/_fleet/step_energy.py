"""Energy of steps and of named stretches of a job: the join of its log with power meters."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import in_range
from workbench.analyze._lib.energy_curves import EnergyCurves, Floats, Known
from workbench.tables import LOGGED_SPANS, LOGGED_STEPS, SPAN_ENERGY, STEP_ENERGY

_SPAN = ["kind", "attempt", "start_ns", "end_ns", "step"]


def step_energy(
    power: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    longest_gap_periods: float = 3.0,
    least_covered_share: float = 0.95,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Give every step the energy that all meters measured from its start to its end.

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
    known = curves.between(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
    energy = sufficient(known, least_covered_share)
    table = steps.assign(
        energy_j=energy,
        mean_w=np.where(np.isnan(energy), np.nan, known.mean_w),
        energy_per_token_j=_per(energy, steps["token_count"]),
        energy_per_sample_j=_per(energy, steps["sample_count"]),
        covered_share=known.covered_share,
        entity_count=len(curves.names),
        reading_count=known.reading_count,
    )
    return STEP_ENERGY.check(STEP_ENERGY.cast(table.reset_index(drop=True)))


def span_energy(
    power: pd.DataFrame,
    spans: pd.DataFrame,
    *,
    longest_gap_periods: float = 3.0,
    least_covered_share: float = 0.95,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Give every named stretch of a job (evaluation, checkpoint, restart, run) its energy.

    Stretches may nest, so their energies are not to be summed over kinds;
    :func:`workbench.analyze.energy_waste` takes a run apart without counting twice.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`. One that the log never ended has no energy.
    longest_gap_periods
        As for :func:`step_energy`.
    least_covered_share
        As for :func:`step_energy`.
    clock_offset_s
        As for :func:`step_energy`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SPAN_ENERGY`, rows as in ``spans``.

    Raises
    ------
    WorkbenchError
        As :func:`step_energy`.

    Examples
    --------
    >>> power = pd.DataFrame({"time_ns": [0, 10**9, 2 * 10**9], "power_w": [100.0, 100.0, 300.0]})
    >>> power["entity"] = pd.Categorical(["node1"] * 3)
    >>> spans = LOGGED_SPANS.empty()
    >>> spans.loc[0] = ["evaluation", 1, 0, 10**9, pd.NA, "log", 1]
    >>> spans = LOGGED_SPANS.cast(spans)
    >>> print(span_energy(power, spans)["energy_j"].tolist())
    [100.0]
    """
    LOGGED_SPANS.check(spans)
    curves = EnergyCurves(
        power, longest_gap_periods=longest_gap_periods, clock_offset_s=clock_offset_s
    )
    ends = spans["end_ns"].fillna(spans["start_ns"]).to_numpy(dtype=np.int64)
    known = curves.between(spans["start_ns"].to_numpy(), ends)
    energy = sufficient(known, least_covered_share)
    table = spans[_SPAN].assign(
        energy_j=energy,
        mean_w=np.where(np.isnan(energy), np.nan, known.mean_w),
        covered_share=known.covered_share,
        entity_count=len(curves.names),
        reading_count=known.reading_count,
    )
    return SPAN_ENERGY.check(SPAN_ENERGY.cast(table.reset_index(drop=True)))


def sufficient(known: Known, least_covered_share: float) -> Floats:
    """Give the energies of stretches of which enough is known; missing for the others."""
    least = in_range("least_covered_share", least_covered_share, least=0, most=1)
    enough = (known.covered_share >= least) & (known.covered_share > 0)
    energy: Floats = np.where(enough, known.energy_j, np.nan)
    return energy


def _per(energy: Floats, count: pd.Series) -> Floats:
    """Divide by how much work was done; missing where none is told."""
    number = count.to_numpy(dtype=np.float64, na_value=np.nan)
    each: Floats = np.divide(energy, number, out=np.full(len(energy), np.nan), where=number > 0)
    return each
