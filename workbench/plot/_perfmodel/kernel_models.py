"""Figures of kernel models: collectives, GEMMs and operators, measured and predicted."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import dots, log_ticks
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import MAX_LINES, Frame, distinct
from workbench.plot._style.text import digits, duration, label, percent, plural, safe, size
from workbench.tables import COLLECTIVE_MODEL, KERNEL_MODEL_ERRORS, OPERATOR_BENCHMARK

# Times and bus bandwidths of collectives by size, beside the lines of a model.

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "star", "hexagon")
_KEY = ["gpu", "collective", "rank_count", "node_count"]
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
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Both axes logarithmic; one colour per GPU, collective and number of ranks. The title
        states the latency of the shortest message, or the best bandwidth, and the error.
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
    figure = go.Figure()
    kinds = list(drawn.groupby(_KEY, sort=False, observed=True))
    for position, (key, rows) in enumerate(kinds[:_MOST_KINDS]):
        _add(figure, rows.sort_values("size_bytes", kind="stable"), key, position)
    ticks = log_ticks(drawn["size_bytes"].to_numpy(dtype=np.float64))
    ticks["ticktext"] = [size(each) for each in ticks["tickvals"]]
    figure.update_xaxes(title="size [bytes], logarithmic", type="log", **ticks)
    what = "time [µs], logarithmic" if show == "time" else "bus bandwidth [GB/s], logarithmic"
    values = np.concatenate([drawn["_measured"], drawn["_modelled"]])
    figure.update_yaxes(title=what, type="log", **log_ticks(values[values > 0]))
    figure.update_layout(hovermode="closest")
    notes = ["dots: measured; lines: lowest of three straight lines, latency + size / bandwidth"]
    if len(kinds) > _MOST_KINDS:
        notes.append(f"{plural(len(kinds) - _MOST_KINDS, 'kind')} dropped; choose some")
    return frame.finish(figure, claim=_claim(times, show), note=" · ".join(notes))


def _values(times: pd.DataFrame, column: str, show: Show) -> np.ndarray:
    """Give microseconds, or the bandwidth that goes with a time."""
    ns = np.maximum(times[column].to_numpy(dtype=np.float64), 1e-3)
    if show == "time":
        return np.asarray(ns / 1e3)
    measured = np.maximum(times["dur_ns"].to_numpy(dtype=np.float64), 1e-3)
    bus = times["bus_gb_per_s"].to_numpy(dtype=np.float64)
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
            f"{size(moved)} in {duration(ns)}, {digits(bus)} GB/s on the bus<br>on line {line}: "
            f"{duration(latency)} + size / {digits(speed)} GB/s"
            for moved, ns, bus, line, latency, speed in zip(
                *(
                    rows[column]
                    for column in (
                        "size_bytes", "dur_ns", "bus_gb_per_s", "line", "latency_ns",
                        "line_gb_per_s",
                    )
                ),
                strict=True,
            )
        ],
        hovertemplate="%{hovertext}",
    )  # fmt: skip


def _claim(times: pd.DataFrame, show: Show) -> str:
    held = (times["held_out_ns"].astype("float64") / times["dur_ns"] - 1).abs().mean()
    off = f"; sizes dropped are predicted {percent(float(held))} off" if held == held else ""
    if show == "bandwidth":
        best = times.sort_values("bus_gb_per_s").iloc[-1]
        said = f"The bus carries up to {digits(best['bus_gb_per_s'])} GB/s, in an "
        return f"{said}{label(best['collective'], 20)} of {size(best['size_bytes'])}{off}"
    first = times.sort_values("dur_ns").iloc[0]
    last = times.sort_values("dur_ns").iloc[-1]
    return (
        f"Collectives take {duration(first['dur_ns'])} for {size(first['size_bytes'])}, "
        f"{duration(last['dur_ns'])} for {size(last['size_bytes'])}{off}"
    )


# How wrong models of matrix products are, by the work of a product.

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
    frame = Frame(source, synthetic)
    KERNEL_MODEL_ERRORS.check(errors)
    decades = errors[~errors["shapes"].isin(_OVERALL) & (errors["flop_count"] > 0)]
    if decades.empty:
        return frame.nothing(
            "The table has no errors by FLOPs; analyze.gemm_errors works them out.",
            claim="No errors of matrix products to show",
        )
    figure = go.Figure()
    lines = list(decades.groupby(["gpu", "dtype", "model"], sort=False, observed=True))
    for position, (key, rows) in enumerate(lines[:MAX_LINES]):
        _gemm_errors_add(figure, rows, " ".join(label(part, 16) for part in key), position)
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


def _gemm_errors_claim(errors: pd.DataFrame) -> str:
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


# Operators replayed alone beside what they took in the job.

_MOST_ROWS = 20
_JOB, _HERE, _ELSEWHERE = "in the job", "replayed", "replayed on another device"


def operator_benchmark(
    benchmark: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the time of each operator in the job beside that of its replay.

    Parameters
    ----------
    benchmark
        Table :data:`workbench.tables.OPERATOR_BENCHMARK`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One row per operator, longest on top, with a dot for the job and one for the
        replay, on a logarithmic axis. Where both can be compared, the dots are of the calls
        compared; a replay on another device has a mark of its own. The title states the
        ratio of the sums, or that there is none.
    """
    frame = Frame(source, synthetic)
    OPERATOR_BENCHMARK.check(benchmark)
    times = ["original_ns", "replayed_ns"]
    timed = benchmark[(benchmark[times].fillna(0) > 0).any(axis=1)]
    if timed.empty:
        return frame.nothing(
            "No call has a time in the job or in a replay. Run the script of "
            "load.write_operator_benchmark, and pass node_times of a profiler trace.",
            claim="No operator times to show",
        )
    shown = timed.head(_MOST_ROWS)
    is_compared = (shown["compared_count"] > 0).to_numpy()
    job = _operator_benchmark_values(shown, "original_compared_ns", "original_ns", is_compared)
    here = _operator_benchmark_values(shown, "replayed_compared_ns", "replayed_ns", is_compared)
    is_elsewhere = ~shown["is_comparable"].to_numpy()
    measures = {
        _JOB: job,
        _HERE: np.where(is_elsewhere, np.nan, here),
        _ELSEWHERE: np.where(is_elsewhere, here, np.nan),
    }
    figure = dots(
        [str(name) for name in shown["name"]],
        {name: values for name, values in measures.items() if np.nansum(values) > 0},
        rows=np.arange(len(shown)),
        hover=[_hover(row) for row in shown.itertuples()],
        title="time of all calls [ms], logarithmic",
    )
    notes = ["dots: the calls compared, else all calls"] if is_compared.any() else []
    hidden = len(timed) - len(shown)
    notes += [f"{plural(hidden, 'shorter operator')} not shown"] if hidden else []
    return frame.finish(figure, claim=_operator_benchmark_claim(timed), note=" · ".join(notes))


