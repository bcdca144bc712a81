"""What recipes of packing and sharding buy over the plain one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.style import COLOURS, fill, finish, left_margin, nothing
from workbench.plot._style.text import label, percent, plural, safe
from workbench.tables import TRAINING_SPEED

_MOST_RECIPES = 24
# Above this share of attention that was never packed, a recipe is no fair comparison.
_MOST_LEFT = 0.05


def training_speed(speed: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the speed of every recipe over the plain one.

    Parameters
    ----------
    speed
        Table :data:`workbench.tables.TRAINING_SPEED`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar per recipe: what it adds to the one it builds on, from the plain one on, which
        is 1. The title states the fastest.
    """
    TRAINING_SPEED.check(speed)
    if speed.empty:
        return nothing(
            "The table has no recipes; analyze.training_speed compares them.",
            claim="No recipes to compare",
            source=source,
            synthetic=synthetic,
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
    claim = _claim(rows)
    hidden = len(speed) - len(rows)
    parts = dict.fromkeys(part for note in rows["note"] for part in note.split("; ") if part)
    doubts = [safe(part) for part in parts][:4]
    left_out = [f"{plural(hidden, 'recipe')} not shown"] if hidden else []
    note = " · ".join(["communication is not counted", *left_out, *doubts])
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def _claim(rows: pd.DataFrame) -> str:
    fair = (rows["is_stable"] & (rows["left_square_share"] <= _MOST_LEFT)).to_numpy()
    gains = np.where(fair, rows["speedup_ratio"].to_numpy() - 1, -np.inf)
    if gains.max() <= 0:
        return "No recipe that packs all documents is faster than the plain one"
    best = rows.iloc[int(np.argmax(gains))]
    return (
        f"{label(best['recipe'], 44).capitalize()} trains {percent(float(gains.max()))} faster "
        f"than {label(rows['recipe'].iloc[0], 30)} packing"
    )
