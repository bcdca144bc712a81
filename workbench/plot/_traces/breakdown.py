"""Where the GPU time goes, how much communication hides, how long each step takes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import grouped_labels, stacked
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import MAX_LINES, Frame, distinct
from workbench.plot._style.text import duration, label, percent, plural, time_unit
from workbench.tables import CLOCKS, COMMUNICATION_OVERLAP, IDLE_TIME, STEP_TIMES, TIME_BREAKDOWN

# Markers of more steps, and ticks of more ranks, would touch each other.
_MOST_MARKED, _MOST_TICKS = 50, 24
_LOSSES = {
    "exposed communication": "exposed_communication_ns",
    "exposed memory": "exposed_memory_ns",
    "exposed other": "exposed_other_ns",
    "idle": "idle_ns",
}


def time_breakdown(
    breakdown: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show where the time of every rank (and step) went, as stacks that add up to it.

    One trace per use of the time: compute alone, compute that hides communication, exposed
    communication, memory and other work, idle. The title states the share that computes and the
    largest loss.

    Parameters
    ----------
    breakdown
        Table :data:`workbench.tables.TIME_BREAKDOWN`.
    """
    frame = Frame(source, synthetic)
    TIME_BREAKDOWN.check(breakdown)
    drawn = breakdown[breakdown["busy_ns"] > 0]
    if drawn.empty:
        return frame.nothing(
            "No GPU work was recorded, so there is no GPU time to divide.",
            claim="No GPU time to show",
        )
    uses = {
        "compute": drawn["compute_ns"] - drawn["overlap_ns"],
        "overlapped": drawn["overlap_ns"],
        # Work outside every step has no window, and so no idle time.
    } | {name: drawn[column].fillna(0) for name, column in _LOSSES.items()}
    seen = {name: time.to_numpy(dtype=np.float64) for name, time in uses.items() if time.any()}
    figure, note = stacked(_columns(drawn), seen, title=_axis(drawn))
    return frame.finish(figure, claim=_breakdown_claim(seen), note=note)


