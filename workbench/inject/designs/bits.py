"""Bits of stored numbers: read, flip and write them through integer views of the same width."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from workbench._shared.numbers import NUMBER_TYPES, NumberType
from workbench.errors import InjectionError
from workbench.inject._model import refuse_compiled, refuse_if, torch

Ints = npt.NDArray[np.integer[Any]]
_ALL_BITS = 16


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
BIT_COUNTS = {name: layout.bit_count for name, layout in LAYOUTS.items()}


def layout_of(dtype: Any, owner: str) -> Layout:
    """Return the layout of a torch type, or refuse its owner by name."""
    for layout in LAYOUTS.values():
        if layout.dtype == dtype:
            return layout
    msg = f"{owner} holds {dtype}; faults hit {', '.join(LAYOUTS)}"
    raise InjectionError(msg)


def as_integers(values: Any) -> Any:
    """Return the bits of values of any type as integers of their width, without a copy."""
    return values.view(getattr(torch(), f"int{8 * values.element_size()}"))


def as_masks(bits: Any, like: Any) -> Any:
    """Return bits (int64, not negative below 64 bits) as integers of a tensor's width."""
    width = 8 * like.element_size()
    bits = torch().as_tensor(bits, dtype=torch().int64)
    if width < 64:
        # torch has no wide unsigned integers, so the top bit is the sign.
        sign = 1 << (width - 1)
        bits = torch().where(bits >= sign, bits - (sign << 1), bits)
    return bits.to(getattr(torch(), f"int{width}"))


def patterns(values: Any) -> Any:
    """Return the bits of values as int64, without sign extension."""
    width = layout_of(values.dtype, "the tensor").bit_count
    wide = as_integers(values).to(torch().int64)
    return wide if width == 64 else wide & ((1 << width) - 1)


def from_patterns(bits: Any, dtype: Any) -> Any:
    """Return the values whose bits these are; the payload of a NaN is kept."""
    layout_of(dtype, "the tensor")
    return as_masks(bits, torch().empty(0, dtype=dtype)).view(dtype)


def masks(bits: Ints) -> npt.NDArray[np.int64]:
    """Return the int64 with one bit set, per bit."""
    return np.left_shift(np.int64(1), bits.astype(np.int64))


def flipped(values: Any, bits: Any) -> Any:
    """Flip one bit of every value; twice gives the values back, whatever they were."""
    layout = layout_of(values.dtype, "the tensor")
    positions = np.asarray(bits)
    refuse_outside(positions, layout, "bits")
    mask = torch().from_numpy(masks(np.broadcast_to(positions, tuple(values.shape))))
    return from_patterns(patterns(values) ^ mask.to(values.device), values.dtype)


def refuse_outside(bits: Ints, layout: Layout, field: str) -> None:
    """Refuse bits that a type does not have."""
    outside = (bits < 0) | (bits >= layout.bit_count)
    if outside.any():
        bad, last = bits[outside].flat[0], layout.bit_count - 1
        msg = f"{field}: bit {bad} is outside {layout.name}, whose bits are 0 to {last}"
        raise InjectionError(msg)


