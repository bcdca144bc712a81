"""What a unit of work costs: joules per step, token and sample, and watts per GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench._numbers import whole_number
from workbench.tables import STEP_ENERGY, WORK_ENERGY

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
        Table :data:`workbench.tables.WORK_ENERGY`. Steps without energy are left out, and
        counted in ``attrs["left_out"]``; a measure that no step has is no row.

    Raises
    ------
    WorkbenchError
        If ``gpu_count`` is no whole number from 1.

    Notes
    -----
    Per unit *u*: ``median = median_s(E_s / u_s)``, ``mean = sum_s E_s / sum_s u_s``.

    Examples
    --------
    >>> work_energy(STEP_ENERGY.empty()).empty
    True
    """
    STEP_ENERGY.check(step_energy)
    known = step_energy[step_energy["energy_j"].notna()]
    covered = _covered(step_energy)
    rows = [row | {"covered_share": covered} for row in _measures(known, gpu_count)]
    table = pd.DataFrame(rows, columns=list(WORK_ENERGY.columns)) if rows else WORK_ENERGY.empty()
    table = WORK_ENERGY.check(WORK_ENERGY.cast(table))
    if without := len(step_energy) - len(known):
        table.attrs["left_out"] = {"steps whose energy is not known": without}
    return table


def _measures(known: pd.DataFrame, gpu_count: int | None) -> Iterator[dict[str, object]]:
    count = None if gpu_count is None else whole_number("gpu_count", gpu_count, least=1)
    if known.empty:
        return
    ones = pd.Series(1.0, index=known.index)
    seconds = (known["end_ns"] - known["start_ns"]) / 1e9
    energy = known["energy_j"]
    yield _row("duration of a step", "s", seconds, ones)
    yield _row("energy per step", "J", energy, ones)
    for name, column in _UNITS.items():
        told = known[column].notna() & (known[column] > 0).fillna(value=False)
        if told.any():
            work = known.loc[told, column].astype("float64")
            yield _row(f"energy per {name}", "J", energy[told], work)
    lasting = seconds > 0
    yield _row("power in steps", "W", energy[lasting], seconds[lasting])
    if count is not None:
        yield _row("power per GPU in steps", "W", energy[lasting], seconds[lasting] * count)


def _row(measure: str, unit: str, amount: pd.Series, work: pd.Series) -> dict[str, object]:
    each = (amount / work).to_numpy(dtype=np.float64)
    some = len(each) > 0
    return {
        "measure": measure,
        "unit": unit,
        "count": len(each),
        "median": float(np.median(each)) if some else np.nan,
        "mean": float(amount.sum() / work.sum()) if some else np.nan,
        "deviation": float(each.std(ddof=1)) if len(each) > 1 else np.nan,
        "low": float(np.quantile(each, 0.05)) if some else np.nan,
        "high": float(np.quantile(each, 0.95)) if some else np.nan,
    }


def _covered(table: pd.DataFrame) -> float:
    """Give the coverage over all steps, long ones weighing more."""
    length = (table["end_ns"] - table["start_ns"]).to_numpy(dtype=np.float64)
    if length.sum() <= 0:
        return 0.0
    return float(np.clip((table["covered_share"] * length).sum() / length.sum(), 0, 1))
