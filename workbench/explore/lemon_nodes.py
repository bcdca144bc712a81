"""Explore which nodes fail too often, and how much that depends on how long one watches."""

from __future__ import annotations

from functools import cache

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import ALL
from workbench.explore._panel import Explorer

_DAYS = (7, 14, 30, 54, 90, 180)
_FALSE = (("1 %", 0.01), ("5 %", 0.05), ("10 %", 0.1), ("20 %", 0.2))


def lemon_nodes(
    failures: pd.DataFrame, nodes: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose the false discovery rate and the time watched; see which nodes stand out.

    Starts with the whole observation at 5 %. Go back to its first week: the same bad nodes
    are there, and nothing shows.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`.
    nodes
        Table :data:`workbench.tables.NODE_SPANS` with all nodes watched, failed or not.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.lemon_nodes` and
        :func:`workbench.plot.lemon_recall`.

    Raises
    ------
    WorkbenchError
        If a node has no time over which it was watched, or a failed node is not among them.
    """
    rate = analyze.failure_rates(failures, nodes=nodes).iloc[0]
    watched = float(rate["exposure_node_days"]) / int(rate["node_count"])

    @cache
    def found(days: float | str, false_discovery: float) -> pd.DataFrame:
        some, spans = (
            (failures, nodes)
            if days == ALL
            else analyze.first_days(failures, nodes, days=float(days))
        )
        return analyze.lemon_nodes(some, nodes=spans, false_discovery_share=false_discovery)

    def draw(*, view: str, days: float | str, false_discovery: float) -> go.Figure:
        if view == "nodes":
            return plot.lemon_nodes(
                found(days, false_discovery), source=source, synthetic=synthetic
            )
        recall = analyze.lemon_recall(
            int(rate["node_count"]),
            float(rate["per_1000_node_days"]),
            false_discovery_share=false_discovery,
        )
        return plot.lemon_recall(recall, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        view=widgets.Dropdown(
            options=[("nodes", "nodes"), ("how long to watch", "recall")], description="view"
        ),
        days=widgets.Dropdown(
            options=[
                (f"all, {watched:.3g} days on average", ALL),
                *((f"the first {each}", each) for each in _DAYS if each < watched),
            ],
            description="days watched",
        ),
        false_discovery=widgets.Dropdown(
            options=list(_FALSE), value=0.05, description="false discovery rate"
        ),
    )
