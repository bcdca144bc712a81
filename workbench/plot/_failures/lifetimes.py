"""Figures of times between failures: rates, MTTF by job size, recurrence and survival."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.marks import band, from_start, name_rows, steps, whiskers
from workbench.plot._style.bars import log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, distinct
from workbench.plot._style.text import (
    between,
    digits,
    interval,
    label,
    percent,
    plural,
    reservations,
    seconds,
    short,
)
from workbench.tables import FAILURE_RATES, MTTF_BY_SIZE, RECURRENCE, SURVIVAL

_MOST = 30
# In less than this one failure more or less makes any rate.
_LEAST_NODE_DAYS = 1.0
_ROW_PX = 26


def failure_rates(rates: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show failures per 1,000 node-days for each group, with the exact interval.

    Parameters
    ----------
    rates
        Table :data:`workbench.tables.FAILURE_RATES`; rates of several clusters may be put
        together with ``pandas.concat``.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    plotly.graph_objects.Figure
        One dot per group with whiskers, the highest on top. The title states the
        failures counted, the rate with its interval, and the mean time between failures.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> log = load.failures(datasets.path("failures-demo"), tz="UTC")
    >>> table = analyze.failure_rates(log.failures, nodes=log.nodes)
    >>> figure = failure_rates(table, source="failures-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    In doubt: 135 nodes fail every 122 min: 350 in 3,995 node-days, 87.6 failures per 1,000
    node-days (78.7 to 97.3)
    """
    frame = Frame(source, synthetic)
    FAILURE_RATES.check(rates)
    if rates.empty:
        why = "The table has no rates; pass what analyze.failure_rates returns."
        return frame.nothing(why, claim="No failure rates to show")
    ordered = rates.sort_values("per_1000_node_days", ascending=False, kind="stable")
    drawn = ordered.iloc[:_MOST].reset_index(drop=True)
    rate = drawn["per_1000_node_days"].to_numpy()
    figure = Draft(
        go.Scatter(
            mode="markers",
            x=rate,
            y=list(range(len(drawn))),
            marker={"size": 10, "color": COLOURS["neutral"]},
            error_x=whiskers(
                rate, drawn["low_per_1000_node_days"], drawn["high_per_1000_node_days"]
            ),
            hovertext=[_hover(row) for row in drawn.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    name_rows(figure, [short(name, 40) for name in drawn["group"]], max(len(drawn), 3) * _ROW_PX)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(title="failures [per 1,000 node-days]", rangemode="tozero")
    hidden = len(rates) - len(drawn)
    notes = [*interval(rates), *([f"{hidden:,} lower rates dropped"] if hidden else [])]
    return frame.finish(
        figure, claim=_claim(drawn), note=" · ".join([*notes, *reservations(rates)])
    )


def _claim(drawn: pd.DataFrame) -> str:
    first = drawn.iloc[0]
    low, high = first["low_per_1000_node_days"], first["high_per_1000_node_days"]
    rate = f"{digits(first['per_1000_node_days'])} failures per 1,000 node-days "
    rate += f"({between(low, high)})"
    watched = float(first["exposure_node_days"])
    if watched < _LEAST_NODE_DAYS:
        rate = "too short for a rate"
    # A rate of few failures in little time reads like one of many in years without its count.
    seen = f"{int(first['failure_count']):,} in {_node_time(watched)}"
    if len(drawn) > 1:
        # Where the first two intervals overlap, their order may be chance.
        is_apart = low > drawn["high_per_1000_node_days"].iloc[1]
        most = "fails most often" if is_apart else "fails most often, perhaps by chance"
        return f"{label(first['group'], 30)} {most}: {seen}, {rate}"
    if pd.isna(first["mtbf_h"]):
        return f"No failure in {_node_time(watched)}: at most {digits(high)} per 1,000"
    nodes = plural(int(first["node_count"]), "node")
    return f"{nodes} fail every {seconds(3600 * float(first['mtbf_h']))}: {seen}, {rate}"


def _node_time(node_days: float) -> str:
    """Write how long nodes were watched in all, in a unit that fits."""
    units = ((1, "node-days"), (24, "node-hours"), (1440, "node-minutes"))
    factor, unit = next((step for step in units if node_days * step[0] >= 1), units[-1])
    return f"{digits(factor * node_days)} {unit}"


def _hover(row: Mapping[Hashable, Any]) -> str:
    low, high = row["low_per_1000_node_days"], row["high_per_1000_node_days"]
    return (
        f"{label(row['group'], 80)}<br>{plural(row['failure_count'], 'failure')} in "
        f"{row['exposure_node_days']:,.4g} node-days<br>"
        f"{digits(row['per_1000_node_days'])} per 1,000 ({between(low, high)})"
    )


_MOST_LINES = 12
_KINDS = {"measured": "circle", "projected": "diamond-open"}


def mttf_by_size(sizes: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the mean time to failure of jobs of several sizes, with the 1/N law.

    Parameters
    ----------
    sizes
        Table :data:`workbench.tables.MTTF_BY_SIZE`; own and published ones may be put together
        with ``pandas.concat``.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    plotly.graph_objects.Figure
        Points with whiskers where failures were counted, and through each point the line on
        which all GPUs are as likely to fail. Both axes are logarithmic. The title states the
        slope, or the spread of the rates.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> log = load.failures(datasets.path("failures-demo"), tz="UTC")
    >>> table = analyze.mttf_by_size(analyze.job_sizes(log.timeline))
    >>> figure = mttf_by_size(table, source="failures-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    Jobs of 1,024 GPUs fail every 12.1 h (10.1 to 14.7)
    """
    frame = Frame(source, synthetic)
    MTTF_BY_SIZE.check(sizes)
    failed = sizes[(sizes["mttf_h"] > 0).fillna(value=False)].reset_index(drop=True)
    if failed.empty:
        why = "No size of job has failed, so there is no time to failure to show."
        return frame.nothing(why, claim="No time to failure to show")
    figure = Draft([_law(failed)])
    for kind, symbol in _KINDS.items():
        rows = failed[failed["kind"] == kind]
        if len(rows):
            figure.add_trace(_points(rows, kind, symbol))
    ends = failed[["mttf_h", "low_mttf_h", "high_mttf_h"]].to_numpy("float64", na_value=np.nan)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(
        title="size of the job [GPUs], logarithmic",
        type="log",
        **log_ticks(failed["gpu_count"].to_numpy(dtype="float64")),
    )
    figure.update_yaxes(
        title="mean time to failure [h], logarithmic",
        type="log",
        **log_ticks(ends[np.isfinite(ends) & (ends > 0)]),
    )
    unfailed = len(sizes) - len(failed)
    notes = [*(interval(sizes) if failed["failure_count"].notna().any() else [])]
    notes += [f"{plural(unfailed, 'size')} without a failure dropped"] if unfailed else []
    notes += reservations(sizes)
    return frame.finish(figure, claim=_mttf_by_size_claim(failed), note=" · ".join(notes))


def _law(failed: pd.DataFrame) -> go.Scatter:
    size = failed["gpu_count"].to_numpy(dtype="float64")
    # On a line of the 1/N law size x MTTF is constant.
    constant = size * failed["mttf_h"].to_numpy(dtype="float64")
    distinct = np.unique(constant)
    if len(distinct) > _MOST_LINES:
        distinct = distinct[np.linspace(0, len(distinct) - 1, _MOST_LINES).astype(int)]
    low, high = size.min() / 1.6, size.max() * 1.6
    # A gap after each pair makes many lines one trace.
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
    low, high = rows[["low_mttf_h", "high_mttf_h"]].to_numpy("float64", na_value=np.nan).T
    return go.Scatter(
        mode="markers",
        x=rows["gpu_count"].to_numpy(),
        y=mttf,
        name=kind,
        marker={"symbol": symbol, "size": 11, "color": COLOURS["limit"], "line": {"width": 2}},
        error_y={
            "type": "data",
            "array": np.nan_to_num(np.maximum(high - mttf, 0)),
            "arrayminus": np.nan_to_num(np.maximum(mttf - low, 0)),
            "color": COLOURS["dark"],
            "visible": bool(np.isfinite(low).any()),
        },
        hovertext=[_mttf_by_size_hover(row) for row in rows.to_dict("records")],
        hovertemplate="%{hovertext}<extra>" + kind + "</extra>",
    )  # fmt: skip


def _mttf_by_size_hover(row: Mapping[Hashable, Any]) -> str:
    words = f"{int(row['gpu_count']):,} GPUs: {digits(float(row['mttf_h']))} h<br>"
    words += f"{digits(float(row['per_1000_node_days']))} failures per 1,000 node-days"
    if not pd.isna(row["failure_count"]):
        words += f"<br>{int(row['failure_count']):,} failures in "
        words += f"{digits(float(row['exposure_h']))} h of running"
    return words


def _mttf_by_size_claim(failed: pd.DataFrame) -> str:
    slopes = failed[["slope_ratio", "low_slope_ratio", "high_slope_ratio"]].dropna()
    if len(slopes):
        slope, low, high = (float(value) for value in slopes.iloc[0])
        verdict = "as the 1/N law has it" if low <= 1 <= high else "not as the 1/N law has it"
        power = f"{digits(slope)} ({between(low, high)})"
        return f"Failures grow with size to the power {power}, {verdict}"
    measured = failed[failed["kind"] == "measured"]
    points = measured if len(measured) else failed
    sizes, rates = points["gpu_count"], points["per_1000_node_days"].astype("float64")
    if len(points) == 1:
        mttf, low, high = points[["mttf_h", "low_mttf_h", "high_mttf_h"]].iloc[0]
        words = f"Jobs of {int(sizes.iloc[0]):,} GPUs fail every {digits(mttf)} h"
        is_known = pd.notna(low) and pd.notna(high)
        return f"{words} ({between(low, high)})" if is_known else words
    return (
        f"From {int(sizes.min()):,} to {int(sizes.max()):,} GPUs jobs have "
        f"{between(float(rates.min()), float(rates.max()))} failures per 1,000 node-days"
    )


def recurrence(counts: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the failures per node up to each time, with a band and the power law.

    Parameters
    ----------
    counts
        Table :data:`workbench.tables.RECURRENCE`.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    plotly.graph_objects.Figure
        A rising step curve, its band, and the fitted power law. The title says how often a
        node has failed by the end.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> log = load.failures(datasets.path("failures-demo"), tz="UTC")
    >>> reported = analyze.reported_by(log.failures)
    >>> table = analyze.recurrence(reported, log.nodes)
    >>> figure = recurrence(table, source="failures-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    After 705 h a node has failed 0.886 times (0.517 to 1.26)
    """
    frame = Frame(source, synthetic)
    RECURRENCE.check(counts)
    if counts.empty:
        return frame.nothing(
            "No failure was counted, so nothing recurs. " + " · ".join(reservations(counts)),
            claim="No failures to add up",
        )
    rows = counts.sort_values("time_h", kind="stable")
    look = distinct(0)
    figure = Draft()
    bounded = rows[rows["high_count"].notna() & rows["low_count"].notna()]
    if len(bounded):
        line = {"width": 0, "color": look["color"], "dash": "dash"}
        ends = steps(bounded, "low_count"), steps(bounded, "high_count")
        figure.add_trace(band(*ends, fillcolor=look["color"], line=line, name="band"))
    x, y = steps(rows, "mean_count")
    figure.add_scatter(
        x=x, y=y, mode="lines", line={**look, "width": 2}, name="failures per node",
        hovertemplate="%{x:,.4~g} h: %{y:.3~g} failures per node<extra></extra>",
    )  # fmt: skip
    x, y = from_start(rows, "trend_count")
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": COLOURS["limit"], "dash": "dot", "width": 2},
        name="power law",
        hovertemplate="%{x:,.4~g} h: %{y:.3~g} by the power law<extra></extra>",
    )
    figure.update_xaxes(title="since the observation began [h]", rangemode="tozero")
    figure.update_yaxes(title="failures up to then [per node]", rangemode="tozero")
    last = rows.iloc[-1]
    claim = f"After {digits(last['time_h'])} h a node has failed {digits(last['mean_count'])} times"
    if not pd.isna(last["high_count"]):
        claim += f" ({between(last['low_count'], last['high_count'])})"
    notes = ["a straight line is a constant rate"]
    notes += interval(counts, "band") if len(bounded) else []
    return frame.finish(figure, claim=claim, note=" · ".join([*notes, *reservations(counts)]))


_MOST_GROUPS = 6


def survival(curves: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what share lives beyond each age, with a band, and the Weibull law for one group.

    Parameters
    ----------
    curves
        Table :data:`workbench.tables.SURVIVAL`.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    plotly.graph_objects.Figure
        One step curve with band per group; ticks where something was last watched, still
        alive. The title says when half have failed, or how many have at the end.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> log = load.failures(datasets.path("failures-demo"), tz="UTC")
    >>> reported = analyze.reported_by(log.failures)
    >>> table = analyze.survival(analyze.lifetimes(reported, log.nodes))
    >>> figure = survival(table, source="failures-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    Half have failed within 627 h (118 failures in 253 lifetimes)
    """
    frame = Frame(source, synthetic)
    SURVIVAL.check(curves)
    if curves.empty:
        why = "There are no lifetimes, so nothing is known about how long anything lives."
        return frame.nothing(why, claim="No lifetimes to show")
    groups = curves["group"].drop_duplicates().tolist()
    figure = Draft()
    shown = [curves[curves["group"] == group] for group in groups[:_MOST_GROUPS]]
    for position, rows in enumerate(shown):
        _add_group(figure, rows.sort_values("time_h"), position, name=label(groups[position], 30))
    if len(shown) == 1:
        _add_law(figure, shown[0].sort_values("time_h"))
    _add_ticks(figure, pd.concat(shown))
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(title="age [h]", rangemode="tozero")
    figure.update_yaxes(title="still alive [%]", range=[0, 104])
    hidden = len(groups) - len(shown)
    notes = [*interval(curves, "band"), "every age for itself"]
    notes += [f"{plural(hidden, 'group')} dropped"] if hidden else []
    return frame.finish(
        figure, claim=_survival_claim(shown), note=" · ".join([*notes, *reservations(curves)])
    )


def _add_group(figure: go.Figure, rows: pd.DataFrame, position: int, *, name: str) -> None:
    look = distinct(position)
    curves = {}
    for column in ("low_share", "high_share", "survival_share"):
        time, share = steps(rows, column, 1.0)
        curves[column] = time, 100 * share
    # Invisible, but the line tells the trace apart from its curve.
    line = {"width": 0, **distinct(position + _MOST_GROUPS)}
    ends = curves["low_share"], curves["high_share"]
    figure.add_trace(band(*ends, fillcolor=look["color"], line=line, name=f"band of {name}"))
    x, y = curves["survival_share"]
    figure.add_scatter(
        x=x, y=y, mode="lines", line={**look, "width": 2}, name=name,
        hovertemplate="%{x:,.4~g} h: %{y:.1f} %<extra>" + name + "</extra>",
    )  # fmt: skip


def _add_law(figure: go.Figure, rows: pd.DataFrame) -> None:
    fitted = rows[rows["weibull_share"].notna()]
    if fitted.empty:
        return
    time, share = from_start(fitted, "weibull_share", 1.0)
    figure.add_scatter(
        x=time,
        y=100 * share,
        mode="lines",
        line={"color": COLOURS["limit"], "dash": "dot", "width": 2},
        name="Weibull law",
        hovertemplate="%{x:,.4~g} h: %{y:.1f} %<extra>Weibull law</extra>",
    )


def _add_ticks(figure: go.Figure, rows: pd.DataFrame) -> None:
    censored = rows[rows["censored_count"] > 0].sort_values(["group", "time_h"])
    if censored.empty:
        return
    censored = censored.iloc[extremes(censored["censored_count"].to_numpy())]
    ink = COLOURS["reference"]
    figure.add_scatter(
        x=censored["time_h"].to_numpy(),
        y=100 * censored["survival_share"].to_numpy(),
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 9, "color": ink, "line": {"width": 1.5}},
        name="last observed, still alive",
        hovertext=[f"{count:,} last watched" for count in censored["censored_count"].to_numpy()],
        hovertemplate="%{x:,.4~g} h: %{hovertext}<extra></extra>",
    )


def _survival_claim(shown: list[pd.DataFrame]) -> str:
    rows = shown[0].sort_values("time_h")
    whose = f" of {label(rows['group'].iloc[0], 30)}" if len(shown) > 1 else ""
    below = rows[rows["survival_share"] <= 0.5]
    if len(below):
        words = f"Half{whose} have failed within {digits(float(below['time_h'].iloc[0]))} h"
    else:
        last = rows.iloc[-1]
        words = f"{percent(1 - float(last['survival_share']))}{whose} have failed within "
        words += f"{digits(float(last['time_h']))} h, as far as was watched"
    at_start = int(rows["at_risk_count"].iloc[0])
    deaths = int(rows["failure_count"].sum())
    return f"{words} ({plural(deaths, 'failure')} in {plural(at_start, 'lifetime')})"
