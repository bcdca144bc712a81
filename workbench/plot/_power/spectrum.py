"""At which frequencies power moves, and what the meter cannot see."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, colour
from workbench.plot._style.text import digits, label, percent, plural, power_unit
from workbench.tables import (
    GRID_CHECK,
    POWER_PEAKS,
    POWER_SPECTRUM,
)

_MOST_PEAKS = 4
# Where averaging leaves less than this, what it took cannot be guessed back.
_LEAST_LEFT = 0.2


def power_spectrum(
    table: pd.DataFrame,
    *,
    peaks: pd.DataFrame | None = None,
    check: pd.DataFrame | None = None,
    step_s: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the spectrum of power up to what the meter can see, and the band a grid limits.

    Density against frequency, both logarithmic, as measured and, where averaging in the
    sensor is known, before it. Everything above Nyquist is marked as unseen. The title
    states the main period and the verdict.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_SPECTRUM`.
    peaks
        Table :data:`workbench.tables.POWER_PEAKS`; its highest are labelled with their period.
    check
        Table :data:`workbench.tables.GRID_CHECK`; its bands are shaded, with their verdict.
    step_s
        Length of a training step in seconds, marked for comparison.
    """
    frame = Frame(source, synthetic)
    POWER_SPECTRUM.check(table)
    rows = table[table["density_w2_per_hz"] > 0].sort_values("frequency_hz", ignore_index=True)
    if rows.empty:
        return frame.nothing(
            "Power does not move at all, so there is no frequency to show.",
            claim="No power fluctuation to show",
        )
    factor, unit = power_unit(math.sqrt(float(rows["density_w2_per_hz"].max())))
    figure = Draft()
    _lines(figure, rows, factor)
    limited = None
    if check is not None:
        limited = GRID_CHECK.check(check)[check["low_hz"].notna()]
    _grounds(figure, rows, limited)
    if step_s:
        _upright(figure, 1 / step_s, f"one step = {digits(step_s)} s", "dot")
    _labels(figure, peaks, factor)
    last = float(rows["nyquist_hz"].iloc[0]) * 1.6
    if limited is not None and len(limited):
        last = max(last, float(limited["high_hz"].max()) * 1.3)
    first = float(rows["frequency_hz"].iloc[0]) / 1.3
    figure.update_xaxes(
        title="frequency [Hz]", type="log", range=[math.log10(first), math.log10(last)]
    )
    figure.update_yaxes(title=f"density [{unit}²/Hz]", type="log", dtick=1)
    return frame.finish(
        figure, claim=_claim(rows, peaks, limited),
        note=_note(rows))  # fmt: skip


def _lines(figure: go.Figure, rows: pd.DataFrame, factor: float) -> None:
    rows = rows.iloc[extremes(rows["density_w2_per_hz"].to_numpy())]
    density = rows["density_w2_per_hz"] / factor**2
    mode = "lines" if len(rows) > 1 else "markers"
    figure.add_scatter(
        x=rows["frequency_hz"], y=density, mode=mode, name="as measured",
        line={"color": colour("series"), "width": 2},
        hovertemplate="%{y:.3g} at %{x:.4g} Hz<extra></extra>",
    )  # fmt: skip
    left = rows["sensor_ratio"]
    if left.notna().any() and left.min() < 1:
        figure.add_scatter(
            x=rows["frequency_hz"], y=(density / left**2).where(left >= _LEAST_LEFT), mode=mode,
            name="before the sensor's averaging", connectgaps=False,
            line={"color": colour("limit"), "width": 1.5, "dash": "dash"},
            hovertemplate="%{y:.3g} at %{x:.4g} Hz, if only averaging hid it<extra></extra>",
        )  # fmt: skip


