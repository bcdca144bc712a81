"""What follows from vulnerability: protection, exposure, mitigation, outcomes, detectors."""

import numpy as np
import pandas as pd
import pytest

from claims._interval_coverage import truth_sample
from workbench import analyze
from workbench.errors import InjectionError, WorkbenchError
from workbench.tables import (
    DETECTOR_TOLERANCE,
    DETECTOR_TRIALS,
    OUTCOME_SHARES,
    PVF,
    PVF_EXPOSURE,
    PVF_MITIGATION,
    PVF_PROTECTION,
)


def site(elem, count, **more):
    return {
        "component": "top", "layer": "top.0", "param": "top.0.weight", "elem": elem, "bit": 30,
        "dtype": "fp32", "sdc_count": count,
    } | more  # fmt: skip


def protection(given, **options):
    table = PVF_PROTECTION.check(analyze.pvf_protection(given, **options))
    return dict(list(table.groupby("group", sort=False)))
    return {name: table[table["group"] == name] for name in table["group"].unique()}


@pytest.mark.parametrize("unit", ["elements", "bits", "tensors"])
def test_protecting_more_never_removes_less(truth, unit):
    curves = protection(truth, unit=unit)
    assert list(curves) == ["all", "embeddings", "bottom", "top"]
    for curve in curves.values():
        assert len(curve) <= 202
        assert curve["removed_share"].is_monotonic_increasing
        assert curve["protected_share"].is_monotonic_increasing
        assert curve["removed_share"].iloc[[0, -1]].tolist() == [0, 1]
        # The worst first: never below a straight line.
        assert (curve["removed_share"] >= curve["protected_share"] - 1e-9).all()


def test_protecting_one_bit_removes_its_share_of_the_wrong_outputs(truth):
    curve = protection(truth, unit="bits", component="top")["top"].iloc[1]
    wrong = truth.sites["sdc_count"] + truth.sites["due_count"]
    top = truth.sites["param"].astype(str).str.startswith("top")
    share = wrong[top & (truth.sites["bit"] == 30)].sum() / wrong[top].sum()
    assert curve["last"] == "bit 30"
    assert curve["removed_share"] == pytest.approx(share)
    assert curve["protected_share"] == pytest.approx(1 / 32)


def test_elements_of_the_truth_are_ranked_by_the_truth(truth):
    curve = protection(truth, component="bottom")["bottom"]
    wrong = truth.sites["sdc_count"] + truth.sites["due_count"]
    each = wrong.groupby([truth.sites["param"], truth.sites["elem"]], observed=True).sum()
    each = each[each.index.get_level_values(0).astype(str).str.startswith("bot")]
    worst = each.sort_values(ascending=False).iloc[:96].sum() / each.sum()
    removed = np.interp(0.1, curve["protected_share"], curve["removed_share"])
    assert removed == pytest.approx(worst, rel=0.01)
    assert set(curve["ranked_by"]) == {"truth"}


def test_a_sample_does_not_judge_what_it_ranked(make_injections):
    # Every site has its own element and chance alone decides: ranking must not help.
    rng = np.random.default_rng(0)
    rows = [site(i, int(100 * (rng.random() < 0.2)), bit=int(i % 32)) for i in range(3200)]
    people = [{"component": "top", "layer": "top.0", "param": "top.0.weight", "dtype": "fp32",
               "element_count": 3200, "bit_count": 3200 * 32}]  # fmt: skip
    curve = protection(make_injections(*rows, parameters=people), unit="bits")["top"]
    assert np.abs(curve["removed_share"] - curve["protected_share"]).max() < 0.1
    assert curve["ranked_by"].iloc[0].startswith("half of the sites")
    elements = protection(make_injections(*rows, parameters=people))["top"]
    assert elements["removed_share"].iloc[:-1].max() < 0.01


@pytest.mark.long
def test_a_sample_that_ranks_well_comes_close_to_the_truth(truth):
    sample = truth_sample(truth, 3000, component="top", seed=1)
    curve = protection(sample, unit="bits")["top"].iloc[1]
    exact = protection(truth, unit="bits")["top"].iloc[1]
    assert curve["last"] == exact["last"] == "bit 30"
    assert curve["removed_share"] == pytest.approx(exact["removed_share"], abs=0.05)


def test_units_that_are_not_known_are_refused(make_injections, truth):
    with pytest.raises(InjectionError, match="unit='rows' is not one of"):
        analyze.pvf_protection(truth, unit="rows")
    with pytest.raises(InjectionError, match="the place that experiment 0 of campaign 'c' hit"):
        analyze.pvf_protection(make_injections({"component": "top", "param": "p", "bit": 1}))
    with pytest.raises(InjectionError, match="component='side' was not hit"):
        analyze.pvf_protection(truth, component="side")


