"""Marks shared by figures of failures: named rows, whiskers, step curves and bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, left_margin, row_axis
from workbench.plot._style.text import safe

PRODUCTIVE_AXIS: dict[str, Any] = {
    "title": "productive share of GPU time [%]", "tickformat": ".0%", "range": [0, 1.02],
}  # fmt: skip
# Each corner of a step curve is two points, so a browser gets twice as many.
_MOST_STEPS = 1_000


def name_rows(figure: go.Figure, names: Sequence[str], height: int, **axis: Any) -> None:
    """Name the rows of a figure, the first on top; ``names`` are short, but not yet safe."""
    figure.update_layout(height=height, margin_l=left_margin(names))
    figure.update_yaxes(**row_axis([safe(name) for name in names]) | axis)


def whiskers(values: Any, low: Any, high: Any, scale: float = 1) -> dict[str, Any]:
    """Return the error bars of an interval that is not symmetric."""
    return {
        "type": "data", "color": COLOURS["dark"], "thickness": 1.5, "width": 4,
        "array": scale * np.maximum(high - values, 0),
        "arrayminus": scale * np.maximum(values - low, 0),
    }  # fmt: skip


def from_start(rows: pd.DataFrame, column: str, start: float = 0.0) -> tuple[np.ndarray, ...]:
    """Return times and values of a curve that begins at time 0 with ``start``."""
    values = rows[column].to_numpy(dtype="float64")
    keep = extremes(values, _MOST_STEPS)
    time = rows["time_h"].to_numpy()[keep]
    return np.concatenate([[0.0], time]), np.concatenate([[start], values[keep]])


def steps(rows: pd.DataFrame, column: str, start: float = 0.0) -> tuple[np.ndarray, ...]:
    """Return the corners of a step curve that begins at time 0 with ``start``."""
    time, values = from_start(rows, column, start)
    return np.repeat(time, 2)[1:], np.repeat(values, 2)[:-1]


def band(low: tuple[np.ndarray, ...], high: tuple[np.ndarray, ...], **look: Any) -> go.Scatter:
    """Fill what lies between two curves."""
    return go.Scatter(
        x=np.concatenate([low[0], high[0][::-1]]), y=np.concatenate([low[1], high[1][::-1]]),
        mode="lines", fill="toself", opacity=0.15, hoverinfo="skip", showlegend=False, **look,
    )  # fmt: skip
