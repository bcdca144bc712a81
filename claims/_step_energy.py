"""Energy of named segments of a job, and per step, token and sample."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from claims._tables import SPAN_ENERGY, WORK_ENERGY
from workbench._shared.numbers import whole_number
from workbench.analyze._fleet.step_energy import energy_of
from workbench.analyze._lib.energy_curves import EnergyCurves
from workbench.tables import LOGGED_SPANS, STEP_ENERGY

_SPAN = ["kind", "attempt", "start_ns", "end_ns", "step"]


def span_energy(
    power: pd.DataFrame,
    spans: pd.DataFrame,
    *,
    longest_gap_periods: float = 3.0,
    least_covered_share: float = 0.95,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Measure the energy of every named segment of a job: evaluation, checkpoint, restart, run.

    Segments may nest, so their energies are not to be summed over kinds;
    :func:`workbench.analyze.energy_waste` takes a run apart without counting twice.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`. One that the log never ended has no energy.
    longest_gap_periods, least_covered_share, clock_offset_s
        As for :func:`step_energy`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.SPAN_ENERGY`, rows as in ``spans``.

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
    columns = energy_of(curves, spans["start_ns"].to_numpy(), ends, least_covered_share)
    return SPAN_ENERGY.of(spans[_SPAN].assign(**columns).reset_index(drop=True))


_UNITS = {"token": "token_count", "sample": "sample_count"}


def work_energy(step_energy: pd.DataFrame, *, gpu_count: int | None = None) -> pd.DataFrame:
    """Sum up what a step, a token and a sample cost, and what power each GPU needs for it.

    The mean is energy over work, so long steps weigh more; the median says what a usual step
    costs. Effective power per GPU holds everything that the meters saw: with meters of whole
    nodes also CPUs, fans, network cards and the loss of the supply.

    Parameters
    ----------
    step_energy
        Table :data:`workbench.tables.STEP_ENERGY`.
    gpu_count
        GPUs behind the meters; without it there is no power per GPU.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.WORK_ENERGY`. Steps without energy are dropped, and
        counted in ``attrs["left_out"]``; a measure that no step has is not a row.

    Raises
    ------
    WorkbenchError
        If ``gpu_count`` is not a whole number from 1.

    Notes
    -----
    Per unit *u*: ``median = median_s(E_s / u_s)``, ``mean = sum_s E_s / sum_s u_s``.

    Examples
    --------
    >>> work_energy(STEP_ENERGY.empty()).empty
    True
    """
    STEP_ENERGY.check(step_energy)
    measured = step_energy[step_energy["energy_j"].notna()]
    length = (step_energy["end_ns"] - step_energy["start_ns"]).to_numpy(dtype=np.float64)
    total = length.sum()
    # Long steps weigh more, as they do in the energy.
    covered = (step_energy["covered_share"] * length).sum() / total if total > 0 else 0.0
    share = {"covered_share": float(np.clip(covered, 0, 1))}
    rows = [row | share for row in _measures(measured, gpu_count)]
    table = WORK_ENERGY.of(rows)
    if without := len(step_energy) - len(measured):
        table.attrs["left_out"] = {"steps whose energy is not known": without}
    return table


def _measures(steps: pd.DataFrame, gpu_count: int | None) -> Iterator[dict[str, object]]:
    count = None if gpu_count is None else whole_number("gpu_count", gpu_count, least=1)
    if steps.empty:
        return
    ones = pd.Series(1.0, index=steps.index)
    seconds, energy = (steps["end_ns"] - steps["start_ns"]) / 1e9, steps["energy_j"]
    yield _measure("duration of a step", "s", seconds, ones)
    yield _measure("energy per step", "J", energy, ones)
    for name, column in _UNITS.items():
        counted = steps[column].notna() & (steps[column] > 0).fillna(value=False)
        if counted.any():
            work = steps.loc[counted, column].astype("float64")
            yield _measure(f"energy per {name}", "J", energy[counted], work)
    energy, seconds = energy[seconds > 0], seconds[seconds > 0]
    yield _measure("power in steps", "W", energy, seconds)
    if count is not None:
        yield _measure("power per GPU in steps", "W", energy, seconds * count)


def _measure(measure: str, unit: str, amount: pd.Series, work: pd.Series) -> dict[str, object]:
    ratio = (amount / work).to_numpy(dtype=np.float64)
    has_steps = len(ratio) > 0
    return {
        "measure": measure,
        "unit": unit,
        "count": len(ratio),
        "median": float(np.median(ratio)) if has_steps else np.nan,
        "mean": float(amount.sum() / work.sum()) if has_steps else np.nan,
        "deviation": float(ratio.std(ddof=1)) if len(ratio) > 1 else np.nan,
        "low": float(np.quantile(ratio, 0.05)) if has_steps else np.nan,
        "high": float(np.quantile(ratio, 0.95)) if has_steps else np.nan,
    }
