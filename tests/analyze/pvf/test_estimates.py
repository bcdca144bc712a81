"""Vulnerability factors: exact numbers first, then laws, then what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import InjectionError
from workbench.tables import PVF, Injections


def sites(counts, inputs=100, **shared):
    """Give one experiment per count, each at its own place."""
    return [
        {"component": "top", "layer": "top.0", "param": "top.0.weight", "elem": elem, "bit": 30,
         "dtype": "fp32", "sdc_count": int(count), "input_count": inputs} | shared
        for elem, count in enumerate(counts)
    ]  # fmt: skip


def row(injections, **options):
    table = PVF.check(analyze.pvf(injections, **({"average": "bits"} | options)))
    assert len(table) == 1
    return table.iloc[0]


def shuffled(injections, seed):
    def mix(table):
        return table.sample(frac=1, random_state=seed).reset_index(drop=True)

    parts = vars(injections)
    return Injections(**parts | {name: mix(parts[name]) for name in ("faults", "outcomes")})


counts_of_sites = st.lists(st.integers(0, 100), min_size=2, max_size=40)


@pytest.mark.long
@given(counts_of_sites)
def test_equal_sites_without_weights_give_the_mean_of_their_shares(make_injections, counts):
    found = row(make_injections(*sites(counts)))
    shares = np.array(counts) / 100
    assert found["pvf"] == pytest.approx(shares.mean())
    trials = 100 * len(counts)
    independent = shares.mean() * (1 - shares.mean()) / trials
    if independent:
        variance = shares.var(ddof=1) / len(counts)
        assert found["design_effect_ratio"] == pytest.approx(variance / independent)
    assert found["trial_count"] == trials
    assert found["event_site_count"] == (shares > 0).sum()


@pytest.mark.long
@given(counts_of_sites, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_holds_the_estimate_and_stays_between_0_and_1(make_injections, counts, level):
    found = row(make_injections(*sites(counts)), confidence_level=level)
    assert 0 <= found["low"] <= found["pvf"] <= found["high"] <= 1
    assert 0 <= found["independent_low"] <= found["pvf"] <= found["independent_high"] <= 1


@pytest.mark.long
@given(counts_of_sites, st.integers(0, 99))
def test_the_order_of_the_rows_does_not_matter(make_injections, counts, seed):
    injections = make_injections(*sites(counts))
    pd.testing.assert_series_equal(row(injections), row(shuffled(injections, seed)))


@pytest.mark.long
@given(counts_of_sites, st.lists(st.integers(1, 9), min_size=40, max_size=40))
def test_a_site_in_several_rows_is_still_one_site(make_injections, counts, cuts):
    parts = []
    for each, cut in zip(sites(counts), cuts, strict=False):
        first = min(each["sdc_count"], 10 * cut)
        parts += [
            each | {"input_count": 10 * cut, "sdc_count": first},
            each | {"input_count": 100 - 10 * cut, "sdc_count": each["sdc_count"] - first},
        ]
        if parts[-1]["sdc_count"] > parts[-1]["input_count"]:
            parts[-2:] = [each]
    whole = row(make_injections(*sites(counts))).drop("doubt")
    pd.testing.assert_series_equal(row(make_injections(*parts)).drop("doubt"), whole)


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=30))
def test_what_a_detector_finds_is_never_more_than_all(make_injections, counts):
    rows = [
        each | {"due_count": due}
        for each, (_, due) in zip(sites([sdc for sdc, _ in counts]), counts, strict=True)
    ]
    injections = make_injections(*rows)
    factors = {
        policy: row(injections, nan_policy=policy)["pvf"] for policy in ("wrong", "due", "ignore")
    }
    sdc, due = (sum(pair[i] for pair in counts) for i in (0, 1))
    total = 100 * len(counts)
    assert factors["due"] <= factors["wrong"]
    assert factors["wrong"] == pytest.approx((sdc + due) / total)
    assert factors["due"] == pytest.approx(sdc / total)
    assert factors["ignore"] == pytest.approx(sdc / (total - due))


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from("abc")), min_size=6, max_size=40))
def test_strata_weigh_as_much_as_they_stand_for(make_injections, drawn):
    size = {"a": 1000.0, "b": 50.0, "c": 7.0}
    table = pd.DataFrame(drawn, columns=["count", "stratum"])
    number = table["stratum"].map(table["stratum"].value_counts())
    table["weight"] = table["stratum"].map(size) / number
    rows = [
        each | {"stratum": stratum, "inclusion_weight": weight}
        for each, stratum, weight in zip(
            sites(table["count"]), table["stratum"], table["weight"], strict=True
        )
    ]
    found = row(make_injections(*rows, design="stratified"))
    share = (table["count"] / 100).groupby(table["stratum"])
    part = pd.Series(size)[share.mean().index]
    part = part / part.sum()
    assert found["pvf"] == pytest.approx((part * share.mean()).sum())
    if number.min() > 1 and 0 < found["pvf"] < 1:
        variance = (part**2 * share.var() / share.size()).sum()
        independent = found["pvf"] * (1 - found["pvf"]) / found["trial_count"]
        assert found["design_effect_ratio"] == pytest.approx(variance / independent)


def test_no_event_is_counted_in_sites_not_in_inputs(make_injections):
    found = row(make_injections(*sites([0] * 300, inputs=1000)))
    assert found["pvf"] == found["low"] == 0
    assert found["high"] == pytest.approx(1 - 0.05 ** (1 / 300))
    assert found["interval"] == "rule of three"
    assert "0 of 300 sites have events" in found["doubt"]
    everything = row(make_injections(*sites([100] * 300)))
    assert everything["low"] == pytest.approx(0.05 ** (1 / 300))


@pytest.mark.parametrize("average", ["bits", "parameters"])
def test_the_truth_is_exact(truth, average):
    table = PVF.check(analyze.pvf(truth, average=average))
    sums = truth.sites.assign(wrong=truth.sites["sdc_count"] + truth.sites["due_count"])
    home = truth.parameters.set_index("param")["component"]
    share = sums["wrong"].groupby(sums["param"].astype(object).map(home)).mean() / 1000
    for found in table.itertuples():
        assert found.pvf == found.low == found.high == pytest.approx(share[found.component])
        assert found.interval == "exact"
    assert table["group"].tolist() == ["embeddings", "bottom", "top"]
    assert table["is_sure"].all()
    assert table["bit_count"].tolist() == [8000 * 32, 960 * 32, 2500 * 32]


def test_a_campaign_of_every_fault_is_exact(make_injections):
    shape = {"component": "top", "layer": "top.0", "param": "p", "dtype": "int8"}
    people = [shape | {"element_count": 2, "bit_count": 16}]
    rows = [shape | {"elem": i // 8, "bit": i % 8, "sdc_count": i} for i in range(16)]
    found = row(make_injections(*rows, parameters=people, design="exhaustive"))
    assert found["low"] == found["high"] == found["pvf"] == pytest.approx(0.075)
    assert found["interval"] == "exact"
    assert found["is_sure"]
    partly = row(make_injections(*rows[1:], parameters=people, design="exhaustive"))
    assert partly["interval"] == "Korn-Graubard"


def test_averages_of_one_truth_differ(truth):
    tensors = analyze.pvf(truth, average="tensors", by=())
    each = analyze.pvf(truth, average="bits", by=("param",))
    assert tensors["pvf"].tolist() == pytest.approx([each["pvf"].mean()])
    layers = analyze.pvf(truth, average="layers", by=())
    bits = analyze.pvf(truth, average="bits", by=())
    assert len({*layers["pvf"], *bits["pvf"], *tensors["pvf"]}) == 3
    assert layers["group"].tolist() == ["all"]


def test_the_mean_over_tensors_has_the_mean_of_their_variances(make_injections):
    rows = sites([0, 10, 50]) + sites([5, 95], param="top.2.weight")
    table = analyze.pvf(make_injections(*rows), average="bits", by=("param",))
    mean = row(make_injections(*rows), average="tensors")
    assert mean["pvf"] == pytest.approx(table["pvf"].mean())

    def variance(each):
        return each["design_effect_ratio"] * each["pvf"] * (1 - each["pvf"]) / each["trial_count"]

    assert variance(mean) == pytest.approx(table.apply(variance, axis=1).sum() / 4)


def test_tensors_that_were_never_hit_are_named(make_injections):
    shape = {
        "component": "top",
        "layer": "x",
        "dtype": "fp32",
        "element_count": 9,
        "bit_count": 288,
    }
    people = [shape | {"param": f"top.{i}.weight"} for i in (0, 2)]
    found = row(make_injections(*sites([5, 6]), parameters=people), average="tensors")
    assert "1 of 2 tensors never injected (top.2.weight)" in found["doubt"]
    assert found["bit_count"] == 576


def test_elements_weigh_the_same_whatever_their_bits(make_injections):
    rows = sites([100, 100]) + sites([0, 0], param="q", dtype="int8")
    heavy = [each | {"inclusion_weight": w} for each, w in zip(rows, [32, 32, 8, 8], strict=True)]
    injections = make_injections(*heavy, dtype=None)
    assert row(injections)["pvf"] == pytest.approx(0.8)
    assert row(injections, average="parameters")["pvf"] == pytest.approx(0.5)


def test_experiments_that_hit_several_components_are_their_own_group(make_injections):
    both = {"flips": [{"component": "top"}, {"component": "bottom"}], "sdc_count": 50}
    top = {"flips": [{"component": "top"}, {"component": "top"}], "sdc_count": 9}
    table = analyze.pvf(make_injections(both, both, top, top, flip_count=2), average="bits")
    assert table["component"].tolist() == ["top", "several"]
    assert table["pvf"].tolist() == pytest.approx([0.09, 0.5])


def test_the_same_set_of_places_is_one_site(make_injections):
    one, two = {"param": "p", "elem": 1, "bit": 3}, {"param": "p", "elem": 2, "bit": 3}
    rows = [{"flips": each, "sdc_count": 3} for each in ([one, two], [two, one], [one, one])]
    assert row(make_injections(*rows, flip_count=2), by=())["site_count"] == 2


def test_places_that_are_not_known_are_sites_of_their_own(make_injections):
    rows = [{"param": "p", "bit": 3, "sdc_count": 3}] * 3
    assert row(make_injections(*rows), by=())["site_count"] == 3
    rows = [{"param": "p", "bit": 3, "index": "(0, 1)", "sdc_count": 3}] * 3
    assert row(make_injections(*rows), by=())["site_count"] == 1


def test_campaigns_are_told_apart_by_any_column_of_theirs(make_injections):
    parts = [
        make_injections(*sites([count] * 3, dtype=dtype), campaign_id=dtype, dtype=dtype)
        for dtype, count in (("int8", 2), ("bf16", 7))
    ]
    table = analyze.pvf(parts, average="bits", by=("dtype", "component", "flip_count"))
    assert table["group"].tolist() == ["bf16, top, 1 flip", "int8, top, 1 flip"]
    assert list(table.columns[:4]) == ["dtype", "component", "flip_count", "group"]
    with pytest.raises(InjectionError, match=r"mixes campaigns .*dtype: int8, bf16"):
        analyze.pvf(parts, average="bits")


def test_weights_that_are_not_known_are_said_to_be(make_injections):
    rows = sites([50] * 20)
    assert row(make_injections(*rows))["is_sure"]
    assert "weights are not known" in row(make_injections(*rows, design="other"))["doubt"]


def test_a_nan_that_may_look_right_is_said_to_be(make_injections):
    rows = sites([50] * 20, due_count=None)
    found = row(make_injections(*rows, nan_policy="as_is"))
    assert "some look right" in found["doubt"]
    assert pd.isna(found["due_count"])


def test_a_group_with_nothing_left_is_missing(make_injections):
    rows = sites([0, 0], due_count=100)
    found = row(make_injections(*rows), nan_policy="ignore")
    assert np.isnan([found["pvf"], found["low"], found["high"]]).all()
    assert found["doubt"] == "no output is left to judge"


def test_a_single_site_has_no_interval(make_injections):
    found = row(make_injections(*sites([40])))
    assert found["pvf"] == 0.4
    assert np.isnan(found["low"])
    assert "a single site" in found["doubt"]


def test_faults_that_help_can_count_as_right(make_injections):
    injections = make_injections(*sites([40, 20], beneficial_count=10))
    assert row(injections)["pvf"] == pytest.approx(0.3)
    assert row(injections, beneficial="right")["pvf"] == pytest.approx(0.2)
    with pytest.raises(InjectionError, match="beneficial_count is missing in campaign 'c'"):
        row(make_injections(*sites([1, 2])), beneficial="right")


def test_experiments_without_counts_are_left_out_and_counted(make_injections):
    failed = {"sdc_count": None, "error": "out of memory", "component": "top"}
    found = row(make_injections(*sites([40, 20]), failed))
    assert found["site_count"] == 2
    assert "1 experiments of the campaigns have no counts" in found["doubt"]


@pytest.mark.parametrize("policy", ["due", "ignore"])
def test_a_tool_that_cannot_tell_nan_gives_no_factor_without_it(make_injections, policy):
    injections = make_injections(*sites([1, 2], due_count=None))
    with pytest.raises(InjectionError, match="the tool cannot tell them: due_count is missing"):
        row(injections, nan_policy=policy)
    assert row(injections)["pvf"] == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sdc_count": 80, "due_count": 30}, "more wrong outputs than inputs"),
        ({"masked_count": 9, "benign_count": 9}, "that are not its inputs"),
        ({"beneficial_count": 9}, "more beneficial outputs than changed ones"),
        ({"input_count": None}, "has no input_count"),
    ],
)
def test_counts_that_cannot_be_are_refused(make_injections, change, message):
    rows = sites([5, 6])
    with pytest.raises(InjectionError, match=f"experiment 1 of campaign 'c'.*{message}"):
        row(make_injections(rows[0], rows[1] | change, input_count=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": "weights"}, "average='weights' is not one of 'bits'"),
        ({"nan_policy": "drop"}, "nan_policy='drop' is not one of"),
        ({"beneficial": "maybe"}, "beneficial='maybe'"),
        ({"by": ("colour",)}, "by='colour' is not a column to group by"),
        ({"by": ("bit", "bit")}, "names a column twice"),
        ({"confidence_level": 95}, "confidence_level must be between 0 and 1"),
    ],
)
def test_rules_that_do_not_exist_are_refused(make_injections, options, message):
    with pytest.raises(Exception, match=message):
        row(make_injections(*sites([5, 6])), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": ("bit",)}, "by='bit' needs one flip per experiment: experiment 1 of campaign 'c'"),
        ({"average": "tensors"}, "needs every experiment to hit one of the tensors: experiment 1"),
    ],
)
def test_several_flips_cannot_be_told_by_bit(make_injections, options, message):
    two = [{"param": "p", "bit": 1}, {"param": "q", "bit": 2}]
    with pytest.raises(InjectionError, match=message):
        row(make_injections(*sites([5]), {"flips": two}), **options)


def test_bundles_that_do_not_fit_are_refused(make_injections, truth):
    one = make_injections(*sites([5, 6]))
    for given_, message in (
        ([one, one], "campaign 'c' comes twice"),
        ([], "no injections"),
        ([one, truth], "passed alone"),
        ([one.outcomes], "DataFrame is not tables.Injections"),
        (
            make_injections(*sites([0, 0], sdc_count=None)),
            "no experiment says how many outputs were wrong",
        ),
    ):
        with pytest.raises(InjectionError, match=message):
            analyze.pvf(given_, average="bits")


def test_a_truth_cannot_tell_what_it_does_not_hold(truth):
    with pytest.raises(InjectionError, match="by='direction'"):
        analyze.pvf(truth, average="bits", by="direction")
    with pytest.raises(InjectionError, match="beneficial='right'"):
        analyze.pvf(truth, average="bits", beneficial="right")
