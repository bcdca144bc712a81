"""Bits of stored numbers: read, flip and write them through integer views of the same width."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from workbench._numbers import NUMBER_TYPES, NumberType
from workbench.errors import InjectionError
from workbench.simulate.injections._torch import refuse_compiled, torch

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


# What experiments change: the form in which every engine gets its work, and gives its counts.

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Changes:
    """Elements that experiments change, one entry per element, sorted by experiment.

    Several flips of one element are one entry: the bits are combined before.

    Attributes
    ----------
    experiment_count
        Experiments; those without an entry change nothing.
    experiment
        int64, 0 .. ``experiment_count`` - 1, not decreasing.
    targets
        Names of what is hit: dotted parameter names, or ``"<module>:output"`` for the
        activation that a module gives.
    target
        int32, index into ``targets``.
    elem
        int64, flat in C order; of one input's part for an activation.
    before, after
        Tensors of the golden and the faulty value in the type the model computes in (for
        stored types such as int8: as the model sees them, after scaling). Infinities and
        NaN are kept. NaN for an activation: its values depend on the input.
    cleared, flips
        int64, for activations: the bits that are cleared first, and those flipped then, of
        whatever value the input gives. One element can have several such entries; they act
        in their order. 0 for parameters.
    """

    experiment_count: int
    experiment: Ints
    targets: tuple[str, ...]
    target: Ints
    elem: Ints
    before: Any
    after: Any
    cleared: Ints
    flips: Ints

    def rows(self, entries: Any) -> Changes:
        """Give some entries of the same experiments: a slice, or their places."""
        return replace(
            self,
            experiment=self.experiment[entries],
            target=self.target[entries],
            elem=self.elem[entries],
            before=self.before[entries],
            after=self.after[entries],
            cleared=self.cleared[entries],
            flips=self.flips[entries],
        )

    def part(self, start: int, stop: int) -> Changes:
        """Give the experiments ``start`` to ``stop`` - 1, renumbered from 0."""
        first, last = np.searchsorted(self.experiment, [start, stop])
        found = self.rows(slice(int(first), int(last)))
        return replace(found, experiment_count=stop - start, experiment=found.experiment - start)

    def only(self, experiments: Ints) -> Changes:
        """Give some experiments (in rising order), renumbered from 0."""
        found = self.rows(np.flatnonzero(np.isin(self.experiment, experiments)))
        numbers = np.searchsorted(experiments, found.experiment)
        return replace(found, experiment_count=len(experiments), experiment=numbers)


@dataclass(frozen=True, eq=False)
class Counts:
    """Outcomes per experiment, each an array as long as there are experiments.

    ``masked + benign + sdc + due`` is the number of inputs; ``beneficial`` is part of
    ``sdc``. ``max_abs_delta`` is NaN where an engine does not know it.
    """

    masked: Ints
    benign: Ints
    sdc: Ints
    due: Ints
    beneficial: Ints
    max_abs_delta: npt.NDArray[np.float64]


# Parameters as they lie in memory: in the model's own type, or in a narrower one it is given.

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

    def codes(self, values: Any, what: str) -> Any:
        """Give values of the parameter as stored."""
        if not self.is_narrow:
            return values
        if self.scale is None:
            codes = values.to(self.layout.dtype)
        else:
            codes = (values / self.scale).round().to(self.layout.dtype)
        if not bool((self.widened(codes) == values).all()):
            msg = (
                f"parameter {what!r} was changed after stored_as: it holds values that "
                f"{self.layout.name} cannot store; call stored_as on the finished model"
            )
            raise InjectionError(msg)
        return codes

    def widened(self, codes: Any) -> Any:
        """Give stored values as the model computes with them."""
        wide = codes.to(self.computed)
        return wide if self.scale is None else wide * self.scale

    def nearest(self, value: float) -> Any:
        """Give the stored value next to a number."""
        if self.scale is None:
            return torch().tensor(value, dtype=self.layout.dtype)
        code = max(-_INT8_MOST - 1, min(_INT8_MOST, value / self.scale))
        return torch().tensor(round(code), dtype=self.layout.dtype)


def stored_as(model: Any, dtype: StoredType) -> Any:
    """Give a copy of a model whose parameters are stored in a narrower type.

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
    if dtype not in get_args(StoredType):
        msg = f"dtype={dtype!r} is not one of {get_args(StoredType)}"
        raise InjectionError(msg)
    narrow = copy.deepcopy(model)
    kinds: dict[str, Stored] = {}
    with torch().no_grad():
        for name, parameter in narrow.named_parameters():
            if parameter.dtype != torch().float32:
                msg = f"parameter {name!r} holds {parameter.dtype}; stored_as takes float32 models"
                raise InjectionError(msg)
            kinds[name] = _stored(parameter, dtype)
            codes = parameter if kinds[name].scale is None else parameter / kinds[name].scale
            rounded = codes.round() if dtype == "int8" else codes
            parameter.copy_(kinds[name].widened(rounded.to(LAYOUTS[dtype].dtype)))
            if not bool(torch().isfinite(parameter).all()):
                msg = f"parameter {name!r} is not finite as {dtype}; it does not fit that type"
                raise InjectionError(msg)
    setattr(narrow, _ATTRIBUTE, kinds)
    return narrow


def _stored(parameter: Any, dtype: StoredType) -> Stored:
    scale = None
    if dtype == "int8":
        largest = float(parameter.abs().max()) if parameter.numel() else 0.0
        scale = float(torch().tensor(largest / _INT8_MOST if largest > 0 else 1.0))
    return Stored(LAYOUTS[dtype], parameter.dtype, scale)


def storage(model: Any, names: Iterable[str] | None = None) -> dict[str, Stored]:
    """Say how every parameter is stored, by name; tied ones once."""
    refuse_compiled(model)
    given = getattr(model, _ATTRIBUTE, {})
    if lazy := [n for n, p in model.named_parameters() if torch().nn.parameter.is_lazy(p)]:
        msg = f"parameter {lazy[0]!r} has no shape yet; run the model once on a batch"
        raise InjectionError(msg)
    wanted = None if names is None else set(names)
    return {
        name: given.get(name)
        or Stored(layout_of(parameter.dtype, f"parameter {name!r}"), parameter.dtype)
        for name, parameter in model.named_parameters()
        if wanted is None or name in wanted
    }
