"""Figures of kernel models: collectives and GEMMs, measured and predicted."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import MAX_LINES, Frame, distinct
from workbench.plot._style.text import digits, duration, label, percent, plural, safe, size
from workbench.tables import COLLECTIVE_MODEL, KERNEL_MODEL_ERRORS

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "star", "hexagon")
_KEY = ["gpu", "collective", "rank_count", "node_count"]
# As many kinds as there are symbols.
_MOST_KINDS, _MOST_POINTS = 6, 700
Show = Literal["time", "bandwidth"]


def collective_times(
    times: pd.DataFrame, *, show: Show = "time", source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show measured collectives as dots and the lowest of three lines through them.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.COLLECTIVE_MODEL`.
    show
        ``"time"``, or ``"bandwidth"`` on the bus.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        Both axes logarithmic; one colour per GPU, collective and number of ranks. The title
        states the latency of the shortest message, or the best bandwidth, and the error.

    Examples
    --------
    >>> from workbench import analyze
    >>> sizes = 2 ** np.arange(10, 30)
    >>> times = pd.DataFrame({"size_bytes": sizes, "rank_count": 8, "node_count": 1})
    >>> times["dur_ns"] = (15_000 + 20 * sizes**0.5 + sizes / 240).astype("int64")
    >>> times = times.assign(gpu="H100", collective="all-reduce", dtype="half", source="made")
    >>> table = analyze.collective_times(times)
    >>> figure = collective_times(table, source="closed form", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    Collectives take 15.6 µs for 1.02 kB, 2.72 ms for 537 MB; sizes dropped are predicted 9.4 % off
    """
    frame = Frame(source, synthetic)
    COLLECTIVE_MODEL.check(times)
    if times.empty:
        return frame.nothing(
            "The table has no collectives; load.collective_times reads some.",
            claim="No times of collectives to show",
        )
    drawn = times.assign(_measured=_values(times, "dur_ns", show))
    drawn["_modelled"] = _values(times, "modelled_ns", show)
    figure = Draft()
    kinds = list(drawn.groupby(_KEY, sort=False, observed=True))
    for position, (key, rows) in enumerate(kinds[:_MOST_KINDS]):
        _add(figure, rows.sort_values("size_bytes", kind="stable"), key, position)
    ticks = log_ticks(drawn["size_bytes"].to_numpy(dtype=np.float64))
    ticks["ticktext"] = [size(tick) for tick in ticks["tickvals"]]
    figure.update_xaxes(title="size [bytes], logarithmic", type="log", **ticks)
    axis = "time [µs], logarithmic" if show == "time" else "bus bandwidth [GB/s], logarithmic"
    values = np.concatenate([drawn["_measured"], drawn["_modelled"]])
    figure.update_yaxes(title=axis, type="log", **log_ticks(values[values > 0]))
    figure.update_layout(hovermode="closest")
    notes = ["dots: measured; lines: lowest of three straight lines, latency + size / bandwidth"]
    if len(kinds) > _MOST_KINDS:
        notes.append(f"{plural(len(kinds) - _MOST_KINDS, 'kind')} dropped; choose some")
    return frame.finish(figure, claim=_claim(times, show), note=" · ".join(notes))


def _values(times: pd.DataFrame, column: str, show: Show) -> np.ndarray:
    # Logarithmic axes know no zero.
    ns = np.maximum(times[column].to_numpy(dtype=np.float64), 1e-3)
    if show == "time":
        return np.asarray(ns / 1e3)
    measured = np.maximum(times["dur_ns"].to_numpy(dtype=np.float64), 1e-3)
    bus = times["bus_gb_per_s"].to_numpy(dtype=np.float64)
    # Bandwidth goes with 1 / time, so that the model's follows from the measured one.
    return np.asarray(np.maximum(bus * measured / ns, 1e-9))


def _add(figure: go.Figure, rows: pd.DataFrame, key: tuple[object, ...], position: int) -> None:
    gpu, collective, ranks, nodes = key
    name = f"{label(gpu, 12)} {label(collective, 20)}, {ranks} ranks"
    name += f" on {nodes} nodes" if int(str(nodes)) > 1 else ""
    look = distinct(position)
    rows = rows.iloc[extremes(rows["_measured"].to_numpy(), _MOST_POINTS)]
    figure.add_scatter(
        mode="lines",
        x=rows["size_bytes"].to_numpy(),
        y=rows["_modelled"].to_numpy(),
        line={**look, "width": 1.5},
        name=f"{name}: lines",
        showlegend=False,
        hoverinfo="skip",
    )
    figure.add_scatter(
        mode="markers",
        x=rows["size_bytes"].to_numpy(),
        y=rows["_measured"].to_numpy(),
        name=name,
        marker={"symbol": _SYMBOLS[position % len(_SYMBOLS)], "size": 9, "color": look["color"]},
        hovertext=[
            f"{size(row['size_bytes'])} in {duration(row['dur_ns'])}, "
            f"{digits(row['bus_gb_per_s'])} GB/s on the bus<br>on line {row['line']}: "
            f"{duration(row['latency_ns'])} + size / {digits(row['line_gb_per_s'])} GB/s"
            for row in rows.to_dict("records")
        ],
        hovertemplate="%{hovertext}",
    )  # fmt: skip


def _claim(times: pd.DataFrame, show: Show) -> str:
    held = (times["held_out_ns"].astype("float64") / times["dur_ns"] - 1).abs().mean()
    # Only NaN differs from itself: without held-out sizes there is no error to tell.
    off = f"; sizes dropped are predicted {percent(float(held))} off" if held == held else ""
    if show == "bandwidth":
        best = times.sort_values("bus_gb_per_s").iloc[-1]
        start = f"The bus carries up to {digits(best['bus_gb_per_s'])} GB/s, in an "
        return f"{start}{label(best['collective'], 20)} of {size(best['size_bytes'])}{off}"
    first = times.sort_values("dur_ns").iloc[0]
    last = times.sort_values("dur_ns").iloc[-1]
    return (
        f"Collectives take {duration(first['dur_ns'])} for {size(first['size_bytes'])}, "
        f"{duration(last['dur_ns'])} for {size(last['size_bytes'])}{off}"
    )


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
