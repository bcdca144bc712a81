"""Large rises and falls of power over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, power_unit, seconds
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, distinct, finish, nothing
from workbench.plot._style.text import plural
from workbench.tables import POWER_EDGES

_LOOKS = {"up": ("rise", "triangle-up"), "down": ("fall", "triangle-down")}
_MOST_POINTS = 2_000


def power_edges(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show every large rise and fall of power: when, and by how much.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_EDGES`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A mark per edge, rises above the axis and falls below it. The title states how many
        there are and the largest.
    """
    POWER_EDGES.check(table)
    if table.empty:
        return nothing(
            "Power never changes by the threshold within the window.",
            claim="No edges in the power",
            source=source,
            synthetic=synthetic,
        )
    rows = table.sort_values("start_ns", ignore_index=True)
    top = rows.iloc[int(rows["change_w"].abs().argmax())]
    factor, unit = power_unit(float(abs(top["change_w"])))
    after_min = (rows["start_ns"] - rows["start_ns"].iloc[0]) / 60e9
    figure = go.Figure()
    for position, (way, (noun, symbol)) in enumerate(_LOOKS.items()):
        part = np.flatnonzero((rows["direction"] == way).to_numpy())
        if not len(part):
            continue
        part = part[extremes(rows["change_w"].to_numpy()[part], _MOST_POINTS)]
        some = rows.iloc[part]
        figure.add_scatter(
            x=after_min.iloc[part], y=some["change_w"] / factor, mode="markers",
            name=plural(int((rows["direction"] == way).sum()), noun), customdata=some["dur_s"],
            marker={"symbol": symbol, "size": 9, "color": distinct(position)["color"]},
            hovertemplate=f"{noun} by %{{y:.3g}} {unit} in %{{customdata:g}} s<extra></extra>",
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": colour("neutral"), "width": 1})
    figure.update_xaxes(title="time since the first edge [min]")
    figure.update_yaxes(title=f"change of power [{unit}]")
    counts = rows["direction"].value_counts()
    said = [plural(int(counts.get(way, 0)), noun) for way, (noun, _) in _LOOKS.items()]
    size = amount(float(abs(top["change_w"])))
    largest = f"a {_LOOKS[str(top['direction'])][0]} by {size} in {seconds(float(top['dur_s']))}"
    claim = f"{' and '.join(said)}; the largest is {largest}"
    return finish(figure, claim=claim, source=source, synthetic=synthetic)
