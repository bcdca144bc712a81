"""Operators replayed alone beside what they took in the job."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import dots
from workbench.plot._style.style import finish, nothing
from workbench.plot._style.text import digits, duration, label, percent, plural
from workbench.tables import OPERATOR_BENCHMARK

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
    OPERATOR_BENCHMARK.check(benchmark)
    times = ["original_ns", "replayed_ns"]
    timed = benchmark[(benchmark[times].fillna(0) > 0).any(axis=1)]
    if timed.empty:
        return nothing(
            "No call has a time in the job or in a replay. Run the script of "
            "load.write_operator_benchmark, and pass node_times of a profiler trace.",
            claim="No operator times to show",
            source=source,
            synthetic=synthetic,
        )
    shown = timed.head(_MOST_ROWS)
    is_compared = (shown["compared_count"] > 0).to_numpy()
    job = _values(shown, "original_compared_ns", "original_ns", is_compared)
    here = _values(shown, "replayed_compared_ns", "replayed_ns", is_compared)
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
    return finish(
        figure, claim=_claim(timed), source=source, synthetic=synthetic, note=" · ".join(notes)
    )


def _values(shown: pd.DataFrame, compared: str, every: str, is_compared: np.ndarray) -> np.ndarray:
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


def _claim(timed: pd.DataFrame) -> str:
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
