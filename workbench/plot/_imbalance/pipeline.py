"""Steps on the stages of a pipeline, lengths of documents, and the speed of recipes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._imbalance.packing import name_rows
from workbench.plot._style.bars import log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, distinct, fill, ink
from workbench.plot._style.text import label, percent, plural, safe
from workbench.tables import LENGTH_SHARES, PIPELINE, TRAINING_SPEED

_MOST_LANES, _MOST_BARS, _LABELLED = 48, 4_000, 400
_LANE_PX = 24


def pipeline(tasks: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what every stage computes and when; several layouts share one time axis.

    One lane per version and stage of the slowest replica, a bar per pass with the number
    of its micro-batch. The title states how long each version takes, and how idle it is.

    Parameters
    ----------
    tasks
        Table :data:`workbench.tables.PIPELINE`, one or several versions of a step.
    """
    frame = Frame(source, synthetic)
    PIPELINE.check(tasks)
    if tasks.empty:
        why = "The table has no passes; analyze.pipeline lays out a step."
        return frame.nothing(why, claim="No pipeline to show")
    tasks = tasks.assign(end=tasks["start_cost"] + tasks["dur_cost"])
    versions = tasks["version"].unique().tolist()
    # The step lasts as long as its slowest replica, so that one is drawn.
    slowest = tasks.loc[tasks.groupby("version", observed=True)["end"].idxmax()]
    rows = tasks.merge(slowest[["version", "dp_rank"]], on=["version", "dp_rank"])
    lanes = [
        (version, stage)
        for version in versions
        for stage in sorted(rows.loc[rows["version"] == version, "stage"].unique())
    ]
    shown = lanes[:_MOST_LANES]
    # A gap between two versions.
    height = {lane: at + 0.7 * versions.index(lane[0]) for at, lane in enumerate(shown)}
    rows["lane"] = [height.get(key) for key in zip(rows["version"], rows["stage"], strict=True)]
    rows = rows[rows["lane"].notna()]
    unit = float(rows.loc[rows["version"] == versions[0], "end"].max()) or 1.0
    claim, passes = _claim(rows, versions), len(rows)
    rows = rows.nlargest(_MOST_BARS, "dur_cost") if passes > _MOST_BARS else rows
    is_labelled = len(rows) <= _LABELLED
    figure = Draft()
    for task, drawn in ((task, rows[rows["task"] == task]) for task in ("forward", "backward")):
        if drawn.empty:
            continue
        marker = fill(task) | {"line": {"width": 0.6, "color": COLOURS["paper"]}}
        figure.add_bar(
            orientation="h",
            base=drawn["start_cost"] / unit,
            x=drawn["dur_cost"] / unit,
            y=drawn["lane"].tolist(),
            width=0.86,
            name=task,
            marker=marker,
            text=drawn["micro_batch"] if is_labelled else None,
            textposition="inside",
            textangle=0,
            insidetextfont={"color": ink(marker["color"]), "size": 10},
            customdata=np.stack([drawn["micro_batch"], drawn["chunk"]], axis=1),
            hovertemplate=task + " of micro-batch %{customdata[0]}, chunk %{customdata[1]}<br>"
            "from %{base:.3f}, for %{x:.3f}<extra></extra>",
        )
    figure.update_layout(
        barmode="overlay",
        height=max(len(shown), 3) * _LANE_PX + 16 * len(versions),
        margin_l=min(60 + 7 * max(len(str(version)) for version in versions), 230),
        uniformtext={"mode": "hide", "minsize": 8},
    )
    names = [
        (f"<b>{label(version, 26)}</b>, " if at == 0 or version != shown[at - 1][0] else "")
        + f"stage {stage}"
        for at, (version, stage) in enumerate(shown)
    ]
    ticks = {"tickvals": list(height.values()), "ticktext": names}
    figure.update_yaxes(**ticks, range=[max(height.values()) + 0.6, -0.6], showgrid=False)
    figure.update_xaxes(title=f"time [{label(versions[0], 26)} step = 1]", rangemode="tozero")
    hidden = len(lanes) - len(shown)
    notes = [
        *(["numbers are micro-batches"] if is_labelled else []),
        *([f"{plural(hidden, 'stage')} not shown"] if hidden else []),
        *([f"{len(rows):,} of {passes:,} passes are drawn"] if passes > len(rows) else []),
    ]
    return frame.finish(figure, claim=claim, note=" · ".join(notes))


def _claim(rows: pd.DataFrame, versions: list[str]) -> str:
    words = []
    for version in versions[:2]:
        passes = rows[rows["version"] == version]
        if passes.empty:
            continue
        # The bubble: what all stages could have computed until the last pass, minus what they did.
        room = float(passes["end"].max()) * passes["stage"].nunique()
        idle = max(1 - float(passes["dur_cost"].sum()) / room, 0.0) if room else 0.0
        words.append(f"{label(version, 26)}: pipeline bubble {percent(idle)}")
    words[0] += " of the step"
    text = "; ".join(words)
    return text[:1].upper() + text[1:]


