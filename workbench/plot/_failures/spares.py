"""The productive share against the number of spare nodes."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, finish, nothing
from workbench.plot._style.text import digits, percent, plural
from workbench.tables import SPARES

# Further spares that gain less than this are not worth a word.
_WORTH = 0.01


def spares(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the productive share against the number of spare nodes, and the cliff in it.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SPARES`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One line with the interval of its mean, and an upright one at the nodes in repair on
        average. The title states how many spares are enough.
    """
    SPARES.check(table)
    if table.empty:
        return nothing(
            "The table has no numbers of spares; analyze.spares makes them.",
            claim="No spares to compare",
            source=source,
            synthetic=synthetic,
        )
    rows = table.sort_values("spare_count", ignore_index=True)
    rows = rows.iloc[extremes(rows["productive_share"].to_numpy())].reset_index(drop=True)
    reach = (rows["high_share"] - rows["low_share"]).fillna(0) / 2
    figure = go.Figure()
    figure.add_scatter(
        x=rows["spare_count"],
        y=rows["productive_share"],
        error_y={"type": "data", "array": reach, "thickness": 1.2},
        mode="lines+markers",
        name="productive",
        line={"color": colour("productive"), "width": 2.5},
        customdata=rows["wait_min"],
        hovertemplate="%{x} spares: %{y:.1%}, a failure waits %{customdata:,.3g} min for one"
        "<extra></extra>",
    )
    load = float(rows["offered_load_ratio"].iloc[0])
    if math.isfinite(load):
        figure.add_vline(
            x=load,
            line={"color": colour("limit"), "dash": "dash", "width": 1.5},
            annotation_text=f"{digits(load)} nodes in repair on average",
            annotation_position="bottom right",
        )
    best = float(rows["productive_share"].max())
    enough = rows[rows["productive_share"] >= best - _WORTH].iloc[0]
    least = rows.iloc[0]
    claim = (
        f"{plural(int(enough['spare_count']), 'spare node')} are enough "
        f"({percent(enough['productive_share'])} productive); with {int(least['spare_count']):,} "
        f"it is {percent(least['productive_share'])}"
    )
    if best - float(least["productive_share"]) < _WORTH:
        claim = f"{plural(int(least['spare_count']), 'spare node')} are already enough"
    figure.update_xaxes(title="spare nodes", rangemode="tozero")
    figure.update_yaxes(title="productive share of GPU time [%]", tickformat=".0%", range=[0, 1.02])
    note = "below the nodes in repair the queue for spares never empties"
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)
