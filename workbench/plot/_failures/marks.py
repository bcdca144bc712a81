"""Marks shared by figures of failures: named rows and whiskers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from workbench.plot._style.style import COLOURS, left_margin, row_axis
from workbench.plot._style.text import safe

PRODUCTIVE_AXIS: dict[str, Any] = {
    "title": "productive share of GPU time [%]", "tickformat": ".0%", "range": [0, 1.02],
}  # fmt: skip


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
