"""Explore where the GPU time goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import chosen_rows, rank_choice
from workbench.explore._panel import Explorer
from workbench.tables import Trace


def time_breakdown(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank, and whether its time is divided by step; see where the time goes.

    Starts with all ranks side by side.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.time_breakdown`.
    """
    table = cache(partial(analyze.time_breakdown, trace.events))
    return Explorer(
        partial(_draw, table=table, source=source, synthetic=synthetic),
        rank=rank_choice(trace),
        by=widgets.Dropdown(options=["rank", "step"], description="divided by"),
    )


def _draw(
    *,
    rank: int | str,
    by: str,
    table: Callable[..., pd.DataFrame],
    source: str,
    synthetic: bool,
) -> go.Figure:
    rows = chosen_rows(table(by=by), rank=rank)
    return plot.time_breakdown(rows, source=source, synthetic=synthetic)
