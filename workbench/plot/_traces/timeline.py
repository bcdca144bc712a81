"""The timeline: what every stream and thread did when, from a handful of events to millions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench._shared.extras import need
from workbench.plot._style import lanes as _lanes
from workbench.plot._style.style import Frame, colour
from workbench.plot._style.text import duration
from workbench.plot._style.timeline import drawn, heights, lane_px, prepared
from workbench.tables import EVENTS

if TYPE_CHECKING:
    import holoviews as hv


def timeline(  # noqa: PLR0913 - a window in time has two ends
    events: pd.DataFrame,
    *,
    ranks: Collection[int] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    max_points: int = 5_000,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Draw GPU work per stream and host work per thread over time.

    A full-height rectangle is one event. Where events are narrower than the picture can show, those
    of one short interval share a rectangle per kind, as high as their busy share, so that the
    coloured area is always busy time. Events as long as such an interval are never merged. A
    narrower window shows more of them one by one.

    One bar trace per kind of work; time in ms since the first event. The title names the
    longest event in the window.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, or some of its rows.
    ranks
        Ranks to draw; all by default. The first 40 lanes are drawn, streams before threads, and the
        figure says how many were dropped.
    start_ns
        Start of the window in the clock of ``events``; the first event by default.
    end_ns
        End of the window; the end of the last event by default.
    max_points
        Rectangles to draw at most.
    """
    EVENTS.check(events)
    view = prepared(events, ranks=ranks)
    start, end = view.window_ns
    window = (start if start_ns is None else start_ns, end if end_ns is None else end_ns)
    return drawn(view, window_ns=window, max_points=max_points, frame=Frame(source, synthetic))


def timeline_live(
    events: pd.DataFrame, *, ranks: Collection[int] | None = None, max_points: int = 4_000
) -> hv.DynamicMap:
    """Show the timeline so that zooming in reveals ever finer events.

    Needs a running kernel: each zoom or pan merges the events again for the visible window, so that
    millions of them stay smooth and the browser holds a few thousand.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, or some of its rows.
    ranks
        Ranks to draw; all by default.
    max_points
        Rectangles in view at most.

    Returns
    -------
    holoviews.DynamicMap
        Rectangles for the bokeh backend. Its scripts come with the output, because their network
        address may not be reachable; they add 6 MB to a saved notebook.
    """
    need("holoviews", extra="lab", purpose="zooming into a timeline")
    import holoviews as hv

    EVENTS.check(events)
    # Each time, not once: a page that was opened again has lost what a former cell loaded.
    hv.extension("bokeh", inline=True, logo=False)
    view = prepared(events, ranks=ranks)
    first, index = view.first_ns, view.items
    span_ms = (view.window_ns[1] - first) / 1e6 if len(index.row) else 1.0
    options = _bokeh_options(hv, view.lanes, span_ms=span_ms)

    def draw(x_range: tuple[float, float] | None) -> hv.Rectangles:
        left, right = (0.0, span_ms) if x_range is None else x_range
        start_ns, end_ns = first + int(left * 1e6), first + int(np.ceil(right * 1e6))
        bars = _lanes.merged(index, start_ns=start_ns, end_ns=end_ns, limit=max_points)
        return hv.Rectangles(
            _rectangles(bars, names=view.events["name"], first_ns=first),
            kdims=["time_ms", "low", "end_ms", "high"],
            vdims=["kind", "colour", "event", "count", "longest", "busy"],
        ).opts(*options)

    return hv.DynamicMap(draw, streams=[hv.streams.RangeX()])


def _rectangles(bars: pd.DataFrame, *, names: pd.Series, first_ns: int) -> pd.DataFrame:
    low, high = heights(bars)
    kind = bars["kind"].map(dict(enumerate(_lanes.KIND_ORDER)))
    return pd.DataFrame(
        {
            "time_ms": (bars["start_ns"] - first_ns) / 1e6,
            "low": low,
            "end_ms": (bars["end_ns"] - first_ns) / 1e6,
            "high": high,
            "kind": kind,
            "colour": kind.map(colour),
            "event": names.iloc[bars["row"].to_numpy()].astype(str).to_numpy(),
            "count": bars["count"],
            "longest": bars["longest_ns"].map(duration),
            "busy": bars["busy_ns"].map(duration),
        }
    )


def _bokeh_options(hv: Any, lanes: pd.DataFrame, *, span_ms: float) -> list[Any]:
    drawn = lanes[lanes["lane"].notna()]
    ticks = [
        (int(lane), f"rank {rank} · {text}")
        for lane, rank, text in zip(drawn["lane"], drawn["rank"], drawn["label"], strict=True)
    ]
    return [
        hv.opts.Rectangles(
            color="colour",
            line_color="colour",
            line_width=0.6,
            responsive=True,
            min_height=len(ticks) * lane_px(len(ticks)) + 80,
            invert_yaxis=True,
            yticks=ticks,
            xlim=(0.0, span_ms),
            ylim=(-0.5, len(ticks) - 0.5),
            xlabel="time since the first event [ms]",
            ylabel="",
            title="Timeline: zoom in to see shorter events",
            default_tools=["save", "reset"],
            tools=["xwheel_zoom", "xpan", "xbox_zoom", "hover"],
            active_tools=["xwheel_zoom", "xpan"],
            hover_tooltips=["kind", "event", "count", "longest", "busy"],
            backend="bokeh",
        )
    ]
