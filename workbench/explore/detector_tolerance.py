"""Explore the tolerance of a detector: what it catches against false alarms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import slider
from workbench.explore._panel import Explorer


def detector_tolerance(
    trials: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Move the tolerance; read off the share of faults detected and that of false alarms.

    Starts at the smallest tolerance without a false alarm.

    Parameters
    ----------
    trials
        Table :data:`workbench.tables.DETECTOR_TRIALS`.
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
        If there is no trial.
    """
    table = analyze.detector_tolerance(trials)
    if table.empty:
        msg = "there are no trials; a detector needs some with a fault and some without"
        raise WorkbenchError(msg)
    alarms = table.groupby("tolerance")["false_alarm_share"].max()
    quiet = alarms[alarms == 0]
    tolerances = np.sort(table["tolerance"].unique()).tolist()
    start = float(quiet.index.min()) if len(quiet) else tolerances[-1]

    def draw(*, tolerance: float) -> go.Figure:
        return plot.detector_tolerance(
            table, at_tolerance=tolerance, source=source, synthetic=synthetic
        )

    return Explorer(
        draw, tolerance=slider("tolerance", [(f"{each:.3g}", each) for each in tolerances], start)
    )
