"""Power, steps, spans, failures and traces below each other on one axis of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench._shared.time_groups import time_groups
from workbench.plot._style.bars import stacked_panels
from workbench.plot._style.lanes import MAX_POINTS, extremes
from workbench.plot._style.style import (
    COLOURS,
    MAX_LINES,
    Frame,
    colour,
    distinct,
    left_margin,
    row_axis,
)
from workbench.plot._style.text import amount, clock_time, label, plural, power_unit, seconds, utc
from workbench.tables import FLEET_TIMELINE

_ALL = "all entities"
_MOST_ENTITIES = 6  # more lines hide each other; the sum stays
_MOST_LANES, _MOST_FAILURES, _MOST_RULES = 12, 400, 12
_LANE_PX, _LEAST_PX = 20, 56
_HEIGHTS = {"power": 210, "step time": 110}
_PANELS = ("power", "step time", "job", "failures", "traces")
_OTHERS = "others"
_SHARES_NO_TIME = "shares no time with the rest"


def fleet_timeline(
    table: pd.DataFrame,
    *,
    first_ns: int | None = None,
    last_ns: int | None = None,
    max_points: int = MAX_POINTS,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show what the fleet drew, did and suffered, on one axis of time.

    Panels from top to bottom: power of all and of each entity, time of each step, spans of the
    job, failures by host, and what traces cover; those without rows are dropped. Zooming one
    zooms all. Dashed lines mark fatal failures through all panels. The title states the span,
    the range of power, and the first fatal failure.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.FLEET_TIMELINE`; leave out lanes to see fewer.
    first_ns
        Start of what is shown, ns since the Unix epoch; the earliest row if None.
    last_ns
        End of what is shown; the latest row if None.
    max_points
        Points of a line at most; never the highest or lowest are dropped.

    Raises
    ------
    ValueError
        If the window is empty, or ``max_points`` below 4.
    """
    frame = Frame(source, synthetic)
    FLEET_TIMELINE.check(table)
    if table.empty:
        why = "No power, steps, spans, failures or traces were given."
        return frame.nothing(why, claim="Nothing to show on a timeline")
    apart = ""
    if first_ns is None and last_ns is None:
        table, apart = _of_one_time(table)
    window = _window(table, first_ns, last_ns)
    shown = table[(table["end_ns"] >= window[0]) & (table["start_ns"] <= window[1])]
    panels = {name: shown[shown["panel"] == name] for name in _PANELS}
    panels = {name: panel for name, panel in panels.items() if len(panel)}
    if not panels:
        why = "Between these times nothing was measured or logged."
        return frame.nothing(why, claim="Nothing in this window")
    lanes = {name: _lanes(panel) for name, panel in panels.items() if name not in _HEIGHTS}
    unit = power_unit(float(table["power_w"].max()))
    view = _View(window, max(int(max_points), 4), unit, lanes)
    heights = [
        _HEIGHTS.get(name) or max(_LANE_PX * len(lanes[name]) + 14, _LEAST_PX) for name in panels
    ]
    titles = {"power": f"power [{view.unit[1]}]", "step time": "step [s]"}
    figure = stacked_panels([titles.get(name, name) for name in panels], heights)
    for row, (name, panel) in enumerate(panels.items(), start=1):
        _DRAW[name](figure, row, panel, view)
    _finish_axes(figure, panels, view)
    note = "; ".join(filter(None, (apart, _note(panels))))
    return frame.finish(figure, claim=_claim(panels, window), note=note)


