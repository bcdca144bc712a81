"""Stretches of time that a figure of power shows, and what the job was doing in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.style import colour
from workbench.plot._style.text import label

# A kind that takes more of the time than this is the background of the others.
_BACKGROUND_SHARE = 0.5
_MOST_KINDS = 4
# More rectangles or ticks than this are a grey mist.
_MOST_SPANS, _MOST_BORDERED, _MOST_STEPS = 200, 12, 120
# A label needs about this share of the width of a panel.
_LABEL_SHARE = 0.16
_BORDERS = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class View:
    """A stretch of time in one panel; its axis counts ``unit_ns`` from ``zero_ns``."""

    start_ns: int
    end_ns: int
    zero_ns: int
    unit_ns: float
    column: int

    def at(self, time_ns: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Give times as the axis has them."""
        return np.asarray((np.asarray(time_ns) - self.zero_ns) / self.unit_ns)

    def holds(self, table: pd.DataFrame) -> pd.DataFrame:
        """Give the rows of a table of stretches that overlap this one."""
        return table[(table["end_ns"] > self.start_ns) & (table["start_ns"] < self.end_ns)]


def shaded(spans: pd.DataFrame, whole: tuple[int, int]) -> pd.DataFrame:
    """Give the spans that are drawn: no kind that takes most of the time, as training does.

    Parameters
    ----------
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`.
    whole
        Start and end of all that is shown, in ns.

    Returns
    -------
    pandas.DataFrame
        Rows of ``spans`` that overlap ``whole``, with an end.
    """
    ended = spans.assign(end_ns=spans["end_ns"].fillna(whole[1]).astype("int64"))
    inside = ended[(ended["end_ns"] > whole[0]) & (ended["start_ns"] < whole[1])]
    length = inside["end_ns"].clip(upper=whole[1]) - inside["start_ns"].clip(lower=whole[0])
    share = length.groupby(inside["kind"]).sum() / (whole[1] - whole[0])
    return inside[inside["kind"].map(share) <= _BACKGROUND_SHARE]


def choose_zoom(
    whole: tuple[int, int], spans: pd.DataFrame, known_ns: NDArray[np.int64], width_ns: int
) -> tuple[int, int]:
    """Choose a stretch with known cells: around the start of a span, or their middle.

    Of several spans, the one nearest to the middle of all that is known.
    """
    middle = int(known_ns[len(known_ns) // 2])
    starts = spans["start_ns"].to_numpy()
    starts = starts[(starts > whole[0]) & (starts < whole[1])]
    for start in [*starts[np.argsort(np.abs(starts - middle), kind="stable")], middle]:
        low = min(max(int(start) - width_ns // 2, whole[0]), whole[1] - width_ns)
        if ((known_ns >= low) & (known_ns < low + width_ns)).any():
            break
    return low, low + width_ns


def mark_spans(figure: go.Figure, spans: pd.DataFrame, view: View) -> None:
    """Shade what the job was doing, each kind with its own height, border and label."""
    inside = view.holds(spans)
    for place, kind in enumerate(inside["kind"].value_counts().index[:_MOST_KINDS]):
        mine = inside[inside["kind"] == kind]
        lengths = mine["end_ns"] - mine["start_ns"]
        drawn = mine.loc[lengths.nlargest(_MOST_SPANS).index].sort_values("start_ns")
        top = 0.99 - 0.075 * place
        border = 1 if len(drawn) <= _MOST_BORDERED else 0
        starts = view.at(np.maximum(drawn["start_ns"].to_numpy(), view.start_ns))
        ends = view.at(np.minimum(drawn["end_ns"].to_numpy(), view.end_ns))
        for start, end in zip(starts, ends, strict=True):
            figure.add_shape(
                type="rect", x0=start, x1=end, y0=0, y1=top, layer="below", opacity=0.35,
                fillcolor=colour(str(kind)), line={"width": border, "dash": _BORDERS[place]},
                xref=_axis("x", view), yref=f"{_axis('y', view)} domain",
            )  # fmt: skip
        _name(figure, view, starts, top=top, text=_named(str(kind), len(mine)))


def _named(kind: str, count: int) -> str:
    return label(kind, 20) + (f" ({count:,})" if count > 1 else "")


def _name(
    figure: go.Figure, view: View, starts: NDArray[np.float64], *, top: float, text: str
) -> None:
    """Write the name of a kind once, at the first rectangle that has room to its right."""
    low, high = view.at(view.start_ns), view.at(view.end_ns)
    fits = np.flatnonzero(starts < high - _LABEL_SHARE * (high - low))
    at_end = not len(fits)
    figure.add_annotation(
        text=text, x=starts[-1] if at_end else starts[fits[0]], y=top, showarrow=False,
        xref=_axis("x", view), yref=f"{_axis('y', view)} domain", yanchor="top",
        xanchor="right" if at_end else "left", font={"size": 11}, bgcolor="rgba(255,255,255,0.75)",
        borderpad=1,
    )  # fmt: skip


def _axis(letter: str, view: View) -> str:
    return letter if view.column == 1 else f"{letter}{view.column}"


def mark_steps(figure: go.Figure, steps: pd.DataFrame, view: View, *, foot: float) -> None:
    """Draw a tick at the start of every step, unless they are too many to tell apart."""
    inside = steps[(steps["start_ns"] >= view.start_ns) & (steps["start_ns"] < view.end_ns)]
    if inside.empty or len(inside) > _MOST_STEPS:
        return
    figure.add_scatter(
        x=view.at(inside["start_ns"].to_numpy()), y=np.full(len(inside), foot),
        mode="markers", name="start of a step", customdata=inside["step"].to_numpy(),
        marker={"symbol": "line-ns-open", "size": 10, "color": "#1A1A1A", "line": {"width": 1.5}},
        hovertemplate="step %{customdata:,} starts<extra></extra>",
        row=1, col=view.column,
    )  # fmt: skip
