"""What a detector catches, and how often it cries wolf, against its tolerance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.chances import numbers
from workbench.plot._style.dots import log_ticks
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, distinct, finish, nothing
from workbench.plot._style.text import label, percent, plural
from workbench.tables import DETECTOR_TOLERANCE

_MOST_LINES, _MOST_POINTS = 6, 400
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")
_ALARM_DASHES = ("dot", "2px,2px", "1px,5px", "6px,6px", "3px,5px", "5px,9px")


def detector_tolerance(
    table: pd.DataFrame,
    *,
    at_tolerance: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the share of faults detected and that of false alarms against the tolerance.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.DETECTOR_TOLERANCE`.
    at_tolerance
        Tolerance to mark and to read off; by default the smallest without false alarms.
    source
        Where the checks come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Filled marks for what is detected, a line per detector and place; open marks for false
        alarms, a line per detector; the tolerance is logarithmic. The title reads off one
        tolerance.
    """
    DETECTOR_TOLERANCE.check(table)
    rows = table[table["detected_share"].notna() | table["false_alarm_share"].notna()]
    if rows.empty:
        return nothing(
            "No detector was tried with a fault or without; analyze.detector_tolerance needs "
            "trials of both kinds.",
            claim="No detector to show",
            source=source,
            synthetic=synthetic,
        )
    rows = rows.assign(at=_places(rows)).sort_values("at", kind="stable")
    figure = go.Figure()
    lines = list(rows.groupby(["detector", "place"], sort=False))
    several = rows["detector"].nunique() > 1
    for at, ((detector, place), part) in enumerate(lines[:_MOST_LINES]):
        name = f"{label(detector, 24)}, {label(place, 28)}" if several else label(place, 24)
        _add_detected(figure, part, at=at, name=f"detected: {name}")
    for at, (detector, part) in enumerate(list(rows.groupby("detector", sort=False))[:_MOST_LINES]):
        alarms = part.drop_duplicates("tolerance")
        name = f"false alarms: {label(detector, 24)}" if several else "false alarms"
        _add_alarms(figure, alarms, at=at, name=name)
    chosen = _chosen(rows, at_tolerance)
    figure.add_vline(
        x=float(chosen["at"].iloc[0]),
        line={"color": COLOURS["neutral"], "width": 1.5, "dash": "dot"},
    )
    figure.update_xaxes(title="tolerance: alarm above this residual [1, logarithmic]", type="log")
    figure.update_xaxes(**_ticks(rows))
    figure.update_yaxes(title="share of checks that alarm [%]", range=[-3, 104])
    figure.update_layout(hovermode="closest")
    hidden = len(lines) - min(len(lines), _MOST_LINES)
    notes = ["whiskers: intervals of independent checks"]
    notes += [f"{plural(hidden, 'line')} left out"] if hidden else []
    claim = _claim(chosen)
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=" · ".join(notes))


def _places(rows: pd.DataFrame) -> np.ndarray:
    """Place a tolerance of 0 left of all others; a logarithmic axis has no place for it."""
    tolerance = numbers(rows["tolerance"])
    known = tolerance[tolerance > 0]
    return np.where(tolerance > 0, tolerance, (known.min() if len(known) else 1.0) / 10)


def _ticks(rows: pd.DataFrame) -> dict[str, object]:
    places = rows["at"].to_numpy()
    look = log_ticks(places)
    words = [f"{tick:.3g}" for tick in look["tickvals"]]
    zero = rows.loc[rows["tolerance"] == 0, "at"]
    if len(zero):
        kept = [at for at, tick in enumerate(look["tickvals"]) if tick > 1.5 * zero.iloc[0]]
        return look | {
            "tickvals": [float(zero.iloc[0]), *(look["tickvals"][at] for at in kept)],
            "ticktext": ["0", *(words[at] for at in kept)],
        }
    return look | {"ticktext": words}


