"""Explore how long collectives take, and how fast the bus is."""

from __future__ import annotations

from functools import partial
from typing import Literal

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import choice, chosen_rows
from workbench.explore._panel import Explorer


def collective_times(times: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose GPU, collective and ranks; see time or bandwidth by size.

    Starts with the first collective on all numbers of ranks.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.COLLECTIVE_TIMES`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.collective_times`.
    """
    beside = analyze.collective_times(times)
    names = {name: list(dict.fromkeys(beside[name].tolist())) for name in ("gpu", "collective")}
    collective = choice("collective", names["collective"])
    gpu = choice("GPU", names["gpu"])
    for control, values in ((collective, names["collective"]), (gpu, names["gpu"])):
        if values:
            control.value = str(values[0])
    return Explorer(
        partial(_draw, beside=beside, source=source, synthetic=synthetic),
        gpu=gpu,
        collective=collective,
        rank_count=choice("ranks", sorted(set(beside["rank_count"].tolist()))),
        show=widgets.ToggleButtons(
            options=[("time", "time"), ("bus bandwidth", "bandwidth")], description="show"
        ),
    )


def _draw(
    *,
    gpu: str,
    collective: str,
    rank_count: int | str,
    show: Literal["time", "bandwidth"],
    beside: pd.DataFrame,
    source: str,
    synthetic: bool,
) -> go.Figure:
    rows = chosen_rows(beside, gpu=gpu, collective=collective, rank_count=rank_count)
    return plot.collective_times(rows, show=show, source=source, synthetic=synthetic)
