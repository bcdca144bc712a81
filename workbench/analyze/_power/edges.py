"""Large rises and falls of power: where a job starts, stops, waits or fails."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import positive
from workbench.analyze._power.series import Floats, Ints, Series, runs, uniform
from workbench.errors import WorkbenchError
from workbench.tables import POWER_EDGES

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
