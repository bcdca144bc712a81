"""Power before and after smoothing, and the charge of the store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.plot._style.power_text import amount, energy_unit, joules, power_unit
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, finish, nothing
from workbench.plot._style.text import label, percent
from workbench.tables import POWER_SMOOTHING, SMOOTHING_SUMMARY

_MOST_POINTS = 1_500
_LINES = (
    ("power_w", "measured", "neutral", "solid", 1.5),
    ("load_w", "drawn by the machines", "memory", "dot", 2),
    ("smoothed_w", "seen by the grid", "communication", "dash", 2.5),
)


def power_smoothing(
    table: pd.DataFrame,
    *,
    summary: pd.DataFrame | None = None,
    zoom_s: float = 120,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show power before and after smoothing where it moves most, and the charge throughout.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_SMOOTHING`.
    summary
        Table :data:`workbench.tables.SMOOTHING_SUMMARY` of it; the title then states cost and
        verdict.
    zoom_s
        Length of the upper panel in seconds, around the widest movement.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Above a short stretch of power, below the charge of the store (or, without one, power of
        the whole time).
    """
    POWER_SMOOTHING.check(table)
    known = table[table["power_w"].notna()].sort_values("time_ns", ignore_index=True)
    if known.empty:
        return nothing(
            "No cell was smoothed; analyze.power_smoothing needs a stretch without gaps.",
            claim="No smoothed power to show",
            source=source,
            synthetic=synthetic,
        )
    after_min = (known["time_ns"] - known["time_ns"].iloc[0]) / 60e9
    figure = make_subplots(rows=2, cols=1, vertical_spacing=0.2, row_heights=[0.62, 0.38])
    factor, unit = power_unit(float(known["power_w"].max()))
    has_load = bool((known["load_w"] != known["power_w"]).any())
    has_store = bool((known["storage_w"] != 0).any())
    # Two lines on top of one another say less than one.
    shown = [line for line in _LINES if line[0] != "load_w" or (has_load and has_store)]
    zoomed = _zoom(known, zoom_s)
    for line in shown:
        _trace(figure, line, after_min.iloc[zoomed], known.iloc[zoomed], factor)
    if has_store:
        unit_below = _charge(figure, after_min, known)
    else:
        unit_below = f"power [{unit}]"
        for line in shown:
            _trace(figure, line, after_min, known, factor, row=2)
    figure.update_layout(height=430)
    figure.update_xaxes(title="time [min]")
    figure.update_xaxes(title="", row=1)
    figure.update_yaxes(title=f"power [{unit}]", row=1)
    figure.update_yaxes(title=unit_below, row=2)
    note = f"above: {zoom_s:g} s around the widest movement, below: all of it"
    filled = int(known["is_filled"].sum())
    note += f" · {filled:,} cells interpolated" if filled else ""
    if len(known) < len(table):
        note += f" · {percent(len(known) / len(table))} of the cells, the longest without a gap"
    return finish(
        figure, claim=_claim(known, summary), source=source, synthetic=synthetic, note=note
    )


def _zoom(known: pd.DataFrame, zoom_s: float) -> Any:
    """Choose the cells around the largest change within a third of the zoom."""
    time = known["time_ns"].to_numpy()
    period = float(time[1] - time[0]) / 1e9 if len(time) > 1 else 1.0
    cells = max(int(zoom_s / period), 2)
    power = known["power_w"]
    near = power.rolling(max(cells // 3, 1), min_periods=1)
    at = int((near.max() - near.min()).to_numpy().argmax()) - cells // 6
    first = min(max(at - cells // 2, 0), max(len(known) - cells, 0))
    return np.arange(first, min(first + cells + 1, len(known)))


def _trace(
    figure: go.Figure,
    line: tuple[str, str, str, str, float],
    after_min: pd.Series,
    rows: pd.DataFrame,
    factor: float,
    *,
    row: int = 1,
) -> None:
    """Draw one version of power."""
    column, name, look, dash, width = line
    values = rows[column].to_numpy() / factor
    keep = extremes(values, _MOST_POINTS)
    figure.add_scatter(
        x=after_min.to_numpy()[keep].round(4), y=values[keep], mode=_mode(keep), name=name,
        showlegend=row == 1, line={"color": colour(look), "dash": dash, "width": width},
        hovertemplate=f"{name}: %{{y:,.4g}} at %{{x:.2f}} min<extra></extra>", row=row, col=1,
    )  # fmt: skip


def _mode(keep: Any) -> str:
    """Draw a line, or a mark where there is one point only."""
    return "lines" if len(keep) > 1 else "markers"


def _charge(figure: go.Figure, after_min: pd.Series, known: pd.DataFrame) -> str:
    """Draw the charge, as a share where the capacity is known; return the title of its axis."""
    limited = bool(known["stored_share"].notna().any())
    if limited:
        values, title = known["stored_share"].to_numpy(), "charge [%]"
        figure.update_yaxes(tickformat=".0%", range=[-0.03, 1.03], row=2)
    else:
        stored = known["stored_j"].to_numpy()
        factor, unit = energy_unit(float(np.abs(stored).max()))
        values, title = stored / factor, f"charge [{unit}]"
    keep = extremes(values, _MOST_POINTS)
    figure.add_scatter(
        x=after_min.to_numpy()[keep].round(4), y=values[keep], mode=_mode(keep),
        name="charge of the store", showlegend=False,
        line={"color": colour("storage"), "width": 1.5},
        hovertemplate="%{y:.3g} at %{x:.2f} min<extra></extra>", row=2, col=1,
    )  # fmt: skip
    return title


def _claim(known: pd.DataFrame, summary: pd.DataFrame | None) -> str:
    """State swing before and after, the cost and the verdict."""
    percentiles = (np.percentile(known[name], [1, 99]) for name in ("power_w", "smoothed_w"))
    swings = [float(high - low) for low, high in percentiles]
    claim = f"Swing {amount(swings[0])} before, {amount(swings[1])} after"
    if summary is None or SMOOTHING_SUMMARY.check(summary).empty:
        return claim
    after = summary.iloc[-1]
    more = 100 * (float(after["energy_ratio"]) - 1)
    claim += f", for {abs(more):.2g} % {'more' if more >= 0 else 'less'} energy"
    if after["storage_w"] > 0:
        claim += f" and a store of {amount(after['storage_w'])}, "
        claim += joules(after["storage_j"])
    if pd.notna(after["verdict"]):
        was, left = (label(each, 12) for each in summary["verdict"].iloc[[0, -1]])
        claim += f"; grid: {was} before, {left} after"
    return claim
