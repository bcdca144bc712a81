"""What smoothing costs, what swing it leaves, and what store it needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._power.grid_check import grid_check
from workbench.analyze._power.grid_spec import GridSpec
from workbench.analyze._power.series import Floats
from workbench.errors import WorkbenchError
from workbench.tables import POWER_SMOOTHING, SMOOTHING_SUMMARY

_WORST_FIRST = ("fail", "unknown", "pass")


def smoothing_summary(
    smoothing: pd.DataFrame,
    *,
    spec: GridSpec | None = None,
    site_w: float | None = None,
    averaging_s: float | None = None,
) -> pd.DataFrame:
    """Compare power before and after smoothing: energy, swing, ramps, store and verdict.

    No plan is free: read the energy burnt and the demand held back beside the swing that is
    left. What an unlimited store moved is the size of the store that is needed.

    Parameters
    ----------
    smoothing
        Table :data:`workbench.tables.POWER_SMOOTHING`.
    spec
        What the grid allows; both versions are then checked against it.
    site_w, averaging_s
        As in :func:`grid_check`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SMOOTHING_SUMMARY`, with the rows before and after.

    Raises
    ------
    WorkbenchError
        If fewer than two cells are known, all are 0, or as :func:`grid_check`.

    Notes
    -----
    ``swing_w`` is the 99th minus the 1st percentile of all cells, ``deviation_w`` their standard
    deviation. ``energy_ratio`` counts ballast and losses, and what the store still holds.

    Examples
    --------
    >>> import pandas as pd
    >>> from workbench.analyze import SmoothingPlan, power_smoothing
    >>> cells = pd.DataFrame({"time_ns": range(0, 4_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[10.0, 5, 10, 5], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> smoothed = power_smoothing(cells, SmoothingPlan(floor_share=0.8))
    >>> smoothing_summary(smoothed)["energy_ratio"].tolist()
    [1.0, 1.2]
    """
    POWER_SMOOTHING.check(smoothing)
    known = smoothing[smoothing["power_w"].notna()]
    if len(known) < 2:
        msg = f"{len(known)} of {len(smoothing):,} cells are known; 2 are needed for a comparison"
        raise WorkbenchError(msg)
    period_s = float(np.diff(known["time_ns"].to_numpy()[:2])[0]) / 1e9
    lag = _cells_per_reading(known, period_s)
    before = _statistics(known["power_w"].to_numpy(), period_s, lag)
    after = _statistics(known["smoothed_w"].to_numpy(), period_s, lag) | _costs(known, period_s)
    if before["energy_j"] <= 0:
        msg = f"power is 0 in all of {len(known):,} cells: there is no energy to compare with"
        raise WorkbenchError(msg)
    rows = []
    for version, values, column in (("before", before, "power_w"), ("after", after, "smoothed_w")):
        verdict, why = _verdict(known, column, spec, site_w, averaging_s)
        rows.append(
            dict.fromkeys(_costs(known.iloc[:1], period_s), 0.0)
            | values
            | {"version": version, "verdict": verdict, "why": why}
            | {"energy_ratio": values["energy_j"] / before["energy_j"]}
        )
    table = pd.DataFrame(rows)
    table["covered_share"] = len(known) / len(smoothing)
    return SMOOTHING_SUMMARY.check(SMOOTHING_SUMMARY.cast(table))


def _cells_per_reading(known: pd.DataFrame, period_s: float) -> int:
    """Give how many cells lie between two readings: no ramp over fewer was measured."""
    meter_s = known["meter_period_s"].max() if "meter_period_s" in known else np.nan
    cells = 1 if np.isnan(meter_s) else max(round(meter_s / period_s), 1)
    return cells if cells < len(known) else 1


def _statistics(power_w: Floats, period_s: float, lag: int) -> dict[str, Any]:
    """Describe one version of power."""
    low, high = np.percentile(power_w, [1, 99])
    return {
        "mean_w": power_w.mean(),
        "peak_w": power_w.max(),
        "swing_w": high - low,
        "deviation_w": power_w.std(),
        "ramp_w_per_s": np.abs(power_w[lag:] - power_w[:-lag]).max() / (lag * period_s),
        "energy_j": power_w.sum() * period_s,
    }


def _costs(known: pd.DataFrame, period_s: float) -> dict[str, Any]:
    """Add up what was burnt, held back, lost and stored."""
    charge = known["stored_j"].to_numpy()
    moved, lost = known["storage_w"].to_numpy(), known["lost_w"].to_numpy()
    return {
        "ballast_j": known["ballast_w"].sum() * period_s,
        "unmet_j": known["unmet_w"].sum() * period_s,
        "lost_j": lost.sum() * period_s,
        "stored_change_j": (moved - lost).sum() * period_s,
        "storage_w": np.abs(moved).max(),
        "storage_j": np.ptp(charge),
    }


def _verdict(
    known: pd.DataFrame,
    column: str,
    spec: GridSpec | None,
    site_w: float | None,
    averaging_s: float | None,
) -> tuple[str | None, str | None]:
    """Check one version, and take its worst verdict."""
    if spec is None:
        return None, None
    cells = known.filter(["time_ns", "meter_period_s"]).assign(
        power_w=known[column], entity_count=1, expected_count=1, covered_share=1.0
    )
    rows = grid_check(cells, spec, site_w=site_w, averaging_s=averaging_s)
    worst = min(rows["verdict"], key=_WORST_FIRST.index)
    said = "; ".join(f"{row.requirement}: {row.verdict}" for row in rows.itertuples())
    return worst, said
