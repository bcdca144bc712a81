"""Pipeline schedules: what every stage runs and when, and which schedule costs least."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import fitting
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame, fill, ink, left_margin
from workbench.plot._style.text import (
    digits,
    duration,
    is_doubtful,
    label,
    percent,
    plural,
    safe,
    time_unit,
)
from workbench.tables import SCHEDULE_COMPARISON, SCHEDULE_TIMES

_MOST_LANES, _MOST_BARS, _MOST_ROWS = 48, 4_000, 30
_LANE_PX, _ROW_PX = 24, 34
_MEANINGS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


def pipeline_schedule(
    times: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what every stage runs and when; several schedules share one time axis.

    One lane per schedule and stage, a bar per pass with its letter and the number of its
    micro-batch; two that overlap share the height of the lane. The title states how long
    stages are idle.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.SCHEDULE_TIMES`, one or several schedules.
    source
        Where the durations come from; printed under the figure.
    """
    frame = Frame(source, synthetic)
    SCHEDULE_TIMES.check(times)
    if times.empty:
        return frame.nothing(
            "The table has no passes; analyze.schedule_times lays out a schedule.",
            claim="No schedule to show",
        )
    names = times["schedule"].astype(str)
    order = names.unique().tolist()
    pairs = list(dict.fromkeys(zip(names, times["stage"].tolist(), strict=True)))
    shown = pairs[:_MOST_LANES]
    # A gap between two schedules.
    height = {lane: at + 0.7 * order.index(lane[0]) for at, lane in enumerate(shown)}
    lanes = [height.get(key) for key in zip(names, times["stage"].tolist(), strict=True)]
    rows = times.assign(lane=pd.array(lanes, dtype="Float64"))
    rows = rows[rows["lane"].notna()].sort_values("start_ns", kind="stable")
    passes, rows = len(rows), rows.head(_MOST_BARS)
    end_ns = float((times["start_ns"] + times["dur_ns"]).max())
    unit, sign = time_unit(end_ns)
    letters = rows["action"].astype(str) + rows["micro_batch"].astype(str)
    rows = rows.assign(letters=fitting(letters, rows["dur_ns"] / end_ns))
    figure = Draft()
    for action in _MEANINGS:
        passes_of = rows[rows["action"] == action]
        if not passes_of.empty:
            figure.add_trace(_bars(action, passes_of, unit))
    figure.update_layout(
        barmode="overlay",
        height=max(len(shown), 3) * _LANE_PX + 16 * len(order),
        margin_l=min(66 + 7 * max(len(name) for name in order), 230),
        # On a narrow page letters that do not fit are hidden instead of shrunk beyond reading.
        uniformtext={"mode": "hide", "minsize": 8},
    )
    # Reversed, so that the first stage of each schedule is what stays.
    firsts = dict(reversed(shown))
    ticks = [
        f"<b>{label(name, 26)}</b>, stage {stage}" if firsts[name] == stage else f"stage {stage}"
        for name, stage in shown
    ]
    figure.update_yaxes(
        tickvals=list(height.values()),
        ticktext=ticks,
        range=[max(height.values()) + 0.6, -0.6],
        showgrid=False,
    )
    figure.update_xaxes(title=f"time [{sign}]", rangemode="tozero")
    notes = [
        *(["letter and number: pass and micro-batch"] if rows["letters"].any() else []),
        *(["half height: two passes at once"] if rows["is_overlapped"].any() else []),
        *([f"{plural(len(pairs) - len(shown), 'stage')} not shown"] if pairs != shown else []),
        *([f"the first {len(rows):,} of {passes:,} passes"] if passes > len(rows) else []),
    ]
    claim, note = _claim(times, order), " · ".join(notes)
    return frame.finish(figure, claim=claim, note=note)


def _bars(action: str, rows: pd.DataFrame, unit: int) -> go.Bar:
    """Draw the passes of one kind; of two that overlap, the forward is the upper one."""
    meaning = _MEANINGS[action]
    marker = fill(meaning) | {"line": {"width": 0.6, "color": COLOURS["paper"]}}
    half = rows["is_overlapped"].to_numpy()
    # Of two passes at once each takes half of the lane.
    side = -0.215 if action == "F" else 0.215
    return go.Bar(
        orientation="h",
        base=rows["start_ns"] / unit,
        x=rows["dur_ns"] / unit,
        y=rows["lane"].to_numpy(dtype=np.float64) + np.where(half, side, 0.0),
        width=np.where(half, 0.43, 0.86),
        name=f"{action} {meaning}",
        marker=marker,
        text=rows["letters"],
        textposition="inside",
        textangle=0,
        insidetextanchor="middle",
        insidetextfont={"color": ink(marker["color"]), "size": 10},
        customdata=np.stack([rows["micro_batch"], rows["chunk"]], axis=1),
        hovertemplate=f"{meaning} of micro-batch %{{customdata[0]}}, chunk %{{customdata[1]}}<br>"
        "from %{base:.4g}, for %{x:.4g}<extra></extra>",
    )


