"""Explore how a model can be spread over GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._panel import Explorer
from workbench.tables import as_source

_KINDS = ("A100", "H100", "H200", "B200", "GB200")


def parallelism_plan(
    model: analyze.IterationModel,
    *,
    shapes: Iterable[analyze.ModelShape | str] = ("GPT-3 175B", "Llama 3 405B", "Megatron 22B"),
    like: analyze.Layout | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose model, GPUs, recomputation and batch; see the fastest way that fits.

    Starts with the first model on 512 H100 and 1,024 sequences per iteration.

    Parameters
    ----------
    model
        Model of iteration times, from ``analyze.iteration_model`` or ``assumed_model``.
    shapes
        Models to choose from: shapes, or names of published ones.
    like
        Sequence, sharding and the rest of the layout; 2,048 tokens, ZeRO-1, sequence
        parallelism and flash attention if None.
    source
        Where the constants come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.parallelism_plan`.

    Raises
    ------
    PerformanceModelError
        If a name is no published model.
    """
    chosen = [analyze.model_shape(one) if isinstance(one, str) else one for one in shapes]
    named = {shape.name or f"model {place}": shape for place, shape in enumerate(chosen, 1)}
    start = like or analyze.Layout(sharding="zero1", sequence_parallel=True, flash_attention=True)

    @cache
    def planned(name: str, gpus: int, kind: str, recompute: Any, batch: int) -> pd.DataFrame:
        fields = {**vars(start), "data": 1, "micro_batch": 1, "pipeline": 1, "chunks": 1}
        layout = analyze.Layout(**{**fields, "recompute": recompute, "global_batch": batch})
        return analyze.parallelism_plan(named[name], gpus, model=model, like=layout, gpu=kind)

    def draw(*, shape: str, gpus: int, kind: str, recompute: str, batch: int) -> go.Figure:
        table = planned(shape, gpus, kind, recompute, batch)
        where = as_source(source).joined(shape)
        return plot.parallelism_plan(table, source=where, synthetic=synthetic)

    return Explorer(
        draw,
        shape=widgets.Dropdown(options=list(named), description="model"),
        gpus=widgets.SelectionSlider(
            options=[64, 128, 256, 512, 1024, 2048, 4096], value=512, continuous_update=False,
            description="GPUs",
        ),
        kind=widgets.Dropdown(options=list(_KINDS), value="H100", description="GPU type"),
        recompute=widgets.Dropdown(
            options=["none", "selective", "full"], description="recompute"
        ),
        batch=widgets.SelectionSlider(
            options=[256, 512, 1024, 2048, 4096], value=1024, continuous_update=False,
            description="batch [sequences]",
        ),
    )  # fmt: skip
