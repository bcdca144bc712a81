"""Power, steps, spans, failures and traces below each other on one axis of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.bars import stacked_panels
from workbench.plot._style.lanes import MAX_POINTS, extremes
from workbench.plot._style.style import COLOURS, MAX_LINES, Frame, colour, distinct, left_margin
from workbench.plot._style.text import amount, clock_time, label, plural, power_unit, seconds, utc
from workbench.tables import FLEET_TIMELINE

_ALL = "all entities"
_MOST_ENTITIES = 6  # more lines hide each other; the sum stays
_MOST_LANES, _MOST_FAILURES, _MOST_RULES = 12, 400, 12
_LANE_PX, _LEAST_PX = 20, 56
_HEIGHTS = {"power": 210, "step time": 110}
_PANELS = ("power", "step time", "job", "failures", "traces")
_OTHERS = "others"


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
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        Panels from top to bottom: power of all and of each entity, time of each step, spans of the
        job, failures by host, and what traces cover; those without rows are dropped. Zooming one
        zooms all. Dashed lines mark fatal failures through all panels. The title states the span,
        the range of power, and the first fatal failure.

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
    window = _window(table, first_ns, last_ns)
    shown = table[(table["end_ns"] >= window[0]) & (table["start_ns"] <= window[1])]
    parts = {name: shown[shown["panel"] == name] for name in _PANELS}
    parts = {name: part for name, part in parts.items() if len(part)}
    if not parts:
        why = "Between these times nothing was measured or told."
        return frame.nothing(why, claim="Nothing in this window")
    lanes = {name: _lanes(part) for name, part in parts.items() if name not in _HEIGHTS}
    unit = power_unit(float(table["power_w"].max()))
    view = _View(window, max(int(max_points), 4), unit, lanes)
    heights = [
        _HEIGHTS.get(name) or max(_LANE_PX * len(lanes[name]) + 14, _LEAST_PX) for name in parts
    ]
    titles = {"power": f"power [{view.unit[1]}]", "step time": "step [s]"}
    figure = stacked_panels([titles.get(name, name) for name in parts], heights)
    for row, (name, part) in enumerate(parts.items(), start=1):
        _DRAW[name](figure, row, part, view)
    _finish_axes(figure, parts, view)
    note = _note(parts)
    return frame.finish(figure, claim=_claim(parts, window), note=note)


@dataclass(frozen=True)
class _View:
    """What is shown of the table, and how."""

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


def _lanes(part: pd.DataFrame) -> list[str]:
    """Name the lanes of a panel in order of first row, or rank; very many share the last."""
    names = part.sort_values("start_ns", kind="stable")["lane"].unique().tolist()
    if part["panel"].iloc[0] == "traces":
        names.sort(key=lambda name: (len(str(name)), str(name)))
    if len(names) <= _MOST_LANES:
        return [str(name) for name in names]
    return [*(str(name) for name in names[: _MOST_LANES - 1]), _OTHERS]


def _power(figure: go.Figure, row: int, part: pd.DataFrame, view: _View) -> None:
    """Draw the sum, and each entity if they are few."""
    each = [name for name in part["lane"].unique().tolist() if name != _ALL]
    has_sum = bool((part["lane"] == _ALL).any())
    if len(each) > _MOST_ENTITIES and has_sum:
        each = []
    names = [*([_ALL] if has_sum else []), *each[: MAX_LINES - 1]]
    for position, name in enumerate(names):
        mine = part[part["lane"] == name]
        watts = mine["power_w"].to_numpy(dtype=np.float64) / view.unit[0]
        keep = extremes(watts, view.max_points)
        look = {**distinct(position), "width": 1.4}
        if name == _ALL:
            look = {"color": COLOURS["ink"], "dash": "solid", "width": 2.2}
        figure.add_scatter(
            x=utc(mine["start_ns"].to_numpy()[keep]),
            y=watts[keep],
            mode="lines",
            name=label(name, 24),
            line=look,
            hovertemplate=f"%{{y:,.4~g}} {view.unit[1]} at %{{x}}<extra>%{{fullData.name}}</extra>",
            row=row,
            col=1,
        )
    figure.update_yaxes(rangemode="tozero", row=row, col=1)


def _step_time(figure: go.Figure, row: int, part: pd.DataFrame, view: _View) -> None:
    """Draw how long each step took, at its end."""
    part = part.sort_values("end_ns", kind="stable")
    took = part["dur_s"].to_numpy(dtype=np.float64)
    keep = extremes(took, min(view.max_points, 2_000))
    figure.add_scatter(
        x=utc(part["end_ns"].to_numpy()[keep]),
        y=took[keep],
        mode="markers",
        name="step",
        marker={"size": 4, "color": colour("productive"), "symbol": "circle"},
        hovertext=[
            f"{label(step['text'], 40)}, {label(step['lane'], 40)}"
            for step in part.iloc[keep].to_dict("records")
        ],
        hovertemplate="%{hovertext}<br>%{y:.3~f} s<extra></extra>",
        showlegend=False,
        row=row,
        col=1,
    )
    figure.update_yaxes(rangemode="tozero", row=row, col=1)


def _bars(figure: go.Figure, row: int, part: pd.DataFrame, view: _View) -> None:
    """Draw each span as a thick line in its lane, never thinner than a mark."""
    place = _places(part, view)
    limit = max(view.max_points // 3, 1)
    if len(part) > limit:
        longest = (part["end_ns"] - part["start_ns"]).nlargest(limit).index
        mine = part.index.isin(longest)
        part, place = part[mine], place[mine]
    first = utc(part["start_ns"].clip(lower=view.window[0]))
    last = utc(part["end_ns"].clip(upper=view.window[1]))
    words = [
        f"{label(span['text'], 60)}<br>{seconds((span['end_ns'] - span['start_ns']) / 1e9)}"
        for span in part.to_dict("records")
    ]
    figure.add_scatter(
        x=np.stack([first, last, last], axis=1).ravel(),
        y=np.stack([place, place, np.full(len(part), np.nan)], axis=1).ravel(),
        mode="lines+markers",
        name=str(part["panel"].iloc[0]),
        line={"width": 9, "color": colour("neutral")},
        marker={"symbol": "line-ns-open", "size": 9, "color": colour("neutral")},
        hovertext=[word for word in words for _ in range(3)],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
        row=row,
        col=1,
    )


def _failures(figure: go.Figure, row: int, part: pd.DataFrame, view: _View) -> None:
    """Draw each failure as a mark on its host; fatal ones stand out."""
    fatal = part["text"].str.contains("(fatal)", regex=False).to_numpy()
    place = _places(part, view)
    for name, mine, symbol in (("fatal failure", fatal, "x"), ("other", ~fatal, "circle-open")):
        some = np.flatnonzero(mine)[: min(_MOST_FAILURES, view.max_points)]
        if not len(some):
            continue
        chosen = part.iloc[some]
        figure.add_scatter(
            x=utc(chosen["start_ns"]),
            y=place[some],
            mode="markers",
            name=name,
            marker={"symbol": symbol, "size": 11, "color": colour("limit"), "line": {"width": 1}},
            hovertext=[label(text, 80) for text in chosen["text"]],
            hovertemplate="%{hovertext}<br>%{x}<extra></extra>",
            showlegend=False,
            row=row,
            col=1,
        )
    for at in utc(np.unique(part["start_ns"].to_numpy()[fatal])[:_MOST_RULES]):
        figure.add_shape(
            type="line", x0=at, x1=at, xref="x", y0=0, y1=1, yref="paper",
            line={"dash": "dot", "width": 1.2, "color": colour("limit")},
        )  # fmt: skip


_Draw = Callable[[go.Figure, int, pd.DataFrame, _View], None]
_DRAW: Mapping[str, _Draw] = {
    "power": _power, "step time": _step_time, "job": _bars, "failures": _failures, "traces": _bars,
}  # fmt: skip


def _places(part: pd.DataFrame, view: _View) -> NDArray[np.float64]:
    lanes = view.lanes[str(part["panel"].iloc[0])]
    number = {name: float(at) for at, name in enumerate(lanes)}
    return np.array([number.get(str(name), len(lanes) - 1.0) for name in part["lane"]])


def _finish_axes(figure: go.Figure, parts: Mapping[str, pd.DataFrame], view: _View) -> None:
    """Name the lanes, and let all panels end at the same times."""
    window, lanes = view.window, view.lanes
    for row, name in enumerate(parts, start=1):
        if name in lanes:
            words = [label(lane, 20) for lane in lanes[name]]
            ticks = {"tickvals": list(range(len(words))), "ticktext": words}
            figure.update_yaxes(**ticks, range=[len(words) - 0.4, -0.6], row=row, col=1)
    reach = max(window[1] - window[0], 1_000_000)
    ends = utc([window[0] - reach // 50, window[1] + reach // 50])
    figure.update_xaxes(type="date", range=[str(ends[0]), str(ends[1])])
    figure.update_xaxes(title="time [UTC]", row=len(parts), col=1)
    widest = [lane[:20] for each in lanes.values() for lane in each]
    figure.update_layout(hovermode="closest", margin_l=max(left_margin(widest) + 28, 84))


def _claim(parts: Mapping[str, pd.DataFrame], window: tuple[int, int]) -> str:
    said = [f"{seconds((window[1] - window[0]) / 1e9)} from {clock_time(window[0])} UTC"]
    if "power" in parts:
        power = parts["power"]
        lane = _ALL if (power["lane"] == _ALL).any() else power["lane"].iloc[0]
        watts = power.loc[power["lane"] == lane, "power_w"]
        if watts.notna().any():
            said.append(f"{amount(float(watts.min()))} to {amount(float(watts.max()))}")
    if "step time" in parts:
        said.append(plural(len(parts["step time"]), "step"))
    claim = ", ".join(said)
    if "failures" in parts:
        told = parts["failures"].sort_values("start_ns", kind="stable")
        fatal = told[told["text"].str.contains("(fatal)", regex=False)]
        if len(fatal):
            first = str(fatal["text"].iloc[0]).removesuffix(" (fatal)")
            claim += f"; {clock_time(fatal['start_ns'].iloc[0])}: {label(first, 44)}"
    return claim


def _note(parts: Mapping[str, pd.DataFrame]) -> str:
    notes = []
    if "power" in parts:
        each = parts["power"].loc[parts["power"]["lane"] != _ALL, "lane"].nunique()
        if each > _MOST_ENTITIES:
            notes.append(f"{plural(each, 'meter')}, of which only the sum is drawn")
        if unknown := int(parts["power"]["power_w"].isna().sum()):
            notes.append(f"{plural(unknown, 'reading')} or sums without power")
    if "failures" in parts:
        notes.append("dotted lines: fatal failures")
    return " · ".join(notes)
