"""What changed from one trace to another."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.kernel_kinds import GPU_WORK
from workbench.plot._style.bars import by_name
from workbench.plot._style.style import finish, nothing
from workbench.plot._style.text import duration, label, plural
from workbench.tables import TRACE_DIFF


def trace_diff(
    diff: pd.DataFrame,
    *,
    categories: Collection[str] = (),
    top: int = 14,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show what takes more and what takes less time in trace b than in trace a.

    Parameters
    ----------
    diff
        Table :data:`workbench.tables.TRACE_DIFF`, by name, category or step.
    categories
        Profiler categories to draw; by default those of GPU work, or all if nothing
        changed there. Host categories lie inside each other and do not add up.
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
        title states the whole change of the GPU work and the largest part of it.
    """
    TRACE_DIFF.check(diff)
    changed = diff[diff["difference_ns"] != 0]
    if changed.empty:
        return nothing(
            "Every row takes exactly as long in both traces."
            if len(diff)
            else "Neither trace has events to compare.",
            claim="No difference to show",
            source=source,
            synthetic=synthetic,
        )
    on_gpu = changed[changed["category"].isin(GPU_WORK)]
    drawn = changed[changed["category"].isin(categories)] if categories else on_gpu
    drawn = changed if drawn.empty else drawn
    adds_up = drawn["category"].isin(GPU_WORK).all()
    figure, first = _bars(drawn, top=top)
    whole = diff[diff["category"].isin(GPU_WORK)] if adds_up else None
    note = "" if adds_up else "host categories lie inside each other and do not add up"
    return finish(figure, claim=_claim(first, whole), source=source, synthetic=synthetic, note=note)


def _bars(changed: pd.DataFrame, *, top: int) -> tuple[go.Figure, pd.Series]:
    """Draw the largest changes, and give the largest."""
    order = changed["difference_ns"].abs().sort_values(ascending=False, kind="stable").index
    head, tail = changed.loc[order[:top]], changed.loc[order[top:]]
    head = head.assign(label=_names(head))
    values = head["difference_ns"].to_numpy()
    names, hover = head["label"].tolist(), [_hover(row) for row in head.to_dict("records")]
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
    return figure, head.iloc[0]


def _names(diff: pd.DataFrame) -> list[str]:
    """Name each row by what was compared: a name, a step or only a category."""
    names = []
    for row in diff.to_dict("records"):
        is_plain = row["category"] in GPU_WORK and not pd.isna(row["name"])
        words = [] if is_plain else [row["category"]]
        if not pd.isna(row["step"]):
            words.insert(0, f"step {row['step']}")
        if not pd.isna(row["name"]):
            words.insert(0, row["name"])
        names.append(" · ".join(map(str, words)))
    return names


def _hover(row: dict[Any, Any]) -> str:
    counts = f"{row['a_count']:,} → {row['b_count']:,} times"
    times = f"{duration(row['a_total_ns'])} → {duration(row['b_total_ns'])}"
    change = {"added": "only in b", "removed": "only in a"}.get(str(row["change"]), "in both")
    return f"{times}<br>{counts}, {change}"


def _claim(row: pd.Series, gpu_work: pd.DataFrame | None) -> str:
    """State the change of the GPU work as a whole if it adds up, and the largest part."""
    part = f"{label(row['label'], 50)} {_change(int(row['difference_ns']))}"
    if gpu_work is None:
        return f"The largest change is {part} in b"
    a_ns, difference = int(gpu_work["a_total_ns"].sum()), int(gpu_work["difference_ns"].sum())
    ratio = f" (× {(a_ns + difference) / a_ns:,.2f})" if a_ns else ""
    return f"GPU work takes {_change(difference)} in b{ratio}; largest: {part}"


def _change(difference_ns: int) -> str:
    return f"{duration(abs(difference_ns))} {'longer' if difference_ns >= 0 else 'less'}"
