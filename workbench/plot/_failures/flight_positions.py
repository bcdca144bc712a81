"""What is pending on every rank of a hang, as a matrix."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.flight_words import CONFIDENCES, named, phrase
from workbench.plot._style.style import COLOURS, finish, left_margin, nothing
from workbench.plot._style.text import label, plural, wrapped
from workbench.tables import FLIGHT_POSITIONS

_MOST_RANKS, _MOST_PURPOSES, _FEW = 40, 24, 7


def flight_positions(
    positions: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what is pending on every rank in groups of every purpose, suspects marked.

    Parameters
    ----------
    positions
        Table :data:`workbench.tables.FLIGHT_POSITIONS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A matrix of ranks and purposes of groups, the number of pending operations in each
        cell. Ranks with a mark are suspects; a cell with a cross is a group in which the
        rank has called less than its peers. The title states the verdict.
    """
    FLIGHT_POSITIONS.check(positions)
    if positions.empty:
        return nothing(
            "The dumps name no process group and hold no operation.",
            claim="No operations to show",
            source=source,
            synthetic=synthetic,
        )
    table = positions.assign(purpose=positions["description"].fillna(positions["group"]))
    ranks, purposes, notes = _chosen(table)
    table = table[table["rank"].isin(ranks) & table["purpose"].isin(purposes)]
    counts, behind = (
        table.astype({name: "float64"})
        .pivot_table(
            index="rank",
            columns="purpose",
            values=name,
            aggfunc=lambda cells: cells.sum(min_count=1),
            dropna=False,
        )
        .reindex(index=ranks, columns=purposes)
        .to_numpy(dtype=np.float64)
        for name in ("pending_count", "behind_count")
    )
    suspects = positions.drop_duplicates("rank").set_index("rank")
    known = suspects.to_dict(orient="index")
    figure = go.Figure(_matrix(counts, behind, ranks, purposes))
    labels = [_rank_label(rank, known[rank]) for rank in ranks]
    are_few = len(purposes) <= _FEW
    figure.update_layout(
        height=max(20 * len(ranks), 120),
        margin={"l": left_margin(labels), "b": 130 if are_few else 190},
    )
    figure.update_xaxes(
        title="purpose of the process group; in the cells: operations pending [count]",
        tickvals=list(range(len(purposes))),
        ticktext=[_purpose(name, are_few=are_few) for name in purposes],
        tickangle=0 if are_few else -40,
        showgrid=False,
    )
    figure.update_yaxes(
        title=None,
        tickvals=list(range(len(ranks))),
        ticktext=labels,
        range=[len(ranks) - 0.5, -0.5],
        showgrid=False,
    )
    return finish(
        figure,
        claim=_positions_claim(positions, suspects),
        source=source,
        synthetic=synthetic,
        note=" · ".join(notes),
    )


def _positions_claim(positions: pd.DataFrame, suspects: pd.DataFrame) -> str:
    pending = int(positions["pending_count"].sum())
    held = int((positions.groupby("rank")["pending_count"].sum() > 0).sum())
    what = f"{plural(held, 'rank')} hold {plural(pending, 'pending operation')}"
    marked = suspects[suspects["confidence"] != "none"]
    if marked.empty:
        return f"{what}; no rank stands out" if pending else "No operation is pending"
    place = marked["confidence"].map({name: at for at, name in enumerate(CONFIDENCES)}).fillna(9)
    best = marked[place == place.min()]
    best = best[best["reason"] == best["reason"].iloc[0]]
    ranks = sorted(int(rank) for rank in best.index)
    return f"{named(ranks)} {phrase(str(best['reason'].iloc[0]), len(ranks))}; {what}"


def _chosen(table: pd.DataFrame) -> tuple[list[int], list[str], list[str]]:
    """Choose the ranks and purposes that fit, suspects and full ones first."""
    whole = table.groupby("rank").agg(
        pending=("pending_count", "sum"), confidence=("confidence", "first")
    )
    order = whole.assign(is_suspect=whole["confidence"] != "none")
    order = order.sort_values(["is_suspect", "pending"], ascending=False, kind="stable")
    ranks = sorted(int(rank) for rank in order.index[:_MOST_RANKS])
    used = table.groupby("purpose")[["pending_count", "behind_count"]].sum()
    busy = used[(used > 0).fillna(value=False).any(axis=1)]
    purposes = list((busy if len(busy) else used).sort_values(
        "pending_count", ascending=False, kind="stable").index[:_MOST_PURPOSES])  # fmt: skip
    notes = ["× has called less than its peers"]
    if len(whole) > len(ranks):
        notes.append(f"{len(ranks)} of {len(whole):,} ranks: suspects and those with most pending")
    if quiet := len(used) - len(purposes):
        notes.append(f"{plural(quiet, 'purpose')} with nothing pending, or little, left out")
    return ranks, purposes, notes


def _matrix(
    counts: np.ndarray, behind: np.ndarray, ranks: Sequence[int], purposes: Sequence[str]
) -> go.Heatmap:
    text = [
        ["" if np.isnan(count) else f"{count:.0f}{' ×' if late > 0 else ''}"
         for count, late in zip(row, behinds, strict=True)]
        for row, behinds in zip(counts, behind, strict=True)
    ]  # fmt: skip
    return go.Heatmap(
        z=counts,
        x=list(range(len(purposes))),
        y=list(range(len(ranks))),
        zmin=0,
        colorscale=[[0, "#FFFFFF"], [1, COLOURS["wait"]]],
        text=text,
        texttemplate="%{text}",
        xgap=1,
        ygap=1,
        colorbar={"title": "pending", "thickness": 12, "outlinewidth": 0, "ticks": ""},
        customdata=[[[rank, label(name, 60)] for name in purposes] for rank in ranks],
        hovertemplate="rank %{customdata[0]}, %{customdata[1]}: %{z:.0f} operations pending"
        "<extra></extra>",
    )


def _purpose(name: str, *, are_few: bool) -> str:
    """Write a purpose such as TENSOR_MODEL_PARALLEL_GROUP so that it fits under its column."""
    bare = name.removesuffix("_GROUP").replace("_", " ").lower()
    return wrapped(label(bare, 48), 16) if are_few else label(bare, 26)


def _rank_label(rank: int, known: Mapping[Hashable, Any]) -> str:
    if known["confidence"] != "none":
        return f"▶ {rank}, {label(known['reason'], 20)}"
    return f"rank {rank}" if known["has_dump"] else f"rank {rank}, no dump"
