"""One step of a job as a Gantt chart, and its micro-batches as a scatter."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._imbalance.packing import name_rows
from workbench.plot._style.bars import fitting
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import MAX_POINTS, extremes
from workbench.plot._style.style import COLOURS, Frame, fill
from workbench.plot._style.text import digits, duration, label, percent, plural, time_unit, wrapped
from workbench.tables import JOB_DISPERSION, JOB_MICRO_BATCHES, JOB_SCHEDULE

_MOST_STAGES, _LANE_PX = 16, 34
# Real steps are replayed within 3 %.
_REPLAY_LIMIT = 0.05
_WORDS = {"recorded": "recorded", "actual": "replayed", "ideal": "all equal"}
_SPANS = {"recorded": "as recorded", "actual": "replayed", "ideal": "if all operations were equal"}


def job_schedule(
    schedule: pd.DataFrame,
    *,
    versions: Sequence[str] = ("actual", "ideal"),
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the stages of one data-parallel rank in a step, and if all operations were equal.

    A lane per version and stage on one time axis: forward and backward passes with the
    number of their micro-batch, transfers in a thin line below them, idle time where
    nothing is drawn over the grey. The title states both ends.

    Parameters
    ----------
    schedule
        Table :data:`workbench.tables.JOB_SCHEDULE`.
    versions
        Which versions to draw below each other: any of ``"recorded"``, ``"actual"`` and
        ``"ideal"``. Recorded sends and receives include waiting.
    """
    frame = Frame(source, synthetic)
    JOB_SCHEDULE.check(schedule)
    table = schedule[schedule["version"].isin(versions)]
    if table.empty:
        why = f"The table has no operations of the versions {', '.join(map(label, versions))}; pass"
        why += " what analyze.job_schedule returns."
        return frame.nothing(why, claim="No step to show")
    first = table.iloc[0]
    table = table[(table["step"] == first["step"]) & (table["dp_rank"] == first["dp_rank"])]
    drawn = [name for name in versions if (table["version"] == name).any()]
    stages = sorted({int(stage) for stage in table["stage"]})
    if len(stages) > _MOST_STAGES:
        # The ends of a pipeline differ most, and the stages in the middle look alike.
        stages = [*stages[: _MOST_STAGES // 2], *stages[-_MOST_STAGES // 2 :]]
    lanes = {lane: at for at, lane in enumerate(itertools.product(drawn, stages))}
    table = table[table["stage"].isin(stages)]
    ends = (table["start_ns"] + table["dur_ns"]).groupby(table["version"].astype(str)).max()
    per_unit, unit = time_unit(ends.max())
    figure = Draft()
    # The whole step lies behind each lane; what stays to be seen of it is idle.
    figure.add_bar(
        orientation="h",
        x=[ends[version] / per_unit for version, _ in lanes],
        y=list(lanes.values()),
        width=0.8,
        name="idle",
        marker=fill("idle"),
        hoverinfo="skip",
    )
    for kind, operations in table.groupby(_kinds(table), sort=False, observed=True):
        _add_kind(figure, str(kind), operations, lanes, (per_unit, unit), ends.max())
    _lay_out(figure, lanes, f"time since the step began [{unit}]")
    spans = " and ".join(f"{duration(ends[name])} {_SPANS[name]}" for name in drawn)
    claim = f"Step {first['step']} of rank {first['dp_rank']} takes {spans}"
    notes = ["numbers: micro-batches", *_left_out(schedule, table, len(stages))]
    return frame.finish(figure, claim=claim, note=" · ".join(notes))


def job_micro_batches(
    micro_batches: pd.DataFrame,
    *,
    correlation: float | None = None,
    max_points: int = 1_500,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the backward pass of every micro-batch over its forward pass.

    One dot per micro-batch; those of the rank that computes longest have a symbol of
    their own, because one slow worker makes both passes long as well.

    Parameters
    ----------
    micro_batches
        Table :data:`workbench.tables.JOB_MICRO_BATCHES`.
    correlation
        ``forward_backward_correlation`` of :func:`workbench.analyze.job_slowdown`, to be
        printed in the title.
    max_points
        Dots to draw at most; the longest and shortest passes always stay.
    """
    frame = Frame(source, synthetic)
    JOB_MICRO_BATCHES.check(micro_batches)
    if micro_batches.empty:
        why = "No micro-batch has both a forward and a backward pass on this stage."
        return frame.nothing(why, claim="No micro-batches to compare")
    computed = micro_batches["forward_ns"] + micro_batches["backward_ns"]
    worst = computed.groupby(micro_batches["dp_rank"]).sum().idxmax()
    is_worst = micro_batches["dp_rank"] == worst
    per_unit, unit = time_unit(micro_batches[["forward_ns", "backward_ns"]].to_numpy().max())
    figure = Draft()
    for name, symbol, meaning, passes in (
        ("other ranks", "circle-open", "communication", micro_batches[~is_worst]),
        (f"rank {worst}, which computes longest", "diamond", "wait", micro_batches[is_worst]),
    ):
        if passes.empty:
            continue
        kept = passes.sort_values("forward_ns", kind="stable")
        kept = kept.iloc[extremes(kept["backward_ns"].to_numpy(), max_points // 2)]
        figure.add_scatter(
            mode="markers",
            x=kept["forward_ns"].to_numpy() / per_unit,
            y=kept["backward_ns"].to_numpy() / per_unit,
            name=name,
            marker={"symbol": symbol, "color": COLOURS[meaning], "size": 6, "opacity": 0.6},
            hovertext=[
                f"step {row['step']}, rank {row['dp_rank']}, micro-batch {row['micro_batch']}"
                for row in kept.to_dict("records")
            ],
            hovertemplate="%{hovertext}<br>%{x:.4~g} and %{y:.4~g} " + unit + "<extra></extra>",
        )
    figure.update_layout(hovermode="closest", height=360)
    stage = micro_batches["stage"].iloc[0]
    figure.update_xaxes(title=f"forward pass on stage {stage} [{unit}]")
    figure.update_yaxes(title=f"its backward pass [{unit}]")
    low, high = micro_batches["forward_ns"].min(), micro_batches["forward_ns"].max()
    claim = f"Forward passes take {duration(low)} to {duration(high)}"
    if correlation is not None and not pd.isna(correlation):
        claim += f"; their backward passes follow with r = {correlation:.2f}"
    drawn, ranks = sum(len(trace.x) for trace in figure.data), micro_batches["dp_rank"].nunique()
    note = f"micro-batches of {plural(ranks, 'rank')}: {len(micro_batches):,}"
    if drawn < len(micro_batches):
        note += f", of which {drawn:,} are drawn, the longest and shortest among them"
    return frame.finish(figure, claim=claim, note=note)


def _kinds(table: pd.DataFrame) -> pd.Series:
    names = table["operation"].astype(str)
    kinds = np.select(
        [
            names.eq("forward-compute"),
            names.eq("backward-compute"),
            names.str.contains(r"-send|-recv|gather|scatter|reduce|clip", regex=True),
        ],
        ["forward", "backward", "transfer"],
        "other",
    )
    return pd.Series(kinds, index=table.index)


def _add_kind(
    figure: go.Figure,
    kind: str,
    table: pd.DataFrame,
    lanes: dict[tuple[str, int], int],
    unit: tuple[int, str],
    end_ns: float,
) -> None:
    """Add the operations of one kind; of very many the longest."""
    if len(table) > MAX_POINTS:
        table = table.nlargest(MAX_POINTS, "dur_ns")
    keys = zip(table["version"].astype(str), table["stage"].astype("int64"), strict=True)
    lane = np.array([lanes[key] for key in keys], dtype=np.float64)
    thin = kind == "transfer"
    batches = ["" if pd.isna(batch) else str(batch) for batch in table["micro_batch"]]
    figure.add_bar(
        orientation="h",
        base=table["start_ns"].to_numpy() / unit[0],
        x=table["dur_ns"].to_numpy() / unit[0],
        # Transfers run beside computations, so they are a thin line below them.
        y=lane + (0.31 if thin else -0.08),
        width=0.18 if thin else 0.6,
        name=kind,
        marker=fill(kind) | {"line": {"width": 0.5, "color": COLOURS["paper"]}},
        text=None if thin or kind == "other" else fitting(batches, table["dur_ns"] / end_ns),
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"size": 10},
        hovertext=[
            f"{label(name, 60)}{f' of micro-batch {batch}' if batch else ''}<br>{duration(ns)}"
            for name, batch, ns in zip(table["operation"], batches, table["dur_ns"], strict=True)
        ],
        hovertemplate="%{hovertext} from %{base:.4~g} " + unit[1] + "<extra></extra>",
    )


def _lay_out(figure: go.Figure, lanes: dict[tuple[str, int], int], title: str) -> None:
    ticks = [f"{_WORDS[version]}, stage {stage}" for version, stage in lanes]
    hidden = {"mode": "hide", "minsize": 8}
    name_rows(figure, ticks, _LANE_PX, barmode="overlay", hovermode="closest", uniformtext=hidden)
    figure.update_layout(height=max(len(lanes) * _LANE_PX, 120))
    figure.update_xaxes(title=title)
    versions = [version for version, _ in lanes]
    for at in range(1, len(versions)):
        if versions[at] != versions[at - 1]:
            figure.add_hline(y=at - 0.5, line={"color": COLOURS["dark"], "width": 1})


def _left_out(schedule: pd.DataFrame, table: pd.DataFrame, stage_count: int) -> list[str]:
    hidden = schedule["stage"].nunique() - stage_count
    recorded = schedule[schedule["version"] == "recorded"]
    ends = (recorded["start_ns"] + recorded["dur_ns"]).max()
    notes = [] if recorded.empty else [f"recorded: {duration(ends)}"]
    error = schedule.attrs.get("replay_error_ratio", 0.0)
    if abs(error) > _REPLAY_LIMIT:
        notes.append(f"the replay is {percent(abs(error))} {'longer' if error > 0 else 'shorter'}")
    notes += [f"{hidden:,} stages in the middle dropped"] if hidden > 0 else []
    cut = int((_kinds(table).value_counts() - MAX_POINTS).clip(lower=0).sum())
    return [*notes, f"{cut:,} short operations dropped"] if cut else notes


_MOST_ROWS = 40


def job_dispersion(
    dispersion: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much GPU time each measure of imbalance would call lost.

    One bar per measure with its value beside it; what each cannot see on hover. The
    title names the measure that hides most.

    Parameters
    ----------
    dispersion
        Table :data:`workbench.tables.JOB_DISPERSION`; its first row is the truth that the
        others are compared with.
    """
    frame = Frame(source, synthetic)
    JOB_DISPERSION.check(dispersion)
    table = dispersion.iloc[:_MOST_ROWS].reset_index(drop=True)
    if table.empty:
        why = "The table has no measures; pass what analyze.job_dispersion returns."
        return frame.nothing(why, claim="No measures to compare")
    names = [label(name, 48) for name in table["measure"]]
    lost = table["lost_share"].astype("Float64")
    figure = Draft()
    for name, meaning, rows in (
        ("what-if: every operation as its equals", "wait", table.index[:1]),
        ("usual measures", "neutral", table.index[1:]),
    ):
        if len(rows):
            figure.add_bar(
                orientation="h",
                x=(100 * lost[rows]).fillna(0).to_numpy(dtype="float64"),
                y=list(rows),
                name=name,
                marker=fill(meaning),
                text=[f" {_beside(table.loc[row])} " for row in rows],
                textposition="outside",
                cliponaxis=False,
                hovertext=[_hover(table.loc[row]) for row in rows],
                hovertemplate="%{hovertext}<extra></extra>",
            )
    name_rows(figure, names, 26, least=3, bargap=0.3, hovermode="closest", barmode="overlay")
    most = float(lost.max()) if lost.notna().any() else 0.0
    title = "GPU time that the measure calls lost [%]"
    figure.update_xaxes(title=title, range=[0, 130 * most or 1])
    hidden = len(dispersion) - len(table)
    note = "beside the bars: the value of the measure; point at a bar for what it cannot see"
    note += f" · {hidden:,} measures dropped" if hidden else ""
    return frame.finish(figure, claim=_claim(names, lost), note=note)


def _claim(names: list[str], lost: pd.Series) -> str:
    """Set the first measure beside the one that calls least lost."""
    usual = lost.iloc[1:].dropna()
    if pd.isna(lost.iloc[0]) or usual.empty:
        return f"{plural(len(names), 'measure')} of imbalance"
    least = int(usual.index.to_numpy()[usual.to_numpy(dtype="float64").argmin()])
    return (
        f"The what-if calls {percent(float(lost.iloc[0]))} of the GPU time lost, "
        f"“{names[least]}” only {percent(float(lost[least]))}"
    )


def _beside(row: pd.Series) -> str:
    if pd.isna(row["value_ratio"]):
        return "not recorded"
    value = digits(float(row["value_ratio"]))
    return f"{value} (no share)" if pd.isna(row["lost_share"]) else value


def _hover(row: pd.Series) -> str:
    lines = [f"<b>{label(row['measure'], 80)}</b>", label(row["formula"], 200)]
    lines += [f"cannot see: {label(row['hides'], 200)}"]
    return "<br>".join(wrapped(line, 80) for line in lines)
