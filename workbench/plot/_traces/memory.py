"""GPU memory: its course over time, and what is held at the peak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.bars import largest
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import Frame, colour, fill, left_margin, row_axis
from workbench.plot._style.text import label, percent, plural, safe, short, size, time_axis
from workbench.tables import MEMORY_PEAK, MEMORY_TIMELINE

_GB = 1e9
_MOST_POINTS = 1_000
_BAR_PX, _LONGEST, _MOST_BARS = 30, 70, 20
_LINES = {
    "highest_reserved_bytes": ("reserved by the allocator", "memory", "dash"),
    "highest_active_bytes": ("allocated, or freed but still in use", "faint", "dot"),
    "highest_allocated_bytes": ("allocated", "series", "solid"),
}


def memory_timeline(
    timeline: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much memory one device holds over time, and when most.

    Reserved, active and allocated memory in GB over time, the peak marked; the title states
    both peaks.

    Parameters
    ----------
    timeline
        Table :data:`workbench.tables.MEMORY_TIMELINE`; of several devices the one that holds most
        is drawn.
    """
    frame = Frame(source, synthetic)
    MEMORY_TIMELINE.check(timeline)
    if timeline.empty:
        return frame.nothing("No action of the allocator is recorded.", claim="No memory to show")
    highest = timeline["highest_allocated_bytes"].to_numpy()
    row = timeline.iloc[int(highest.argmax())]
    is_shown = (timeline["rank"] == row["rank"]) & (timeline["device"] == row["device"])
    shown = timeline[is_shown]
    shown = shown.iloc[extremes(shown["highest_allocated_bytes"].to_numpy(), _MOST_POINTS)]
    shown = shown.reset_index(drop=True)
    x, title = _axis(shown)
    at = int(shown["highest_allocated_bytes"].to_numpy().argmax())
    figure = Draft()
    for column, (name, meaning, dash) in _LINES.items():
        if shown[column].notna().any():
            values = shown[column].to_numpy(dtype=np.float64, na_value=np.nan) / _GB
            line = {"shape": "hv", "width": 1.5, "color": colour(meaning), "dash": dash}
            figure.add_scatter(
                x=x, y=values, name=name, mode="lines", line=line,
                hovertemplate="%{y:.4g} GB at %{x:.4~g}",
            )  # fmt: skip
    peak = shown.iloc[at]
    figure.add_scatter(
        x=[x[at]], y=[peak["highest_allocated_bytes"] / _GB], name="peak", mode="markers",
        marker={"symbol": "x", "size": 10, "color": colour("limit")},
        hovertemplate="peak: %{y:.4g} GB",
    )  # fmt: skip
    figure.update_xaxes(title=title)
    figure.update_yaxes(title="memory [GB]", rangemode="tozero")
    reserved = shown["highest_reserved_bytes"].max()
    device = f"{label(row['device'], 20)} of rank {row['rank']}"
    claim = f"{device} allocates up to {size(float(highest.max()))}"
    if not pd.isna(peak["step"]):
        claim += f", in step {peak['step']}"
    claim += "" if pd.isna(reserved) else f"; the allocator reserves up to {size(float(reserved))}"
    others = timeline[["rank", "device"]].drop_duplicates().shape[0] - 1
    note = f"{plural(others, 'other device')} not drawn, with lower peaks" if others else ""
    return frame.finish(figure, claim=claim, note=note)


def memory_peak(
    peak: pd.DataFrame, *, top: int = 10, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what was allocated at the peak.

    One bar per group in GB; the title names the largest and its share.

    Parameters
    ----------
    peak
        Table :data:`workbench.tables.MEMORY_PEAK`; of several devices the one with the highest peak
        is drawn.
    top
        Groups to show, the largest ones; the others are one bar.
    """
    frame = Frame(source, synthetic)
    MEMORY_PEAK.check(peak)
    if peak.empty:
        return frame.nothing("Nothing is allocated in this recording.", claim="No peak to show")
    totals = peak.groupby(["rank", "device"], observed=True)["size_bytes"].transform("sum")
    row = peak.iloc[int(totals.to_numpy().argmax())]
    shown = peak[(peak["rank"] == row["rank"]) & (peak["device"] == row["device"])]
    bars = largest(shown, "size_bytes", top=top, sums=["count", "size_share"])
    names = bars["group"].astype(object).where(bars["group"].notna(), "all others").astype(str)
    values, counts = bars["size_bytes"].to_numpy(dtype=np.float64), bars["count"]
    ticks = [safe(short(name, _LONGEST)) for name in names]
    figure = Draft()
    figure.add_bar(
        orientation="h",
        y=list(range(len(bars))),
        x=values / _GB,
        marker=fill("memory", bars=len(bars)),
        hovertext=[
            f"{safe(short(name, 300))}<br>{size(value)}, {plural(int(count), 'allocation')}"
            for name, value, count in zip(names, values, counts, strict=True)
        ],
        hovertemplate="%{hovertext}<extra></extra>",
        text=[
            f" {size(value)}, {percent(share)} "
            for value, share in zip(values, bars["size_share"], strict=True)
        ],
        textposition="outside",
        cliponaxis=False,
    )
    _with_names(figure, ticks)
    figure.update_xaxes(
        title="allocated at the peak [GB]", range=[0, 1.35 * values.max() / _GB or 1]
    )
    first = shown.iloc[int(shown["size_bytes"].to_numpy().argmax())]
    claim = (
        f"{label(first['group'], 50)} holds {percent(float(first['size_share']))} of the peak of "
        f"{size(float(totals.max()))} on {label(row['device'], 20)} of rank {row['rank']}"
    )
    before = int(shown["before_trace_bytes"].sum())
    note = f"{size(before)} of it were allocated before the recording began" if before else ""
    return frame.finish(figure, claim=claim, note=note)


def _with_names(figure: go.Figure, names: list[str]) -> None:
    """Write the names of horizontal bars beside them, the first on top."""
    figure.update_layout(
        height=max(2, len(names)) * _BAR_PX,
        margin_l=left_margin(names),
        bargap=0.25,
        hovermode="closest",
    )
    figure.update_yaxes(**row_axis(names), showgrid=False)


def _axis(timeline: pd.DataFrame) -> tuple[NDArray[Any], str]:
    times = timeline["start_ns"]
    if times.isna().any():
        return timeline["first_event"].to_numpy(), "action of the allocator"
    scale, title = time_axis(int(times.min()), int(times.max()))
    return ((times - times.min()).to_numpy(dtype=np.float64) / scale), title
