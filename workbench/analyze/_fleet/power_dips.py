"""Dips: times at which power fell below what is usual, however long they last."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._numbers import not_negative, positive, share_between
from workbench.analyze._fleet.phase_power import middles_of
from workbench.analyze._lib import intervals
from workbench.analyze._lib.energy_curves import SECOND, Floats
from workbench.tables import POWER_DIPS

_AT_WORK = 0.9  # quantile of the series that stands for power at work
_ROUNDS = 4

Flags = NDArray[np.bool_]


def power_dips(
    totals: pd.DataFrame,
    *,
    below_share: float = 0.7,
    window_s: float = 60.0,
    least_s: float = 2.0,
) -> pd.DataFrame:
    """Find the times at which power is far below what is usual around them.

    What is usual is the median of the window around a moment, over cells that are themselves no
    dip; inside an outage that is longer than the window it is carried over from both sides. So
    an outage of an hour does not become its own normal.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`: one uniform series.
    below_share
        A dip is below this share of what is usual.
    window_s
        Window of the median, in s.
    least_s
        Shorter dips are left out, and shorter returns to usual power do not end a dip, in s. A
        dip is as long as straight lines between readings are low; one that is shorter than the
        time between readings may be missed altogether.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_DIPS`. ``shortfall_j`` is the energy that was not drawn,
        over the cells that are known. Unknown cells neither begin nor end a dip; between two low
        ones they belong to it.

    Raises
    ------
    WorkbenchError
        If the series is not uniform, or an option is no positive number.

    Notes
    -----
    A cell is low if ``p < below_share * usual``. Usual power starts as the 90 % quantile of the
    series, then is the rolling median over the cells that are not low, by straight lines
    where the window holds none, until nothing changes (four rounds at most). A job that really
    works at less power for most of nine tenths of the time looks like one long dip.

    Examples
    --------
    >>> from workbench.tables import POWER_TOTALS
    >>> power_dips(POWER_TOTALS.empty()).empty
    True
    """
    low_share = share_between("below_share", below_share)
    window, least = positive("window_s", window_s), not_negative("least_s", least_s)
    _, watts = middles_of(totals)
    if np.isnan(watts).all() or len(watts) < 2:
        return POWER_DIPS.empty()
    period_ns = int(totals["time_ns"].iloc[1]) - int(totals["time_ns"].iloc[0])
    usual = _usual(watts, low_share, max(round(window * SECOND / period_ns), 1))
    first = _runs(watts < low_share * usual, watts, least * SECOND / period_ns)
    rows = [_row(totals, watts, usual, span, period_ns) for span in first]
    if not rows:
        return POWER_DIPS.empty()
    return POWER_DIPS.check(POWER_DIPS.cast(pd.DataFrame(rows)))


def _usual(watts: Floats, low_share: float, width: int) -> Floats:
    """Give the power that is usual at each cell."""
    level = np.full(len(watts), np.nanquantile(watts, _AT_WORK))
    low = np.zeros(len(watts), dtype=bool)
    for number in range(_ROUNDS):
        now = watts < low_share * level
        if number > 0 and (now == low).all():
            break
        low = now
        level = _carried(watts, low, width, level)
    return level


def _carried(watts: Floats, low: Flags, width: int, otherwise: Floats) -> Floats:
    """Take the rolling median of the cells that are not low, and lines where there are none."""
    kept = pd.Series(np.where(low, np.nan, watts))
    median = kept.rolling(width, center=True, min_periods=max(width // 4, 1)).median().to_numpy()
    there = np.flatnonzero(~np.isnan(median))
    if not len(there):
        return otherwise
    level: Floats = np.interp(np.arange(len(watts)), there, median[there])
    return level


def _runs(low: Flags, watts: Floats, least_cells: float) -> list[tuple[int, int]]:
    """Give first and last low cell of each dip; short returns and unknown cells do not end one."""
    at = np.flatnonzero(low)
    if not len(at):
        return []
    # Known cells that are back at usual power, counted before each cell.
    back = np.cumsum(~low & ~np.isnan(watts))
    apart = np.diff(back[at])
    cut = (apart > 0) & (apart >= least_cells)
    firsts, lasts = at[np.r_[True, cut]], at[np.r_[cut, True]]
    long = lasts - firsts + 1 >= least_cells
    return list(zip(firsts[long].tolist(), lasts[long].tolist(), strict=True))


def _row(
    totals: pd.DataFrame, watts: Floats, usual: Floats, span: tuple[int, int], period_ns: int
) -> dict[str, object]:
    first, last = span
    part = watts[first : last + 1]
    known = ~np.isnan(part)
    level = usual[first : last + 1][known]
    short = np.maximum(level - part[known], 0.0)
    neighbours = [watts[at] if 0 <= at < len(watts) else np.nan for at in (first - 1, last + 1)]
    start = int(totals["time_ns"].iloc[first])
    return {
        "start_ns": start,
        "end_ns": start + (last - first + 1) * period_ns,
        "dur_s": (last - first + 1) * period_ns / SECOND,
        "usual_w": level.mean(),
        "mean_w": part[known].mean(),
        "lowest_w": part[known].min(),
        "depth_share": float(np.clip(1 - part[known].mean() / level.mean(), 0, 1)),
        "shortfall_j": short.sum() * period_ns / SECOND,
        "covered_share": known.mean(),
        "is_cut": bool(np.isnan(neighbours).any()),
    }


def overlap_s(start_ns: int, end_ns: int, starts: object, ends: object) -> float:
    """Give how long any of some intervals lies inside one other, in s."""
    from_ns = np.maximum(np.asarray(starts, dtype=np.int64), start_ns)
    to_ns = np.minimum(np.asarray(ends, dtype=np.int64), end_ns)
    return intervals.measure(from_ns, to_ns) / SECOND
