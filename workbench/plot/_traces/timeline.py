"""The timeline: what every stream and thread did when, from a handful of events to millions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style import lanes as _lanes
from workbench.plot._style.style import COLOURS, Frame, colour, fill, left_margin
from workbench.plot._style.text import duration, label, plural, safe
from workbench.tables import EVENTS

if TYPE_CHECKING:
    import holoviews as hv

# A few lanes get more height each, so that a figure of one rank is no strip.
_LANE_PX, _WIDE_LANE_PX, _LANES_PX = 20, 48, 240
# An own clock would reach this many nanoseconds after 31 years without a restart.
_EPOCH_NS = range(10**18, 4 * 10**18)


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
    coloured area is always busy time. The longest events are never merged. A narrower window shows
    more of them one by one.

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
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar trace per kind of work; time in ms since the first event. The title names the
        longest event in the window.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> path = datasets.path("fleet-demo") / "traces" / "synthetic_rank_0.pt.trace.json.gz"
    >>> events = load.traces(path).events
    >>> figure = timeline(events, source="fleet-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    1 rank: the longest GPU work, ncclDevKernel_AllGather_RING_LL, takes 43.1 ms
    """
    frame = Frame(source, synthetic)
    EVENTS.check(events)
    chosen = events if ranks is None else events[events["rank"].isin(list(ranks))]
    items, lanes = _lanes.lanes_of(chosen)
    if items.empty:
        return frame.nothing(
            "The selected ranks have neither GPU work nor operators to draw.",
            claim="No timeline to show",
        )
    first = int(events["start_ns"].min())
    window = (
        int(items["start_ns"].min()) if start_ns is None else start_ns,
        int(items["end_ns"].max()) if end_ns is None else end_ns,
    )
    bars = _lanes.merged(items, start_ns=window[0], end_ns=window[1], limit=max_points)
    figure = go.Figure()
    for code, kind in enumerate(_lanes.KIND_ORDER):
        if (of_kind := bars[bars["kind"] == code]).size:
            figure.add_bar(**_bar(of_kind, kind, names=chosen["name"], first_ns=first))
    _axes(figure, lanes, window_ms=[(ns - first) / 1e6 for ns in window])
    return frame.finish(figure, claim=_claim(bars, chosen), note=_note(bars, lanes, first_ns=first))


def _bar(bars: pd.DataFrame, kind: str, *, names: pd.Series, first_ns: int) -> dict[str, Any]:
    low, high = _heights(bars)
    return {
        "name": kind,
        "orientation": "h",
        "base": ((bars["start_ns"] - first_ns) / 1e6).to_numpy(),
        "x": ((bars["end_ns"] - bars["start_ns"]) / 1e6).to_numpy(),
        "y": ((low + high) / 2).to_numpy(),
        "width": (high - low).to_numpy(),
        # A hairline of its own colour keeps a rectangle visible however narrow it is.
        "marker": fill(kind, bars=len(bars)) | {"line": {"width": 0.6, "color": colour(kind)}},
        "hovertext": _hover(bars, names),
        "hovertemplate": "%{hovertext}<extra>" + kind + "</extra>",
    }


