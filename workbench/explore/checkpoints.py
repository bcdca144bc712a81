"""Explore how often to save, and where a well-known formula fails."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import numbers
from workbench.explore._panel import Explorer
from workbench.tables import Source


def checkpoint_curve(
    *, failure_interval_min: float = 180, recovery_min: float = 5, write_min: float = 1
) -> Explorer:
    """Move failure interval, recovery and writing time; find the best checkpoint interval.

    Parameters
    ----------
    failure_interval_min
        Where its control starts, in minutes.
    recovery_min
        Where its control starts, in minutes.
    write_min
        Where its control starts, in minutes.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.checkpoint_curve`.
    """
    return Explorer(
        _draw_checkpoints,
        interval=numbers(
            "time between failures [min]", (18, 30, 60, 120, 180, 360, 720), failure_interval_min
        ),
        write=numbers("writing one [min]", (0.1, 0.25, 0.5, 1, 2, 5), write_min),
        recovery=numbers("recovery [min]", (1, 5, 10, 20), recovery_min),
    )


def expected_ettr() -> Explorer:
    """Move failure rate, restart and checkpoint interval; see where the formula fails.

    Starts at the rate of Meta's RSC-1 cluster.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.expected_ettr`.
    """
    return Explorer(
        _draw_ettr,
        rate=numbers("failures per 1,000 node-days", (1, 2.34, 3.79, 6.5, 10), 6.5),
        restart=numbers("restart [min]", (2, 5, 10, 20), 10),
        interval=numbers("checkpoint interval [min]", (2, 5, 15, 30, 60), 60),
    )


def _draw_checkpoints(*, interval: float, write: float, recovery: float) -> go.Figure:
    case = {"failure_interval_min": interval, "recovery_min": recovery, "write_min": write}
    curve = analyze.checkpoint_curve(np.geomspace(0.5, max(4 * interval, 60), 60), **case)
    best = analyze.checkpoint_optimum(**case)
    return plot.checkpoint_curve(curve, optimum=best, source=Source("closed form (Daly)", "model"))


def _draw_ettr(*, rate: float, restart: float, interval: float) -> go.Figure:
    table = analyze.expected_ettr(
        np.geomspace(512, 200_000, 40).astype(int),
        failures_per_1000_node_days=rate,
        restart_min=restart,
        checkpoint_interval_min=interval,
        write_min=0.5,
    )
    return plot.expected_ettr(table, source=Source("closed form; writing takes 0.5 min", "model"))
