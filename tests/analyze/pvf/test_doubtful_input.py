"""Campaigns that do not fit together, or tell too little: refused or doubted, never averaged."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from workbench import analyze
from workbench.errors import InjectionError, WorkbenchError
from workbench.tables import DETECTOR_TRIALS

TOP = {
    "component": "top", "layer": "top.0", "param": "top.0.weight", "dtype": "fp32",
    "element_count": 100, "bit_count": 3200,
}  # fmt: skip
REST = TOP | {"component": "rest", "layer": "r", "param": "r.weight", "bit_count": 9600}


def site(elem, count, **more):
    return {
        "component": "top", "layer": "top.0", "param": "top.0.weight", "elem": elem, "bit": 30,
        "dtype": "fp32", "sdc_count": count,
    } | more  # fmt: skip


def sites(count, number=12, start=0, **more):
    return [site(start + elem, count, **more) for elem in range(number)]


def row(injections, **options):
    table = analyze.pvf(injections, **({"average": "bits", "by": ()} | options))
    assert len(table) == 1
    return table.iloc[0]


def test_three_strata_agree_with_the_sum_by_hand(make_injections):
    counts = {"a": [0, 10, 20, 90], "b": [5, 5, 50], "c": [100, 80]}
    bits = {"a": 1000, "b": 300, "c": 50}
    rows = [
        site(10 * number + place, count, stratum=name, inclusion_weight=bits[name] / len(found))
        for number, (name, found) in enumerate(counts.items())
        for place, count in enumerate(found)
    ]
    found = row(make_injections(*rows))
    shares = {name: np.array(each) / 100 for name, each in counts.items()}
    share = {name: n / 1350 for name, n in bits.items()}
    assert found["pvf"] == pytest.approx(sum(share[n] * shares[n].mean() for n in bits))
    variance = sum(share[n] ** 2 * shares[n].var(ddof=1) / len(shares[n]) for n in bits)
    independent = found["pvf"] * (1 - found["pvf"]) / 900
    assert found["design_effect_ratio"] * independent == pytest.approx(variance)


@pytest.mark.parametrize(
    "counts", [[0] * 5, [100] * 5, [0, 0, 0, 1], [100, 99], [50] * 4, [0, 100] * 3]
)
def test_more_confidence_never_narrows_the_interval(make_injections, counts):
    injections = make_injections(*[site(n, count) for n, count in enumerate(counts)])
    found = [
        row(injections, confidence_level=level) for level in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
    ]
    assert (np.diff([each["low"] for each in found]) <= 1e-12).all()
    assert (np.diff([each["high"] for each in found]) >= -1e-12).all()


def test_a_campaign_without_weights_puts_those_of_another_in_doubt(make_injections):
    planned = [*sites(10, inclusion_weight=1000.0), *sites(90, start=50, inclusion_weight=1.0)]
    one = make_injections(*planned, campaign_id="a", design="stratified")
    two = make_injections(*sites(50), campaign_id="b", design="uniform")
    assert row(one)["is_sure"]
    assert row(two)["is_sure"]
    found = row([one, two])
    assert "weights are not known" in found["doubt"]
    plain = [make_injections(*sites(10 * n), campaign_id=str(n)) for n in (1, 9)]
    assert "weights are not known" in row(plain)["doubt"]


@pytest.mark.parametrize("name", ["model_sha", "inputs_sha"])
def test_other_weights_and_inputs_are_not_averaged(make_injections, name):
    def two(first, second):
        told = zip("ab", (first, second), strict=True)
        return [make_injections(*sites(10), campaign_id=i, **{name: sha}) for i, sha in told]

    with pytest.raises(InjectionError, match=rf"cannot be averaged \({name}: x, y\)"):
        row(two("x", "y"))
    assert row(two("x", None))["pvf"] == pytest.approx(0.1)


def test_outputs_that_are_not_told_are_doubted(make_injections):
    unseen = sites(10, due_count=None)
    for policy in ("apart", None):
        found = row(make_injections(*unseen, nan_policy=policy))
        assert "outputs that are not finite are not recorded" in found["doubt"]
    assert row(make_injections(*unseen, nan_policy="wrong"))["is_sure"]
    lost = make_injections(*sites(10, due_count=None, masked_count=50, benign_count=30))
    assert "neither masked, benign nor wrong" in row(lost)["doubt"]


def test_counts_without_due_are_shares_of_the_inputs_of_the_campaign(make_injections):
    given = sites(10, due_count=None, masked_count=50, benign_count=20, input_count=None)
    found = row(make_injections(*given))
    assert found["trial_count"] == 1200
    assert found["pvf"] == pytest.approx(0.1)


def test_a_design_that_was_not_finished_is_doubted(make_injections):
    whole = make_injections(*sites(10, 20, inclusion_weight=5.0), design="stratified")
    cut = dataclasses.replace(whole, outcomes=whole.outcomes.iloc[:12])
    assert row(whole)["is_sure"]
    assert "8 experiments of the campaigns were never run" in row(cut)["doubt"]
    uniform = make_injections(*sites(10, 20))
    assert row(dataclasses.replace(uniform, outcomes=uniform.outcomes.iloc[:12]))["is_sure"]


def test_a_place_told_by_layer_and_index_is_one_site(make_injections):
    numbered = {"param": None, "layer": "4"}
    twice = [site(None, 50, index="(1, 2)", **numbered) for _ in range(10)]
    assert (
        row(make_injections(*twice, site(None, 0, index="(3, 2)", **numbered)))["site_count"] == 2
    )
    # An instruction is not a place: it runs many times.
    code = [site(None, 50, index="FADD 0x90", **numbered) for _ in range(10)]
    assert row(make_injections(*code))["site_count"] == 10


def test_exposure_is_of_one_whole_model(make_injections):
    rows = [each | {"bit": bit} for bit, each in enumerate(sites(10))]

    def campaign(**more):
        return make_injections(*rows, parameters=[TOP], **more)

    both = [campaign(), campaign(campaign_id="b", mitigation="clamp")]
    with pytest.raises(
        InjectionError, match="hold 6,400 bits, the model 3,200: they are not parts"
    ):
        analyze.pvf_exposure(both, by="mitigation")
    part = make_injections(*rows, parameters=[TOP, REST])
    with pytest.raises(InjectionError, match="hold 3,200 bits, the model 12,800: inject into"):
        analyze.pvf_exposure(part)


def test_a_mitigation_is_judged_on_the_same_inputs(make_injections):
    base = make_injections(*sites(50))
    fewer = make_injections(*sites(5, input_count=10), campaign_id="m", mitigation="clamp")
    with pytest.raises(InjectionError, match=r"another number of inputs .* \(10 and 100\)"):
        analyze.pvf_mitigation(base, [fewer])
    other = make_injections(*sites(5), campaign_id="m", mitigation="clamp", model_name="n")
    with pytest.raises(InjectionError, match="differs in model_name"):
        analyze.pvf_mitigation(base, [other])


@pytest.mark.parametrize(
    "analysis",
    [
        analyze.outcome_shares,
        analyze.pvf_protection,
        lambda given: analyze.pvf_mitigation(
            given, [dataclasses.replace(given, campaign=given.campaign.assign(mitigation="clamp"))]
        ),
    ],
)
def test_weights_of_a_part_of_the_experiments_are_refused(make_injections, analysis):
    half = [*sites(10, inclusion_weight=4.0), *sites(20, start=50)]
    with pytest.raises(InjectionError, match="with 12 whose is not"):
        analysis(make_injections(*half, parameters=[TOP]))


def test_protection_takes_campaigns_of_the_same_rules_and_a_known_model(make_injections):
    one, two = (
        make_injections(*sites(10), parameters=[TOP], campaign_id=name, criterion=name)
        for name in ("argmax", "threshold")
    )
    with pytest.raises(InjectionError, match="criterion: argmax, threshold"):
        analyze.pvf_protection([one, two])
    with pytest.raises(InjectionError, match="no table of parameters"):
        analyze.pvf_protection(make_injections(*sites(10)), unit="bits")


def test_due_of_some_experiments_stay_in_the_whole(make_injections):
    told = {"masked_count": 50, "benign_count": 30}
    table = analyze.outcome_shares(
        make_injections(site(0, 10, due_count=10, **told), site(1, 10, due_count=None, **told))
    ).set_index("outcome")["outcome_share"]
    assert table.to_dict() == pytest.approx({"masked or benign": 0.85, "sdc": 0.1, "due": 0.05})


def test_weights_of_zero_are_named(make_injections):
    with pytest.raises(InjectionError, match="all experiments of group 'bit 30 of top' have the"):
        analyze.outcome_shares(make_injections(*sites(10, inclusion_weight=0.0)))


@pytest.mark.parametrize("error", [0, -1, float("nan"), float("inf")])
def test_a_wanted_error_is_above_zero(make_injections, error):
    with pytest.raises(WorkbenchError, match="relative_error must be above 0"):
        analyze.pvf_running(make_injections(*sites(10)), relative_error=error)


def test_a_residual_that_is_no_number_is_an_alarm():
    shared = {"detector": "d", "bit": None, "output_change": 1.0, "is_effective": True}
    rows = [
        shared | {"place": "B", "is_faulty": True, "residual": np.nan},
        shared | {"place": "B", "is_faulty": True, "residual": 0.0},
        shared | {"place": "nothing", "is_faulty": False, "residual": np.nan},
    ]
    trials = DETECTOR_TRIALS.check(DETECTOR_TRIALS.cast(pd.DataFrame(rows)))
    found = analyze.detector_tolerance(trials, tolerances=[1e-6]).iloc[0]
    assert (found["detected_share"], found["false_alarm_share"]) == (0.5, 1.0)


def test_strata_of_two_campaigns_are_not_one(make_injections):
    def campaign(name, counts, stratum="bit 30"):
        options = {"stratum": stratum, "inclusion_weight": 10.0, "input_count": 10}
        rows = [site(exp, count, **options) for exp, count in enumerate(counts)]
        return make_injections(*rows, campaign_id=name, design="stratified")

    first = campaign("a", [1, 2, 1])
    same, other = (row([first, campaign("b", [8, 9, 8], name)]) for name in ("bit 30", "bit 29"))
    assert [same["low"], same["high"]] == pytest.approx([other["low"], other["high"]])
