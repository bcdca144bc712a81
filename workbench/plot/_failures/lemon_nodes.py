"""Nodes that fail too often, and how long one must watch to tell."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.marks import name_rows
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, distinct, fill
from workbench.plot._style.text import digits, label, percent, plural, reservations, short
from workbench.tables import LEMON_NODES, LEMON_RECALL

_MOST = 25
_ROW_PX = 22


def lemon_nodes(nodes: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the nodes with most failures beside what chance would give them.

    A bar per node, those flagged patterned, with a tick at the expected count. The title
    says how many are flagged and how many lemons such an observation finds at all.

    Parameters
    ----------
    nodes
        Table :data:`workbench.tables.LEMON_NODES`.
    """
    frame = Frame(source, synthetic)
    LEMON_NODES.check(nodes)
    if nodes.empty:
        why = "The table has no nodes; pass what analyze.lemon_nodes returns."
        return frame.nothing(why, claim="No nodes to compare")
    # Flagged nodes first: a high rate after a short time may still be chance.
    order = ["is_lemon", "shrunk_per_1000_node_days"]
    drawn = nodes.sort_values(order, ascending=False, kind="stable").iloc[:_MOST]
    drawn = drawn.reset_index(drop=True)
    figure = Draft()
    for flagged, meaning, words in (
        (True, "wait", "too often to be chance"),
        (False, "all others", "can be chance"),
    ):
        rows = drawn[drawn["is_lemon"] == flagged]
        if len(rows):
            figure.add_bar(
                orientation="h",
                x=rows["failure_count"].to_numpy(),
                y=rows.index.to_numpy(),
                name=words,
                marker=fill(meaning),
                hovertext=[_node(row) for row in rows.to_dict("records")],
                hovertemplate="%{hovertext}<extra></extra>",
            )
    figure.add_scatter(
        mode="markers",
        x=drawn["expected_count"],
        y=list(range(len(drawn))),
        name="expected by chance",
        marker={"symbol": "line-ns-open", "size": 14, "color": COLOURS["reference"]},
        marker_line_width=2,
        hovertemplate="expected: %{x:.3~g}<extra></extra>",
    )
    names = [short(node, 40) for node in drawn["node"]]
    name_rows(figure, names, max(len(names), 3) * _ROW_PX, showgrid=False)
    figure.update_layout(bargap=0.3, barmode="overlay", hovermode="closest")
    figure.update_xaxes(title="failures of the node [count]", rangemode="tozero")
    return frame.finish(figure, claim=_claim(nodes), note=" · ".join(_notes(nodes, len(drawn))))


def _node(row: Mapping[Hashable, Any]) -> str:
    return (
        f"{label(row['node'], 80)}<br>{plural(row['failure_count'], 'failure')} in "
        f"{digits(row['exposure_node_days'])} days, {digits(row['expected_count'])} expected<br>"
        f"adjusted p = {row['adjusted_p_value_share']:.2g}, shrunk rate "
        f"{digits(row['shrunk_per_1000_node_days'])} per 1,000 node-days"
    )


def _claim(nodes: pd.DataFrame) -> str:
    lemons = int(nodes["is_lemon"].sum())
    days = digits(float(nodes["exposure_node_days"].mean()))
    total = plural(len(nodes), "node")
    verb = "fails" if lemons == 1 else "fail"
    flagged = f"{lemons:,} of {total} {verb}" if lemons else f"None of {total} fails"
    flagged += " too often to be chance"
    if pd.isna(nodes["recall_share"].iloc[0]):
        return f"{flagged}; too few nodes to judge lemons"
    recall = percent(float(nodes["recall_share"].iloc[0]))
    # "about > 99 %" would say it twice.
    about = "" if recall[0] in "<>" else "about "
    return f"{flagged}; {days} days find {about}{recall} of lemons"


def _notes(nodes: pd.DataFrame, drawn: int) -> list[str]:
    notes = []
    if assumed := nodes.attrs.get("assumed"):
        notes.append(f"lemons, as assumed: {label(assumed, 120)}")
    dispersion = nodes["dispersion_ratio"].iloc[0]
    if not pd.isna(dispersion):
        notes.append(f"variance / mean of the counts: {digits(float(dispersion))} (chance: 1)")
    if hidden := len(nodes) - drawn:
        flagged = int(nodes["is_lemon"].sum()) - drawn
        count = f"{flagged:,}" if flagged > 0 else "none"
        notes.append(f"{plural(hidden, 'node')} not drawn, {count} of them flagged")
    return notes + reservations(nodes)


def lemon_recall(recall: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how many lemons are found, by how long the nodes are watched.

    A line for the lemons found, and one for the flagged that are lemons. The title says
    when half of the lemons are found.

    Parameters
    ----------
    recall
        Table :data:`workbench.tables.LEMON_RECALL`.
    """
    frame = Frame(source, synthetic)
    LEMON_RECALL.check(recall)
    if recall.empty:
        why = "No length of observation was given, so there is no recall to show."
        return frame.nothing(why, claim="No recall to show")
    ordered = recall.sort_values("observed_days", kind="stable")
    figure = Draft()
    lines = (
        ("recall_share", "lemons that are flagged", "circle"),
        ("precision_share", "flagged that are lemons", "diamond-open"),
    )
    for position, (column, name, symbol) in enumerate(lines):
        values = 100 * ordered[column].to_numpy(dtype="float64", na_value=np.nan)
        keep = extremes(values)
        look = distinct(position)
        figure.add_scatter(
            mode="lines+markers" if len(keep) <= 60 else "lines",
            x=ordered["observed_days"].to_numpy()[keep],
            y=values[keep],
            name=name,
            line={**look, "width": 2},
            marker={"symbol": symbol, "size": 8, "color": look["color"]},
            hovertext=[_hover(row) for row in ordered.iloc[keep].to_dict("records")],
            hovertemplate="%{hovertext}<extra>" + name + ": %{y:.0f} %</extra>",
        )
    figure.update_xaxes(title="observation time of the nodes [days]", rangemode="tozero")
    # Above 100 %, so that markers there are not cut.
    figure.update_yaxes(title="share [%]", range=[0, 104])
    assumed = recall.attrs.get("assumed")
    notes = [f"lemons, as assumed: {label(assumed, 120)}"] if assumed else []
    notes.append("it falls where one failure more is needed to be flagged")
    return frame.finish(figure, claim=_recall_claim(ordered), note=" · ".join(notes))


def _recall_claim(ordered: pd.DataFrame) -> str:
    first, last = ordered.iloc[0], ordered.iloc[-1]
    words = f"{digits(last['observed_days'])} days find {percent(last['recall_share'])}"
    if len(ordered) == 1:
        return f"{words} of the lemons"
    least = f"{digits(first['observed_days'])} days find {percent(first['recall_share'])}"
    return f"{least} of the lemons, {words}"


def _hover(row: Mapping[Hashable, Any]) -> str:
    least = row["least_failures_count"]
    flagged = "no count is flagged" if pd.isna(least) else f"flagged from {least} failures"
    days = f"{digits(row['observed_days'])} days"
    return f"{days}, {row['failure_count']:,.4g} failures of all nodes<br>{flagged}"
