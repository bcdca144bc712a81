"""Imbalance of loads: where each measure lies between equal loads and one that is everything."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, finish, left_margin, nothing
from workbench.plot._style.text import digits, label, plural, safe, short
from workbench.tables import LOAD_IMBALANCE

_MOST_MEASURES = 20
_ROW_PX = 28
_LEADING = "max / mean"


def load_imbalance(
    imbalance: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show every measure of imbalance on its own scale, one dot per group of loads.

    Parameters
    ----------
    imbalance
        Table :data:`workbench.tables.LOAD_IMBALANCE`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One row per measure, from what equal loads give to what one load that is everything
        gives. The title names the least balanced group.
    """
    LOAD_IMBALANCE.check(imbalance)
    if imbalance.empty:
        return nothing(
            "No loads were compared, so there is no imbalance to show.",
            claim="No imbalance to show",
            source=source,
            synthetic=synthetic,
        )
    measures = imbalance["measure"].drop_duplicates().tolist()[:_MOST_MEASURES]
    drawn = imbalance[imbalance["measure"].isin(measures)]
    width = drawn["worst_ratio"] - drawn["equal_ratio"]
    place = ((drawn["value_ratio"] - drawn["equal_ratio"]) / width.where(width != 0)).fillna(0.0)
    keep = extremes(place.to_numpy())
    figure = go.Figure(_dots(drawn.iloc[keep], place.to_numpy()[keep], measures))
    if drawn["group"].nunique() > 1:
        figure.update_traces(text=None, mode="markers")
    ticks = [short(measure, 30) for measure in measures]
    figure.update_layout(
        height=max(len(ticks), 2) * _ROW_PX, margin_l=left_margin(ticks), hovermode="closest"
    )
    figure.update_xaxes(
        title="between equal loads [0] and one load that is everything [1]", range=[-0.03, 1.12]
    )
    figure.update_yaxes(
        tickvals=list(range(len(ticks))),
        ticktext=[safe(tick) for tick in ticks],
        range=[len(ticks) - 0.5, -0.5],
    )
    return finish(
        figure,
        claim=_claim(imbalance),
        source=source,
        synthetic=synthetic,
        note="each measure on its own scale; a dot's own value is on hover",
    )


def _dots(drawn: pd.DataFrame, place: np.ndarray, measures: list[str]) -> go.Scatter:
    rows = pd.Index(measures).get_indexer(pd.Index(drawn["measure"]))
    return go.Scatter(
        x=place,
        y=rows,
        mode="markers+text",
        text=[f"  {digits(value)}" for value in drawn["value_ratio"]],
        textposition="middle right",
        marker={"size": 9, "color": COLOURS["limit"], "opacity": 0.6},
        hovertext=[
            f"{label(group, 80)}<br>{label(measure, 40)} = {label(formula, 80)}<br>"
            f"{digits(value)}, from {digits(equal)} (equal) to {digits(worst)}"
            for group, measure, formula, value, equal, worst in zip(
                *(
                    drawn[name]
                    for name in (
                        "group", "measure", "formula", "value_ratio", "equal_ratio", "worst_ratio",
                    )
                ),
                strict=True,
            )
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


def _claim(imbalance: pd.DataFrame) -> str:
    """Name the group whose busiest load is furthest above its mean."""
    leading = imbalance[imbalance["measure"] == _LEADING]
    if leading.empty:
        return plural(imbalance["measure"].nunique(), "measure") + " of imbalance"
    worst = leading.sort_values("value_ratio", kind="stable").iloc[-1]
    busiest = (
        f"the busiest of {plural(int(worst['load_count']), 'load')} has "
        f"{digits(worst['value_ratio'])} × the mean"
    )
    if len(leading) == 1:
        return busiest[0].upper() + busiest[1:]
    name = label(worst["group"], 30)
    return f"{name[:1].upper()}{name[1:]} is least balanced of {len(leading):,}: {busiest}"
