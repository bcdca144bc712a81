"""Figures of communication at scale: collectives by algorithm, start-up carried into goodput."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks, stacked_panels
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, MAX_LINES, Frame, distinct
from workbench.plot._style.text import duration, label, plural, seconds, share_text, size
from workbench.plot._style.text import is_doubtful as in_doubt
from workbench.tables import COLLECTIVE_SCALING, STARTUP_GOODPUT

_MOST_POINTS = 400


def collective_scaling(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the modelled time of a collective by algorithm, and which one is fastest where.

    Time by number of ranks, or by size if there is only one number of ranks; both axes
    logarithmic. The title states the fastest at the largest, and what takes most of it.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.COLLECTIVE_SCALING`.
    """
    frame = Frame(source, synthetic)
    COLLECTIVE_SCALING.check(table)
    drawn = table[(table["modelled_ns"] > 0) & (table["size_bytes"] > 0)]
    if drawn.empty:
        why = "The table has no collective of two ranks or more; analyze.collective_scaling."
        return frame.nothing(why, claim="No modelled collectives to show")
    by_rank = drawn["rank_count"].nunique() > 1 or drawn["size_bytes"].nunique() == 1
    x, other = ("rank_count", "size_bytes") if by_rank else ("size_bytes", "rank_count")
    figure = Draft()
    lines = list(drawn.groupby(["algorithm", other], sort=False))
    for position, ((algorithm, value), group) in enumerate(lines[:MAX_LINES]):
        rows = group.sort_values(x, kind="stable")
        many = "" if drawn[other].nunique() == 1 else f", {_words(other, value)}"
        name = f"{label(algorithm, 20)}{many}"
        _line(figure, rows.iloc[extremes(rows["modelled_ns"].to_numpy(), _MOST_POINTS)], x, name,
              position)  # fmt: skip
    best = drawn[drawn["is_chosen"]].sort_values(x, kind="stable")
    if len(best):
        at = best.iloc[extremes(best["modelled_ns"].to_numpy(), _MOST_POINTS)]
        look = {"symbol": "circle-open", "size": 12, "color": COLOURS["reference"]}
        figure.add_scatter(x=at[x].to_numpy(), y=at["modelled_ns"].to_numpy() / 1e6, mode="markers",
                           name="fastest", marker=look, hoverinfo="skip")  # fmt: skip
    ticks = log_ticks(drawn[x].to_numpy(np.float64))
    if not by_rank:
        ticks["ticktext"] = [size(tick) for tick in ticks["tickvals"]]
    figure.update_xaxes(title="ranks" if by_rank else "size [bytes]", type="log", **ticks)
    ms = drawn["modelled_ns"].to_numpy(np.float64) / 1e6
    figure.update_yaxes(title="time [ms], logarithmic", type="log", **log_ticks(ms))
    figure.update_layout(hovermode="closest")
    notes = ["model, not measured"]
    if len(lines) > MAX_LINES:
        notes.append(f"{plural(len(lines) - MAX_LINES, 'line')} dropped")
    end = (best if len(best) else drawn).sort_values([x, "modelled_ns"]).iloc[-1]
    return frame.finish(
        figure, claim=_claim(end), note=" · ".join(notes), is_doubtful=end["doubt"] != ""
    )


def _line(figure: go.Figure, rows: pd.DataFrame, x: str, name: str, position: int) -> None:
    figure.add_scatter(
        mode="lines+markers",
        x=rows[x].to_numpy(),
        y=rows["modelled_ns"].to_numpy() / 1e6,
        name=name,
        line=distinct(position),
        marker={"size": 5},
        hovertext=[
            f"{name}: {duration(row['modelled_ns'])}<br>latency {duration(row['latency_ns'])}, "
            f"control {duration(row['control_ns'])}, transfer {duration(row['transfer_ns'])}"
            f"<br>mostly in: {label(row['slowest_level'], 20)}"
            for row in rows.to_dict("records")
        ],
        hovertemplate="%{x:,}<br>%{hovertext}<extra></extra>",
    )


