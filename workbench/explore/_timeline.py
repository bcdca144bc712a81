"""Timelines: of a whole trace, to zoom and search, and of a fleet, all its logs on one axis."""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, load, plot
from workbench.errors import WorkbenchError
from workbench.explore.panel import ALL, Explorer, choice, rank_choice, slider
from workbench.explore.view import as_json
from workbench.plot._style.style import COLOURS, Frame
from workbench.plot._style.text import duration, label
from workbench.plot._style.timeline import Prepared, drawn, prepared
from workbench.tables import EVENTS, FLEET_TIMELINE, Trace

_STILL_BARS, _LIVE_BARS = 1_500, 2_500
# Marks beyond these could not be told apart, and rows beyond those would not be read.
_MOST_MARKS, _MOST_LISTED = 500, 10
_OVERVIEW, _LATE = "whole trace", "others wait for this rank"
# A match is shown in the middle of a window this many times as long as it is.
_AROUND = 20


def timeline(trace: Trace, *, source: str = "", synthetic: bool = False) -> TimelineExplorer:
    """Zoom through a whole trace, search it by name, and follow what an event depends on.

    Starts with everything; the rank that delays the others most is on top. *window* offers the ten
    most telling windows, each with its reason. With a running kernel the mouse zooms and pans, each
    time with the events of that window alone, so that a million events stay smooth; a click on an
    event marks what it depends on; *search* marks and lists the events whose name contains a text,
    and the arrows go from one to the next; *save* writes the events in view as a Chrome trace, one
    file per rank, which Perfetto (ui.perfetto.dev) opens.

    Controls above :func:`workbench.plot.timeline`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    """
    return TimelineExplorer(trace, Frame(source, synthetic))


