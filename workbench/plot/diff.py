"""What changed from one trace to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._bars import by_name
from workbench.plot._text import duration, label, plural
from workbench.plot.style import finish, nothing
from workbench.tables import TRACE_DIFF


def trace_diff(
    diff: pd.DataFrame, *, top: int = 14, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what takes more and what takes less time in trace b than in trace a.

    Parameters
    ----------
    diff
        Table :data:`workbench.tables.TRACE_DIFF`, by name, category or step.
    top
        Largest changes to show, whichever their sign.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Horizontal bars to both sides of zero, the remaining changes added up. The
        title names the largest change.
    """
    TRACE_DIFF.check(diff)
    changed = diff[diff["difference_ns"] != 0]
    if changed.empty:
        return nothing(
            "Every row takes exactly as long in both traces." if len(diff) else
            "Neither trace has events to compare.",
            claim="No difference to show",
            source=source,
            synthetic=synthetic,
        )  # fmt: skip
    order = changed["difference_ns"].abs().sort_values(ascending=False, kind="stable").index
    head, tail = changed.loc[order[:top]], changed.loc[order[top:]]
    values = head["difference_ns"].to_numpy()
    names, hover = _names(head), [_hover(row) for row in head.to_dict("records")]
    if len(tail):
        values = np.append(values, tail["difference_ns"].sum())
        names.append(f"all others ({plural(len(tail), 'change')})")
        hover.append("added up; gains and losses cancel")
    figure = by_name(
        names,
        values,
        meanings=["less" if value < 0 else "more" for value in values],
        hover=hover,
        title="change from a to b",
    )
    figure.add_vline(x=0, line_width=1, line_color="#1A1A1A")
    first = head.iloc[0]
    return finish(
        figure,
        claim=_claim(first, names[0]),
        source=source,
        synthetic=synthetic,
        note="operators contain their kernels: do not add up different categories",
    )


def _names(diff: pd.DataFrame) -> list[str]:
    """Name each row by what was compared: a name, a step or only a category."""
    names = []
    for row in diff.to_dict("records"):
        words = [str(row["category"])]
        if not pd.isna(row["step"]):
            words.insert(0, f"step {row['step']}")
        if not pd.isna(row["name"]):
            words.insert(0, str(row["name"]))
        names.append(" · ".join(words))
    return names


def _hover(row: dict[Any, Any]) -> str:
    counts = f"{row['a_count']:,} → {row['b_count']:,} times"
    times = f"{duration(row['a_total_ns'])} → {duration(row['b_total_ns'])}"
    change = {"added": "only in b", "removed": "only in a"}.get(str(row["change"]), "in both")
    return f"{times}<br>{counts}, {change}"


def _claim(row: pd.Series, name: str) -> str:
    difference = int(row["difference_ns"])
    verb = "longer" if difference > 0 else "less"
    if row["change"] == "added":
        return f"New in b: {label(name, 56)}, {duration(difference)}"
    if row["change"] == "removed":
        return f"Gone in b: {label(name, 56)}, {duration(-difference)}"
    ratio = "" if pd.isna(row["total_ratio"]) else f" (× {row['total_ratio']:,.2f})"
    return f"{label(name, 56)} takes {duration(abs(difference))} {verb} in b{ratio}"