def _heights(bars: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Give the lower and the higher y of every rectangle; y grows downwards, a lane is 0.84 high.

    On a thread, operators have the upper half and runtime calls the lower.
    """
    runtime = bars["kind"] == _lanes.KIND_ORDER.index("runtime call")
    host = runtime | (bars["kind"] == _lanes.KIND_ORDER.index("operator"))
    height = host.map({True: 0.42, False: 0.84})
    floor = bars["lane"] + 0.42 - (host & ~runtime) * 0.42
    high = floor - bars["bottom_share"] * height
    return high - (bars["height_share"] * height).clip(lower=0.05), high


def _hover(bars: pd.DataFrame, names: pd.Series) -> list[str]:
    texts = []
    columns = ["row", "count", "busy_ns", "start_ns", "end_ns", "longest_ns"]
    # Each name once: shortening a name costs more than drawing its rectangles.
    labels = {
        code: label(names.cat.categories[code], 100)
        for code in np.unique(names.cat.codes.to_numpy()[bars["row"]])
    }
    codes = names.cat.codes.to_numpy()
    for row, count, busy, start, end, longest in bars[columns].itertuples(index=False, name=None):
        name = labels[codes[row]]
        if count == 1:
            texts.append(f"{name}<br>{duration(longest)}")
        else:
            texts.append(
                f"{count:,} merged, {duration(busy)} busy in {duration(end - start)}"
                f"<br>longest: {name}, {duration(longest)}"
            )
    return texts


def _axes(figure: go.Figure, lanes: pd.DataFrame, *, window_ms: list[float]) -> None:
    drawn = lanes[lanes["lane"].notna()]
    # The rank stands beside its first lane only; below it the streams and threads speak.
    is_first = ~drawn["rank"].duplicated()
    labels = [
        f"<b>rank {rank}</b>  {safe(text)}" if top else safe(text)
        for rank, text, top in zip(drawn["rank"], drawn["label"], is_first, strict=True)
    ]
    figure.update_layout(
        barmode="overlay",
        height=len(drawn) * _lane_px(len(drawn)),
        margin_l=left_margin(f"rank 0  {text}" for text in drawn["label"]),
        hovermode="closest",
    )
    figure.update_xaxes(title="time since the first event [ms]", range=window_ms, tickformat=",")
    lanes_range = [len(drawn) - 0.5, -0.5]  # from the top down
    ticks = {"tickvals": drawn["lane"].tolist(), "ticktext": labels}
    figure.update_yaxes(**ticks, range=lanes_range, showgrid=False)
    for lane in drawn.loc[is_first, "lane"].tolist()[1:]:
        figure.add_hline(y=lane - 0.5, line_width=1, line_color=COLOURS["separator"])


def _lane_px(lanes: int) -> int:
    return min(max(_LANES_PX // max(lanes, 1), _LANE_PX), _WIDE_LANE_PX)


def _claim(bars: pd.DataFrame, events: pd.DataFrame) -> str:
    if bars.empty:
        return "Nothing happens in this window"
    on_gpu = bars[bars["kind"] < _lanes.KIND_ORDER.index("operator")]
    longest = (bars if on_gpu.empty else on_gpu).sort_values("longest_ns").iloc[-1]
    where = "host" if on_gpu.empty else "GPU"
    name = label(events["name"].iloc[int(longest["row"])], 40)
    ranks = plural(events["rank"].nunique(), "rank")
    return f"{ranks}: the longest {where} work, {name}, takes {duration(longest['longest_ns'])}"


def _note(bars: pd.DataFrame, lanes: pd.DataFrame, *, first_ns: int) -> str:
    """Say when time 0 is, how many events share a rectangle and which lanes are missing."""
    notes = []
    if first_ns in _EPOCH_NS:
        notes.append(
            f"0 ms is {pd.Timestamp(first_ns, unit='ns', tz='UTC'):%Y-%m-%d %H:%M:%S.%f} UTC"
        )
    if shared := int(bars.loc[bars["count"] > 1, "count"].sum()):
        notes.append(f"{shared:,} short events share rectangles as high as their busy share")
    if hidden := int(lanes["lane"].isna().sum()):
        missing = set(lanes["rank"]) - set(lanes.loc[lanes["lane"].notna(), "rank"])
        ranks = f", among them all of {plural(len(missing), 'rank')}" if missing else ""
        threads = lanes.loc[lanes["lane"].isna(), "label"].str.startswith("thread").all()
        notes.append(f"{plural(hidden, 'thread' if threads else 'lane')} dropped{ranks}")
    return " · ".join(notes)


def timeline_live(
    events: pd.DataFrame, *, ranks: Collection[int] | None = None, max_points: int = 4_000
) -> hv.DynamicMap:
    """Show the timeline so that zooming in reveals ever finer events.

    Needs a running kernel: each zoom or pan merges the events anew for the visible window, so that
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

    Examples
    --------
    >>> from workbench import datasets, load
    >>> path = datasets.path("fleet-demo") / "traces" / "synthetic_rank_0.pt.trace.json.gz"
    >>> shown = timeline_live(load.traces(path).events)
    >>> type(shown).__name__
    'DynamicMap'
    """
    import holoviews as hv

    EVENTS.check(events)
    # Each time, not once: a page that was opened anew has lost what a former cell loaded.
    hv.extension("bokeh", inline=True, logo=False)
    chosen = events if ranks is None else events[events["rank"].isin(list(ranks))]
    items, lanes = _lanes.lanes_of(chosen)
    first = int(events["start_ns"].min()) if len(events) else 0
    span_ms = (int(items["end_ns"].max()) - first) / 1e6 if len(items) else 1.0
    options = _bokeh_options(hv, lanes, span_ms=span_ms)

    def draw(x_range: tuple[float, float] | None) -> hv.Rectangles:
        left, right = (0.0, span_ms) if x_range is None else x_range
        start_ns, end_ns = first + int(left * 1e6), first + int(np.ceil(right * 1e6))
        view = _lanes.merged(items, start_ns=start_ns, end_ns=end_ns, limit=max_points)
        return hv.Rectangles(
            _rectangles(view, names=chosen["name"], first_ns=first),
            kdims=["time_ms", "low", "end_ms", "high"],
            vdims=["kind", "colour", "event", "count", "longest", "busy"],
        ).opts(*options)

    return hv.DynamicMap(draw, streams=[hv.streams.RangeX()])


def _rectangles(bars: pd.DataFrame, *, names: pd.Series, first_ns: int) -> pd.DataFrame:
    low, high = _heights(bars)
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
            min_height=len(ticks) * _lane_px(len(ticks)) + 80,
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
