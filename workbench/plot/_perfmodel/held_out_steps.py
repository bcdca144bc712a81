"""Steps as the other steps of a trace predict them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, finish, nothing
from workbench.plot._style.text import duration, percent, safe, time_unit
from workbench.tables import HELD_OUT_STEPS

_LINES = (
    ("measured", "measured_ns", "dark", "solid", "circle"),
    ("predicted from the other steps", "predicted_ns", "attention", "dash", "diamond-open"),
    ("mean of the other steps", "naive_ns", "transfer", "dot", "x-thin-open"),
)
_MOST_MARKED = 50


def held_out_steps(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show every step as measured, and as predicted without it.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.HELD_OUT_STEPS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Three lines: measured, predicted by the graph, and the mean of the other steps, which
        needs no graph. The title states the errors of both.
    """
    HELD_OUT_STEPS.check(table)
    if table.empty:
        return nothing(
            "The table has no steps; pass what analyze.held_out_steps returns.",
            claim="No steps to predict",
            source=source,
            synthetic=synthetic,
        )
    rows = table.sort_values("step", kind="stable")
    times = rows[[column for _, column, *_ in _LINES]].to_numpy(dtype=np.float64)
    per_unit, unit = time_unit(times.max())
    figure = go.Figure()
    for words, column, meaning, dash, symbol in _LINES:
        keep = extremes(rows[column].to_numpy())
        part = rows.iloc[keep]
        errors = part[column] / part["measured_ns"].clip(lower=1) - 1
        figure.add_scatter(
            x=part["step"].to_numpy(), y=part[column].to_numpy() / per_unit, name=words,
            mode="lines+markers" if len(part) <= _MOST_MARKED else "lines",
            line={"color": colour(meaning), "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 9, "color": colour(meaning), "line": {"width": 2}},
            hovertext=[
                f"step {step}: {duration(ns)}" + (f", {100 * error:+.2f} %" * bool(error))
                for step, ns, error in zip(part["step"], part[column], errors, strict=True)
            ],
            hovertemplate="%{hovertext}<extra>" + words + "</extra>",
        )  # fmt: skip
    steps = rows["step"].drop_duplicates().tolist()
    if len(steps) <= _MOST_MARKED:
        figure.update_xaxes(tickvals=steps[:: -(-len(steps) // 20)])
    room = 0.08 * max(float(np.ptp(times)), 0.02 * float(times.max()), 1.0) / per_unit
    figure.update_xaxes(title="step", tickformat="d")
    figure.update_yaxes(
        title=f"time of the step [{unit}]",
        range=[times.min() / per_unit - room, times.max() / per_unit + room],
    )
    known = float(rows["known_share"].min())
    note = (
        "the time axis does not begin at 0 · of a step's times, "
        f"{safe(percent(known))} or more are in other steps, too"
    )
    return finish(figure, claim=_claim(rows), source=source, synthetic=synthetic, note=note)


def _claim(rows: pd.DataFrame) -> str:
    mean, most, naive, naive_most = (
        safe(percent(float(value)))
        for name in ("error_ratio", "naive_error_ratio")
        for value in (rows[name].abs().mean(), rows[name].abs().max())
    )
    return (
        f"From the other steps, a step is predicted to {mean} on average, {most} at worst; "
        f"their mean is {naive} and {naive_most} off"
    )
