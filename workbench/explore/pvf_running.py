"""Inject while the estimate is watched, and stop when it is good enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import slider
from workbench.explore._live import Chunks, LiveExplorer
from workbench.tables import Injections, as_source

_LOOKS = 60
_ERRORS = (0.05, 0.1, 0.2, 0.3, 0.5)


def pvf_running(
    start: Injections,
    chunks: Chunks | None = None,
    *,
    faults: pd.DataFrame | None = None,
    truth: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> LiveExplorer:
    """Press a button to inject; watch the estimate and its interval settle, and stop.

    Starts with results that are there already, so that there is a picture without PyTorch.
    Choose the error that is good enough.

    Parameters
    ----------
    start
        A campaign that is done, or one that ``analyze.truth_sample`` draws; shown until
        something is injected.
    chunks
        Makes an iterator that injects and gives the outcomes of one chunk after another, e.g.
        ``lambda: injections.running(model, inputs, faults, settings=settings)``. It is called
        when the button is pressed.
    faults
        Table :data:`workbench.tables.FAULTS` of what ``chunks`` injects; the faults of
        ``start`` if left out. Both follow the same rules.
    truth
        The exhaustive factor, where it is known; drawn as a line.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    LiveExplorer
        A control and the buttons *Inject* and *Stop* above :func:`workbench.plot.pvf_running`.
        ``explorer.found`` holds the outcomes of what was injected.
    """
    # The campaign that is injected now is described as the one that is done.
    name = str(start.campaign["campaign_id"].iloc[0])
    live = replace(
        start, faults=(start.faults if faults is None else faults).assign(campaign_id=name)
    )
    label = {"truth": truth, "source": source, "synthetic": synthetic}
    return LiveExplorer(
        partial(_draw, start=start, live=live, name=name, label=label),
        chunks or _nothing,
        total_count=live.faults["exp_id"].nunique(),
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
    start: Injections,
    live: Injections,
    name: str,
    label: dict[str, Any],
) -> go.Figure:
    shown = start
    if found:
        outcomes = pd.concat(found, ignore_index=True).assign(campaign_id=name)
        shown = replace(live, outcomes=outcomes)
        label = label | {"source": as_source(label["source"]).joined("injected just now")}
    step = max(len(shown.outcomes) // _LOOKS, 1)
    table = analyze.pvf_running(shown, every=step, relative_error=wanted)
    return plot.pvf_running(table, **label)
