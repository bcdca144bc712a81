"""Power shared out along the delivery tree: exact costs, laws at every instant, refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.managed import (
    chains,
    least_lost_gpus,
    loads,
    lost_gpus,
    random_case,
)
from tests.analyze.power.power_rows import topology
from workbench import analyze, simulate
from workbench.analyze import FeedShortage
from workbench.analyze._power.management import POWER_POLICIES
from workbench.errors import WorkbenchError

TREE = topology(
    ("feed", None, "feed", None, 1_700.0),
    ("a", "feed", "gpu", None, None),
    ("b", "feed", "gpu", None, None),
)
seeds = st.integers(0, 10**6)


def granted(table, name="granted_w"):
    return dict(zip(table["entity"].astype(str), table[name], strict=True))


@st.composite
def cases(draw):
    """Draw a tree with losses, several instants and any limits, floors that do not fit included."""
    rng = np.random.default_rng(draw(seeds))
    one, tree = random_case(rng, nested=draw(st.booleans()))
    rows = [
        (row.entity, row.demand_w * rng.uniform(0, 1.3, 4), {
            "floor_w": row.floor_w, "job": row.job, "gpu_count": row.gpu_count,
            "slowdown_per_w": row.slowdown_per_w, "priority": int(rng.integers(3)),
        })
        for row in one.itertuples()
    ]  # fmt: skip
    factor = draw(st.sampled_from([0.1, 0.7, 1.0, 2.0]))
    tree = tree.assign(limit_w=tree["limit_w"] * factor, loss_share=rng.uniform(0, 0.2, len(tree)))
    return loads(*rows), tree


@given(seeds)
def test_the_cost_with_one_short_feed_is_that_of_the_exact_program(seed):
    table, tree = random_case(np.random.default_rng(seed), nested=False)
    managed = analyze.power_management(table, tree)
    assert lost_gpus(table, managed) == pytest.approx(least_lost_gpus(table, tree), abs=1e-7)


@given(seeds)
def test_with_nested_feeds_limits_hold_and_the_cost_is_never_below_the_exact_one(seed):
    table, tree = random_case(np.random.default_rng(seed), nested=True)
    managed = analyze.power_management(table, tree)
    exact = least_lost_gpus(table, tree)
    assert exact - 1e-7 <= lost_gpus(table, managed)
    assert not managed["is_below_floor"].any()


@given(cases(), st.sampled_from(POWER_POLICIES))
def test_children_and_losses_add_up_and_no_feed_is_above_its_limit(case, policy):
    table, tree = case
    managed = analyze.power_management(table, tree, policy=policy)
    chain = chains(tree)
    parents = dict(zip(tree["entity"], tree["parent"], strict=True))
    share = dict(zip(tree["entity"], tree["loss_share"], strict=True))
    limit = dict(zip(tree["entity"], tree["limit_w"], strict=True))
    for _, instant in managed.groupby("time_ns"):
        power, lost = granted(instant), granted(instant, "loss_w")
        for name in power:
            children = [power[child] for child in power if parents[child] == name]
            if children:
                assert power[name] == pytest.approx(sum(children) + lost[name])
                assert lost[name] == pytest.approx(share[name] * power[name])
            if not np.isnan(limit[name]):
                assert power[name] <= limit[name] * (1 + 1e-6)
    leaves = managed[managed["is_load"]]
    assert (leaves["granted_w"] <= leaves["demand_w"] * (1 + 1e-12)).all()
    assert set(chain) == set(managed["entity"])


@given(cases(), st.sampled_from(POWER_POLICIES))
def test_nobody_is_cut_without_need_nor_below_a_floor_that_fits(case, policy):
    table, tree = case
    managed = analyze.power_management(table, tree, policy=policy)
    chain = chains(tree)
    for _, instant in managed.groupby("time_ns"):
        rows = instant.set_index(instant["entity"].astype(str))
        full = rows["granted_w"] >= rows["limit_w"] * (1 - 1e-6)
        unfit = rows["is_below_floor"] & ~rows["is_load"]
        for name, load in rows[rows["is_load"]].iterrows():
            if load["is_capped"]:
                short = (rows["demand_w"] > rows["limit_w"])[chain[name]]
                assert short.any(), "a cap needs a feed above that would be over its limit"
            if load["is_below_floor"]:
                assert (full | unfit)[chain[name]].any()


def test_cutting_all_gpus_of_a_job_a_little_beats_cutting_one_a_lot():
    """The naive reading counts watts per GPU: two GPUs cut by 150 W cost as one cut by 300 W."""
    table = loads(("a", 1_000, {"priority": 1}), ("b", 1_000, {"priority": 0}))
    even, uneven = (
        analyze.power_management(table, TREE, policy=name) for name in ("cost", "priority")
    )
    assert granted(even) == {"feed": 1_700, "a": 850, "b": 850}
    assert granted(uneven) == {"feed": 1_700, "a": 1_000, "b": 700}
    assert lost_gpus(table, even) == pytest.approx(2 * 0.15)
    assert lost_gpus(table, uneven) == pytest.approx(2 * 0.3), "b keeps a waiting"


def test_gpus_on_other_feeds_that_would_wait_count_as_cost():
    """The naive reading cuts the load with fewer GPUs below the feed; its job is the larger one."""
    tree = topology(
        ("top", None, "feed", None, None),
        ("feed", "top", "feed", None, 1_700.0),
        ("a", "feed", "gpu", None, None),
        ("b", "feed", "gpu", None, None),
        ("far", "top", "gpu", None, None),
    )
    table = loads(
        ("a", 1_000, {"job": "wide", "gpu_count": 1}),
        ("b", 1_000, {"job": "own", "gpu_count": 8}),
        ("far", 9_000, {"job": "wide", "gpu_count": 99}),
    )
    result = granted(analyze.power_management(table, tree))
    assert (result["a"], result["b"], result["far"]) == (1_000, 700, 9_000)


def test_a_job_that_is_slowed_already_gives_more_for_free():
    tree = topology(
        ("top", None, "feed", None, 2_500.0),
        ("feed", "top", "feed", None, 700.0),
        ("a", "feed", "gpu", None, None),
        ("b", "top", "gpu", None, None),
        ("c", "top", "gpu", None, None),
    )
    table = loads(("a", 1_000, {}), ("b", 1_000, {}), ("c", 1_000, {"job": "other"}))
    result = granted(analyze.power_management(table, tree))
    assert result["a"] == 700
    assert (result["b"], result["c"]) == (800, 1_000), "b waits for a anyhow"


def test_floors_are_kept_as_long_as_they_fit_and_who_is_infeasible_is_said():
    table = loads(("a", 1_000, {"floor_w": 900}), ("b", 1_000, {"floor_w": 500}))
    managed = analyze.power_management(table, TREE, policy="slack")
    assert granted(managed) == {"feed": 1_700, "a": 950, "b": 750}
    assert not managed["is_below_floor"].any()
    tight = analyze.power_management(table, TREE.assign(limit_w=[1_300.0, np.nan, np.nan]))
    assert granted(tight, "is_below_floor") == {"feed": True, "a": True, "b": True}
    assert granted(tight)["feed"] == pytest.approx(1_300)


def test_an_idle_load_below_its_floor_is_not_infeasible():
    table = loads(("a", 100, {"floor_w": 900}), ("b", 1_000, {"floor_w": 900}))
    managed = analyze.power_management(table, TREE.assign(limit_w=[1_050.0, np.nan, np.nan]))
    assert granted(managed) == {"feed": 1_050, "a": 100, "b": 950}
    assert not managed["is_below_floor"].any()


@pytest.mark.oracle
def test_the_published_breaker_trips_when_it_should_and_late_caps_come_in_time():
    table = loads(("a", [1_700 * 1.1] * 1_100, {}), ("b", [0.0] * 1_100, {}), period_s=1)
    late = analyze.power_management(table, TREE, delay_s=1_100)
    heat = late.loc[late["entity"] == "feed", "trip_ratio"].to_numpy()
    assert np.argmax(heat >= 1 - 1e-9) + 1 == pytest.approx(1_020, abs=1)
    assert "one published point" in late["doubt"].iloc[0]
    soon = analyze.power_management(table, TREE, delay_s=9)
    feed = soon[soon["entity"] == "feed"]
    assert (feed["granted_w"].iloc[:9] > 1_700).all()
    assert (feed["granted_w"].iloc[9:] <= 1_700 * (1 + 1e-9)).all()
    assert feed["trip_ratio"].max() < 0.01


@given(st.floats(1.01, 3), st.integers(1, 50), st.integers(0, 60))
def test_a_breaker_never_trips_before_its_curve_allows(ratio, delay_s, cool_s):
    demand = [1_700 * ratio] * 60 + [1_000.0] * cool_s
    table = loads(("a", demand, {}), ("b", [0.0] * len(demand), {}), period_s=1)
    managed = analyze.power_management(table, TREE, delay_s=delay_s, breaker=(1.5, 40))
    heat = managed.loc[managed["entity"] == "feed", "trip_ratio"].max()
    assert heat == pytest.approx((ratio**2 - 1) * delay_s / (1.25 * 40), rel=1e-6)


def test_a_shortage_is_a_share_of_the_peak_and_lasts_as_long_as_said():
    table = loads(("a", [500, 1_000, 1_000, 1_000], {}), ("b", [500, 600, 1_000, 600], {}))
    shortage = FeedShortage(0.2, "feed", start_min=1, duration_min=2)
    free = TREE.assign(limit_w=np.nan)
    feed = analyze.power_management(table, free, shortage=shortage).query("entity == 'feed'")
    assert feed["granted_w"].tolist() == [1_000, 1_600, 1_600, 1_600]
    assert feed["limit_w"].fillna(0).tolist() == [0, 1_600, 1_600, 0]
    assert feed["is_capped"].tolist() == [False, False, True, False]


def test_an_instant_without_a_meter_has_no_result_and_is_counted():
    table = loads(("a", [1_000, np.nan], {}), ("b", [1_000, 1_000], {}))
    managed = analyze.power_management(table, TREE)
    assert managed["granted_w"].isna().tolist() == [False, True] * 3
    assert managed["doubt"].iloc[0] == "1 of 2 instants without all meters"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "dearest"}, r"no policy is called 'dearest'; there are \['cost', 'pri"),
        ({"shortage": FeedShortage(0.1, "z")}, "'z' feeds no load"),
        ({"shortage": FeedShortage(0.1, start_min=9)}, "begins after 9 min; the loads end"),
        ({"delay_s": 5}, "the loads have one instant; a delay needs several"),
        ({"breaker": (1.0, 10)}, "the ratio of breaker must be above 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(changes, message):
    table = loads(("a", 1_000, {}), ("b", 1_000, {}))
    with pytest.raises(WorkbenchError, match=message):
        analyze.power_management(table, TREE, **changes)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", None), ("a", None)], "has 'a' twice"),
        ([("a", "b"), ("b", None)], "no row for 'b' above 'a'"),
        ([("a", "a")], "no row for 'a' above 'a'"),
        ([("a", "gone")], "no row for 'gone' above 'a'"),
        ([("b", None)], r"1 entities of the loads are not in the topology, e.g. \['a'\]"),
        ([], "the topology is empty"),
    ],
)
def test_a_topology_that_is_no_tree_of_the_loads_is_refused(rows, message):
    wrong = topology(*((name, parent, "x", 1.0, 1.0) for name, parent in rows))
    with pytest.raises(WorkbenchError, match=message):
        analyze.power_management(loads(("a", 1_000, {})), wrong)


def test_loads_that_do_not_fit_the_tree_are_refused():
    both = loads(("a", 1_000, {}), ("b", 1_000, {}))
    with pytest.raises(WorkbenchError, match="'b' of the topology has no load"):
        analyze.power_management(both[both["entity"] == "a"], TREE)
    below = TREE.assign(parent=[None, "feed", "a"])
    with pytest.raises(WorkbenchError, match="'b' is below another load"):
        analyze.power_management(both, below)
    with pytest.raises(WorkbenchError, match="loss_share of 'feed' is 1"):
        analyze.power_management(both, TREE.assign(loss_share=[1.0, 0, 0]))
    with pytest.raises(WorkbenchError, match="no instant has all of 2 demands"):
        analyze.power_management(both.assign(demand_w=np.nan), TREE)
    changing = loads(("a", [1, 2], {}), ("b", [1, 2], {})).assign(priority=[0, 1, 0, 0])
    with pytest.raises(WorkbenchError, match="priority of 'a' changes over time"):
        analyze.power_management(changing, TREE)
    roots = TREE.assign(parent=None)
    with pytest.raises(WorkbenchError, match="has 2 roots"):
        analyze.power_management(both, roots.iloc[1:], shortage=FeedShortage())
    with pytest.raises(WorkbenchError, match="share must be 0 or more and at most 1"):
        FeedShortage(1.5)


@pytest.mark.oracle
@pytest.mark.parametrize("share", [0.05, 0.1, 0.19])
def test_the_made_shortage_is_found_where_it_was_made(share):
    made, tree = simulate.power_loads(shortage_share=share)
    table = analyze.power_management(made, tree)
    short = table[~table["is_load"] & (table["demand_w"] > table["limit_w"] * (1 + 1e-9))]
    assert short["entity"].unique().tolist() == ["msb1/sb1/row1"]
    assert (1 - short["limit_w"] / short["demand_w"]).max() == pytest.approx(share)
    minutes = short["time_ns"] / 60e9
    assert (minutes.min(), minutes.max()) == (10, 19.5)
    capped = table[table["is_load"] & table["is_capped"]]["entity"].unique()
    jobs = made[made["entity"].isin(capped)]["job"].unique().tolist()
    assert jobs == ["job of msb1/sb1/row1"], "pretraining would cost eight times as much"


def test_one_instant_has_caps_and_no_breaker():
    table = loads(("a", 1_000, {}), ("b", 1_000, {}))
    managed = analyze.power_management(table, TREE)
    assert managed["trip_ratio"].isna().all(), "one instant has no length"
    assert pd.api.types.is_string_dtype(managed["doubt"])
