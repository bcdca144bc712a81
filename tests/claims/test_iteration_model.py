"""Fitted models, FLOPs, utilization and memory of configurations: laws, then refusals."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims import _iteration_model, perfmodel
from claims._closed_form import memory_footprint, model_flops, utilization
from claims._iteration_errors import cross_validated, iteration_errors
from claims._iteration_model import iteration_model
from claims._iterations import iterations
from workbench import analyze
from workbench.analyze._perfmodel.layouts.closed_form import PARTS
from workbench.errors import MissingExtraError, PerformanceModelError
from workbench.tables import ITERATIONS, PREDICTED_ITERATIONS

GPT = analyze.model_shape("GPT-3 175B")


def jobs(shape=GPT, gpu="H100", **layout):
    return analyze.configurations(shape, analyze.Layout(**layout), gpu=gpu)


@pytest.fixture(scope="module")
def many(real_data):
    return iterations(real_data("iterations-vtrain") / "ground_truth_multi.csv")


@pytest.fixture(scope="module")
def fitted(many):
    return iteration_model(many, residual="none")


@pytest.fixture
def trees_here(absent):
    """Skip the test where scikit-learn is not installed."""
    if not _iteration_model.has_trees():
        absent("scikit-learn is not installed; pip install 'ai-infra-workbench[train]'")


@pytest.mark.oracle
@pytest.mark.parametrize(
    "claim", ["megatron", "memory", "mlperf", "llama", "lumos", "megatron_bridge"]
)
def test_printed_jobs_are_predicted_as_claimed(claim):
    readings = list(getattr(perfmodel, claim)())
    assert [reading.what for reading in readings if reading.verdict() == "FAIL"] == []


@pytest.mark.oracle
def test_flops_are_those_of_the_formula_of_megatron():
    # 96 B s L h^2 (1 + s/6h + V/16Lh) with full recomputation: arXiv:2104.04473, equation 2.
    table = model_flops(jobs(global_batch=8, recompute="full"))
    h, s, layers, vocabulary = 12_288, 2_048, 96, 51_200
    printed = 96 * 8 * s * layers * h**2
    printed *= 1 + s / (6 * h) + vocabulary / (16 * layers * h)
    assert table["hardware_flops_count"].iloc[0] == pytest.approx(printed, rel=1e-12)


@settings(max_examples=15)
@given(batch=st.integers(1, 64), factor=st.integers(2, 5))
def test_flops_grow_with_the_batch_and_attention_with_the_square_of_the_sequence(batch, factor):
    short = model_flops(jobs(global_batch=batch)).iloc[0]
    more = model_flops(jobs(global_batch=batch * factor)).iloc[0]
    assert more["model_flops_count"] == pytest.approx(factor * short["model_flops_count"])
    long = model_flops(jobs(global_batch=batch, sequence=2048 * factor)).iloc[0]
    extra = [row["model_flops_count"] - row["six_n_d_flops_count"] for row in (short, long)]
    assert extra[1] == pytest.approx(factor**2 * extra[0])


def test_a_causal_mask_halves_scores_and_nothing_else():
    full, half = (model_flops(jobs(), causal=c).iloc[0] for c in (False, True))
    extra = [row["model_flops_count"] - row["six_n_d_flops_count"] for row in (full, half)]
    assert extra[1] == pytest.approx(extra[0] / 2)


@settings(max_examples=15)
@given(
    tensor=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([1, 2, 8]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sharding=st.sampled_from(["none", "zero1", "fsdp", "hsdp"]),
)
def test_memory_falls_with_tensor_parallelism_recomputation_and_shards(
    tensor, pipeline, recompute, sharding
):
    base = {"tensor": tensor, "pipeline": pipeline, "data": 8, "global_batch": 64}
    base |= {"recompute": recompute, "sharding": sharding}
    changes = {"none": {}, "wide": {"tensor": 2 * tensor}, "sequence": {"sequence_parallel": True}}
    changes |= {value: {"recompute": value} for value in ("full", "selective")}
    changes |= {"all": {"recompute": "none"}, "whole": {"sharding": "none"}}
    changes |= {value: {"sharding": value} for value in ("zero1", "fsdp")}
    layouts = [analyze.Layout(**{**base, **value}) for value in changes.values()]
    table = memory_footprint(analyze.configurations(GPT, layouts))
    need = dict(zip(changes, table["total_bytes"], strict=True))
    assert need["wide"] < need["none"]
    assert need["full"] <= need["selective"] <= need["all"]
    assert need["fsdp"] < need["zero1"] < need["whole"]
    assert need["sequence"] <= need["none"]


def test_the_parts_add_up_and_say_what_they_rest_on(fitted, many):
    table = PREDICTED_ITERATIONS.check(fitted.predict(many))
    assert (table[[f"{name}_ns" for name in PARTS]].sum(axis=1) == table["analytic_ns"]).all()
    assert (table["analytic_ns"] == table["dur_ns"]).all()
    assert set(table["tensor_basis"]) == {"scaled"}
    assert set(table["context_basis"]) == {"modelled"}
    assert (table["doubt"] == "").all()
    elsewhere = fitted.predict(jobs(tensor=8, pipeline=8, data=8, global_batch=512))
    assert set(elsewhere["tensor_basis"]) == {"modelled"}, "no H100 was measured"
    assert "GPU H100 never measured" in elsewhere["doubt"].iloc[0]


def test_the_same_rows_give_the_same_model_and_others_a_wider_interval(many):
    first, two = (iteration_model(many, residual="none").predict(many) for _ in range(2))
    pd.testing.assert_frame_equal(first, two)
    model = iteration_model(many, residual="none", groups="hidden", coverage_share=0.8)
    inside = model.predict(many.iloc[:1]).iloc[0]
    far = model.predict(many.iloc[:1].assign(layer_count=300)).iloc[0]
    assert far["high_ns"] / far["low_ns"] > inside["high_ns"] / inside["low_ns"]
    assert "layers 300 never measured (only 30 to 96)" in far["doubt"]


def test_known_constants_are_found_again_from_the_times_they_make(many):
    truth = analyze.assumed_model().predict(many)["dur_ns"]
    refitted = iteration_model(many.assign(dur_ns=truth.to_numpy()), residual="none")
    errors = refitted.predict(many)["dur_ns"].to_numpy() / truth.to_numpy() - 1
    assert np.abs(errors).max() < 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("trees_here")
def test_trees_learn_what_the_closed_form_leaves(many):
    errors = cross_validated(many, folds=3, residual="trees")
    assert len(errors) == len(many)
    assert errors["error_ratio"].abs().mean() < errors["analytic_error_ratio"].abs().mean()
    assert set(errors["group"]) == {f"part {fold} of 3" for fold in (1, 2, 3)}


def test_repetitions_are_never_on_both_sides_of_a_fold(many):
    errors = cross_validated(many, folds=5, residual="none")
    twice = many["doubt"].str.contains("more than once").to_numpy()
    assert errors.loc[twice, "group"].nunique() == 1
    of_64 = cross_validated(many, by="gpu_count", held_out=64, residual="none")
    assert len(of_64) == (many["gpu_count"] == 64).sum()


def test_without_scikit_learn_the_closed_form_answers_and_says_so(many, monkeypatch):
    monkeypatch.setattr(_iteration_model, "has_trees", lambda: False)
    table = iteration_model(many).predict(many)
    assert set(table["doubt"]) == {"without scikit-learn: closed form only"}
    monkeypatch.setitem(__import__("sys").modules, "sklearn.ensemble", None)
    with pytest.raises(MissingExtraError, match=r"ai-infra-workbench\[train\]"):
        iteration_model(many, residual="trees")
    assert isinstance(_iteration_model.has_trees(), bool)


def test_what_cannot_be_fitted_is_refused(many):
    with pytest.raises(PerformanceModelError, match="3 measured rows are too few"):
        iteration_model(many.iloc[:3])
    with pytest.raises(PerformanceModelError, match="groups='color' is not a column"):
        iteration_model(many, groups="color")
    wrong = many.assign(doubt="TP x CP x PP x DP is not the number of GPUs")
    with pytest.raises(PerformanceModelError, match="109 rows contradict themselves"):
        iteration_model(wrong)
    with pytest.raises(PerformanceModelError, match="by='color' is not a column"):
        cross_validated(many, by="color")
    with pytest.raises(PerformanceModelError, match="held_out=5 is not a value of gpu_count"):
        cross_validated(many, by="gpu_count", held_out=5)
    with pytest.raises(PerformanceModelError, match="not the same configurations"):
        iteration_errors(many, analyze.assumed_model().predict(many.iloc[1:]))
    with pytest.raises(PerformanceModelError, match="would run at"):
        utilization(many.assign(dur_ns=1000))


def test_no_fitted_share_goes_beyond_what_the_data_sheet_prints(fitted):
    shares = {k: v for k, v in asdict(fitted.constants).items() if k.endswith("_share")}
    assert len(shares) == 7
    assert max(shares.values()) <= 1


def test_a_fitted_model_tells_what_its_held_out_rows_showed(fitted, many):
    (text,) = set(fitted.predict(many)["error_class"])
    assert text.startswith("fitted: 90% of the rows held out were within")


def test_empty_tables_stay_empty():
    empty = ITERATIONS.empty()
    assert model_flops(empty).empty
    assert memory_footprint(empty).empty
    assert utilization(empty).empty
