"""Explore what stragglers cost a job, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import ALL
from workbench.explore._panel import Explorer
from workbench.tables import JOB_OPERATIONS

_MOST_STEPS = 16
_VIEWS = (
    ("verdict", "verdict"),
    ("map of workers", "worker"),
    ("by stage", "stage"),
    ("by data-parallel rank", "dp_rank"),
    ("by operation", "operation"),
    ("schedule of a step", "schedule"),
    ("micro-batches", "micro-batches"),
    ("what usual measures say", "measures"),
    ("steps", "steps"),
)


def job_slowdown(
    operations: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a view of a job, and a step; see what stragglers cost it and where they are.

    Starts with the verdict. Steps and ranks that were not recorded whole are left out; the
    verdict says so.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.job_slowdown`,
        :func:`workbench.plot.job_slowdown_by`, :func:`workbench.plot.job_schedule`,
        :func:`workbench.plot.job_micro_batches`, :func:`workbench.plot.job_dispersion` and
        :func:`workbench.plot.job_steps`. Of many steps some are offered, evenly spread; the
        step matters to the schedule and to micro-batches.
    """
    JOB_OPERATIONS.check(operations)
    whole = cache(partial(analyze.complete_steps, operations))
    tables = {
        "verdict": cache(lambda: analyze.job_slowdown(whole())),
        "schedule": cache(lambda step: analyze.job_schedule(whole(), step=step)),
        "micro-batches": cache(lambda: analyze.job_micro_batches(whole())),
        "measures": cache(lambda: analyze.job_dispersion(whole())),
        "steps": cache(lambda: analyze.job_steps(whole())),
        "part": cache(lambda part: analyze.job_slowdown_by(whole(), part)),
    }
    return Explorer(
        partial(_draw, tables=tables, source=source, synthetic=synthetic),
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        step=widgets.Dropdown(options=_steps(operations), description="step"),
    )


def _steps(operations: pd.DataFrame) -> list[tuple[str, int | str]]:
    """Offer the slowest step (for micro-batches all of them), and some by number."""
    steps = np.unique(operations["step"].to_numpy()).tolist()
    if len(steps) > _MOST_STEPS:
        places = np.linspace(0, len(steps) - 1, _MOST_STEPS).round().astype(int)
        steps = [steps[place] for place in places]
    return [("slowest, or all", ALL), *((str(step), step) for step in steps)]


def _draw(
    *,
    view: str,
    step: int | str,
    tables: Mapping[str, Callable[..., pd.DataFrame]],
    source: str,
    synthetic: bool,
) -> go.Figure:
    shown: dict[str, Any] = {"source": source, "synthetic": synthetic}
    if view == "verdict":
        return plot.job_slowdown(tables["verdict"](), **shown)
    if view == "schedule":
        chosen = None if step == ALL else int(step)
        return plot.job_schedule(tables["schedule"](chosen), **shown)
    if view == "micro-batches":
        return _micro_batches(tables, step, shown)
    if view == "measures":
        return plot.job_dispersion(tables["measures"](), **shown)
    if view == "steps":
        return plot.job_steps(tables["steps"](), **shown)
    return plot.job_slowdown_by(tables["part"](view), **shown)


def _micro_batches(
    tables: Mapping[str, Callable[..., pd.DataFrame]], step: int | str, shown: dict[str, Any]
) -> go.Figure:
    table = tables["micro-batches"]()
    if step != ALL:
        return plot.job_micro_batches(table[table["step"] == step].reset_index(drop=True), **shown)
    correlation = tables["verdict"]()["forward_backward_correlation"].iloc[0]
    known = None if pd.isna(correlation) else float(correlation)
    return plot.job_micro_batches(table, correlation=known, **shown)
