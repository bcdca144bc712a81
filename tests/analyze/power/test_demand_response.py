"""Loads from meters, what demand response costs, and what more machines bring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.managed import loads, random_case
from tests.analyze.power.power_rows import grid, topology
from workbench import analyze, simulate
from workbench.errors import WorkbenchError

TREE = topology(
    ("feed", None, "feed", None, 2_000.0),
    ("a", "feed", "gpu", None, None),
    ("b", "feed", "gpu", None, None),
)
seeds = st.integers(0, 10**6)


def row_of(table, tree, **options):
    (row,) = analyze.demand_response(table, tree, policies=["cost"], **options).to_dict("records")
    return row


def test_the_cost_is_that_of_the_slowest_and_catching_up_takes_energy_back():
    """By hand: 400 W of 2,000 W for 15 min; both cut by 200 W, so both run 20 % slower."""
    table = loads(("a", 1_000, {"gpu_count": 8, "step_s": 10}), ("b", 1_000, {"gpu_count": 8}))
    table["step_s"] = 10.0
    row = row_of(table, TREE, shed_shares=[0.2], duration_min=15)
    assert row["reduced_w"] == pytest.approx(400)
    assert row["lost_gpu_h"] == pytest.approx(16 * 0.2 * 0.25)
    assert row["lost_step_count"] == pytest.approx(0.2 * 900 / 10)
    assert row["saved_j"] == pytest.approx(400 * 900)
    # Power falls as much as speed here: what is saved now is drawn later.
    assert row["catch_up_j"] == pytest.approx(row["saved_j"])
    assert row["is_reached"]


@given(seeds)
def test_more_shed_never_costs_less_and_least_cost_is_never_dearer(seed):
    table, tree = random_case(np.random.default_rng(seed), nested=False)
    free = tree.assign(limit_w=np.nan)
    shares = [0.0, 0.02, 0.05, 0.1]
    result = analyze.demand_response(table, free, shed_shares=shares)
    by_policy = {name: own.set_index("shed_share") for name, own in result.groupby("policy")}
    for own in by_policy.values():
        assert (np.diff(own["lost_gpu_h"]) >= -1e-9).all()
        assert own["lost_gpu_h"].iloc[0] == 0
    kept = by_policy["cost"]["is_reached"]
    for name in ("priority", "slack"):
        dearer = by_policy[name]["lost_gpu_h"] - by_policy["cost"]["lost_gpu_h"]
        assert (dearer[kept] >= -1e-9).all()


@given(seeds)
def test_what_is_reached_is_what_was_to_be_shed_at_the_peak(seed):
    table, tree = random_case(np.random.default_rng(seed), nested=False)
    row = row_of(table, tree.assign(limit_w=np.nan), shed_shares=[0.05])
    peak = table["demand_w"].sum()
    assert row["level_w"] == pytest.approx(0.95 * peak)
    assert row["reduced_w"] == pytest.approx(0.05 * peak), "floors give way before the limit"
    slack = (table["demand_w"] - table["floor_w"]).sum()
    assert row["is_reached"] == (slack >= 0.05 * peak * (1 - 1e-9))


@pytest.mark.oracle
def test_least_cost_spares_the_job_that_spans_the_cluster():
    made, tree = simulate.power_loads()
    result = analyze.demand_response(made, tree, shed_shares=[0.1]).set_index("policy")
    assert result.loc["cost", "lost_step_count"] == 0
    assert result.loc["slack", "lost_gpu_h"] > 2 * result.loc["cost", "lost_gpu_h"]


def test_meters_of_nodes_become_loads_whose_gpus_alone_can_be_cut():
    made = analyze.power_loads(grid(n1=[5e3, 7e3]), gpu_count=8, gpu_w=700, floor_share=0.75)
    assert made["floor_w"].tolist() == [5_600, 5_600], "7,000 W less a quarter of 5,600 W"
    # 0.05 (0.25 / 0.16667)^2 of the speed for 1,400 W.
    assert made["slowdown_per_w"].iloc[0] == pytest.approx(0.1125 / 1_400)
    assert made["doubt"].iloc[0] == (
        "speed by limit is a published curve; speed at 75 % of the power is extrapolated"
    )
    assumed = analyze.power_loads(grid(n1=[5e3, 7e3]))["doubt"].iloc[0]
    assert assumed.startswith("8 GPUs per meter assumed; 700 W per GPU assumed")
    of_gpus = analyze.power_loads(grid(g0=[500.0, 700]), gpu_count=1, floor_share=0.75)
    assert of_gpus["floor_w"].tolist() == [525, 525]


def test_a_measured_curve_takes_the_place_of_the_published_one():
    curve = analyze.published_curve().assign(limit_w=[500.0, 1_000], speed_ratio=[0.8, 1.0])
    made = analyze.power_loads(grid(g0=[1_000.0]), gpu_count=1, floor_share=0.5, curve=curve)
    assert made["slowdown_per_w"].iloc[0] == pytest.approx(0.2 / 500)
    assert made["doubt"].iloc[0] == ""


def test_the_floor_of_smoothing_raises_demand_and_no_cap_goes_below_it():
    """A cap may cut what work draws, not the idle cycles that fill up to the floor."""
    made = analyze.power_loads(
        grid(a=[1_000.0, 300], b=[1_000.0, 1_000]), gpu_count=1, smoothing_share=0.8
    )
    assert made["demand_w"].tolist() == [1_000, 800, 1_000, 1_000]
    assert (made["floor_w"] == 800).all()
    managed = analyze.power_management(made, TREE.assign(limit_w=[1_700.0, np.nan, np.nan]))
    assert not managed["is_below_floor"].any()
    assert (managed.loc[managed["is_load"], "granted_w"] >= 800).all()
    tight = analyze.power_management(made, TREE.assign(limit_w=[1_500.0, np.nan, np.nan]))
    assert set(tight.loc[tight["is_below_floor"], "entity"]) == {"feed", "a", "b"}


def test_one_feed_is_enough_to_ask():
    cells = grid(n1=[5e3, 7e3], n2=[6e3, 6e3])
    made, tree = analyze.power_loads(cells), analyze.single_feed(cells)
    assert tree["entity"].tolist() == ["feed", "n1", "n2"]
    silent = grid(n1=[5e3, 7e3], n2=[6e3, 6e3], n3=[np.nan, np.nan])
    assert analyze.single_feed(silent).equals(tree)
    assert "1 meters without readings left out" in analyze.power_loads(silent)["doubt"].iloc[0]
    assert row_of(made, tree, shed_shares=[0.1])["level_w"] == pytest.approx(0.9 * 13e3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analyze.power_loads(grid(n1=[np.nan])), "no meter of the grid has a reading"),
        (lambda: analyze.power_loads(grid(n1=[1.0]), floor_share=0), "floor_share is 0"),
        (lambda: analyze.power_loads(grid(n1=[1.0]), gpu_count=0), "gpu_count must be 1 or more"),
        (lambda: analyze.single_feed(grid(feed=[1.0])), "a meter is called 'feed'"),
        (lambda: analyze.single_feed(grid(n1=[1.0]).iloc[:0]), "no meter of the grid has a rea"),
        (lambda: analyze.demand_response(loads(("a", 1, {})), TREE, shed_shares=[]), "need a val"),
    ],
)
def test_what_cannot_be_answered_is_refused(call, message):
    with pytest.raises(WorkbenchError, match=message):
        call()


def test_a_curve_of_several_configurations_is_refused():
    two = analyze.published_curve()
    two.loc[0, "configuration"] = "another"
    with pytest.raises(WorkbenchError, match="curve must hold one GPU, job and configuration"):
        analyze.power_loads(grid(n1=[1.0]), curve=two)
