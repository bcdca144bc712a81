"""Explore pipeline schedules: their bubbles, with numbers of your own."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import PassTimes, ScheduleKind
from workbench.explore._controls import numbers
from workbench.explore._panel import Explorer
from workbench.tables import Source

_COMPARED = "all, side by side"


def pipeline_schedule(
    *, forward_ns: float = 1e6, backward_ns: float = 2e6, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose schedule, stages, micro-batches and the weights' part; see the bubble.

    Parameters
    ----------
    forward_ns
        Forward pass of one micro-batch on a whole stage.
    backward_ns
        Backward pass of one micro-batch on a whole stage.
    source
        Where these come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.pipeline_schedule`, or
        :func:`workbench.plot.schedule_comparison` of all schedules.
    """
    options = [(name, name) for name in (*get_args(ScheduleKind), _COMPARED)]
    label = {"source": source or Source("durations as chosen", "model"), "synthetic": synthetic}
    return Explorer(
        partial(_draw, forward_ns=forward_ns, backward_ns=backward_ns, label=label),
        schedule=widgets.Dropdown(options=options, value="1f1b", description="schedule"),
        stages=numbers("stages", (2, 4, 8), 4),
        micro_batches=numbers("micro-batches", (2, 4, 8, 12, 16, 32), 8),
        weight_share=numbers("weights' part of backward", (0.3, 0.4, 0.5, 0.6), 0.5),
        overlap_share=numbers("gained by overlapping", (0, 0.1, 0.2, 0.3), 0),
    )


def _draw(
    *,
    schedule: str,
    stages: float,
    micro_batches: float,
    weight_share: float,
    overlap_share: float,
    forward_ns: float,
    backward_ns: float,
    label: dict[str, Any],
) -> go.Figure:
    times = PassTimes(
        forward_ns,
        backward_ns,
        weight_share * backward_ns,
        overlapped_ns=(1 - overlap_share) * (forward_ns + backward_ns),
    )
    wide, many = int(stages), int(micro_batches)
    if schedule == _COMPARED:
        table = analyze.schedule_comparison(times, stages=wide, micro_batches=many)
        return plot.schedule_comparison(table, **label)
    made = analyze.pipeline_schedule(schedule, wide, many)  # type: ignore[arg-type]
    chunks = made["chunk"].nunique() // wide
    return plot.pipeline_schedule(analyze.schedule_times(made, times.part(chunks)), **label)
