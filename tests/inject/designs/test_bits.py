"""Bits of stored numbers: where they are, and that a flip undoes itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import InjectionError
from workbench.inject.designs.bits import (
    LAYOUTS,
    flipped,
    from_patterns,
    patterns,
    refuse_outside,
)

TYPES = list(LAYOUTS)


def integer_of(torch, layout):
    """Give the torch integer as wide as a type."""
    return getattr(torch, f"int{layout.bit_count}")


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "exponent", "mantissa"),
    [
        ("fp64", range(52, 63), range(52)),
        ("fp32", range(23, 31), range(23)),
        ("bf16", range(7, 15), range(7)),
        ("fp16", range(10, 15), range(10)),
        ("int8", (), range(7)),
    ],
)
def test_sign_exponent_and_mantissa_are_where_ieee_754_has_them(name, exponent, mantissa):
    layout = LAYOUTS[name]
    roles = layout.roles(np.arange(layout.bit_count))
    assert roles[-1] == "sign"
    low = "int" if name == "int8" else "mant"
    assert [roles[bit] for bit in exponent] == ["exp"] * len(exponent)
    assert [roles[bit] for bit in mantissa] == [low] * len(mantissa)
    assert layout.bit_count == 1 + len(exponent) + len(mantissa)


@pytest.mark.parametrize("name", TYPES)
@given(numbers=st.data())
def test_a_flip_twice_gives_the_same_bits(torch_here, name, numbers):
    layout = LAYOUTS[name]
    integer = integer_of(torch_here, layout)
    top = 1 << (layout.bit_count - 1)
    bits = numbers.draw(st.lists(st.integers(-top, top - 1), min_size=1, max_size=8))
    bit = numbers.draw(st.integers(0, layout.bit_count - 1))
    values = torch_here.tensor(bits, dtype=integer).view(layout.dtype)
    once = flipped(values, bit)
    twice = flipped(once, bit)
    assert twice.view(integer).tolist() == bits
    assert (once.view(integer) != values.view(integer)).all()
    again = from_patterns(patterns(values), layout.dtype)
    assert again.view(integer).tolist() == bits


@pytest.mark.parametrize("name", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -0.0, 0.0])
def test_a_flip_undoes_itself_where_arithmetic_would_not(torch_here, name, value):
    layout = LAYOUTS[name]
    integer = integer_of(torch_here, layout)
    values = torch_here.full((layout.bit_count,), value, dtype=layout.dtype)
    every = np.arange(layout.bit_count)
    twice = flipped(flipped(values, every), every)
    assert torch_here.equal(twice.view(integer), values.view(integer))


@pytest.mark.oracle
def test_known_flips_give_known_numbers(torch_here):
    ones = torch_here.ones(4)
    assert flipped(ones, [31, 30, 23, 22]).tolist() == [-1.0, float("inf"), 0.5, 1.5]
    byte = torch_here.tensor([1, 1, -1], dtype=torch_here.int8)
    assert flipped(byte, [7, 0, 7]).tolist() == [-127, 0, 127]


def test_the_payload_of_a_nan_is_kept(torch_here):
    bits = torch_here.tensor([0x7FA12345], dtype=torch_here.int32)
    assert flipped(bits.view(torch_here.float32), 3).view(torch_here.int32).item() == 0x7FA1234D


@pytest.mark.parametrize("bit", [-1, 16])
def test_refuses_bits_outside_the_type(bit):
    with pytest.raises(InjectionError, match=rf"bits: bit {bit} is outside bf16, whose bits are"):
        refuse_outside(np.array([3, bit]), LAYOUTS["bf16"], "bits")
