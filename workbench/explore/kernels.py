"""Explore which kernels take the GPU time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import choice, chosen_rows, rank_choice
from workbench.explore._panel import Explorer
from workbench.tables import Trace


def kernels(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank, a kind of work and how many names to see; see what takes longest.

    Starts with the twelve largest of all ranks.

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
        Controls above :func:`workbench.plot.kernels`.
    """
    table = cache(partial(analyze.kernels, trace.events))
    kinds = trace.events["kind"].cat.remove_unused_categories().cat.categories
    return Explorer(
        partial(_draw, table=table, source=source, synthetic=synthetic),
        rank=rank_choice(trace),
        kind=choice("kind", (str(kind) for kind in kinds)),
        top=widgets.Dropdown(options=[6, 12], value=12, description="names"),
    )


def _draw(
    *,
    rank: int | str,
    kind: str,
    top: int,
    table: Callable[[], pd.DataFrame],
    source: str,
    synthetic: bool,
) -> go.Figure:
    rows = chosen_rows(table(), rank=rank, kind=kind)
    return plot.kernels(rows, top=top, source=source, synthetic=synthetic)
