"""Energy of each metered thing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import MAX_POINTS
from workbench.plot._style.style import Frame, colour, fill, left_margin, row_axis
from workbench.plot._style.text import digits, energy_unit, joules, label, percent, plural, seconds
from workbench.tables import ENERGY

_MOST_BARS = 24
_BAR_PX = 24
# Readings seldom begin and end with the window; what lacks so little counts as known.
_KNOWN = 0.99


def energy(energy: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the energy of each entity, the largest first, and how much of it is known.

    A bar per entity, or a ranked curve of more than 24. The title compares the largest
    with the median.

    Parameters
    ----------
    energy
        Table :data:`workbench.tables.ENERGY`.
    """
    frame = Frame(source, synthetic)
    ENERGY.check(energy)
    valid = energy[energy["energy_j"].notna()]
    if valid.empty:
        why = "No entity has readings near enough to know its energy."
        return frame.nothing(
            why if len(energy) else "The table has no entities; analyze.energy makes them.",
            claim="No energy to show",
        )
    ranked = valid.sort_values("energy_j", ascending=False, ignore_index=True, kind="stable")
    figure = _bars(ranked) if len(ranked) <= _MOST_BARS else _curve(ranked)
    notes = _notes(energy)
    return frame.finish(figure, claim=_claim(ranked), note=" · ".join(notes))


def _bars(ranked: pd.DataFrame) -> go.Figure:
    # Entities whose time is known in part are hatched.
    scale, unit = energy_unit(float(ranked["energy_j"].max()))
    ticks = [label(name, 36) for name in ranked["entity"]]
    figure = Draft()
    for is_whole in (True, False):
        rows = np.flatnonzero((ranked["covered_share"] >= _KNOWN).to_numpy() == is_whole)
        if not len(rows):
            continue
        own = ranked.iloc[rows]
        figure.add_bar(
            orientation="h", x=own["energy_j"] / scale, y=rows,
            name=f"{percent(_KNOWN)} of the time known, or more" if is_whole else "less known",
            marker=fill("neutral" if is_whole else "unknown", bars=len(ranked)),
            text=[
                f" {digits(known)}"
                + (f", {digits(known + more)} with gaps bridged" if more > 0 else "")
                + ("" if is_whole else f", {percent(share)} known")
                for known, more, share in zip(
                    own["energy_j"] / scale,
                    own["bridged_j"].fillna(0).where(own["covered_share"] < _KNOWN, 0) / scale,
                    own["covered_share"], strict=True,
                )
            ],
            textposition="outside", cliponaxis=False,
            hovertext=[label(name, 80) for name in own["entity"]],
            hovertemplate="%{hovertext}: %{x:,.4~g} " + unit + "<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        height=max(len(ranked), 3) * _BAR_PX, margin_l=20 + left_margin(ticks),
        hovermode="closest", bargap=0.25, barmode="overlay",
    )  # fmt: skip
    largest = float(ranked["energy_j"].max()) / scale
    figure.update_xaxes(title=f"energy [{unit}]", range=[0, 1.25 * largest or 1.0])
    figure.update_yaxes(**row_axis(ticks), showgrid=False)
    return figure


def _curve(ranked: pd.DataFrame) -> go.Figure:
    scale, unit = energy_unit(float(ranked["energy_j"].max()))
    keep = np.unique(np.linspace(0, len(ranked) - 1, min(len(ranked), MAX_POINTS)).astype(int))
    shown = ranked.iloc[keep]
    figure = Draft()
    figure.add_scatter(
        x=keep + 1, y=shown["energy_j"] / scale, mode="lines+markers", name="energy",
        line={"color": colour("neutral"), "width": 1}, marker={"size": 6},
        hovertext=[
            f"{label(name, 60)}, {percent(share)} of the time known"
            for name, share in zip(shown["entity"], shown["covered_share"], strict=True)
        ],
        hovertemplate="%{hovertext}: %{y:,.4~g} " + unit + "<extra></extra>",
    )  # fmt: skip
    for at, anchor in ((0, "left"), (len(ranked) - 1, "right")):
        row = ranked.iloc[at]
        figure.add_annotation(
            x=at + 1, y=row["energy_j"] / scale, xanchor=anchor, showarrow=False,
            text=f"{label(row['entity'], 30)}: {joules(row['energy_j'])}",
            yshift=12 if at == 0 else -12,
        )  # fmt: skip
    low, high = (float(ranked["energy_j"].iloc[at]) / scale for at in (-1, 0))
    room = 0.15 * (high - low) or 0.1 * high or 1.0
    figure.update_xaxes(title="rank of the entity, the largest energy first", tickformat=",")
    figure.update_yaxes(title=f"energy [{unit}]", range=[low - room, high + room])
    return figure


def _notes(energy: pd.DataFrame) -> list[str]:
    window_ns = (energy["end_ns"] - energy["start_ns"]).max()
    notes = [f"{seconds(window_ns / 1e9)} by {label(energy['method'].iloc[0], 20)}"]
    if (share := float(energy["covered_share"].mean())) < 1:
        notes.append(f"readings cover {percent(share)} of the time, the rest is not in it")
    if lost := int(energy["energy_j"].isna().sum()):
        notes.append(f"<b>{lost:,} without any energy known</b>")
    if resets := int(energy["reset_count"].sum()):
        notes.append(f"{plural(resets, 'reset')} of counters")
    return notes


def _recorded(total_j: float, bridged_j: float) -> str:
    """Write an energy, and what it is with its gaps bridged where that is more."""
    if not bridged_j > (1 - _KNOWN) * total_j:
        return joules(total_j)
    return f"{joules(total_j)} as recorded, {joules(total_j + bridged_j)} with gaps bridged"


def _claim(ranked: pd.DataFrame) -> str:
    first = ranked.iloc[0]
    total = _recorded(float(ranked["energy_j"].sum()), float(ranked["bridged_j"].sum()))
    if len(ranked) == 1:
        return f"{label(first['entity'], 40)} took {total}"
    middle = float(ranked["energy_j"].median())
    more = (
        f", {100 * (first['energy_j'] / middle - 1):.1f} % above the median" if middle > 0 else ""
    )
    return (
        f"{len(ranked):,} meters took {total}; most of all, "
        f"{label(first['entity'], 30)} with {joules(first['energy_j'])}{more}"
    )
