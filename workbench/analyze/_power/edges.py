"""Large rises and falls of power: where a job starts, stops, waits or fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench._numbers import positive
from workbench.analyze._power.series import Floats, Ints, Series, runs, uniform
from workbench.errors import WorkbenchError
from workbench.tables import POWER_EDGES, POWER_RAMPS

# Values that are looked at together; more would not stay in the cache.
_BLOCK = 1_000_000


def power_edges(totals: pd.DataFrame, *, threshold_w: float, window_s: float) -> pd.DataFrame:
    """List every rise and fall of at least a threshold within a window.

    Edges of many megawatts within seconds are what operators of Summit looked for to tell
    the start and the end of large jobs from noise. Detections that overlap are one edge, drawn
    out to the turning points around them, so that one long rise counts once.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    threshold_w
        Smallest change that counts, in watts.
    window_s
        Time within which it must happen, in seconds; at least one cell.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_EDGES`. Across a gap nothing is found.

    Raises
    ------
    WorkbenchError
        If a number is not above 0, the window is shorter than a cell or the time between
        readings, or the totals are not uniform.

    Notes
    -----
    Cell *k* ends a rise if ``P(k) - min P(k - m .. k)`` reaches the threshold, with *m* cells in
    the window; the rise begins at that minimum. Both ends move on as long as power rises. Rises
    that overlap in time are merged, from their lowest cell to the highest one after it. Falls
    are rises of ``-P``.

    References
    ----------
    Shin et al., Revealing Power, Energy and Thermal Dynamics of a 200PF Pre-Exascale
    Supercomputer, SC'21 (4 MW in 10 s).

    Examples
    --------
    >>> import pandas as pd
    >>> cells = pd.DataFrame({"time_ns": range(0, 6_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[1.0, 1, 6, 9, 9, 2], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> power_edges(cells, threshold_w=5, window_s=2)["change_w"].tolist()
    [8.0, -7.0]
    """
    positive("threshold_w", threshold_w)
    positive("window_s", window_s)
    series = uniform(totals)
    cells = int(window_s / series.period_s + 1e-9)
    if cells < 1 or window_s < series.resolved_s * (1 - 1e-9):
        msg = f"window_s is {window_s:g} s, shorter than {series.resolved_by}"
        raise WorkbenchError(msg)
    rows = []
    for first, end in zip(*runs(~np.isnan(series.power_w)), strict=True):
        part = series.power_w[first:end]
        for sign in (1.0, -1.0):
            starts, ends = _rises(sign * part, threshold_w, cells)
            rows += [(first + a, first + b) for a, b in zip(starts, ends, strict=True)]
    return POWER_EDGES.check(POWER_EDGES.cast(_table(series, rows)))


def _rises(power: Floats, threshold_w: float, cells: int) -> tuple[list[int], list[int]]:
    """Return first and last cell of every merged rise of at least the threshold."""
    from scipy.ndimage import minimum_filter1d

    # The window of the filter ends at its cell: the lowest of the last cells and itself.
    size = cells + 1
    lowest = minimum_filter1d(power, size, mode="nearest", origin=(size - 1) // 2)
    reached = np.flatnonzero(power - lowest >= threshold_w)
    if not len(reached):
        return [], []
    begun = reached - _cells_back(power, reached, cells)
    first, last = _turning_points(power)
    return _merged(power, first[begun], last[reached])


def _cells_back(power: Floats, reached: Ints, cells: int) -> Ints:
    """Return how many cells before each the lowest of its window lies; the last if several."""
    size = cells + 1
    windows = np.lib.stride_tricks.sliding_window_view(np.r_[[np.inf] * cells, power], size)
    blocks = np.array_split(reached, 1 + len(reached) * size // _BLOCK)
    back = [np.argmin(windows[block][:, ::-1], axis=1) for block in blocks]
    return np.concatenate(back).astype(np.int64)


def _turning_points(power: Floats) -> tuple[Ints, Ints]:
    """Return where the rise that each cell is part of begins, and where it ends."""
    at = np.arange(len(power))
    rises = np.diff(power) > 0
    first = np.maximum.accumulate(np.where(np.r_[False, rises], 0, at))
    last = np.minimum.accumulate(np.where(np.r_[rises, False], len(power), at)[::-1])[::-1]
    return first, last


def _merged(power: Floats, begun: Ints, reached: Ints) -> tuple[list[int], list[int]]:
    """Join rises that overlap, and draw each out from its lowest to its highest cell."""
    far = np.maximum.accumulate(reached)
    heads = np.flatnonzero(np.r_[True, begun[1:] >= far[:-1]])
    starts, ends = [], []
    for head, tail in zip(heads, np.r_[heads[1:], len(begun)] - 1, strict=True):
        low, high = int(begun[head : tail + 1].min()), int(reached[tail])
        start = low + int(np.argmin(power[low : high + 1]))
        starts.append(start)
        ends.append(start + int(np.argmax(power[start : high + 1])))
    return starts, ends


def _table(series: Series, rows: list[tuple[int, int]]) -> pd.DataFrame:
    """Make the rows of the table, in order of time."""
    at = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
    start, end = at[:, 0], at[:, 1]
    change = series.power_w[end] - series.power_w[start]
    return pd.DataFrame(
        {
            "start_ns": series.time_ns[start],
            "end_ns": series.time_ns[end],
            "direction": np.where(change > 0, "up", "down"),
            "change_w": change,
            "start_w": series.power_w[start],
            "end_w": series.power_w[end],
            "dur_s": (end - start) * series.period_s,
        }
    )


# The fastest changes of power over windows of a grid's making.


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
