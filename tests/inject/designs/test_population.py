"""The tensors that faults can hit."""

import pytest

from workbench.errors import InjectionError
from workbench.inject import exhaustive, parameters, range_detector, stored_as, uniform_faults
from workbench.inject.designs.population import activations
from workbench.tables import PARAMETERS


def test_every_parameter_is_listed_with_its_bits(mlp):
    table = PARAMETERS.check(parameters(mlp))
    assert table["param"].tolist() == [name for name, _ in mlp.named_parameters()]
    assert table["element_count"].tolist() == [40, 8, 8, 8, 24, 3]
    assert (table["bit_count"] == 32 * table["element_count"]).all()
    assert table["kind"].tolist() == ["weight", "bias", "norm", "norm", "weight", "bias"]
    assert table["component"].tolist() == ["0", "0", "2", "2", "3", "3"]


def test_the_kind_comes_from_the_module(torch_here):
    nn = torch_here.nn
    model = nn.ModuleDict(
        {
            "table": nn.EmbeddingBag(4, 2),
            "words": nn.Embedding(4, 2),
            "norm": nn.BatchNorm1d(2),
            "conv": nn.Conv2d(1, 1, 2),
            "attention": nn.MultiheadAttention(2, 1),
        }
    )
    kinds = parameters(model).set_index("param")["kind"].astype(str)
    assert kinds["table.weight"] == kinds["words.weight"] == "embedding"
    assert kinds["norm.weight"] == kinds["norm.bias"] == "norm"
    assert (kinds["conv.weight"], kinds["conv.bias"]) == ("weight", "bias")
    assert kinds["attention.in_proj_bias"] == "bias"


def test_tied_weights_are_listed_once(torch_here):
    nn = torch_here.nn
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    model[1].weight = model[0].weight
    assert parameters(model)["param"].tolist() == ["0.weight"]


def test_components_can_be_named_by_pattern_or_by_the_model(mlp):
    components = {"3.*": "head", "*": "body"}
    assert set(parameters(mlp, components=components)["component"]) == {"head", "body"}
    mlp.components = components
    assert parameters(mlp)["component"].tolist() == ["body"] * 4 + ["head"] * 2


@pytest.mark.parametrize(("dtype", "bits"), [("fp16", 16), ("bf16", 16), ("int8", 8)])
def test_a_stored_type_is_named(mlp, dtype, bits):
    table = parameters(stored_as(mlp, dtype))
    assert set(table["dtype"]) == {dtype}
    assert (table["bit_count"] == bits * table["element_count"]).all()


def test_native_half_and_byte_parameters_are_named(torch_here, mlp):
    assert set(parameters(mlp.half())["dtype"]) == {"fp16"}
    byte = torch_here.nn.Module()
    byte.codes = torch_here.nn.Parameter(
        torch_here.ones(3, dtype=torch_here.int8), requires_grad=False
    )
    assert parameters(byte)["dtype"].tolist() == ["int8"]


def test_refuses_a_model_without_parameters(torch_here):
    with pytest.raises(InjectionError, match="model: ReLU has no parameters"):
        parameters(torch_here.nn.ReLU())


def test_refuses_integers_that_are_no_bytes(torch_here):
    model = torch_here.nn.Module()
    model.codes = torch_here.nn.Parameter(torch_here.ones(3, dtype=int), requires_grad=False)
    with pytest.raises(InjectionError, match=r"'codes' holds torch\.int64; faults hit fp64, fp32"):
        parameters(model)


def test_refuses_patterns_that_match_nothing(mlp):
    with pytest.raises(InjectionError, match=r"components: \['tpo\.\*'\] match no parameter"):
        parameters(mlp, components={"tpo.*": "top"})


@pytest.mark.long
@pytest.mark.parametrize("how", ["whole", "part", "in place"])
def test_compiled_models_are_refused_whatever_is_asked_of_them(how, mlp, torch_here):
    inputs = torch_here.zeros(2, mlp[0].in_features)
    if how == "whole":
        model = torch_here.compile(mlp, backend="eager")
    elif how == "part":
        model = torch_here.nn.Sequential(torch_here.compile(mlp, backend="eager"))
    else:
        model = mlp
        model.compile(backend="eager")
    for ask in (
        lambda: parameters(model),
        lambda: activations(model, inputs),
        lambda: range_detector(model, inputs),
        lambda: exhaustive(model, inputs),
        lambda: uniform_faults(model, 5, seed=1),
    ):
        with pytest.raises(InjectionError, match=r"compiled with torch\.compile"):
            ask()