def _claim(times: pd.DataFrame, names: list[str]) -> str:
    words: list[str] = []
    for name in names[:2]:
        own_passes = times[times["schedule"] == name]
        room = (
            float((own_passes["start_ns"] + own_passes["dur_ns"]).max())
            * own_passes["stage"].nunique()
        )
        # Of two passes that overlap, one stands for both.
        alone = own_passes[~own_passes["is_overlapped"] | own_passes["action"].eq("F")]
        idle = max(1 - float(alone["dur_ns"].sum()) / room, 0.0) if room else 0.0
        stages = plural(own_passes["stage"].nunique(), "stage")
        first = f"{label(name, 26)}: {stages}, pipeline bubble {safe(percent(idle))} of the step"
        words.append(first if not words else f"{label(name, 26)}: {safe(percent(idle))}")
    return "; ".join(words)


def schedule_comparison(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Compare schedules: how long a step takes, how much of it is bubble, what it keeps.

    A bar per schedule, the fastest on top: computing and idle time of a mean stage, and
    how many activations the fullest stage keeps. The title names the fastest.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SCHEDULE_COMPARISON`.
    source
        Where the durations come from; printed under the figure.
    """
    frame = Frame(source, synthetic)
    SCHEDULE_COMPARISON.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no schedules; analyze.schedule_comparison lays some out.",
            claim="No schedules to compare",
        )
    rows = table.sort_values("step_ns", kind="stable")
    shown = rows.head(_MOST_ROWS)
    unit, sign = time_unit(float(shown["step_ns"].max()))
    idle = shown["step_ns"] * shown["bubble_share"]
    ys = list(range(len(shown)))
    figure = Draft()
    for name, meaning, values in (
        ("computing", "compute", shown["step_ns"] - idle),
        ("idle: the bubble", "idle", idle),
    ):
        figure.add_bar(
            orientation="h", x=values / unit, y=ys, name=name, marker=fill(meaning),
            hovertemplate=f"{name}: %{{x:.4g}} {sign}<extra></extra>",
        )  # fmt: skip
    words = [
        f"bubble {safe(percent(share))}, keeps {digits(kept)} activations"
        for share, kept in zip(shown["bubble_share"], shown["peak_activations_ratio"], strict=True)
    ]
    longest = float(shown["step_ns"].max()) / unit or 1.0
    for at, text, end in zip(ys, words, shown["step_ns"] / unit, strict=True):
        figure.add_annotation(
            x=end, y=at, text=text, showarrow=False, xanchor="left", xshift=4, font={"size": 11}
        )
    names = [label(name, 26) for name in shown["schedule"].astype(str)]
    figure.update_layout(
        barmode="stack", height=max(len(shown), 2) * _ROW_PX, margin_l=left_margin(names)
    )
    figure.update_yaxes(tickvals=ys, ticktext=names, range=[len(shown) - 0.4, -0.6], showgrid=False)
    figure.update_xaxes(title=f"step, of a mean stage [{sign}]", range=[0, 1.5 * longest])
    note = "keeps: at most, on the fullest stage; an activation is that of a micro-batch on a stage"
    if doubtful := int(shown["doubt"].notna().sum()):
        note += f" · {plural(doubtful, 'schedule')} with a doubt, see the table"
    if len(rows) > len(shown):
        note += f" · the fastest {len(shown)} of {len(rows):,}"
    doubtful = is_doubtful(rows.head(1))
    return frame.finish(figure, claim=_fastest(rows), note=note, is_doubtful=doubtful)


def _fastest(rows: pd.DataFrame) -> str:
    first, last = rows.iloc[0], rows.iloc[-1]
    claim = f"{label(first['schedule'], 26)} takes {duration(first['step_ns'])} per step"
    if len(rows) == 1 or not first["step_ns"]:
        return claim
    more = last["step_ns"] / first["step_ns"] - 1
    return f"{claim}, the least; {label(last['schedule'], 26)} takes {safe(percent(more))} more"
