"""Detectors: alarms are counted while the fault is in the model."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from workbench.errors import InjectionError
from workbench.inject import (
    CampaignSettings,
    Detector,
    campaign,
    range_detector,
    uniform_faults,
)

PLAIN = CampaignSettings(engine="flip_and_run")


class Checksum:
    """Compares the sum of a weight with that of the healthy model."""

    def __init__(self, model):
        self._sum = model[0].weight.detach().double().sum()

    def attach(self, model):
        undo = ExitStack()
        undo.callback(model[0].register_forward_hook(self._look).remove)
        return undo.close

    def _look(self, module, args, output):
        differs = bool(module.weight.detach().double().sum() != self._sum)
        self._alarm = output.new_full((len(output),), differs, dtype=bool)

    def verdicts(self):
        return self._alarm


def run(model, inputs, faults, **detectors):
    return campaign(model, inputs, faults, settings=replace(PLAIN, detectors=detectors))


def test_a_detector_inside_the_model_sees_the_fault(mlp, inputs):
    assert isinstance(Checksum(mlp), Detector)
    faults = uniform_faults(mlp, 40, seed=1, where=["0.weight", "3.weight"])
    result = run(mlp, [inputs[:6], inputs[6:]], faults, sums=Checksum(mlp))
    alarms = result.outcomes["detected_sums_count"]
    is_hit = result.faults["param"].astype(str) == "0.weight"
    assert (alarms == is_hit.to_numpy() * 20).all()
    assert not any(module._forward_hooks for module in mlp.modules())


def test_a_function_judges_the_outputs(torch_here, mlp, inputs):
    def nan(model, outputs, inputs):
        return ~torch_here.isfinite(outputs).all(1)

    faults = uniform_faults(mlp, 200, seed=1, bits=[30])
    result = run(mlp, inputs, faults, nan=nan).outcomes
    assert result["due_count"].sum() > 0
    assert (result["detected_nan_count"] == result["due_count"]).all()


def test_values_outside_their_range_are_noticed(torch_here, mlp, inputs):
    profiled = torch_here.randn(300, 5, generator=torch_here.Generator().manual_seed(2))
    detector = range_detector(mlp, profiled, slack_share=0.2)
    assert set(detector.limits) == {"0", "1", "2", "3"}
    low, high = detector.limits["1"]
    assert low < 0 < high
    faults = uniform_faults(mlp, 100, seed=1, bits=[30])
    result = run(mlp, inputs, faults, range=detector)
    harmed = result.outcomes[["sdc_count", "due_count"]].sum(axis=1)
    assert (result.outcomes["detected_range_count"][harmed > 15] > 0).all()
    note = result.quality[result.quality["what"].str.contains("'range'")]
    assert note["count"].iloc[0] < 5


def test_a_golden_run_of_profiled_inputs_raises_no_alarm(mlp, inputs):
    result = run(
        mlp, inputs, uniform_faults(mlp, 5, seed=1, bits=0), range=range_detector(mlp, inputs)
    )
    assert result.quality["count"].tolist()[0] == 0


def test_refuses_verdicts_that_are_not_one_per_input(torch_here, mlp, inputs):
    faults = uniform_faults(mlp, 5, seed=1)
    with pytest.raises(
        InjectionError, match=r"detectors: 'odd' gives \(3,\) of torch\.bool for 20"
    ):
        run(mlp, inputs, faults, odd=lambda *_: torch_here.zeros(3, dtype=bool))


def test_refuses_to_watch_nothing(torch_here, inputs):
    class Words(torch_here.nn.Module):
        def forward(self, x):
            return "no tensor"

    model = Words()
    model.register_forward_hook(lambda *_: torch_here.zeros(20, dtype=int))
    with pytest.raises(InjectionError, match="model: no module gives a tensor with one row"):
        range_detector(model, inputs)