def communication_overlap(
    overlap: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much of the communication of every rank (and step) hides behind compute.

    Stacks of overlapped and exposed communication; the title states the hidden share and the
    rank that hides least.

    Parameters
    ----------
    overlap
        Table :data:`workbench.tables.COMMUNICATION_OVERLAP`.
    """
    frame = Frame(source, synthetic)
    COMMUNICATION_OVERLAP.check(overlap)
    drawn = overlap[overlap["communication_ns"] > 0]
    if drawn.empty:
        return frame.nothing(
            "No communication ran on the GPUs, so there is none to hide.",
            claim="No communication to show",
        )
    times = {
        "overlapped": drawn["overlap_ns"].to_numpy(dtype=np.float64),
        "exposed communication": drawn["exposed_ns"].to_numpy(dtype=np.float64),
    }
    figure, note = stacked(_columns(drawn), times, title=_axis(drawn))
    hidden = percent(times["overlapped"].sum() / sum(time.sum() for time in times.values()))
    claim = f"{hidden} of the communication hides behind compute"
    worst = drawn.sort_values("overlap_share", kind="stable").iloc[0]
    if len(drawn) > 1:
        step = "" if pd.isna(worst["step"]) else f" in step {int(worst['step'])}"
        where = f"rank {int(worst['rank'])}{step}"
        claim += f"; least on {where}, {percent(float(worst['overlap_share']))}"
    return frame.finish(figure, claim=claim, note=note)


def step_times(steps: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how long every step took on the GPU of every rank.

    One line per rank, the slowest ones if there are many; the title names the longest step.
    Without GPU work the host times are drawn.

    Parameters
    ----------
    steps
        Table :data:`workbench.tables.STEP_TIMES`.
    """
    frame = Frame(source, synthetic)
    STEP_TIMES.check(steps)
    column, where = ("gpu_ns", "GPU") if steps["gpu_ns"].notna().any() else ("host_ns", "host")
    drawn = steps[steps[column].notna()].astype({column: "float64"})
    if drawn.empty:
        return frame.nothing(
            "The trace marks no ProfilerStep, so time cannot be split by step.",
            claim="No steps to show",
        )
    worst = drawn.sort_values(column, kind="stable").iloc[-1]
    claim = (
        f"Step {int(worst['step'])} of rank {int(worst['rank'])} takes longest: "
        f"{duration(worst[column])}, the median is {duration(drawn[column].median())}"
    )
    if drawn["step"].nunique() == 1:
        height = {"gpu work": drawn[column].to_numpy()}
        figure, note = stacked([str(rank) for rank in drawn["rank"]], height, title="rank")
        figure.update_traces(text=None)
    else:
        figure, note = _step_lines(drawn, column)
        figure.update_xaxes(title="step", tickformat="d")
    unit = time_unit(drawn[column].max())[1]
    figure.update_yaxes(title=f"{where} time of the step [{unit}]", rangemode="tozero")
    return frame.finish(figure, claim=claim, note=note)


def _step_lines(drawn: pd.DataFrame, column: str) -> tuple[go.Figure, str]:
    slowest = drawn.groupby("rank")[column].max().nlargest(MAX_LINES).index.sort_values()
    per_unit, unit = time_unit(drawn[column].max())
    figure = Draft()
    for position, rank in enumerate(slowest):
        of_rank = drawn[drawn["rank"] == rank]
        of_rank = of_rank.iloc[extremes(of_rank[column].to_numpy())]
        figure.add_scatter(
            x=of_rank["step"].to_numpy(),
            y=of_rank[column].to_numpy() / per_unit,
            name=f"rank {rank}",
            mode="lines+markers" if len(of_rank) <= _MOST_MARKED else "lines",
            line=distinct(position),
            hovertemplate="step %{x}: %{y:.4~g} " + unit,
        )
    steps = sorted(drawn["step"].unique())
    if len(steps) <= _MOST_MARKED:
        figure.update_xaxes(tickvals=steps[:: -(-len(steps) // 20)])
    ranks = drawn["rank"].nunique()
    note = f"the {len(slowest)} slowest of {plural(ranks, 'rank')}"
    return figure, note if ranks > len(slowest) else ""


def _breakdown_claim(times: dict[str, np.ndarray]) -> str:
    totals = {name: float(time.sum()) for name, time in times.items()}
    total_ns = sum(totals.values())
    computing = (totals.get("compute", 0) + totals.get("overlapped", 0)) / total_ns
    losses = {name: total for name, total in totals.items() if name in _LOSSES}
    claim = f"GPUs compute {percent(computing)} of the time"
    if not losses:
        return claim
    worst = max(losses, key=lambda name: losses[name])
    return f"{claim}; the largest loss is {worst}, {percent(losses[worst] / total_ns)}"


def _axis(table: pd.DataFrame) -> str:
    if table["step"].isna().all():
        return "rank"
    return "step" if table["rank"].nunique() > 1 else f"step of rank {table['rank'].iloc[0]}"


def _columns(table: pd.DataFrame) -> list[str]:
    if table["step"].isna().all():
        return [str(rank) for rank in table["rank"]]
    steps = ["outside" if pd.isna(step) else str(step) for step in table["step"]]
    if table["rank"].nunique() == 1:
        return steps
    return grouped_labels(steps, [f"rank {rank}" for rank in table["rank"]])


# One per common clock; more could not be told apart.
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "star", "hexagon", "triangle-down")


def clocks(clocks: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the offset of every rank's clock with its uncertainty.

    One dot per rank with a bar of twice its residual up and down, one trace per common clock.
    The title says how far apart clocks are.

    Parameters
    ----------
    clocks
        Table :data:`workbench.tables.CLOCKS`.
    """
    frame = Frame(source, synthetic)
    CLOCKS.check(clocks)
    placed = clocks.dropna(subset=["offset_ns"]).sort_values("rank")
    if placed.empty:
        reason = (
            f"Of none of {plural(len(clocks), 'rank')} a collective ends on another rank as well."
        )
        if clocks.empty:
            reason = "There are no communication kernels whose ends could be compared."
        return frame.nothing(reason, claim="No clocks to compare")
    unit = time_unit(placed["offset_ns"].abs().max() or 1)
    figure = Draft()
    names = placed["clock"].value_counts().index
    shown = names[: len(_SYMBOLS)]
    for position, name in enumerate(shown):
        _add(figure, placed[placed["clock"] == name], position=position, unit=unit)
    # Otherwise plotly would label fractions of ranks where there are few.
    is_few = placed["rank"].max() - placed["rank"].min() < _MOST_TICKS
    figure.update_xaxes(title="rank", dtick=1 if is_few else None)
    figure.update_yaxes(title=f"offset of the clock [{unit[1]}]")
    figure.update_layout(hovermode="closest")
    notes = ["bars: twice the residual up and down", *_doubts(clocks, len(names) - len(shown))]
    return frame.finish(figure, claim=_claim(placed, names), note=" · ".join(notes))


def _add(figure: go.Figure, ranks: pd.DataFrame, *, position: int, unit: tuple[int, str]) -> None:
    offset = ranks["offset_ns"].to_numpy(np.float64)
    keep = extremes(offset, 700)
    ranks, offset = ranks.iloc[keep], offset[keep]
    # Two residuals, about the 95 % interval of normal noise.
    bar = 2 * ranks["residual_ns"].to_numpy(np.float64, na_value=np.nan)
    colour = distinct(position)["color"]
    figure.add_scatter(
        x=ranks["rank"].to_numpy(),
        y=offset / unit[0],
        error_y={"array": bar / unit[0], "color": colour, "thickness": 1.5, "width": 4},
        mode="markers",
        name=f"ranks {label(ranks['clock'].iloc[0], 24)}",
        marker={"color": colour, "symbol": _SYMBOLS[position], "size": 9},
        hovertext=[
            f"rank {rank}: {duration(off)}"
            + ("" if np.isnan(wide) else f" ± {duration(wide)}")
            + f", from {plural(count, 'collective')}"
            for rank, off, wide, count in zip(
                ranks["rank"], offset, bar, ranks["collective_count"], strict=True
            )
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _claim(placed: pd.DataFrame, names: pd.Index) -> str:
    ranks = f"clocks of {len(placed):,} ranks"
    if len(names) > 1:
        largest = plural((placed["clock"] == names[0]).sum(), "rank")
        return (
            f"The {len(placed):,} ranks are on {len(names):,} clocks that no collective compares: "
            f"the largest holds {largest}"
        )
    apart_ns = int(placed["offset_ns"].max() - placed["offset_ns"].min())
    apart = duration(apart_ns)
    residuals = placed["residual_ns"].dropna().sort_values(ascending=False)
    if residuals.empty:
        return f"The {ranks} are {apart} apart, from too few ends"
    # Two clocks cannot be told apart by less than twice their residuals.
    agree = 2 * int(residuals.iloc[:2].sum())
    if apart_ns <= agree and not placed["is_sure"].any():
        return f"Whether the {ranks} agree is not sure; they are {apart} apart"
    if apart_ns <= agree:
        return f"The {ranks} agree: {apart} apart, within the {duration(agree)} uncertainty"
    furthest = placed.iloc[int(placed["offset_ns"].abs().to_numpy("int64").argmax())]
    if not furthest["is_sure"]:
        worst = f"that of rank {furthest['rank']}, furthest off, is not sure"
        return f"The {ranks} seem to be up to {apart} apart, but {worst}"
    worst = f"that of rank {furthest['rank']} is furthest off"
    return f"The {ranks} are up to {apart} apart, beyond the {duration(agree)} uncertainty; {worst}"


def _doubts(clocks: pd.DataFrame, hidden: int) -> list[str]:
    is_lost = clocks["offset_ns"].isna()
    unsure = clocks[~clocks["is_sure"] & ~is_lost]
    lost = int(is_lost.sum())
    notes = [f"{plural(lost, 'rank')} without a known offset dropped"] if lost else []
    if len(unsure):
        why = unsure["note"].dropna()
        most = f", e.g. {label(why.iloc[0].split('; ')[0], 120)}" if len(why) else ""
        notes.append(f"{plural(len(unsure), 'rank')} not sure{most}")
    return notes + ([f"{plural(hidden, 'clock')} dropped"] if hidden else [])


# In the order in which causes are stacked.
_CAUSES = {
    "host late": "the host launching late",
    "host wait": "the host launching late",
    "launch overhead": "launch overhead",
    "kernel gap": "short gaps between kernels",
    "kernel wait": "short gaps between kernels",
    "sync wait": "waiting for other work",
    "dark": "dark: its cause is not in the trace",
    "other cause": "neither late launches nor short gaps",
    "unknown": "of unknown cause: the launch is not in the trace",
}


def idle_time(idle: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how long every GPU (or stream) had nothing to run, by cause.

    Stacks, one trace per cause; the title states the largest cause and its share, the line
    below the detail that makes up most of it.

    Parameters
    ----------
    idle
        Table :data:`workbench.tables.IDLE_TIME`, by device or by stream.
    """
    frame = Frame(source, synthetic)
    IDLE_TIME.check(idle)
    drawn = idle[idle["idle_ns"] > 0]
    if drawn.empty:
        return frame.nothing(
            "There is no gap between GPU work, or no GPU work at all.", claim="No idle time to show"
        )
    drawn = drawn.assign(
        # "other" has the colour of other GPU work, which an idle time is not.
        cause=drawn["cause"].astype("object").replace("other", "other cause"),
        column=_idle_columns(idle).loc[drawn.index],
    )
    table = drawn.pivot_table(
        index="column", columns="cause", values="idle_ns", aggfunc="sum", fill_value=0, sort=False
    )
    order = {cause: at for at, cause in enumerate(_CAUSES)}
    causes = sorted(table.columns, key=lambda cause: order.get(cause, len(order)))
    times = {cause: table[cause].to_numpy(dtype=np.float64) for cause in causes}
    title = "rank" if drawn["stream"].isna().all() else "stream"
    names = [str(name).partition("\n") for name in table.index]
    labels = grouped_labels([first for first, _, _ in names], [rank for _, _, rank in names])
    figure, note = stacked(labels, times, title=title)
    figure.update_yaxes(title=figure.layout.yaxis.title.text.replace("time", "idle time"))
    return frame.finish(
        figure,
        claim=_idle_claim(times),
        note=" · ".join(filter(None, [_main_detail(drawn, times), note])),
    )


def _idle_columns(idle: pd.DataFrame) -> pd.Series:
    names = idle["rank"].astype(str)
    if idle.groupby("rank")["device"].nunique().gt(1).any():
        names = names + " GPU " + idle["device"].astype(str)
    if idle["stream"].isna().all():
        return names
    return idle["stream"].astype("string").fillna("?").astype(str) + "\nrank " + names


def _idle_claim(times: dict[str, np.ndarray]) -> str:
    totals = {cause: float(time.sum()) for cause, time in times.items()}
    worst = max(totals, key=lambda cause: totals[cause])
    share = percent(totals[worst] / sum(totals.values()))
    idle = duration(sum(totals.values()))
    return f"{share} of the {idle} of idle time is {_CAUSES.get(worst, worst)}"


def _main_detail(drawn: pd.DataFrame, times: dict[str, np.ndarray]) -> str:
    worst = max(times, key=lambda cause: float(times[cause].sum()))
    details = drawn[drawn["cause"] == worst].groupby("detail")["idle_ns"].sum()
    if details.empty or not details.max():
        return ""
    share = percent(details.max() / float(times[worst].sum()))
    detail = f"{label(details.idxmax(), 70)} ({share})"
    if worst == "host late":
        return f"the launching thread meanwhile ran mostly {detail}"
    return f"{worst}, mostly: {detail}"