def _of_one_time(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Keep the panels that share the time of the job, else of the first; name the others."""
    ends = table.groupby(table["panel"].astype(str)).agg(
        first=("start_ns", "min"), last=("end_ns", "max")
    )
    spans = {name: (int(ends["first"][name]), int(ends["last"][name]))
             for name in ("job", "step time", *_PANELS) if name in ends.index}  # fmt: skip
    kept, *others = time_groups(spans)
    days = [
        f"{' and '.join(names)} ({pd.Timestamp(spans[names[0]][0]):%Y-%m-%d})" for names in others
    ]
    apart = f"not drawn, as it {_SHARES_NO_TIME}: {', '.join(days)}" if others else ""
    return table[table["panel"].astype(str).isin(kept)], apart


@dataclass(frozen=True)
class _View:
    """The part of the table that is shown, and how."""

    window: tuple[int, int]
    max_points: int
    unit: tuple[float, str]
    lanes: Mapping[str, list[str]]


def _window(table: pd.DataFrame, first_ns: int | None, last_ns: int | None) -> tuple[int, int]:
    first = int(table["start_ns"].min()) if first_ns is None else int(first_ns)
    last = int(table["end_ns"].max()) if last_ns is None else int(last_ns)
    if last < first:
        msg = f"the window ends ({last} ns) before it begins ({first} ns)"
        raise ValueError(msg)
    return first, last


def _lanes(panel: pd.DataFrame) -> list[str]:
    """Name the lanes of a panel in order of first row, or rank; very many share the last."""
    names = panel.sort_values("start_ns", kind="stable")["lane"].unique().tolist()
    if panel["panel"].iloc[0] == "traces":
        names.sort(key=lambda name: (len(str(name)), str(name)))
    if len(names) <= _MOST_LANES:
        return [str(name) for name in names]
    return [*(str(name) for name in names[: _MOST_LANES - 1]), _OTHERS]


def _power(figure: go.Figure, row: int, panel: pd.DataFrame, view: _View) -> None:
    """Draw the sum, and each entity if they are few."""
    entities = [name for name in panel["lane"].unique().tolist() if name != _ALL]
    has_sum = bool((panel["lane"] == _ALL).any())
    if len(entities) > _MOST_ENTITIES and has_sum:
        entities = []
    names = [*([_ALL] if has_sum else []), *entities[: MAX_LINES - 1]]
    for position, name in enumerate(names):
        readings = panel[panel["lane"] == name]
        watts = readings["power_w"].to_numpy(dtype=np.float64) / view.unit[0]
        keep = extremes(watts, view.max_points)
        look = {**distinct(position), "width": 1.4}
        if name == _ALL:
            look = {"color": COLOURS["ink"], "dash": "solid", "width": 2.2}
        figure.add_scatter(
            x=utc(readings["start_ns"].to_numpy()[keep]),
            y=watts[keep],
            mode="lines",
            name=label(name, 24),
            line=look,
            hovertemplate=f"%{{y:,.4~g}} {view.unit[1]} at %{{x}}<extra>%{{fullData.name}}</extra>",
            row=row,
            col=1,
        )
    figure.update_yaxes(rangemode="tozero", row=row, col=1)


def _step_time(figure: go.Figure, row: int, panel: pd.DataFrame, view: _View) -> None:
    """Draw how long each step took, at its end."""
    panel = panel.sort_values("end_ns", kind="stable")
    took = panel["dur_s"].to_numpy(dtype=np.float64)
    keep = extremes(took, min(view.max_points, 2_000))
    figure.add_scatter(
        x=utc(panel["end_ns"].to_numpy()[keep]),
        y=took[keep],
        mode="markers",
        name="step",
        marker={"size": 4, "color": colour("productive"), "symbol": "circle"},
        hovertext=[
            f"{label(step['text'], 40)}, {label(step['lane'], 40)}"
            for step in panel.iloc[keep].to_dict("records")
        ],
        hovertemplate="%{hovertext}<br>%{y:.3~f} s<extra></extra>",
        showlegend=False,
        row=row,
        col=1,
    )
    figure.update_yaxes(rangemode="tozero", row=row, col=1)


def _bars(figure: go.Figure, row: int, panel: pd.DataFrame, view: _View) -> None:
    """Draw each span as a thick line in its lane, never thinner than a mark."""
    heights = _places(panel, view)
    limit = max(view.max_points // 3, 1)
    if len(panel) > limit:
        longest = (panel["end_ns"] - panel["start_ns"]).nlargest(limit).index
        is_longest = panel.index.isin(longest)
        panel, heights = panel[is_longest], heights[is_longest]
    first = utc(panel["start_ns"].clip(lower=view.window[0]))
    last = utc(panel["end_ns"].clip(upper=view.window[1]))
    words = [
        f"{label(span['text'], 60)}<br>{seconds((span['end_ns'] - span['start_ns']) / 1e9)}"
        for span in panel.to_dict("records")
    ]
    figure.add_scatter(
        x=np.stack([first, last, last], axis=1).ravel(),
        y=np.stack([heights, heights, np.full(len(panel), np.nan)], axis=1).ravel(),
        mode="lines+markers",
        name=str(panel["panel"].iloc[0]),
        line={"width": 9, "color": colour("neutral")},
        marker={"symbol": "line-ns-open", "size": 9, "color": colour("neutral")},
        hovertext=[word for word in words for _ in range(3)],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
        row=row,
        col=1,
    )


def _failures(figure: go.Figure, row: int, panel: pd.DataFrame, view: _View) -> None:
    """Draw each failure as a mark on its host; fatal ones stand out."""
    fatal = panel["text"].str.contains("(fatal)", regex=False).to_numpy()
    heights = _places(panel, view)
    for name, is_kind, symbol in (("fatal failure", fatal, "x"), ("other", ~fatal, "circle-open")):
        drawn = np.flatnonzero(is_kind)[: min(_MOST_FAILURES, view.max_points)]
        if not len(drawn):
            continue
        chosen = panel.iloc[drawn]
        figure.add_scatter(
            x=utc(chosen["start_ns"]),
            y=heights[drawn],
            mode="markers",
            name=name,
            marker={"symbol": symbol, "size": 11, "color": colour("limit"), "line": {"width": 1}},
            hovertext=[label(text, 80) for text in chosen["text"]],
            hovertemplate="%{hovertext}<br>%{x}<extra></extra>",
            showlegend=False,
            row=row,
            col=1,
        )
    for at in utc(np.unique(panel["start_ns"].to_numpy()[fatal])[:_MOST_RULES]):
        figure.add_shape(
            type="line", x0=at, x1=at, xref="x", y0=0, y1=1, yref="paper",
            line={"dash": "dot", "width": 1.2, "color": colour("limit")},
        )  # fmt: skip


_Draw = Callable[[go.Figure, int, pd.DataFrame, _View], None]
_DRAW: Mapping[str, _Draw] = {
    "power": _power, "step time": _step_time, "job": _bars, "failures": _failures, "traces": _bars,
}  # fmt: skip


def _places(panel: pd.DataFrame, view: _View) -> NDArray[np.float64]:
    lanes = view.lanes[str(panel["panel"].iloc[0])]
    number = {name: float(at) for at, name in enumerate(lanes)}
    return np.array([number.get(str(name), len(lanes) - 1.0) for name in panel["lane"]])


def _finish_axes(figure: go.Figure, panels: Mapping[str, pd.DataFrame], view: _View) -> None:
    """Name the lanes, and let all panels end at the same times."""
    window, lanes = view.window, view.lanes
    for row, name in enumerate(panels, start=1):
        if name in lanes:
            words = [label(lane, 20) for lane in lanes[name]]
            figure.update_yaxes(**row_axis(words, 0.4, 0.6), row=row, col=1)
    reach = max(window[1] - window[0], 1_000_000)
    ends = utc([window[0] - reach // 50, window[1] + reach // 50])
    figure.update_xaxes(type="date", range=[str(ends[0]), str(ends[1])])
    figure.update_xaxes(title="time [UTC]", row=len(panels), col=1)
    widest = [lane[:20] for names in lanes.values() for lane in names]
    figure.update_layout(hovermode="closest", margin_l=max(left_margin(widest) + 28, 84))


def _claim(panels: Mapping[str, pd.DataFrame], window: tuple[int, int]) -> str:
    phrases = [f"{seconds((window[1] - window[0]) / 1e9)} from {clock_time(window[0])} UTC"]
    if "power" in panels:
        power = panels["power"]
        lane = _ALL if (power["lane"] == _ALL).any() else power["lane"].iloc[0]
        watts = power.loc[power["lane"] == lane, "power_w"]
        if watts.notna().any():
            phrases.append(f"{amount(float(watts.min()))} to {amount(float(watts.max()))}")
    if "step time" in panels:
        phrases.append(plural(len(panels["step time"]), "step"))
    claim = ", ".join(phrases)
    if "failures" in panels:
        failures = panels["failures"].sort_values("start_ns", kind="stable")
        fatal = failures[failures["text"].str.contains("(fatal)", regex=False)]
        if len(fatal):
            first = str(fatal["text"].iloc[0]).removesuffix(" (fatal)")
            claim += f"; {clock_time(fatal['start_ns'].iloc[0])}: {label(first, 44)}"
    return claim


def _note(panels: Mapping[str, pd.DataFrame]) -> str:
    notes = []
    if "power" in panels:
        meters = panels["power"].loc[panels["power"]["lane"] != _ALL, "lane"].nunique()
        if meters > _MOST_ENTITIES:
            notes.append(f"{plural(meters, 'meter')}, of which only the sum is drawn")
        if unknown := int(panels["power"]["power_w"].isna().sum()):
            notes.append(f"{plural(unknown, 'reading')} or sums without power")
    if "failures" in panels:
        notes.append("dotted lines: fatal failures")
    return " · ".join(notes)
