"""Where the GPU time of a failing job goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.marks import PRODUCTIVE_AXIS, name_rows
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import (
    COLOURS,
    MAX_LINES,
    Frame,
    colour,
    distinct,
    distinct_fill,
    fill,
    ink,
)
from workbench.plot._style.text import digits, label, percent, plural, safe, short
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

    Of one case one bar per state, each beginning where the last one ended; of several
    one stacked bar per case. The title states the productive share.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT`, or several by the name of the case.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    several = {"": table} if isinstance(table, pd.DataFrame) else table
    cases = {name: GOODPUT.check(case) for name, case in list(several.items())[:_MOST_CASES]}
    cases = {name: case for name, case in cases.items() if len(case)}
    if not cases:
        why = "The table has no states; analyze.goodput makes them."
        return frame.nothing(why, claim="No GPU time to divide")
    if isinstance(table, pd.DataFrame):
        return _waterfall(table, frame)
    return _stacks(cases, len(table), frame)


def convention_note(conventions: pd.Series) -> str:
    names = [str(name) for name in dict.fromkeys(conventions)]
    return "counted: " + "; ".join(safe(CONVENTIONS.get(name, name)) for name in names)


def _waterfall(table: pd.DataFrame, frame: Frame) -> go.Figure:
    rows = _few(table)
    share = rows["gpu_time_share"].to_numpy()
    base = np.concatenate(([0.0], np.cumsum(share)[:-1]))
    names = rows["state"].tolist()
    markers = _markers(names)
    figure = Draft()
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
    # Labels that would leave the frame stand left of their bar, or of its end if that is far left.
    is_outside = (base + share) >= 0.72
    figure.add_scatter(
        mode="text",
        x=np.where(is_outside & (base > 0.25), base, base + share),
        y=np.arange(len(rows)),
        text=[f"\u2002{percent(row['gpu_time_share'])}{_interval(row)}\u2002"
              for row in rows.to_dict("records")],
        textposition=np.where(is_outside, "middle left", "middle right").tolist(),
        showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip
    name_rows(figure, list(map(short, names)), max(len(rows), 2) * 34, showgrid=False)
    figure.update_layout(bargap=0.3, barmode="overlay")
    figure.update_xaxes(title="share of GPU time [%]", tickformat=".0%", range=[0, 1])
    return frame.finish(figure, claim=_claim(rows), note=convention_note(table["convention"]))


def _stacks(cases: Mapping[str, pd.DataFrame], case_count: int, frame: Frame) -> go.Figure:
    drawn = [
        _few(case).drop_duplicates("state").set_index("state")["gpu_time_share"]
        for case in cases.values()
    ]
    names = list(dict.fromkeys(name for case in drawn for name in case.index))
    markers = _markers(names)
    figure = Draft()
    for name in names:
        shares = [float(case.get(name, 0.0)) for case in drawn]
        figure.add_bar(
            orientation="h",
            x=shares,
            y=list(range(len(cases))),
            name=label(name),
            marker=markers[name],
            text=[percent(share) if share >= 0.045 else "" for share in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": ink(str(markers[name]["color"]))},
            customdata=[label(name)] * len(shares),
            hovertemplate="%{customdata}: %{x:.1%}<extra></extra>",
        )
    ticks = [short(name, 40) for name in cases]
    name_rows(figure, ticks, max(len(cases), 2) * 44, showgrid=False)
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title="share of GPU time [%]", tickformat=".0%", range=[0, 1])
    shares_of = [(percent(_share(case)), label(name, 30)) for name, case in cases.items()]
    claim = f"{shares_of[0][0]} of the GPU time is productive"
    if len(shares_of) > 1:
        claim = "Goodput: " + ", ".join(f"{s} ({n})" for s, n in (shares_of[0], shares_of[-1]))
    note = convention_note(pd.concat([case["convention"] for case in cases.values()]))
    if case_count > len(cases):
        note += f" · {case_count - len(cases)} cases not shown"
    return frame.finish(figure, claim=claim, note=note)


def _few(table: pd.DataFrame) -> pd.DataFrame:
    """Keep states few enough to draw; the smallest are summed, so that all add up to 1."""
    if len(table) <= _MOST_STATES and table["state"].is_unique:
        return table.reset_index(drop=True)
    rows = table.groupby(["state", "scope"], sort=False, as_index=False).agg(
        {"gpu_time_share": "sum", "low_share": "min", "high_share": "max"}
    )
    if len(rows) <= _MOST_STATES:
        return rows
    # One row less than the limit, for the sum of the others.
    largest = rows["gpu_time_share"].nlargest(_MOST_STATES - 1).index
    summed = {"state": "all others", "scope": "several", "low_share": np.nan, "high_share": np.nan}
    summed["gpu_time_share"] = rows.drop(largest)["gpu_time_share"].sum()
    return pd.concat([rows.loc[sorted(largest)], pd.DataFrame([summed])], ignore_index=True)


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
    unnamed = [name for name in names if name not in COLOURS]
    return {name: fill(name) for name in names} | {
        name: distinct_fill(at) for at, name in enumerate(unnamed)
    }


_LINES = (
    ("replica_share", "only the failed replica restarts", "productive", "solid", "circle"),
    ("synchronous_share", "full restart", "more", "dash", "square"),
)


def goodput_at_scale(
    table: pd.DataFrame, *, at_gpus: int | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the productive share against the size of the job, with and without replicas.

    Two lines over a logarithmic axis. The title reads off both at one size.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_AT_SCALE`.
    at_gpus
        Size to mark and to read off; the largest by default.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    GOODPUT_AT_SCALE.check(table)
    if table.empty:
        why = "The table has no sizes; analyze.goodput_at_scale makes them."
        return frame.nothing(why, claim="No sizes to compare")
    rows = table.sort_values("gpu_count", ignore_index=True)
    rows = rows.iloc[extremes(rows["synchronous_share"].to_numpy())].reset_index(drop=True)
    size = rows["gpu_count"].to_numpy()
    figure = Draft()
    wanted = size.max() if at_gpus is None else at_gpus
    # In logarithms, as the axis shows distances.
    marked = rows.iloc[int(np.argmin(np.abs(np.log(size / max(wanted, 1)))))]
    for column, words, meaning, dash, symbol in _LINES:
        figure.add_scatter(
            x=size,
            y=rows[column],
            mode="lines+markers" if len(rows) <= 40 else "lines",
            name=words,
            line={"color": colour(meaning), "dash": dash, "width": 2.5},
            marker={"symbol": symbol, "size": 7},
            customdata=rows[["failure_interval_min", "recovery_min", "replica_count"]].to_numpy(),
            hovertemplate=f"{words}, %{{x:,}} GPUs: %{{y:.1%}}<br>a failure every "
            "%{customdata[0]:.3g} min, recovery %{customdata[1]:.3g} min, "
            "%{customdata[2]} replicas<extra></extra>",
        )
    figure.add_vline(
        x=float(marked["gpu_count"]), line={"color": colour("neutral"), "width": 1, "dash": "dot"}
    )
    figure.update_xaxes(title="size of the job [GPUs]", type="log", tickformat=",.0~f", dtick="D2")
    figure.update_yaxes(**PRODUCTIVE_AXIS)
    note = (
        f"there: a failure every {digits(marked['failure_interval_min'])} min, recovery "
        f"{digits(marked['recovery_min'])} min, {marked['replica_count']} replicas · counted: "
        f"{safe(CONVENTIONS.get(str(marked['convention']), marked['convention']))}"
    )
    return frame.finish(figure, claim=_goodput_at_scale_claim(marked), note=note)


def _goodput_at_scale_claim(marked: pd.Series) -> str:
    shares = [marked["synchronous_share"], marked["replica_share"]]
    words = ["no answer" if pd.isna(share) else percent(float(share)) for share in shares]
    gpus = f"At {plural(int(marked['gpu_count']), 'GPU')}"
    return (
        f"{gpus} {words[0]} of the time is productive if all restart, {words[1]} if replicas fail "
        "alone"
    )


# A curve that only rises loses nothing with fewer points than a line that jumps.
_POINTS = 400


def goodput_windows(
    table: pd.DataFrame | Mapping[str, pd.DataFrame], *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show which share of the windows is at most how productive, for one case or several.

    One cumulative curve per case. The title states the range of the first.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_WINDOWS`, or several by the name of the case,
        e.g. a log and its Poisson twin.
    source, synthetic
        Where the numbers come from, and whether they were generated; the figure says both.
    """
    frame = Frame(source, synthetic)
    cases = {"all windows": table} if isinstance(table, pd.DataFrame) else dict(table)
    cases = {name: GOODPUT_WINDOWS.check(case) for name, case in cases.items()}
    cases = {name: case for name, case in cases.items() if len(case)}
    if not cases:
        why = "There are no windows; analyze.goodput_windows makes them."
        return frame.nothing(why, claim="No windows to compare")
    figure = Draft()
    for at, (name, case) in enumerate(list(cases.items())[:MAX_LINES]):
        share = np.sort(case["productive_share"].to_numpy())
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
    name, first = next(iter(cases.items()))
    low, high = first["productive_share"].quantile([0.05, 0.95])
    starts = first.loc[first["run"] == first["run"].iloc[0], "start_min"].to_numpy()
    length = ""
    if len(starts) > 1:
        step = starts[1] - starts[0]
        length = f"{digits(step)}-min " if step % 60 else f"{digits(step / 60)}-hour "
    claim = (
        f"{length}windows of {label(name, 34)} scatter from {percent(low)} to {percent(high)}"
        " (5 to 95 %)"
    )
    figure.update_xaxes(title="productive share of the window [%]", tickformat=".0%")
    figure.update_yaxes(title="windows at most so productive [%]", tickformat=".0%")
    more = len(cases) - MAX_LINES
    note = f"{more} cases not shown" if more > 0 else ""
    return frame.finish(figure, claim=claim[0].upper() + claim[1:], note=note)
