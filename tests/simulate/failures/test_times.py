"""Failures that are drawn: how many, whom, when, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.errors import WorkbenchError
from workbench.simulate import FailureProcess, failure_times, slow_times
from workbench.tables import FAILURE_TIMES, SLOW_TIMES

DAYS_54 = 54 * 1440.0


def within(table, horizon):
    return table[(table["time_min"] >= 0) & (table["time_min"] < horizon)]


def counts(table, horizon):
    runs = table["run"].max() + 1
    return within(table, horizon).groupby("run").size().reindex(range(runs), fill_value=0)


# --- how many ---


def test_random_failures_come_at_their_rate_and_scatter_like_poisson():
    table = failure_times(FailureProcess(), horizon_min=14_400, seed=1, runs=400, warm_up_min=50)
    each = counts(table, 14_400)
    assert each.mean() == pytest.approx(800, rel=0.005)
    assert each.var() / each.mean() == pytest.approx(1, abs=0.25)
    gaps = within(table, 14_400).groupby("run")["time_min"].diff().dropna()
    assert stats.kstest(gaps / 18, "expon").pvalue > 1e-3


def test_the_interval_process_is_exact():
    process = FailureProcess(process="interval")
    table = failure_times(process, horizon_min=14_400, seed=1, runs=50, warm_up_min=37)
    inside = table[table["time_min"] < 14_400]
    gaps = inside.groupby("run")["time_min"].diff().dropna()
    assert gaps.to_numpy() == pytest.approx(18, abs=1e-9)
    first = inside.groupby("run")["time_min"].min()
    assert first.between(-37, -19).all()
    assert first.nunique() == 50
    assert (counts(table, 14_400) == 800).all()


@pytest.mark.parametrize("spread", [0.0, 0.9])
def test_nothing_fails_during_a_recovery_in_a_renewal(spread):
    process = FailureProcess(process="renewal")
    table = failure_times(
        process, horizon_min=14_400, seed=2, runs=100, replicas=1, recovery_spread=spread,
        recovery_min={"detection": 4, "recovery": 6},
    )  # fmt: skip
    inside = table[table["time_min"] < 14_400]
    back = inside["time_min"] + inside["detection_min"] + inside["other_min"]
    up = (inside["time_min"] - back.groupby(inside["run"]).shift()).dropna()
    assert up.min() >= 0
    assert up.mean() == pytest.approx(18, rel=0.02)
    assert counts(table, 14_400).mean() == pytest.approx(14_400 / 28, rel=0.01)
    beyond = table[table["time_min"] >= 14_400]
    assert beyond["run"].tolist() == list(range(100))


@pytest.mark.parametrize("shape", [0.6, 0.8, 1.0, 1.6, 3.0])
def test_aged_weibull_nodes_keep_their_mean_from_the_first_minute_on(shape):
    process = FailureProcess(process="weibull", weibull_shape=shape, is_aged=True, node_count=600)
    table = failure_times(process, horizon_min=3 * 18 * 600, seed=3, runs=30)
    for part in (0.1, 1.0):
        horizon = part * 3 * 18 * 600
        assert len(within(table, horizon)) == pytest.approx(30 * horizon / 18, rel=0.035)


def test_new_nodes_with_a_shape_below_1_fail_more_often_at_first():
    young, old = (
        failure_times(
            FailureProcess(process="weibull", weibull_shape=0.7, is_aged=aged),
            horizon_min=DAYS_54, seed=1, runs=1,
        )
        for aged in (False, True)
    )  # fmt: skip
    assert len(young) > 1.4 * len(old)


def test_gaps_of_a_weibull_node_are_weibull():
    process = FailureProcess(process="weibull", weibull_shape=0.7, node_count=1)
    table = within(failure_times(process, horizon_min=4e4, seed=4, runs=1, replicas=1), 4e4)
    gaps = table["time_min"].diff().dropna()
    scale = 18 / math.gamma(1 + 1 / 0.7)
    assert stats.kstest(gaps, "weibull_min", args=(0.7, 0, scale)).pvalue > 1e-3


# --- whom ---


@pytest.mark.parametrize("kind", ["poisson", "weibull"])
def test_lemons_carry_their_share_of_the_failures(kind):
    process = FailureProcess(
        process=kind, is_aged=True, lemon_share=0.012, lemon_failure_share=0.15
    )
    table = within(failure_times(process, horizon_min=DAYS_54, seed=5, runs=4), DAYS_54)
    lemons = table["node"] >= 12_288 - round(0.012 * 12_288)
    assert lemons.mean() == pytest.approx(0.15, abs=0.015)
    assert len(table) == pytest.approx(4 * DAYS_54 / 18, rel=0.03)
    weights = process.node_weights()
    assert weights.sum() == pytest.approx(1)
    assert weights[-147:].sum() == pytest.approx(0.15)


@pytest.mark.parametrize("kind", ["poisson", "weibull"])
def test_all_failures_can_be_lemons(kind):
    process = FailureProcess(process=kind, node_count=100, lemon_share=0.1, lemon_failure_share=1.0)
    table = within(failure_times(process, horizon_min=5_000, seed=5, runs=2), 5_000)
    assert table["node"].min() >= 90


def test_nodes_belong_to_replicas_in_order_and_in_equal_parts():
    process = FailureProcess(node_count=24)
    table = within(failure_times(process, horizon_min=14_400, seed=6, runs=5, replicas=5), 14_400)
    sizes = table.groupby("replica")["node"].unique().map(len)
    assert sizes.tolist() == [5, 5, 5, 5, 4]
    assert table.sort_values("node")["replica"].is_monotonic_increasing


def test_a_single_replica_is_all_of_them():
    table = failure_times(FailureProcess(), horizon_min=1_440, seed=6, runs=2, replicas=1)
    assert table["replica"].isna().all()


@pytest.mark.parametrize(
    ("count", "replicas", "further"), [(2, 12, 1), (4, 12, 3), (9, 3, 2), (5, 1, 0)]
)
def test_some_failures_hit_neighbouring_replicas_too(count, replicas, further):
    process = FailureProcess(together_share=0.3, together_count=count, repair_min=100)
    table = failure_times(process, horizon_min=14_400, seed=7, runs=10, replicas=replicas)
    extra = table[table["is_follow_on"]]
    first = table[~table["is_follow_on"]]
    assert len(extra) / len(first) == pytest.approx(0.3 * further, abs=0.02 * max(further, 1))
    together = table.groupby(["run", "time_min"])["replica"]
    assert (together.nunique(dropna=False) == together.size()).all()
    assert extra["repair_min"].isna().all()
    assert extra["node"].isna().all()
    assert first["repair_min"].notna().all()
    assert not table.groupby(["run", "time_min"])["is_follow_on"].first().any()


# --- how long ---


def test_recoveries_are_lognormal_with_their_mean_kept():
    phases = {"detection": 1.0, "allocation": 4.0, "first step": 0.0}
    table = failure_times(
        FailureProcess(), horizon_min=DAYS_54, seed=8, runs=10, recovery_min=phases,
        recovery_spread=0.8,
    )  # fmt: skip
    for phase, column in (("detection", "detection_min"), ("allocation", "allocation_min")):
        assert table[column].mean() == pytest.approx(phases[phase], rel=0.03)
        assert np.log(table[column]).std() == pytest.approx(0.8, rel=0.03)
    assert table["first_step_min"].eq(0).all()
    assert abs(np.corrcoef(table["detection_min"], table["allocation_min"])[0, 1]) < 0.05


def test_repairs_are_exponential():
    process = FailureProcess(repair_min=2880)
    table = failure_times(process, horizon_min=DAYS_54, seed=9, runs=5)
    assert stats.kstest(table["repair_min"] / 2880, "expon").pvalue > 1e-3
    plain = failure_times(FailureProcess(), horizon_min=1440, seed=9, runs=1)
    assert plain["repair_min"].isna().all()


# --- form ---


kinds = st.sampled_from(["poisson", "interval", "renewal", "weibull"])
processes = st.builds(
    FailureProcess,
    st.floats(0.5, 5_000),
    kinds,
    node_count=st.just(50),
    together_share=st.floats(0, 1),
)


@given(
    process=processes,
    horizon=st.floats(0.5, 3_000),
    runs=st.integers(1, 4),
    warm=st.floats(0, 500),
    seed=st.integers(0, 2**32),
)
def test_any_history_is_in_order_reproducible_and_ends_beyond_the_horizon(
    process, horizon, runs, warm, seed
):
    def draw():
        return failure_times(
            process, horizon_min=horizon, seed=seed, runs=runs, replicas=5, warm_up_min=warm
        )

    table = FAILURE_TIMES.check(draw())
    pd.testing.assert_frame_equal(table, draw())
    assert table.attrs == {"synthetic": True}
    assert table.sort_values(["run", "time_min"], kind="stable").index.equals(table.index)
    assert table["time_min"].min() >= -warm
    assert sorted(table["run"].unique()) == list(range(runs))
    assert (table.groupby("run")["time_min"].max() >= horizon).all()


def test_another_seed_is_another_history():
    one, two = (failure_times(FailureProcess(), horizon_min=1440, seed=each) for each in (1, 2))
    assert not one["time_min"].equals(two["time_min"])


def test_stragglers_come_at_their_rate_and_stay_in_the_run():
    table = SLOW_TIMES.check(
        slow_times(per_day=4, dur_min=30, speed_ratio=0.8, horizon_min=DAYS_54, seed=1, runs=50)
    )
    assert len(table) == pytest.approx(50 * 54 * 4, rel=0.03)
    assert table["start_min"].between(0, DAYS_54).all()
    assert table.sort_values(["run", "start_min"]).index.equals(table.index)
    none = slow_times(per_day=0, dur_min=30, speed_ratio=0.8, horizon_min=100, seed=1)
    assert none.empty


# --- what is refused ---

WRONG = [-1, math.nan, math.inf, "x", None]


@pytest.mark.parametrize("value", [0, *WRONG])
def test_failures_come_at_a_positive_interval(value):
    with pytest.raises(WorkbenchError, match="failure_interval_min must be above 0"):
        FailureProcess(failure_interval_min=value)


@pytest.mark.parametrize("value", [0, 0.05, *WRONG])
def test_shapes_have_a_lower_limit(value):
    with pytest.raises(WorkbenchError, match=r"weibull_shape must be 0\.1 or more and finite"):
        FailureProcess(weibull_shape=value)


@pytest.mark.parametrize("value", [0, 1.5, *WRONG])
def test_nodes_replicas_and_runs_are_whole(value):
    for name in ("node_count", "together_count"):
        with pytest.raises(WorkbenchError, match=f"{name} must be"):
            FailureProcess(**{name: value})
    for name in ("runs", "replicas"):
        with pytest.raises(WorkbenchError, match=f"{name} must be"):
            failure_times(FailureProcess(), horizon_min=10, seed=1, **{name: value})


@pytest.mark.parametrize("name", ["lemon_share", "lemon_failure_share", "together_share"])
@pytest.mark.parametrize("value", [1.5, *WRONG])
def test_shares_are_fractions(name, value):
    with pytest.raises(WorkbenchError, match=f"{name} must be 0 or more and at most 1"):
        FailureProcess(**{name: value})


def test_lemons_need_both_numbers_and_a_node():
    for given_ in ({"lemon_share": 0.1}, {"lemon_failure_share": 0.1}):
        with pytest.raises(WorkbenchError, match="lemons need both"):
            FailureProcess(**given_)
    with pytest.raises(WorkbenchError, match=r"lemon_share=0.01 of 20 nodes is not one node"):
        FailureProcess(node_count=20, lemon_share=0.01, lemon_failure_share=0.5)


def test_a_process_is_one_of_four():
    with pytest.raises(ValueError, match=r"process must be one of .* not 'bursts'"):
        FailureProcess(process="bursts")


@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_times_are_finite_and_not_negative(value):
    with pytest.raises(WorkbenchError, match="repair_min must be 0 or more"):
        FailureProcess(repair_min=value)
    draw = {"horizon_min": 100, "seed": 1}
    for name in ("warm_up_min", "recovery_spread"):
        with pytest.raises(WorkbenchError, match=f"{name} must be 0 or more"):
            failure_times(FailureProcess(), **draw, **{name: value})
    with pytest.raises(WorkbenchError, match=r"recovery_min\['recovery'\] must be 0 or more"):
        failure_times(FailureProcess(), recovery_min=value, **draw)
    with pytest.raises(WorkbenchError, match="horizon_min must be above 0"):
        failure_times(FailureProcess(), horizon_min=value, seed=1)


def test_a_horizon_of_0_is_none():
    with pytest.raises(WorkbenchError, match="horizon_min must be above 0"):
        failure_times(FailureProcess(), horizon_min=0, seed=1)
    with pytest.raises(WorkbenchError, match="horizon_min must be above 0"):
        slow_times(per_day=1, dur_min=1, speed_ratio=1, horizon_min=0, seed=1)


def test_unknown_phases_are_named():
    with pytest.raises(WorkbenchError, match=r"no phase \['coffee'\]; there are \['detection'"):
        failure_times(FailureProcess(), horizon_min=10, seed=1, recovery_min={"coffee": 1})


def test_more_replicas_than_nodes_are_refused():
    with pytest.raises(WorkbenchError, match="5 nodes cannot form 6 replicas"):
        failure_times(FailureProcess(node_count=5), horizon_min=10, seed=1, replicas=6)


@pytest.mark.long
@pytest.mark.parametrize(
    ("process", "runs", "words"),
    [
        ({"failure_interval_min": 1e-3}, 50, "about 50,000,000 failures; draw at most 10,000,000"),
        ({"process": "weibull"}, 1000, "about 12,288,000 clocks of nodes; draw at most"),
        (
            {"process": "weibull", "weibull_shape": 0.1, "node_count": 10_000},
            900, "failures; draw at most 10,000,000",
        ),
    ],
)  # fmt: skip
def test_a_history_too_long_for_memory_is_refused(process, runs, words):
    with pytest.raises(WorkbenchError, match=words):
        failure_times(FailureProcess(**process), horizon_min=1000, seed=1, runs=runs)


def test_a_thousand_million_failures_are_refused_at_once():
    with pytest.raises(WorkbenchError, match="about 1,000,000,000 failures; draw at most"):
        failure_times(FailureProcess(1e-6), horizon_min=1000, seed=1, runs=1)
    with pytest.raises(WorkbenchError, match="stragglers; draw at most 10,000,000"):
        slow_times(per_day=1e9, dur_min=1, speed_ratio=1, horizon_min=1e6, seed=1)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_stragglers_are_checked(value):
    plain = {"per_day": 1, "dur_min": 1, "speed_ratio": 1, "runs": 1}
    for name in plain:
        with pytest.raises(WorkbenchError, match=f"{name} must be"):
            slow_times(**{**plain, name: value}, horizon_min=10, seed=1)
    with pytest.raises(WorkbenchError, match="speed_ratio must be 0 or more and at most 1"):
        slow_times(**{**plain, "speed_ratio": 1.01}, horizon_min=10, seed=1)