def _operator_benchmark_values(
    shown: pd.DataFrame, compared: str, every: str, is_compared: np.ndarray
) -> np.ndarray:
    columns = [shown[name].to_numpy(dtype="float64", na_value=np.nan) for name in (compared, every)]
    values: np.ndarray = np.where(is_compared, *columns) / 1e6
    return values


def _hover(row: object) -> str:
    values = row._asdict()  # type: ignore[attr-defined]
    parts = [
        f"{plural(values['call_count'], 'call')}, {values['compared_count']:,} compared",
        label(values["device"], 60),
    ]
    parts += [label(values["note"], 110)] if values["note"] else []
    return "<br>".join(parts)


def _operator_benchmark_claim(timed: pd.DataFrame) -> str:
    """State how long the replay takes beside the job, or why that cannot be said."""
    compared = timed[timed["compared_count"] > 0]
    job = float(compared["original_compared_ns"].fillna(0).sum())
    here = float(compared["replayed_compared_ns"].fillna(0).sum())
    if job > 0:
        whole = float(timed["original_ns"].fillna(0).sum())
        return (
            f"Replayed alone, {plural(len(compared), 'operator')} take {duration(here)}, "
            f"{digits(here / job)} times as long as in the job; they are "
            f"{percent(min(job / whole, 1))} of its operator time"
        )
    if (timed["original_ns"].fillna(0) > 0).any() and (timed["replayed_ns"].fillna(0) > 0).any():
        return (
            f"No operator of {len(timed):,} can be compared: job and replay ran on different "
            "devices, or took no time"
        )
    lacking = "the job" if (timed["replayed_ns"].fillna(0) > 0).any() else "the replay"
    return f"No operator of {len(timed):,} can be compared: {lacking} has no times"
