"""How well a replay fits its trace, and what each step of building the graph is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import panels
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import Frame, colour, left_margin, row_axis
from workbench.plot._style.text import (
    digits,
    duration,
    is_doubtful,
    label,
    percent,
    plural,
    safe,
    short,
    time_unit,
)
from workbench.tables import GPU_BUSY, GRAPH_ABLATION, HELD_OUT_STEPS, REPLAY_FIDELITY

_ERRORS = (
    ("whole trace", "error_ratio", "gpu work", "circle"),
    ("steps, on average", "step_error_mean_ratio", "transfer", "diamond"),
    ("worst step", "step_error_max_ratio", "attention", "diamond-open"),
    ("busy and idle times", "breakdown_error_ratio", "memory", "square-open"),
)
_MOST_ROWS, _MOST_NUMBERED, _ROW_PX, _NUMBERED_PX = 24, 10, 30, 68
_EXPLAINED = "explained time [%]"


def replay_fidelity(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the errors of a replay, and how much of the time it explains.

    One row per rank or trace, the worst on top: four errors on the left, the explained
    share on the right. The title states the error of the whole and that share.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.REPLAY_FIDELITY`; of several traces, put together with a
        column ``trace`` that names them.
    """
    frame = Frame(source, synthetic)
    REPLAY_FIDELITY.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no ranks; pass what analyze.replay_fidelity returns.",
            claim="No replay to compare",
        )
    rows = table.assign(words=_places(table), error=table["error_ratio"].abs())
    # Rounded, so that shares that print alike are ordered by their error.
    rows = rows.iloc[np.lexsort((-rows["error"].round(4), rows["explained_share"].round(4)))]
    shown = rows.head(_MOST_ROWS).reset_index(drop=True)
    is_numbered = len(shown) <= _MOST_NUMBERED
    row_px = _NUMBERED_PX if is_numbered else _ROW_PX
    figure = panels(["error of the replay", "explained"], height_px=max(len(shown) * row_px, 90))
    for at, (words, column, meaning, symbol) in enumerate(_ERRORS):
        positions = np.flatnonzero(shown[column].notna())
        values = 100 * shown[column].to_numpy(dtype=np.float64, na_value=np.nan)[positions]
        figure.add_scatter(
            # Numbers beside four marks of a row need its full height.
            mode="markers+text" if is_numbered else "markers",
            x=np.abs(values), y=positions + 0.21 * (at - 1.5), row=1, col=1, name=words,
            marker=_marker(meaning, symbol), cliponaxis=False,
            text=[f"{_signed(value) if at == 0 else _number(value)}" for value in values],
            textposition="middle right", textfont={"size": 11},
            hovertext=[f"{label(shown['words'][row], 80)}: {words}" for row in positions],
            hovertemplate="%{hovertext}, %{x:.3~g} %<extra></extra>",
        )  # fmt: skip
    _add_explained(figure, shown, shown["is_usable"].to_numpy())
    _axes(figure, list(shown["words"]), "replay error [%]")
    doubts = [f"doubt: {safe(doubt)}" for doubt in sorted({*rows["doubt"]} - {""})[:2]]
    hidden = len(rows) - len(shown)
    notes = doubts + [f"{plural(hidden, 'better row')} dropped"] * (hidden > 0)
    return frame.finish(figure, claim=_fits(rows), note=" · ".join(notes))


