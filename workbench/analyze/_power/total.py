"""The power of all meters together, in cells well below the time between two readings."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from workbench._numbers import positive
from workbench.analyze._lib.energy_curves import EnergyCurves
from workbench.analyze._lib.power_signal import Signal, known_up_to
from workbench.analyze._power.grid import cells_of, edges_of, is_unknown
from workbench.tables import POWER, POWER_TOTALS

# A cell averages what lies in it: at an eighth of the time between readings, 1/16 at most of a
# reading that stands out is lost, at the whole of it a half.
_CELLS_PER_READING = 8
_LEAST_COVERED_SHARE = 0.5


def power_sum(power: pd.DataFrame, *, period_s: float | None = None) -> pd.DataFrame:
    """Give the sum over all meters as one uniform series.

    This is :func:`workbench.analyze.power_grid` and :func:`workbench.analyze.power_totals` in one
    call, for whoever needs nothing but the sum, and in cells so short that they do not blunt
    dips and ramps.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope; see
        :func:`workbench.analyze.power_of_scope`.
    period_s
        Length of a cell, in s; if None, the longest of 1, 2, 5 times a power of ten that is no
        more than an eighth of the median time between readings.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOTALS`: ``time_ns``, ``power_w``, ``entity_count``,
        ``expected_count``, ``covered_share``, ``meter_period_s``. A cell that any meter does not
        cover has no power; one that never reads is expected, and not in the sum. Without
        readings it is empty.

    Raises
    ------
    WorkbenchError
        If one meter holds another, or ``period_s`` is no positive number.
    ValueError
        If there are too many cells; a clock that jumps makes them.

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": list("aabb"), "power_w": [100.0, 300, 50, 50]}
    ... ).astype({"entity": "category"})
    >>> power_sum(readings, period_s=0.5)["power_w"].tolist()
    [200.0, 300.0]
    """
    POWER.check(power)
    asked = None if period_s is None else positive("period_s", period_s)
    curves = EnergyCurves(power, longest_gap_periods=3.0)
    period = asked or _short_s(curves.period_s())
    if period == 0 or curves.signal is None:
        return POWER_TOTALS.empty()
    return _summed(curves.signal, period)


def _short_s(meter_period_s: float) -> float:
    """Give a cell of which windows of whole seconds are multiples."""
    if meter_period_s <= 0:
        return 0.0
    most = meter_period_s / _CELLS_PER_READING * (1 + 1e-9)
    power = math.floor(math.log10(most))
    return max(
        float(f"{lead}e{n}")
        for n in (power, power - 1)
        for lead in (1, 2, 5)
        if float(f"{lead}e{n}") <= most
    )


def _summed(readings: Signal, period_s: float) -> pd.DataFrame:
    """Add up entity after entity: a grid of all of them would not fit a laptop."""
    edges = edges_of(readings, period_s, None, None)
    expected = len(readings.names)
    power_w = np.zeros(len(edges) - 1)
    count = np.zeros(len(edges) - 1, dtype=np.int64)
    for _, energy_j, covered_ns in known_up_to(readings, edges):
        mean, share = cells_of(energy_j, covered_ns, int(edges[1] - edges[0]))
        unknown = is_unknown(share, _LEAST_COVERED_SHARE)
        power_w += np.where(unknown, 0.0, mean).sum(axis=0)
        count += (~unknown).sum(axis=0)
    # A sum without a meter that comes and goes looks like a dip; without one that never reads,
    # it is too low everywhere, and ``covered_share`` says so.
    reading = max(int((np.diff(readings.first) > 0).sum()), 1)
    has_period = ~np.isnan(readings.period_s)
    table = pd.DataFrame(
        {
            "time_ns": edges[:-1],
            "power_w": np.where(count == reading, power_w, np.nan),
            "entity_count": count,
            "expected_count": expected,
            "covered_share": count / expected,
            "meter_period_s": readings.period_s[has_period].max() if has_period.any() else np.nan,
        }
    )
    return POWER_TOTALS.check(POWER_TOTALS.cast(table))
