"""Where the GPU time of a failing job goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import (
    COLOURS,
    MAX_LINES,
    Frame,
    colour,
    distinct,
    distinct_fill,
    fill,
    finish,
    ink,
    left_margin,
    nothing,
)
from workbench.plot._style.text import digits, label, percent, safe
from workbench.tables import GOODPUT, GOODPUT_AT_SCALE, GOODPUT_WINDOWS

CONVENTIONS = {
    "interval": "one failure per interval",
    "poisson": "failures at random, also during recovery",
    "renewal": "no failure during recovery",
    "replay": "failures replayed",
}
_MOST_CASES = 12
_MOST_STATES = 16


def goodput(
    table: pd.DataFrame | Mapping[str, pd.DataFrame], *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show where the GPU time goes; the parts add up to 100 %.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT`, or several by the name of the case.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Of one case one bar per state, each beginning where the last one ended; of several
        one stacked bar per case. The title states the productive share.
    """
    if isinstance(table, pd.DataFrame):
        return _waterfall(GOODPUT.check(table), source, synthetic=synthetic)
    cases = {name: GOODPUT.check(each) for name, each in list(table.items())[:_MOST_CASES]}
    cases = {name: each for name, each in cases.items() if len(each)}
    if not cases:
        return _nothing(source, synthetic=synthetic)
    return _stacks(cases, len(table), source, synthetic=synthetic)


def convention_note(conventions: pd.Series) -> str:
    names = [str(name) for name in dict.fromkeys(conventions)]
    return "counted: " + "; ".join(safe(CONVENTIONS.get(name, name)) for name in names)


