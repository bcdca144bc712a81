"""Figures of runtime power management: what titles tell, and what they warn of."""

import numpy as np
import pytest

from tests.analyze.power.managed import loads
from tests.analyze.power.power_rows import topology
from workbench import analyze, plot, simulate
from workbench.tables import DEMAND_RESPONSE, POWER_MANAGEMENT

TREE = topology(
    ("feed", None, "feed", None, 1_700.0),
    ("a", "feed", "gpu", None, None),
    ("b", "feed", "gpu", None, None),
)


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def managed(*, limit_w=1_700.0, **options):
    table = loads(("a", 1_000, {"floor_w": 800}), ("b", 1_000, {"floor_w": 800}))
    tree = TREE.assign(limit_w=[limit_w, np.nan, np.nan])
    return analyze.power_management(table, tree, **options)


def test_the_title_tells_feed_caps_and_slowdown_and_the_bars_are_the_cuts():
    figure = plot.power_management(managed())
    assert title(figure) == "feed is 15 % short: 2 of 2 loads capped, the slowest loses 15 %"
    assert list(figure.data[-1].x) == pytest.approx([15, 15])


def test_who_is_infeasible_and_what_trips_stand_in_the_title():
    assert title(plot.power_management(managed(limit_w=1_500.0))).endswith(
        "; infeasible: 2 below their floors"
    )
    table = loads(("a", [3_000.0] * 200, {}), ("b", [0.0] * 200, {}), period_s=1)
    late = analyze.power_management(table, TREE, delay_s=150)
    figure = plot.power_management(late)
    assert title(figure).startswith("In doubt: feed is 43 % short")
    assert title(figure).endswith("; 1 breaker trips")


def test_a_feed_with_room_is_named_without_a_cap():
    figure = plot.power_management(managed(limit_w=2_500.0))
    assert title(figure) == "No feed is short: feed comes nearest, 20 % below its limit"
    assert "no load is cut" in figure.layout.title.subtitle.text


def test_nothing_to_show_says_what_to_do():
    free = plot.power_management(managed(limit_w=np.nan))
    assert "analyze.FeedShortage" in free.layout.annotations[0].text
    assert title(plot.power_management(POWER_MANAGEMENT.empty())) == "No limit to keep"
    assert title(plot.demand_response(DEMAND_RESPONSE.empty())) == "Nothing to shed"


def test_the_title_of_demand_response_tells_cost_savings_and_catching_up():
    made, tree = simulate.power_loads()
    table = analyze.demand_response(made, tree, shed_shares=[0.1, 0.25])
    figure = plot.demand_response(table, claimed_share=0.25, synthetic=True)
    said = title(figure)
    assert said.startswith("Shedding 25 % for 15 min costs ")
    assert " steps, " in said
    assert " after catching up" in said
    assert [trace.name for trace in figure.data] == [
        "least cost first", "by priority", "all by their slack",
    ]  # fmt: skip
    lost = table[table["policy"] == "slack"]["lost_gpu_h"].tolist()
    assert list(figure.data[2].y) == pytest.approx(lost)
