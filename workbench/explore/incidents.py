"""Explore failure logs: what failed when and where, and what counts as one incident."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import ALL, choice, chosen_rows
from workbench.explore._panel import Explorer
from workbench.tables import FailureLog

_WINDOWS_S = (0, 10, 60, 300, 1800)
_VIEWS = (("timeline", "timeline"), ("counts by window", "counts"))


def incidents(log: FailureLog, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose the longest pause inside an incident, and a category; see what failed when.

    Starts at 300 s with all categories, of one reporter if several may have told of the same
    failures.

    Parameters
    ----------
    log
        What :func:`workbench.load.failures` returns with ``window_s=0``. If it was folded
        when it was loaded, shorter windows change nothing.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.incidents` and
        :func:`workbench.plot.incident_counts`. The category is that of the line that leads
        an incident; the window matters to the timeline only.

    Raises
    ------
    WorkbenchError
        If ``log`` is a table instead of what was loaded.
    """
    given: object = log
    if not isinstance(given, FailureLog):
        msg = f"a FailureLog is needed, not a {type(given).__name__}; pass what load.failures gives"
        raise WorkbenchError(msg)
    categories = sorted(str(each) for each in log.failures["category"].unique())
    rows = cache(lambda kind: log.failures if kind == ALL else _of(log.failures, kind))
    folded = cache(lambda kind, window_s: analyze.incidents(rows(kind), window_s=window_s))
    counts = cache(lambda kind: analyze.incident_counts(rows(kind), windows_s=_WINDOWS_S))
    kinds = choice("reported by", sorted(str(each) for each in log.failures["kind"].unique()))
    kinds.value = _first_kind(log.failures)
    return Explorer(
        partial(_draw, folded=folded, counts=counts, source=source, synthetic=synthetic),
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        window_s=widgets.SelectionSlider(
            options=[(f"{window} s", window) for window in _WINDOWS_S],
            value=300,
            description="longest pause",
            continuous_update=False,
        ),
        category=choice("category", categories),
        kind=kinds,
    )


def _first_kind(failures: pd.DataFrame) -> str:
    """Begin with one reporter if several may have told of the same failures."""
    kinds = analyze.reported_by(failures)["kind"].unique()
    return str(kinds[0]) if len(kinds) == 1 < failures["kind"].nunique() else ALL


def _of(failures: pd.DataFrame, kind: str) -> pd.DataFrame:
    return failures[failures["kind"] == kind].reset_index(drop=True)


def _draw(
    *,
    view: str,
    window_s: float,
    category: str,
    kind: str,
    folded: Callable[[str, float], pd.DataFrame],
    counts: Callable[[str], pd.DataFrame],
    source: str,
    synthetic: bool,
) -> go.Figure:
    shown: dict[str, Any] = {"source": source, "synthetic": synthetic}
    if view == "counts":
        return plot.incident_counts(chosen_rows(counts(kind), category=category), **shown)
    return plot.incidents(chosen_rows(folded(kind, window_s), category=category), **shown)
