"""Fluctuation of power: ramps, spectra, frequency bands, and swings inside a training step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats, Ints, not_negative, positive, whole_number
from workbench.analyze._power.series import (
    Series,
    at_meter_pace,
    longest_stretch,
    movement,
    uniform,
)
from workbench.errors import WorkbenchError
from workbench.tables import (
    LOGGED_STEPS,
    POWER_PEAKS,
    POWER_SPECTRUM,
    POWER_SWINGS,
)

# The fastest changes of power over windows of a grid's making.


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
    is_known = ~np.isnan(change)
    if not is_known.any():
        note = "no two known cells are that far apart"
        return [{**empty, "direction": way, "note": note} for way in ("up", "down")]
    measured_s = cells * series.period_s
    p99 = float(np.percentile(np.abs(change[is_known]), 99)) / measured_s
    base = {
        **empty, "measured_s": measured_s, "p99_w_per_s": p99,
        "covered_share": float(is_known.mean()),
    }  # fmt: skip
    return [base | _extreme(series, change, cells, sign) for sign in (1, -1)]


def _extreme(series: Series, change: Any, cells: int, sign: int) -> dict[str, Any]:
    way = "up" if sign > 0 else "down"
    at = int(np.nanargmax(sign * change))
    result = float(change[at])
    note = ""
    if cells * series.period_s < 2 * series.resolved_s * (1 - 1e-9):
        note = f"under twice {series.resolved_by}: may show a step in part"
    if sign * result <= 0:
        return {"direction": way, "ramp_w_per_s": 0.0, "note": "power never goes this way"}
    return {
        "direction": way,
        "ramp_w_per_s": abs(result) / (cells * series.period_s),
        "change_w": result,
        "start_ns": int(series.time_ns[at]),
        "end_ns": int(series.time_ns[at + cells]),
        "note": "between two neighbouring cells, which halve a step inside one"
        if cells == 1
        else note,
    }


# Half power of a moving average of one second: sin(pi f) / (pi f) = 1 / sqrt(2).
_HALF_POWER_HZ_S = 0.442947
_LEAST_CELLS = 16
# The main lobe of the Hann window spreads a line over two bins on either side.
_LOBE_BINS = 2


def power_spectrum(
    totals: pd.DataFrame,
    *,
    averaging_s: float | None = None,
    segment_cells: int = 256,
    longest_gap_cells: int = 2,
) -> pd.DataFrame:
    """Estimate the power spectral density of power, and say what hides part of it.

    A step that repeats every 10 s is a peak at 0.1 Hz, with harmonics where it is not a sine.
    What is above half the sampling frequency is folded below, and a sensor that averages over a
    time weakens all that moves faster.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    averaging_s
        Time each reading is the mean of, in seconds: 1 for ``power.draw`` since Ampere, 0 for
        an instant. None if it is not known; then ``sensor_ratio`` is missing.
    segment_cells
        Cells per segment, after those that are shorter than the time between readings are
        joined to it; more resolve closer frequencies, fewer average more.
    longest_gap_cells
        Gaps up to this many cells are interpolated. Then the longest segment without a gap is
        used, and ``covered_share`` says how much that is.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_SPECTRUM`, in order of frequency, without f = 0.
        Densities are as measured: they are not corrected for the sensor.

    Raises
    ------
    WorkbenchError
        If the totals are not uniform, hold fewer than 16 cells in a row, or an option is out of
        its range.

    Notes
    -----
    Welch's method: Hann window, overlap of one half, mean of each segment removed. Averaging
    over *T* leaves ``|sin(pi f T) / (pi f T)|`` of an amplitude, and half of the power at
    ``0.443 / T``.

    References
    ----------
    P. D. Welch, IEEE Trans. Audio Electroacoust. 15 (1967) 70.

    Examples
    --------
    >>> cells = pd.DataFrame({"time_ns": np.arange(512) * 1_000_000_000})
    >>> cells = cells.assign(power_w=9 + np.sin(np.arange(512) * np.pi / 4), entity_count=1)
    >>> table = power_spectrum(cells.assign(expected_count=1, covered_share=1.0))
    >>> float(table.loc[table["density_w2_per_hz"].idxmax(), "frequency_hz"])
    0.125
    """
    from scipy import signal

    whole_number("segment_cells", segment_cells, least=_LEAST_CELLS)
    if averaging_s is not None:
        not_negative("averaging_s", averaging_s)
    series = at_meter_pace(uniform(totals))
    piece = longest_stretch(series, longest_gap_cells=longest_gap_cells, least_cells=_LEAST_CELLS)
    size = min(segment_cells, len(piece.power_w))
    frequency, density = signal.welch(
        movement(piece.power_w), fs=1 / series.period_s, window="hann", nperseg=size,
        detrend="constant",
    )  # fmt: skip
    # f = 0 holds what detrending left of the mean, no fluctuation.
    frequency, density = frequency[1:], density[1:]
    total = density.sum()
    table = pd.DataFrame({"frequency_hz": frequency, "density_w2_per_hz": density})
    table["variance_share"] = (density / total).clip(0, 1) if total > 0 else 0.0
    table["sensor_ratio"] = sensor_response(frequency, averaging_s)
    table["nyquist_hz"] = series.nyquist_hz
    table["half_power_hz"] = _HALF_POWER_HZ_S / averaging_s if averaging_s else np.nan
    table["segment_count"] = (len(piece.power_w) - size // 2) // (size - size // 2)
    table["covered_share"] = piece.covered_share
    table["filled_count"] = int(piece.is_filled.sum())
    return POWER_SPECTRUM.of(table)


def sensor_response(frequency_hz: Floats, averaging_s: float | None) -> Floats:
    """Return the share of an amplitude that averaging leaves; missing if it is not known."""
    if averaging_s is None:
        return np.full(len(frequency_hz), np.nan)
    return np.abs(np.sinc(frequency_hz * averaging_s))


def half_power_hz(averaging_s: float) -> float:
    return _HALF_POWER_HZ_S / averaging_s if averaging_s else np.inf


def power_peaks(
    spectrum: pd.DataFrame, *, peaks: int = 5, prominence_db: float = 3.0
) -> pd.DataFrame:
    """Find the peaks of a spectrum, and which of them are harmonics of one another.

    The highest peak is usually the training step. A peak without a fundamental is something else
    that repeats, or a faster fluctuation that sampling has folded down.

    Parameters
    ----------
    spectrum
        Table :data:`workbench.tables.POWER_SPECTRUM`.
    peaks
        Most peaks to return.
    prominence_db
        How far a peak must stand out from its surroundings, in decibels of density.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_PEAKS`, highest first; empty if nothing stands out.

    Raises
    ------
    WorkbenchError
        If ``peaks`` is not a whole number from 1, or ``prominence_db`` is negative.

    Notes
    -----
    A peak is the n-th harmonic (n from 2 to 10) of a higher one at *f* if it is within
    ``(n + 1) / 2`` bins of ``n f``: both frequencies are known to half a bin. Where that is more
    than a quarter of *f*, anything would match, and nothing does.
    """
    from scipy import signal

    POWER_SPECTRUM.check(spectrum)
    whole_number("peaks", peaks, least=1)
    not_negative("prominence_db", prominence_db)
    rows = spectrum.sort_values("frequency_hz", ignore_index=True)
    density = rows["density_w2_per_hz"].to_numpy()
    if len(rows) < 3 or not density.max() > 0:
        return POWER_PEAKS.empty()
    # A density of 0 has no decibels; 120 dB below the highest is as good as none.
    decibel = 10 * np.log10(np.maximum(density, density.max() * 1e-12))
    result, _ = signal.find_peaks(decibel, prominence=max(prominence_db, 1e-9))
    result = result[np.argsort(-density[result], kind="stable")][:peaks]
    frequency = rows["frequency_hz"].to_numpy()
    width = float(frequency[1] - frequency[0])
    # The window spreads a line over its main lobe: the share of a peak is the sum of these bins.
    near = rows["variance_share"].rolling(2 * _LOBE_BINS + 1, center=True, min_periods=1).sum()
    table = pd.DataFrame({
        "frequency_hz": frequency[result], "period_s": 1 / frequency[result],
        "density_w2_per_hz": density[result], "variance_share": near.to_numpy()[result].clip(0, 1),
        "resolution_hz": width,
    })  # fmt: skip
    table["harmonic"], table["fundamental_hz"] = _harmonics(frequency[result], width)
    return POWER_PEAKS.of(table)


def _harmonics(frequency_hz: Floats, width_hz: float) -> tuple[list[int], list[float]]:
    """Match every peak with the fundamentals that are higher than it."""
    orders: list[int] = []
    bases: list[float] = []
    for frequency in frequency_hz.tolist():
        order, base = 1, frequency
        for fundamental, known_order in zip(frequency_hz.tolist(), orders, strict=False):
            n = round(frequency / fundamental)
            reach = (n + 1) / 2 * width_hz * (1 + 1e-9)
            close = abs(frequency - n * fundamental) <= reach < fundamental / 4
            if known_order == 1 and 2 <= n <= 10 and close:
                order, base = n, fundamental
                break
        orders.append(order)
        bases.append(base)
    return orders, bases


# How much of the AC component of power lies in bands of frequencies.


class Periodogram(NamedTuple):
    """Energy per frequency of the longest segment of a series, without f = 0."""

    frequency_hz: Floats
    density: Floats
    width_hz: float
    covered_share: float

    def share(self, low_hz: float, high_hz: float) -> float:
        total = float(self.density.sum())
        piece = float(self._part(low_hz, high_hz).sum())
        return min(piece / total, 1.0) if total > 0 else 0.0

    def rms(self, low_hz: float, high_hz: float) -> float:
        return float(np.sqrt(self._part(low_hz, high_hz).sum() * self.width_hz))

    def _part(self, low_hz: float, high_hz: float) -> Floats:
        # A frequency that is an end but for its rounding belongs to the band below.
        low, high = (end * (1 + 1e-9) for end in (low_hz, high_hz))
        return self.density[(self.frequency_hz > low) & (self.frequency_hz <= high)]


def periodogram(series: Series, *, longest_gap_cells: int) -> Periodogram:
    from scipy import signal

    series = at_meter_pace(series)
    piece = longest_stretch(series, longest_gap_cells=longest_gap_cells, least_cells=16)
    frequency, density = signal.periodogram(
        movement(piece.power_w), fs=1 / series.period_s, window="hann", detrend="constant"
    )
    return Periodogram(frequency[1:], density[1:], float(frequency[1]), piece.covered_share)


# How far power moves inside a training step.


def power_swings(
    totals: pd.DataFrame, *, steps: pd.DataFrame | None = None, step_s: float | None = None
) -> pd.DataFrame:
    """Measure the swing of power in every training step, or in windows of one step period.

    The swing is what feeders, generators and the grid have to follow. Cells hide whatever moves
    faster than they are long.

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
    return POWER_SWINGS.of(table)


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
    # What is left behind the last whole window is dropped.
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
    lows = np.searchsorted(series.time_ns, starts)
    counts = np.maximum(np.searchsorted(series.time_ns, ends) - lows, 0)
    window = np.repeat(np.arange(len(starts)), counts)
    cell = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    power = pd.Series(series.power_w[np.repeat(lows, counts) + cell])
    by_window = power.groupby(window)
    result = by_window.agg(["min", "max", "mean", "count"]).reindex(range(len(starts)))
    low, high = (by_window.quantile(q).reindex(range(len(starts))) for q in (0.05, 0.95))
    count = result["count"].fillna(0).astype("int64")
    expected = np.maximum(np.rint((ends - starts) / (series.period_s * 1e9)), 1)
    # Cells between two readings are a straight line: they add nothing to what was measured.
    seen = (ends - starts >= 2e9 * series.resolved_s) | (series.resolved_s == series.period_s)
    enough = (count >= 2) & seen
    return pd.DataFrame({
        "start_ns": starts, "end_ns": ends, "low_w": low.where(enough),
        "high_w": high.where(enough), "swing_w": (high - low).where(enough),
        "range_w": (result["max"] - result["min"]).where(enough), "mean_w": result["mean"],
        "cell_count": count, "covered_share": np.minimum(count / expected, 1),
    })  # fmt: skip
