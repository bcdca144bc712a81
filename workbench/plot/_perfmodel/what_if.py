"""What a step would take if something were otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.said import is_doubtful
from workbench.plot._style.style import colour, fill, finish, left_margin, nothing
from workbench.plot._style.text import duration, label, percent, plural, safe, short, time_unit
from workbench.tables import WHAT_IF

_MOST_ROWS, _ROW_PX = 24, 32
_TIMES = ("measured_ns", "predicted_ns", "high_ns")


def what_if(
    table: pd.DataFrame, *, asked: str = "", source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what a step would take, question by question, beside what it takes.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.WHAT_IF`.
    asked
        Question that the title is about; the one that saves most by default.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar per question with its interval, the shortest step on top; a line at the measured
        time. Questions in doubt are hatched. The title states the largest win.
    """
    WHAT_IF.check(table)
    if table.empty:
        return nothing(
            "The table has no questions; pass what analyze.what_if returns.",
            claim="No questions to answer",
            source=source,
            synthetic=synthetic,
        )
    rows = table.sort_values("predicted_ns", kind="stable").drop_duplicates("question")
    shown = rows.head(_MOST_ROWS)
    if asked and asked not in set(shown["question"]):
        mine = rows[rows["question"] == asked]
        shown = pd.concat([shown.head(_MOST_ROWS - len(mine)), mine])
    shown = shown.reset_index(drop=True)
    longest = float(shown[list(_TIMES)].max().max())
    per_unit, unit = time_unit(longest)
    figure = go.Figure()
    for meaning, words, in_doubt in (
        ("all others", "predicted", False),
        ("attention", "predicted, unsure", True),
    ):
        part = shown[(shown["doubt"] != "") == in_doubt]
        if len(part):
            figure.add_bar(**_bars(part, meaning, words, per_unit))
    figure.add_scatter(
        mode="text", x=shown[list(_TIMES)].max(axis=1).astype(float) / per_unit,
        y=shown.index.to_numpy(), text=[f"  {_said(row)}" for row in shown.to_dict("records")],
        textposition="middle right", cliponaxis=False, showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    measured = float(shown["measured_ns"].iloc[0])
    figure.add_vline(
        x=measured / per_unit, line={"color": colour("dark"), "width": 1.5, "dash": "dash"}
    )
    ticks = [short(question, 40) for question in shown["question"]]
    names = [
        f"<b>{safe(tick)}</b>" if question == asked else safe(tick)
        for tick, question in zip(ticks, shown["question"], strict=True)
    ]
    whole = int(shown["step_count"].max()) == 1
    figure.update_layout(
        height=max(len(ticks), 3) * _ROW_PX, margin_l=left_margin(ticks), hovermode="closest",
        bargap=0.3,
    )  # fmt: skip
    figure.update_xaxes(
        title=f"{'time' if whole else 'mean time of a step'} [{unit}]",
        range=[0, 1.32 * longest / per_unit],
    )
    figure.update_yaxes(
        tickvals=list(range(len(ticks))), ticktext=names, range=[len(ticks) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    return finish(
        figure, claim=_claim(shown, asked), source=source, synthetic=synthetic,
        note=" · ".join(_notes(rows, shown, measured)),
        is_doubtful=is_doubtful(_named(shown, asked)),
    )  # fmt: skip


def _bars(rows: pd.DataFrame, meaning: str, words: str, per_unit: int) -> dict[str, Any]:
    values, low, high = (
        rows[name].to_numpy(dtype=np.float64, na_value=np.nan) / per_unit
        for name in ("predicted_ns", "low_ns", "high_ns")
    )
    known = ~np.isnan(low + high)
    ends = np.where(known, [high - values, values - low], 0.0)
    return {
        "orientation": "h",
        "x": values,
        "y": rows.index.to_numpy(),
        "name": words,
        "marker": fill(meaning),
        "error_x": {
            "array": ends[0], "arrayminus": ends[1], "visible": bool(known.any()), "width": 4,
            "thickness": 1.5, "color": colour("dark"),
        },
        "hovertext": [
            f"{label(row['question'], 120)}<br>{duration(row['predicted_ns'])}{_span(row)}, "
            f"{row['speedup_ratio']:.3g} × as fast" for row in rows.to_dict("records")
        ],
        "hovertemplate": "%{hovertext}<extra>" + words + "</extra>",
    }  # fmt: skip


def _said(row: dict[Any, Any]) -> str:
    return f"{duration(row['predicted_ns'])}, {row['speedup_ratio']:.2f} ×"


def _span(row: dict[Any, Any]) -> str:
    if pd.isna(row["low_ns"]) or pd.isna(row["high_ns"]):
        return ""
    return f" ({duration(row['low_ns'])} to {duration(row['high_ns'])})"


def _notes(rows: pd.DataFrame, shown: pd.DataFrame, measured: float) -> list[str]:
    notes = [f"dashed: measured, {duration(measured)}", "×: as fast as measured"]
    if shown["low_ns"].notna().any():
        notes.append("whiskers: interval over steps")
    explained = float(shown["explained_share"].min())
    notes.append(f"{percent(explained)} of the time has a known cause")
    if doubts := sorted({*rows["doubt"]} - {""}):
        notes.append(f"unsure: {label(doubts[0], 160)}")
    if hidden := len(rows) - len(shown):
        notes.append(f"{plural(hidden, 'question')} left out")
    return notes


def _named(rows: pd.DataFrame, asked: str) -> pd.DataFrame:
    """Give the row that the title is about: the one asked for, else the first."""
    mine = rows[rows["question"] == asked]
    return (mine if len(mine) else rows).head(1)


def _claim(rows: pd.DataFrame, asked: str) -> str:
    best = _named(rows, asked).iloc[0]
    what = "the whole" if int(best["step_count"]) == 1 else "a step"
    times = f"{duration(best['predicted_ns'])} instead of {duration(best['measured_ns'])}"
    name, factor = label(best["question"], 44), float(best["speedup_ratio"])
    if asked and best["question"] == asked:
        return f"{name}: {what} takes {times}, {factor:.2f} × as fast"
    if factor <= 1:
        return f"Nothing that was asked makes {what} shorter; {name}: {times}"
    return f"{name} saves most: {what} takes {times}, {factor:.2f} × as fast"
