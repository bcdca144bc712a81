"""Explore what every stream and thread did when."""

from __future__ import annotations

from functools import partial

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go

from workbench import plot
from workbench.explore._controls import ALL, rank_choice
from workbench.explore._panel import Explorer
from workbench.tables import Trace


def timeline(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank and a window in time; see its events, the finer the narrower it is.

    Starts with everything. For zooming with the mouse see
    :func:`workbench.plot.timeline_live`.

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
        Controls above :func:`workbench.plot.timeline`.
    """
    return Explorer(
        partial(_draw, trace=trace, source=source, synthetic=synthetic),
        rank=rank_choice(trace),
        window=_window_choice(trace),
    )


def _draw(
    *, rank: int | str, window: tuple[int, int], trace: Trace, source: str, synthetic: bool
) -> go.Figure:
    return plot.timeline(
        trace.events,
        ranks=None if rank == ALL else [int(rank)],
        start_ns=window[0],
        end_ns=window[1],
        max_points=2_000,
        source=source,
        synthetic=synthetic,
    )


def _window_choice(trace: Trace, *, parts: int = 200) -> widgets.SelectionRangeSlider:
    """Offer the time from the first event to the end of the last in equal parts."""
    first, last = (trace.events["start_ns"], trace.events["start_ns"] + trace.events["dur_ns"])
    start = int(first.min()) if len(first) else 0
    span = int(last.max()) - start if len(last) else 1
    cuts = np.unique(start + np.arange(parts + 1) * span // parts).tolist()
    return widgets.SelectionRangeSlider(
        options=[(f"{(cut - start) / 1e6:,.5g}", cut) for cut in cuts],
        index=(0, len(cuts) - 1),
        description="window [ms]",
        continuous_update=False,
    )