def graph_ablation(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what the replay loses without each step of building its graph.

    One row per step dropped, the most important on top: the error of the worst ProfilerStep,
    or of the whole trace if there are none, and the explained share; lines stand for the
    whole graph. The title names the steps that matter most.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GRAPH_ABLATION`; of several ranks the worst counts.
    """
    frame = Frame(source, synthetic)
    GRAPH_ABLATION.check(table)
    column = "step_error_max_ratio"
    error = "largest error of a step"
    if table[column].isna().any():
        column, error = "error_ratio", "error of the whole trace"
    worst = table.assign(error=table[column].abs().astype("float64")).groupby("without", sort=False)
    rows = worst.agg({"error": "max", "explained_share": "min", "is_usable": "all"}).reset_index()
    full, rows = rows[rows["without"] == ""], rows[rows["without"] != ""]
    if rows.empty:
        return frame.nothing(
            "No step was dropped; pass what analyze.graph_ablation returns.",
            claim="No steps to compare",
        )
    # The larger of both losses: a step may cost accuracy, or leave time unexplained.
    lost = np.maximum(rows["error"].to_numpy(), 1 - rows["explained_share"].to_numpy())
    rows = rows.iloc[np.argsort(-lost, kind="stable")]
    shown = rows.head(_MOST_ROWS).reset_index(drop=True)
    figure = panels([error, "explained"], height_px=max(len(shown) * _ROW_PX, 90))
    figure.add_scatter(
        mode="markers+text", x=100 * shown["error"], y=shown.index.to_numpy(), row=1, col=1,
        name=error, showlegend=False, marker=_marker("attention", "diamond"), cliponaxis=False,
        text=[_number(100 * value) for value in shown["error"]],
        textposition="middle right", textfont={"size": 11},
        hovertext=[label(words, 120) for words in shown["without"]],
        hovertemplate="without %{hovertext}: %{x:.3~g} %<extra></extra>",
    )  # fmt: skip
    _add_explained(figure, shown, shown["is_usable"].to_numpy())
    names = [f"without {words.replace(', ', ' and ')}" for words in shown["without"]]
    _axes(figure, names, "replay error [%]")
    notes = []
    if len(full):
        line = {"color": colour("neutral"), "width": 1.5, "dash": "dash"}
        for col, name in enumerate(("error", "explained_share"), start=1):
            figure.add_vline(x=100 * float(full[name].iloc[0]), line=line, row=1, col=col)
        notes.append("dashed: the whole graph")
    if (count := table["rank"].nunique()) > 1:
        notes.append(f"the worst of {plural(count, 'rank')}")
    if hidden := len(rows) - len(shown):
        notes.append(f"{plural(hidden, 'row')} dropped")
    claim, doubtful = _matters(rows, full, error), is_doubtful(table[table["without"] == ""])
    return frame.finish(figure, claim=claim, note=" · ".join(notes), is_doubtful=doubtful)


def _marker(meaning: str, symbol: str) -> dict[str, Any]:
    shade = colour(meaning)
    return {"symbol": symbol, "size": 10, "color": shade, "line": {"width": 2, "color": shade}}


def _add_explained(figure: go.Figure, rows: pd.DataFrame, usable: np.ndarray) -> None:
    """Add the explained shares on the right, apart where too little is explained."""
    # With everything explained the axis would have no width.
    low = 100 * min(float(rows["explained_share"].min()), 0.98)
    for is_good, meaning, symbol, words in (
        (True, "allowed", "circle", "explained"),
        (False, "limit", "x", "too little explained to predict"),
    ):
        at = np.flatnonzero(usable == is_good)
        if len(at):
            values = 100 * rows["explained_share"].to_numpy()[at]
            figure.add_scatter(
                mode="markers+text", x=values, y=at, row=1, col=2, name=words,
                marker=_marker(meaning, symbol), cliponaxis=False,
                text=[f" {safe(percent(value / 100))} " for value in values],
                textposition="middle left", textfont={"size": 11},
                hovertemplate="%{x:.4~g} %<extra></extra>",
            )  # fmt: skip
    room = 0.35 * (100 - low)
    figure.update_xaxes(title=_EXPLAINED, range=[low - room, 100 + 0.1 * room], col=2)


def _axes(figure: go.Figure, names: list[str], title: str) -> None:
    ticks = [short(name, 40) for name in names]
    values = [np.max(trace.x, initial=0) for trace in figure.data if trace.xaxis in (None, "x")]
    most = max(values) or 1
    figure.update_xaxes(title=title, range=[-0.05 * most, 1.3 * most], col=1)
    figure.update_yaxes(**row_axis([safe(tick) for tick in ticks], 0.4, 0.6), showgrid=False)
    figure.update_layout(margin_l=left_margin(ticks), hovermode="closest")


def _places(table: pd.DataFrame) -> list[str]:
    ranks = [f"rank {rank}" for rank in table["rank"]]
    if "trace" not in table:
        return ranks
    if table["trace"].is_unique:
        return [str(trace) for trace in table["trace"]]
    return [f"{trace}, {rank}" for trace, rank in zip(table["trace"], ranks, strict=True)]


def _number(percent_value: float) -> str:
    return f" {digits(percent_value)} % "


def _signed(percent_value: float) -> str:
    sign = "+" if percent_value > 0 else "−" if percent_value < 0 else ""
    return f" {sign}{digits(abs(percent_value))} % "


def _fits(rows: pd.DataFrame) -> str:
    explained = safe(percent(float(rows["explained_share"].min())))
    error = float(rows["error"].max())
    size = safe(percent(error))
    if refused := int((~rows["is_usable"]).sum()):
        whose = f"{refused:,} of {len(rows):,} graphs" if len(rows) > 1 else "The graph"
        verb = "is" if refused == 1 else "are"
        return f"{whose} {verb} refused: replayed {size} off, {explained} of the time is explained"
    doubt = "; predictions are in doubt" if (rows["doubt"] != "").any() else ""
    if len(rows) > 1:
        return (
            f"The worst of {len(rows):,} replays is {size} off; at least {explained} of the "
            f"time is explained{doubt}"
        )
    way = "under" if rows["error_ratio"].iloc[0] < 0 else "over"
    fits = f"{way}estimates by {size}" if error else "takes exactly as long as measured"
    return f"The replay {fits}; {explained} of the time is explained{doubt}"


def _matters(rows: pd.DataFrame, full: pd.DataFrame, error: str) -> str:
    # One step alone, if there is one: which of several it was would stay open.
    single = rows[~rows["without"].str.contains(", ")]
    rows = single if len(single) else rows
    top = rows.nlargest(1, "error").iloc[0]
    dark = rows.nsmallest(1, "explained_share").iloc[0]
    grows = f"to {safe(percent(top['error']))}"
    if len(full):
        grows = f"from {safe(percent(float(full['error'].iloc[0])))} {grows}"
    if len(full) and top["error"] <= full["error"].iloc[0]:
        claim = f"No step alone lessens the {error}"
    else:
        claim = f"Without {label(top['without'], 24)} the {error} grows {grows}"
    unexplained = safe(percent(1 - float(dark["explained_share"])))
    where = "" if dark["without"] == top["without"] else f"without {label(dark['without'], 24)} "
    return f"{claim}; {where}{unexplained} of the time is unexplained"


def gpu_busy(
    measured: pd.DataFrame,
    replayed: pd.DataFrame | None = None,
    *,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the busy share of the GPU over time, and beside it that of a replay.

    A stepped line, and a dashed one for the replay. The title states both means.

    Parameters
    ----------
    measured
        Table :data:`workbench.tables.GPU_BUSY`; of several ranks their mean is drawn.
    replayed
        The same of :func:`workbench.analyze.replayed_events`, with bins of the same width.
    """
    frame = Frame(source, synthetic)
    curves = {"measured": _mean(measured)}
    if replayed is not None:
        curves["replayed"] = _mean(replayed)
    if curves["measured"].empty:
        return frame.nothing(
            "The table has no bins of time; pass what analyze.gpu_busy returns.",
            claim="No GPU work to show",
        )
    first = min(int(curve.index.min()) for curve in curves.values() if len(curve))
    looks = {"measured": ("gpu work", "solid", 2.5), "replayed": ("attention", "2px,2px", 1.5)}
    figure = Draft()
    for name, curve in curves.items():
        keep = extremes(curve.to_numpy())
        meaning, dash, width = looks[name]
        figure.add_scatter(
            x=(curve.index.to_numpy()[keep] - first) / 1e6, y=100 * curve.to_numpy()[keep],
            mode="lines", name=name,
            line={"color": colour(meaning), "dash": dash, "width": width, "shape": "hv"},
            hovertemplate="%{x:,.4~g} ms: %{y:.0f} %<extra>" + name + "</extra>",
        )  # fmt: skip
    figure.update_xaxes(title="time since the first GPU work [ms]", tickformat=",")
    figure.update_yaxes(title="GPU busy [%]", range=[0, 103])
    notes = _notes(measured, curves["measured"])
    return frame.finish(figure, claim=_claim(curves), note=" · ".join(notes))


def _mean(table: pd.DataFrame) -> pd.Series:
    return GPU_BUSY.check(table).groupby("start_ns")["busy_share"].mean()


def _notes(table: pd.DataFrame, curve: pd.Series) -> list[str]:
    notes = []
    if len(curve) > 1:
        notes.append(f"bins of {duration(float(np.diff(curve.index.to_numpy()).min()))}")
    if (count := table["rank"].nunique()) > 1:
        notes.append(f"mean of {plural(count, 'rank')}")
    return notes


def _claim(curves: dict[str, pd.Series]) -> str:
    full = {name: curve for name, curve in curves.items() if len(curve)}
    means = {name: safe(percent(float(curve.mean()))) for name, curve in full.items()}
    claim = f"The GPU is busy {means['measured']} of the time"
    return claim + (f", {means['replayed']} in the replay" if "replayed" in means else "")


_LINES = (
    ("measured", "measured_ns", "dark", "solid", "circle"),
    ("predicted from the other steps", "predicted_ns", "attention", "dash", "diamond-open"),
    ("mean of the other steps", "naive_ns", "transfer", "dot", "x-thin-open"),
)
_MOST_MARKED = 50


def held_out_steps(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show every step as measured, and as predicted without it.

    Three lines: measured, predicted by the graph, and the mean of the other steps, which
    needs no graph. The title states the errors of both.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.HELD_OUT_STEPS`.
    """
    frame = Frame(source, synthetic)
    HELD_OUT_STEPS.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no steps; pass what analyze.held_out_steps returns.",
            claim="No steps to predict",
        )
    rows = table.sort_values("step", kind="stable")
    times = rows[[column for _, column, *_ in _LINES]].to_numpy(dtype=np.float64)
    per_unit, unit = time_unit(times.max())
    figure = Draft()
    for words, column, meaning, dash, symbol in _LINES:
        keep = extremes(rows[column].to_numpy())
        points = rows.iloc[keep]
        errors = points[column] / points["measured_ns"].clip(lower=1) - 1
        figure.add_scatter(
            x=points["step"].to_numpy(), y=points[column].to_numpy() / per_unit, name=words,
            mode="lines+markers" if len(points) <= _MOST_MARKED else "lines",
            line={"color": colour(meaning), "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 9, "color": colour(meaning), "line": {"width": 2}},
            hovertext=[
                f"step {step}: {duration(ns)}" + (f", {100 * error:+.2f} %" * bool(error))
                for step, ns, error in zip(points["step"], points[column], errors, strict=True)
            ],
            hovertemplate="%{hovertext}<extra>" + words + "</extra>",
        )  # fmt: skip
    steps = rows["step"].drop_duplicates().tolist()
    if len(steps) <= _MOST_MARKED:
        figure.update_xaxes(tickvals=steps[:: -(-len(steps) // 20)])
    # Room above and below even where all steps take the same time.
    room = 0.08 * max(float(np.ptp(times)), 0.02 * float(times.max()), 1.0) / per_unit
    figure.update_xaxes(title="step", tickformat="d")
    figure.update_yaxes(
        title=f"time of the step [{unit}]",
        range=[times.min() / per_unit - room, times.max() / per_unit + room],
    )
    known_share = float(rows["known_share"].min())
    note = (
        "the time axis does not begin at 0 · of a step's times, "
        f"{safe(percent(known_share))} or more are in other steps, too"
    )
    return frame.finish(figure, claim=_held_out_steps_claim(rows), note=note)


def _held_out_steps_claim(rows: pd.DataFrame) -> str:
    mean, most, naive, naive_most = (
        safe(percent(float(value)))
        for name in ("error_ratio", "naive_error_ratio")
        for value in (rows[name].abs().mean(), rows[name].abs().max())
    )
    return (
        f"From the other steps, a step is predicted to {mean} on average, {most} at worst; "
        f"their mean is {naive} and {naive_most} off"
    )
