"""Limits that stand out on a power curve: least energy, kept speed, knee."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench._numbers import in_range
from workbench.errors import WorkbenchError
from workbench.tables import POWER_CURVE, POWER_KNEES

_CURVE = ["gpu", "job", "configuration"]
_OF_ENERGY = (
    "least_energy_limit_w", "saving_ratio", "speed_loss_ratio", "time_increase_ratio",
    "edp_limit_w", "ed2p_limit_w",
)  # fmt: skip
_MEDIANS = (
    *_OF_ENERGY, "smallest_limit_w", "largest_limit_w", "kept_speed_limit_w", "knee_limit_w",
    "per_watt_limit_w",
)  # fmt: skip


def power_knees(curve: pd.DataFrame, *, kept_speed_share: float = 0.95) -> pd.DataFrame:
    """Find the limits that stand out: least energy, most speed per watt, the knee, and others.

    They answer different questions. Least energy ignores time; energy x time weighs both; the
    smallest limit that keeps a speed is what somebody chooses who has no time to give. Each
    configuration has its own best limit; a row gives medians over configurations, each at its
    own. What one limit does that is set for all of them is another question, and costs more:
    that is in the curve of the job (``per="job"``).

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.POWER_CURVE`, best one curve per configuration.
    kept_speed_share
        Speed to keep, as a share of that at the largest limit.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_KNEES`, one row per GPU and job. Without power there
        are no energies, and what needs them is missing.

    Raises
    ------
    TableError
        If ``curve`` is not that table.
    WorkbenchError
        If the share is none, a curve keeps it nowhere, or a row was extrapolated: knees of
        guesses are no finding.

    Notes
    -----
    With speed s and energy e against the largest limit: saving ``1 - e``, lost speed ``1 - s``,
    added time ``1 / s - 1``, EDP ``e / s``, ED2P ``e / s^2``. Least energy is most speed per
    watt *drawn*; ``per_watt_limit_w`` is most speed per watt of *limit*, which is what a site
    has to provide. The knee is the point farthest above the straight line between the ends of
    the curve, both axes scaled to 1; it takes three limits and a curve above that line. Of
    limits that are equally good the smallest is given.

    References
    ----------
    Satopää, Albrecht, Irwin, Raghavan: Finding a "kneedle" in a haystack, ICDCSW 2011, for the
    knee as the discrete point of maximum curvature.
    """
    POWER_CURVE.check(curve)
    in_range("kept_speed_share", kept_speed_share, least=0, most=1, strictly=True)
    if curve["is_extrapolated"].any():
        msg = "the curve has extrapolated rows; leave them out: curve[~curve['is_extrapolated']]"
        raise WorkbenchError(msg)
    if curve.empty:
        return POWER_KNEES.empty()
    each = pd.DataFrame(
        [
            dict(zip(_CURVE, key, strict=True))
            | _knees(own.sort_values("limit_w", ignore_index=True), kept_speed_share)
            for key, own in curve.groupby(_CURVE, sort=False)
        ]
    )
    by_job = each.groupby(["gpu", "job"], sort=False)
    table = by_job[list(_MEDIANS)].median()
    table["configuration_count"] = by_job.size()
    table["kept_speed_share"] = kept_speed_share
    table["doubt"] = [
        _doubts({str(name): value for name, value in row.items()})
        for row in table.to_dict("records")
    ]
    return POWER_KNEES.check(POWER_KNEES.cast(table.reset_index()))


def _knees(own: pd.DataFrame, kept_speed_share: float) -> dict[str, Any]:
    """Find the limits of one curve, in order of its limits."""
    limit, speed, energy = (
        own[name].to_numpy(dtype=np.float64) for name in ("limit_w", "speed_ratio", "energy_ratio")
    )
    found: dict[str, Any] = {
        "smallest_limit_w": limit[0],
        "largest_limit_w": limit[-1],
        "kept_speed_limit_w": _kept(own, kept_speed_share),
        "per_watt_limit_w": limit[np.argmax(speed / limit)],
        "knee_limit_w": _knee(limit, speed),
    }
    energy = np.where(speed > 0, energy, np.nan)
    if np.isnan(energy).all():
        return found | dict.fromkeys(_OF_ENERGY, np.nan)
    best = int(np.nanargmin(energy))
    return found | {
        "least_energy_limit_w": limit[best],
        "saving_ratio": 1 - energy[best],
        "speed_loss_ratio": 1 - speed[best],
        "time_increase_ratio": 1 / speed[best] - 1,
        "edp_limit_w": limit[np.nanargmin(energy / speed)],
        "ed2p_limit_w": limit[np.nanargmin(energy / speed**2)],
    }


def _kept(own: pd.DataFrame, kept_speed_share: float) -> float:
    """Give the smallest limit that keeps a speed, or say that the curve has none."""
    kept = own.loc[own["speed_ratio"] >= kept_speed_share, "limit_w"]
    if kept.empty:
        name = ", ".join(str(own[each].iloc[0]) for each in _CURVE)
        msg = (
            f"{name} keeps {own['speed_ratio'].max():.4g} of the speed at most, not "
            f"{kept_speed_share:g}; speed_ratio is against the largest limit, where it is 1"
        )
        raise WorkbenchError(msg)
    return float(kept.min())


def _knee(limit: np.ndarray, speed: np.ndarray) -> float:
    """Give the limit farthest above the line between both ends, if there is one."""
    if len(limit) < 3 or speed[-1] <= speed[0]:
        return float("nan")
    across = (limit - limit[0]) / (limit[-1] - limit[0])
    above = (speed - speed[0]) / (speed[-1] - speed[0]) - across
    at = int(above.argmax())
    return float(limit[at]) if above[at] > 0 else float("nan")


def _doubts(row: dict[str, Any]) -> str:
    """Say what does not look like the effect of a limit."""
    doubts = []
    if row["speed_loss_ratio"] < 0:
        doubts.append(
            f"{-100 * row['speed_loss_ratio']:.1f} % faster at the lower limit, which no limit "
            "causes: noise of the measurement"
        )
    if row["least_energy_limit_w"] == row["smallest_limit_w"]:
        doubts.append("least energy at the smallest limit measured; it may lie lower")
    if pd.isna(row["least_energy_limit_w"]):
        doubts.append("no power is known, so no energy")
    if row["configuration_count"] == 1:
        doubts.append("one curve only")
    return "; ".join(doubts)
