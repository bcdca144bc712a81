"""How far power moves inside a training step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import positive
from workbench.analyze._power.series import Ints, Series, uniform
from workbench.errors import WorkbenchError
from workbench.tables import LOGGED_STEPS, POWER_SWINGS


def power_swings(
    totals: pd.DataFrame, *, steps: pd.DataFrame | None = None, step_s: float | None = None
) -> pd.DataFrame:
    """Measure the swing of power in every training step, or in windows of one step period.

    A synchronous job computes and communicates in turn on all GPUs at once, so its power rises
    and falls with every step. The swing is what feeders, generators and the grid have to follow.
    Cells hide whatever moves faster than they are long.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`, on the same clock; one row per step is given.
    step_s
        Length of consecutive windows from the first cell, in seconds, where no steps are known.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_SWINGS`. Fewer than two known cells leave the swing
        missing; ``covered_share`` says how much of the window is known. Without steps it is empty.

    Raises
    ------
    WorkbenchError
        If not exactly one of ``steps`` and ``step_s`` is given, a window is shorter than two
        cells or readings, there are steps but none lies in the totals, or the totals are not
        uniform.

    Notes
    -----
    ``swing_w`` is the 95th minus the 5th percentile of the cells that begin in the window,
    ``range_w`` the largest minus the smallest.

    Examples
    --------
    >>> import pandas as pd
    >>> cells = pd.DataFrame({"time_ns": range(0, 8_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[9.0, 5, 9, 5, 9, 5, 9, 5], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> power_swings(cells, step_s=4)["range_w"].tolist()
    [4.0, 4.0]
    """
    if (steps is None) == (step_s is None):
        msg = "give either steps (as logged) or step_s (the length of one step), not both"
        raise WorkbenchError(msg)
    series = uniform(totals)
    if steps is not None:
        number, starts, ends = _logged(steps, series)
    else:
        number, starts, ends = _windows(positive("step_s", step_s), series)
    table = _measured(series, starts, ends)
    table.insert(0, "step", number)
    return POWER_SWINGS.check(POWER_SWINGS.cast(table))


def _logged(steps: pd.DataFrame, series: Series) -> tuple[pd.Series, Ints, Ints]:
    """Return the steps that lie in the totals, or say that none of them does."""
    LOGGED_STEPS.check(steps)
    first, last = series.time_ns[0], series.time_ns[-1] + round(series.period_s * 1e9)
    inside = (steps["start_ns"] < last) & (steps["end_ns"] > first)
    if len(steps) and not inside.any():
        msg = (
            f"none of {len(steps):,} steps lies in the totals, which span {first} to {last} ns; "
            "are both on the same clock? analyze.power_clock_offset estimates the difference"
        )
        raise WorkbenchError(msg)
    rows = steps[inside].reset_index(drop=True)
    return rows["step"].astype("Int64"), rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()


def _windows(step_s: float, series: Series) -> tuple[pd.Series, Ints, Ints]:
    """Cut the totals into windows; what is left of the last one is no window."""
    if step_s < 2 * series.resolved_s:
        msg = (
            f"a step of {step_s:g} s is shorter than twice {series.resolved_by}, which "
            "cannot show its swing; make finer totals if the meter reads often enough"
        )
        raise WorkbenchError(msg)
    count = int(len(series.time_ns) * series.period_s / step_s + 1e-9)
    bounds = series.time_ns[0] + np.rint(np.arange(count + 1) * step_s * 1e9).astype(np.int64)
    return pd.Series(pd.array([None] * count, dtype="Int64")), bounds[:-1], bounds[1:]


def _measured(series: Series, starts: Ints, ends: Ints) -> pd.DataFrame:
    """Take percentiles and extremes of the cells that begin in each window."""
    lows = np.searchsorted(series.time_ns, starts)
    counts = np.maximum(np.searchsorted(series.time_ns, ends) - lows, 0)
    window = np.repeat(np.arange(len(starts)), counts)
    cell = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    power = pd.Series(series.power_w[np.repeat(lows, counts) + cell])
    by_window = power.groupby(window)
    found = by_window.agg(["min", "max", "mean", "count"]).reindex(range(len(starts)))
    low, high = (by_window.quantile(q).reindex(range(len(starts))) for q in (0.05, 0.95))
    count = found["count"].fillna(0).astype("int64")
    expected = np.maximum(np.rint((ends - starts) / (series.period_s * 1e9)), 1)
    # Cells between two readings are a straight line: they add nothing to what was measured.
    seen = (ends - starts >= 2e9 * series.resolved_s) | (series.resolved_s == series.period_s)
    enough = (count >= 2) & seen
    return pd.DataFrame(
        {
            "start_ns": starts,
            "end_ns": ends,
            "low_w": low.where(enough),
            "high_w": high.where(enough),
            "swing_w": (high - low).where(enough),
            "range_w": (found["max"] - found["min"]).where(enough),
            "mean_w": found["mean"],
            "cell_count": count,
            "covered_share": np.minimum(count / expected, 1),
        }
    )
