"""How long nodes or parts live until they fail."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.said import interval, reservations
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, distinct, finish, nothing
from workbench.plot._style.text import digits, label, percent, plural
from workbench.tables import SURVIVAL

_MOST_GROUPS = 6
_MOST_STEPS = 1_000


def survival(curves: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what share lives beyond each age, with a band, and the Weibull law for one group.

    Parameters
    ----------
    curves
        Table :data:`workbench.tables.SURVIVAL`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One step curve with band per group; ticks where something was last watched, still
        alive. The title says when half have failed, or how many have at the end.
    """
    SURVIVAL.check(curves)
    if curves.empty:
        return nothing(
            "There are no lifetimes, so nothing is known about how long anything lives.",
            claim="No lifetimes to show",
            source=source,
            synthetic=synthetic,
        )
    groups = curves["group"].drop_duplicates().tolist()
    figure = go.Figure()
    shown = [curves[curves["group"] == group] for group in groups[:_MOST_GROUPS]]
    for position, rows in enumerate(shown):
        _add_group(figure, rows.sort_values("time_h"), position, name=label(groups[position], 30))
    if len(shown) == 1:
        _add_law(figure, shown[0].sort_values("time_h"))
    _add_ticks(figure, pd.concat(shown))
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(title="age [h]", rangemode="tozero")
    figure.update_yaxes(title="still alive [%]", range=[0, 104])
    hidden = len(groups) - len(shown)
    notes = [*interval(curves, "band"), "every age for itself"]
    notes += [f"{plural(hidden, 'group')} left out"] if hidden else []
    return finish(
        figure,
        claim=_claim(shown),
        source=source,
        synthetic=synthetic,
        note=" · ".join([*notes, *reservations(curves)]),
    )


def _steps(rows: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a falling step curve that starts with all alive."""
    keep = extremes(rows[column].to_numpy(), _MOST_STEPS)
    time = np.concatenate([[0.0], rows["time_h"].to_numpy()[keep]])
    share = np.concatenate([[1.0], rows[column].to_numpy()[keep]])
    return np.repeat(time, 2)[1:], 100 * np.repeat(share, 2)[:-1]


def _add_group(figure: go.Figure, rows: pd.DataFrame, position: int, *, name: str) -> None:
    look = distinct(position)
    (low_x, low), (high_x, high) = _steps(rows, "low_share"), _steps(rows, "high_share")
    figure.add_scatter(
        x=np.concatenate([low_x, high_x[::-1]]),
        y=np.concatenate([low, high[::-1]]),
        mode="lines",
        fill="toself",
        fillcolor=look["color"],
        opacity=0.15,
        # Invisible, but it tells the trace apart from its curve.
        line={"width": 0, **distinct(position + _MOST_GROUPS)},
        hoverinfo="skip",
        showlegend=False,
        name=f"band of {name}",
    )
    x, y = _steps(rows, "survival_share")
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={**look, "width": 2},
        name=name,
        hovertemplate="%{x:,.4~g} h: %{y:.1f} %<extra>" + name + "</extra>",
    )


def _add_law(figure: go.Figure, rows: pd.DataFrame) -> None:
    known = rows[rows["weibull_share"].notna()]
    if known.empty:
        return
    keep = extremes(known["weibull_share"].to_numpy(dtype="float64"), _MOST_STEPS)
    figure.add_scatter(
        x=np.concatenate([[0.0], known["time_h"].to_numpy()[keep]]),
        y=np.concatenate([[100.0], 100 * known["weibull_share"].to_numpy(dtype="float64")[keep]]),
        mode="lines",
        line={"color": COLOURS["limit"], "dash": "dot", "width": 2},
        name="Weibull law",
        hovertemplate="%{x:,.4~g} h: %{y:.1f} %<extra>Weibull law</extra>",
    )


def _add_ticks(figure: go.Figure, rows: pd.DataFrame) -> None:
    some = rows[rows["censored_count"] > 0].sort_values(["group", "time_h"])
    if some.empty:
        return
    keep = extremes(some["censored_count"].to_numpy())
    figure.add_scatter(
        x=some["time_h"].to_numpy()[keep],
        y=100 * some["survival_share"].to_numpy()[keep],
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 9, "color": "#000000", "line": {"width": 1.5}},
        name="last watched, still alive",
        hovertext=[f"{count:,} last watched" for count in some["censored_count"].to_numpy()[keep]],
        hovertemplate="%{x:,.4~g} h: %{hovertext}<extra></extra>",
    )


def _claim(shown: list[pd.DataFrame]) -> str:
    """Say when half of the first group have failed, or how many have by the end."""
    rows = shown[0].sort_values("time_h")
    whose = f" of {label(rows['group'].iloc[0], 30)}" if len(shown) > 1 else ""
    below = rows[rows["survival_share"] <= 0.5]
    if len(below):
        words = f"Half{whose} have failed within {digits(float(below['time_h'].iloc[0]))} h"
    else:
        last = rows.iloc[-1]
        words = f"{percent(1 - float(last['survival_share']))}{whose} have failed within "
        words += f"{digits(float(last['time_h']))} h, as far as was watched"
    at_start = int(rows["at_risk_count"].iloc[0])
    deaths = int(rows["failure_count"].sum())
    return f"{words} ({plural(deaths, 'failure')} in {plural(at_start, 'lifetime')})"
