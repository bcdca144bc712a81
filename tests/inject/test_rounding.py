"""Narrow types: how bfloat16 rounds, and which gradients they lose."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import datasets, inject
from workbench.errors import InjectionError
from workbench.inject.rounding import gradient_underflow, nearest_even
from workbench.tables import GRADIENT_UNDERFLOW, ROUNDING_ERRORS


@pytest.fixture(scope="module")
def rounding(torch_here):
    return inject.rounding_errors(seed=1).set_index("rounding")


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("way", ["nearest even", "truncated"])
@pytest.mark.parametrize("kind", ["largest", "mean"])
def test_relative_errors_are_the_published_ones(rounding, way, kind):
    published = pd.read_csv(datasets.path("published") / "low_precision.csv")
    printed = published.set_index("measure").loc[f"{kind} relative error, {way}", "low"]
    column = {"largest": "max_error_ratio", "mean": "mean_error_ratio"}[kind]
    assert rounding.loc[way, column] == pytest.approx(printed, abs=1e-5)


@pytest.mark.oracle
def test_nearest_even_is_what_torch_does_on_millions_of_patterns(rounding):
    ROUNDING_ERRORS.check(rounding.reset_index())
    assert rounding.loc["nearest even", "value_count"] > 3_980_000
    assert rounding.loc["nearest even", "differ_count"] == 0
    assert rounding.loc["nearest even", "nan_lost_count"] == 0


def test_nan_needs_its_own_branch(rounding):
    assert rounding.loc["nearest even, no branch for NaN", "nan_lost_count"] > 0
    assert rounding.loc["truncated", "nan_lost_count"] > 0


@given(st.floats(width=32, allow_nan=True))
def test_rounding_is_to_the_nearer_neighbour(value):
    bits = np.array([value], dtype=np.float32).view(np.uint32)
    rounded = (nearest_even(bits).astype(np.uint32) << 16).view(np.float32)[0]
    if np.isnan(value):
        assert np.isnan(rounded)
        return
    down = (bits >> 16 << 16).view(np.float32)[0]
    with np.errstate(over="ignore"):
        up = ((bits >> 16) + 1 << 16).astype(np.uint32).view(np.float32)[0]
    assert rounded in (down, up)
    if np.isfinite([down, up]).all():
        assert abs(float(rounded) - value) == min(abs(float(down) - value), abs(float(up) - value))


def test_infinities_stay_and_nan_keeps_its_sign():
    bits = np.array([0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF], dtype=np.uint32)
    assert [hex(rounded) for rounded in nearest_even(bits)] == [
        "0x7f80",
        "0xff80",
        "0x7fc0",
        "0xffff",
    ]
    lost = nearest_even(bits, is_nan_kept=False)
    assert [hex(rounded) for rounded in lost[2:]] == ["0x7f80", "0x0"]


def test_wide_exponents_lose_no_gradients_and_narrow_ones_do(torch_here):
    inputs, labels = inject.shipped_inputs("lenet", 200)
    model = inject.shipped_model("lenet")
    table = gradient_underflow(model, inputs, labels)
    lost = GRADIENT_UNDERFLOW.check(table).set_index(["dtype", "scale_ratio"])["lost_share"]
    assert (lost["bf16"] == 0).all()
    assert (lost["fp32"] == 0).all()
    assert lost["fp16", 1.0] < 0.01 < lost["fp16", 1e-4]
    assert lost["fp8-e5m2", 1e-4] > 0.99
    assert all(rounded.grad is None for rounded in model.parameters())


@pytest.mark.parametrize(
    ("count", "words"), [(0, "1 or more, not 0"), (2.5, "a whole number from 1, not 2.5")]
)
def test_refuses_no_patterns(torch_here, count, words):
    with pytest.raises(InjectionError, match=f"count must be {words}"):
        inject.rounding_errors(count)


def test_refuses_scales_of_zero_and_gradients_of_zero(torch_here):
    model = torch_here.nn.Linear(2, 2)
    inputs, labels = (torch_here.zeros(1, 2),), torch_here.tensor([0])
    with pytest.raises(InjectionError, match="every scale must be above 0"):
        gradient_underflow(model, inputs, labels, scales=[0])
    dead = torch_here.nn.Sequential(model, torch_here.nn.Flatten())
    dead[1].forward = lambda x: 0 * x
    with pytest.raises(InjectionError, match="no gradient of the model differs from 0"):
        gradient_underflow(dead, inputs, labels)
