"""How often nodes fail again and again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.said import between, interval, reservations
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, distinct, finish, nothing
from workbench.plot._style.text import digits
from workbench.tables import RECURRENCE

_MOST_STEPS = 1_000


def recurrence(counts: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the failures per node up to each time, with a band and the power law.

    Parameters
    ----------
    counts
        Table :data:`workbench.tables.RECURRENCE`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A rising step curve, its band, and the fitted power law. The title says how often a
        node has failed by the end.
    """
    RECURRENCE.check(counts)
    if counts.empty:
        return nothing(
            "No failure was counted, so nothing recurs. " + " · ".join(reservations(counts)),
            claim="No failures to add up",
            source=source,
            synthetic=synthetic,
        )
    rows = counts.sort_values("time_h", kind="stable")
    look = distinct(0)
    figure = go.Figure()
    known = rows[rows["high_count"].notna() & rows["low_count"].notna()]
    if len(known):
        figure.add_trace(_band(known))
    x, y = _steps(rows, "mean_count")
    figure.add_scatter(
        x=x, y=y, mode="lines", line={**look, "width": 2}, name="failures per node",
        hovertemplate="%{x:,.4~g} h: %{y:.3~g} failures per node<extra></extra>",
    )  # fmt: skip
    keep = extremes(rows["trend_count"].to_numpy(), _MOST_STEPS)
    figure.add_scatter(
        x=np.concatenate([[0.0], rows["time_h"].to_numpy()[keep]]),
        y=np.concatenate([[0.0], rows["trend_count"].to_numpy()[keep]]),
        mode="lines",
        line={"color": COLOURS["limit"], "dash": "dot", "width": 2},
        name="power law",
        hovertemplate="%{x:,.4~g} h: %{y:.3~g} by the power law<extra></extra>",
    )
    figure.update_xaxes(title="since the observation began [h]", rangemode="tozero")
    figure.update_yaxes(title="failures up to then [per node]", rangemode="tozero")
    last = rows.iloc[-1]
    claim = f"After {digits(last['time_h'])} h a node has failed {digits(last['mean_count'])} times"
    if not pd.isna(last["high_count"]):
        claim += f" ({between(last['low_count'], last['high_count'])})"
    notes = [
        "a straight line is a constant rate",
        *(interval(counts, "band") if len(known) else []),
    ]
    return finish(
        figure,
        claim=claim,
        source=source,
        synthetic=synthetic,
        note=" · ".join([*notes, *reservations(counts)]),
    )


def _band(rows: pd.DataFrame) -> go.Scatter:
    look = distinct(0)
    (low_x, low), (high_x, high) = _steps(rows, "low_count"), _steps(rows, "high_count")
    return go.Scatter(
        x=np.concatenate([low_x, high_x[::-1]]),
        y=np.concatenate([low, high[::-1]]),
        mode="lines",
        fill="toself",
        fillcolor=look["color"],
        opacity=0.15,
        line={"width": 0, "color": look["color"], "dash": "dash"},
        hoverinfo="skip",
        showlegend=False,
        name="band",
    )


def _steps(rows: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a rising step curve that starts with nothing."""
    values = rows[column].to_numpy(dtype="float64")
    keep = extremes(values, _MOST_STEPS)
    time = np.concatenate([[0.0], rows["time_h"].to_numpy()[keep]])
    count = np.concatenate([[0.0], values[keep]])
    return np.repeat(time, 2)[1:], np.repeat(count, 2)[:-1]
