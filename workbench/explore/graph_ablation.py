"""Explore what each step of building an execution graph is worth."""

from __future__ import annotations

from functools import cache

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import GRAPH_STEPS, GraphRules
from workbench.explore._panel import Explorer

_NONE = "nothing: the whole graph"


def graph_ablation(
    events: pd.DataFrame,
    *,
    rules: GraphRules | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Switch the steps off one by one; see the errors grow and the causes vanish.

    Starts with what every step is worth. The second view shows where in the trace the replay
    without a step leaves the GPU busy or idle at the wrong time.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    rules
        As for :func:`workbench.analyze.execution_graph`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.graph_ablation` and
        :func:`workbench.plot.gpu_busy`.
    """
    table = cache(lambda: analyze.graph_ablation(events, rules=rules))
    measured = cache(lambda: analyze.gpu_busy(events))

    @cache
    def replayed(without: str) -> pd.DataFrame:
        left_out = () if without == _NONE else (without,)
        graph = analyze.execution_graph(events, without=left_out, rules=rules)
        return analyze.gpu_busy(analyze.replayed_events(events, graph, analyze.replay(graph)))

    def draw(*, view: str, without: str) -> go.Figure:
        if view == "busy":
            return plot.gpu_busy(measured(), replayed(without), source=source, synthetic=synthetic)
        rows = table()
        if without != _NONE:
            rows = rows[rows["without"].isin(["", without])]
        return plot.graph_ablation(rows, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        view=widgets.Dropdown(
            options=[("errors and causes", "errors"), ("GPU busy over time", "busy")],
            description="view",
        ),
        without=widgets.Dropdown(options=[_NONE, *GRAPH_STEPS], description="left out"),
    )
