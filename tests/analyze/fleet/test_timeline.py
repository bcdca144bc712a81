"""One axis of time: what goes onto it, and what cannot."""

import pandas as pd
import pytest

from tests.analyze.fleet.work_rows import SECOND, constant, make_power, make_spans, make_steps
from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import POWER, RANKS

START_S = pd.Timestamp("2026-01-12").value // SECOND


def later(pairs):
    return [(START_S + at, watts) for at, watts in pairs]


@pytest.fixture
def power():
    return make_power(n1=later(constant(100.0, until_s=10)), n2=later(constant(50.0, until_s=10)))


def ranks(*clocks):
    rows = [
        {
            "rank": rank, "rank_source": "trace", "source": "t", "format": "kineto", "clock": clock,
            "first_ns": (START_S + 3) * SECOND, "last_ns": (START_S + 4) * SECOND, "event_count": 1,
        }
        for rank, clock in enumerate(clocks)
    ]  # fmt: skip
    return RANKS.check(RANKS.cast(pd.DataFrame(rows, columns=list(RANKS.columns))))


def test_each_meter_and_their_sum_are_lanes_of_power(power):
    table = analyze.fleet_timeline(power)
    assert table["lane"].unique().tolist() == ["all entities", "n1", "n2"]
    total = table[table["lane"] == "all entities"]
    assert total["power_w"].tolist() == [150.0] * 10
    assert total["start_ns"].iloc[0] == START_S * SECOND + SECOND // 2, "the middle of its period"
    assert table.loc[table["lane"] == "n1", "node"].unique().tolist() == ["n1"]


def test_a_period_that_any_meter_misses_has_no_sum():
    readings = make_power(
        n1=later(constant(100.0, until_s=10)), n2=later(constant(50.0, until_s=5))
    )
    total = analyze.fleet_timeline(readings)
    total = total[total["lane"] == "all entities"]["power_w"]
    assert total.notna().sum() == 5


def test_steps_spans_failures_and_traces_have_panels_in_this_order(power, make_failures):
    steps = make_steps((4, START_S + 1, START_S + 3), (5, START_S + 3, START_S + 6))
    spans = make_spans(("run", START_S, START_S + 9), ("checkpoint", START_S + 6, None))
    failures = make_failures(
        {"day": (START_S + 7) / 86_400, "node": "n1", "kind": "xid", "code": "79", "cause": "lost"},
        {"day": None, "cause": "when?"},
    )
    table = analyze.fleet_timeline(
        power, steps=steps, spans=spans, failures=failures, ranks=ranks("epoch", "own")
    )
    assert table["panel"].unique().tolist() == ["power", "step time", "job", "failures", "traces"]
    by_panel = dict(list(table.groupby("panel")))
    assert by_panel["step time"]["dur_s"].tolist() == [2, 3]
    assert by_panel["failures"]["text"].tolist() == ["xid 79: lost (fatal)"]
    assert by_panel["traces"]["lane"].tolist() == ["rank 0"]
    checkpoint = by_panel["job"].set_index("lane").loc["checkpoint"]
    assert checkpoint["end_ns"] == (START_S + 10) * SECOND, "what never ended lasts to the end"
    assert table.attrs["left_out"] == {
        "failures without a wall time": 1,
        "traces with a clock of their own": 1,
    }


def test_the_offset_of_the_meter_is_undone(power):
    moved = analyze.fleet_timeline(power, clock_offset_s=2)
    plain = analyze.fleet_timeline(power)
    assert (plain["start_ns"] - moved["start_ns"]).unique().tolist() == [2 * SECOND]


def test_nothing_gives_an_empty_table():
    assert analyze.fleet_timeline().empty
    assert analyze.fleet_timeline(POWER.empty()).empty


def test_a_meter_with_a_clock_of_its_own_is_refused():
    own = make_power(n1=constant(1.0, until_s=9))
    with pytest.raises(WorkbenchError, match="power has a clock of its own"):
        analyze.fleet_timeline(own)