_LINES = (
    ("longer_share", "documents longer than this"),
    ("token_share", "tokens in documents up to this"),
    ("square_share", "attention (squared length) up to this"),
)


def length_shares(shares: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how many documents are longer than a length, and what the shorter ones hold.

    Three lines over a logarithmic axis of lengths. The title states what the longest
    1 % of the documents hold.

    Parameters
    ----------
    shares
        Table :data:`workbench.tables.LENGTH_SHARES`.
    """
    frame = Frame(source, synthetic)
    LENGTH_SHARES.check(shares)
    if shares.empty:
        why = "The table has no documents; load.document_lengths reads them from a file."
        return frame.nothing(why, claim="No document lengths to show")
    figure = Draft()
    length = shares["length_tokens"].to_numpy()
    for position, (name, words) in enumerate(_LINES):
        values = shares[name].to_numpy()
        # The highest and lowest point per bucket of a cumulative share are its ends.
        kept = extremes(values, 400)
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
    # What documents longer than a length hold, by the share of documents that are longer.
    longer = np.append(shares["longer_share"].to_numpy()[1:], 0.0)[::-1]
    tokens, squares = (
        float(np.interp(0.01, [*longer, 1.0], [*(1 - shares[name].to_numpy())[::-1], 1.0]))
        for name in ("token_share", "square_share")
    )
    claim = f"The longest 1 % of documents hold {percent(tokens)} of the tokens and "
    return frame.finish(figure, claim=f"{claim}{percent(squares)} of the attention")


_MOST_RECIPES = 24
# Above this share of attention that was never packed, a recipe is not a fair comparison.
_MOST_LEFT = 0.05


def training_speed(speed: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the speed of every recipe over the plain one.

    One bar per recipe: what it adds to the one it builds on, from the plain one on, which
    is 1. The title states the fastest.

    Parameters
    ----------
    speed
        Table :data:`workbench.tables.TRAINING_SPEED`.
    """
    frame = Frame(source, synthetic)
    TRAINING_SPEED.check(speed)
    if speed.empty:
        why = "The table has no recipes; analyze.training_speed compares them."
        return frame.nothing(why, claim="No recipes to compare")
    rows = speed.head(_MOST_RECIPES)
    speed_of = dict(zip(rows["recipe"], rows["speedup_ratio"], strict=True))
    base = np.array([speed_of.get(name, 1.0) for name in rows["builds_on"]])
    total, lanes = rows["speedup_ratio"].to_numpy(), np.arange(len(rows))
    figure = Draft()
    figure.add_bar(
        orientation="h",
        base=1,
        x=base - 1,
        y=lanes,
        name="what it builds on",
        marker={"color": COLOURS["all others"], "opacity": 0.5},
        hoverinfo="skip",
    )
    hover = [
        f"{label(row['packing'], 80)}<br>attention {label(row['context_sharding'], 30)}, stages "
        f"idle {percent(row['bubble_share'])}, tokens {row['delay_batches']:.2f} batches late"
        for row in rows.to_dict("records")
    ]
    for meaning, name, is_drawn in (
        ("less", "what it adds", total >= base),
        ("more", "what it costs", total < base),
    ):
        if is_drawn.any():
            figure.add_bar(
                orientation="h",
                base=base[is_drawn],
                x=(total - base)[is_drawn],
                y=lanes[is_drawn],
                name=name,
                marker=fill(meaning),
                hovertext=[hover[row] for row in lanes[is_drawn]],
                hovertemplate="%{hovertext}<extra></extra>",
            )
    figure.add_scatter(
        mode="text",
        x=np.maximum(total, base),
        y=lanes,
        text=[f"  {value:.2f}" for value in total],
        textposition="middle right",
        showlegend=False,
        hoverinfo="skip",
    )
    ticks = [label(name, 44) for name in rows["recipe"]]
    name_rows(figure, ticks, 32, bargap=0.35, barmode="overlay")
    figure.add_vline(x=1, line={"color": COLOURS["neutral"], "width": 1})
    low, high = min((total - 1).min(), 0.0), max((total - 1).max(), 0.02)
    figure.update_xaxes(
        title="tokens per time [plain = 1]", range=[1 + 1.25 * low - 0.005, 1 + 1.2 * high]
    )
    hidden = len(speed) - len(rows)
    doubts = dict.fromkeys(doubt for note in rows["note"] for doubt in note.split("; ") if doubt)
    left_out = [f"{plural(hidden, 'recipe')} not shown"] if hidden else []
    notes = ["communication is not counted", *left_out, *map(safe, [*doubts][:4])]
    return frame.finish(figure, claim=_training_speed_claim(rows), note=" · ".join(notes))


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
