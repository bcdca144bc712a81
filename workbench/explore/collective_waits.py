"""Explore who waits for whom in the collectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import choice, chosen_rows
from workbench.explore._panel import Explorer
from workbench.tables import Trace


def collective_waits(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a step, an operation and a view; see who waits, and for whom.

    Starts with the waiting of every rank in all collectives.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns, of several ranks.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.collective_waits` and
        :func:`workbench.plot.blame`.
    """
    waits = cache(
        partial(analyze.collective_waits, trace.events, process_groups=trace.process_groups)
    )
    communication = trace.events.loc[trace.events["kind"] == "communication", "step"]
    return Explorer(
        partial(_draw, waits=waits, source=source, synthetic=synthetic),
        view=widgets.Dropdown(
            options=[("waiting per rank", "waits"), ("who waits for whom", "blame")],
            description="view",
        ),
        step=choice("step", (int(step) for step in sorted(communication.dropna().unique()))),
    )


def _draw(
    *,
    view: str,
    step: int | str,
    waits: Callable[[], pd.DataFrame],
    source: str,
    synthetic: bool,
) -> go.Figure:
    rows = chosen_rows(waits(), step=step)
    if view == "blame":
        return plot.blame(analyze.blame(rows), source=source, synthetic=synthetic)
    return plot.collective_waits(rows, source=source, synthetic=synthetic)
