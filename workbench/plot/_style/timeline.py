"""A window of a timeline, drawn from events that were sorted into lanes once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import KIND_ORDER, Indexed, indexed, lanes_of, merged
from workbench.plot._style.palette import PATTERNS
from workbench.plot._style.style import COLOURS, Frame, fill, left_margin
from workbench.plot._style.text import duration, label, plural, safe

# A few lanes get more height each, so that a figure of one rank is not a strip.
_LANE_PX, _WIDE_LANE_PX, _LANES_PX, _AXIS_PX = 20, 48, 240, 44
# An own clock would reach this many nanoseconds after 31 years without a restart.
_EPOCH_NS = range(10**18, 4 * 10**18)


class Prepared(NamedTuple):
    """A timeline sorted into lanes once, of which any window is drawn at once."""

    events: pd.DataFrame  # those of the chosen ranks
    items: Indexed
    lanes: pd.DataFrame
    lane_of_event: NDArray[np.int64]  # by position; -1 where an event is not drawn
    first_ns: int  # time 0 of the axis
    window_ns: tuple[int, int]  # from the first item to the last


def prepared(
    events: pd.DataFrame, *, ranks: Collection[int] | None = None, first_rank: int | None = None
) -> Prepared:
    """Sort the events of some ranks, or of all, for :func:`drawn`; one rank may come first."""
    chosen = events if ranks is None else events[events["rank"].isin(list(ranks))]
    items, lanes = lanes_of(chosen, first_rank)
    window = (int(items["start_ns"].min()), int(items["end_ns"].max())) if len(items) else (0, 0)
    first = int(events["start_ns"].min()) if len(events) else 0
    lane = np.full(len(chosen), -1)
    lane[items["row"]] = items["lane"]
    return Prepared(chosen, indexed(items), lanes, lane, first, window)


def drawn(
    view: Prepared, *, window_ns: tuple[int, int], max_points: int, frame: Frame
) -> go.Figure:
    """Draw a window; the hidden custom data of a bar is the position of its longest event."""
    if not len(view.items.row):
        return frame.nothing(
            "The selected ranks have neither GPU work nor operators to draw.",
            claim="No timeline to show",
        )
    first = view.first_ns
    start, end = window_ns
    bars = merged(view.items, start_ns=start, end_ns=end, limit=max_points)
    figure = Draft()
    for code, kind in enumerate(KIND_ORDER):
        if (of_kind := bars[bars["kind"] == code]).size:
            figure.add_bar(**_bar(of_kind, kind, names=view.events["name"], first_ns=first))
    _axes(figure, view.lanes, window_ms=[(ns - first) / 1e6 for ns in window_ns])
    note = _note(bars, view.lanes, first_ns=first)
    finished = frame.finish(figure, claim=_claim(bars, view), note=note)
    # The axis of time is seen before the last lane is.
    layout = finished.layout
    layout.margin.t, layout.height = layout.margin.t + _AXIS_PX, layout.height + _AXIS_PX
    return finished


def _bar(bars: pd.DataFrame, kind: str, *, names: pd.Series, first_ns: int) -> dict[str, Any]:
    low, high = heights(bars)
    marker = fill(kind, bars=len(bars))
    # A hairline of its own colour keeps a rectangle visible however narrow it is. It is darker
    # where bars are too many for the pattern that tells their kind apart without colour.
    is_plain = kind in PATTERNS and "pattern" not in marker
    halves = (int(marker["color"][at : at + 2], 16) // 2 for at in (1, 3, 5))
    dark = f"#{bytes(halves).hex()}"
    marker["line"] = {"width": 0.6, "color": dark if is_plain else marker["color"]}
    return {
        "name": kind,
        "orientation": "h",
        "base": ((bars["start_ns"] - first_ns) / 1e6).to_numpy(),
        "x": ((bars["end_ns"] - bars["start_ns"]) / 1e6).to_numpy(),
        "y": ((low + high) / 2).to_numpy(),
        "width": (high - low).to_numpy(),
        "marker": marker,
        "hovertext": _hover(bars, names),
        "customdata": bars["row"].to_numpy(),
        "hovertemplate": "%{hovertext}<extra>" + kind + "</extra>",
    }


def heights(bars: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the lower and the higher y of every rectangle; y grows downwards, a lane is 0.84 high.

    On a thread, operators have the upper half and runtime calls the lower.
    """
    runtime = bars["kind"] == KIND_ORDER.index("runtime call")
    host = runtime | (bars["kind"] == KIND_ORDER.index("operator"))
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
    # The rank is named at its first lane only; below it the streams and threads speak.
    is_first = ~drawn["rank"].duplicated()
    labels = [
        f"<b>rank {rank}</b>  {safe(text)}" if top else safe(text)
        for rank, text, top in zip(drawn["rank"], drawn["label"], is_first, strict=True)
    ]
    figure.update_layout(
        barmode="overlay",
        height=(height := len(drawn) * lane_px(len(drawn))),
        margin_b=52,
        legend_y=1 + _AXIS_PX / height,
        margin_l=left_margin(f"rank 0  {text}" for text in drawn["label"]),
        hovermode="closest",
    )
    figure.update_xaxes(
        title="time since the first event [ms]", range=window_ms, tickformat=",", side="top"
    )
    lanes_range = [len(drawn) - 0.5, -0.5]  # from the top down
    ticks = {"tickvals": drawn["lane"].tolist(), "ticktext": labels}
    figure.update_yaxes(**ticks, range=lanes_range, showgrid=False)
    # All at once: a line added by itself takes longer than a thousand rectangles.
    separator = {"type": "line", "xref": "paper", "x0": 0, "x1": 1}
    separator["line"] = {"width": 1, "color": COLOURS["separator"]}
    tops = [lane - 0.5 for lane in drawn.loc[is_first, "lane"].tolist()[1:]]
    figure.update_layout(shapes=[separator | {"y0": top, "y1": top} for top in tops])


def lane_px(lanes: int) -> int:
    return min(max(_LANES_PX // max(lanes, 1), _LANE_PX), _WIDE_LANE_PX)


def _claim(bars: pd.DataFrame, view: Prepared) -> str:
    if bars.empty:
        return "Nothing happens in this window"
    on_gpu = bars[bars["kind"] < KIND_ORDER.index("operator")]
    longest = (bars if on_gpu.empty else on_gpu).sort_values("longest_ns").iloc[-1]
    where = "host" if on_gpu.empty else "GPU"
    name = label(view.events["name"].iloc[int(longest["row"])], 40)
    ranks = plural(view.events["rank"].nunique(), "rank")
    return f"{ranks}: the longest {where} work, {name}, takes {duration(longest['longest_ns'])}"


def _note(bars: pd.DataFrame, lanes: pd.DataFrame, *, first_ns: int) -> str:
    """Describe when time 0 is, how many events share a rectangle and which lanes are missing."""
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
