"""The packing lab: which documents share a micro-batch, and how even that is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import slider
from workbench.explore._lengths import (
    QUEUES,
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


def packing_balance(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose lengths, context, queues and memory; compare ways of packing them.

    Starts at the case of WLB-LLM's Table 2: 7B at 128K, two queues.

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
        Controls above :func:`workbench.plot.packing_balance`,
        :func:`workbench.plot.micro_batches` and :func:`workbench.plot.packing_queues`.
    """
    sets = named(lengths)
    return Explorer(
        partial(_draw, stream=streams(sets, 150), label={"source": source, "synthetic": synthetic}),
        view=widgets.Dropdown(
            options=[
                ("ways of packing", "balance"),
                ("micro-batches, plain", "plain"),
                ("micro-batches, greedy", "greedy"),
                ("micro-batches, delay queues", "delay queues"),
                ("queues", "queues"),
            ],
            description="view",
        ),
        documents=set_choice(sets),
        context_k=context_choice(),
        crossover_k=crossover_choice(values=(8, 16, 28, 49, 64, 96, 128), value=28),
        window=slider("window", [(str(each), each) for each in (1, 2, 4, 8)], 4),
        queues=widgets.Dropdown(
            options=list(QUEUES), value="1/4, 1/2", description="queues from (of context)"
        ),
        memory=slider("memory", [(f"{each:g}x", each) for each in (1.1, 1.25, 1.5, 2.0)], 1.25),
    )


def _draw(
    *,
    view: Any,
    documents: str,
    context_k: int,
    crossover_k: int,
    window: int,
    queues: str,
    memory: float,
    stream: Stream,
    label: dict[str, Any],
) -> go.Figure:
    plan = plan_of(context_k=context_k, crossover_k=crossover_k, queues=queues, memory=memory)
    lengths = stream(documents, context_k, plan.batch_sequences)
    plan = replace(plan, window_batches=window)
    delayed = replace(plan, strategy="delay queues")
    if view == "queues":
        return plot.packing_queues(analyze.packing(lengths, delayed).queues, **label)
    if view != "balance":
        one = analyze.packing(lengths, replace(plan, strategy=view))
        return plot.micro_batches(analyze.micro_batches(one), **label)
    plans = (
        replace(plan, strategy="plain"),
        replace(plan, strategy="best fit"),
        replace(plan, strategy="greedy", window_batches=1),
        *((replace(plan, strategy="greedy"),) if window > 1 else ()),
        *((replace(delayed, queues_from_tokens=()),) if plan.queues_from_tokens else ()),
        delayed,
    )
    packed = [analyze.packing(lengths, each) for each in plans]
    return plot.packing_balance(analyze.packing_balance(packed), **label)
