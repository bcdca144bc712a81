"""Explore a training step on a pipeline, before and after another packing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import PackingPlan, Parallelism
from workbench.explore._controls import slider
from workbench.explore._lengths import (
    Lengths,
    Stream,
    context_choice,
    named,
    plan_of,
    set_choice,
    streams,
)
from workbench.explore._panel import Explorer


def pipeline(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose stages and chunks; see a typical step with plain packing and with delay queues.

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
        Controls above :func:`workbench.plot.pipeline`: for each packing the step whose idle
        share is the median of all steps.
    """
    sets = named(lengths)
    return Explorer(
        partial(_draw, stream=streams(sets, 60), label={"source": source, "synthetic": synthetic}),
        documents=set_choice(sets),
        context_k=context_choice(values=(64, 128)),
        stages=slider("stages", [(str(each), each) for each in (2, 4, 8)], 4),
        chunks=slider("chunks per stage", [(str(each), each) for each in (1, 2, 4)], 1),
    )


def _draw(
    *,
    documents: str,
    context_k: int,
    stages: int,
    chunks: int,
    stream: Stream,
    label: dict[str, Any],
) -> go.Figure:
    plan = plan_of(
        context_k=context_k, crossover_k=49, queues="1/4, 1/2", memory=1.25, sequences=stages
    )
    shape = Parallelism(pipeline=stages, chunks=chunks)
    lengths = stream(documents, context_k, stages)
    both = [
        _typical(lengths, plan, shape, "plain"),
        _typical(lengths, plan, shape, "delay queues"),
    ]
    tasks = pd.concat(both, ignore_index=True)
    return plot.pipeline(tasks.astype({"version": "category"}), **label)


def _typical(
    lengths: pd.DataFrame, plan: PackingPlan, shape: Parallelism, strategy: str
) -> pd.DataFrame:
    packed = analyze.packing(lengths, replace(plan, strategy=strategy))  # type: ignore[arg-type]
    costs = analyze.micro_batch_costs(analyze.context_sharding(packed, ranks=shape.context))
    steps = analyze.training_steps(costs, shape).sort_values("bubble_share")
    batch = int(steps["batch"].iloc[len(steps) // 2])
    return analyze.pipeline(costs, shape, batch=batch, version=strategy)
