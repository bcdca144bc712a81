"""Explore what packing and sharding would buy on a pipeline."""

from __future__ import annotations

from functools import partial
from typing import Any

import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import Parallelism
from workbench.explore._controls import slider
from workbench.explore._lengths import (
    Lengths,
    Stream,
    context_choice,
    crossover_choice,
    named,
    plan_of,
    set_choice,
    streams,
)
from workbench.explore._panel import Explorer


def training_speed(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose lengths, context, crossover and parallelism; compare recipes.

    Starts at 7B-128K of WLB-LLM, with the crossover that FLOPs give.

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
        Controls above :func:`workbench.plot.training_speed`.
    """
    sets = named(lengths)
    return Explorer(
        partial(_draw, stream=streams(sets, 48), label={"source": source, "synthetic": synthetic}),
        documents=set_choice(sets),
        context_k=context_choice(values=(64, 128)),
        crossover_k=crossover_choice(values=(28, 49, 98), value=49),
        chunks=slider("chunks per stage", [(str(each), each) for each in (1, 2, 4)], 2),
        ranks=slider("context ranks", [(str(each), each) for each in (2, 4, 8)], 2),
    )


def _draw(
    *,
    documents: str,
    context_k: int,
    crossover_k: int,
    chunks: int,
    ranks: int,
    stream: Stream,
    label: dict[str, Any],
) -> go.Figure:
    plan = plan_of(context_k=context_k, crossover_k=crossover_k, queues="1/4, 1/2", memory=1.25)
    shape = Parallelism(pipeline=4, context=ranks, chunks=chunks)
    lengths = stream(documents, context_k, plan.batch_sequences)
    return plot.training_speed(analyze.training_speed(lengths, plan, shape), **label)
