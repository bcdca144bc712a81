"""How the time to failure of a job shrinks as the job grows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import log_ticks
from workbench.plot._style.said import between, interval, reservations
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, finish, nothing
from workbench.plot._style.text import digits, plural
from workbench.tables import MTTF_BY_SIZE

_MOST_LINES = 12
_KINDS = {"measured": "circle", "projected": "diamond-open"}


def mttf_by_size(sizes: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the mean time to failure of jobs of several sizes, with the 1/N law.

    Parameters
    ----------
    sizes
        Table :data:`workbench.tables.MTTF_BY_SIZE`; own and published ones may be put together
        with ``pandas.concat``.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Points with whiskers where failures were counted, and through each point the line on
        which all GPUs are as likely to fail. Both axes are logarithmic. The title states the
        slope, or the spread of the rates.
    """
    MTTF_BY_SIZE.check(sizes)
    known = sizes[(sizes["mttf_h"] > 0).fillna(value=False)].reset_index(drop=True)
    if known.empty:
        return nothing(
            "No size of job has failed, so there is no time to failure to show.",
            claim="No time to failure to show",
            source=source,
            synthetic=synthetic,
        )
    figure = go.Figure([_law(known)])
    for kind, symbol in _KINDS.items():
        rows = known[known["kind"] == kind]
        if len(rows):
            figure.add_trace(_points(rows, kind, symbol))
    ends = known[["mttf_h", "low_mttf_h", "high_mttf_h"]].to_numpy("float64", na_value=np.nan)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(
        title="size of the job [GPUs], logarithmic",
        type="log",
        **log_ticks(known["gpu_count"].to_numpy(dtype="float64")),
    )
    figure.update_yaxes(
        title="mean time to failure [h], logarithmic",
        type="log",
        **log_ticks(ends[np.isfinite(ends) & (ends > 0)]),
    )
    unfailed = len(sizes) - len(known)
    notes = [*(interval(sizes) if known["failure_count"].notna().any() else [])]
    notes += [f"{plural(unfailed, 'size')} without a failure left out"] if unfailed else []
    notes += reservations(sizes)
    return finish(
        figure, claim=_claim(known), source=source, synthetic=synthetic, note=" · ".join(notes)
    )  # fmt: skip


def _law(known: pd.DataFrame) -> go.Scatter:
    """Draw MTTF = constant / N through points, over all sizes."""
    size = known["gpu_count"].to_numpy(dtype="float64")
    constant = size * known["mttf_h"].to_numpy(dtype="float64")
    distinct = np.unique(constant)
    if len(distinct) > _MOST_LINES:
        distinct = distinct[np.linspace(0, len(distinct) - 1, _MOST_LINES).astype(int)]
    low, high = size.min() / 1.6, size.max() * 1.6
    ends = np.array([[low, high, np.nan]] * len(distinct))
    return go.Scatter(
        mode="lines",
        x=ends.ravel(),
        y=(distinct[:, None] / ends).ravel(),
        name="1/N: every GPU as likely to fail",
        line={"color": COLOURS["all others"], "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )


def _points(rows: pd.DataFrame, kind: str, symbol: str) -> go.Scatter:
    mttf = rows["mttf_h"].to_numpy(dtype="float64")
    keep = extremes(mttf)
    rows, mttf = rows.iloc[keep], mttf[keep]
    low, high = (
        rows[name].to_numpy(dtype="float64", na_value=np.nan)
        for name in ("low_mttf_h", "high_mttf_h")
    )
    return go.Scatter(
        mode="markers",
        x=rows["gpu_count"].to_numpy(),
        y=mttf,
        name=kind,
        marker={
            "symbol": symbol, "size": 11, "color": COLOURS["limit"], "line": {"width": 2},
        },
        error_y={
            "type": "data",
            "array": np.nan_to_num(np.maximum(high - mttf, 0)),
            "arrayminus": np.nan_to_num(np.maximum(mttf - low, 0)),
            "color": COLOURS["dark"],
            "visible": bool(np.isfinite(low).any()),
        },
        hovertext=[_hover(row) for row in rows.to_dict("records")],
        hovertemplate="%{hovertext}<extra>" + kind + "</extra>",
    )  # fmt: skip


def _hover(row: Mapping[Hashable, Any]) -> str:
    words = f"{int(row['gpu_count']):,} GPUs: {digits(float(row['mttf_h']))} h<br>"
    words += f"{digits(float(row['per_1000_node_days']))} failures per 1,000 node-days"
    if not pd.isna(row["failure_count"]):
        words += f"<br>{int(row['failure_count']):,} failures in "
        words += f"{digits(float(row['exposure_h']))} h of running"
    return words


def _claim(known: pd.DataFrame) -> str:
    slopes = known[["slope_ratio", "low_slope_ratio", "high_slope_ratio"]].dropna()
    if len(slopes):
        slope, low, high = (float(value) for value in slopes.iloc[0])
        verdict = "as the 1/N law has it" if low <= 1 <= high else "not as the 1/N law has it"
        power = f"{digits(slope)} ({between(low, high)})"
        return f"Failures grow with size to the power {power}, {verdict}"
    measured = known[known["kind"] == "measured"]
    part = measured if len(measured) else known
    sizes, rates = part["gpu_count"], part["per_1000_node_days"].astype("float64")
    if len(part) == 1:
        one = part.iloc[0]
        words = f"Jobs of {int(sizes.iloc[0]):,} GPUs fail every {digits(one['mttf_h'])} h"
        is_known = pd.notna(one["low_mttf_h"]) and pd.notna(one["high_mttf_h"])
        return f"{words} ({between(one['low_mttf_h'], one['high_mttf_h'])})" if is_known else words
    return (
        f"From {int(sizes.min()):,} to {int(sizes.max()):,} GPUs jobs have "
        f"{between(float(rates.min()), float(rates.max()))} failures per 1,000 node-days"
    )
