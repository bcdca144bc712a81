"""Explore a hang: who is suspected, who waits for whom, what is pending where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import choice, chosen_rows
from workbench.explore._panel import Explorer
from workbench.tables import FlightRecording

_VIEWS = (
    ("suspects", "suspects"),
    ("who waits for whom", "waits"),
    ("what is pending", "positions"),
)


def flight_suspects(
    recording: FlightRecording, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a view of a hang, and a process group; see whom it comes from and why.

    Starts with the suspects, which are found in all groups together. The group matters to
    the other views.

    Parameters
    ----------
    recording
        What :func:`workbench.load.flight_recorder` returns.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.flight_suspects`,
        :func:`workbench.plot.flight_waits` and :func:`workbench.plot.flight_positions`.
        Groups are offered in which something is pending.

    Raises
    ------
    WorkbenchError
        If ``recording`` is something else, e.g. one of its tables.
    """
    given: object = recording
    if not isinstance(given, FlightRecording):
        msg = (
            f"a FlightRecording is needed, not a {type(given).__name__}; pass what "
            "load.flight_recorder returns"
        )
        raise WorkbenchError(msg)
    tables = {
        "suspects": cache(partial(analyze.flight_suspects, recording)),
        "waits": cache(partial(analyze.flight_waits, recording)),
        "positions": cache(partial(analyze.flight_positions, recording)),
    }
    pending = recording.entries.loc[recording.entries["state"] != "completed", "group"]
    groups = sorted({str(group) for group in pending.dropna()}, key=_by_number)
    return Explorer(
        partial(_draw, tables=tables, source=source, synthetic=synthetic),
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        group=choice("group", groups),
    )


def _by_number(group: str) -> tuple[bool, int, str]:
    return (not group.isdecimal(), int(group) if group.isdecimal() else 0, group)


def _draw(
    *,
    view: str,
    group: str,
    tables: Mapping[str, Callable[[], pd.DataFrame]],
    source: str,
    synthetic: bool,
) -> go.Figure:
    shown: dict[str, Any] = {"source": source, "synthetic": synthetic}
    if view == "suspects":
        return plot.flight_suspects(tables["suspects"](), **shown)
    rows = chosen_rows(tables[view](), group=group)
    if view == "waits":
        return plot.flight_waits(rows, **shown)
    return plot.flight_positions(rows, **shown)
