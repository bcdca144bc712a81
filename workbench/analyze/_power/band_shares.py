"""How much of the movement of power lies in bands of frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from workbench._numbers import not_negative, positive
from workbench.analyze._power.series import (
    Floats,
    Series,
    at_meter_pace,
    longest_stretch,
    movement,
    uniform,
)
from workbench.errors import WorkbenchError
from workbench.tables import BAND_SHARES


class Periodogram(NamedTuple):
    """Energy per frequency of the longest stretch of a series, without f = 0."""

    frequency_hz: Floats
    density: Floats
    width_hz: float
    covered_share: float

    def share(self, low_hz: float, high_hz: float) -> float:
        """Return the share of all energy that lies above one end, up to the other."""
        whole = float(self.density.sum())
        part = float(self._part(low_hz, high_hz).sum())
        return min(part / whole, 1.0) if whole > 0 else 0.0

    def rms(self, low_hz: float, high_hz: float) -> float:
        """Return the root mean square of that band."""
        return float(np.sqrt(self._part(low_hz, high_hz).sum() * self.width_hz))

    def _part(self, low_hz: float, high_hz: float) -> Floats:
        # A frequency that is an end but for its rounding belongs to the band below.
        low, high = (end * (1 + 1e-9) for end in (low_hz, high_hz))
        return self.density[(self.frequency_hz > low) & (self.frequency_hz <= high)]


def band_shares(
    totals: pd.DataFrame, bands: Sequence[tuple[float, float]], *, longest_gap_cells: int = 2
) -> pd.DataFrame:
    """Split the movement of power over bands of frequencies.

    Grids resonate in bands, so specifications limit the share of the energy inside one. The
    share is of what the meter can see; a band that reaches above Nyquist is partly unseen, and
    ``visible_share`` says how much of its width remains.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    bands
        Pairs of lower and upper end in Hz; they may overlap or leave gaps.
    longest_gap_cells
        As in :func:`power_spectrum`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.BAND_SHARES`, one row per band, in the order given.

    Raises
    ------
    WorkbenchError
        If there is no band, one is no pair of rising numbers, or the totals are not uniform.

    Notes
    -----
    One periodogram of the whole (Hann window, mean removed), because averaged segments cannot
    tell frequencies below ``1 / segment`` from a trend. The share of a band is its sum over
    ``low < f <= high``, divided by the sum over all ``f > 0``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> cells = pd.DataFrame({"time_ns": np.arange(512) * 1_000_000_000})
    >>> cells = cells.assign(power_w=9 + np.sin(np.arange(512) * np.pi / 4), entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> band_shares(cells, [(0, 0.1), (0.1, 0.2)])["energy_share"].round(3).tolist()
    [0.0, 1.0]
    """
    pairs = [_ends(band) for band in bands]
    if not pairs:
        msg = "bands is empty; give pairs of frequencies in Hz, e.g. [(0.1, 20)]"
        raise WorkbenchError(msg)
    series = uniform(totals)
    found = periodogram(series, longest_gap_cells=longest_gap_cells)
    nyquist = series.nyquist_hz
    rows = []
    for low, high in pairs:
        seen = low < nyquist
        visible = (min(high, nyquist) - low) / (high - low) if seen else 0.0
        share, rms = (found.share(low, high), found.rms(low, high)) if seen else (np.nan, np.nan)
        rows.append((low, high, share, rms, visible, nyquist, found.covered_share))
    table = pd.DataFrame(rows, columns=list(BAND_SHARES.columns))
    return BAND_SHARES.check(BAND_SHARES.cast(table))


def periodogram(series: Series, *, longest_gap_cells: int) -> Periodogram:
    """Make one periodogram of the longest stretch."""
    from scipy import signal

    series = at_meter_pace(series)
    part = longest_stretch(series, longest_gap_cells=longest_gap_cells, least_cells=16)
    frequency, density = signal.periodogram(
        movement(part.power_w), fs=1 / series.period_s, window="hann", detrend="constant"
    )
    return Periodogram(frequency[1:], density[1:], float(frequency[1]), part.covered_share)


def _ends(band: Sequence[float]) -> tuple[float, float]:
    """Check one band."""
    if len(band) != 2:
        msg = f"a band is a pair of frequencies in Hz, not {band!r}"
        raise WorkbenchError(msg)
    low = not_negative("the lower end of a band", band[0])
    high = positive("the upper end of a band", band[1])
    if low >= high:
        msg = f"the band {low:g}-{high:g} Hz is empty; its lower end must come first"
        raise WorkbenchError(msg)
    return low, high
