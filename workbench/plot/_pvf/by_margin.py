"""How often faults change decisions that were clear, and decisions that were close."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.chances import Chances, axis_of, chance, numbers
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import distinct, finish, nothing
from workbench.plot._style.text import digits, label, plural
from workbench.tables import PVF_BY_MARGIN

_MOST_GROUPS, _MOST_POINTS = 6, 400
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")


def pvf_by_margin(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how often a fault changes a decision, against how clear it was without the fault.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_BY_MARGIN`.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per group, a mark per class of margins with its interval; open where nothing
        went wrong. The title compares the closest decisions with the clearest.
    """
    PVF_BY_MARGIN.check(table)
    rows = table[table["pvf"].notna()]
    if rows.empty:
        return nothing(
            "No trials with a golden margin are known; analyze.pvf_by_margin needs a campaign "
            "that kept every trial.",
            claim="No margins to show",
            source=source,
            synthetic=synthetic,
        )
    groups = list(dict.fromkeys(rows["group"]))
    shown = rows[rows["group"].isin(groups[:_MOST_GROUPS])]
    shown = shown.assign(at=_middle(shown))
    axis = axis_of(shown["pvf"], shown["low"], shown["high"])
    figure = go.Figure()
    for at, group in enumerate(groups[:_MOST_GROUPS]):
        part = shown[shown["group"] == group].sort_values("at", kind="stable")
        _add_group(figure, part, axis, at=at)
    figure.update_yaxes(**axis.axis())
    figure.update_xaxes(title="golden margin: distance to another decision [unit of the output]")
    figure.update_layout(hovermode="closest")
    hidden = len(groups) - min(len(groups), _MOST_GROUPS)
    notes = [f"{int(rows['trial_count'].sum()):,} trials", "marks stand in the middle of a class"]
    notes += ["whiskers: intervals, sites as the sample"]
    notes += [f"{plural(hidden, 'group')} left out"] if hidden else []
    claim = _claim(shown[shown["group"] == groups[0]].sort_values("at", kind="stable"))
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=" · ".join(notes))


def _middle(rows: pd.DataFrame) -> np.ndarray:
    """Give the middle of each class; an open class stands at its only end."""
    low, high = numbers(rows["margin_low"]), numbers(rows["margin_high"])
    middle = (low + high) / 2
    return np.where(np.isfinite(middle), middle, np.where(np.isfinite(low), low, high))


def _add_group(figure: go.Figure, part: pd.DataFrame, axis: Chances, *, at: int) -> None:
    part = part.iloc[extremes(part["pvf"].to_numpy(dtype="float64"), _MOST_POINTS)]
    look, name = distinct(at), label(part["group"].iloc[0], 30)
    symbol = _SYMBOLS[at]
    figure.add_scatter(
        mode="lines+markers",
        x=part["at"].to_numpy(),
        y=axis.place(part["pvf"]),
        name=name,
        error_y=axis.whiskers(part, look["color"]),
        line={**look, "width": 2},
        marker={
            "symbol": [f"{symbol}-open" if p == 0 else symbol for p in part["pvf"]],
            "size": 9, "color": look["color"],
        },
        hovertext=[
            f"margin {digits(row['margin_low'])} to {digits(row['margin_high'])}: "
            f"{chance(row['pvf'])}, {int(row['wrong_count']):,} of {int(row['trial_count']):,}"
            for _, row in part.iterrows()
        ],
        hovertemplate="%{hovertext}<extra>" + name + "</extra>",
    )  # fmt: skip


def _claim(part: pd.DataFrame) -> str:
    close, clear = part.iloc[0], part.iloc[-1]
    name = label(close["group"], 30)
    if len(part) == 1:
        return f"{name}: faults change {chance(close['pvf'])} of the decisions"
    return (
        f"{name}: faults change {chance(close['pvf'])} of the closest decisions and "
        f"{chance(clear['pvf'])} of the clearest"
    )