def test_exposure_adds_up_to_the_factor_of_the_model(truth):
    table = PVF_EXPOSURE.check(analyze.pvf_exposure(truth, upsets_per_gbit_h=0.5))
    whole = analyze.pvf(truth, average="bits", by=()).iloc[0]
    assert table["bit_share"].sum() == pytest.approx(1)
    assert table["wrong_share"].sum() == pytest.approx(1)
    assert table["wrong_per_upset"].sum() == pytest.approx(whole["pvf"])
    bits = whole["bit_count"]
    expected = 1e6 * 0.5 * bits / 1e9 * whole["pvf"]
    assert table["wrong_per_million_hours"].sum() == pytest.approx(expected)
    assert analyze.pvf_exposure(truth)["wrong_per_million_hours"].isna().all()


def test_exposure_without_bits_is_refused(make_injections):
    with pytest.raises(InjectionError, match="the bits of group 'top' are not known"):
        analyze.pvf_exposure(make_injections(site(0, 5), site(1, 6)))
    with pytest.raises(InjectionError, match="the outputs of group 'rest' are not known"):
        analyze.pvf_exposure(_with_a_silent_group(make_injections), nan_policy="ignore")
    for rate in (-1, np.inf):
        with pytest.raises(WorkbenchError, match="upsets_per_gbit_h must be 0 or more and finite"):
            analyze.pvf_exposure(make_injections(site(0, 5)), upsets_per_gbit_h=rate)


def _with_a_silent_group(make_injections):
    """Make a first group whose outputs are all dropped, and one whose bits are not known."""
    people = [
        {"component": "rest", "layer": "r", "param": "r.weight", "dtype": "fp32",
         "element_count": 1, "bit_count": 32}
    ]  # fmt: skip
    silent = site(0, 0, component="rest", layer="r", param="r.weight", due_count=100)
    return make_injections(silent, site(1, 5), parameters=people)


def mitigated(make_injections, counts, **campaign):
    rows = [site(elem, count) for elem, count in enumerate(counts)]
    return make_injections(*rows, **campaign)


def test_a_mitigation_is_compared_on_the_same_faults(make_injections):
    base = mitigated(make_injections, [100, 50, 0, 30, 20], golden_metric=0.98)
    clamp = mitigated(
        make_injections, [0, 0, 0, 30, 20, 90], campaign_id="x", mitigation="weight_clamp",
        golden_metric=0.97,
    )  # fmt: skip
    table = PVF_MITIGATION.check(analyze.pvf_mitigation(base, [clamp]))
    assert table["mitigation"].tolist() == ["none", "weight_clamp"]
    assert table["site_count"].tolist() == [5, 5]
    assert table["pvf"].tolist() == pytest.approx([0.4, 0.1])
    assert table["golden_metric"].tolist() == [0.98, 0.97]
    row = table.iloc[1]
    assert row["removed_ratio"] == pytest.approx(0.75)
    before, after = np.array([100, 50, 0, 30, 20]), np.array([0, 0, 0, 30, 20])
    error = np.std(after - 0.25 * before, ddof=1) / np.sqrt(5) / before.mean()
    assert row["removed_low"] == pytest.approx(0.75 - 2.776445 * error)
    assert row["removed_high"] <= 1
    assert pd.isna(table.iloc[0]["removed_ratio"])


def test_a_mitigation_that_removes_everything_is_certain_of_it(make_injections):
    base = mitigated(make_injections, [100, 50, 0])
    clamp = mitigated(make_injections, [0, 0, 0], campaign_id="x", mitigation="clip")
    row = analyze.pvf_mitigation(base, [clamp]).iloc[1]
    assert row["removed_ratio"] == row["removed_low"] == row["removed_high"] == 1


@pytest.mark.parametrize(
    ("campaign", "message"),
    [
        ({"mitigation": None}, "does not name its mitigation"),
        ({"mitigation": "clip", "criterion": "threshold"}, "differs in criterion"),
        ({"mitigation": "clip", "nan_policy": "as_is"}, "differs in nan_policy"),
        ({"mitigation": "clip", "bit_error_ratio": 0.5}, "differs in bit_error_ratio"),
    ],
)
def test_campaigns_that_differ_in_more_than_the_mitigation_are_refused(
    make_injections, campaign, message
):
    base = mitigated(make_injections, [100, 50])
    with pytest.raises(InjectionError, match=message):
        analyze.pvf_mitigation(
            base, [mitigated(make_injections, [1, 2], campaign_id="x", **campaign)]
        )


def test_a_mitigation_may_be_built_into_the_weights(make_injections):
    base = mitigated(make_injections, [100, 50], model_sha="a", nan_policy="apart")
    clamp = mitigated(
        make_injections, [1, 2], campaign_id="x", mitigation="clip", model_sha="b",
        nan_policy="wrong",
    )  # fmt: skip
    assert len(analyze.pvf_mitigation(base, [clamp])) == 2


def test_a_mitigation_of_other_faults_is_refused(make_injections):
    other = make_injections(site(9, 1), campaign_id="x", mitigation="clip")
    with pytest.raises(InjectionError, match="injected none of the sites"):
        analyze.pvf_mitigation(mitigated(make_injections, [100, 50]), [other])