class TimelineExplorer(Explorer):
    """An explorer whose figure also answers the mouse, and whose events can be searched.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    frame
        Source of the figure, and whether it is synthetic.

    Attributes
    ----------
    rank : ipywidgets.Dropdown
        Ranks to draw.
    search : ipywidgets.Text
        Part of a name; capitals do not matter.
    back, onward, save : ipywidgets.Button
        To the match before and the next one; write what is in view.
    path : ipywidgets.Text
        File that *save* writes.
    notes : ipywidgets.HTML
        Matches, what the chosen event depends on, and what was written.
    window_ns : tuple of int
        Start and end of what is in view.
    """

    def __init__(self, trace: Trace, frame: Frame) -> None:
        self.trace, self.frame = trace, frame
        self.rank = rank_choice(trace)
        self.search = widgets.Text(description="search", continuous_update=False)
        self.back = widgets.Button(icon="arrow-left", tooltip="previous match")
        self.onward = widgets.Button(icon="arrow-right", tooltip="next match")
        self.path = widgets.Text("window.json.gz", description="file")
        self.save = widgets.Button(description="Save window", icon="save")
        self.notes = widgets.HTML()
        windows = analyze.telling_windows(trace.events, process_groups=trace.process_groups)
        self.windows = _records(windows)
        self._prepared = cache(self._prepare)
        self.view = self._prepared(ALL)
        self.window_ns = self.view.window_ns
        self.matches, self.chosen = np.zeros(0, dtype=np.int64), -1
        options = [(_OVERVIEW, -1), *((_words(row), n) for n, row in enumerate(self.windows))]
        tools = [self.rank, self.search, self.back, self.onward, self.path, self.save]
        super().__init__(
            self._figure, window=widgets.Dropdown(options=options, description="window")
        )
        self.out.on_zoom, self.out.on_click = self._zoom, self.choose
        row, message, out = self.children  # type: ignore[has-type]
        self.children = (
            row, widgets.HBox(tools, layout={"flex_flow": "row wrap"}), message, self.notes, out,
        )  # fmt: skip
        self.rank.observe(lambda _change: self._pick_rank(), names="value")
        self.search.observe(lambda _change: self.find(self.search.value), names="value")
        self.back.on_click(lambda _button: self.step(-1))
        self.onward.on_click(lambda _button: self.step(1))
        self.save.on_click(lambda _button: self.write(self.path.value))

    def show(self, window_ns: tuple[int, int]) -> None:
        """Draw the events between two times."""
        self.window_ns = window_ns
        figure = drawn(self.view, window_ns=window_ns, max_points=_LIVE_BARS, frame=self.frame)
        self._mark(figure)
        # The view keeps the zoom of a hand as long as this stays the same.
        figure.layout.xaxis.uirevision = str(window_ns)
        self.out.show(as_json(figure))

    def find(self, text: str) -> None:
        """Mark and list the events in the lanes whose name contains a text."""
        names, view = self.view.events["name"].cat, self.view
        wanted = names.categories.astype(str).str.contains(text, case=False, regex=False)
        is_match = np.append(wanted & bool(text), False)[names.codes.to_numpy()]
        self.matches = np.flatnonzero(is_match & (view.lane_of_event >= 0))
        self.chosen = -1
        head = f"{len(self.matches):,} drawn events contain {text!r}; the longest:" if text else ""
        self._note(head, view.events.iloc[self.matches].nlargest(_MOST_LISTED, "dur_ns"))
        self.show(self.window_ns)

    def step(self, by: int) -> None:
        """Show the next match, or the one before, in the middle of a narrow window."""
        if not len(self.matches):
            return
        starts = self.view.events["start_ns"].to_numpy()
        order = self.matches[np.argsort(starts[self.matches], kind="stable")]
        at = sum(self.window_ns) // 2 if self.chosen < 0 else starts[self.chosen]
        place = int(starts[order].searchsorted(at, side="right" if by > 0 else "left"))
        self.choose(int(order[(place - (by < 0)) % len(order)]))

    def choose(self, row: int) -> None:
        """Mark an event, given by its position among those drawn, and what it depends on."""
        self.chosen = row
        event = self.view.events.iloc[row]
        length, (low, high) = int(event["dur_ns"]), self.window_ns
        if not low <= event["start_ns"] <= high or length * _AROUND**2 < high - low:
            middle, reach = int(event["start_ns"]) + length // 2, max(length * _AROUND // 2, 1_000)
            self.window_ns = (middle - reach, middle + reach)
        self._note(f"{label(str(event['name']), 100)}:", self._links())
        self.show(self.window_ns)

    def write(self, path: str) -> list[Path]:
        """Write the events that overlap the view as Chrome traces, one per rank in view."""
        low, high = self.window_ns
        events = self.view.events
        reaches = events["start_ns"] + events["dur_ns"] >= low
        events = events[(events["start_ns"] <= high) & reaches]
        target, ranks = Path(path), events["rank"].unique().tolist()
        stem, ends = target.name.partition(".")[::2]
        written = []
        try:
            for rank in ranks:
                name = target.name if len(ranks) == 1 else f"{stem}_rank{rank}.{ends}"
                of_rank = events[events["rank"] == rank]
                file, made = target.with_name(name), self.frame.synthetic
                written.append(load.write_chrome_trace(of_rank, file, synthetic=made))
        except (OSError, WorkbenchError) as error:
            self.message.value = f"<b>Not written:</b> {html.escape(str(error))}"
        names = ", ".join(str(file) for file in written) or "nothing, for nothing is in view"
        self._note(f"written: {names}", EVENTS.empty())
        return written

    def _prepare(self, rank: int | str) -> Prepared:
        # Of many ranks the first screen shows a few: the one that delays the others is among them.
        late = next((int(row.rank) for row in self.windows if row.reason == _LATE), None)
        ranks = None if rank == ALL else [int(rank)]
        return prepared(self.trace.events, ranks=ranks, first_rank=late)

    def _figure(self, *, window: int) -> go.Figure:
        rank, span = self._chosen_window(window)
        view = self._prepared(rank)
        return drawn(view, window_ns=span, max_points=_STILL_BARS, frame=self.frame)

    def _chosen_window(self, window: int) -> tuple[int | str, tuple[int, int]]:
        if window < 0:
            return ALL, self._prepared(ALL).window_ns
        chosen: Any = self.windows[window]
        return int(chosen.rank), (int(chosen.start_ns), int(chosen.end_ns))

    def _redraw(self, _change: Any = None) -> None:
        rank, self.window_ns = self._chosen_window(self.controls["window"].value)
        if rank == self.rank.value:
            self.show(self.window_ns)
        self.rank.value = rank

    def _pick_rank(self) -> None:
        self.view = self._prepared(self.rank.value)
        self.find(self.search.value)

    def _zoom(self, span_ms: tuple[float, float] | None) -> None:
        low, high = self.view.window_ns
        if span_ms is not None:
            low, high = (self.view.first_ns + round(float(at) * 1e6) for at in span_ms)
        self.show((low, max(high, low + 1)))

    def _links(self) -> pd.DataFrame:
        label_of_chosen = int(self.view.events.index[self.chosen])
        return analyze.event_links(self.trace.events, event=label_of_chosen)

    def _mark(self, figure: go.Figure) -> None:
        """Mark matches by triangles, and draw lines from the chosen event to the linked ones."""
        events, lanes, first = self.view.events, self.view.lane_of_event, self.view.first_ns
        start, length = events["start_ns"].to_numpy(), events["dur_ns"].to_numpy()
        rows = self.matches[_spread(start[self.matches], self.window_ns)]
        figure.add_scatter(
            x=(start[rows] + length[rows] // 2 - first) / 1e6, y=lanes[rows] - 0.42,
            mode="markers", name="match",
            marker={"symbol": "triangle-down", "size": 9, "color": COLOURS["ink"]},
            customdata=rows, hovertext=[label(str(name), 80) for name in events["name"].iloc[rows]],
            hoverinfo="text", visible=bool(len(rows)),
        )  # fmt: skip
        links = self._links() if self.chosen >= 0 else pd.DataFrame(columns=["relation"])
        linked = events.index.get_indexer(pd.Index(links.get("event", [])))
        rows_of = dict(zip(links.get("event", []), linked.tolist(), strict=True))
        for link in _records(links):
            row = rows_of[link.event]
            # An operator inside another is not drawn itself: the line ends at the lane of the call.
            caller = links.loc[links["relation"] == "launched by", "event"].map(rows_of)
            lane = lanes[row] if lanes[row] >= 0 else lanes[[*caller, self.chosen][0]]
            figure.add_scatter(
                x=[(start[at] + length[at] // 2 - first) / 1e6 for at in (self.chosen, row)],
                y=[lanes[self.chosen], lane], mode="lines+markers", name=link.relation,
                marker={"symbol": ["circle", "square"], "size": 8, "color": COLOURS["ink"]},
                line={"width": 1.5}, showlegend=False, hoverinfo="text",
                hovertext=[str(link.relation), f"{link.relation} {label(str(link.name), 80)}"],
            )  # fmt: skip

    def _note(self, head: str, rows: pd.DataFrame) -> None:
        lines = [
            f"<li>{html.escape(str(getattr(row, 'relation', '')))} "
            f"{html.escape(label(str(row.name), 100))}, "
            f"{(row.start_ns - self.view.first_ns) / 1e6:,.3f} ms, {duration(row.dur_ns)}</li>"
            for row in _records(rows)
        ]
        self.notes.value = f"{html.escape(head)}<ul>{''.join(lines)}</ul>" if head else ""


def _records(table: pd.DataFrame) -> list[Any]:
    return list(table.itertuples(index=False, name="Row"))


def _words(row: Any) -> str:
    return f"rank {row.rank}: {row.reason}, {duration(row.dur_ns)}"


def _spread(starts: Any, window_ns: tuple[int, int]) -> Any:
    """Choose the events in a window to mark: one of each of many equal intervals."""
    low, high = window_ns
    inside = np.flatnonzero((starts >= low) & (starts <= high))
    cells = (starts[inside] - low) * _MOST_MARKS // max(high - low + 1, 1)
    return inside[np.unique(cells, return_index=True)[1]]


# Explore one axis of time: jump to an incident, choose a host, widen the window.

_SECOND = 1_000_000_000
_WINDOWS_S = (10, 30, 120, 600, 3_600, 21_600)
_MOST_PLACES, _MOST_HOSTS = 6, 8
_POINTS = 800
_WHOLE = "the whole time"
# No None: to a selection of ipywidgets that is not a value, and its label is then empty or not,
# depending on which of its observers runs first.
_ALWAYS = -1
_NEVER_HOST = {"host not told"}


def fleet_timeline(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Jump to what happened, and see power, steps, job, failures and traces around it.

    Starts at the whole time with every meter.

    Controls above :func:`workbench.plot.fleet_timeline`: the moment (first fatal failures and
    restarts, in order of time), the window around it, and the host whose meters and failures
    are shown. Of very many, the first are offered, hosts with failures before others.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.FLEET_TIMELINE`.

    Raises
    ------
    TableError
        If ``table`` is not that table.
    """
    FLEET_TIMELINE.check(table)

    def draw(*, moment: int, window_s: int, host: str) -> go.Figure:
        shown = table if host == ALL else table[_is_of(table, host)]
        ends = (None, None) if moment == _ALWAYS else _ends(table, moment, window_s)
        return plot.fleet_timeline(
            shown,
            first_ns=ends[0],
            last_ns=ends[1],
            max_points=_POINTS,
            source=source,
            synthetic=synthetic,
        )

    return Explorer(
        draw,
        moment=widgets.Dropdown(options=[(_WHOLE, _ALWAYS), *_moments(table)], description="show"),
        window_s=slider("window", [(_length(length_s), length_s) for length_s in _WINDOWS_S], 30),
        host=choice("host", _hosts(table)),
    ).inert(window_s=lambda values: values["moment"] == _ALWAYS)


def _moments(table: pd.DataFrame) -> list[tuple[str, int]]:
    """Offer fatal failures and restarts, each moment once."""
    fatal = (table["panel"] == "failures") & table["text"].str.contains("(fatal)", regex=False)
    again = (table["panel"] == "job") & (table["lane"] == "restart")
    incidents = table.assign(second=table["start_ns"] // _SECOND, is_job=again)[fatal | again]
    incidents = incidents.sort_values(["second", "is_job", "start_ns"], kind="stable")
    # Several logs report one incident within a second.
    incidents = incidents[~incidents["second"].duplicated()].head(_MOST_PLACES)
    return [
        (
            f"{pd.Timestamp(int(row['start_ns'])):%H:%M:%S} {_short(str(row['text']))}",
            row["start_ns"],
        )
        for row in incidents.to_dict("records")
    ]


def _hosts(table: pd.DataFrame) -> list[str]:
    """Offer hosts with failures first, then those with power."""
    rows = table[table["node"].notna() & ~table["node"].isin(_NEVER_HOST)]
    failed = rows.loc[rows["panel"] == "failures", "node"].unique().tolist()
    metered = rows.loc[rows["panel"] == "power", "node"].unique().tolist()
    return list(dict.fromkeys([*sorted(failed), *metered]))[:_MOST_HOSTS]


def _is_of(table: pd.DataFrame, host: str) -> pd.Series:
    """Return which rows are of a host, or of the job as a whole."""
    of_all = ~table["panel"].isin(["power", "failures"]) | (table["lane"] == "all entities")
    return of_all | (table["node"] == host).fillna(value=False)


def _ends(table: pd.DataFrame, moment: int, window_s: int) -> tuple[int, int]:
    """Return the ends of the window: a third of it lies before the moment."""
    before = window_s * _SECOND // 3
    first = max(moment - before, int(table["start_ns"].min()))
    last = min(moment - before + window_s * _SECOND, int(table["end_ns"].max()))
    return first, last


def _short(text: str) -> str:
    bare = text.removesuffix(" (fatal)")
    return bare if len(bare) <= 44 else f"{bare[:43]}…"


def _length(window_s: int) -> str:
    for unit, name in ((3_600, "h"), (60, "min")):
        if window_s >= unit and window_s % unit == 0:
            return f"{window_s // unit} {name}"
    return f"{window_s} s"
