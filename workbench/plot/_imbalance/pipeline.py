"""A training step on the stages of a pipeline, one layout above the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, distinct, fill, ink, left_margin
from workbench.plot._style.text import label, percent, plural, safe
from workbench.tables import LENGTH_SHARES, PIPELINE, TRAINING_SPEED

_MOST_LANES, _MOST_BARS, _LABELLED = 48, 4_000, 400
_LANE_PX = 24


def pipeline(tasks: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what every stage computes and when; several layouts share one time axis.

    Parameters
    ----------
    tasks
        Table :data:`workbench.tables.PIPELINE`, one or several versions of a step.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        One lane per version and stage of the slowest replica, a bar per pass with the number
        of its micro-batch. The title states how long each version takes, and how idle it is.
    """
    frame = Frame(source, synthetic)
    PIPELINE.check(tasks)
    if tasks.empty:
        return frame.nothing(
            "The table has no passes; analyze.pipeline lays out a step.",
            claim="No pipeline to show",
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
        marker = fill(task) | {"line": {"width": 0.6, "color": COLOURS["paper"]}}
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
    return frame.finish(figure, claim=claim, note=note)


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
        f"{label(version, 26)}: pipeline bubble {percent(idle)}" + " of the step" * (at == 0)
        for at, (version, idle) in enumerate(parts)
    ]
    text = "; ".join(words)
    return text[:1].upper() + text[1:]


# Document lengths: how many are long, and what the long ones hold.

_LINES = (
    ("longer_share", "documents longer than this"),
    ("token_share", "tokens in documents up to this"),
    ("square_share", "attention (squared length) up to this"),
)


def length_shares(shares: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how many documents are longer than a length, and what the shorter ones hold.

    Parameters
    ----------
    shares
        Table :data:`workbench.tables.LENGTH_SHARES`.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        Three lines over a logarithmic axis of lengths. The title states what the longest
        1 % of the documents hold.
    """
    frame = Frame(source, synthetic)
    LENGTH_SHARES.check(shares)
    if shares.empty:
        return frame.nothing(
            "The table has no documents; load.document_lengths reads them from a file.",
            claim="No document lengths to show",
        )
    figure = go.Figure()
    length = shares["length_tokens"].to_numpy()
    for position, (name, words) in enumerate(_LINES):
        values = shares[name].to_numpy()
        kept = _thinned(values)
        figure.add_scatter(
            mode="lines" if len(length) > 1 else "markers",
            x=length[kept],
            y=values[kept],
            name=words,
            line={"width": 2, **distinct(position)},
            marker={"symbol": position, "size": 10, "color": distinct(position)["color"]},
            hovertemplate=words + ": %{y:.2%}<br>%{x:,} tokens<extra></extra>",
        )
    figure.update_xaxes(title="length of a document [tokens]", type="log")
    figure.update_xaxes(**log_ticks(length.astype(np.float64)))
    figure.update_yaxes(title="share [%]", tickformat=".0%", range=[-0.02, 1.02])
    return frame.finish(figure, claim=_document_lengths_claim(shares))


def _thinned(values: np.ndarray) -> np.ndarray:
    # Steps of a cumulative share: its highest and lowest point per bucket are its ends.
    return extremes(values, 400)


def _document_lengths_claim(shares: pd.DataFrame) -> str:
    # What documents longer than a length hold, by the share of documents that are longer.
    longer = np.append(shares["longer_share"].to_numpy()[1:], 0.0)[::-1]
    tokens, squares = (
        float(np.interp(0.01, [*longer, 1.0], [*(1 - shares[name].to_numpy())[::-1], 1.0]))
        for name in ("token_share", "square_share")
    )
    return (
        f"The longest 1 % of documents hold {percent(tokens)} of the tokens and "
        f"{percent(squares)} of the attention"
    )


# What recipes of packing and sharding buy over the plain one.

_MOST_RECIPES = 24
# Above this share of attention that was never packed, a recipe is no fair comparison.
_MOST_LEFT = 0.05


def training_speed(speed: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the speed of every recipe over the plain one.

    Parameters
    ----------
    speed
        Table :data:`workbench.tables.TRAINING_SPEED`.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar per recipe: what it adds to the one it builds on, from the plain one on, which
        is 1. The title states the fastest.
    """
    frame = Frame(source, synthetic)
    TRAINING_SPEED.check(speed)
    if speed.empty:
        return frame.nothing(
            "The table has no recipes; analyze.training_speed compares them.",
            claim="No recipes to compare",
        )
    rows = speed.head(_MOST_RECIPES)
    speed_of = dict(zip(rows["recipe"], rows["speedup_ratio"], strict=True))
    base = np.array([speed_of.get(name, 1.0) for name in rows["builds_on"]])
    total = rows["speedup_ratio"].to_numpy()
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        base=1,
        x=base - 1,
        y=np.arange(len(rows)),
        name="what it builds on",
        marker={"color": COLOURS["all others"], "opacity": 0.5},
        hoverinfo="skip",
    )
    for meaning, mine in (("less", total >= base), ("more", total < base)):
        at = np.flatnonzero(mine)
        if not len(at):
            continue
        part = rows.iloc[at]
        figure.add_bar(
            orientation="h",
            base=base[at],
            x=total[at] - base[at],
            y=at,
            name="what it adds" if meaning == "less" else "what it costs",
            marker=fill(meaning),
            hovertext=[
                f"{label(packing, 80)}<br>attention {label(sharding, 30)}, stages idle "
                f"{percent(bubble)}, tokens {delay:.2f} batches late"
                for packing, sharding, bubble, delay in zip(
                    *(part[name] for name in
                      ("packing", "context_sharding", "bubble_share", "delay_batches")),
                    strict=True,
                )
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        mode="text",
        x=np.maximum(total, base),
        y=np.arange(len(rows)),
        text=[f"  {value:.2f}" for value in total],
        textposition="middle right",
        showlegend=False,
        hoverinfo="skip",
    )
    gain = total - 1
    ticks = [label(name, 44) for name in rows["recipe"]]
    figure.update_layout(
        height=max(len(rows), 2) * 32, margin_l=left_margin(ticks), bargap=0.35, barmode="overlay"
    )
    figure.add_vline(x=1, line={"color": COLOURS["neutral"], "width": 1})
    low, high = min(gain.min(), 0.0), max(gain.max(), 0.02)
    figure.update_xaxes(
        title="tokens per time [plain = 1]", range=[1 + 1.25 * low - 0.005, 1 + 1.2 * high]
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=ticks,
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )
    claim = _training_speed_claim(rows)
    hidden = len(speed) - len(rows)
    parts = dict.fromkeys(part for note in rows["note"] for part in note.split("; ") if part)
    doubts = [safe(part) for part in parts][:4]
    left_out = [f"{plural(hidden, 'recipe')} not shown"] if hidden else []
    note = " · ".join(["communication is not counted", *left_out, *doubts])
    return frame.finish(figure, claim=claim, note=note)


def _training_speed_claim(rows: pd.DataFrame) -> str:
    fair = (rows["is_stable"] & (rows["left_square_share"] <= _MOST_LEFT)).to_numpy()
    gains = np.where(fair, rows["speedup_ratio"].to_numpy() - 1, -np.inf)
    if gains.max() <= 0:
        return "No recipe that packs all documents is faster than the plain one"
    best = rows.iloc[int(np.argmax(gains))]
    return (
        f"{label(best['recipe'], 44).capitalize()} trains {percent(float(gains.max()))} faster "
        f"than {label(rows['recipe'].iloc[0], 30)} packing"
    )