def _waterfall(table: pd.DataFrame, source: str, *, synthetic: bool) -> go.Figure:
    if table.empty:
        return _nothing(source, synthetic=synthetic)
    rows = _few(table)
    share = rows["gpu_time_share"].to_numpy()
    base = np.concatenate(([0.0], np.cumsum(share)[:-1]))
    names = rows["state"].tolist()
    markers = _markers(names)
    figure = go.Figure()
    for at, name in enumerate(names):
        figure.add_bar(
            orientation="h",
            base=[base[at]],
            x=[share[at]],
            y=[at],
            name=label(name),
            marker=markers[name],
            showlegend=False,
            # Names stay out of the template: what looks like a variable there becomes one.
            customdata=[
                f"{label(name)}: {percent(share[at])}, stops {label(rows['scope'].iloc[at])}"
                f"{_interval(rows.iloc[at])}"
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    figure.add_scatter(
        mode="text",
        x=base + share,
        y=np.arange(len(rows)),
        text=[f"\u2002{percent(each)}{_interval(row)}\u2002" for each, row in
              zip(share, rows.to_dict("records"), strict=True)],
        textposition=["middle right" if end < 0.72 else "middle left" for end in base + share],
        showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip
    # Labels that would leave the frame stand left of their bar.
    outside = (base + share) >= 0.72
    figure.data[-1].x = np.where(outside & (base > 0.25), base, base + share)
    figure.data[-1].textposition = np.where(
        outside & (base > 0.25), "middle left", np.where(outside, "middle left", "middle right")
    ).tolist()
    ticks = [label(name) for name in names]
    figure.update_layout(
        height=max(len(rows), 2) * 34, bargap=0.3, margin_l=left_margin(ticks), barmode="overlay"
    )
    figure.update_xaxes(title="share of GPU time [%]", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=ticks, range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    return finish(
        figure,
        claim=_claim(rows),
        source=source,
        synthetic=synthetic,
        note=convention_note(table["convention"]),
    )


def _stacks(
    cases: Mapping[str, pd.DataFrame], asked: int, source: str, *, synthetic: bool
) -> go.Figure:
    drawn = [
        dict(zip(few["state"], few["gpu_time_share"], strict=True))
        for few in (_few(each).drop_duplicates("state") for each in cases.values())
    ]
    names = list(dict.fromkeys(name for each in drawn for name in each))
    markers = _markers(names)
    figure = go.Figure()
    for name in names:
        shares = [float(each.get(name, 0.0)) for each in drawn]
        figure.add_bar(
            orientation="h",
            x=shares,
            y=list(range(len(cases))),
            name=label(name),
            marker=markers[name],
            text=[percent(each) if each >= 0.045 else "" for each in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": ink(str(markers[name]["color"]))},
            customdata=[label(name)] * len(shares),
            hovertemplate="%{customdata}: %{x:.1%}<extra></extra>",
        )
    ticks = [label(name, 40) for name in cases]
    figure.update_layout(
        barmode="stack", height=max(len(cases), 2) * 44, bargap=0.35, margin_l=left_margin(ticks)
    )
    figure.update_xaxes(title="share of GPU time [%]", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(
        tickvals=list(range(len(cases))), ticktext=ticks, range=[len(cases) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    shares_of = {name: _share(each) for name, each in cases.items()}
    first, last = next(iter(shares_of)), list(shares_of)[-1]
    claim = (
        f"Productive: {percent(shares_of[first])} ({label(first, 30)}), "
        f"{percent(shares_of[last])} ({label(last, 30)})"
        if len(shares_of) > 1
        else f"{percent(shares_of[first])} of the GPU time is productive"
    )
    more = [f"{asked - len(cases)} cases not shown"] if asked > len(cases) else []
    counted = convention_note(pd.concat([each["convention"] for each in cases.values()]))
    note = " · ".join([counted, *more])
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def _few(table: pd.DataFrame) -> pd.DataFrame:
    """Keep states few enough to draw; the smallest are summed, so that all add up to 1."""
    if len(table) <= _MOST_STATES and table["state"].is_unique:
        return table.reset_index(drop=True)
    rows = table.groupby(["state", "scope"], sort=False, as_index=False).agg(
        {"gpu_time_share": "sum", "low_share": "min", "high_share": "max"}
    )
    if len(rows) <= _MOST_STATES:
        return rows
    largest = rows["gpu_time_share"].nlargest(_MOST_STATES - 1).index
    rest = rows.drop(largest)
    other = {"state": "all others", "scope": "several", "low_share": np.nan, "high_share": np.nan}
    other["gpu_time_share"] = rest["gpu_time_share"].sum()
    return pd.concat([rows.loc[sorted(largest)], pd.DataFrame([other])], ignore_index=True)


def _share(table: pd.DataFrame) -> float:
    return float(table.loc[table["state"] == "productive", "gpu_time_share"].sum())


def _claim(rows: pd.DataFrame) -> str:
    lost = rows[rows["state"] != "productive"]
    claim = f"{percent(_share(rows))} of the GPU time is productive"
    if lost.empty or lost["gpu_time_share"].max() <= 0:
        return claim
    worst = lost.iloc[int(lost["gpu_time_share"].argmax())]
    return f"{claim}; most is lost to {label(worst['state'])} ({percent(worst['gpu_time_share'])})"


def _interval(row: Any) -> str:
    low, high = row["low_share"], row["high_share"]
    if pd.isna(low) or pd.isna(high):
        return ""
    half = 100 * (high - low) / 2
    return f" ± {half:.2f}" if half >= 0.005 else ""


def _markers(names: list[str]) -> dict[str, dict[str, Any]]:
    others = [name for name in names if name not in COLOURS]
    return {name: fill(name) for name in names} | {
        name: distinct_fill(at) for at, name in enumerate(others)
    }


def _nothing(source: str, *, synthetic: bool) -> go.Figure:
    return nothing(
        "The table has no states; analyze.goodput makes them.",
        claim="No GPU time to divide",
        source=source,
        synthetic=synthetic,
    )


# Goodput against the size of the job.

_LINES = (
    ("replica_share", "only the failed replica restarts", "productive", "solid", "circle"),
    ("synchronous_share", "full restart", "more", "dash", "square"),
)


def goodput_at_scale(
    table: pd.DataFrame, *, at_gpus: int | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the productive share against the size of the job, with and without replicas.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_AT_SCALE`.
    at_gpus
        Size to mark and to read off; the largest by default.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Two lines over a logarithmic axis. The title reads off both at one size.
    """
    frame = Frame(source, synthetic)
    GOODPUT_AT_SCALE.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no sizes; analyze.goodput_at_scale makes them.",
            claim="No sizes to compare",
        )
    rows = table.sort_values("gpu_count", ignore_index=True)
    keep = extremes(rows["synchronous_share"].to_numpy())
    rows = rows.iloc[keep].reset_index(drop=True)
    size = rows["gpu_count"].to_numpy()
    figure = go.Figure()
    wanted = size.max() if at_gpus is None else at_gpus
    here = rows.iloc[int(np.argmin(np.abs(np.log(size / max(wanted, 1)))))]
    for column, words, meaning, dash, symbol in _LINES:
        figure.add_scatter(
            x=size,
            y=rows[column],
            mode="lines+markers" if len(rows) <= 40 else "lines",
            name=words,
            line={"color": colour(meaning), "dash": dash, "width": 2.5},
            marker={"symbol": symbol, "size": 7},
            customdata=rows[["failure_interval_min", "recovery_min", "replica_count"]].to_numpy(),
            hovertemplate=(
                f"{words}, %{{x:,}} GPUs: %{{y:.1%}}<br>a failure every %{{customdata[0]:.3g}} "
                "min, recovery %{customdata[1]:.3g} min, %{customdata[2]} replicas"
                "<extra></extra>"
            ),
        )
    figure.add_vline(
        x=float(here["gpu_count"]), line={"color": colour("neutral"), "width": 1, "dash": "dot"}
    )
    figure.update_xaxes(title="size of the job [GPUs]", type="log", tickformat=",.0~f", dtick="D2")
    figure.update_yaxes(title="productive share of GPU time [%]", tickformat=".0%", range=[0, 1.02])
    note = (
        f"there: a failure every {digits(here['failure_interval_min'])} min, recovery "
        f"{digits(here['recovery_min'])} min, {here['replica_count']} replicas · counted: "
        f"{safe(CONVENTIONS.get(str(here['convention']), here['convention']))}"
    )
    return frame.finish(figure, claim=_goodput_at_scale_claim(here), note=note)


def _goodput_at_scale_claim(here: pd.Series) -> str:
    both = [here["synchronous_share"], here["replica_share"]]
    words = ["no answer" if pd.isna(each) else percent(float(each)) for each in both]
    return (
        f"At {int(here['gpu_count']):,} GPUs {words[0]} of the time is productive if all restart, "
        f"{words[1]} if replicas fail alone"
    )


# How far the goodput of single windows scatters.

# A curve that only rises loses nothing with fewer points than a line that jumps.
_POINTS = 400


def goodput_windows(
    table: pd.DataFrame | Mapping[str, pd.DataFrame], *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show which share of the windows is at most how productive, for one case or several.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_WINDOWS`, or several by the name of the case,
        e.g. a log and its Poisson twin.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One cumulative curve per case. The title states the range of the first.
    """
    frame = Frame(source, synthetic)
    cases = {"all windows": table} if isinstance(table, pd.DataFrame) else dict(table)
    cases = {name: GOODPUT_WINDOWS.check(each) for name, each in cases.items()}
    known = {name: each for name, each in cases.items() if len(each)}
    if not known:
        return frame.nothing(
            "There are no windows; analyze.goodput_windows makes them.",
            claim="No windows to compare",
        )
    figure = go.Figure()
    for at, (name, each) in enumerate(list(known.items())[:MAX_LINES]):
        share = np.sort(each["productive_share"].to_numpy())
        below = np.arange(1, len(share) + 1) / len(share)
        keep = extremes(share, _POINTS)
        figure.add_scatter(
            x=share[keep],
            y=below[keep],
            mode="lines+markers" if len(share) <= 40 else "lines",
            line={**distinct(at), "shape": "hv", "width": 2.5},
            name=f"{label(name, 34)} (mean {percent(float(share.mean()))})",
            hovertemplate="%{y:.0%} of the windows are at most %{x:.1%} productive<extra></extra>",
        )
    name, first = next(iter(known.items()))
    low, high = first["productive_share"].quantile([0.05, 0.95])
    starts = first.loc[first["run"] == first["run"].iloc[0], "start_min"].to_numpy()
    length = f"{digits(starts[1] - starts[0])}-min " if len(starts) > 1 else ""
    if len(starts) > 1 and (starts[1] - starts[0]) % 60 == 0:
        length = f"{digits((starts[1] - starts[0]) / 60)}-hour "
    claim = (
        f"{length}windows of {label(name, 34)} scatter from {percent(low)} to {percent(high)}"
        " (5 to 95 %)"
    )
    figure.update_xaxes(title="productive share of the window [%]", tickformat=".0%")
    figure.update_yaxes(title="windows at most so productive [%]", tickformat=".0%")
    more = len(known) - MAX_LINES
    note = f"{more} cases not shown" if more > 0 else ""
    return frame.finish(figure, claim=claim[0].upper() + claim[1:], note=note)
