"""Where the GPU time goes, how much communication hides, how long each step takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import grouped_labels, stacked
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import MAX_LINES, distinct, finish, nothing
from workbench.plot._style.text import duration, percent, plural, time_unit
from workbench.tables import COMMUNICATION_OVERLAP, STEP_TIMES, TIME_BREAKDOWN

_MOST_MARKED = 50
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

    Parameters
    ----------
    breakdown
        Table :data:`workbench.tables.TIME_BREAKDOWN`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One trace per use of the time: compute alone, compute that hides
        communication, exposed communication, memory and other work, idle. The title
        states the share that computes and the largest loss.
    """
    TIME_BREAKDOWN.check(breakdown)
    drawn = breakdown[breakdown["busy_ns"] > 0]
    if drawn.empty:
        return nothing(
            "No GPU work was recorded, so there is no GPU time to divide.",
            claim="No GPU time to show",
            source=source,
            synthetic=synthetic,
        )
    parts = {
        "compute": drawn["compute_ns"] - drawn["overlap_ns"],
        "overlapped": drawn["overlap_ns"],
    } | {name: drawn[column].fillna(0) for name, column in _LOSSES.items()}
    seen = {name: part.to_numpy(dtype=np.float64) for name, part in parts.items() if part.any()}
    figure, note = stacked(_columns(drawn), seen, title=_axis(drawn))
    return finish(
        figure, claim=_breakdown_claim(seen), source=source, synthetic=synthetic, note=note
    )


def communication_overlap(
    overlap: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much of the communication of every rank (and step) hides behind compute.

    Parameters
    ----------
    overlap
        Table :data:`workbench.tables.COMMUNICATION_OVERLAP`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Stacks of overlapped and exposed communication; the title states the hidden
        share and the rank that hides least.
    """
    COMMUNICATION_OVERLAP.check(overlap)
    drawn = overlap[overlap["communication_ns"] > 0]
    if drawn.empty:
        return nothing(
            "No communication ran on the GPUs, so there is none to hide.",
            claim="No communication to show",
            source=source,
            synthetic=synthetic,
        )
    parts = {
        "overlapped": drawn["overlap_ns"].to_numpy(dtype=np.float64),
        "exposed communication": drawn["exposed_ns"].to_numpy(dtype=np.float64),
    }
    figure, note = stacked(_columns(drawn), parts, title=_axis(drawn))
    hidden = percent(parts["overlapped"].sum() / sum(part.sum() for part in parts.values()))
    claim = f"{hidden} of the communication hides behind compute"
    worst = drawn.sort_values("overlap_share", kind="stable").iloc[0]
    if len(drawn) > 1:
        where = f"rank {int(worst['rank'])}" + _step_words(worst["step"])
        claim += f"; least on {where}, {percent(float(worst['overlap_share']))}"
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def step_times(steps: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how long every step took on the GPU of every rank.

    Parameters
    ----------
    steps
        Table :data:`workbench.tables.STEP_TIMES`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per rank, the slowest ones if there are many; the title names the
        longest step. Without GPU work the host times are drawn.
    """
    STEP_TIMES.check(steps)
    column, place = ("gpu_ns", "GPU") if steps["gpu_ns"].notna().any() else ("host_ns", "host")
    drawn = steps[steps[column].notna()].astype({column: "float64"})
    if drawn.empty:
        return nothing(
            "The trace marks no ProfilerStep, so time cannot be told apart by step.",
            claim="No steps to show",
            source=source,
            synthetic=synthetic,
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
    figure.update_yaxes(title=f"{place} time of the step [{unit}]", rangemode="tozero")
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def _step_lines(drawn: pd.DataFrame, column: str) -> tuple[go.Figure, str]:
    """Draw one line per rank, the slowest if there are many."""
    slowest = drawn.groupby("rank")[column].max().nlargest(MAX_LINES).index.sort_values()
    per_unit, unit = time_unit(drawn[column].max())
    figure = go.Figure()
    for position, rank in enumerate(slowest):
        mine = drawn[drawn["rank"] == rank]
        mine = mine.iloc[extremes(mine[column].to_numpy())]
        figure.add_scatter(
            x=mine["step"].to_numpy(),
            y=mine[column].to_numpy() / per_unit,
            name=f"rank {rank}",
            mode="lines+markers" if len(mine) <= _MOST_MARKED else "lines",
            line=distinct(position),
            hovertemplate="step %{x}: %{y:.4~g} " + unit,
        )
    steps = sorted(drawn["step"].unique())
    if len(steps) <= _MOST_MARKED:
        figure.update_xaxes(tickvals=steps[:: -(-len(steps) // 20)])
    ranks = drawn["rank"].nunique()
    note = f"the {len(slowest)} slowest of {plural(ranks, 'rank')}"
    return figure, note if ranks > len(slowest) else ""


def _breakdown_claim(parts: dict[str, np.ndarray]) -> str:
    totals = {name: float(part.sum()) for name, part in parts.items()}
    whole = sum(totals.values())
    computing = (totals.get("compute", 0) + totals.get("overlapped", 0)) / whole
    losses = {name: total for name, total in totals.items() if name in _LOSSES}
    claim = f"GPUs compute {percent(computing)} of the time"
    if not losses:
        return claim
    worst = max(losses, key=lambda name: losses[name])
    return f"{claim}; the largest loss is {worst}, {percent(losses[worst] / whole)}"


def _axis(table: pd.DataFrame) -> str:
    if table["step"].isna().all():
        return "rank"
    return "step" if table["rank"].nunique() > 1 else f"step of rank {table['rank'].iloc[0]}"


def _columns(table: pd.DataFrame) -> list[str]:
    """Label every row with its rank, or with its step and, where a new rank starts, the rank."""
    if table["step"].isna().all():
        return [str(rank) for rank in table["rank"]]
    steps = ["outside" if pd.isna(step) else str(step) for step in table["step"]]
    if table["rank"].nunique() == 1:
        return steps
    return grouped_labels(steps, [f"rank {rank}" for rank in table["rank"]])


def _step_words(step: Any) -> str:
    return "" if pd.isna(step) else f" in step {int(step)}"
