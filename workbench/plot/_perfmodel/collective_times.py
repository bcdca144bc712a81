"""Times and bus bandwidths of collectives by size, beside the lines of a model."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import log_ticks
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import distinct, finish, nothing
from workbench.plot._style.text import digits, duration, label, percent, plural, size
from workbench.tables import COLLECTIVE_MODEL

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
    COLLECTIVE_MODEL.check(times)
    if times.empty:
        return nothing(
            "The table has no collectives; load.collective_times reads some.",
            claim="No times of collectives to show",
            source=source,
            synthetic=synthetic,
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
        notes.append(f"{plural(len(kinds) - _MOST_KINDS, 'kind')} left out; choose some")
    return finish(
        figure,
        claim=_claim(times, show),
        source=source,
        synthetic=synthetic,
        note=" · ".join(notes),
    )


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
    off = f"; sizes left out are predicted {percent(float(held))} off" if held == held else ""
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