def _grounds(figure: go.Figure, rows: pd.DataFrame, limited: pd.DataFrame | None) -> None:
    nyquist = float(rows["nyquist_hz"].iloc[0])
    half = float(rows["half_power_hz"].iloc[0])
    _upright(figure, nyquist, f"Nyquist {digits(nyquist)} Hz: unseen beyond", "solid")
    if math.isfinite(half) and half < nyquist * 1.5:
        _upright(
            figure, half, f"sensor -3 dB: {digits(half)} Hz", "dash", beside=max(half, nyquist)
        )
    if limited is None:
        return
    for row in limited.head(3).to_dict("records"):
        figure.add_vrect(
            x0=max(row["low_hz"], 1e-9), x1=row["high_hz"], line_width=0,
            fillcolor=colour("limit"), opacity=0.1, layer="below",
        )  # fmt: skip
        # Where the band is unseen there is room.
        position = max(row["low_hz"], nyquist) if row["high_hz"] > 2 * nyquist else row["low_hz"]
        figure.add_annotation(
            x=math.log10(max(position, 1e-9)), y=0.5, yref="paper", xanchor="left", xshift=6,
            showarrow=False, align="left",
            text=f"{row['low_hz']:g}-{row['high_hz']:g} Hz: at most {percent(row['limit'])}"
            f"<br><b>{label(row['verdict'], 12)}</b>",
        )  # fmt: skip


def _upright(
    figure: go.Figure, at_hz: float, text: str, dash: str, *, beside: float | None = None
) -> None:
    """Draw an upright line on a logarithmic axis and write beside it, or beside another."""
    is_step = dash == "dot"
    figure.add_vline(x=at_hz, line={"color": colour("neutral"), "dash": dash, "width": 1.5})
    figure.add_annotation(
        # plotly wants annotations on a logarithmic axis in logarithms.
        x=math.log10(beside or at_hz), y=0.02 if is_step else 0.92 if beside else 1, text=text,
        yref="paper", showarrow=False, xanchor="right" if is_step else "left",
        yanchor="bottom" if is_step else "top", xshift=-3 if is_step else 3, font={"size": 11},
    )  # fmt: skip


def _labels(figure: go.Figure, peaks: pd.DataFrame | None, factor: float) -> None:
    if peaks is None or POWER_PEAKS.check(peaks).empty:
        return
    subset = peaks.head(_MOST_PEAKS)
    words = [
        f"{digits(row['period_s'])} s" if row["harmonic"] == 1 else f"{row['harmonic']} x main"
        for row in subset.to_dict("records")
    ]
    figure.add_scatter(
        x=subset["frequency_hz"], y=subset["density_w2_per_hz"] / factor**2, mode="markers+text",
        name="peaks", text=words, textposition="top center", showlegend=False, cliponaxis=False,
        marker={"symbol": "diamond", "size": 8, "color": COLOURS["reference"]},
        hovertemplate="%{text}: %{x:.4g} Hz<extra></extra>",
    )  # fmt: skip


def _claim(rows: pd.DataFrame, peaks: pd.DataFrame | None, limited: pd.DataFrame | None) -> str:
    if peaks is not None and len(peaks):
        top = peaks.iloc[0]
        claim = f"Power repeats every {digits(top['period_s'])} s ({top['frequency_hz']:.3g} Hz), "
        claim += f"{percent(top['variance_share'])} of its AC component"
    else:
        top = rows.iloc[int(rows["density_w2_per_hz"].argmax())]
        claim = f"Power moves most at {top['frequency_hz']:.3g} Hz"
    if limited is not None and len(limited):
        row = limited.iloc[0]
        seen = float(row["visible_share"])
        visible = f" ({percent(seen)} of the band seen)" if seen < 1 else ""
        claim += f"; {row['low_hz']:g}-{row['high_hz']:g} Hz: {label(row['verdict'], 12)}{visible}"
    return claim


def _note(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    note = f"Welch, {plural(int(first['segment_count']), 'segment')}"
    if float(first["covered_share"]) < 1:
        note += f" of {percent(first['covered_share'])} of the cells (longest segment)"
    if int(first["filled_count"]):
        note += f", {int(first['filled_count']):,} cells interpolated"
    if np.isnan(float(first["half_power_hz"])) and rows["sensor_ratio"].isna().all():
        note += " · averaging in the sensor is not known"
    return note
