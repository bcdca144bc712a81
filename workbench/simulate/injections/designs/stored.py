"""Parameters as they lie in memory: in the model's own type, or in a narrower one it is given."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import refuse_compiled, torch
from workbench.simulate.injections.designs.bits import LAYOUTS, Layout, layout_of

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
