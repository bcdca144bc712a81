"""Iterations of an inference engine: prefill and decode, and the gaps between them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import Frame, distinct
from workbench.plot._style.text import duration, is_doubtful, label, percent, plural, time_unit
from workbench.tables import INFERENCE_ITERATIONS

_MOST_POINTS = 2_000
_SYMBOLS = {
    "prefill": "diamond", "decode": "circle-open", "mixed": "square", "unknown": "x-thin-open",
}  # fmt: skip


def inference_iterations(
    iterations: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how long every iteration runs on the GPU, by phase.

    One mark per iteration, at its start, in every phase the extreme ones if there are many.
    The title says which phase takes most time, and how much of it are gaps between iterations.

    Parameters
    ----------
    iterations
        Table :data:`workbench.tables.INFERENCE_ITERATIONS`.
    """
    frame = Frame(source, synthetic)
    INFERENCE_ITERATIONS.check(iterations)
    if iterations.empty:
        unused = sum(iterations.attrs.get("left_out", {}).values())
        why = (
            f"{plural(unused, 'annotation')} of vLLM, SGLang, TensorRT-LLM or xDiT, none with GPU "
            "work, and no replay of a graph. Record CPU and CUDA activity, with NVTX or "
            "record_function scopes."
        )
        return frame.nothing(why, claim="No iterations to show")
    first = int(iterations["start_ns"].min())
    length_ns = int((iterations["start_ns"] + iterations["dur_ns"]).max()) - first
    per_x, x_unit = time_unit(length_ns)
    per_y, y_unit = time_unit(iterations["dur_ns"].max())
    figure = Draft()
    for position, (phase, symbol) in enumerate(_SYMBOLS.items()):
        rows = iterations[iterations["phase"] == phase]
        if rows.empty:
            continue
        rows = rows.iloc[extremes(rows["dur_ns"].to_numpy(np.float64), _MOST_POINTS)]
        hover = [
            f"rank {rank}, {label(name, 60)}<br>busy {duration(busy)}, gap after it "
            f"{duration(gap)}, {launch}"
            for rank, name, busy, gap, launch in zip(
                rows["rank"], rows["name"], rows["busy_ns"], rows["gap_ns"], rows["launch"],
                strict=True,
            )
        ]  # fmt: skip
        figure.add_scatter(
            mode="markers", name=phase, x=(rows["start_ns"].to_numpy() - first) / per_x,
            y=rows["dur_ns"].to_numpy() / per_y, hovertext=hover,
            marker={"symbol": symbol, "size": 8, "color": distinct(position)["color"],
                    "line": {"width": 1, "color": distinct(position)["color"]}},
            hovertemplate="%{y:.4~g} " + y_unit + "<br>%{hovertext}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=f"start of its first GPU work [{x_unit}]")
    figure.update_yaxes(title=f"first to last GPU work [{y_unit}]", rangemode="tozero")
    figure.update_layout(hovermode="closest")
    note = _engines(iterations)
    if len(iterations) > (shown := sum(len(trace.x) for trace in figure.data)):
        note += f" · {plural(len(iterations) - shown, 'iteration')} not shown"
    return frame.finish(
        figure, claim=_claim(iterations), note=note, is_doubtful=is_doubtful(iterations)
    )


def _engines(iterations: pd.DataFrame) -> str:
    engines = sorted(set(iterations["engine"].astype(str)))
    count = f"{plural(len(iterations), 'iteration')} of {label(', '.join(engines), 60)}"
    eager = float((iterations["launch"] == "eager").mean())
    return f"{count}; {percent(eager)} launched kernel by kernel, the others replay graphs"


def _claim(iterations: pd.DataFrame) -> str:
    period = iterations.groupby(iterations["phase"].astype(str))["period_ns"].sum()
    total = float(period.sum())
    if total == 0:
        return f"{plural(len(iterations), 'iteration')} without any time"
    gaps = percent(float(iterations["gap_ns"].sum()) / total)
    lost = f"{gaps} of the time is gaps between iterations"
    most = str(period.idxmax())
    if most == "unknown":
        return f"{lost}; prefill and decode cannot be distinguished"
    return f"{most.capitalize()} takes {percent(float(period.max()) / total)} of the time; {lost}"
