"""Figures of models of matrix products: how far off on shapes that they did not see."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import MAX_LINES, Frame, distinct
from workbench.plot._style.text import label, percent, plural, safe
from workbench.tables import KERNEL_MODEL_ERRORS

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "star", "hexagon")


_OVERALL = ("all", "training")


def gemm_errors(errors: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the error on products that were held out by their FLOPs, the roofline beside.

    Parameters
    ----------
    errors
        Table :data:`workbench.tables.KERNEL_MODEL_ERRORS`.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per GPU, type and model over the decades of FLOPs. The title states the error
        of the best model over all shapes, and that of the roofline.

    Examples
    --------
    >>> from itertools import product
    >>> from workbench import analyze
    >>> shapes = product([64, 1024], [512, 1024, 2048, 4096], [512, 1024, 2048, 4096])
    >>> times = pd.DataFrame(shapes, columns=["m_count", "n_count", "k_count"])
    >>> spread = np.random.default_rng(0).uniform(0.95, 1.05, len(times))
    >>> flops = 2.0 * times.prod(axis="columns")
    >>> times["dur_ns"] = ((5_000 + flops / 600_000) * spread).astype("int64")
    >>> times = times.assign(gpu="H100", dtype="bfloat16", source="made")
    >>> table = analyze.gemm_errors(times).query("model != 'hybrid'")
    >>> figure = gemm_errors(table, source="closed form", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    The analytic model is 2.9 % off on products that it never saw, the roofline 66 %
    """
    frame = Frame(source, synthetic)
    KERNEL_MODEL_ERRORS.check(errors)
    decades = errors[~errors["shapes"].isin(_OVERALL) & (errors["flop_count"] > 0)]
    if decades.empty:
        return frame.nothing(
            "The table has no errors by FLOPs; analyze.gemm_errors works them out.",
            claim="No errors of matrix products to show",
        )
    figure = Draft()
    lines = list(decades.groupby(["gpu", "dtype", "model"], sort=False, observed=True))
    for position, (key, rows) in enumerate(lines[:MAX_LINES]):
        _gemm_errors_add(figure, rows, " ".join(label(text, 16) for text in key), position)
    flops = decades["flop_count"].to_numpy(dtype=np.float64)
    ticks = log_ticks(flops)
    ticks["ticktext"] = [f"{name:.0e}" for name in ticks["tickvals"]]
    figure.update_xaxes(title="work of a product [FLOPs], logarithmic", type="log", **ticks)
    shown = 100 * np.maximum(decades["mean_ratio"].to_numpy(dtype=np.float64), 1e-6)
    figure.update_yaxes(
        title="mean error of what was held out [%], logarithmic", type="log", **log_ticks(shown)
    )
    figure.update_layout(hovermode="closest")
    held = sorted({label(name, 40) for name in decades["held_out"]})
    notes = [f"held out: {', '.join(held[:3])}"]
    if len(lines) > MAX_LINES:
        notes.append(f"{plural(len(lines) - MAX_LINES, 'line')} dropped")
    return frame.finish(figure, claim=_gemm_errors_claim(errors), note=" · ".join(notes))


def _gemm_errors_add(figure: go.Figure, rows: pd.DataFrame, name: str, position: int) -> None:
    rows = rows.sort_values("flop_count", kind="stable")
    rows = rows.iloc[extremes(rows["mean_ratio"].to_numpy(), 400)]
    look = distinct(position)
    figure.add_scatter(
        mode="lines+markers",
        x=rows["flop_count"].to_numpy(),
        y=100 * np.maximum(rows["mean_ratio"].to_numpy(), 1e-6),
        name=name,
        line={**look, "width": 2},
        marker={"symbol": _SYMBOLS[position % len(_SYMBOLS)], "size": 8, "color": look["color"]},
        hovertext=[
            f"{safe(str(row['shapes'])[:60])}: {plural(row['row_count'], 'product')}<br>mean "
            f"{percent(row['mean_ratio'])}, median {percent(row['median_ratio'])}, "
            f"at most {percent(row['max_ratio'])}"
            for row in rows.to_dict("records")
        ],
        hovertemplate="%{hovertext}",
    )


def _gemm_errors_claim(errors: pd.DataFrame) -> str:
    overall = errors[errors["shapes"] == "all"]
    if overall.empty:
        return f"Errors of {plural(errors['model'].nunique(), 'model')} of matrix products"
    by_model = overall.groupby("model", observed=True)["mean_ratio"].mean()
    best = str(by_model.index[int(by_model.to_numpy().argmin())])
    claim = f"The {label(best, 20)} model is {percent(float(by_model.min()))} off on products that "
    claim += "it never saw"
    if "roofline" in by_model and best != "roofline":
        claim += f", the roofline {percent(float(by_model['roofline']))}"
    return claim
