"""Rows over memory units: how busy the busiest is, by placement, and what no placement beats."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import log_ticks
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, MAX_LINES, distinct, finish, nothing
from workbench.plot._style.text import digits, label, percent, plural
from workbench.tables import ROW_SHARDING

# What may vary between the rows of the table, and how its axis is named.
_VARIED = {
    "hot_row_count": "most popular rows {apart} [rows]",
    "copy_count": "copies of each hot row [units that hold it]",
    "unit_count": "memory units [count]",
    "top_row_share": "look-ups on the most popular row [% of all]",
}
_SHAPES = ("circle", "diamond", "square", "triangle-up", "star", "hexagon", "triangle-down")
_BOUND = "no placement can be better"
_MOST_TICKS = 16
_NEAR, _UNEQUAL = 1.05, 1.1


def row_sharding(sharding: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how far the busiest unit is above the mean, for each placement.

    Parameters
    ----------
    sharding
        Table :data:`workbench.tables.ROW_SHARDING`; tables of several popularities or numbers
        of units may be put together with ``pandas.concat``.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per placement, and the bound, against what varies: hot rows, copies, units
        or the share of the most popular row. The title states what is left to gain.
    """
    ROW_SHARDING.check(sharding)
    if sharding.empty:
        return nothing(
            "No rows were placed, so no unit has anything to do.",
            claim="No placement of rows to show",
            source=source,
            synthetic=synthetic,
        )
    varied = next((n for n in _VARIED if sharding[n].nunique() > 1), "top_row_share")
    places = np.sort(sharding[varied].unique())
    figure = go.Figure()
    names = sharding["placement"].drop_duplicates().tolist()[: MAX_LINES - 1]
    for position, name in enumerate(names):
        mine = sharding[sharding["placement"] == name].groupby(varied)["max_to_mean_ratio"].max()
        _add_line(figure, mine, places, name=label(name, 30), position=position)
    _add_line(figure, sharding.groupby(varied)["bound_ratio"].max(), places, name=_BOUND)
    shown = sharding[["max_to_mean_ratio", "bound_ratio"]].to_numpy().ravel()
    figure.update_yaxes(title="busiest unit [× mean], logarithmic", type="log", **log_ticks(shown))
    copies = int(sharding["copy_count"].max())
    apart = f"with {copies:,} cop{'y' if copies == 1 else 'ies'}" if copies else "in a cache"
    figure.update_xaxes(title=_VARIED[varied].format(apart=apart), **_ticks(places, varied))
    figure.update_layout(hovermode="x unified")
    return finish(
        figure,
        claim=_claim(sharding, varied),
        source=source,
        synthetic=synthetic,
        note=_note(sharding, varied),
    )


def _add_line(
    figure: go.Figure,
    values: pd.Series,
    places: np.ndarray,
    *,
    name: str,
    position: int | None = None,
) -> None:
    """Add one line; x counts the places, as they grow by factors and may start with 0."""
    keep = extremes(values.to_numpy())
    shown = values.iloc[keep]
    is_bound = position is None
    look = {"color": COLOURS["neutral"], "dash": "dot"} if is_bound else distinct(position or 0)
    symbol = "line-ew-open" if is_bound else _SHAPES[(position or 0) % len(_SHAPES)]
    figure.add_scatter(
        x=np.searchsorted(places, shown.index.to_numpy()),
        y=shown.to_numpy(),
        name=name,
        mode="lines+markers" if len(shown) <= 4 * _MOST_TICKS else "lines",
        line={**look, "width": 2},
        marker={"symbol": symbol, "size": 8},
        hovertemplate="%{y:.3~g} × the mean",
    )


def _ticks(places: np.ndarray, varied: str) -> dict[str, list[int] | list[str]]:
    every = -(-len(places) // _MOST_TICKS)
    at = list(range(0, len(places), every))
    share = varied == "top_row_share"
    words = [percent(float(places[i])) if share else f"{int(places[i]):,}" for i in at]
    return {"tickvals": at, "ticktext": words}


def _claim(sharding: pd.DataFrame, varied: str) -> str:
    """Say how good the best placement is at both ends of what varies."""
    ordered = sharding.sort_values([varied, "max_to_mean_ratio"], kind="stable")
    ends = [ordered[ordered[varied] == value].iloc[0] for value in ordered[varied].iloc[[0, -1]]]
    first, last = ends
    units = plural(int(last["unit_count"]), "unit")
    best = f"{label(last['placement'], 20)} leaves the busiest of {units} at "
    best += f"{digits(last['max_to_mean_ratio'])} × the mean"
    if varied == "hot_row_count":
        how = f"{int(last['copy_count'])} copies of" if last["copy_count"] else "A cache for"
        return (
            f"{how} the {int(last['hot_row_count']):,} most popular rows: at best the busiest of "
            f"{units} goes from {digits(first['max_to_mean_ratio'])} × the mean to "
            f"{digits(last['max_to_mean_ratio'])} ×"
        )
    if varied == "unit_count":
        return (
            f"At best the busiest of {int(first['unit_count']):,} units has "
            f"{digits(first['max_to_mean_ratio'])} × the mean, the busiest of "
            f"{int(last['unit_count']):,} has {digits(last['max_to_mean_ratio'])} ×"
        )
    if last["bound_ratio"] > _UNEQUAL:
        return f"{best}: one row alone has {percent(float(last['top_row_share']))} of the look-ups"
    if last["max_to_mean_ratio"] <= _NEAR:
        return f"{best}: the rows can be balanced"
    return best


def _note(sharding: pd.DataFrame, varied: str) -> str:
    """Say what is the same for all points, and whether a point stands for several settings."""
    notes = [
        "contiguous: blocks of rows in order of popularity",
        "LPT: most popular row first, to the least busy unit",
        f"{plural(int(sharding['row_count'].max()), 'row')}",
    ]
    if varied != "unit_count" and sharding["unit_count"].nunique() == 1:
        notes.append(plural(int(sharding["unit_count"].iloc[0]), "unit"))
    if varied != "top_row_share" and sharding["top_row_share"].nunique() == 1:
        share = percent(float(sharding["top_row_share"].iloc[0]))
        notes.append(f"the most popular row has {share} of the look-ups")
    if sharding.duplicated(["placement", varied]).any():
        notes.append("where several settings share a place, the highest is drawn")
    return " · ".join(notes)
