"""Goodput under changes: step by step, by checkpoint interval and by number of spare nodes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.goodput import CONVENTIONS
from workbench.plot._failures.marks import PRODUCTIVE_AXIS, name_rows
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, colour, distinct, fill
from workbench.plot._style.text import digits, percent, plural, safe, seconds, short
from workbench.tables import (
    CHECKPOINT_CURVE,
    CHECKPOINT_OPTIMUM,
    GOODPUT_LADDER,
    SPARES,
)

_MOST_ROWS = 20


def goodput_ladder(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the way from the synchronous job to the fault-tolerant one, change by change.

    One group of bars per change, one bar per convention; published shares as diamonds.
    The title states both ends.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_LADDER`, of one convention or several.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    GOODPUT_LADDER.check(table)
    if table.empty:
        why = "The table has no changes; analyze.goodput_ladder makes them."
        return frame.nothing(why, claim="No changes to show")
    changes = list(dict.fromkeys(table["change"]))[:_MOST_ROWS]
    conventions = list(dict.fromkeys(table["convention"]))
    figure = Draft()
    width = 0.8 / len(conventions)
    for number, convention in enumerate(conventions):
        rows = table[(table["convention"] == convention) & table["change"].isin(changes)]
        at = np.array([changes.index(name) for name in rows["change"]])
        shift = (number - (len(conventions) - 1) / 2) * width
        gains = ["" if not gain else f" ({100 * gain:+.1f})" for gain in rows["gain_ratio"]]
        figure.add_bar(
            orientation="h",
            y=at + shift,
            x=rows["productive_share"],
            width=width * 0.9,
            name=safe(CONVENTIONS.get(str(convention), convention)),
            marker=fill(("productive", "degraded capacity", "allocation")[number % 3]),
            text=list(map("{}{}".format, rows["productive_share"].map(percent), gains)),
            textposition="outside",
            hovertemplate="%{x:.2%}<extra></extra>",
        )
    printed = table.dropna(subset=["printed_share"])
    printed = printed[printed["change"].isin(changes)]
    if len(printed):
        figure.add_scatter(
            mode="markers",
            x=printed["printed_share"],
            y=[changes.index(name) for name in printed["change"]],
            name="published",
            marker={"symbol": "diamond-open", "size": 13, "color": COLOURS["reference"]},
            marker_line_width=2,
            hovertemplate="published: %{x:.1%}<extra></extra>",
        )
    ends = table.loc[table["convention"] == conventions[0], "productive_share"].map(percent)
    claim = f"From {ends.iloc[0]} to {ends.iloc[-1]}: what each change contributes"
    height = max(len(changes) * len(conventions), 3) * 30
    name_rows(figure, [short(name, 40) for name in changes], height, showgrid=False)
    figure.update_xaxes(
        # Room for the texts of full bars; the ticks still end at 100 %.
        **{**PRODUCTIVE_AXIS, "range": [0, 1.18]},
        tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1],
    )
    note = "in brackets: percentage points against the row above"
    return frame.finish(figure, claim=claim, note=note)


_SYMBOLS = ("diamond", "square", "star")


def checkpoint_curve(
    curve: pd.DataFrame,
    *,
    optimum: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the productive share against the time between checkpoints, with its optimum.

    The exact share, the first-order formula beside it, and what is lost to writing and to
    work done again. The title states the best interval.

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.CHECKPOINT_CURVE`.
    optimum
        Table :data:`workbench.tables.CHECKPOINT_OPTIMUM`, marked on the curve.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    CHECKPOINT_CURVE.check(curve)
    if curve.empty:
        why = "The table has no intervals; analyze.checkpoint_curve makes them."
        return frame.nothing(why, claim="No checkpoint intervals to compare")
    rows = curve.sort_values("checkpoint_interval_min", ignore_index=True)
    rows = rows.iloc[extremes(rows["productive_share"].to_numpy())]
    x = rows["checkpoint_interval_min"]
    figure = Draft()
    lines = (
        ("productive_share", "productive, exact", colour("productive"), "solid", 3),
        ("first_order_ratio", "productive, first-order formula", COLOURS["reference"], "dot", 1.5),
        ("lost_work_share", "lost work", colour("lost work"), "dash", 1.5),
        ("checkpoint_share", "writing checkpoints", colour("checkpoint"), "longdash", 1.5),
    )
    for column, name, ink, dash, width in lines:
        # Below 0 the formula has failed: no line there, and the note counts the intervals.
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
                name=f"{safe(row['method'])}: {seconds(60 * row['checkpoint_interval_min'])}",
                marker={"symbol": _SYMBOLS[at % len(_SYMBOLS)], "color": distinct(at)["color"]},
                marker_size=11,
                marker_line={"color": COLOURS["reference"], "width": 1},
                hovertemplate="%{y:.2%} at %{x:.4g} min<extra></extra>",
            )
        best = optimum.iloc[int(optimum["productive_share"].argmax())]
    figure.update_xaxes(title="useful time between checkpoints [min]", type="log", dtick="D2")
    figure.update_yaxes(title="share of GPU time [%]", tickformat=".0%", range=[0, 1.02])
    claim = (
        f"Save every {seconds(60 * best['checkpoint_interval_min'])}: "
        f"{percent(best['productive_share'])} of the time is productive"
    )
    note = "synchronous job, failures at random"
    if below := int((rows["first_order_ratio"] < 0).sum()):
        note += f" · the first-order formula is below 0, and not drawn, at {below} intervals"
    return frame.finish(figure, claim=claim, note=note)


# Further spares that gain less than this are not worth a word.
_WORTH = 0.01


def spares(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the productive share against the number of spare nodes, and the cliff in it.

    One line with the interval of its mean, and an upright one at the nodes in repair on
    average. The title states how many spares are enough.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SPARES`.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    SPARES.check(table)
    if table.empty:
        why = "The table has no numbers of spares; analyze.spares makes them."
        return frame.nothing(why, claim="No spares to compare")
    rows = table.sort_values("spare_count", ignore_index=True)
    rows = rows.iloc[extremes(rows["productive_share"].to_numpy())].reset_index(drop=True)
    reach = (rows["high_share"] - rows["low_share"]).fillna(0) / 2
    figure = Draft()
    figure.add_scatter(
        x=rows["spare_count"],
        y=rows["productive_share"],
        error_y={"type": "data", "array": reach, "thickness": 1.2},
        mode="lines+markers",
        name="productive",
        line={"color": colour("productive"), "width": 2.5},
        customdata=rows["wait_min"],
        hovertemplate="%{x} spares: %{y:.1%}, a failure waits %{customdata:,.3g} min for one"
        "<extra></extra>",
    )
    load = float(rows["offered_load_ratio"].iloc[0])
    if math.isfinite(load):
        figure.add_vline(
            x=load,
            line={"color": colour("limit"), "dash": "dash", "width": 1.5},
            annotation_text=f"{digits(load)} nodes in repair on average",
            annotation_position="bottom right",
        )
    best = float(rows["productive_share"].max())
    enough = rows[rows["productive_share"] >= best - _WORTH].iloc[0]
    count, share = int(rows["spare_count"].iloc[0]), float(rows["productive_share"].iloc[0])
    claim = f"{plural(count, 'spare node')} are already enough"
    if best - share >= _WORTH:
        claim = (
            f"{plural(int(enough['spare_count']), 'spare node')} are enough "
            f"({percent(enough['productive_share'])} productive); with {count:,} it is "
            f"{percent(share)}"
        )
    figure.update_xaxes(title="spare nodes", rangemode="tozero")
    figure.update_yaxes(**PRODUCTIVE_AXIS)
    note = "below the nodes in repair the queue for spares never empties"
    return frame.finish(figure, claim=claim, note=note)
