"""Figures of configurations: parallelism plans, and published training runs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame, left_margin
from workbench.plot._style.text import (
    digits,
    duration,
    is_doubtful,
    label,
    percent,
    plural,
)
from workbench.tables import PLAN, TRAINING_RUNS

_MOST_RUNS = 30  # bars; more cannot be read
_MOST_CELLS = 12  # of a row or column; more cannot be read
_GB = 1e9
_CELL_PX = 62


def parallelism_plan(
    plan: pd.DataFrame, *, tokens: float | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the fastest way to spread a model for each tensor and pipeline size.

    A cell per TP and PP with time, interval and memory; cells without a way that fits
    are empty of colour and say what they would need. The title names the fastest.

    Parameters
    ----------
    plan
        Table :data:`workbench.tables.PLAN`.
    tokens
        Tokens to train on: the title then says how many days that takes without a break.
    """
    frame = Frame(source, synthetic)
    PLAN.check(plan)
    if plan.empty:
        return frame.nothing(
            "No TP, PP and DP multiply to these GPUs and divide the model and its batch.",
            claim="No way to spread the model",
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
        tensor, stages = row["tensor_parallel"], row["pipeline_parallel"]
        if tensor in tensors and stages in pipelines:
            cell = (pipelines.index(stages), tensors.index(tensor))
            texts[cell] = _cell(row)
            # A cell that does not fit stays without a colour: NaN draws a gap.
            seconds[cell] = row["dur_ns"] / 1e9 if row["fits"] else np.nan
    names = [[f"TP{tensor}, PP{stages}" for tensor in tensors] for stages in pipelines]
    figure = Draft()
    figure.add_heatmap(
        x=list(range(len(tensors))), y=list(range(len(pipelines))), z=seconds, customdata=names,
        text=np.where(np.isnan(seconds), "", texts), texttemplate="%{text}", textfont={"size": 11},
        colorscale="Cividis",
        reversescale=True, xgap=3, ygap=3, hoverongaps=False,
        colorbar={"title": {"text": "s per<br>iteration"}, "thickness": 12},
        hovertemplate="%{customdata}<br>%{text}<extra></extra>",
    )  # fmt: skip
    # Words on the bare page follow the theme; those in a cell keep the contrast with its colour.
    bare = np.argwhere(np.isnan(seconds) & (texts != ""))
    figure.add_scatter(
        x=bare[:, 1], y=bare[:, 0], text=texts[tuple(bare.T)], mode="text",
        textfont={"size": 11, "color": COLOURS["neutral"]}, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    for update, title, values in (
        (figure.update_xaxes, "tensor-parallel ranks TP [GPUs]", tensors),
        (figure.update_yaxes, "pipeline stages PP [GPUs]", pipelines),
    ):
        ticks = {"tickvals": list(range(len(values))), "ticktext": [str(value) for value in values]}
        update(title=title, **ticks, range=[-0.5, len(values) - 0.5], showgrid=False)
    figure.update_layout(height=max(_CELL_PX * len(pipelines), 180))
    claim, note = _parallelism_plan_claim(ordered, tokens), _parallelism_plan_note(plan, best)
    doubtful = is_doubtful(ordered[ordered["fits"]].head(1))
    return frame.finish(figure, claim=claim, note=note, is_doubtful=doubtful)


def _cell(row: dict[Hashable, Any]) -> str:
    memory = f"{digits(float(str(row['memory_bytes'])) / _GB)} GB"
    lines = [f"<b>{duration(float(str(row['dur_ns'])))}</b>" if row["fits"] else "does not fit"]
    if row["fits"] and not pd.isna(row["low_ns"]) and not pd.isna(row["high_ns"]):
        lines.append(f"{duration(row['low_ns'])} to {duration(row['high_ns'])}")
    lines.append(f"DP{row['data_parallel']}, {memory}" if row["fits"] else memory)
    return "<br>".join(lines)


def _parallelism_plan_claim(ordered: pd.DataFrame, tokens: float | None) -> str:
    best = ordered.iloc[0]
    gpus = f"{int(best['gpu_count']):,} {label(best['gpu'], 20)}"
    if not best["fits"]:
        least = digits(float(ordered["memory_bytes"].min()) / _GB)
        return f"No way to spread the model over {gpus} fits; the leanest needs {least} GB per GPU"
    words = f"TP{best['tensor_parallel']} PP{best['pipeline_parallel']} DP{best['data_parallel']}"
    words += f" EP{best['expert_parallel']}" if best["expert_count"] > 1 else ""
    words += f" with micro-batches of {best['micro_batch_count']}"
    claim = f"{words} is the fastest on {gpus}: {duration(best['dur_ns'])} per iteration"
    if tokens is None:
        return claim
    rate = best["global_batch_count"] * best["sequence_tokens"] / (best["dur_ns"] / 1e9)
    days = digits(tokens / rate / 86_400)
    return f"{claim}, {days} days for {digits(tokens / 1e12)} trillion tokens without a break"


def _parallelism_plan_note(plan: pd.DataFrame, best: pd.DataFrame) -> str:
    first = plan.iloc[0]
    notes = [
        f"batch {int(first['global_batch_count']):,} x {int(first['sequence_tokens']):,} tokens",
        f"recompute {label(first['recompute'], 20)}",
        f"the fastest reaches {percent(best['mfu_share'].max())} MFU",
        f"the best of {len(plan):,} ways per cell, {int((~plan['fits']).sum()):,} do not fit",
    ]
    if best["low_ns"].isna().all():
        notes.append("no interval: constants were not fitted to many measurements")
        notes.append(str(first["error_class"]))
    elif best["doubt"].str.contains("never measured").any():
        notes.append("ways beyond what was measured have intervals without a promise")
    return " · ".join(notes)


def training_runs(runs: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show which share of the peak published training runs come to.

    A bar per run with its GPU-hours, 30 at most; the title states lowest and highest share.

    Parameters
    ----------
    runs
        Table :data:`workbench.tables.TRAINING_RUNS`.
    """
    frame = Frame(source, synthetic)
    TRAINING_RUNS.check(runs)
    if runs.empty:
        return frame.nothing("There is no training run.", claim="No training run to show")
    rows = runs.head(_MOST_RUNS).iloc[::-1]
    pairs = zip(rows["model"], rows["gpu"], strict=True)
    names = [f"{label(model, 30)}, {label(gpu, 12)}" for model, gpu in pairs]
    columns = ("peak_share", "tflops_per_gpu", "gpu_time_h", "token_count")
    words = [
        f"{percent(share)}: {digits(speed)} TFLOP/s, {digits(hours / 1e6)} M GPU-hours "
        f"for {digits(tokens / 1e12)} T tokens"
        for share, speed, hours, tokens in zip(*(rows[name] for name in columns), strict=True)
    ]
    figure = Draft()
    figure.add_bar(
        x=100 * rows["peak_share"], y=names, orientation="h", text=words, textposition="auto",
        customdata=[label(remark, 200) for remark in rows["remark"]],
        hovertemplate="%{y}<br>%{text}<br>%{customdata}<extra></extra>",
        marker={"color": COLOURS["series"]}, cliponaxis=False,
    )  # fmt: skip
    figure.update_xaxes(title="share of the dense 16-bit peak, restarts and waiting included [%]")
    figure.update_yaxes(title="")
    figure.update_layout(height=60 + 34 * len(rows), margin={"l": left_margin(names)})
    low, high = (percent(runs["peak_share"].agg(end)) for end in ("min", "max"))
    claim = f"{plural(len(runs), 'published run')} came to {low} to {high} of the GPUs' peak"
    note = "6 x active parameters x tokens over GPU-hours: a lower bound of MFU"
    if len(runs) > len(rows):
        note += f" · the first {len(rows)} of {len(runs):,} are drawn"
    return frame.finish(figure, claim=claim, note=note)
