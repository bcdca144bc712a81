"""Explore the tolerance of a detector: what it catches against false alarms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import slider
from workbench.explore._panel import Explorer

_TOLERANCES = (0.0, *(10.0 ** (step / 2) for step in range(-16, -3)))


def detector_tolerance(
    trials: pd.DataFrame,
    *,
    tolerances: Sequence[float] = _TOLERANCES,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Move the tolerance; read off the share of faults detected and that of false alarms.

    Starts at the smallest tolerance without a false alarm.

    Parameters
    ----------
    trials
        Table :data:`workbench.tables.DETECTOR_TRIALS`.
    tolerances
        Residuals that the control offers.
    source
        Where the trials come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        A control above :func:`workbench.plot.detector_tolerance`.

    Raises
    ------
    WorkbenchError
        If no fault changed an output.
    """
    table = analyze.detector_tolerance(trials, tolerances=tolerances)
    if table.empty:
        msg = "no trial has a fault that changed the output; a detector needs some to catch"
        raise WorkbenchError(msg)
    alarms = table.groupby("tolerance")["false_alarm_share"].max()
    quiet = alarms[alarms == 0]
    offered = np.sort(table["tolerance"].unique()).tolist()
    start = float(quiet.index.min()) if len(quiet) else offered[-1]

    def draw(*, tolerance: float) -> go.Figure:
        return plot.detector_tolerance(
            table, at_tolerance=tolerance, source=source, synthetic=synthetic
        )

    return Explorer(
        draw, tolerance=slider("tolerance", [(f"{each:.3g}", each) for each in offered], start)
    )
