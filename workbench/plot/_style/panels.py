"""Several panels side by side in one figure, each with its name inside its upper edge."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

_NAME_PX = 22
_GAP_PX = 16


def panels(names: Sequence[str], *, height_px: int, shared_y: bool = True) -> go.Figure:
    """Make a figure with one empty panel per name, left to right.

    Parameters
    ----------
    names
        What each panel shows; safe text.
    height_px
        Height of the panels alone.
    shared_y
        Whether all have the y axis of the first.
    """
    figure = make_subplots(
        rows=1, cols=len(names), shared_yaxes=shared_y, horizontal_spacing=0.1 / max(len(names), 2)
    )
    whole = height_px + _NAME_PX
    figure.update_yaxes(domain=[0, height_px / whole])
    figure.update_layout(height=whole)
    for at, name in enumerate(names, start=1):
        domain = figure.layout["xaxis" if at == 1 else f"xaxis{at}"].domain
        figure.add_annotation(
            text=f"<b>{name}</b>", x=domain[0], xref="paper", xanchor="left",
            y=1, yref="paper", yanchor="top", showarrow=False,
        )  # fmt: skip
    return figure


def stacked_panels(titles: Sequence[str], heights_px: Sequence[int]) -> go.Figure:
    """Make a figure with one empty panel per title, top to bottom, on one x axis.

    Parameters
    ----------
    titles
        Title of each panel's y axis, with its unit; safe text.
    heights_px
        Height of each panel.
    """
    whole = sum(heights_px) + _GAP_PX * (len(heights_px) - 1)
    figure = make_subplots(
        rows=len(titles), cols=1, shared_xaxes=True,
        vertical_spacing=_GAP_PX / whole if len(titles) > 1 else 0,
        row_heights=[height / sum(heights_px) for height in heights_px],
    )  # fmt: skip
    for row, title in enumerate(titles, start=1):
        figure.update_yaxes(title=title, row=row, col=1)
    figure.update_layout(height=whole)
    return figure
