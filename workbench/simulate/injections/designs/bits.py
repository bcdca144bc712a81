"""Bits of stored numbers: read, flip and write them through integer views of the same width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench._number_types import NUMBER_TYPES, NumberType
from workbench.errors import InjectionError
from workbench.simulate.injections._torch import torch

_INTEGERS = {8: "int8", 16: "int16", 32: "int32", 64: "int64"}
_BYTE = 8


@dataclass(frozen=True)
class Layout(NumberType):
    """A type whose bits can be hit, and the torch type that holds it."""

    torch_name: str = ""

    @property
    def dtype(self) -> Any:
        """The torch type that holds it."""
        return getattr(torch(), self.torch_name)


_TORCH_NAMES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8",
}  # fmt: skip
LAYOUTS = {
    name: Layout(**vars(NUMBER_TYPES[name]), torch_name=torch_name)
    for name, torch_name in _TORCH_NAMES.items()
}


def layout_of(dtype: Any, what: str) -> Layout:
    """Give the layout of a torch type, or refuse ``what`` by name."""
    for layout in LAYOUTS.values():
        if layout.dtype == dtype:
            return layout
    msg = f"{what} holds {dtype}; faults hit {', '.join(LAYOUTS)}"
    raise InjectionError(msg)


def as_integers(values: Any) -> Any:
    """Give the bits of values of any type as integers of their width, without a copy."""
    return values.view(getattr(torch(), _INTEGERS[_BYTE * values.element_size()]))


def as_masks(bits: Any, like: Any) -> Any:
    """Give bits (int64, not negative below 64 bits) as integers of a tensor's width."""
    width = _BYTE * like.element_size()
    bits = torch().as_tensor(bits, dtype=torch().int64)
    if width < max(_INTEGERS):
        sign = 1 << (width - 1)
        bits = torch().where(bits >= sign, bits - (sign << 1), bits)
    return bits.to(getattr(torch(), _INTEGERS[width]))


def patterns(values: Any) -> Any:
    """Give the bits of values as int64, without sign extension."""
    width = layout_of(values.dtype, "the tensor").bit_count
    wide = as_integers(values).to(torch().int64)
    return wide if width == max(_INTEGERS) else wide & ((1 << width) - 1)


def from_patterns(bits: Any, dtype: Any) -> Any:
    """Give the values whose bits these are; the payload of a NaN is kept."""
    layout_of(dtype, "the tensor")
    return as_masks(bits, torch().empty(0, dtype=dtype)).view(dtype)


def masks(bits: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Give the int64 with one bit set, per bit."""
    return np.left_shift(np.int64(1), bits.astype(np.int64))


def flipped(values: Any, bits: Any) -> Any:
    """Flip one bit of every value; twice gives the values back, whatever they were."""
    layout = layout_of(values.dtype, "the tensor")
    places = np.asarray(bits)
    refuse_outside(places, layout, "bits")
    mask = torch().from_numpy(masks(np.broadcast_to(places, tuple(values.shape))))
    return from_patterns(patterns(values) ^ mask.to(values.device), values.dtype)


def corrupted(output: Any, name: str, elems: Any, cleared: Any, flips: Any) -> Any:
    """Give an activation in which bits of the same elements of every input are hit."""
    if not isinstance(output, torch().Tensor):
        kind = type(output).__name__
        msg = f"activation {name!r} is a {kind}, not a tensor; choose a module inside it"
        raise InjectionError(msg)
    hit = output.clone(memory_format=torch().contiguous_format)
    bits = as_integers(hit.view(len(hit), -1))
    kept, flipping = ~as_masks(cleared, output), as_masks(flips, output)
    for elem, keep, flip in zip(elems.tolist(), kept, flipping, strict=True):
        bits[:, elem] = (bits[:, elem] & keep) ^ flip
    return hit


def refuse_outside(bits: npt.NDArray[np.integer[Any]], layout: Layout, field: str) -> None:
    """Refuse bits that a type does not have."""
    outside = (bits < 0) | (bits >= layout.bit_count)
    if outside.any():
        worst = bits[outside].flat[0]
        msg = f"{field}: bit {worst} is outside {layout.name}, whose bits are 0 to "
        raise InjectionError(msg + str(layout.bit_count - 1))
