"""Figures of capping: rows, bars, doubts and titles say what the tables say."""

import pandas as pd
import pytest

from workbench import plot
from workbench.tables import CAPPING_BLAME, CAPPING_COST, CAPPING_EVENTS

START = pd.Timestamp("2026-01-12 08:00").value
SECOND = 1_000_000_000


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def notes(figure):
    return figure.layout.title.subtitle.text.replace("<br>", " ")


def event(entity, start_s, duration_s, *, zero=START, **more):
    start = zero + round(start_s * SECOND)
    return {
        "entity": entity, "start_ns": start, "end_ns": start + round(duration_s * SECOND),
        "duration_s": float(duration_s), "uncertain_s": 0.25, "evidence": "clock reasons",
        "reason": "power cap", "reading_count": 4, "limit_w": 500.0, "clock_mhz": 1_605.0,
        "uncapped_clock_mhz": 1_830.0,
    } | more  # fmt: skip


@pytest.fixture
def draw(build):
    return lambda *rows, **options: plot.capping_events(
        build(CAPPING_EVENTS, list(rows)), **options
    )


def test_the_device_that_was_held_back_longest_is_named_and_on_top(draw):
    figure = draw(event("a", 0, 2), event("b", 1, 3), event("b", 9, 4))
    assert title(figure) == (
        "b was held back for 7 s in 2 periods, at 1,605 instead of 1,830 MHz; 1 other less long"
    )
    assert list(figure.layout.yaxis.ticktext) == ["b", "a"]
    assert list(figure.data[0].y) == [1, 0, 0]
    assert list(figure.data[0].x) == [2_000, 3_000, 4_000], "a date axis takes ms"
    assert pd.Timestamp(figure.data[0].base[0]) == pd.Timestamp("2026-01-12 08:00")
    assert figure.data[0].text[0] == "1,605 MHz, limit 500 W"
    assert "known by: clock reasons" in notes(figure)


def test_what_tells_of_capping_is_told_apart(draw):
    figure = draw(
        event("a", 0, 2), event("a", 5, 2, reason="power brake"),
        event("b", 5, 2, reason="not told", evidence="power at limit", clock_mhz=None,
              uncapped_clock_mhz=None),
    )  # fmt: skip
    assert [trace.name for trace in figure.data] == ["power cap", "power brake", "capping likely"]
    assert len({str(trace.marker.pattern.shape) for trace in figure.data}) == 3
    assert title(draw(event("b", 5, 2, evidence="power at limit", clock_mhz=None))) == (
        "b was held back (likely) for 2 s in one period"
    )


def test_a_clock_of_its_own_is_shown_in_seconds(draw):
    figure = draw(event("a", 3, 2, zero=0))
    assert figure.layout.xaxis.title.text == "time [s]"
    assert (list(figure.data[0].base), list(figure.data[0].x)) == ([3], [2])


def test_devices_beyond_the_top_are_left_out_and_counted(draw):
    figure = draw(*(event(f"gpu{n}", n, n + 1) for n in range(6)), top=4)
    assert list(figure.layout.yaxis.ticktext) == ["gpu5", "gpu4", "gpu3", "gpu2"]
    assert "2 devices dropped" in notes(figure)
    with pytest.raises(ValueError, match="top must be 1 or more; got 0"):
        draw(event("a", 0, 1), top=0)


def cost(**more):
    return {
        "attempt": 1, "capped_step_count": 45, "uncapped_step_count": 60, "cost_s": 5.0,
        "low_cost_s": 4.0, "high_cost_s": 6.5, "local_cost_s": 4.8, "capped_median_s": 1.1,
        "uncapped_median_s": 1.0, "cost_ratio": 0.05,
    } | more  # fmt: skip


def test_a_clean_cost_is_stated_with_its_interval(build):
    figure = plot.capping_cost(build(CAPPING_COST, [cost()]))
    assert title(figure) == "45 capped steps of attempt 1 took 5 s more than others (4 to 6.50 s)"
    assert list(figure.data[0].error_x.array) == [1.5]
    assert list(figure.data[0].error_x.arrayminus) == [1]
    assert list(figure.data[1].x) == [4.8]
    assert list(figure.layout.yaxis.ticktext) == ["attempt 1: 45 of 105 steps"]


def test_a_doubtful_cost_is_never_stated_as_a_finding(build):
    rows = [cost(doubt="something else changed", local_cost_s=-0.2), cost(attempt=2, doubt="")]
    figure = plot.capping_cost(build(CAPPING_COST, rows))
    assert title(figure) == (
        "What capping cost is in doubt: 45 capped steps of attempt 1 took 5 s more than all "
        "others, 0.2 s less than the nearest"
    )
    assert "<b>attempt 1: something else changed</b>" in notes(figure)


def test_no_capped_step_and_nothing_to_compare_with_are_said(build):
    none = cost(capped_step_count=0, cost_s=0.0, low_cost_s=0.0, high_cost_s=0.0)
    assert title(plot.capping_cost(build(CAPPING_COST, [none]))) == "No step was capped"
    unknown = cost(cost_s=None, low_cost_s=None, high_cost_s=None, local_cost_s=None)
    figure = plot.capping_cost(build(CAPPING_COST, [unknown]))
    assert title(figure) == "The cost of capping is not known"


def test_blame_is_a_bar_of_steps(build):
    rows = [
        {"entity": "b", "event_count": 1, "capped_step_count": 6, "blamed_step_count": 6,
         "blamed_share": 0.6, "doubt": "too few"},
        {"entity": "a", "event_count": 2, "capped_step_count": 10, "blamed_step_count": 4,
         "blamed_share": 0.4},
    ]  # fmt: skip
    figure = plot.capping_blame(build(CAPPING_BLAME, rows))
    assert title(figure) == "In doubt: b was held back most in 6 steps, 60 % of all capped ones"
    assert [list(trace.x) for trace in figure.data] == [[6, 4], [0, 6]]
    assert "<b>in doubt: too few</b>" in notes(figure)
