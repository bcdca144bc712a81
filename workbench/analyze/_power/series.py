"""A uniform series of power, its gaps, and its longest segment without one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats, Ints, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import POWER_TOTALS

Bools = NDArray[np.bool_]

# A mean of a cell is a difference of sums over all time, and no better than this.
_ROUNDING = 1e-9
# The time between readings is a median: single ones are a few per cent longer or shorter.
_JITTER = 0.05


class Series(NamedTuple):
    """Power in cells of equal length; what is missing is NaN.

    ``meter_period_s`` is the time between readings, 0 where it is not known.
    """

    time_ns: Ints
    power_w: Floats
    period_s: float
    meter_period_s: float = 0.0

    @property
    def resolved_s(self) -> float:
        """The shortest time over which a change can be seen: that of a cell, or of the meter."""
        return max(self.period_s, self.meter_period_s * (1 - _JITTER))

    @property
    def resolved_by(self) -> str:
        if self.meter_period_s * (1 - _JITTER) <= self.period_s:
            return f"a cell of {self.period_s:g} s"
        return f"the {self.meter_period_s:.4g} s between two readings"

    @property
    def nyquist_hz(self) -> float:
        return 0.5 / max(self.period_s, self.meter_period_s)

    @property
    def known_share(self) -> float:
        return float(np.mean(~np.isnan(self.power_w)))


class Stretch(NamedTuple):
    """The longest run of cells that are known, or were interpolated."""

    first: int
    power_w: Floats
    is_filled: Bools
    covered_share: float


def uniform(totals: pd.DataFrame) -> Series:
    """Read a series, or say why its cells are not of equal length."""
    POWER_TOTALS.check(totals)
    time_ns = totals["time_ns"].to_numpy(dtype=np.int64)
    power_w = totals["power_w"].to_numpy(dtype=np.float64, na_value=np.nan)
    remedy = "make totals with analyze.power_totals of one analyze.power_grid"
    if len(time_ns) < 2:
        msg = f"the totals have {len(time_ns)} cells, 2 are needed to know their period; {remedy}"
        raise WorkbenchError(msg)
    steps = np.diff(time_ns)
    period = int(steps[0])
    # Spectra and windows of cells need equal steps.
    if period <= 0 or (steps != period).any():
        row = int(np.flatnonzero(steps != steps[0])[0]) if period > 0 else 0
        msg = (
            f"the totals are not uniform: row {row + 1} comes {steps[row] / 1e9:g} s after "
            f"the one before, the first two are {period / 1e9:g} s apart; {remedy}"
        )
        raise WorkbenchError(msg)
    if np.isnan(power_w).all() or np.isinf(power_w).any():
        text = "has no known power" if np.isnan(power_w).all() else "has infinite power"
        msg = f"the series of {len(time_ns):,} cells {text}; {_why_unknown(totals) or remedy}"
        raise WorkbenchError(msg)
    meter_period_s = totals["meter_period_s"].max() if "meter_period_s" in totals else 0.0
    return Series(time_ns, power_w, period / 1e9, float(np.nan_to_num(meter_period_s)))


def at_meter_pace(series: Series) -> Series:
    """Join cells to the time between readings; a cell is unknown if a part of it is.

    Straight lines between readings have frequencies that nobody measured.
    """
    cells = max(round(series.meter_period_s / series.period_s), 1)
    count = len(series.power_w) // cells
    if cells == 1 or not count:
        return series
    power_w = series.power_w[: count * cells].reshape(count, cells).mean(axis=1)
    return series._replace(
        time_ns=series.time_ns[: count * cells : cells],
        power_w=power_w,
        period_s=series.period_s * cells,
    )


def _why_unknown(totals: pd.DataFrame) -> str:
    """Explain that readings exist, but never of all meters at once; "" if that is not the case."""
    most, expected = int(totals["entity_count"].max()), int(totals["expected_count"].max())
    if not 0 < most < expected or totals["power_w"].notna().any():
        return ""
    return (
        f"at most {most:,} of {expected:,} meters are known in one cell: is the clock of some off? "
        "leave those out, or pass least_covered_share to analyze.power_totals"
    )


def movement(power_w: Floats) -> Floats:
    """Return power less its mean; exactly 0 where it moves by no more than the rounding of sums."""
    if np.ptp(power_w) <= _ROUNDING * np.abs(power_w).max():
        return np.zeros(len(power_w))
    moved: Floats = power_w - power_w.mean()
    return moved


def runs(facts: Bools) -> tuple[Ints, Ints]:
    edges = np.diff(np.r_[False, facts, False].astype(np.int8))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def longest_stretch(series: Series, *, longest_gap_cells: int, least_cells: int) -> Stretch:
    """Interpolate short gaps between known cells, and take the longest run that results."""
    whole_number("longest_gap_cells", longest_gap_cells, least=0)
    power = series.power_w.copy()
    missing = np.isnan(power)
    filled = np.zeros(len(power), dtype=bool)
    for first, end in zip(*runs(missing), strict=True):
        if first > 0 and end < len(power) and end - first <= longest_gap_cells:
            filled[first:end] = True
    at = np.arange(len(power))
    power[filled] = np.interp(at[filled], at[~missing], power[~missing])
    firsts, ends = runs(~np.isnan(power))
    best = int(np.argmax(ends - firsts))
    first, end = int(firsts[best]), int(ends[best])
    if end - first < least_cells:
        msg = (
            f"the longest segment without a gap has {end - first:,} of {len(power):,} cells, "
            f"{least_cells} are needed; take a coarser period in analyze.power_grid, or allow "
            f"longer gaps than {longest_gap_cells} cells"
        )
        raise WorkbenchError(msg)
    piece = slice(first, end)
    return Stretch(first, power[piece], filled[piece], (end - first) / len(power))
