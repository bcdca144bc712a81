"""Explore how many spare nodes a job needs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import plotly.graph_objects as go

from workbench import analyze, plot, simulate
from workbench.analyze import FaultTolerance
from workbench.explore._controls import numbers
from workbench.explore._panel import Explorer
from workbench.tables import Source


def spares(
    job: FaultTolerance | None = None, *, failure_interval_min: float = 18, seed: int = 1
) -> Explorer:
    """Move repair time, failure interval and replicas; see how many spare nodes are enough.

    Every redraw draws failures over 27 days and replays them.

    Parameters
    ----------
    job
        Where the controls start; the published case by default.
    failure_interval_min
        Where its control starts, in minutes.
    seed
        Seed of the failures.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.spares`.
    """
    start = job or FaultTolerance()
    return Explorer(
        partial(_draw_spares, base=start, seed=seed),
        repair=numbers("repair [days]", (0.5, 1, 2), 2),
        interval=numbers("time between failures [min]", (18, 30, 60, 120), failure_interval_min),
        replicas=numbers("replicas", (1, 6, 12, 24), start.replicas),
    )


def _draw_spares(
    *, repair: float, interval: float, replicas: float, base: FaultTolerance, seed: int
) -> go.Figure:
    horizon = 27 * 1440.0
    job = replace(base, replicas=int(replicas))
    process = simulate.FailureProcess(failure_interval_min=interval, repair_min=repair * 1440)
    drawn = simulate.failure_times(
        process, horizon_min=horizon, seed=seed, runs=2, replicas=int(replicas),
        recovery_min=base.recovery_total_min,
    )  # fmt: skip
    load = repair * 1440 / interval
    counts = sorted({round(load * share) for share in (0.6, 0.8, 0.9, 1, 1.1, 1.2, 1.35, 1.5)})
    table = analyze.spares(drawn, job, counts, horizon_min=horizon)
    source = Source(f"simulated: 27 days, 2 runs, seed {seed}", "model")
    return plot.spares(table, source=source, synthetic=True)
