"""Campaigns with arguments that engineers bring along, and with those they swap."""

import time

import numpy as np
import pandas as pd
import pytest

from workbench.errors import InjectionError
from workbench.inject import (
    CampaignSettings,
    FaultModel,
    Judge,
    campaign,
    fault_list,
    parameters,
    protected,
    uniform_faults,
    weight_clamp,
)
from workbench.inject.campaigns import work as _work
from workbench.inject.designs.changes import changes

PLAIN = CampaignSettings(engine="flip_and_run", progress=False)


def test_faults_drawn_for_other_weights_are_refused(torch_here, mlp, inputs):
    faults = uniform_faults(mlp, 20, seed=1)
    with torch_here.no_grad():
        mlp[0].weight.neg_()
    with pytest.raises(InjectionError, match=r"value_before .* not what the model gives there"):
        campaign(mlp, inputs, faults, settings=PLAIN)


def test_of_several_values_of_an_element_the_last_stays(mlp):
    element = {"exp_id": 0, "param": "0.weight", "elem": 1}
    rows = [{"value_after": 2.0}, {"bit": 31}, {"value_after": 3.0}]
    table = pd.DataFrame([element | row | {"flip": n} for n, row in enumerate(rows)])
    listed = fault_list(mlp, table)
    assert set(listed["value_after"].abs()) == {3.0}
    assert changes(mlp, listed).after.abs().tolist() == [3.0]


@pytest.mark.parametrize("what", ["weights", "inputs"])
def test_a_model_that_writes_over_what_it_is_given_is_refused(torch_here, inputs, what):
    nn = torch_here.nn
    if what == "weights":
        model = nn.Sequential(nn.EmbeddingBag(9, 4, max_norm=1.0), nn.Linear(4, 3))
        inputs = torch_here.randint(0, 9, (8, 3))
    else:
        model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3))
    faults = uniform_faults(model, 3, seed=1)
    with pytest.raises(InjectionError, match=r"a run writes over (parameter '0.weight'|tensor 0)"):
        campaign(model, inputs, faults, settings=PLAIN)


def test_a_chunk_takes_about_half_a_minute_whatever_the_engine(torch_here, inputs, monkeypatch):
    class Slow(torch_here.nn.Sequential):
        def forward(self, x):
            time.sleep(0.02)
            return super().forward(x)

    monkeypatch.setattr(_work, "_CHUNK_S", 0.5)
    monkeypatch.setattr(_work, "_PROBE_S", 0.01)
    model = Slow(torch_here.nn.Linear(5, 3))
    faults = uniform_faults(model, 60, seed=1)
    settings = CampaignSettings(engine="flip_and_run", progress=False, folder="unused")
    size = _work.prepared(model, inputs, faults, Judge(), settings).chunk_size
    assert 1 <= size <= 25


def test_measuring_the_speed_leaves_no_alarms_behind(mlp, inputs, tmp_path):
    def always(_model, outputs, _inputs):
        return (outputs == outputs).all(1)

    settings = CampaignSettings(detectors={"always": always}, progress=False, folder=tmp_path)
    faults = uniform_faults(mlp, 30, seed=1, bits=[0, 1])
    result = campaign(mlp, inputs, faults, settings=settings)
    assert set(result.outcomes["detected_always_count"]) == {len(inputs)}


def test_a_folder_of_the_same_weights_in_another_model_is_refused(torch_here, inputs, tmp_path):
    nn = torch_here.nn
    torch_here.manual_seed(0)
    relu = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    faults = uniform_faults(relu, 10, seed=1)
    settings = CampaignSettings(folder=tmp_path, progress=False)
    campaign(relu, inputs, faults, settings=settings)
    tanh = nn.Sequential(relu[0], nn.Tanh(), relu[2])
    with pytest.raises(InjectionError, match="another campaign, which differs in model_text"):
        campaign(tanh, inputs, faults, settings=settings)


def test_a_metric_that_takes_no_nan_leaves_a_detected_error(torch_here, mlp, inputs):
    def strict(outputs, labels):
        del labels
        if not bool(torch_here.isfinite(outputs).all()):
            raise ValueError
        return 1.0

    faults = uniform_faults(
        mlp, 5, seed=1, fault_model=FaultModel("value", value=np.inf), where="3"
    )
    settings = CampaignSettings(metric=strict, progress=False)
    judge = Judge("metric_drop", tolerance=0.1)
    result = campaign(mlp, inputs, faults, judge=judge, settings=settings).outcomes
    assert result["due_count"].tolist() == [1] * 5
    assert result["metric_value"].isna().all()


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_metric_without_a_number_is_refused(mlp, inputs, value):
    settings = CampaignSettings(metric=lambda *_: value, progress=False)
    with pytest.raises(InjectionError, match="one finite number is needed"):
        campaign(mlp, inputs, uniform_faults(mlp, 3, seed=1), settings=settings)


def test_labels_can_be_a_column_of_a_table(mlp, inputs):
    labels = pd.Series(np.arange(len(inputs)) % 3, index=range(50, 50 + len(inputs)))
    faults = uniform_faults(mlp, 3, seed=1)
    result = campaign(mlp, inputs, faults, settings=CampaignSettings(labels=labels, progress=False))
    assert result.campaign["golden_metric"].notna().all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [(["cat"] * 20, "give classes as numbers"), (np.eye(20)[:, :3], "60 labels for 20 inputs")],
)
def test_labels_that_are_no_classes_are_refused(mlp, inputs, labels, message):
    settings = CampaignSettings(labels=labels, progress=False)
    with pytest.raises(InjectionError, match=message):
        campaign(mlp, inputs, uniform_faults(mlp, 3, seed=1), settings=settings)


def test_arguments_of_another_type_are_named(torch_here, mlp, inputs):
    faults = uniform_faults(mlp, 3, seed=1)
    with pytest.raises(InjectionError, match="model must be a Module, not a function"):
        campaign(lambda x: x, inputs, faults)
    with pytest.raises(InjectionError, match="faults must be a DataFrame, not a list"):
        campaign(mlp, inputs, [1])
    with pytest.raises(InjectionError, match="judge must be a Judge, not a str"):
        campaign(mlp, inputs, faults, judge="argmax")
    with pytest.raises(InjectionError, match="threshold must be a number"):
        Judge("threshold", threshold=float("nan"))
    with pytest.raises(InjectionError, match="has no shape yet"):
        parameters(torch_here.nn.LazyLinear(3))


@pytest.mark.parametrize("chunk_size", [0, 2.5, "5", True])
def test_a_chunk_is_a_whole_number_of_experiments(chunk_size):
    with pytest.raises(InjectionError, match=r"chunk_size must be (1 or more|a whole number)"):
        CampaignSettings(chunk_size=chunk_size)


def test_mitigations_can_be_a_list(mlp, inputs):
    faults = uniform_faults(mlp, 20, seed=1, bits=[30])
    mitigations = [protected(mlp, ["0.weight"]), weight_clamp(mlp)]
    settings = CampaignSettings(mitigation=mitigations, progress=False)
    result = campaign(mlp, inputs, faults, settings=settings)
    assert result.campaign["mitigation"].tolist() == ["protected+weight_clamp"]
