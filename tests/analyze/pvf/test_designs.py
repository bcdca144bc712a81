"""How many faults to inject and where: published numbers, coverage on a truth, laws, refusals."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims._interval_coverage import interval_coverage, truth_sample
from claims._tables import INTERVAL_COVERAGE
from workbench import analyze
from workbench.analyze._pvf.allocation import sample_size_leveugle
from workbench.errors import InjectionError, WorkbenchError
from workbench.tables import (
    CAMPAIGN,
    INJECTION_ALLOCATION,
    INJECTION_SAMPLE_SIZES,
    INTERVAL_FUNNEL,
    PVF_RUNNING,
    ExhaustiveInjections,
)

FEW = settings(max_examples=10)


def drawn(truth, count, **options):
    return truth_sample(truth, count, **({"seed": 1} | options))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("population", "count"), [(821_280, 9_492), (61_952, 8_314), (13_312_000, 9_596)]
)
def test_sample_size_leveugles_of_a_dlrm(population, count):
    assert sample_size_leveugle(population) == pytest.approx(count, abs=1)


@pytest.mark.oracle
def test_a_relative_error_needs_many_more_sites(make_injections):
    shape = {"component": "top", "layer": "x", "param": "p", "dtype": "fp32"}
    rows = [shape | {"elem": i, "bit": 30, "sdc_count": int(i < 4)} for i in range(1000)]
    people = [shape | {"element_count": 1000, "bit_count": 32_000}]
    pilot = make_injections(*rows, input_count=1, parameters=people)
    table = INJECTION_SAMPLE_SIZES.check(analyze.injection_sample_sizes(pilot))
    one = table[(table["design"] == "uniform") & (table["inputs"] == "one")].iloc[0]
    assert one["pvf"] == 0.004
    assert one["site_count"] == pytest.approx(95_652, abs=1)


def test_strata_never_need_more_sites_than_none(truth):
    table = analyze.injection_sample_sizes(truth).set_index(["group", "inputs", "design"])
    for _, part in table["site_count"].drop("leveugle", level="design").groupby(level=[0, 1]):
        uniform, proportional, neyman = part.to_numpy()
        assert neyman <= proportional <= uniform
    # All inputs of a site tell more than one does.
    assert (
        table.loc[("top", "all", "neyman"), "site_count"]
        < table.loc[("top", "one", "neyman"), "site_count"]
    )


def test_several_errors_and_levels_give_the_rows_of_each_alone(truth):
    errors, levels = (0.1, 0.3), (0.8, 0.99)
    whole = analyze.injection_sample_sizes(truth, relative_error=errors, confidence_level=levels)
    keys = ["confidence_level", "group", "error_kind", "error", "inputs", "design"]
    alone = pd.concat(
        [
            analyze.injection_sample_sizes(truth, relative_error=error, confidence_level=level)
            for level in levels
            for error in errors
        ]
    ).drop_duplicates()
    pd.testing.assert_frame_equal(
        *(table.sort_values(keys, ignore_index=True) for table in (whole, alone))
    )


@pytest.fixture(scope="module")
def coverage(truth):
    return INTERVAL_COVERAGE.check(interval_coverage(truth, site_count=2000, seed=3))


@pytest.mark.parametrize("component", ["top", "bottom"])
@pytest.mark.parametrize("design", ["uniform", "two-phase"])
def test_intervals_by_site_hold_the_truth_as_often_as_they_say(coverage, component, design):
    table = coverage[(coverage["group"] == component) & (coverage["design"] == design)]
    kept = table[table["interval"] == "clustered"]
    assert kept["covered_share"].between(0.90, 0.985).all()
    assert kept["confidence_level"].eq(0.95).all()


@pytest.mark.parametrize("component", ["top", "bottom"])
def test_intervals_of_independent_trials_miss_the_truth(coverage, component):
    table = coverage.set_index(["group", "design", "interval", "input_count"])["covered_share"]
    assert table[component, "uniform", "independent", 1000] < 0.3
    assert table[component, "uniform", "independent", 1] > 0.9


def test_a_pilot_by_bit_is_worth_many_uniform_sites(coverage):
    table = coverage[coverage["interval"] == "clustered"]
    error = table.set_index(["group", "design", "input_count"])["relative_rmse_ratio"]
    assert error["top", "two-phase", 1000] < error["top", "uniform", 1000] / 4


def test_coverage_needs_sites_enough_for_two_phases(truth):
    table = interval_coverage(truth, site_count=100, repeat_count=5)
    assert set(table["design"]) == {"uniform"}


def test_the_intervals_of_a_growing_sample_close_in_on_the_truth(truth):
    table = INTERVAL_FUNNEL.check(analyze.interval_funnel(truth, component="top", seed=2))
    assert table["site_count"].tolist()[0] == 50
    width = (table["high"] - table["low"]).to_numpy()
    assert width[-1] < width[3] / 4
    last = table.iloc[-1]
    assert last["low"] <= last["truth"] <= last["high"]
    exact = analyze.pvf(truth, average="bits").set_index("component")["pvf"]
    assert last["truth"] == pytest.approx(exact["top"])
    with pytest.raises(InjectionError, match="component='side' has no sites"):
        analyze.interval_funnel(truth, component="side")


def test_a_truth_whose_counts_were_changed_is_sorted_anew(truth):
    own = dataclasses.replace(truth, sites=truth.sites.copy())
    before = analyze.interval_funnel(own, component="top")
    assert analyze.interval_funnel(own, component="top").equals(before)
    own.sites[["sdc_count", "due_count"]] *= 0
    assert (before["truth"] > 0).all()
    assert (analyze.interval_funnel(own, component="top")["truth"] == 0).all()


@pytest.mark.long
@FEW
@given(st.integers(0, 10_000))
def test_a_sample_estimates_its_truth(truth, seed):
    table = analyze.pvf(drawn(truth, 3000, component="top", by="bit", seed=seed), average="bits")
    exact = analyze.pvf(truth, average="bits").set_index("component")["pvf"]
    # Half of 1e-6 of all draws would be farther off.
    assert table["pvf"].iloc[0] == pytest.approx(exact["top"], rel=0.7)
    assert table["bit_count"].tolist() == [80_000]


def test_a_sample_is_a_campaign_of_its_own(truth):
    sample = drawn(truth, 640, component="bottom", by=("bit",))
    faults = sample.faults
    assert faults["stratum"].value_counts().eq(20).all()
    assert faults["inclusion_weight"].eq(960 / 20).all()
    assert sample.campaign["design"].tolist() == ["stratified"]
    assert not faults.duplicated(["param", "elem", "bit"]).any()
    assert faults.loc[faults["bit"] == 31, "bit_role"].eq("sign").all()
    assert set(drawn(truth, 10).faults["stratum"].isna()) == {True}


def test_a_sample_of_few_inputs_says_that_it_guessed_which(truth):
    sample = drawn(truth, 4000, component="top", input_count=1)
    outcomes = sample.outcomes
    assert (outcomes["sdc_count"] + outcomes["due_count"]).max() == 1
    assert "drawn by chance" in sample.quality["what"].iloc[0]
    assert drawn(truth, 10).quality.empty
    share = float((outcomes["sdc_count"] + outcomes["due_count"]).mean())
    exact = analyze.pvf(truth, average="bits").set_index("component").loc["top", "pvf"]
    assert share == pytest.approx(exact, abs=5 * np.sqrt(exact / 4000))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"component": "side"}, "component='side' has no sites"),
        ({"by": "direction"}, "by='direction' makes no strata"),
        ({"input_count": 2000}, "input_count=2,000, but the truth was judged on 1,000"),
        ({"count": 10**7}, "10,000,000 sites of 'the truth': it has 366,720"),
    ],
)
def test_samples_that_cannot_be_drawn_are_refused(truth, options, message):
    count = options.pop("count", 10)
    with pytest.raises(InjectionError, match=message):
        drawn(truth, count, **options)


@pytest.fixture(scope="module")
def pilot(truth):
    return drawn(truth, 640, component="top", by="bit", seed=5)


def test_the_next_sites_go_where_the_pilot_found_most_spread(pilot):
    plan = INJECTION_ALLOCATION.check(analyze.injection_allocation(pilot, 1360))
    assert plan["site_count"].sum() == 1360
    assert plan["site_count"].min() >= 2
    assert plan["stratum"].iloc[plan["site_count"].argmax()] == "bit 30"
    assert plan["bit_count"].eq(2500).all()
    by_stratum = analyze.injection_allocation(pilot, 1360, by="stratum")
    columns = ["stratum", "site_count"]
    # Strata that are alike may get one more or less.
    one, two = (dict(table[columns].to_numpy()) for table in (by_stratum, plan))
    assert {name: one[name] - two[name] for name in two if abs(one[name] - two[name]) > 1} == {}


def test_pooled_phases_weigh_as_one(truth, pilot):
    plan = analyze.injection_allocation(pilot, 1360)
    more = drawn(truth, plan, component="top", by="bit", seed=6)
    both = analyze.pooled(pilot, more)
    assert len(both.outcomes) == 2000
    assert not both.outcomes.duplicated(["campaign_id", "exp_id"]).any()
    weights = both.faults.groupby("stratum", observed=True)["inclusion_weight"].agg(
        ["sum", "nunique"]
    )
    assert weights["nunique"].eq(1).all()
    assert weights["sum"].to_numpy() == pytest.approx(2500)
    found = analyze.pvf(both, average="bits").iloc[0]
    exact = analyze.pvf(truth, average="bits").set_index("component").loc["top", "pvf"]
    assert found["pvf"] == pytest.approx(exact, rel=0.15)
    assert found["is_sure"]


@pytest.mark.long
@FEW
@given(st.integers(2, 30), st.integers(2, 30))
def test_halves_of_a_uniform_campaign_pool_to_the_whole(truth, one, two):
    halves = [drawn(truth, n, component="bottom", seed=n) for n in (one, two)]
    both = analyze.pooled(*halves)
    shares = [
        (half.outcomes["sdc_count"] + half.outcomes["due_count"]).sum() / 1000 for half in halves
    ]
    found = analyze.pvf(both, average="bits").iloc[0]
    sites = both.faults[["param", "elem", "bit"]].drop_duplicates()
    assert found["site_count"] == len(sites)
    assert found["pvf"] == pytest.approx(sum(shares) / (one + two))


def test_phases_that_do_not_fit_are_refused(truth, pilot, make_injections):
    other = drawn(truth, 640, component="bottom", by="bit")
    for second, message in (
        (other, "do not share their strata"),
        (make_injections({"param": "p"}, criterion="threshold"), "without inclusion_weight"),
    ):
        with pytest.raises(InjectionError, match=message):
            analyze.pooled(pilot, second)


@pytest.mark.parametrize(
    ("name", "value"), [("mitigation", "weight_clamp"), ("nan_policy", "as_is"), ("flip_count", 2)]
)
def test_phases_follow_the_same_rules(truth, name, value):
    first, second = (drawn(truth, 30, component="top", seed=seed) for seed in (1, 2))
    campaign = second.campaign.astype({name: object}).assign(**{name: value})
    campaign = CAMPAIGN.check(CAMPAIGN.cast(campaign))
    with pytest.raises(InjectionError, match=f"the phases differ in {name}"):
        analyze.pooled(first, dataclasses.replace(second, campaign=campaign))


def test_a_pilot_that_missed_a_stratum_is_refused(truth):
    few = drawn(truth, 5, component="top")
    with pytest.raises(InjectionError, match=r"the pilot hit strata of .* of 80,000 bits"):
        analyze.injection_allocation(few, 500)
    with pytest.raises(InjectionError, match="site_count=3 is too few for"):
        analyze.injection_allocation(few, 3)


def test_the_running_estimate_ends_where_the_campaign_does(truth):
    sample = drawn(truth, 2300, component="top")
    table = PVF_RUNNING.check(analyze.pvf_running(sample, every=500, relative_error=0.5))
    assert table["site_count"].tolist() == [500, 1000, 1500, 2000, 2300]
    whole = analyze.pvf(sample, average="bits").iloc[0]
    last = table.iloc[-1]
    for name in ("pvf", "low", "high", "independent_low", "independent_high"):
        assert last[name] == pytest.approx(whole[name]), name
    enough = (table["high"] - table["low"]) / 2 < 0.5 * table["pvf"]
    assert table["is_enough"].tolist() == enough.tolist()


def test_stopping_early_needs_sites_drawn_alike(pilot, truth):
    with pytest.raises(InjectionError, match=r"^32 strata: stopping early"):
        analyze.pvf_running(pilot)
    with pytest.raises(InjectionError, match="no experiment hit component='side'"):
        analyze.pvf_running(drawn(truth, 10), component="side")


def test_numbers_out_of_range_are_refused(truth):
    with pytest.raises(WorkbenchError, match="relative_error must be between 0 and 1"):
        analyze.injection_sample_sizes(truth, relative_error=10)
    with pytest.raises(WorkbenchError, match="population=0"):
        sample_size_leveugle(0)


def test_a_truth_that_does_not_fit_together_is_refused(truth):
    two = pd.concat([truth.campaign] * 2, ignore_index=True)
    with pytest.raises(InjectionError, match="one row with its input_count"):
        analyze.pvf(ExhaustiveInjections(two, truth.parameters, truth.sites), average="bits")
    few = truth.parameters[truth.parameters["component"] == "top"]
    with pytest.raises(InjectionError, match=r"the sites hit 'bot.0.bias'"):
        analyze.pvf(ExhaustiveInjections(truth.campaign, few, truth.sites), average="bits")
    some = ExhaustiveInjections(truth.campaign, truth.parameters, truth.sites.iloc[5:])
    first = analyze.pvf(some, average="bits").iloc[0]
    assert first["group"] == "255,995 of the 256,000 bits of embeddings"
    assert first["bit_count"] == 255_995
