"""Every single-bit fault: equal to a campaign of all of them, and to the shipped truth."""

import numpy as np
import pytest

from claims._interval_coverage import truth_sample
from workbench import datasets, inject, load
from workbench.errors import InjectionError


@pytest.fixture(scope="module")
def truth():
    return load.exhaustive_injections(datasets.path("pvf-truth") / "dlrm.parquet")


@pytest.mark.long
def test_all_sites_are_those_of_a_campaign_by_flip_and_run(mlp, torch_here):
    inputs = torch_here.randn(20, 5, generator=torch_here.Generator().manual_seed(1))
    result = inject.exhaustive(mlp, inputs)
    faults = inject.exhaustive_faults(mlp)
    settings = inject.CampaignSettings(engine="flip_and_run")
    plain = inject.campaign(mlp, inputs, faults, settings=settings)
    sites = result.sites
    assert sites["param"].astype(str).tolist() == faults["param"].astype(str).tolist()
    assert sites["elem"].tolist() == faults["elem"].tolist()
    assert sites["bit"].tolist() == faults["bit"].tolist()
    assert sites["sdc_count"].tolist() == plain.outcomes["sdc_count"].tolist()
    assert sites["due_count"].tolist() == plain.outcomes["due_count"].tolist()
    assert sites["sdc_count"].sum() > 0
    head = result.campaign.iloc[0]
    assert (head["design"], head["input_count"]) == ("exhaustive", 20)


def test_some_parts_and_bits_can_be_exhausted(mlp, torch_here):
    inputs = torch_here.randn(20, 5, generator=torch_here.Generator().manual_seed(1))
    result = inject.exhaustive(mlp, inputs, where="0.*", bits=[30, 3])
    assert result.sites["param"].unique().tolist() == ["0.weight", "0.bias"]
    assert result.sites["bit"].unique().tolist() == [3, 30]
    assert len(result.sites) == (5 * 8 + 8) * 2
    # The rest of the model is told, so that no part of it is taken for the whole.
    assert result.parameters["param"].tolist() == [name for name, _ in mlp.named_parameters()]


def test_more_inputs_than_can_be_counted_are_refused(mlp, torch_here):
    with pytest.raises(InjectionError, match="inputs: 32,768 rows; counts of at most 32,767"):
        inject.exhaustive(mlp, torch_here.zeros(32768, 5))


@pytest.mark.slow
@pytest.mark.usefixtures("torch_here")
def test_the_shipped_truth_is_what_the_shipped_model_does_now(truth):
    model = inject.shipped_model("dlrm")
    inputs, labels = inject.shipped_inputs("dlrm")
    settings = inject.CampaignSettings(labels=labels)
    judge = inject.shipped_judge("dlrm")
    where = ["top.2.*", "top.4.*", "bottom.2.bias", "tables.7.weight"]
    now = inject.exhaustive(model, inputs, judge=judge, settings=settings, where=where).sites
    shipped = truth.sites[truth.sites["param"].isin(now["param"].cat.categories)]
    for name in ("elem", "bit", "sdc_count", "due_count"):
        assert np.array_equal(now[name].to_numpy(), shipped[name].to_numpy()), name
    assert now["param"].astype(str).tolist() == shipped["param"].astype(str).tolist()


def test_the_shipped_truth_knows_its_inputs_and_is_labelled_as_generated(truth):
    assert truth.is_synthetic
    assert "14,195,232 sites x 1,000 inputs" in repr(truth)
    assert int(truth.parameters["element_count"].sum()) == 443_601
    assert set(truth.parameters["component"]) == {"top", "bottom", "embeddings"}


@pytest.mark.long
def test_a_sample_of_the_truth_can_be_injected_again_chunk_by_chunk(truth, torch_here):
    drawn = truth_sample(truth, 300, component="top", seed=5)
    chunks = list(inject.shipped_running("dlrm", drawn.faults, chunk_size=100))
    assert [len(chunk) for chunk in chunks] == [100, 100, 100]
    result = [count for chunk in chunks for count in chunk["sdc_count"]]
    assert result == drawn.outcomes["sdc_count"].tolist()


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16", "int8"])
def test_every_flip_changes_the_value_and_is_undone_by_the_next(torch_here, dtype):
    assert inject.flips_not_undone(dtype) == 0


@pytest.mark.usefixtures("torch_here")
def test_there_is_no_other_type_to_flip():
    with pytest.raises(InjectionError, match="dtype='fp8' is not one of fp64, fp32"):
        inject.flips_not_undone("fp8")


@pytest.mark.parametrize("criterion", ["argmax", "threshold", "difference"])
def test_outputs_at_hand_are_judged_and_nan_is_never_right(torch_here, criterion):
    golden = np.array([[1.0, 0.5], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5]])
    faulty = np.array([[1.0, 0.5], [0.9, 0.5], [-3.0, 0.5], [np.nan, np.nan]])
    judge = inject.Judge(criterion, tolerance=0.2)
    if criterion == "threshold":
        golden, faulty = golden[:, :1], faulty[:, :1]
    assert inject.outcomes_of(faulty, golden, judge=judge).tolist() == [
        "masked",
        "benign",
        "sdc",
        "due",
    ]


@pytest.mark.usefixtures("torch_here")
def test_outputs_of_another_shape_are_refused():
    with pytest.raises(InjectionError, match=r"outputs: shape \(2, 3\), golden has \(2, 4\)"):
        inject.outcomes_of(np.zeros((2, 3)), np.eye(2, 4))
