"""Explore when devices were held back by power, and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import numbers
from workbench.explore._panel import Explorer
from workbench.tables import JobLog, PowerLog

_VIEWS = (("when", "events"), ("what it cost", "cost"), ("which device", "blame"))
_EVIDENCE = (("the best there is", False), ("power at its limit alone", True))


def capping_events(
    log: PowerLog, job: JobLog | None = None, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose what counts as capping; see when it happened, what it cost, and on which device.

    Starts with the best evidence that each device has. Judging by power alone shows how far
    that would lead astray: a capped GPU may draw well below its limit.

    Parameters
    ----------
    log
        What :func:`workbench.load.power` returns.
    job
        What :func:`workbench.load.job_log` returns of the job that ran; without it there is no
        cost.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.capping_events`, and with a job log
        :func:`workbench.plot.capping_cost` and :func:`workbench.plot.capping_blame`.

    Raises
    ------
    WorkbenchError
        If ``log`` or ``job`` is a table instead of what was loaded.
    """
    for given, kind, how in ((log, PowerLog, "load.power"), (job, JobLog, "load.job_log")):
        if given is not None and not isinstance(given, kind):
            msg = (
                f"a {kind.__name__} is needed, not a {type(given).__name__}; pass what {how} gives"
            )
            raise WorkbenchError(msg)
    return Explorer(
        partial(
            _draw, found=cache(partial(_found, log)), job=job, source=source, synthetic=synthetic
        ),
        view=widgets.Dropdown(options=_VIEWS if job else _VIEWS[:1], description="view"),
        power_alone=widgets.Dropdown(options=_EVIDENCE, description="judged by"),
        limit_share=numbers("power counts from [of the limit]", (0.8, 0.85, 0.9, 0.95, 1), 0.97),
        gap=numbers("longest pause [periods]", (1.2, 3, 10), 3),
    )


def _found(log: PowerLog, power_alone: bool, limit_share: float, gap: float) -> pd.DataFrame:
    """Find the events, with or without what the driver says."""
    states = log.states
    if power_alone:
        nothing = pd.Series(pd.NA, index=states.index, dtype="Int64")
        states = states.assign(reasons=nothing, power_violation_ns=nothing)
    return analyze.capping_events(
        log.power, states, limit_share=limit_share, longest_gap_periods=gap
    )


def _draw(
    *,
    view: str,
    power_alone: bool,
    limit_share: float,
    gap: float,
    found: Callable[[bool, float, float], pd.DataFrame],
    job: JobLog | None,
    source: str,
    synthetic: bool,
) -> go.Figure:
    shown: dict[str, Any] = {"source": source, "synthetic": synthetic}
    events = found(power_alone, limit_share, gap)
    if view == "cost" and job is not None:
        return plot.capping_cost(analyze.capping_cost(events, job.steps), **shown)
    if view == "blame" and job is not None:
        return plot.capping_blame(analyze.capping_blame(events, job.steps), **shown)
    return plot.capping_events(events, **shown)