def _words(column: str, value: Any) -> str:
    return size(value) if column == "size_bytes" else f"{int(value):,} ranks"


def _claim(row: pd.Series) -> str:
    parts = {name: row[f"{name}_ns"] for name in ("latency", "control", "transfer")}
    most = max(parts, key=lambda name: parts[name])
    share = share_text(parts[most] / row["modelled_ns"])
    words = f"{label(row['collective'], 16)} of {size(row['size_bytes'])}, "
    words += f"{row['rank_count']:,} ranks: {duration(row['modelled_ns'])} by "
    return f"{words}{label(row['algorithm'], 20)}, {share} of it {most}"


def startup_goodput(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how long libraries take to start by size of the job, and the goodput that is left.

    Start-up time above, goodput with its interval below. The title states what start-ups cost
    the largest job with the slowest and with the fastest library.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.STARTUP_GOODPUT`.
    """
    frame = Frame(source, synthetic)
    STARTUP_GOODPUT.check(table)
    drawn = table[table["productive_share"].notna() & (table["startup_s"] > 0)]
    if drawn.empty:
        why = "The table has no goodput; analyze.startup_goodput works it out."
        return frame.nothing(why, claim="No start-up times to show")
    figure = stacked_panels(["time to start [s]", "goodput [%]"], [150, 200])
    for position, (library, group) in enumerate(list(drawn.groupby("library", sort=False))[:6]):
        ordered = group.sort_values("gpu_count", kind="stable")
        rows = ordered.iloc[extremes(ordered["productive_share"].to_numpy(), _MOST_POINTS)]
        _library(figure, rows, label(library, 24), position)
    figure.update_xaxes(type="log", **log_ticks(drawn["gpu_count"].to_numpy(np.float64)))
    figure.update_xaxes(title="GPUs", row=2, col=1)
    ticks = log_ticks(drawn["startup_s"].to_numpy(np.float64))
    figure.update_yaxes(type="log", row=1, col=1, **ticks)
    last = drawn[drawn["gpu_count"] == drawn["gpu_count"].max()].sort_values("startup_s")
    slow, fast = last.iloc[-1], last.iloc[0]
    claim = f"Starting {label(slow['library'], 18)} on {slow['gpu_count']:,} GPUs "
    claim += (
        f"({seconds(slow['startup_s'])}) costs {share_text(slow['startup_share'])} of the GPU time"
    )
    if len(last) > 1:
        claim += f", {label(fast['library'], 18)} {share_text(fast['startup_share'])}"
    note = "model through published points; filled: published, open: between or beyond them"
    if missing := len(table) - len(drawn):
        note += f" · {plural(missing, 'case')} without an answer under the convention"
    return frame.finish(figure, claim=claim, note=note, is_doubtful=in_doubt(last))


def _library(figure: go.Figure, rows: pd.DataFrame, name: str, position: int) -> None:
    is_printed = (rows["basis"] == "published").to_numpy()
    share = 100 * rows["productive_share"].to_numpy(np.float64)
    ends = (100 * rows[end].to_numpy(np.float64) for end in ("low_share", "high_share"))
    low, high = (np.nan_to_num(abs(end - share)) for end in ends)
    shape = ("circle", "diamond", "square", "star", "hexagon", "triangle-up")[position % 6]
    for row, (y, errors) in enumerate(
        ((rows["startup_s"].to_numpy(np.float64), None), (share, (low, high))), start=1
    ):
        bars = None if errors is None else {"array": errors[1], "arrayminus": errors[0]}
        figure.add_scatter(
            mode="lines+markers",
            x=rows["gpu_count"].to_numpy(),
            y=y,
            error_y=bars,
            name=name,
            showlegend=row == 1,
            line=distinct(position),
            marker={"symbol": np.where(is_printed, shape, f"{shape}-open"), "size": 8},
            hovertemplate=f"{name}<br>%{{x:,}} GPUs: %{{y:.3g}}<extra></extra>",
            row=row,
            col=1,
        )