def flips_not_undone(dtype: str, *, seed: int = 0) -> int:
    """Flip every bit of many values twice, and count the values where that went wrong.

    Parameters
    ----------
    dtype
        ``"fp64"``, ``"fp32"``, ``"fp16"``, ``"bf16"`` or ``"int8"``.
    seed
        Of the values; types of up to 16 bits are tried whole, NaN and infinities among them.

    Returns
    -------
    int
        Values that some bit, flipped once, left as they were, or that two flips changed; 0 if
        all is well.

    Raises
    ------
    InjectionError
        If there is no such type.
    """
    refuse_if(dtype not in LAYOUTS, f"dtype={dtype!r} is not one of {', '.join(LAYOUTS)}")
    layout = LAYOUTS[dtype]
    width = layout.bit_count
    if width <= _ALL_BITS:
        bits = np.arange(1 << width, dtype=np.int64)
    else:
        drawn = np.random.default_rng(seed).bytes((1 << _ALL_BITS) * width // 8)
        bits = np.frombuffer(drawn, dtype=f"<u{width // 8}").astype(np.int64)
        # Few random patterns are NaN or infinite; with the whole exponent set, all are.
        exponent = ((1 << (width - 1 - layout.mantissa_count)) - 1) << layout.mantissa_count
        bits = np.concatenate([bits, bits | exponent])
    values = from_patterns(torch().from_numpy(bits), layout.dtype)
    before = patterns(values)
    changed = torch().zeros(len(bits), dtype=torch().bool)
    for bit in range(width):
        once = flipped(values, bit)
        changed |= patterns(once) == before
        changed |= patterns(flipped(once, bit)) != before
    return int(changed.sum())


StoredType = Literal["fp16", "bf16", "int8"]
_ATTRIBUTE = "stored_types"
_INT8_MOST = 127


@dataclass(frozen=True)
class Stored:
    """How one parameter lies in memory, and how the model sees it."""

    layout: Layout
    computed: Any
    scale: float | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether the model computes in another type than it is stored in."""
        return bool(self.layout.dtype != self.computed)

    def codes(self, values: Any, name: str) -> Any:
        """Return values of a parameter as stored."""
        if not self.is_narrow:
            return values
        codes = values if self.scale is None else (values / self.scale).round()
        codes = codes.to(self.layout.dtype)
        refuse_if(
            not bool((self.widened(codes) == values).all()),
            f"parameter {name!r} was changed after stored_as: it holds values that "
            f"{self.layout.name} cannot store; call stored_as on the finished model",
        )
        return codes

    def widened(self, codes: Any) -> Any:
        """Return stored values as the model computes with them."""
        wide = codes.to(self.computed)
        return wide if self.scale is None else wide * self.scale

    def nearest(self, value: float) -> Any:
        """Return the stored value next to a number."""
        if self.scale is not None:
            value = round(max(-_INT8_MOST - 1, min(_INT8_MOST, value / self.scale)))
        return torch().tensor(value, dtype=self.layout.dtype)


def stored_as(model: Any, dtype: StoredType) -> Any:
    """Return a copy of a model whose parameters are stored in a narrower type.

    Only the storage is narrow: the model computes as before, with the stored values
    widened (weight-only quantisation). Faults hit the stored bits. Compare such a model
    with its own fault-free run, not with that of the wide one.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` in float32; it is not changed.
    dtype
        ``"fp16"``, ``"bf16"`` (rounded to nearest even) or ``"int8"`` (symmetric, one scale
        per tensor: its largest magnitude / 127).

    Returns
    -------
    torch.nn.Module
        The copy. :func:`parameters` names the stored type.

    Raises
    ------
    InjectionError
        If the type is none of these, a parameter is not float32, or it holds values that
        are not finite once stored.
    """
    kinds = get_args(StoredType)
    refuse_if(dtype not in kinds, f"dtype={dtype!r} is not one of {kinds}")
    # The model of the caller stays as it is.
    narrow = copy.deepcopy(model)
    stored: dict[str, Stored] = {}
    with torch().no_grad():
        for name, parameter in narrow.named_parameters():
            refuse_if(
                parameter.dtype != torch().float32,
                f"parameter {name!r} holds {parameter.dtype}; stored_as takes float32 models",
            )
            stored[name] = kept = _stored(parameter, dtype)
            codes = parameter if kept.scale is None else (parameter / kept.scale).round()
            parameter.copy_(kept.widened(codes.to(kept.layout.dtype)))
            refuse_if(
                not bool(torch().isfinite(parameter).all()),
                f"parameter {name!r} is not finite as {dtype}; it does not fit that type",
            )
    setattr(narrow, _ATTRIBUTE, stored)
    return narrow


def _stored(parameter: Any, dtype: StoredType) -> Stored:
    scale = None
    if dtype == "int8":
        largest = float(parameter.abs().max()) if parameter.numel() else 0.0
        # The scale itself is a float32, so that codes times scale are exactly the values.
        scale = float(torch().tensor(largest / _INT8_MOST if largest > 0 else 1.0))
    return Stored(LAYOUTS[dtype], parameter.dtype, scale)


def storage(model: Any, names: Iterable[str] | None = None) -> dict[str, Stored]:
    """Return how every parameter is stored, by name; tied ones once."""
    refuse_compiled(model)
    narrow = getattr(model, _ATTRIBUTE, {})
    if lazy := [n for n, p in model.named_parameters() if torch().nn.parameter.is_lazy(p)]:
        msg = f"parameter {lazy[0]!r} has no shape yet; run the model once on a batch"
        raise InjectionError(msg)
    wanted = None if names is None else set(names)
    return {
        name: narrow.get(name)
        or Stored(layout_of(parameter.dtype, f"parameter {name!r}"), parameter.dtype)
        for name, parameter in model.named_parameters()
        if wanted is None or name in wanted
    }
