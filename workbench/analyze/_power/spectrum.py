"""At which frequencies power moves, and which of them the meter can see at all."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import not_negative, whole_number
from workbench.analyze._power.series import (
    Floats,
    at_meter_pace,
    longest_stretch,
    movement,
    uniform,
)
from workbench.tables import POWER_PEAKS, POWER_SPECTRUM

# Half power of a moving average of one second: sin(pi f) / (pi f) = 1 / sqrt(2).
_HALF_POWER_HZ_S = 0.442947
_LEAST_CELLS = 16
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
    Two things limit what is seen: nothing is known above half the sampling frequency (it is
    folded below), and a sensor that averages over a time weakens all that moves faster.

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
        Gaps up to this many cells are interpolated. Then the longest stretch without a gap is
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
    >>> import numpy as np, pandas as pd
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
    part = longest_stretch(series, longest_gap_cells=longest_gap_cells, least_cells=_LEAST_CELLS)
    size = min(segment_cells, len(part.power_w))
    frequency, density = signal.welch(
        movement(part.power_w), fs=1 / series.period_s, window="hann", nperseg=size,
        detrend="constant",
    )  # fmt: skip
    frequency, density = frequency[1:], density[1:]
    whole = density.sum()
    table = pd.DataFrame({"frequency_hz": frequency, "density_w2_per_hz": density})
    table["variance_share"] = (density / whole).clip(0, 1) if whole > 0 else 0.0
    table["sensor_ratio"] = sensor_response(frequency, averaging_s)
    table["nyquist_hz"] = series.nyquist_hz
    table["half_power_hz"] = _HALF_POWER_HZ_S / averaging_s if averaging_s else np.nan
    table["segment_count"] = (len(part.power_w) - size // 2) // (size - size // 2)
    table["covered_share"] = part.covered_share
    table["filled_count"] = int(part.is_filled.sum())
    return POWER_SPECTRUM.check(POWER_SPECTRUM.cast(table))


def sensor_response(frequency_hz: Floats, averaging_s: float | None) -> Floats:
    """Return the share of an amplitude that averaging leaves; missing if it is not known."""
    if averaging_s is None:
        return np.full(len(frequency_hz), np.nan)
    return np.abs(np.sinc(frequency_hz * averaging_s))


def half_power_hz(averaging_s: float) -> float:
    """Return the frequency at which averaging takes half of the power."""
    return _HALF_POWER_HZ_S / averaging_s if averaging_s else np.inf


def power_peaks(
    spectrum: pd.DataFrame, *, peaks: int = 5, prominence_db: float = 3.0
) -> pd.DataFrame:
    """Find the peaks of a spectrum, and which of them are harmonics of one another.

    The highest peak is usually the training step. Its harmonics only say that power does not
    move like a sine; a peak without a fundamental is something else that repeats, or a faster
    movement that sampling has folded down.

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
        If ``peaks`` is no whole number from 1, or ``prominence_db`` is negative.

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
    decibel = 10 * np.log10(np.maximum(density, density.max() * 1e-12))
    found, _ = signal.find_peaks(decibel, prominence=max(prominence_db, 1e-9))
    found = found[np.argsort(-density[found], kind="stable")][:peaks]
    frequency = rows["frequency_hz"].to_numpy()
    width = float(frequency[1] - frequency[0])
    near = rows["variance_share"].rolling(2 * _LOBE_BINS + 1, center=True, min_periods=1).sum()
    table = pd.DataFrame(
        {
            "frequency_hz": frequency[found],
            "period_s": 1 / frequency[found],
            "density_w2_per_hz": density[found],
            "variance_share": near.to_numpy()[found].clip(0, 1),
            "resolution_hz": width,
        }
    )
    table["harmonic"], table["fundamental_hz"] = _harmonics(frequency[found], width)
    return POWER_PEAKS.check(POWER_PEAKS.cast(table))


def _harmonics(frequency_hz: Floats, width_hz: float) -> tuple[list[int], list[float]]:
    """Match every peak with the fundamentals that are higher than it."""
    orders: list[int] = []
    bases: list[float] = []
    for frequency in frequency_hz.tolist():
        order, base = 1, frequency
        for known, known_order in zip(frequency_hz.tolist(), orders, strict=False):
            n = round(frequency / known)
            reach = (n + 1) / 2 * width_hz * (1 + 1e-9)
            close = abs(frequency - n * known) <= reach < known / 4
            if known_order == 1 and 2 <= n <= 10 and close:
                order, base = n, known
                break
        orders.append(order)
        bases.append(base)
    return orders, bases
