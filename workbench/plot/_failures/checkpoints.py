"""How often to save, and where the first-order formula fails."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, colour, distinct, finish, nothing
from workbench.plot._style.text import digits, percent, safe
from workbench.tables import CHECKPOINT_CURVE, CHECKPOINT_OPTIMUM, EXPECTED_ETTR

_SYMBOLS = ("diamond", "square", "star")


def checkpoint_curve(
    curve: pd.DataFrame,
    *,
    optimum: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the productive share against the time between checkpoints, with its optimum.

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.CHECKPOINT_CURVE`.
    optimum
        Table :data:`workbench.tables.CHECKPOINT_OPTIMUM`, marked on the curve.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        The exact share, the first-order formula beside it, and what is lost to writing and to
        work done again. The title states the best interval.
    """
    CHECKPOINT_CURVE.check(curve)
    if curve.empty:
        return nothing(
            "The table has no intervals; analyze.checkpoint_curve makes them.",
            claim="No checkpoint intervals to compare",
            source=source,
            synthetic=synthetic,
        )
    rows = curve.sort_values("checkpoint_interval_min", ignore_index=True)
    rows = rows.iloc[extremes(rows["productive_share"].to_numpy())]
    x = rows["checkpoint_interval_min"]
    figure = go.Figure()
    lines = (
        ("productive_share", "productive, exact", colour("productive"), "solid", 3),
        ("first_order_ratio", "productive, first-order formula", "#000000", "dot", 1.5),
        ("lost_work_share", "lost work", colour("lost work"), "dash", 1.5),
        ("checkpoint_share", "writing checkpoints", colour("checkpoint"), "longdash", 1.5),
    )
    for column, name, ink, dash, width in lines:
        value = rows[column].where(rows[column] >= 0)
        figure.add_scatter(
            x=x, y=value, mode="lines", name=name,
            line={"color": ink, "dash": dash, "width": width},
            hovertemplate=f"{name}: %{{y:.1%}} at %{{x:.3g}} min<extra></extra>",
        )  # fmt: skip
    best = rows.iloc[int(rows["productive_share"].argmax())]
    if optimum is not None and len(CHECKPOINT_OPTIMUM.check(optimum)):
        for at, row in enumerate(optimum.to_dict("records")):
            figure.add_scatter(
                x=[row["checkpoint_interval_min"]],
                y=[row["productive_share"]],
                mode="markers",
                name=f"{safe(row['method'])}: {digits(row['checkpoint_interval_min'])} min",
                marker={
                    "symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 11,
                    "color": distinct(at)["color"], "line": {"color": "#000000", "width": 1},
                },
                hovertemplate="%{y:.2%} at %{x:.4g} min<extra></extra>",
            )  # fmt: skip
        best = optimum.iloc[int(optimum["productive_share"].argmax())]
    figure.update_xaxes(title="useful time between checkpoints [min]", type="log", dtick="D2")
    figure.update_yaxes(title="share of GPU time [%]", tickformat=".0%", range=[0, 1.02])
    claim = (
        f"Save every {digits(best['checkpoint_interval_min'])} min: "
        f"{percent(best['productive_share'])} of the time is productive"
    )
    below = int((rows["first_order_ratio"] < 0).sum())
    note = "synchronous job, failures at random" + (
        f" · the first-order formula is below 0, and not drawn, at {below} intervals"
        if below
        else ""
    )
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def expected_ettr(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the first-order formula of the effective training time beside the exact share.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.EXPECTED_ETTR`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Both against the size of the job; where the formula is doubtful or invalid the ground
        is shaded. Values below 0 are not drawn. The title states where the formula ends.
    """
    EXPECTED_ETTR.check(table)
    if table.empty:
        return nothing(
            "The table has no sizes; analyze.expected_ettr makes them.",
            claim="No sizes to compare",
            source=source,
            synthetic=synthetic,
        )
    rows = table.sort_values("gpu_count", ignore_index=True)
    rows = rows.iloc[extremes(rows["exact_share"].to_numpy())].reset_index(drop=True)
    size = rows["gpu_count"].to_numpy(dtype=np.float64)
    figure = go.Figure()
    formula = rows["first_order_ratio"].where(rows["first_order_ratio"] >= 0)
    for value, name, meaning, dash in (
        (rows["exact_share"], "exact", "productive", "solid"),
        (formula, "first-order formula", "more", "dash"),
    ):
        figure.add_scatter(
            x=size, y=value, mode="lines+markers" if len(rows) <= 40 else "lines", name=name,
            line={"color": colour(meaning), "dash": dash, "width": 2.5},
            marker={"symbol": "circle" if meaning == "productive" else "square"},
            customdata=rows["failure_interval_min"],
            hovertemplate=f"{name}, %{{x:,}} GPUs: %{{y:.1%}}, a failure every "
            "%{customdata:.3g} min<extra></extra>",
        )  # fmt: skip
    for verdict, opacity in (("doubtful", 0.25), ("invalid", 0.55)):
        inside = size[(rows["verdict"] == verdict).to_numpy()]
        if len(inside):
            figure.add_vrect(
                x0=inside.min(), x1=inside.max(), fillcolor=COLOURS["idle"], opacity=opacity,
                line_width=0, layer="below", annotation_text=f"formula {verdict}",
                annotation_position="top left",
            )  # fmt: skip
    figure.update_xaxes(title="size of the job [GPUs]", type="log", tickformat=",.0~f", dtick="D2")
    figure.update_yaxes(title="effective training time [%]", tickformat=".0%", range=[0, 1.08])
    return finish(
        figure, claim=_ettr_claim(rows), source=source, synthetic=synthetic,
        note=f"{int((rows['first_order_ratio'] < 0).sum())} values of the formula are below 0 "
        "and not drawn",
    )  # fmt: skip


def _ettr_claim(rows: pd.DataFrame) -> str:
    invalid = rows[rows["verdict"] == "invalid"]
    doubtful = rows[rows["verdict"] == "doubtful"]
    if len(invalid):
        last = invalid.iloc[-1]
        return (
            f"At {int(last['gpu_count']):,} GPUs the first-order formula says "
            f"{last['first_order_ratio']:.2f}, the exact share is {percent(last['exact_share'])}"
        )
    if len(doubtful):
        return f"The first-order formula is doubtful from {int(doubtful['gpu_count'].min()):,} GPUs"
    return "The first-order formula holds for all these sizes"
