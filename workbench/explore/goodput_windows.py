"""Explore a log replayed, beside failures that come at random equally often."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot, simulate
from workbench.analyze import FaultTolerance
from workbench.explore._controls import numbers
from workbench.explore._panel import Explorer


def goodput_windows(
    failure_times: pd.DataFrame,
    *,
    horizon_min: float,
    replicas: int = 1,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Replay a log beside failures that come at random equally often.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES` of a log, for as many ``replicas``.
    horizon_min
        Length of the log, in minutes.
    replicas
        Replicas that the failures were mapped to.
    source
        Where the log comes from; printed under the figure.
    synthetic
        Whether the log was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.goodput_windows` and
        :func:`workbench.plot.goodput`. The twin has as many failures on average, at random
        times and on random nodes.
    """
    within = failure_times["time_min"].between(0, horizon_min, inclusive="left")
    count = int((within & ~failure_times["is_follow_on"]).sum())
    label = {"source": source, "synthetic": synthetic}
    twin = cache(partial(_twin, count=count, horizon_min=horizon_min, replicas=replicas))
    draw = partial(
        _draw_windows, log=failure_times, twin=twin, horizon=horizon_min, replicas=replicas,
        label=label,
    )  # fmt: skip
    lengths = [
        (f"{hours} h", 60.0 * hours) for hours in (1, 6, 24, 168) if 120 * hours < horizon_min
    ]
    views = [("where the time goes", "states"), *((f"windows of {w}", m) for w, m in lengths)]
    start = max((each for _, each in lengths if each <= 1440), default="states")
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, value=start, description="view"),
        recovery=numbers("recovery [min]", (2, 5, 10, 20), 10),
        stall=numbers("stall of all [min]", (0, 1, 3), 3),
    )


def _twin(recovery: float, *, count: int, horizon_min: float, replicas: int) -> pd.DataFrame:
    process = simulate.FailureProcess(
        failure_interval_min=horizon_min / max(count, 1), node_count=max(replicas, 1)
    )
    return simulate.failure_times(
        process, horizon_min=horizon_min, seed=1, runs=20, replicas=replicas,
        recovery_min=recovery,
    )  # fmt: skip


def _draw_windows(
    *,
    view: Any,
    recovery: float,
    stall: float,
    log: pd.DataFrame,
    twin: Any,
    horizon: float,
    replicas: int,
    label: dict[str, Any],
) -> go.Figure:
    job = FaultTolerance(recovery_min=recovery, stall_min=stall, replicas=replicas)
    columns = [name for name in log.columns if name.endswith("_min") and name != "time_min"]
    logged = log.assign(**dict.fromkeys(columns, 0.0)).assign(other_min=recovery)
    cases = {"the log": logged, "its Poisson twin (20 runs)": twin(recovery)}
    if view == "states":
        tables = {
            name: analyze.goodput_mean(analyze.goodput_replay(each, job, horizon_min=horizon))
            for name, each in cases.items()
        }
        return plot.goodput(tables, **label)
    windows = {
        name: analyze.goodput_windows(each, job, horizon_min=horizon, window_min=view)
        for name, each in cases.items()
    }
    return plot.goodput_windows(windows, **label)
