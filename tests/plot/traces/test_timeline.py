"""The timeline: area is busy time, the longest stay whole, names stay text."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import plot
from workbench.plot._style import lanes as _lanes
from workbench.tables import EVENTS

MS = 1_000_000
EPOCH = 1_694_128_201_421_058_001


def gpu(start, dur, **more):
    row = {"start_ns": start, "dur_ns": dur, "name": "gemm", "category": "kernel"}
    return row | {"kind": "compute", "device": 0, "stream": 7} | more


def host(start, dur, name, category="cpu_op", **more):
    return {"start_ns": start, "dur_ns": dur, "name": name, "category": category} | more


@pytest.fixture
def many(build):
    """20,000 short kernels on two streams, one long one among them."""
    random = np.random.default_rng(7)
    rows = [
        gpu(int(start), int(dur), stream=7 + n % 2, kind=["compute", "communication"][n % 2])
        for n, (start, dur) in enumerate(
            zip(range(0, 20_000 * 5_000, 5_000), random.integers(1, 4_000, 20_000), strict=True)
        )
    ]
    rows.append(gpu(50 * MS, 3 * MS, name="the long one"))
    return build(EVENTS, sorted(rows, key=lambda row: (row["start_ns"], -row["dur_ns"])))


def rectangles(figure):
    return sum(len(trace.x) for trace in figure.data)


def lane_labels(figure):
    return list(figure.layout.yaxis.ticktext)


def test_every_event_of_a_small_trace_is_a_rectangle_of_its_own(build):
    events = build(EVENTS, [gpu(1_000, 500), gpu(3_000, 1_000, kind="memory", name="Memcpy")])
    figure = plot.timeline(events)
    drawn = {bar.name: (bar.base[0], bar.x[0]) for bar in figure.data}
    assert drawn == {"compute": (0.0, 0.0005), "memory": (0.002, 0.001)}
    assert figure.layout.title.text == "1 rank: the longest GPU work, Memcpy, takes 1 µs"


def test_millions_become_few_and_the_longest_stays_whole(many):
    figure = plot.timeline(many, max_points=300)
    assert rectangles(figure) <= 300
    hover = [text for trace in figure.data for text in trace.hovertext]
    assert "the long one<br>3 ms" in hover
    assert "the long one" in figure.layout.title.text


def busy_by_hand(items, start_ns, end_ns):
    """Mark every nanosecond of each lane and kind: slow, and independent of any sorting."""
    marks = {}
    for item in items.itertuples():
        band = marks.setdefault((item.lane, item.kind), np.zeros(end_ns - start_ns, dtype=bool))
        band[max(item.start_ns - start_ns, 0) : max(item.end_ns - start_ns, 0)] = True
    return {band: int(mark.sum()) for band, mark in marks.items()}


def drawn(items, **window):
    return _lanes.merged(_lanes.indexed(items), **window)


def test_no_busy_time_and_no_event_gets_lost_by_merging(many):
    items, _ = _lanes.lanes_of(many)
    bars = drawn(items, start_ns=0, end_ns=110 * MS, limit=300)
    assert bars["count"].sum() == len(many)
    busy = bars.groupby(["lane", "kind"])["busy_ns"].sum().to_dict()
    assert busy == busy_by_hand(items, 0, 110 * MS)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 99)), min_size=1),
    st.integers(0, 6),
)
def test_a_rank_drawn_first_moves_lanes_and_changes_nothing_else(build, rows, first_rank):
    table = build(EVENTS, [gpu(at, 5, rank=rank, stream=on) for rank, on, at in rows])
    usual, moved = (_lanes.lanes_of(table, rank) for rank in (None, first_rank))
    places = [
        {row.row: tuple(lanes.set_index("lane").loc[row.lane]) for row in items.itertuples()}
        for items, lanes in (usual, moved)
    ]
    assert places[0] == places[1]
    ranks = list(dict.fromkeys(moved[1]["rank"]))
    assert ranks == sorted(ranks, key=lambda rank: (rank != first_rank, rank))
    assert moved[1]["lane"].tolist() == list(range(len(moved[1])))


def test_threads_named_by_a_hash_are_told_apart_by_its_end(build):
    threads = ["py_xla_execute/-1472503042444199177", "py_xla_execute/5520340305237897665", "59811"]
    rows = [host(at, 5, "op", thread=name) for at, name in enumerate(threads)]
    labels = plot.timeline(build(EVENTS, rows)).layout.yaxis.ticktext
    assert sorted(text.split("thread ")[1] for text in labels) == [
        "59811", "py_xla_execute/…7665", "py_xla_execute/…9177",
    ]  # fmt: skip


items_of_lanes = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 10_000), st.integers(0, 3_000), st.integers(0, 3)),
    min_size=1,
    max_size=300,
)


@given(items_of_lanes, st.integers(4, 60), st.integers(0, 13_000), st.integers(0, 13_000))
def test_merging_keeps_counts_extent_and_the_time_that_is_busy_in_any_window(
    rows, limit, one_end, other_end
):
    # Times since the epoch are too large for a float.
    start, end = sorted([EPOCH + one_end, EPOCH + other_end])
    rows = [(lane, EPOCH + begin, length, kind) for lane, begin, length, kind in rows]
    items = pd.DataFrame(rows, columns=["lane", "start_ns", "dur_ns", "kind"])
    items = items.assign(end_ns=items["start_ns"] + items.pop("dur_ns"), row=items.index)
    bars = drawn(items, start_ns=start, end_ns=end, limit=limit)
    inside = items[
        (items["start_ns"] <= end) & ((items["end_ns"] > start) | (items["start_ns"] >= start))
    ]
    assert bars["count"].sum() == len(inside)
    busy = bars.groupby(["lane", "kind"])["busy_ns"].sum()
    by_hand = busy_by_hand(inside, start, end)
    assert busy.to_dict() == by_hand
    assert (bars["bottom_share"] + bars["height_share"]).max() <= 1 + 1e-9 or not len(bars)
    if len(inside):
        assert bars["longest_ns"].max() == (inside["end_ns"] - inside["start_ns"]).max()
        assert bars["start_ns"].min() == inside["start_ns"].clip(lower=start).min()
        assert bars["end_ns"].max() == inside["end_ns"].clip(upper=end).max()
        assert not bars.loc[bars["count"] == 1, "row"].duplicated().any()


def test_one_short_kernel_among_a_million_is_in_the_overview():
    # Every n-th kernel, as a naive reduction draws them, leaves it out.
    count = 1_000_000
    start = np.arange(count, dtype=np.int64) * 10_000
    items = pd.DataFrame({"lane": 0, "kind": 0, "start_ns": start, "end_ns": start + 4_000})
    items = items.assign(row=items.index)
    items.loc[777_777, ["kind", "end_ns"]] = 2, start[777_777] + 1_000
    bars = drawn(items, start_ns=0, end_ns=int(start[-1]) + 4_000, limit=2_000)
    assert len(bars) <= 2_000
    rare = bars[bars["kind"] == 2].iloc[0]
    assert (rare["row"], rare["start_ns"], rare["busy_ns"]) == (777_777, start[777_777], 1_000)
    assert 777_777 not in np.arange(0, count, count // 2_000)


def test_a_narrower_window_shows_events_one_by_one(many):
    whole = plot.timeline(many, max_points=300)
    part = plot.timeline(many, start_ns=0, end_ns=MS // 2, max_points=300)
    assert any("merged" in text for trace in whole.data for text in trace.hovertext)
    assert not any("merged" in text for trace in part.data for text in trace.hovertext)
    assert tuple(part.layout.xaxis.range) == (0, 0.5)


def test_lanes_are_streams_then_threads_and_name_a_rank_once(build):
    events = build(
        EVENTS,
        [
            host(0, 900, "aten::mm", thread="11"),
            host(100, 50, "cudaLaunchKernel", category="cuda_runtime", thread="11"),
            gpu(200, 50, stream=0),
            gpu(300, 50, stream=20),
            gpu(200, 50, rank=3),
        ],
    )
    assert lane_labels(plot.timeline(events)) == [
        "<b>rank 0</b>  stream 0",
        "stream 20",
        "thread 11",
        "<b>rank 3</b>  stream 7",
    ]


def test_gpu_annotations_and_profiler_steps_are_no_work(build):
    events = build(
        EVENTS,
        [
            host(0, 1_000, "ProfilerStep#3", category="user_annotation", thread="1"),
            host(0, 400, "forward", category="user_annotation", thread="1"),
            host(10, 20, "aten::mm", thread="1"),
            host(0, 500, "forward", category="gpu_user_annotation", stream=7),
        ],
    )
    figure = plot.timeline(events)
    assert [trace.hovertext for trace in figure.data] == [("forward<br>400 ns",)]
    assert lane_labels(figure) == ["<b>rank 0</b>  thread 1"]


def test_a_rank_can_be_picked(build):
    events = build(EVENTS, [gpu(0, 10), gpu(0, 10, rank=1), gpu(0, 10, rank=2)])
    assert lane_labels(plot.timeline(events, ranks=[1])) == ["<b>rank 1</b>  stream 7"]


def test_too_many_lanes_are_counted_not_squeezed(build):
    events = build(EVENTS, [gpu(0, 10, rank=rank) for rank in range(1_000)])
    figure = plot.timeline(events)
    assert len(lane_labels(figure)) == _lanes.MAX_LANES
    assert "960 lanes dropped" in figure.layout.title.subtitle.text


def test_an_epoch_clock_is_dated_and_an_own_clock_is_not(build):
    epoch = build(EVENTS, [gpu(1_694_128_201_000_000_000, 10)])
    own = build(EVENTS, [gpu(1_694_128_201_000, 10)])
    assert "2023-09-07 23:10:01.000000 UTC" in plot.timeline(epoch).layout.title.subtitle.text
    assert "UTC" not in plot.timeline(own).layout.title.subtitle.text


def test_an_empty_choice_is_said_in_words(build):
    figure = plot.timeline(build(EVENTS, []))
    assert figure.layout.title.text == "No timeline to show"
    figure = plot.timeline(build(EVENTS, [gpu(0, 10)]), ranks=[5])
    assert "neither GPU work nor operators" in figure.layout.annotations[0].text
    figure = plot.timeline(build(EVENTS, [gpu(0, 10)]), start_ns=5_000, end_ns=6_000)
    assert figure.layout.title.text == "Nothing happens in this window"


@pytest.mark.long
def test_zooming_the_live_timeline_shows_finer_events(many):
    live = plot.timeline_live(many, max_points=200)
    whole = live[()].dframe()
    assert whole["count"].max() > 1
    assert len(whole) <= 200
    live.streams[0].event(x_range=(0.0, 0.2))
    part = live[()].dframe()
    assert part["count"].max() == 1
    assert part["end_ms"].min() > 0
    assert part["time_ms"].max() <= 0.2


def test_the_live_timeline_renders_with_bokeh(many):
    import holoviews as hv

    plotted = hv.render(plot.timeline_live(many, max_points=100), backend="bokeh")
    assert plotted.y_range.start > plotted.y_range.end or plotted.y_range.flipped
