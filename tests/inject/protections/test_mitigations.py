"""Protections: what they take away of the faults, and what they cost."""

from dataclasses import replace

import pandas as pd
import pytest

from workbench.errors import InjectionError
from workbench.inject import (
    CampaignSettings,
    activation_clip,
    activation_faults,
    campaign,
    fault_list,
    protected,
    uniform_faults,
    weight_clamp,
)
from workbench.inject.designs.changes import changes

PLAIN = CampaignSettings(engine="flip_and_run")


def wrong(model, inputs, faults, **options):
    result = campaign(model, inputs, faults, settings=replace(PLAIN, **options))
    return int(result.outcomes[["sdc_count", "due_count"]].sum().sum()), result


def one(model, bit=30, value=None):
    row = {"param": ["3.weight"], "elem": [4], "bit": [bit], "value_after": [value]}
    return fault_list(model, pd.DataFrame(row))


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), 1e9, -3.0])
def test_the_clamp_reads_what_is_too_large_as_0(mlp, value):
    hardened = weight_clamp(mlp).hardened(changes(mlp, one(mlp, None, value)))
    assert hardened.after.tolist() == [0.0]


def test_the_clamp_reads_nan_as_0_and_leaves_the_rest(torch_here, mlp):
    largest = float(mlp[3].weight.detach().abs().max())
    inside = changes(mlp, one(mlp, None, -largest))
    clamp = weight_clamp(mlp)
    assert clamp.hardened(inside).after.tolist() == pytest.approx([-largest])
    nan = replace(inside, after=torch_here.full((1,), float("nan")))
    assert clamp.hardened(nan).after.tolist() == [0.0]


def test_the_clamp_removes_most_wrong_outputs_and_costs_nothing(mlp, inputs):
    faults = uniform_faults(mlp, 200, seed=1, bits=[29, 30, 31])
    labels = mlp.eval()(inputs).argmax(1)
    without, _ = wrong(mlp, inputs, faults)
    left, result = wrong(mlp, inputs, faults, mitigation=weight_clamp(mlp), labels=labels)
    assert left < without / 3
    assert result.campaign["mitigation"].tolist() == ["weight_clamp"]
    assert result.campaign["golden_metric"].tolist() == [1.0]
    assert result.faults["value_after"].abs().max() > 1e30


def test_faults_in_activations_pass_the_clamp(mlp, inputs):
    faults = activation_faults(mlp, inputs, 60, seed=1)
    assert (
        wrong(mlp, inputs, faults)[0] == wrong(mlp, inputs, faults, mitigation=weight_clamp(mlp))[0]
    )


def test_the_clip_is_in_place_with_and_without_faults(torch_here, mlp, inputs):
    mlp[2] = torch_here.nn.Identity()  # a norm would bring down what is too large by itself
    faults = uniform_faults(mlp, 200, seed=1, where="0", bits=[29, 30, 31])
    profiled = torch_here.randn(200, 5, generator=torch_here.Generator().manual_seed(2))
    labels = mlp.eval()(inputs).argmax(1)
    without, plain = wrong(mlp, inputs, faults, labels=labels)
    left, result = wrong(
        mlp, inputs, faults, labels=labels, mitigation=activation_clip(mlp, profiled)
    )
    assert left < without
    assert result.outcomes["max_abs_delta"].max() < plain.outcomes["max_abs_delta"].max() + 1e-9
    assert result.campaign["golden_metric"].tolist() == [1.0]
    with torch_here.no_grad():
        mlp[0].bias.neg_().clamp_(max=0)
    negative = activation_clip(mlp, profiled * 0)
    labels, again = mlp(inputs).argmax(1), uniform_faults(mlp, 5, seed=1)
    _, costly = wrong(mlp, inputs, again, labels=labels, mitigation=negative)
    assert costly.campaign["golden_metric"].iloc[0] < 1
    assert not any(module._forward_hooks for module in mlp.modules())


def test_the_clip_makes_0_of_what_is_not_finite(torch_here, mlp, inputs):
    seen = []
    clip = activation_clip(mlp, inputs)
    take_off = clip.attach(mlp)
    mlp[1].register_forward_hook(lambda module, args, output: seen.append(output))
    mlp(torch_here.full((1, 5), float("nan")))
    mlp(torch_here.full((1, 5), float("inf")))
    take_off()
    assert all(torch_here.isfinite(output).all() for output in seen)
    assert not seen[0].any()


def test_protected_elements_take_no_harm(mlp, inputs):
    faults = uniform_faults(mlp, 100, seed=1, where="3.weight", bits=[30, 31])
    assert wrong(mlp, inputs, faults)[0] > 0
    assert wrong(mlp, inputs, faults, mitigation=protected(mlp, ["3.weight"]))[0] == 0
    safe = protected(mlp, {"3.weight": [4, 2], "0.bias": None})
    left = changes(mlp, faults)
    kept = safe.hardened(left)
    assert set(left.elem) - set(kept.elem) == {2, 4} & set(left.elem)
    assert kept.experiment_count == left.experiment_count
    assert len(kept.elem) == len(kept.after) == len(kept.before) == len(kept.target)


def test_several_protections_act_together(mlp, inputs):
    mitigations = (weight_clamp(mlp), protected(mlp, ["0.weight"]))
    faults = uniform_faults(mlp, 50, seed=1)
    _, result = wrong(mlp, inputs, faults, mitigation=mitigations)
    assert result.campaign["mitigation"].tolist() == ["weight_clamp+protected"]


def test_refuses_protections_of_what_is_not_there(torch_here, mlp, inputs):
    with pytest.raises(InjectionError, match=r"elements: \['5\.weight'\] are not parameters"):
        protected(mlp, ["5.weight"])
    with pytest.raises(InjectionError, match="activation_clip finds no module of class ReLU"):
        activation_clip(torch_here.nn.Linear(5, 2), inputs)
