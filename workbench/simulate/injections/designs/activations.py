"""What modules give: the activations that faults can hit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._inputs import at_rest, batches
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import LAYOUTS
from workbench.simulate.injections.designs.faults import FaultModel, uniform_faults
from workbench.simulate.injections.designs.parameters import OUTPUT, Components, shown
from workbench.tables import PARAMETERS

_SBF = FaultModel()


def activations(model: Any, inputs: Any, where: str | Sequence[str] = "*") -> pd.DataFrame:
    """List the activations that faults can hit: one input's part of what each module gives.

    Parameters
    ----------
    model
        A ``torch.nn.Module``; it is run on the first batch.
    inputs
        As for :func:`campaign`.
    where
        Patterns of module names; ``"*"`` means the modules without parts of their own.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PARAMETERS` of kind ``activation``; ``param`` is named
        ``<module>:output`` and ``element_count`` counts the elements of one input.

    Raises
    ------
    InjectionError
        If a pattern matches no module that gives one row per input in a type that
        faults can hit.
    """
    shapes, leaves = _outputs(model, inputs), _leaves(model)
    wanted = [where] if isinstance(where, str) else list(where)
    chosen: list[str] = []
    for pattern in wanted:
        names = [
            name
            for name in shapes
            if fnmatchcase(name, pattern) and (pattern != "*" or name in leaves)
        ]
        if not names:
            msg = (
                f"where: {pattern!r} names no module that gives a tensor with one row per input; "
                f"those that do: {shown([name for name in shapes if name])}"
            )
            raise InjectionError(msg)
        chosen += [name for name in names if name not in chosen]
    return _table(model, shapes, chosen)


def activations_hit(model: Any, inputs: Any, params: Collection[str]) -> pd.DataFrame:
    """List the activations of the modules without parts of their own, and those named."""
    shapes, leaves = _outputs(model, inputs), _leaves(model)
    chosen = [name for name in shapes if name in leaves or f"{name}{OUTPUT}" in params]
    return _table(model, shapes, chosen)


def _leaves(model: Any) -> set[str]:
    """Give the modules without parts of their own."""
    return {
        name for name, module in model.named_modules() if not any(True for _ in module.children())
    }


def _table(model: Any, shapes: dict[str, tuple[str, int]], chosen: list[str]) -> pd.DataFrame:
    """Give the activations of modules as table PARAMETERS."""
    part = Components.of(model)
    rows = [
        {
            "campaign_id": "",
            "component": part.name(name),
            "layer": name,
            "param": f"{name}{OUTPUT}",
            "kind": "activation",
            "dtype": shapes[name][0],
            "element_count": shapes[name][1],
            "bit_count": shapes[name][1] * LAYOUTS[shapes[name][0]].bit_count,
        }
        for name in chosen
    ]
    return PARAMETERS.check(PARAMETERS.cast(pd.DataFrame(rows, columns=list(PARAMETERS.columns))))


def _outputs(model: Any, inputs: Any) -> dict[str, tuple[str, int]]:
    """Run one batch and note type and elements per input of what every module gives first."""
    seen: dict[str, Any] = {}
    names = {layout.dtype: layout.name for layout in LAYOUTS.values()}
    batch = batches(inputs)[0]
    with ExitStack() as undo, at_rest(model):
        for name, module in model.named_modules():

            def look(_module: Any, _args: Any, output: Any, name: str = name) -> None:
                if isinstance(output, torch().Tensor) and output.dtype in names and output.ndim:
                    seen.setdefault(name, output)

            undo.callback(module.register_forward_hook(look).remove)
        count = len(model(*batch.args, **batch.kwargs))
    return {
        name: (names[output.dtype], output[0].numel())
        for name, output in seen.items()
        if len(output) == count
    }


def activation_faults(
    model: Any,
    inputs: Any,
    count: int,
    *,
    seed: int,
    fault_model: FaultModel = _SBF,
    where: str | Sequence[str] = "*",
) -> pd.DataFrame:
    """Draw faults in activations: the same element and bit of every input's part.

    Parameters
    ----------
    model
        A ``torch.nn.Module``.
    inputs
        As for :func:`campaign`; the first batch tells the sizes.
    count
        Experiments.
    seed
        Of the draw.
    fault_model
        What happens to the bits that are hit.
    where
        Patterns of module names; see :func:`activations`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAULTS` with ``param`` named ``<module>:output``.
        The values before and after depend on the input and are missing.

    Raises
    ------
    InjectionError
        As :func:`activations` and :func:`uniform_faults`.
    """
    population = activations(model, inputs, where)
    return uniform_faults(model, count, seed=seed, fault_model=fault_model, where=population)
