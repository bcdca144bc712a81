"""Cost of stragglers: the verdict, the parts that cause it, and every step."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._imbalance.packing import name_rows
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, distinct, fill
from workbench.plot._style.text import digits, duration, label, percent, plural, time_unit
from workbench.tables import JOB_SLOWDOWN, JOB_SLOWDOWN_BY, JOB_STEPS

_ROW_PX = 30
_MOST_RANKS, _MOST_STAGES, _MOST_NUMBERED, _MOST_BARS = 60, 40, 16, 40
_STEP_SYMBOLS = ("circle", "diamond", "square")
# Column of the table: what its row of the picture is called.
_CHANGES = {
    "worst_workers_ratio": "worst workers as the others (M_W)",
    "slow_workers_ratio": "all slow workers as the others",
    "last_stage_ratio": "last stage as the others (M_S)",
    "communication_ratio": "all communication equal",
    "pauses_ratio": "the few longest computations equal",
}
# What to write if the share is missing although there is an excess.
_LACKING = {
    "worst_workers_ratio": "there is one worker only",
    "slow_workers_ratio": "there are none",
    "last_stage_ratio": "there is one stage only",
}
_VERDICTS = {
    "no straggler": "nothing to gain from equal operations",
    "worker": "a few workers are slow",
    "sequence lengths": "micro-batches differ in length",
    "last stage": "the last stage has more to do",
    "communication": "single transfers or collectives are slow",
    "pauses": "single computations are interrupted",
    "other": "no single cause explains it",
}
_ADVICE = {
    "no straggler": "look at launch delays and at what all operations share",
    "worker": "see the map of workers; test and replace those hosts",
    "sequence lengths": "balance the work, not the tokens, of micro-batches",
    "last stage": "give it fewer layers: the loss layer counts",
    "communication": "see slowdown by operation; look for flapping links",
    "pauses": "see slowdown by operation; plan garbage collection for all ranks at once",
    "other": "see slowdown by operation and the schedule of the worst step",
}


def job_slowdown(slowdown: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the verdict on a job: its step as it is, and with one cause after the other gone.

    Bars of the mean step: the part that equal operations need, the excess and launch
    delays. The title states the slowdown and the verdict, the line below what to do.

    Parameters
    ----------
    slowdown
        Table :data:`workbench.tables.JOB_SLOWDOWN`; of several rows the first is shown.
    """
    frame = Frame(source, synthetic)
    JOB_SLOWDOWN.check(slowdown)
    if slowdown.empty:
        why = "The table has no job; pass what analyze.job_slowdown returns."
        return frame.nothing(why, claim="No job to judge")
    row = slowdown.iloc[0]
    names, ends, words = _changed(row)
    ideal, delay = np.minimum(ends, row["ideal_ns"]), np.zeros_like(ends)
    delay[0] = max(ends[0] - row["replay_ns"], 0)
    per_unit, unit = time_unit(max(row["actual_ns"], row["replay_ns"]))
    figure = Draft()
    for name, meaning, times in (
        ("with equal operations", "compute", ideal),
        ("excess", "wait", np.maximum(ends - ideal - delay, 0)),
        ("launch delays", "other", delay),
    ):
        figure.add_bar(
            orientation="h",
            x=times / per_unit,
            y=list(range(len(names))),
            name=name,
            marker=fill(meaning),
            hovertext=[f"{bar}<br>{duration(ns)}" for bar, ns in zip(names, times, strict=True)],
            hovertemplate="%{hovertext}<extra>" + name + "</extra>",
        )
    beside = {"showarrow": False, "xanchor": "left", "xshift": 6}
    for at, (end, text) in enumerate(zip(ends / per_unit, words, strict=True)):
        figure.add_annotation(x=float(end), y=at, text=text, **beside)
    name_rows(figure, names, _ROW_PX, barmode="stack", bargap=0.3)
    longest = float(np.max(ends)) / per_unit
    figure.update_xaxes(title=f"mean step [{unit}]", range=[0, 1.5 * longest or 1])
    verdict = str(row["verdict"])
    claim = f"The job is {digits(row['slowdown_ratio'])} × as slow as with equal operations: "
    claim += _VERDICTS.get(verdict, label(verdict))
    return frame.finish(figure, claim=claim, note=_verdict_note(row, verdict))


