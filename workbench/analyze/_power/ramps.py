"""The fastest changes of power over windows of a grid's making."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench._numbers import positive
from workbench.analyze._power.series import Series, uniform
from workbench.errors import WorkbenchError
from workbench.tables import POWER_RAMPS


def power_ramps(totals: pd.DataFrame, *, windows_s: Sequence[float] = (1, 10, 60)) -> pd.DataFrame:
    """Find the fastest rise and fall of power over each window.

    A ramp means nothing without its window: the same fall is 45 kW/s over 2 s and 1 kW/s over a
    minute. A window shorter than a cell, or than the time between two readings, cannot be
    measured and is listed without a number, so that it is not mistaken for a small one.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    windows_s
        Windows in seconds; each is measured over the nearest whole number of cells.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_RAMPS`, two rows per window. ``note`` says why a
        number is missing, or that the meter may have seen a part of the change only.

    Raises
    ------
    WorkbenchError
        If there is no window, one is not above 0, or the totals are not uniform.

    Notes
    -----
    The ramp over a window of *w* is ``max |P(t + w) - P(t)| / w`` over all *t* at which both
    cells are known. Nothing is interpolated.

    Examples
    --------
    >>> import pandas as pd
    >>> cells = pd.DataFrame({"time_ns": range(0, 4_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[5.0, 5, 9, 8], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> power_ramps(cells, windows_s=[1])["ramp_w_per_s"].tolist()
    [4.0, 1.0]
    """
    windows = [positive("each of windows_s", window) for window in windows_s]
    if not windows:
        msg = "windows_s is empty; give at least one window in seconds"
        raise WorkbenchError(msg)
    series = uniform(totals)
    rows = [row for window in windows for row in ramps_of(series, window)]
    table = pd.DataFrame(rows, columns=list(POWER_RAMPS.columns))
    return POWER_RAMPS.check(POWER_RAMPS.cast(table))


def ramps_of(series: Series, window_s: float) -> list[dict[str, Any]]:
    """Return the rows of one window: up, then down."""
    cells = round(window_s / series.period_s)
    empty = {
        "window_s": window_s, "measured_s": np.nan, "ramp_w_per_s": np.nan, "p99_w_per_s": np.nan,
        "change_w": np.nan, "start_ns": pd.NA, "end_ns": pd.NA, "covered_share": 0.0,
    }  # fmt: skip
    note = ""
    if window_s < series.resolved_s * (1 - 1e-9):
        note = f"shorter than {series.resolved_by}: cannot be seen"
    elif cells >= len(series.power_w):
        note = "longer than the totals"
    if note:
        return [{**empty, "direction": way, "note": note} for way in ("up", "down")]
    change = series.power_w[cells:] - series.power_w[:-cells]
    known = ~np.isnan(change)
    if not known.any():
        note = "no two known cells are that far apart"
        return [{**empty, "direction": way, "note": note} for way in ("up", "down")]
    measured_s = cells * series.period_s
    p99 = float(np.percentile(np.abs(change[known]), 99)) / measured_s
    base = {
        **empty, "measured_s": measured_s, "p99_w_per_s": p99,
        "covered_share": float(known.mean()),
    }  # fmt: skip
    return [base | _extreme(series, change, cells, sign) for sign in (1, -1)]


def _extreme(series: Series, change: Any, cells: int, sign: int) -> dict[str, Any]:
    """Return the largest change in one direction, and when it was."""
    way = "up" if sign > 0 else "down"
    at = int(np.nanargmax(sign * change))
    found = float(change[at])
    note = ""
    if cells * series.period_s < 2 * series.resolved_s * (1 - 1e-9):
        note = f"under twice {series.resolved_by}: may show a step in part"
    if sign * found <= 0:
        return {"direction": way, "ramp_w_per_s": 0.0, "note": "power never goes this way"}
    return {
        "direction": way,
        "ramp_w_per_s": abs(found) / (cells * series.period_s),
        "change_w": found,
        "start_ns": int(series.time_ns[at]),
        "end_ns": int(series.time_ns[at + cells]),
        "note": "between two neighbouring cells, which halve a step inside one"
        if cells == 1
        else note,
    }
