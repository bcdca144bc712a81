"""Ways to spread a model over GPUs: the best iteration time for each TP and PP."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.said import is_doubtful
from workbench.plot._style.style import finish, nothing
from workbench.plot._style.text import digits, duration, label
from workbench.tables import PLAN

_MOST_CELLS = 12  # of a row or column; more cannot be read
_GB = 1e9
_CELL_PX = 62


def parallelism_plan(plan: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the fastest way to spread a model for each tensor and pipeline size.

    Parameters
    ----------
    plan
        Table :data:`workbench.tables.PLAN`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A cell per TP and PP with time, interval and memory; cells without a way that fits
        are empty of colour and say what they would need. The title names the fastest.
    """
    PLAN.check(plan)
    if plan.empty:
        return nothing(
            "No TP, PP and DP multiply to these GPUs and divide the model and its batch.",
            claim="No way to spread the model",
            source=source,
            synthetic=synthetic,
        )
    # Of ways that do not fit, the leanest says how far off they all are.
    key = plan["dur_ns"].where(plan["fits"], plan["memory_bytes"])
    ordered = plan.assign(_not=~plan["fits"], _key=key).sort_values(["_not", "_key"], kind="stable")
    best = ordered.drop_duplicates(["tensor_parallel", "pipeline_parallel"])
    tensors = sorted(best["tensor_parallel"].unique())[:_MOST_CELLS]
    pipelines = sorted(best["pipeline_parallel"].unique())[:_MOST_CELLS]
    shape = (len(pipelines), len(tensors))
    seconds, texts = np.full(shape, np.nan), np.full(shape, "", dtype=object)
    for row in best.to_dict("records"):
        if row["tensor_parallel"] in tensors and row["pipeline_parallel"] in pipelines:
            place = (
                pipelines.index(row["pipeline_parallel"]),
                tensors.index(row["tensor_parallel"]),
            )
            texts[place] = _cell(row)
            seconds[place] = row["dur_ns"] / 1e9 if row["fits"] else np.nan
    names = [[f"TP{tensor}, PP{stages}" for tensor in tensors] for stages in pipelines]
    figure = go.Figure()
    figure.add_heatmap(
        x=list(range(len(tensors))),
        y=list(range(len(pipelines))),
        z=seconds,
        customdata=names,
        text=texts,
        texttemplate="%{text}",
        textfont={"size": 11},
        colorscale="Cividis",
        reversescale=True,
        xgap=3,
        ygap=3,
        hoverongaps=False,
        colorbar={"title": {"text": "s per<br>iteration"}, "thickness": 12},
        hovertemplate="%{customdata}<br>%{text}<extra></extra>",
    )
    for axis, title, values in (
        (figure.layout.xaxis, "tensor-parallel ranks TP [GPUs]", tensors),
        (figure.layout.yaxis, "pipeline stages PP [GPUs]", pipelines),
    ):
        axis.update(
            title=title,
            tickvals=list(range(len(values))),
            ticktext=[str(each) for each in values],
            range=[-0.5, len(values) - 0.5],
            showgrid=False,
        )
    figure.update_layout(height=max(_CELL_PX * len(pipelines), 180))
    return finish(
        figure, claim=_claim(ordered), source=source, synthetic=synthetic, note=_note(plan, best),
        is_doubtful=is_doubtful(ordered[ordered["fits"]].head(1)),
    )  # fmt: skip


def _cell(row: dict[Hashable, Any]) -> str:
    memory = f"{digits(float(str(row['memory_bytes'])) / _GB)} GB"
    lines = [f"<b>{duration(float(str(row['dur_ns'])))}</b>" if row["fits"] else "does not fit"]
    if row["fits"] and not pd.isna(row["low_ns"]) and not pd.isna(row["high_ns"]):
        lines.append(f"{duration(row['low_ns'])} to {duration(row['high_ns'])}")
    lines.append(f"DP{row['data_parallel']}, {memory}" if row["fits"] else memory)
    return "<br>".join(lines)


def _claim(ordered: pd.DataFrame) -> str:
    best = ordered.iloc[0]
    gpus = f"{int(best['gpu_count']):,} {label(best['gpu'], 20)}"
    if not best["fits"]:
        least = digits(float(ordered["memory_bytes"].min()) / _GB)
        return f"No way to spread the model over {gpus} fits; the leanest needs {least} GB per GPU"
    words = f"TP{best['tensor_parallel']} PP{best['pipeline_parallel']} DP{best['data_parallel']}"
    words += f" with micro-batches of {best['micro_batch_count']}"
    return f"{words} is the fastest on {gpus}: {duration(best['dur_ns'])} per iteration"


def _note(plan: pd.DataFrame, best: pd.DataFrame) -> str:
    first = plan.iloc[0]
    notes = [
        f"batch {int(first['global_batch_count']):,} x {int(first['sequence_tokens']):,} tokens",
        f"recompute {label(first['recompute'], 20)}",
        f"the best of {len(plan):,} ways per cell, {int((~plan['fits']).sum()):,} do not fit",
    ]
    if best["low_ns"].isna().all():
        notes.append("no interval: constants were not fitted to many measurements")
        notes.append(str(first["error_class"]))
    elif best["doubt"].str.contains("never measured").any():
        notes.append("ways beyond what was measured have intervals without a promise")
    return " · ".join(notes)
