"""A training step on the stages of a pipeline, one layout above the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.style import fill, finish, ink, nothing
from workbench.plot._style.text import label, percent, plural
from workbench.tables import PIPELINE

_MOST_LANES, _MOST_BARS, _LABELLED = 48, 4_000, 400
_LANE_PX = 24


def pipeline(tasks: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what every stage computes and when; several layouts share one time axis.

    Parameters
    ----------
    tasks
        Table :data:`workbench.tables.PIPELINE`, one or several versions of a step.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One lane per version and stage of the slowest replica, a bar per pass with the number
        of its micro-batch. The title states how long each version takes, and how idle it is.
    """
    PIPELINE.check(tasks)
    if tasks.empty:
        return nothing(
            "The table has no passes; analyze.pipeline lays out a step.",
            claim="No pipeline to show",
            source=source,
            synthetic=synthetic,
        )
    tasks = tasks.assign(end=tasks["start_cost"] + tasks["dur_cost"])
    versions = tasks["version"].unique().tolist()
    slowest = tasks.loc[tasks.groupby("version", observed=True)["end"].idxmax()]
    keys = slowest[["version", "dp_rank"]]
    rows = tasks.merge(keys, on=["version", "dp_rank"])
    lanes = [
        (version, stage)
        for version in versions
        for stage in sorted(rows.loc[rows["version"] == version, "stage"].unique())
    ]
    shown = lanes[:_MOST_LANES]
    # A gap between two versions.
    place = {lane: at + 0.7 * versions.index(lane[0]) for at, lane in enumerate(shown)}
    key = list(zip(rows["version"], rows["stage"], strict=True))
    rows = rows[[each in place for each in key]]
    unit = float(rows.loc[rows["version"] == versions[0], "end"].max()) or 1.0
    claim, passes = _claim(rows, versions), len(rows)
    rows = rows.nlargest(_MOST_BARS, "dur_cost") if passes > _MOST_BARS else rows
    figure = go.Figure()
    for task in ("forward", "backward"):
        part = rows[rows["task"] == task]
        if part.empty:
            continue
        marker = fill(task) | {"line": {"width": 0.6, "color": "#FFFFFF"}}
        figure.add_bar(
            orientation="h",
            base=part["start_cost"] / unit,
            x=part["dur_cost"] / unit,
            y=[place[each] for each in zip(part["version"], part["stage"], strict=True)],
            width=0.86,
            name=task,
            marker=marker,
            text=part["micro_batch"] if len(rows) <= _LABELLED else None,
            textposition="inside",
            textangle=0,
            insidetextfont={"color": ink(marker["color"]), "size": 10},
            customdata=np.stack([part["micro_batch"], part["chunk"]], axis=1),
            hovertemplate=task + " of micro-batch %{customdata[0]}, chunk %{customdata[1]}<br>"
            "from %{base:.3f}, for %{x:.3f}<extra></extra>",
        )
    figure.update_layout(
        barmode="overlay",
        height=max(len(shown), 3) * _LANE_PX + 16 * len(versions),
        margin_l=min(60 + 7 * max(len(str(v)) for v in versions), 230),
        uniformtext={"mode": "hide", "minsize": 8},
    )
    names = [
        f"<b>{label(version, 26)}</b>, stage {stage}" if stage == lanes_of(shown, version)[0]
        else f"stage {stage}"
        for version, stage in shown
    ]  # fmt: skip
    figure.update_yaxes(
        tickvals=list(place.values()),
        ticktext=names,
        range=[max(place.values()) + 0.6, -0.6],
        showgrid=False,
    )
    figure.update_xaxes(title=f"time [{label(versions[0], 26)} step = 1]", rangemode="tozero")
    hidden = len(lanes) - len(shown)
    notes = [
        *(["numbers are micro-batches"] if len(rows) <= _LABELLED else []),
        *([f"{plural(hidden, 'stage')} not shown"] if hidden else []),
        *([f"{len(rows):,} of {passes:,} passes are drawn"] if passes > len(rows) else []),
    ]
    note = " · ".join(notes)
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def lanes_of(lanes: list[tuple[str, int]], version: str) -> list[int]:
    """Return the stages of one version among the lanes shown."""
    return [stage for name, stage in lanes if name == version]


def _claim(rows: pd.DataFrame, versions: list[str]) -> str:
    parts = []
    for version in versions[:2]:
        mine = rows[rows["version"] == version]
        if mine.empty:
            continue
        end = float(mine["end"].max())
        room = end * mine["stage"].nunique()
        idle = max(1 - float(mine["dur_cost"].sum()) / room, 0.0) if room else 0.0
        parts.append((version, idle))
    words = [
        f"{label(version, 26)}: stages do nothing for {percent(idle)} of the step"
        if at == 0
        else f"{label(version, 26)}: for {percent(idle)}"
        for at, (version, idle) in enumerate(parts)
    ]
    text = "; ".join(words)
    return text[:1].upper() + text[1:]