def test_outcomes_add_up(make_injections):
    rows = [
        site(0, 20, masked_count=50, benign_count=20, due_count=10, beneficial_count=5),
        site(1, 0, masked_count=100, benign_count=0, beneficial_count=0),
    ]
    table = OUTCOME_SHARES.check(analyze.outcome_shares(make_injections(*rows)))
    shares = table.set_index("outcome")["outcome_share"]
    assert shares.to_dict() == pytest.approx(
        {"masked": 0.75, "benign": 0.1, "sdc": 0.075, "beneficial": 0.025, "due": 0.05}
    )
    heavy = [rows[0] | {"inclusion_weight": 3.0}, rows[1] | {"inclusion_weight": 1.0}]
    table = analyze.outcome_shares(make_injections(*heavy))
    assert table["trial_count"].sum() == pytest.approx(200)
    assert table.set_index("outcome")["outcome_share"]["due"] == pytest.approx(0.075)


def test_outcomes_that_the_tool_cannot_tell_stay_together(make_injections):
    table = analyze.outcome_shares(make_injections(site(0, 20, due_count=None), site(1, 0)))
    assert table["outcome"].tolist() == ["masked or benign", "sdc"]
    assert table["outcome_share"].tolist() == pytest.approx([0.9, 0.1])


def test_what_only_provably_changed_nothing_is_not_shown_as_masked(make_injections):
    rows = [site(0, 20, masked_count=50, benign_count=30), site(1, 0, masked_count=100)]
    rows[1]["benign_count"] = 0
    plain, proven = make_injections(*rows), make_injections(*rows, masked_rule="proven")
    assert analyze.outcome_shares(plain)["outcome"].tolist()[:2] == ["masked", "benign"]
    table = analyze.outcome_shares(proven)
    assert table["outcome"].tolist()[0] == "masked or benign"
    assert table["outcome_share"].iloc[0] == pytest.approx(0.9)


def checks(detector, place, residuals, is_faulty):
    table = pd.DataFrame({"residual": np.asarray(residuals, dtype=float)})
    table = table.assign(
        detector=detector, place=place, bit=pd.array([None] * len(table), dtype="Int16"),
        is_faulty=is_faulty, is_effective=is_faulty, output_change=0.0,
    )  # fmt: skip
    return table[list(DETECTOR_TRIALS.columns)]


def test_a_larger_tolerance_catches_less_and_cries_wolf_less():
    trials = pd.concat(
        [checks("gemm_checksum", "output C", [0, 1, 2, 3, np.inf], True),
         checks("gemm_checksum", "nothing", [0] * 98 + [0.5] * 2, False)],
        ignore_index=True,
    )  # fmt: skip
    table = DETECTOR_TOLERANCE.check(
        analyze.detector_tolerance(trials, tolerances=[0, 1, 10])
    ).set_index("tolerance")
    assert table["detected_share"].tolist() == pytest.approx([0.8, 0.6, 0.2])
    assert table["false_alarm_share"].tolist() == pytest.approx([0.02, 0, 0])
    assert table.loc[1, "false_alarm_high"] == pytest.approx(1 - 0.05 ** (1 / 100))
    assert (table["detected_low"] <= table["detected_share"]).all()
    with pytest.raises(InjectionError, match="must be one or more numbers from 0"):
        analyze.detector_tolerance(trials, tolerances=[])
    for tolerance in (-1, np.inf):
        with pytest.raises(WorkbenchError, match="tolerances must be 0 or more and finite"):
            analyze.detector_tolerance(trials, tolerances=[1, tolerance])


def test_bits_never_injected_are_not_zero(truth):
    sample = truth_sample(truth, 60, component="top", seed=4)
    table = PVF.check(analyze.pvf_by_bit(sample, rows="param"))
    mine = table[table["param"].str.startswith("top")]
    assert len(mine) == 64
    empty = mine[mine["site_count"] == 0]
    assert len(empty) > 0
    assert empty["pvf"].isna().all()
    assert empty["doubt"].eq("never injected").all()
    assert mine.loc[mine["site_count"] > 0, "pvf"].notna().all()
    exact = analyze.pvf_by_bit(truth, rows="component")
    assert len(exact) == 96
    assert exact["pvf"].notna().all()


def test_flips_are_told_apart_by_their_number(make_injections):
    parts = []
    for count in (1, 4):
        rows = [
            {"flips": [site(i + 10 * f, 0) for f in range(count)], "sdc_count": 10 * count}
            for i in range(5)
        ]
        parts.append(make_injections(*rows, campaign_id=f"c{count}", flip_count=count))
    table = PVF.check(analyze.pvf(parts, average="bits", by=("component", "flip_count")))
    assert table["flip_count"].tolist() == [1, 4]
    assert table["pvf"].tolist() == pytest.approx([0.1, 0.4])
