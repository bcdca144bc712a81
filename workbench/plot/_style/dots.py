"""Dots on a logarithmic axis: several measures of several names, one dot per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import distinct, left_margin
from workbench.plot._style.text import label, safe, short

_SYMBOLS = ("circle", "diamond-open", "square-open", "cross-thin-open")
_ROW_PX = 30
# Numbers that a tick may start with, by the decades that the axis spans.
_LEADS = ((0.7, range(1, 10)), (3, (1, 2, 5)), (float("inf"), (1,)))


def dots(
    names: Sequence[str],
    measures: Mapping[str, NDArray[Any]],
    *,
    rows: NDArray[np.int64],
    hover: Sequence[str],
    title: str,
) -> go.Figure:
    """Place one dot per measure and table row beside the name the row belongs to.

    Parameters
    ----------
    names
        Distinct full names, the first on top.
    measures
        Label to values, one per table row; what is missing or 0 has no place on a
        logarithmic axis and is not drawn.
    rows
        For every table row, the position of its name in ``names``.
    hover
        For every table row, where it was measured; safe text.
    title
        What the axis shows, with its unit.
    """
    figure = go.Figure()
    words = np.array([label(name, 120) for name in names], dtype=object)
    offsets = np.linspace(-0.24, 0.24, len(measures)) if len(measures) > 1 else [0.0]
    for position, (measure, values) in enumerate(measures.items()):
        drawn = np.flatnonzero(np.nan_to_num(values) > 0)
        drawn = drawn[extremes(values[drawn])]
        look = distinct(position)
        figure.add_scatter(
            mode="markers",
            x=values[drawn],
            y=rows[drawn] + offsets[position],
            name=measure,
            marker={
                "symbol": _SYMBOLS[position % len(_SYMBOLS)],
                "size": 9,
                "color": look["color"],
                "line": {"width": 1.5, "color": look["color"]},
                "opacity": 0.8,
            },
            hovertext=[f"{words[rows[row]]}<br>{hover[row]}" for row in drawn.tolist()],
            hovertemplate="%{hovertext}<br>" + measure + ": %{x:,.3~g}<extra></extra>",
        )
    ticks = [short(name) for name in names]
    figure.update_layout(
        height=max(len(ticks), 2) * _ROW_PX, margin_l=left_margin(ticks), hovermode="closest"
    )
    shown = np.asarray([x for trace in figure.data for x in trace.x], dtype=np.float64)
    figure.update_xaxes(title=title, type="log", **log_ticks(shown))
    figure.update_yaxes(
        tickvals=list(range(len(ticks))),
        ticktext=[safe(tick) for tick in ticks],
        range=[len(ticks) - 0.5, -0.5],
    )
    return figure


def log_ticks(values: NDArray[np.float64]) -> dict[str, Any]:
    """Place round numbers on a logarithmic axis, also where it spans less than a decade."""
    low, high = np.log10([values.min(), values.max()]) if len(values) else np.array([0.0, 1.0])
    room = max(0.05 * (high - low), 0.1)
    leads = next(leads for decades, leads in _LEADS if high - low < decades)
    ticks = [
        lead * 10.0**power
        for power in range(int(np.floor(low)) - 1, int(np.ceil(high)) + 1)
        for lead in leads
    ]
    ticks = [tick for tick in ticks if low - room <= np.log10(tick) <= high + room]
    return {
        "range": [float(low - room), float(high + room)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
    }
