"""Inject while the estimate is watched, and stop when it is good enough."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import slider
from workbench.explore._live import Chunks, LiveExplorer

_ERRORS = (0.05, 0.1, 0.2, 0.3, 0.5)


def pvf_running(
    start: pd.DataFrame,
    chunks: Chunks | None = None,
    *,
    truth: float | None = None,
    total_count: int | None = None,
    source: str = "",
    synthetic: bool = False,
) -> LiveExplorer:
    """Press a button to inject; watch the estimate and its interval settle, and stop.

    Starts with results that are there already, so that there is a picture without PyTorch.
    Choose the error that is good enough.

    Parameters
    ----------
    start
        Table :data:`workbench.tables.OUTCOMES` of a campaign that is done, in the order of
        its experiments; shown until something is injected.
    chunks
        Makes an iterator that injects and gives the outcomes of one chunk after another, e.g.
        ``lambda: injections.running(model, inputs, faults, settings=settings)``. It is called
        when the button is pressed.
    truth
        The exhaustive factor, where it is known; drawn as a line.
    total_count
        Experiments that all chunks have together, if known.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        A control and the buttons *Inject* and *Stop* above :func:`workbench.plot.pvf_running`.
        ``explorer.found`` holds the outcomes of what was injected.
    """
    draw = partial(_draw, start=start, truth=truth, source=source, synthetic=synthetic)
    return LiveExplorer(
        draw,
        chunks or _nothing,
        total_count=total_count,
        wanted=slider("good enough at ±", [(f"{100 * each:g} %", each) for each in _ERRORS], 0.2),
    )


def _nothing() -> Iterator[pd.DataFrame]:
    msg = (
        "there is nothing to inject into; pass chunks, e.g. "
        "lambda: injections.running(model, inputs, faults)"
    )
    raise WorkbenchError(msg)


def _draw(
    *,
    wanted: float,
    found: tuple[pd.DataFrame, ...],
    start: pd.DataFrame,
    truth: float | None,
    source: str,
    synthetic: bool,
) -> go.Figure:
    outcomes = pd.concat(found, ignore_index=True) if found else start
    table = analyze.pvf_running(outcomes, relative_error=wanted)
    where = f"{source}, injected just now" if found else source
    return plot.pvf_running(table, truth=truth, source=where, synthetic=synthetic)
