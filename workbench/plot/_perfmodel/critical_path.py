"""Composition of the longest path of an execution graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style import lanes as _lanes
from workbench.plot._style.bars import full_name
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import Frame, colour, fill, left_margin, row_axis
from workbench.plot._style.text import (
    duration,
    is_doubtful,
    label,
    percent,
    plural,
    safe,
    short,
    time_unit,
)
from workbench.tables import CRITICAL_PATH, SLACK, WHAT_IF

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

    A bar per kind of dependency, the longest on top, and below it one per name; guessed
    dependencies are hatched. The title states the shares of the GPU and the CPU.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.CRITICAL_PATH`.
    top
        Names to show; the rest of each kind is gathered.
    """
    frame = Frame(source, synthetic)
    CRITICAL_PATH.check(table)
    total_ns = int(table["dur_ns"].sum())
    if not total_ns:
        return frame.nothing(
            "The path takes no time; pass what analyze.critical_path returns.",
            claim="No critical path to show",
        )
    kinds = table.groupby("kind", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    large = [str(kind) for kind in kinds.index if kinds[kind] >= _LEAST_SHARE * total_ns]
    rows = pd.DataFrame(_rows(table, large, top))
    per_unit, unit = time_unit(float(rows["total_ns"].max()))
    figure = Draft()
    for meaning, words, column, is_kind in (
        ("neutral", "kind of dependency", "known_ns", True),
        ("all others", "by name of what waited", "known_ns", False),
        ("attention", "guessed from times", "guessed_ns", None),
    ):
        bars = rows[rows[column] > 0]
        bars = bars if is_kind is None else bars[bars["is_kind"] == is_kind]
        if len(bars):
            figure.add_bar(**_bar(bars, column, meaning, words, per_unit))
    _axes(figure, rows, total_ns, per_unit)
    figure.update_xaxes(title=f"time on the path [{unit}]")
    small_ns = total_ns - int(kinds[large].sum())
    notes = [f"{duration(total_ns)} in {plural(len(table), 'dependency').replace('ys', 'ies')}"]
    if guessed := int(table.loc[table["is_inferred"], "dur_ns"].sum()):
        notes.append(f"{safe(percent(guessed / total_ns))} guessed from times")
    if small_ns:
        notes.append(f"{plural(len(kinds) - len(large), 'kind')} with {duration(small_ns)} dropped")
    return frame.finish(figure, claim=_claim(kinds, total_ns), note=" · ".join(notes))


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
    totals = of.groupby("kind")[columns].sum()
    rows = []
    for kind in kinds:
        total = totals.loc[kind]
        words = _WORDS.get(kind, kind)
        rows.append({"label": words, "full": kind, "is_kind": True, **total})
        names = [name for of_kind, name in longest if of_kind == kind]
        left = total
        for name in names:
            times = by_name.loc[(kind, name)]
            left = left - times
            rows.append({"label": short(name, 36), "full": name, "is_kind": False, **times})
        if names and left["known_ns"] + left["guessed_ns"] > 0:
            rows.append({"label": "all others", "full": "all others", "is_kind": False, **left})
    for row in rows:
        row["total_ns"] = row["known_ns"] + row["guessed_ns"]
    return rows


def _bar(
    rows: pd.DataFrame, column: str, meaning: str, words: str, per_unit: int
) -> dict[str, Any]:
    # Guessed time goes on where read time ends: one bar in two looks.
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


def _axes(figure: go.Figure, rows: pd.DataFrame, total_ns: int, per_unit: int) -> None:
    texts = [
        f" {duration(total)}, {safe(percent(total / total_ns))}" if total else ""
        for total in rows["total_ns"]
    ]
    figure.add_scatter(
        mode="text", x=rows["total_ns"] / per_unit, y=rows.index.to_numpy(),
        text=[f"<b>{text}</b>" if top else text for text, top in
              zip(texts, rows["is_kind"], strict=True)],
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
    figure.update_yaxes(**row_axis(ticks, 0.4, 0.6), showgrid=False)


def _claim(kinds: pd.Series, total_ns: int) -> str:
    gpu, cpu = (
        sum(int(ns) for kind, ns in kinds.items() if kind in group) / total_ns
        for group in (_GPU, _CPU)
    )
    between = 1 - gpu - cpu
    gpu_said, cpu_said = (safe(percent(share)) for share in (gpu, cpu))
    claim = f"{gpu_said} of the critical path is work on the GPU, {cpu_said} is the CPU"
    return claim + (f", {percent(between)} is waiting between them" if between >= 0.01 else "")


_NONE_NS = 10_000
_LANE_PX, _WIDE_LANE_PX, _LANES_PX = 26, 60, 200
# Dark to light, so that they are told apart where bars are too many for patterns.
_BANDS = ("limit", "degraded capacity", "idle")


def slack(
    table: pd.DataFrame,
    *,
    large_ns: int = 1_000_000,
    max_points: int = 5_000,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Draw GPU work per stream over time, told apart by how much later it could come.

    One bar trace per band of slack, one lane per stream. The title counts the work that
    could come later by more than ``large_ns``.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SLACK`.
    large_ns
        Slack from which on work counts as free to come later [ns]; below 10 µs it has none.
    max_points
        Rectangles to draw at most; work narrower than the picture can show shares them, as in
        :func:`workbench.plot.timeline`.
    """
    frame = Frame(source, synthetic)
    SLACK.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no GPU work; pass what analyze.slack returns.", claim="No slack to show"
        )
    rows = table.reset_index(drop=True)
    lanes = _lanes_of(rows)
    band = np.searchsorted([min(_NONE_NS, large_ns), large_ns], rows["slack_ns"], side="right")
    items = rows.assign(
        lane=lanes["of_row"], kind=band, end_ns=rows["start_ns"] + rows["dur_ns"], row=rows.index
    )
    items = items[items["lane"] < _lanes.MAX_LANES]
    first, last = int(rows["start_ns"].min()), int(items["end_ns"].max())
    index = _lanes.indexed(items)
    bars = _lanes.merged(index, start_ns=first, end_ns=last, limit=max_points)
    none, large = duration(min(_NONE_NS, large_ns)), duration(large_ns)
    words = (f"no slack, below {none}", f"up to {large}", f"more than {large}")
    figure = Draft()
    for code, meaning in enumerate(_BANDS):
        if len(band_bars := bars[bars["kind"] == code]):
            figure.add_bar(**_slack_bar(band_bars, meaning, words[code], rows, first))
    _slack_axes(figure, lanes["names"], (last - first) / 1e6)
    free = int((band == 2).sum())
    works = "kernel or copy" if len(rows) == 1 else "kernels and copies"
    claim = f"{free:,} of {len(rows):,} {works} could come later by more than {large}; "
    times = rows["dur_ns"].to_numpy()
    bound = float(times[band == 0].sum() / max(times.sum(), 1))
    claim += f"{safe(percent(bound))} of the GPU time has no slack"
    return frame.finish(figure, claim=claim, note=_note(bars, lanes["names"]))


def _lanes_of(rows: pd.DataFrame) -> dict[str, Any]:
    """Enumerate the streams of all ranks in order, and name them."""
    streams = rows["stream"].astype("Int64").fillna(-1).astype("int64")
    keys = pd.MultiIndex.from_arrays([rows["rank"], streams])
    codes, lanes = keys.factorize(sort=True)
    names = []
    for rank, stream in lanes:
        words = f"stream {stream}" if stream >= 0 else "stream unknown"
        names.append(f"rank {rank}, {words}" if rows["rank"].nunique() > 1 else words)
    return {"of_row": codes, "names": names}


def _slack_bar(
    bars: pd.DataFrame, meaning: str, words: str, rows: pd.DataFrame, first: int
) -> dict[str, Any]:
    floor = bars["lane"] + 0.42
    high = floor - 0.84 * bars["bottom_share"]
    # Thin slices stay visible: no lower than a twentieth of the lane.
    low = high - (0.84 * bars["height_share"]).clip(lower=0.05)
    edge = {"width": 0.6, "color": colour(meaning)}
    names = rows["name"].to_numpy()
    free = rows["slack_ns"].to_numpy()
    return {
        "name": words,
        "orientation": "h",
        "base": ((bars["start_ns"] - first) / 1e6).to_numpy(),
        "x": ((bars["end_ns"] - bars["start_ns"]) / 1e6).to_numpy(),
        "y": ((low + high) / 2).to_numpy(),
        "width": (high - low).to_numpy(),
        "marker": fill(meaning, bars=len(bars)) | {"line": edge},
        "hovertext": [
            (f"{count:,} merged, the longest: " if count > 1 else "")
            + f"{label(names[row], 90)}<br>{duration(longest)}, could come {duration(free[row])} "
            "later"
            for row, count, longest in bars[["row", "count", "longest_ns"]].itertuples(index=False)
        ],
        "hovertemplate": "%{hovertext}<extra>" + words + "</extra>",
    }


def _slack_axes(figure: go.Figure, names: list[str], span_ms: float) -> None:
    ticks = names[: _lanes.MAX_LANES]
    height = min(max(_LANES_PX // len(ticks), _LANE_PX), _WIDE_LANE_PX)
    figure.update_layout(
        barmode="overlay", height=max(len(ticks) * height, 80), hovermode="closest",
        margin_l=left_margin(ticks),
    )  # fmt: skip
    figure.update_xaxes(
        title="time since the first GPU work [ms]", range=[0, span_ms or 1], tickformat=","
    )
    figure.update_yaxes(**row_axis(ticks), showgrid=False)


def _note(bars: pd.DataFrame, names: list[str]) -> str:
    notes = ["each alone: what lies in a row shares its slack"]
    if shared := int(bars.loc[bars["count"] > 1, "count"].sum()):
        notes.append(f"{shared:,} short ones share rectangles as high as their busy share")
    if (hidden := len(names) - _lanes.MAX_LANES) > 0:
        notes.append(f"{plural(hidden, 'stream')} dropped")
    return " · ".join(notes)


_MOST_ROWS, _WHAT_IF_ROW_PX = 24, 32
_TIMES = ("measured_ns", "predicted_ns", "high_ns")


def what_if(
    table: pd.DataFrame, *, asked: str = "", source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what a step would take, question by question, beside what it takes.

    One bar per question with its interval, the shortest step on top; a line at the measured
    time. Questions in doubt are hatched. The title states the largest win.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.WHAT_IF`.
    asked
        Question that the title is about; the one that saves most by default.
    """
    frame = Frame(source, synthetic)
    WHAT_IF.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no questions; pass what analyze.what_if returns.",
            claim="No questions to answer",
        )
    # The explorer asks a question that may be among the prepared ones.
    rows = table.sort_values("predicted_ns", kind="stable").drop_duplicates("question")
    shown = rows.head(_MOST_ROWS)
    if asked and asked not in set(shown["question"]):
        own_row = rows[rows["question"] == asked]
        # The question asked takes the place of the last row, so that it is never dropped.
        shown = pd.concat([shown.head(_MOST_ROWS - len(own_row)), own_row])
    shown = shown.reset_index(drop=True)
    longest = float(shown[list(_TIMES)].max().max())
    per_unit, unit = time_unit(longest)
    figure = Draft()
    looks = (("all others", "predicted", False), ("attention", "predicted, unreliable", True))
    for meaning, words, in_doubt in looks:
        group = shown[(shown["doubt"] != "") == in_doubt]
        if len(group):
            figure.add_bar(**_bars(group, meaning, words, per_unit))
    texts = [
        f"  {duration(row['predicted_ns'])}, {row['speedup_ratio']:.2f} ×"
        for row in shown.to_dict("records")
    ]
    figure.add_scatter(
        mode="text", x=shown[list(_TIMES)].max(axis=1).astype(float) / per_unit,
        y=shown.index.to_numpy(), text=texts,
        textposition="middle right", cliponaxis=False, showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    measured = float(shown["measured_ns"].iloc[0])
    dashed = {"color": colour("dark"), "width": 1.5, "dash": "dash"}
    figure.add_vline(x=measured / per_unit, line=dashed)
    ticks = [short(question, 40) for question in shown["question"]]
    names = [
        f"<b>{safe(tick)}</b>" if question == asked else safe(tick)
        for tick, question in zip(ticks, shown["question"], strict=True)
    ]
    is_single = int(shown["step_count"].max()) == 1
    figure.update_layout(
        height=max(len(ticks), 3) * _WHAT_IF_ROW_PX, margin_l=left_margin(ticks),
        hovermode="closest", bargap=0.3,
    )  # fmt: skip
    figure.update_xaxes(
        title=f"{'time' if is_single else 'mean time of a step'} [{unit}]",
        range=[0, 1.32 * longest / per_unit],
    )
    figure.update_yaxes(**row_axis(names), showgrid=False)
    claim, note = _what_if_claim(shown, asked), " · ".join(_notes(rows, shown, measured))
    doubtful = is_doubtful(_named(shown, asked))
    return frame.finish(figure, claim=claim, note=note, is_doubtful=doubtful)


def _bars(rows: pd.DataFrame, meaning: str, words: str, per_unit: int) -> dict[str, Any]:
    values, low, high = (
        rows[name].to_numpy(dtype=np.float64, na_value=np.nan) / per_unit
        for name in ("predicted_ns", "low_ns", "high_ns")
    )
    # One NaN among the ends would hide the whiskers of the other bars, too.
    is_drawn = ~np.isnan(low + high)
    ends = np.where(is_drawn, [high - values, values - low], 0.0)
    return {
        "orientation": "h",
        "x": values,
        "y": rows.index.to_numpy(),
        "name": words,
        "marker": fill(meaning),
        "error_x": {
            "array": ends[0], "arrayminus": ends[1], "visible": bool(is_drawn.any()), "width": 4,
            "thickness": 1.5, "color": colour("dark"),
        },
        "hovertext": [
            f"{label(row['question'], 120)}<br>{duration(row['predicted_ns'])}{_span(row)}, "
            f"{row['speedup_ratio']:.3g} × as fast" for row in rows.to_dict("records")
        ],
        "hovertemplate": "%{hovertext}<extra>" + words + "</extra>",
    }  # fmt: skip


def _span(row: dict[Any, Any]) -> str:
    if pd.isna(row["low_ns"]) or pd.isna(row["high_ns"]):
        return ""
    return f" ({duration(row['low_ns'])} to {duration(row['high_ns'])})"


def _notes(rows: pd.DataFrame, shown: pd.DataFrame, measured: float) -> list[str]:
    notes = [f"dashed: measured, {duration(measured)}", "×: as fast as measured"]
    if shown["low_ns"].notna().any():
        notes.append("whiskers: interval over steps")
    explained = float(shown["explained_share"].min())
    notes.append(f"{percent(explained)} of the time is explained")
    if doubts := sorted({*rows["doubt"]} - {""}):
        notes.append(f"doubt: {label(doubts[0], 160)}")
    if hidden := len(rows) - len(shown):
        notes.append(f"{plural(hidden, 'question')} dropped")
    return notes


def _named(rows: pd.DataFrame, asked: str) -> pd.DataFrame:
    """Return the row that the title is about: the one requested, else the first."""
    own_row = rows[rows["question"] == asked]
    return (own_row if len(own_row) else rows).head(1)


def _what_if_claim(rows: pd.DataFrame, asked: str) -> str:
    best = _named(rows, asked).iloc[0]
    unit = "the whole" if int(best["step_count"]) == 1 else "a step"
    times = f"{duration(best['predicted_ns'])} instead of {duration(best['measured_ns'])}"
    name, factor = label(best["question"], 44), float(best["speedup_ratio"])
    if asked and best["question"] == asked:
        return f"{name}: {unit} takes {times}, {factor:.2f} × as fast"
    if factor <= 1:
        return f"None of the changes makes {unit} shorter; {name}: {times}"
    return f"{name} saves most: {unit} takes {times}, {factor:.2f} × as fast"
