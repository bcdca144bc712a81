"""Protections: what stands between a fault and the output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.changes import Changes, Ints
from workbench.simulate.injections.designs.parameters import shown
from workbench.simulate.injections.designs.verify import is_output
from workbench.simulate.injections.protections.detectors import output_ranges

_RELU_LIKE = ("ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "GELU", "SiLU", "Hardswish")


class Mitigation:
    """A protection; the kinds below say what it does to faults and to the model."""

    name = "none"
    needs_the_model_to_run = False

    def described(self) -> str:
        """Tell what it is and by which numbers, so that two can be told apart."""
        return self.name

    def hardened(self, changes: Changes) -> Changes:
        """Give what is left of the changes."""
        return changes

    def attach(self, model: Any) -> Callable[[], None]:  # noqa: ARG002 - for those that need it
        """Put it on the model; give the function that takes it off."""
        return lambda: None


class _WeightClamp(Mitigation):
    name = "weight_clamp"

    def __init__(self, largest: Mapping[str, float]) -> None:
        self._largest = dict(largest)

    def described(self) -> str:
        return f"weight_clamp {sorted(self._largest.items())}"

    def hardened(self, changes: Changes) -> Changes:
        limits = np.array([self._largest.get(name, np.inf) for name in changes.targets])
        limit = torch().from_numpy(limits)[torch().from_numpy(changes.target).long()]
        passes = np.array([is_output(name) for name in changes.targets], dtype=bool)
        kept = torch().from_numpy(passes)[torch().from_numpy(changes.target).long()]
        fine = (changes.after.double().abs() <= limit) | kept
        return replace(changes, after=torch().where(fine, changes.after, 0))


def weight_clamp(model: Any) -> Mitigation:
    """Set every parameter that is beyond the largest of its healthy tensor to 0.

    Parameters
    ----------
    model
        The healthy model.

    Returns
    -------
    Mitigation
        For ``CampaignSettings.mitigation``. A parameter whose magnitude is above the
        largest of its tensor, or that is NaN, is read as 0; faults in activations pass.
    """
    largest = {
        name: float(parameter.detach().abs().max()) if parameter.numel() else 0.0
        for name, parameter in model.named_parameters()
    }
    return _WeightClamp(largest)


class _ActivationClip(Mitigation):
    name = "activation_clip"
    needs_the_model_to_run = True

    def __init__(self, largest: Mapping[str, float]) -> None:
        self._largest = dict(largest)

    def described(self) -> str:
        return f"activation_clip {sorted(self._largest.items())}"

    def attach(self, model: Any) -> Callable[[], None]:
        undo = ExitStack()
        for name, most in self._largest.items():
            hook = model.get_submodule(name).register_forward_hook(_clip(most))
            undo.callback(hook.remove)
        return undo.close


def _clip(most: float) -> Callable[[Any, Any, Any], Any]:
    def hook(_module: Any, _args: Any, output: Any) -> Any:
        return torch().where(torch().isfinite(output), output.clamp(max=most), 0)

    return hook


def activation_clip(model: Any, inputs: Any, *, modules: Sequence[str] = _RELU_LIKE) -> Mitigation:
    """Clip activations at the largest seen on healthy inputs; those not finite become 0.

    Parameters
    ----------
    model
        The healthy model.
    inputs
        Inputs to profile, others than those of the campaign.
    modules
        Classes of the modules whose outputs are clipped.

    Returns
    -------
    Mitigation
        For ``CampaignSettings.mitigation``. It is in place in the fault-free run as well,
        and what it costs there shows in the golden metric.

    Raises
    ------
    InjectionError
        If the model has no such module; activations that are plain functions in
        ``forward`` cannot be clipped from outside.
    """
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    ranges = output_ranges(model, inputs)
    largest = {name: high for name, (_, high) in ranges.items() if kinds[name] in modules}
    if not largest:
        msg = (
            f"model: activation_clip finds no module of class {', '.join(modules)}; activations "
            "that are functions in forward have to become modules first"
        )
        raise InjectionError(msg)
    return _ActivationClip(largest)


class _Protected(Mitigation):
    name = "protected"

    def __init__(self, elements: Mapping[str, Ints | None]) -> None:
        self._elements = dict(elements)

    def described(self) -> str:
        parts = [
            f"{name}: {'all' if elem is None else np.sort(elem).tolist()}"
            for name, elem in sorted(self._elements.items())
        ]
        return f"protected {'; '.join(parts)}"

    def hardened(self, changes: Changes) -> Changes:
        safe = np.zeros(len(changes.elem), dtype=bool)
        for number, name in enumerate(changes.targets):
            if name in self._elements:
                elem = self._elements[name]
                mine = changes.target == number
                safe |= mine if elem is None else mine & np.isin(changes.elem, elem)
        return changes.rows(np.flatnonzero(~safe))


def protected(
    model: Any, elements: Sequence[str] | Mapping[str, Sequence[int] | None]
) -> Mitigation:
    """Keep some parameters safe, e.g. in memory with error correction.

    Parameters
    ----------
    model
        The model; its names are checked.
    elements
        Names of parameters; or names with the flat elements that are safe (None: all).

    Returns
    -------
    Mitigation
        For ``CampaignSettings.mitigation``; faults in these elements have no effect.

    Raises
    ------
    InjectionError
        If the model has no parameter of that name.
    """
    given = elements if isinstance(elements, Mapping) else dict.fromkeys(elements)
    names = [name for name, _ in model.named_parameters()]
    if unknown := [name for name in given if name not in names]:
        msg = f"elements: {unknown} are no parameters of the model; it has {shown(names)}"
        raise InjectionError(msg)
    return _Protected(
        {
            name: None if elem is None else np.asarray(elem, dtype=np.int64)
            for name, elem in given.items()
        }
    )
