"""Explore what the longest path consists of, and what comes after it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import Change
from workbench.explore._panel import Explorer
from workbench.explore._questions import standard_questions
from workbench.tables import ExecutionGraph

_NONE = "nothing"


def critical_path(
    events: pd.DataFrame,
    graph: ExecutionGraph,
    *,
    questions: Sequence[Change] | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Change something; see what the critical path then consists of.

    Starts with the path as it is. What is made faster leaves the path at some point, and
    something else takes its place: that is what limits the gain.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`workbench.analyze.execution_graph`.
    questions
        Changes to choose from; by default compute and CPU twice as fast, no communication, no
        copies.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.critical_path`.
    """
    offered = standard_questions(events) if questions is None else questions
    changes = {change.question: change for change in offered}

    fidelity = cache(lambda: analyze.replay_fidelity(events, graph))

    @cache
    def path(question: str) -> pd.DataFrame:
        asked = [] if question == _NONE else [changes[question]]
        usable = analyze.usable_graph(graph, fidelity())
        return analyze.critical_path(events, usable, changes=asked)

    def draw(*, question: str, top: int) -> go.Figure:
        return plot.critical_path(path(question), top=top, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        question=widgets.Dropdown(options=[_NONE, *changes], description="changed"),
        top=widgets.Dropdown(options=[4, 8, 16], value=8, description="names"),
    )