def job_slowdown_by(parts: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how slow each part alone makes the job: a map of workers, or bars.

    Workers: data-parallel ranks beside each other, stages below each other; of many
    ranks the worst, and the others as one column. Other parts: bars, the worst first.
    The title names the worst part.

    Parameters
    ----------
    parts
        Table :data:`workbench.tables.JOB_SLOWDOWN_BY`.
    """
    frame = Frame(source, synthetic)
    JOB_SLOWDOWN_BY.check(parts)
    if parts.empty:
        why = "The table has no parts; pass what analyze.job_slowdown_by returns."
        return frame.nothing(why, claim="No parts of a job to show")
    table = parts.sort_values("slowdown_ratio", ascending=False, kind="stable")
    worst, usual = table.iloc[0], table["slowdown_ratio"].median()
    claim = (
        f"{_part_name(worst).capitalize()} alone makes the job {digits(worst['slowdown_ratio'])} × "
        f"as slow; the median of {len(table):,} parts, {digits(usual)} ×"
    )
    # Only workers have both a rank and a stage, and so a place on a map.
    draw = _map if table[["dp_rank", "stage"]].notna().all(axis=None) else _bars
    figure, note = draw(table)
    return frame.finish(figure, claim=claim, note=note)


def job_steps(steps: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show every step: as recorded, replayed, and with equal operations.

    Three lines over the steps, sorted by the replayed time. The title states the range
    of slowdowns.

    Parameters
    ----------
    steps
        Table :data:`workbench.tables.JOB_STEPS`.
    """
    frame = Frame(source, synthetic)
    JOB_STEPS.check(steps)
    if steps.empty:
        why = "The table has no steps; pass what analyze.job_steps returns."
        return frame.nothing(why, claim="No steps to show")
    table = steps.sort_values("replay_ns", kind="stable", ignore_index=True)
    kept = extremes(table["replay_ns"].to_numpy())
    per_unit, unit = time_unit(table[["actual_ns", "replay_ns"]].to_numpy().max())
    figure = Draft()
    columns = {"recorded": "actual_ns", "replayed": "replay_ns", "equal operations": "ideal_ns"}
    for position, (name, column) in enumerate(columns.items()):
        figure.add_scatter(
            x=(kept + 1) / len(table) * 100,
            y=table[column].to_numpy()[kept] / per_unit,
            name=name,
            mode="lines" if len(table) > 1 else "markers",
            line=distinct(position),
            marker={"symbol": _STEP_SYMBOLS[position], "color": COLOURS["series"]},
            hovertext=[f"step {step}" for step in table["step"].to_numpy()[kept]],
            hovertemplate="%{hovertext}: %{y:.4~g} " + unit + "<extra>" + name + "</extra>",
        )
    figure.update_xaxes(title="steps that take at most so long [%]")
    figure.update_yaxes(title=f"time of the step [{unit}]", rangemode="tozero")
    low, middle, high = table["slowdown_ratio"].quantile([0, 0.5, 1]).map(digits)
    claim = f"Steps are {low} to {high} × as slow as with equal operations, half above {middle} ×"
    note = f"{plural(len(table), 'step')}, each line at the same step"
    return frame.finish(figure, claim=claim, note=note)


def _changed(row: pd.Series) -> tuple[list[str], np.ndarray, list[str]]:
    """List the changes, the step after each, and what to write beside it."""
    own, excess = row["replay_ns"], row["replay_ns"] - row["ideal_ns"]
    shares = row[list(_CHANGES)]
    without = "without launch delays (T)" if own <= row["actual_ns"] else "replayed (T)"
    names = ["recorded", without, *_CHANGES.values(), "everything equal"]
    changed = [own - (0.0 if pd.isna(share) else float(share)) * excess for share in shares]
    ends = np.array([row["actual_ns"], own, *changed, row["ideal_ns"]], dtype=np.float64)
    lacking = dict.fromkeys(_CHANGES, "nothing to explain") if shares.isna().all() else _LACKING
    gone = [
        lacking.get(column, "not known") if pd.isna(share) else f"{share:.2f} of the excess gone"
        for column, share in zip(_CHANGES, shares, strict=True)
    ]
    saved = f"{percent(max(float(row['waste_ratio']), 0))} of T gone"
    words = [duration(ends[0]), f"{duration(own)}, S = {digits(row['slowdown_ratio'])}"]
    return names, np.maximum(ends, 0), [*words, *gone, f"{duration(row['ideal_ns'])}, {saved}"]


def _verdict_note(row: pd.Series, verdict: str) -> str:
    r = row["forward_backward_correlation"]
    within = row["within_rank_correlation"]
    inside = "" if pd.isna(within) else f", within ranks {within:.2f}"
    steps, workers = (int(row[name]) for name in ("step_count", "worker_count"))
    phrases = [
        f"{label(verdict)}: {_ADVICE[verdict]}" if verdict in _ADVICE else label(verdict),
        f"{plural(steps, 'step')} of {plural(workers, 'worker')}",
        *([] if pd.isna(r) else [f"forward and backward of a micro-batch: r = {r:.2f}{inside}"]),
        *([] if pd.isna(row["note"]) else [label(row["note"], 300)]),
    ]
    return " · ".join(phrases)


def _part_name(row: pd.Series) -> str:
    """Name a part in words; names from the file are made safe."""
    words = [] if pd.isna(row["operation"]) else [label(row["operation"], 40)]
    words += [] if pd.isna(row["dp_rank"]) else [f"rank {row['dp_rank']}"]
    words += [] if pd.isna(row["stage"]) else [f"stage {row['stage']}"]
    return " on ".join(words) or "the job"


def _map(table: pd.DataFrame) -> tuple[go.Figure, str]:
    """Draw stages (rows) and ranks (columns) as a heat map; the worst ones of many."""
    workers = table.astype({"dp_rank": "int64", "stage": "int64"})
    workers = workers.drop_duplicates(["dp_rank", "stage"])
    ranks, stages = workers["dp_rank"].drop_duplicates(), workers["stage"].drop_duplicates()
    kept = {"dp_rank": list(ranks[:_MOST_RANKS]), "stage": sorted(stages[:_MOST_STAGES])}
    if len(ranks) <= _MOST_RANKS:
        kept["dp_rank"].sort()
    shown = workers[workers["stage"].isin(kept["stage"])]
    square = shown.pivot_table(index="stage", columns="dp_rank", values="slowdown_ratio")
    unshown = square.drop(columns=kept["dp_rank"])
    square = square[kept["dp_rank"]]
    columns = [str(rank) for rank in square]
    if unshown.shape[1]:
        square = square.assign(others=unshown.max(axis="columns"))
        columns.append("others")
    values = square.to_numpy(dtype=np.float64)
    is_numbered = len(columns) <= _MOST_NUMBERED
    figure = Draft(
        go.Heatmap(
            z=values,
            zmin=1,
            # Without a slow worker the scale would have no width, and noise would look slow.
            zmax=max(float(np.nanmax(values)), 1.01),
            colorscale=[[0, COLOURS["paper"]], [1, COLOURS["wait"]]],
            texttemplate="%{z:.2f}" if is_numbered else None,
            xgap=1,
            ygap=1,
            colorbar={"title": "S [×]", "thickness": 12, "outlinewidth": 0, "ticks": ""},
            customdata=[[[stage, name] for name in columns] for stage in square.index],
            hovertemplate="stage %{customdata[0]}, rank %{customdata[1]}: %{z:.3f} ×"
            "<extra></extra>",
        )
    )
    figure.update_layout(height=max(28 * len(square), 120), margin_l=70)
    for update, title, ticks in (
        (figure.update_xaxes, "data-parallel rank", columns),
        (figure.update_yaxes, "stage", [str(stage) for stage in square.index]),
    ):
        every = -(-len(ticks) // 32)
        positions = list(range(0, len(ticks), every))
        positions += [len(ticks) - 1] * (ticks[-1] == "others" and positions[-1] != len(ticks) - 1)
        update(title=title, tickvals=positions, showgrid=False)
        update(ticktext=[ticks[position] for position in positions])
    figure.update_xaxes(title="data-parallel rank [colour: slowdown if it alone were slow]")
    figure.update_yaxes(range=[len(square) - 0.5, -0.5])
    hidden = unshown.shape[1]
    note = f"the worst {len(kept['dp_rank'])} ranks, worst first; of {hidden:,} others the worst"
    return figure, note if hidden else ""


def _bars(table: pd.DataFrame) -> tuple[go.Figure, str]:
    shown = table.iloc[:_MOST_BARS]
    names = [_part_name(row) for _, row in shown.iterrows()]
    excess = 100 * (shown["slowdown_ratio"].to_numpy() - 1)
    figure = Draft(
        go.Bar(
            orientation="h",
            x=excess,
            y=list(range(len(names))),
            marker=fill("wait"),
            text=[f" {ratio:.3f} × " for ratio in shown["slowdown_ratio"]],
            textposition="outside",
            cliponaxis=False,
            hovertext=names,
            hovertemplate="%{hovertext}: %{x:.3~g} %<extra></extra>",
        )
    )
    low, high = float(excess.min()), float(excess.max())
    room = 0.16 * (max(high, 0) - min(low, 0)) or 1.0
    name_rows(figure, names, 26, least=3, bargap=0.3, hovermode="closest")
    figure.update_xaxes(
        title="step longer than ideal if only this part kept its durations [%]",
        range=[low - room if low < -0.005 * room else 0, max(high, 0) + room],
    )
    hidden = len(table) - len(shown)
    return figure, f"{hidden:,} parts with less dropped" if hidden else ""
