"""How wrong models of matrix products are, by the work of a product."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import log_ticks
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import MAX_LINES, distinct, finish, nothing
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
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per GPU, type and model over the decades of FLOPs. The title states the error
        of the best model over all shapes, and that of the roofline.
    """
    KERNEL_MODEL_ERRORS.check(errors)
    decades = errors[~errors["shapes"].isin(_OVERALL) & (errors["flop_count"] > 0)]
    if decades.empty:
        return nothing(
            "The table has no errors by FLOPs; analyze.gemm_errors works them out.",
            claim="No errors of matrix products to show",
            source=source,
            synthetic=synthetic,
        )
    figure = go.Figure()
    lines = list(decades.groupby(["gpu", "dtype", "model"], sort=False, observed=True))
    for position, (key, rows) in enumerate(lines[:MAX_LINES]):
        _add(figure, rows, " ".join(label(part, 16) for part in key), position)
    flops = decades["flop_count"].to_numpy(dtype=np.float64)
    ticks = log_ticks(flops)
    ticks["ticktext"] = [f"{each:.0e}" for each in ticks["tickvals"]]
    figure.update_xaxes(title="work of a product [FLOPs], logarithmic", type="log", **ticks)
    shown = 100 * np.maximum(decades["mean_ratio"].to_numpy(dtype=np.float64), 1e-6)
    figure.update_yaxes(
        title="mean error of what was held out [%], logarithmic", type="log", **log_ticks(shown)
    )
    figure.update_layout(hovermode="closest")
    held = sorted({label(each, 40) for each in decades["held_out"]})
    notes = [f"held out: {', '.join(held[:3])}"]
    if len(lines) > MAX_LINES:
        notes.append(f"{plural(len(lines) - MAX_LINES, 'line')} left out")
    return finish(
        figure, claim=_claim(errors), source=source, synthetic=synthetic, note=" · ".join(notes)
    )


def _add(figure: go.Figure, rows: pd.DataFrame, name: str, position: int) -> None:
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
            f"{safe(str(shapes)[:60])}: {plural(int(count), 'product')}<br>mean "
            f"{percent(float(mean))}, median {percent(float(median))}, "
            f"at most {percent(float(most))}"
            for shapes, count, mean, median, most in zip(
                *(
                    rows[column]
                    for column in ("shapes", "row_count", "mean_ratio", "median_ratio", "max_ratio")
                ),
                strict=True,
            )
        ],
        hovertemplate="%{hovertext}",
    )


def _claim(errors: pd.DataFrame) -> str:
    """State the best model over all shapes beside the roofline."""
    whole = errors[errors["shapes"] == "all"]
    if whole.empty:
        return f"Errors of {plural(errors['model'].nunique(), 'model')} of matrix products"
    by_model = whole.groupby("model", observed=True)["mean_ratio"].mean()
    best = str(by_model.index[int(by_model.to_numpy().argmin())])
    said = f"The {label(best, 20)} model is {percent(float(by_model.min()))} off on products that "
    said += "it never saw"
    if "roofline" in by_model and best != "roofline":
        said += f", the roofline {percent(float(by_model['roofline']))}"
    return said
