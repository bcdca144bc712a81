"""What the longest path of an execution graph consists of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import full_name
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import duration, percent, plural, safe, short, time_unit
from workbench.tables import CRITICAL_PATH

_ROW_PX, _LEAST_SHARE = 24, 0.001
_GPU = ("GPU work", "shared GPU", "dark GPU time", "collective")
_CPU = ("CPU", "call", "gap", "inter-thread")
# What the kinds of dependency are, for those who do not know the graph.
_WORDS = {
    "GPU work": "the GPU works",
    "CPU": "the CPU works",
    "gap": "gaps on the CPU, before",
    "call": "calls on the CPU",
    "inter-thread": "another thread of the CPU",
    "launch": "from launch to start",
    "stream order": "between work of one stream",
    "queue limit": "the launch queue is full",
    "synchronise": "the CPU waits for the GPU",
    "inter-stream": "a stream waits for another",
    "shared GPU": "waits for room on the GPU",
    "dark GPU time": "GPU work that was not recorded",
    "collective": "communication between ranks",
    "trace start": "before the first event",
}


def critical_path(
    table: pd.DataFrame, *, top: int = 8, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what the time on the longest path was spent on, by kind and by name.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.CRITICAL_PATH`.
    top
        Names to show; the rest of each kind is gathered.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per kind of dependency, the longest on top, and below it one per name; guessed
        dependencies are hatched. The title states the shares of the GPU and the CPU.
    """
    CRITICAL_PATH.check(table)
    whole = int(table["dur_ns"].sum())
    if not whole:
        return nothing(
            "The path takes no time; pass what analyze.critical_path returns.",
            claim="No critical path to show",
            source=source,
            synthetic=synthetic,
        )
    kinds = table.groupby("kind", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    large = [str(kind) for kind in kinds.index if kinds[kind] >= _LEAST_SHARE * whole]
    rows = pd.DataFrame(_rows(table, large, top))
    per_unit, unit = time_unit(float(rows["total_ns"].max()))
    figure = go.Figure()
    for meaning, words, column, is_kind in (
        ("neutral", "kind of dependency", "known_ns", True),
        ("all others", "by name of what waited", "known_ns", False),
        ("attention", "guessed from times", "guessed_ns", None),
    ):
        part = rows[rows[column] > 0]
        part = part if is_kind is None else part[part["is_kind"] == is_kind]
        if len(part):
            figure.add_bar(**_bar(part, column, meaning, words, per_unit))
    _axes(figure, rows, whole, per_unit)
    figure.update_xaxes(title=f"time on the path [{unit}]")
    rest = whole - int(kinds[large].sum())
    notes = [f"{duration(whole)} in {plural(len(table), 'dependency').replace('ys', 'ies')}"]
    if guessed := int(table.loc[table["is_inferred"], "dur_ns"].sum()):
        notes.append(f"{safe(percent(guessed / whole))} guessed from times")
    if rest:
        notes.append(f"{plural(len(kinds) - len(large), 'kind')} with {duration(rest)} left out")
    return finish(
        figure, claim=_claim(kinds, whole), source=source, synthetic=synthetic,
        note=" · ".join(notes),
    )  # fmt: skip


def _rows(table: pd.DataFrame, kinds: list[str], top: int) -> list[dict[str, Any]]:
    """List the bars: each kind, then its names among the longest of all, then its rest."""
    of = table.assign(
        kind=table["kind"].astype(str),
        guessed_ns=table["dur_ns"].where(table["is_inferred"], 0),
        known_ns=table["dur_ns"].where(~table["is_inferred"], 0),
        dependency_count=1,
    )
    columns = ["known_ns", "guessed_ns", "dependency_count"]
    by_name = of[(of["name"] != "") & of["kind"].isin(kinds)]
    by_name = by_name.groupby(["kind", "name"], sort=False)[columns].sum()
    longest = (by_name["known_ns"] + by_name["guessed_ns"]).nlargest(top).index
    whole = of.groupby("kind")[columns].sum()
    rows = []
    for kind in kinds:
        total = whole.loc[kind]
        words = _WORDS.get(kind, kind)
        rows.append({"label": words, "full": kind, "is_kind": True, **total})
        names = [name for each, name in longest if each == kind]
        rest = total
        for name in names:
            part = by_name.loc[(kind, name)]
            rest = rest - part
            rows.append({"label": short(name, 36), "full": name, "is_kind": False, **part})
        if names and rest["known_ns"] + rest["guessed_ns"] > 0:
            rows.append({"label": "all others", "full": "all others", "is_kind": False, **rest})
    for row in rows:
        row["total_ns"] = row["known_ns"] + row["guessed_ns"]
    return rows


def _bar(
    rows: pd.DataFrame, column: str, meaning: str, words: str, per_unit: int
) -> dict[str, Any]:
    base = rows["known_ns"] if column == "guessed_ns" else 0 * rows["known_ns"]
    return {
        "orientation": "h",
        "base": base.to_numpy() / per_unit,
        "x": rows[column].to_numpy() / per_unit,
        "y": rows.index.to_numpy(),
        "width": np.where(rows["is_kind"], 0.8, 0.5),
        "name": words,
        "marker": fill(meaning),
        "hovertext": [
            f"{full_name(row['full'])}<br>{duration(row[column])} of the path, "
            f"{int(row['dependency_count']):,} times on it" for row in rows.to_dict("records")
        ],
        "hovertemplate": "%{hovertext}<extra>" + words + "</extra>",
    }  # fmt: skip


def _axes(figure: go.Figure, rows: pd.DataFrame, whole: int, per_unit: int) -> None:
    said = [
        f" {duration(total)}, {safe(percent(total / whole))}" if total else ""
        for total in rows["total_ns"]
    ]
    figure.add_scatter(
        mode="text", x=rows["total_ns"] / per_unit, y=rows.index.to_numpy(),
        text=[f"<b>{each}</b>" if top else each for each, top in
              zip(said, rows["is_kind"], strict=True)],
        textposition="middle right", cliponaxis=False, showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    ticks = [
        f"<b>{safe(words)}</b>" if top else safe(words)
        for words, top in zip(rows["label"], rows["is_kind"], strict=True)
    ]
    figure.update_layout(
        barmode="overlay", height=max(len(rows), 3) * _ROW_PX, hovermode="closest",
        margin_l=left_margin(rows["label"]),
    )  # fmt: skip
    figure.update_xaxes(range=[0, 1.3 * float(rows["total_ns"].max()) / per_unit])
    figure.update_yaxes(
        tickvals=rows.index.tolist(), ticktext=ticks, range=[len(rows) - 0.4, -0.6],
        showgrid=False,
    )  # fmt: skip


def _claim(kinds: pd.Series, whole: int) -> str:
    gpu, cpu = (
        sum(int(ns) for kind, ns in kinds.items() if kind in group) / whole
        for group in (_GPU, _CPU)
    )
    between = 1 - gpu - cpu
    gpu_said, cpu_said = (safe(percent(share)) for share in (gpu, cpu))
    claim = f"{gpu_said} of the critical path is work on the GPU, {cpu_said} is the CPU"
    return claim + (f", {percent(between)} is waiting between them" if between >= 0.01 else "")