def _add_detected(figure: go.Figure, part: pd.DataFrame, *, at: int, name: str) -> None:
    part = part[part["detected_share"].notna()]
    if part.empty:
        return
    part = part.iloc[extremes(part["detected_share"].to_numpy(dtype="float64"), _MOST_POINTS)]
    look = distinct(at)
    share, low, high = (
        100 * numbers(part[each]) for each in ("detected_share", "detected_low", "detected_high")
    )
    figure.add_scatter(
        mode="lines+markers",
        x=part["at"].to_numpy(),
        y=share,
        name=name,
        error_y={
            "type": "data", "array": np.nan_to_num(high - share), "thickness": 1, "width": 3,
            "arrayminus": np.nan_to_num(share - low), "color": look["color"],
        },
        line={**look, "width": 2.5},
        marker={"symbol": _SYMBOLS[at], "size": 9, "color": look["color"]},
        customdata=part["fault_count"].to_numpy(),
        hovertemplate="%{x:.3g}: %{y:.3~g} % of %{customdata:,}<extra>" + name + "</extra>",
    )  # fmt: skip


def _add_alarms(figure: go.Figure, part: pd.DataFrame, *, at: int, name: str) -> None:
    part = part[part["false_alarm_share"].notna()]
    if part.empty:
        return
    part = part.iloc[extremes(part["false_alarm_share"].to_numpy(dtype="float64"), _MOST_POINTS)]
    share, high = (100 * numbers(part[each]) for each in ("false_alarm_share", "false_alarm_high"))
    figure.add_scatter(
        mode="lines+markers",
        x=part["at"].to_numpy(),
        y=share,
        name=name,
        error_y={
            "type": "data", "array": np.nan_to_num(high - share), "arrayminus": 0 * share,
            "thickness": 1, "width": 3, "color": COLOURS["dark"],
        },
        line={"color": COLOURS["dark"], "dash": _ALARM_DASHES[at], "width": 1.5},
        marker={"symbol": f"{_SYMBOLS[at]}-open", "size": 9, "color": COLOURS["dark"]},
        customdata=part["clean_count"].to_numpy(),
        hovertemplate="%{x:.3g}: %{y:.3~g} % of %{customdata:,}<extra>" + name + "</extra>",
    )  # fmt: skip


def _chosen(rows: pd.DataFrame, wanted: float | None) -> pd.DataFrame:
    """Give the rows at the wanted tolerance, or at the smallest that never cries wolf."""
    if wanted is None:
        alarms = rows.groupby("tolerance")["false_alarm_share"].max()
        quiet = alarms[alarms == 0]
        wanted = float(quiet.index.min() if len(quiet) else rows["tolerance"].max())
    tolerances = numbers(rows["tolerance"])
    nearest = tolerances[int(np.argmin(np.abs(np.log((tolerances + 1e-30) / (wanted + 1e-30)))))]
    here: pd.DataFrame = rows[tolerances == nearest]
    return here


def _claim(chosen: pd.DataFrame) -> str:
    known = chosen.dropna(subset=["detected_share"])
    at = f"{chosen['tolerance'].iloc[0]:.3g}"
    alarms = chosen["false_alarm_share"].max()
    wolf = "false alarms unknown" if pd.isna(alarms) else f"{percent(alarms)} false alarms"
    if known.empty:
        return f"At a tolerance of {at}: {wolf}"
    ordered = known.sort_values("detected_share", kind="stable")
    least, most = ordered.iloc[0], ordered.iloc[-1]
    caught = f"{percent(most['detected_share'])} of the faults are detected"
    if least["detected_share"] < most["detected_share"]:
        caught = (
            f"{percent(least['detected_share'])} ({label(least['place'], 20)}) to "
            f"{percent(most['detected_share'])} ({label(most['place'], 20)}) are detected"
        )
    return f"At a tolerance of {at} {caught}, {wolf}"
