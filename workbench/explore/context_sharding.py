"""Explore how the attention of a micro-batch is shared among ranks."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import Packing
from workbench.explore._controls import slider
from workbench.explore._lengths import Lengths, named, plan_of, set_choice, streams
from workbench.explore._panel import Explorer


def context_sharding(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose ranks and what short kernels lose; compare ways of cutting the attention.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.context_sharding` and, for the micro-batch that
        is cut worst, :func:`workbench.plot.context_chunks`.
    """
    sets = named(lengths)
    stream = streams(sets, 60)

    @lru_cache(maxsize=8)
    def packed(documents: str) -> Packing:
        plan = plan_of(context_k=128, crossover_k=49, queues="no queue", memory=1.25)
        return analyze.packing(stream(documents, 128, plan.batch_sequences), plan)

    return Explorer(
        partial(_draw, packed=packed, label={"source": source, "synthetic": synthetic}),
        view=widgets.Dropdown(
            options=[
                ("all ways", "all"),
                ("worst micro-batch, per sequence", "per sequence"),
                ("the same, per document", "per document"),
                ("the same, hybrid", "hybrid"),
            ],
            description="view",
        ),
        documents=set_choice(sets),
        ranks=slider("context ranks", [(str(each), each) for each in (2, 4, 8, 16)], 4),
        launch=slider(
            "lost per kernel", [(f"{each} queries", each) for each in (0, 512, 1024)], 512
        ),
    )


def _draw(
    *, view: str, documents: str, ranks: int, launch: int, packed: object, label: dict[str, Any]
) -> go.Figure:
    packing: Packing = packed(documents)  # type: ignore[operator]
    sharding = analyze.context_sharding(packing, ranks=ranks, launch_tokens=launch)
    if view == "all":
        return plot.context_sharding(sharding, **label)
    worst = sharding.iloc[int(sharding["per_sequence_ratio"].to_numpy().argmax())]
    pieces = packing.documents
    mine = (pieces["batch"] == worst["batch"]) & (pieces["micro_batch"] == worst["micro_batch"])
    chunks = analyze.context_chunks(
        pieces.loc[mine, ["length_tokens"]].reset_index(drop=True),
        ranks=ranks,
        strategy=view,  # type: ignore[arg-type]
        launch_tokens=launch,
    )
    return plot.context_chunks(chunks, **label)
