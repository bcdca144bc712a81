"""The power of all meters together, at the pace at which they read."""

from __future__ import annotations

import pandas as pd

from workbench._numbers import positive
from workbench.analyze._energy_curves import EnergyCurves
from workbench.analyze.power_grid import power_grid, power_totals
from workbench.tables import POWER, POWER_TOTALS


def power_sum(power: pd.DataFrame, *, period_s: float | None = None) -> pd.DataFrame:
    """Give the sum over all meters as one uniform series.

    This is :func:`workbench.analyze.power_grid` and :func:`workbench.analyze.power_totals` in one
    call, for whoever needs nothing but the sum.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope; see
        :func:`workbench.analyze.power_of_scope`.
    period_s
        Length of a cell, in s; the median time between readings if None.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOTALS`: ``time_ns``, ``power_w``, ``entity_count``,
        ``expected_count``, ``covered_share``. A cell that any meter does not cover has no
        power. Without readings it is empty.

    Raises
    ------
    WorkbenchError
        If one meter holds another, or ``period_s`` is no positive number.

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": list("aabb"), "power_w": [100.0, 300, 50, 50]}
    ... ).astype({"entity": "category"})
    >>> power_sum(readings)["power_w"].tolist()
    [250.0]
    """
    POWER.check(power)
    asked = None if period_s is None else positive("period_s", period_s)
    period = asked or EnergyCurves(power, longest_gap_periods=3.0).period_s()
    if period == 0 or power.empty:
        return POWER_TOTALS.empty()
    return power_totals(power_grid(power, period_s=period))
