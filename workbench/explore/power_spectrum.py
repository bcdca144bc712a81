"""Explore the spectrum of power, and which critical band it would keep."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import GridSpec
from workbench.explore._controls import numbers
from workbench.explore._panel import Explorer

_UNKNOWN = -1.0
_SENSORS = (
    ("instant", 0.0), ("1 s", 1.0), ("2 s", 2.0), ("10 s", 10.0), ("not known", _UNKNOWN),
)  # fmt: skip
_START = "critical band"


def power_spectrum(
    totals: pd.DataFrame,
    *,
    spec: GridSpec | None = None,
    step_s: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose a critical band, its cap, and what the sensor averages over; see the verdict.

    Starts at the band that is quoted most, 0.1 to 20 Hz with at most 20 % of the energy.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    spec
        Where the controls of the band start.
    step_s
        Length of a training step in seconds, marked for comparison.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.power_spectrum`.
    """
    start = spec if spec and spec.band_share is not None else analyze.grid_spec(_START)
    spectra = cache(
        lambda averaging_s: analyze.power_spectrum(
            totals, averaging_s=None if averaging_s == _UNKNOWN else averaging_s
        )
    )
    label = {"step_s": step_s, "source": source, "synthetic": synthetic}
    return Explorer(
        partial(_draw, totals=totals, spectra=spectra, label=label),
        low=numbers("band from [Hz]", (0.05, 0.1, 0.2), start.band_low_hz or 0.0),
        high=numbers("band to [Hz]", (0.25, 1, 3, 20), start.band_high_hz or 0.0),
        cap=numbers("at most [%]", (10, 20, 30, 50), 100 * (start.band_share or 0.0)),
        averaging=widgets.Dropdown(
            options=_SENSORS, value=_UNKNOWN, description="sensor averages over"
        ),
    )


def _draw(
    *,
    low: float,
    high: float,
    cap: float,
    averaging: float,
    totals: pd.DataFrame,
    spectra: Any,
    label: dict[str, Any],
) -> go.Figure:
    band = GridSpec("critical band", band_low_hz=low, band_high_hz=high, band_share=cap / 100)
    check = analyze.grid_check(
        totals, band, averaging_s=None if averaging == _UNKNOWN else averaging
    )
    spectrum = spectra(averaging)
    peaks = analyze.power_peaks(spectrum)
    return plot.power_spectrum(spectrum, peaks=peaks, check=check, **label)
