"""Figures of incidents: rows, marks and titles say what the table says."""

import pandas as pd
import pytest

from workbench import plot
from workbench.tables import FAILURES, INCIDENT_COUNTS

DAY = 86_400_000_000_000
START = pd.Timestamp("2025-03-01").value


def incident(node, day, *, code="79", category="gpu", **more):
    at = START + round(day * DAY)
    return {
        "start_ns": at, "end_ns": at, "clock": "epoch", "node": node, "device": "0000:3b:00",
        "kind": "xid", "code": code, "cause": f"cause {code}", "category": category,
        "severity": "fatal", "line_count": 1,
    } | more  # fmt: skip


@pytest.fixture
def draw(build):
    def make(*rows, **options):
        return plot.incidents(build(FAILURES, list(rows)), **options)

    return make


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def test_the_title_counts_and_names_the_most_frequent_cause(draw):
    rows = [incident("a", 0), incident("b", 3.2, code="13"), incident("b", 9, code="13")]
    assert title(draw(*rows)) == "3 incidents within 9 days; most frequent, with 2: cause 13"
    assert title(draw(*rows[1:])) == "2 incidents within 6 days, all of them: cause 13"
    assert title(draw(*rows[:1])) == "1 incident: cause 79, on a"


def test_hosts_are_rows_with_the_busiest_first_and_the_rest_together(draw):
    rows = [incident(f"n{n}", day / 9) for n in range(6) for day in range(n + 1)]
    figure = draw(*rows, top=3)
    assert list(figure.layout.yaxis.ticktext) == ["n5", "n4", "n3", "3 others"]
    assert figure.layout.yaxis.title.text == "host"
    assert len(draw(*rows, top=5).layout.yaxis.ticktext) == 6, "one other is shown itself"


def test_one_host_is_shown_by_device(draw):
    rows = [incident("a", 0), incident("a", 1, device="0000:9d:00"), incident("a", 2)]
    figure = draw(*rows)
    assert list(figure.layout.yaxis.ticktext) == ["0000:3b:00", "0000:9d:00"]
    assert figure.layout.yaxis.title.text == "device"


def test_marks_stand_at_their_time_and_grow_with_their_lines(draw):
    figure = draw(incident("a", 0), incident("b", 1, line_count=1_000))
    assert pd.Timestamp(figure.data[0].x[1]) == pd.Timestamp("2025-03-02")
    assert figure.data[0].marker.size[1] > figure.data[0].marker.size[0]
    assert figure.layout.xaxis.title.text == "time [UTC]"


def test_a_clock_of_its_own_is_shown_in_hours(draw):
    at = {"clock": "own", "start_ns": 7_200_000_000_000}
    figure = draw(incident("a", 0, **at), incident("b", 0, **at))
    assert list(figure.data[0].x) == [2, 2]
    assert figure.layout.xaxis.title.text == "time since the log began [h]"


def test_what_has_no_time_or_another_clock_is_left_out_and_counted(draw):
    none = {"start_ns": None, "end_ns": None, "clock": "none"}
    figure = draw(incident("a", 0), incident("a", 0, **none), incident("b", 0, clock="own"))
    note = figure.layout.title.subtitle.text
    assert "1 incident without a time dropped" in note
    assert "1 incident with unsynchronized clocks dropped" in note
    assert (
        "1 incident without a time dropped"
        in draw(incident("a", 0, **none)).layout.annotations[0].text
    )


def test_very_many_incidents_become_fewer_marks_that_count_them(draw):
    rows = [incident(f"n{n % 3}", n / 1_000) for n in range(9_000)]
    figure = draw(*rows)
    assert len(figure.data[0].x) <= 4_500
    counted = [
        int(text.split(" incidents")[0])
        for text in figure.data[0].hovertext
        if " incidents" in text
    ]
    single = len(figure.data[0].hovertext) - len(counted)
    assert sum(counted) + single == 9_000


def test_process_names_stay_text(draw):
    figure = draw(incident("a", 0, text="name=<script>alert(1)</script>"))
    assert "&lt;script&gt;" in figure.data[0].hovertext[0]
    assert "<script>" not in figure.to_json().replace("\\u003c", "<")


def test_top_below_one_is_refused(draw):
    with pytest.raises(ValueError, match="top must be 1 or more; got 0"):
        draw(incident("a", 0), top=0)


def counts(build, *rows):
    names = ("window_s", "category", "incident_count", "line_count")
    table = build(INCIDENT_COUNTS, [dict(zip(names, row, strict=True)) for row in rows])
    return plot.incident_counts(table)


def test_counts_are_stacked_by_category_and_compared_in_the_title(build):
    figure = counts(build, (0.0, "gpu", 9, 9), (300.0, "gpu", 2, 9), (300.0, "nvlink", 1, 4))
    assert title(figure) == "9 incidents if no line is folded, 3 with pauses of up to 300 s inside"
    assert {trace.name: list(trace.y) for trace in figure.data} == {"gpu": [9, 2], "nvlink": [0, 1]}
    assert list(figure.data[0].x) == ["0", "300 s"]


def test_counts_that_do_not_depend_on_the_window_say_so(build):
    figure = counts(build, (60.0, "gpu", 2, 9), (1800.0, "gpu", 2, 9))
    assert title(figure) == "2 incidents, whatever the window from 60 s to 30 min"
    assert title(counts(build, (60.0, "gpu", 2, 9))) == "2 incidents at a window of 60 s"
