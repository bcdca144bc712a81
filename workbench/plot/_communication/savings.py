"""Figures of what exact sizes and faster communication would save."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import Frame, distinct
from workbench.plot._style.text import digits, share_text
from workbench.tables import ALL_TO_ALL_PADDING, COMMUNICATION_SPEEDUP


def all_to_all_padding(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show by layer what an all-to-all with exact sizes saves of the padded one.

    Savings of all traffic, and of that of the busiest rank. The title states the ranges.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.ALL_TO_ALL_PADDING`.
    """
    frame = Frame(source, synthetic)
    ALL_TO_ALL_PADDING.check(table)
    if table.empty:
        why = "The table has no layers; analyze.all_to_all_padding makes it of expert loads."
        return frame.nothing(why, claim="No expert loads to show")
    figure = Draft()
    rows = table.sort_values("layer", kind="stable")
    names = {"saved_share": "all traffic", "busiest_saved_share": "traffic of the busiest rank"}
    for position, (column, name) in enumerate(names.items()):
        drawn = rows.iloc[extremes(rows[column].to_numpy())]
        figure.add_scatter(
            mode="lines+markers", x=drawn["layer"].to_numpy(), y=100 * drawn[column].to_numpy(),
            name=name, line=distinct(position), hovertemplate="layer %{x}: %{y:.1f} %",
        )  # fmt: skip
    figure.update_xaxes(title="layer")
    figure.update_yaxes(title="saved of the padded traffic [%]", rangemode="tozero")
    ends = [share_text(float(rows["saved_share"].agg(end))) for end in ("min", "max")]
    claim = f"Exact sizes save {ends[0]} to {ends[1]} of the padded traffic, at most "
    claim += f"{share_text(float(rows['busiest_saved_share'].max()))} of the busiest rank's"
    note = "arithmetic on loads, not measured; without oversubscription the busiest rank decides"
    return frame.finish(figure, claim=claim, note=note)


def communication_speedup(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much faster communication must be, by its exposed share of the step.

    One line. The title states both ends of it.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.COMMUNICATION_SPEEDUP`.
    """
    frame = Frame(source, synthetic)
    COMMUNICATION_SPEEDUP.check(table)
    rows = table.dropna(subset=["speedup_ratio"]).sort_values("communication_share", kind="stable")
    if rows.empty:
        why = "No share is large enough to save that much of a step, at any speed-up."
        return frame.nothing(why, claim="No speed-up is enough", is_answer=True)
    drawn = rows.iloc[extremes(rows["speedup_ratio"].to_numpy(np.float64))]
    figure = Draft()
    figure.add_scatter(
        mode="lines+markers", x=100 * drawn["communication_share"].to_numpy(),
        y=drawn["speedup_ratio"].to_numpy(np.float64), name="speed-up", line=distinct(0),
        hovertemplate="%{x:.0f} % exposed: %{y:.2f} x<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="exposed communication [% of the step]")
    figure.update_yaxes(title="speed-up needed [times]", type="log")
    first, last = rows.iloc[0], rows.iloc[-1]
    ends = [
        f"{digits(float(row['speedup_ratio']))} times as fast where "
        f"{share_text(row['communication_share'])} is exposed"
        for row in (first, last)
    ]
    saved = share_text(float(first["saved_share"]))
    claim = f"A step {saved} shorter takes communication {ends[0]}, {ends[1]}"
    return frame.finish(figure, claim=claim, note="arithmetic, not measured")
