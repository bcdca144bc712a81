"""How fast power rises and falls, by the window it is measured over."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, power_unit, seconds
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, distinct, finish, nothing
from workbench.plot._style.text import digits, plural
from workbench.tables import POWER_RAMPS

_SYMBOLS = {"up": "triangle-up", "down": "triangle-down"}
_NAMES = {"up": "fastest rise", "down": "fastest fall"}
_MOST_LABELLED = 8


def power_ramps(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the fastest rise and fall of power against the window it is measured over.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_RAMPS`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Rises, falls and what 99 % of all changes stay below, on logarithmic axes. Windows that
        cannot be measured are named. The title states the fastest ramp and its window.
    """
    POWER_RAMPS.check(table)
    rows = table[table["ramp_w_per_s"].notna()].sort_values("window_s", ignore_index=True)
    if rows.empty:
        reasons = "; ".join(sorted(set(table["note"].astype(str)))[:2])
        return nothing(
            reasons or "The table has no windows; analyze.power_ramps measures them.",
            claim="No ramp can be measured",
            source=source,
            synthetic=synthetic,
        )
    top = rows.iloc[int(rows["ramp_w_per_s"].argmax())]
    factor, unit = power_unit(float(top["ramp_w_per_s"]))
    figure = go.Figure()
    highest = rows.groupby("window_s")["ramp_w_per_s"].transform("max")
    rows["_on_top"] = rows["ramp_w_per_s"] >= highest
    for position, way in enumerate(("up", "down")):
        _line(figure, rows[rows["direction"] == way], way, position, factor)
    slow = rows.drop_duplicates("window_s")
    slow = slow.iloc[extremes(slow["p99_w_per_s"].to_numpy())]
    figure.add_scatter(
        x=slow["measured_s"], y=_positive(slow["p99_w_per_s"] / factor), mode="lines+markers",
        name="99 % of all changes are slower",
        marker={"symbol": "line-ew-open", "size": 9, "color": colour("neutral")},
        line={"color": colour("neutral"), "dash": "dot", "width": 1.5},
        hovertemplate=f"%{{y:.3g}} {unit}/s over %{{x:g}} s<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="window [s]", type="log", dtick="D2")
    figure.update_yaxes(title=f"change / window [{unit}/s]", type="log", dtick="D2")
    claim = (
        f"Power changes by up to {amount(float(top['ramp_w_per_s']))}/s over "
        f"{seconds(float(top['measured_s']))}"
    )
    last = rows[rows["window_s"] == rows["window_s"].max()]
    if last["window_s"].iloc[0] > top["window_s"]:
        claim += f", {amount(float(last['ramp_w_per_s'].max()))}/s over "
        claim += seconds(float(last["measured_s"].iloc[0]))
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=_note(table, rows))


def _line(figure: go.Figure, rows: pd.DataFrame, way: str, position: int, factor: float) -> None:
    """Draw one direction."""
    if rows.empty:
        return
    rows = rows.iloc[extremes(rows["ramp_w_per_s"].to_numpy())]
    value = _positive(rows["ramp_w_per_s"] / factor)
    labelled = len(rows) <= _MOST_LABELLED
    figure.add_scatter(
        x=rows["measured_s"], y=value, mode="lines+markers+text" if labelled else "lines",
        name=_NAMES[way],
        text=["" if pd.isna(each) else digits(each) for each in value] if labelled else None,
        textposition=["top right" if on_top else "bottom left" for on_top in rows["_on_top"]],
        marker={"symbol": _SYMBOLS[way], "size": 10}, line={**distinct(position), "width": 2},
        cliponaxis=False, hovertemplate="%{y:.3g} over %{x:g} s<extra></extra>",
    )  # fmt: skip


def _positive(values: pd.Series) -> pd.Series:
    """Leave out what a logarithmic axis cannot show."""
    return values.where(values > 0, np.nan)


def _note(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Name the windows that cannot be measured, and what is not known."""
    unseen = table[table["ramp_w_per_s"].isna()].drop_duplicates("window_s")
    parts = []
    if len(unseen):
        named = ", ".join(f"{window:g} s" for window in unseen["window_s"].head(4))
        more = ", ..." if len(unseen) > 4 else ""
        cannot = f"{plural(len(unseen), 'window')} cannot be measured ({named}{more})"
        parts.append(cannot)
    known = float(rows["covered_share"].min())
    if known < 1:
        parts.append(f"down to {known:.1%} of the windows have both ends known")
    return " · ".join(parts)
