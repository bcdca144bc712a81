"""Models whose parameters are stored in a narrower type."""

import numpy as np
import pytest

from workbench.errors import InjectionError
from workbench.inject import fault_list, stored_as
from workbench.inject.designs.changes import changes


def one_fault(model, elem, bit, param="0.weight"):
    import pandas as pd

    return fault_list(model, pd.DataFrame({"param": [param], "elem": [elem], "bit": [bit]}))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_halves_are_rounded_to_nearest_and_computed_in_float32(torch_here, mlp, dtype):
    narrow = stored_as(mlp, dtype)
    kind = {"fp16": torch_here.float16, "bf16": torch_here.bfloat16}[dtype]
    for wide, kept in zip(mlp.parameters(), narrow.parameters(), strict=True):
        assert kept.dtype == torch_here.float32
        assert torch_here.equal(kept, wide.to(kind).float())


def test_bytes_are_symmetric_with_one_scale_per_tensor(torch_here, mlp):
    narrow = stored_as(mlp, "int8")
    wide, kept = mlp[0].weight.detach(), narrow[0].weight.detach()
    scale = wide.abs().max() / 127
    assert torch_here.allclose(kept / scale, (wide / scale).round(), atol=1e-4)
    assert float((wide - kept).abs().max()) <= float(scale) * 0.501


def test_the_wide_model_is_left_alone(torch_here, mlp):
    before = mlp[0].weight.clone()
    stored_as(mlp, "int8")
    assert torch_here.equal(mlp[0].weight, before)


def test_faults_hit_the_stored_bits_and_are_seen_widened(torch_here, mlp):
    narrow = stored_as(mlp, "bf16")
    golden = narrow[0].weight.detach().flatten()[4]
    fault = one_fault(narrow, 4, 15)
    assert fault["bit_role"].tolist() == ["sign"]
    assert changes(narrow, fault).after.item() == -golden.item()
    assert changes(narrow, fault).after.dtype == torch_here.float32


def test_the_sign_bit_of_a_byte_moves_it_by_128_steps(mlp):
    narrow = stored_as(mlp, "int8")
    scale = float(mlp[0].weight.detach().abs().max()) / 127
    change = changes(narrow, one_fault(narrow, 0, 7))
    assert abs(float(change.after - change.before)) == pytest.approx(128 * scale, rel=1e-5)


def test_native_halves_are_changed_in_their_own_type(torch_here, mlp):
    half = mlp.half()
    change = changes(half, one_fault(half, 0, 15))
    assert change.after.dtype == torch_here.float16
    assert float(change.after) == -float(half[0].weight.detach().flatten()[0])


def test_a_zero_tensor_can_be_stored_as_bytes(torch_here, mlp):
    torch_here.nn.init.zeros_(mlp[0].bias)
    assert not stored_as(mlp, "int8")[0].bias.any()


def test_refuses_unknown_types(mlp):
    with pytest.raises(InjectionError, match="dtype='fp8' is not one of"):
        stored_as(mlp, "fp8")


def test_refuses_models_that_are_not_float32(mlp):
    with pytest.raises(InjectionError, match=r"'0\.weight' holds torch\.float64; stored_as takes"):
        stored_as(mlp.double(), "int8")


def test_refuses_values_that_do_not_fit(torch_here, mlp):
    torch_here.nn.init.constant_(mlp[0].bias, 1e6)
    with pytest.raises(InjectionError, match=r"'0\.bias' is not finite as fp16"):
        stored_as(mlp, "fp16")


def test_refuses_a_model_that_was_trained_on_after(torch_here, mlp):
    narrow = stored_as(mlp, "int8")
    torch_here.nn.init.constant_(narrow[0].bias, np.pi)
    with pytest.raises(InjectionError, match=r"'0\.bias' was changed after stored_as"):
        one_fault(narrow, 0, 1, "0.bias")
