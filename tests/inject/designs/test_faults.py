"""Designs: which bits are hit, with which weights, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from workbench.errors import InjectionError
from workbench.inject import (
    FaultModel,
    exhaustive_faults,
    fault_list,
    parameters,
    stored_as,
    stratified_faults,
    uniform_faults,
)
from workbench.inject.designs.changes import indices
from workbench.tables import FAULTS, INJECTION_ALLOCATION

MODELS = [
    FaultModel(),
    FaultModel("mbf", flip_count=4),
    FaultModel("mbf", bit_error_ratio=3e-4),
    FaultModel("mbbf", burst_bits=3),
    FaultModel("stuck0"),
    FaultModel("stuck1"),
    FaultModel("value", value=0.5),
]
BITS = 91 * 32


def per_experiment(faults):
    return faults.drop_duplicates("exp_id")


# --- laws ---


@pytest.mark.parametrize("fault_model", MODELS, ids=lambda m: f"{m.kind}-{m.bit_error_ratio}")
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_weights_of_experiments_add_up_to_the_population(mlp, fault_model, dtype):
    model = mlp if dtype == "fp32" else stored_as(mlp, dtype)
    faults = FAULTS.check(uniform_faults(model, 50, seed=3, fault_model=fault_model))
    bits = parameters(model)["bit_count"].sum()
    assert per_experiment(faults)["exp_id"].tolist() == list(range(50))
    assert per_experiment(faults)["inclusion_weight"].sum() == pytest.approx(bits)


@pytest.mark.parametrize("fault_model", MODELS, ids=lambda m: f"{m.kind}-{m.bit_error_ratio}")
def test_the_same_seed_draws_the_same_faults(mlp, fault_model):
    first, same, another = (
        uniform_faults(mlp, 30, seed=seed, fault_model=fault_model) for seed in (5, 5, 6)
    )
    pd.testing.assert_frame_equal(first, same)
    assert not first.equals(another)


def test_every_bit_is_as_likely_as_any_other(mlp):
    faults = uniform_faults(mlp, 40_000, seed=1)
    expected = parameters(mlp).set_index("param")["bit_count"] / BITS
    shares = faults["param"].astype(str).value_counts(normalize=True)
    assert (shares - expected).abs().max() < 0.01
    bits = faults["bit"].value_counts(normalize=True)
    assert len(bits) == 32
    assert (bits - 1 / 32).abs().max() < 0.005


def test_several_flips_of_one_experiment_are_different_bits(mlp):
    faults = uniform_faults(mlp, 200, seed=1, fault_model=FaultModel("mbf", flip_count=60))
    assert (faults.groupby("exp_id").size() == 60).all()
    assert not faults.duplicated(["exp_id", "param", "elem", "bit"]).any()
    assert faults["flip"].max() == 59


def test_a_bit_error_ratio_hits_a_binomial_number_of_bits(mlp):
    ratio = 1e-3
    model = FaultModel("mbf", bit_error_ratio=ratio)
    faults = uniform_faults(mlp, 4000, seed=1, fault_model=model)
    hits = faults.groupby("exp_id")["bit"].count()
    assert len(hits) == 4000
    assert hits.mean() == pytest.approx(BITS * ratio, rel=0.05)
    assert hits.var() == pytest.approx(BITS * ratio * (1 - ratio), rel=0.1)
    assert (hits == 0).mean() == pytest.approx((1 - ratio) ** BITS, abs=0.02)


def test_an_experiment_that_hits_nothing_is_a_row_without_a_place(mlp):
    model = FaultModel("mbf", bit_error_ratio=0.0)
    faults = uniform_faults(mlp, 3, seed=1, where="0", fault_model=model)
    assert faults[["param", "elem", "bit"]].isna().all(axis=None)
    assert faults["component"].tolist() == ["0"] * 3


def test_a_burst_is_neighbouring_bits_of_one_element(mlp):
    model = FaultModel("mbbf", burst_bits=3)
    faults = uniform_faults(mlp, 3000, seed=1, fault_model=model)
    grouped = faults.groupby("exp_id")
    assert (grouped["elem"].nunique() == 1).all()
    assert (grouped["bit"].max() - grouped["bit"].min() == 2).all()
    assert set(grouped["bit"].min()) == set(range(30))


def test_stuck_bits_say_the_way_they_go_and_may_change_nothing(mlp):
    faults = uniform_faults(mlp, 300, seed=1, fault_model=FaultModel("stuck1"))
    assert set(faults["direction"]) == {"0to1"}
    same = faults["value_before"] == faults["value_after"]
    assert 0 < same.sum() < 300


def test_flips_say_which_way_they_go(mlp):
    faults = uniform_faults(mlp, 500, seed=1, bits=31)
    is_negative = faults["value_before"] < 0
    assert (faults["direction"].astype(str) == np.where(is_negative, "1to0", "0to1")).all()
    assert (faults["value_after"] == -faults["value_before"]).all()


def test_where_takes_patterns_layers_components_and_rows(mlp):
    def names(where):
        return set(uniform_faults(mlp, 300, seed=1, where=where)["param"])

    assert names("0") == names("0.*") == {"0.weight", "0.bias"}
    assert names(["*.bias", "2"]) == {"0.bias", "2.weight", "2.bias", "3.bias"}
    assert names(parameters(mlp).iloc[[5]]) == {"3.bias"}


def test_strata_hold_every_component_and_bit_and_their_weights_the_population(mlp):
    faults = FAULTS.check(stratified_faults(mlp, 3, seed=1))
    assert faults["stratum"].nunique() == 3 * 32
    assert (faults.groupby("stratum", observed=True).size() == 3).all()
    assert "3, bit 30" in set(faults["stratum"])
    assert faults["inclusion_weight"].sum() == pytest.approx(BITS)


def test_an_allocation_is_drawn(mlp):
    wanted = INJECTION_ALLOCATION.cast(
        pd.DataFrame(
            {
                "stratum": [f"bit {bit}" for bit in range(32)], "bit_count": 91.0,
                "pilot_count": 2, "pilot_pvf": 0.0, "spread": 0.1, "site_count": range(32),
            }
        )
    )  # fmt: skip
    then = stratified_faults(mlp, wanted, seed=2, by=("bit",))
    assert then["stratum"].value_counts()["bit 30"] == 30
    assert then["exp_id"].tolist() == list(range(31 * 16))
    assert then["inclusion_weight"].sum() == pytest.approx(BITS * 31 / 32)
    assert (then.groupby("stratum", observed=True)["inclusion_weight"].nunique() == 1).all()


def test_exhaustive_faults_are_every_bit_once_in_order(mlp):
    faults = FAULTS.check(exhaustive_faults(mlp, "3.bias"))
    positions = faults[["elem", "bit"]].to_numpy(dtype=int).tolist()
    assert positions == [[elem, bit] for elem in range(3) for bit in range(32)]
    assert (faults["inclusion_weight"] == 1).all()
    assert len(exhaustive_faults(mlp, bits=[30, 31])) == 91 * 2


def test_a_list_of_ones_own_comes_back_as_it_was(mlp):
    faults = uniform_faults(mlp, 40, seed=1)
    pd.testing.assert_frame_equal(fault_list(mlp, faults), faults, check_like=True)
    filled = fault_list(mlp, faults[["param", "elem", "bit"]])
    assert filled["value_after"].equals(faults["value_after"])
    assert filled["index"].equals(faults["index"])


def test_an_index_is_written_per_axis():
    assert indices((4, 3, 2), np.array([0, 23, 7])).tolist() == [
        "(0, 0, 0)",
        "(3, 2, 1)",
        "(1, 0, 1)",
    ]
    assert indices((5,), np.array([4])).tolist() == ["(4,)"]
    assert indices((), np.array([0])).tolist() == ["()"]


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "sfb"}, "kind='sfb' is not one of"),
        ({"kind": "mbf"}, "'mbf' takes flip_count or bit_error_ratio, and was given none"),
        ({"kind": "mbf", "flip_count": 2, "bit_error_ratio": 0.1}, "takes flip_count or"),
        ({"kind": "sbf", "flip_count": 2}, "'sbf' takes no further number"),
        ({"kind": "mbf", "flip_count": 0}, "flip_count must be 1 or more, not 0"),
        ({"kind": "mbf", "flip_count": 1.5}, "flip_count must be a whole number from 1, not 1.5"),
        (
            {"kind": "mbf", "bit_error_ratio": 1.5},
            "bit_error_ratio must be 0 or more and at most 1, not 1.5",
        ),
        ({"kind": "mbf", "bit_error_ratio": "0.1"}, "bit_error_ratio must be 0 or more"),
        ({"kind": "mbbf", "burst_bits": 1}, "burst_bits must be 2 or more, not 1"),
        ({"kind": "mbbf", "burst_bits": 2.5}, "burst_bits must be a whole number from 2, not 2.5"),
        ({"kind": "value", "value": "big"}, "value must be a number, not 'big'"),
        (
            {"kind": "value", "value": float("nan")},
            "value must be a number, not nan: a missing value",
        ),
    ],
)
def test_refuses_fault_models_that_cannot_be_followed(options, message):
    with pytest.raises(InjectionError, match=message):
        FaultModel(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "tpo"}, "where: 'tpo' names no parameter, layer or component"),
        ({"bits": 32}, "bits: bit 32 is outside fp32, whose bits are 0 to 31"),
        ({"bits": []}, "bits: the list is empty"),
        ({"fault_model": FaultModel("mbf", flip_count=3000)}, "flip_count=3000 is more than the"),
        ({"fault_model": FaultModel("mbbf", burst_bits=33)}, "burst_bits=33 does not fit into"),
    ],
)
def test_refuses_draws_from_nothing(mlp, options, message):
    with pytest.raises(InjectionError, match=message):
        uniform_faults(mlp, 5, seed=1, **options)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "1 or more, not 0"),
        (-3, "1 or more, not -3"),
        (2.5, "a whole number from 1, not 2.5"),
        (True, "a whole number from 1, not True"),
        ("5", "a whole number from 1, not '5'"),
    ],
)
def test_refuses_counts_that_are_no_counts(mlp, count, words):
    with pytest.raises(InjectionError, match=f"count must be {words}"):
        uniform_faults(mlp, count, seed=1)
    with pytest.raises(InjectionError, match=f"sites must be {words}"):
        stratified_faults(mlp, count, seed=1)


def test_whole_numbers_can_come_as_floats(mlp):
    kind = FaultModel("mbf", flip_count=2.0)
    assert len(uniform_faults(mlp, 3.0, seed=1, fault_model=kind)) == 6


def test_refuses_an_empty_population(mlp):
    with pytest.raises(InjectionError, match="where: the table has no elements"):
        uniform_faults(mlp, 5, seed=1, where=parameters(mlp).iloc[:0])


@pytest.mark.parametrize(
    ("by", "message"), [(("colour",), r"by: \['colour'\] cannot make"), ((), "by: no column")]
)
def test_refuses_strata_of_nothing(mlp, by, message):
    with pytest.raises(InjectionError, match=message):
        stratified_faults(mlp, 2, seed=1, by=by)


def allocation(stratum, count):
    row = {"stratum": stratum, "bit_count": 1.0, "pilot_count": 2, "pilot_pvf": 0.0, "spread": 0.1}
    return INJECTION_ALLOCATION.cast(pd.DataFrame([row | {"site_count": count}]))


def test_refuses_allocations_to_strata_that_are_not_there(mlp):
    with pytest.raises(InjectionError, match=r"sites: strata \['top, bit 3'\] are not among"):
        stratified_faults(mlp, allocation("top, bit 3", 4), seed=1)
    with pytest.raises(InjectionError, match="sites: site_count is 0 everywhere"):
        stratified_faults(mlp, allocation("3, bit 3", 0), seed=1)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("param", "4.weight", r"param '4\.weight' .* is not of this model .* another model"),
        ("elem", 40, r"elem 40 of '0\.weight' is outside its tensor"),
        ("elem", None, r"elem <NA> of '0\.weight' is missing"),
        ("bit", 32, r"bit 32 of '0\.weight' is outside the type of its tensor \(row 1, exp_id 1"),
        ("bit", None, "bit <NA> .* is missing and so is value_after"),
        ("dtype", "bf16", "dtype 'bf16' .* is not the type that the model stores there"),
        ("value_before", 9.5, r"value_before .*9\.5.* is not what the model gives there"),
        ("value_after", 9.5, r"value_after .*9\.5.* is not what the model gives there"),
        ("exp_id", 0, "flip .* appears twice in its experiment"),
    ],
)
def test_refuses_a_fault_list_for_another_model(mlp, column, value, message):
    table = pd.DataFrame(
        {"param": ["0.weight"] * 3, "elem": [0, 1, 2], "bit": [5, 6, 7], "exp_id": [0, 1, 2]}
    )
    bad = table.astype(object)
    if column not in bad:
        bad[column] = None
    bad.loc[1, column] = value
    with pytest.raises(InjectionError, match=message):
        fault_list(mlp, bad)


def test_refuses_a_list_without_places(mlp):
    with pytest.raises(InjectionError, match=r"no column \['elem'\]; a fault list needs"):
        fault_list(mlp, pd.DataFrame({"param": ["0.weight"], "bit": [1]}))
