"""The zoomable timeline: mouse, search, links and files, driven like a user would."""

import base64
import json

import numpy as np
import pandas as pd
import pytest

from workbench import explore, load
from workbench.analyze import event_links
from workbench.explore.static import static_html
from workbench.tables import Trace


@pytest.fixture
def board(dlrm_trace):
    return explore.timeline(dlrm_trace, source="eight ranks")


def numbers(array):
    """Read an array as plotly packs it for the browser."""
    if isinstance(array, dict):
        return np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])
    return np.asarray(array)


def marks(board, name):
    return next(trace for trace in board.figure().data if trace.name == name)


def test_it_starts_with_everything_and_offers_windows_with_their_reasons(board, title):
    labels = [label for label, _ in board.controls["window"].options]
    assert labels[0] == "whole trace"
    assert 5 < len(labels) <= 11
    assert any("others wait for this rank" in label for label in labels)
    whole = board.figure().layout.xaxis.range
    board.controls["window"].value = 0
    near = board.figure().layout.xaxis.range
    assert near[1] - near[0] < 0.2 * (whole[1] - whole[0])
    assert board.rank.value == board.windows[0].rank
    assert title(board).startswith("1 rank: the longest GPU work, ")
    board.controls["window"].value = -1
    assert board.rank.value == "all"


def test_the_straggler_and_the_axis_of_time_are_on_top(board):
    layout = board.figure().layout
    # By the published tables of this trace rank 7 enters last most often.
    assert layout.yaxis.ticktext[0].startswith("<b>rank 7</b>")
    named = [text for text in layout.yaxis.ticktext if "<b>" in text]
    assert [int(text.split("<b>rank ")[1][0]) for text in named] == [7, 0, 1, 2, 3, 4, 5, 6]
    assert layout.xaxis.side == "top"
    assert layout.yaxis.range[1] < layout.yaxis.range[0]  # lane 0 is the upper one


def test_zooming_with_the_mouse_draws_the_events_of_that_window_alone(board):
    first = board.view.first_ns
    board.out._hear(None, {"zoom": [2.0, 2.5]}, [])
    assert board.window_ns == (first + 2_000_000, first + 2_500_000)
    bars = [trace for trace in board.figure().data if trace.type == "bar"]
    bases = [numbers(trace.base) for trace in bars]
    assert min(base.min() for base in bases if len(base)) >= 2.0
    ends = [base + numbers(bar.x) for base, bar in zip(bases, bars, strict=True)]
    assert max(end.max() for end in ends if len(end)) <= 2.5
    axis = board.figure().layout.xaxis
    assert tuple(axis.range) == (2.0, 2.5)
    board.out._hear(None, {"zoom": None}, [])  # a double click
    whole = board.figure().layout.xaxis
    assert whole.range[1] > 10
    # Else the browser would keep the zoom.
    assert whole.uirevision != axis.uirevision


@pytest.mark.long
def test_matches_are_marked_listed_and_visited_in_order_of_time(board):
    board.search.value = "NCCL"
    rows = board.matches
    names = board.view.events["name"].astype(str)
    by_hand = names.str.lower().str.contains("nccl") & (board.view.lane_of_event >= 0)
    assert set(rows) == set(np.flatnonzero(by_hand))
    assert f"{len(rows):,} drawn events contain" in board.notes.value
    assert marks(board, "match").visible
    visited = []
    for _ in range(3):
        board.onward.click()
        visited.append(int(board.view.events["start_ns"].iloc[board.chosen]))
    assert visited == sorted(visited)
    board.back.click()
    assert int(board.view.events["start_ns"].iloc[board.chosen]) == visited[1]
    board.search.value = "no such kernel"
    assert "0 drawn events" in board.notes.value
    board.onward.click()
    assert board.chosen == -1


def test_a_click_draws_what_the_event_depends_on(board):
    bars = next(trace for trace in board.figure().data if trace.name == "compute")
    row = int(numbers(bars.customdata)[0])
    board.out._hear(None, {"click": row}, [])
    assert board.chosen == row
    links = event_links(board.trace.events, event=int(board.view.events.index[row]))
    assert list(links["relation"][:2]) == ["launched by", "called in"]
    assert "launched by" in board.notes.value
    line = marks(board, "launched by")
    launch = board.trace.events.loc[links["event"][0]]
    middle = launch["start_ns"] + launch["dur_ns"] // 2
    assert line.x[1] == pytest.approx((middle - board.view.first_ns) / 1e6)


def test_the_window_in_view_is_written_rank_by_rank_and_reads_back(board, tmp_path):
    low, high = board.window_ns
    board.show((low, low + (high - low) // 2))
    board.path.value = str(tmp_path / "view.json.gz")
    board.save.click()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"view_rank{rank}.json.gz" for rank in range(8)]
    events = board.trace.events
    inside = (events["start_ns"] <= board.window_ns[1]) & (
        events["start_ns"] + events["dur_ns"] >= low
    )
    back = load.traces(tmp_path, progress=False).events
    expected = events[inside & (events["rank"] == 3)]
    pd.testing.assert_series_equal(
        back.loc[back["rank"] == 3, "start_ns"], expected["start_ns"], check_index=False
    )
    board.rank.value = 3
    board.path.value = str(tmp_path / "one.json")
    board.save.click()
    assert json.loads((tmp_path / "one.json").read_text())["distributedInfo"] == {"rank": 3}
    board.path.value = str(tmp_path / "one.json" / "below a file.json")
    board.save.click()
    assert "Not written" in board.message.value


@pytest.mark.long
def test_a_report_holds_the_overview_and_every_telling_window(board):
    text = static_html(board)
    assert "whole trace" in text
    assert text.count("<option") == len(board.controls["window"].options)
    assert len(text) < 5_000_000


def test_a_trace_without_anything_to_draw_says_so(dlrm_trace):
    tables = {name: getattr(dlrm_trace, name) for name in dlrm_trace.__dataclass_fields__}
    empty = Trace(**tables | {"events": dlrm_trace.events.iloc[:0]})
    board = explore.timeline(empty)
    assert board.figure().layout.title.text == "No timeline to show"
    board.search.value = "gemm"
    board.onward.click()
    assert board.write("never.json") == []
