"""Context parallelism: what the slowest rank computes, and who gets which document."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.style import COLOURS, distinct, fill, finish, nothing
from workbench.plot._style.text import percent, plural
from workbench.tables import CONTEXT_CHUNKS, CONTEXT_SHARDING

_WAYS = ("per_sequence", "per_document", "adaptive", "hybrid")
_MOST_DOCUMENTS, _MOST_RANKS = 6, 64
_SHAPES = ("", "/", "x", "\\", ".", "-", "+")


def context_sharding(
    sharding: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Compare ways of sharding by the attention of the slowest rank.

    Parameters
    ----------
    sharding
        Table :data:`workbench.tables.CONTEXT_SHARDING`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar per way, all micro-batches together, over an even share on a perfect kernel.
        The title states the best, and how often adaptive cuts the documents.
    """
    CONTEXT_SHARDING.check(sharding)
    even = float(sharding["even_cost"].sum())
    if not even:
        return nothing(
            "The table has no micro-batch with tokens; analyze.context_sharding makes it.",
            claim="No sharding to compare",
            source=source,
            synthetic=synthetic,
        )
    costs = {way: float(sharding[f"{way}_cost"].sum()) / even for way in _WAYS}
    names = [way.replace("_", " ") for way in _WAYS]
    figure = go.Figure(
        go.Bar(
            x=names,
            y=list(costs.values()),
            marker=fill("attention", bars=4),
            text=[f"{value:.2f}" for value in costs.values()],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x}: %{y:.3f} of an even share<extra></extra>",
            name="attention of the slowest rank",
        )
    )
    figure.update_layout(bargap=0.45)
    figure.add_hline(y=1, line={"color": COLOURS["neutral"], "width": 1, "dash": "dash"})
    figure.update_xaxes(title="how the attention of a micro-batch is cut", showgrid=False)
    figure.update_yaxes(
        title="attention of the slowest rank [even = 1]",
        range=[0, 1.15 * max(*costs.values(), 1.0)],
    )
    best = min(_WAYS, key=lambda way: costs[way])
    share = float(sharding["is_per_document"].mean())
    claim = (
        f"{best.replace('_', ' ').capitalize()}: the slowest rank takes {costs[best]:.2f} of an "
        f"even share instead of {costs['per_sequence']:.2f}"
    )
    note = f"adaptive cuts the documents in {percent(share)} of the micro-batches"
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def context_chunks(chunks: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show which rank computes which document of one micro-batch, and for how long.

    Parameters
    ----------
    chunks
        Table :data:`workbench.tables.CONTEXT_CHUNKS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One row per rank, its runs one after the other; the documents with the most work have
        a look of their own. The title states the slowest rank over the mean.
    """
    CONTEXT_CHUNKS.check(chunks)
    load = chunks.groupby("rank")["pair_count"].sum()
    if load.empty or not load.sum():
        return nothing(
            "The table has no runs of tokens; analyze.context_chunks makes them.",
            claim="No chunks to show",
            source=source,
            synthetic=synthetic,
        )
    mean = float(load.sum()) / int(chunks["rank_count"].iloc[0])
    shown = (
        load.index if len(load) <= _MOST_RANKS else load.nlargest(_MOST_RANKS).index.sort_values()
    )
    place = {rank: at for at, rank in enumerate(shown)}
    rows = chunks[chunks["rank"].isin(shown)]
    total = rows.groupby("document")["pair_count"].sum().sort_values(ascending=False)
    named = total.index[:_MOST_DOCUMENTS]
    figure = go.Figure()
    for position, document in enumerate([*named, None]):
        mine = (
            rows[rows["document"] == document]
            if document is not None
            else rows[~rows["document"].isin(named)]
        )
        if mine.empty:
            continue
        part = mine.groupby("rank").agg(
            pair_count=("pair_count", "sum"), length_tokens=("length_tokens", "sum")
        )
        look = distinct(position)
        figure.add_bar(
            orientation="h",
            x=part["pair_count"] / mean,
            y=[place[rank] for rank in part.index],
            name=f"document {document}" if document is not None else _others(mine),
            marker={
                "color": look["color"] if document is not None else COLOURS["all others"],
                "line": {"width": 0.5, "color": "#FFFFFF"},
                "pattern": {
                    "shape": ("", "/", "x", "\\", ".", "-")[position]
                    if document is not None
                    else "+",
                    "fgcolor": "#FFFFFF",
                    "fgopacity": 0.5,
                    "size": 6,
                    "fillmode": "overlay",
                },
            },
            customdata=part["length_tokens"],
            hovertemplate="%{customdata:,} queries, %{x:.3f} of the mean<extra>%{fullData.name}"
            "</extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.2, height=max(24 * len(shown), 90))
    figure.add_vline(x=1, line={"color": "#000000", "width": 1, "dash": "dash"})
    figure.update_xaxes(title="attention of a rank [mean of the ranks = 1]", rangemode="tozero")
    figure.update_yaxes(
        title="context-parallel rank",
        tickvals=list(range(len(shown))),
        ticktext=[str(rank) for rank in shown],
        range=[len(shown) - 0.5, -0.5],
        showgrid=False,
    )
    worst = int(load.index[int(load.to_numpy().argmax())])
    claim = f"Rank {worst} computes {float(load.max()) / mean:.2f} times the mean of the ranks"
    hidden = len(load) - len(shown)
    note = f"{plural(hidden, 'rank')} with less work not shown" if hidden else ""
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def _others(rows: pd.DataFrame) -> str:
    count = int(np.unique(rows["document"]).size)
    return f"{plural(count, 'other document')}"
