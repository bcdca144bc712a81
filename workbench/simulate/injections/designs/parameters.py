"""The tensors that faults can hit."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections.designs.stored import storage
from workbench.tables import PARAMETERS


def parameters(model: Any, *, components: Mapping[str, str] | None = None) -> pd.DataFrame:
    """List every parameter of a model: the population that faults are drawn from.

    A component is the part of a model that is reported as one. It is the first part of
    the dotted name (``top.2.weight`` belongs to ``top``) unless ``components`` says
    otherwise.

    Parameters
    ----------
    model
        A ``torch.nn.Module``; it is not changed.
    components
        Patterns of dotted names such as ``"encoder.*.attention.*"``, each with the
        component of the parameters it matches; the first match counts. None: the
        model's own attribute ``components``, if it has one.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PARAMETERS`, in the model's order; tied weights once,
        under their first name. ``campaign_id`` is empty: no campaign was run.

    Raises
    ------
    InjectionError
        If the model has no parameters, one holds a type that faults cannot hit, or a
        pattern matches none of them.
    """
    stored = storage(model)
    if not stored:
        msg = f"model: {type(model).__name__} has no parameters; there is nothing to inject into"
        raise InjectionError(msg)
    named = dict(model.named_parameters())
    part = Components.of(model, components)
    part.refuse_unmatched(named)
    modules = dict(model.named_modules())
    rows = []
    for name, kept in stored.items():
        layer, _, leaf = name.rpartition(".")
        rows.append(
            {
                "campaign_id": "",
                "component": part.name(name),
                "layer": layer,
                "param": name,
                "kind": _kind(modules[layer], leaf),
                "dtype": kept.layout.name,
                "element_count": named[name].numel(),
                "bit_count": named[name].numel() * kept.layout.bit_count,
            }
        )
    table = pd.DataFrame(rows, columns=list(PARAMETERS.columns))
    return PARAMETERS.check(PARAMETERS.cast(table))


def _kind(module: Any, leaf: str) -> str:
    """Say what a parameter is for, by the module that owns it."""
    owner = type(module).__name__
    if owner.startswith("Embedding"):
        return "embedding"
    if "Norm" in owner:
        return "norm"
    return "bias" if "bias" in leaf else "weight"


class Components:
    """Which component a dotted name belongs to."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = dict(patterns)

    @classmethod
    def of(cls, model: Any, patterns: Mapping[str, str] | None = None) -> Components:
        """Take the patterns given, or the model's own."""
        own = getattr(model, "components", None)
        return cls(patterns if patterns is not None else own if isinstance(own, Mapping) else {})

    def name(self, dotted: str) -> str:
        """Give the component of a parameter."""
        for pattern, component in self._patterns.items():
            if fnmatchcase(dotted, pattern):
                return component
        return dotted.split(".", 1)[0]

    def refuse_unmatched(self, names: Mapping[str, Any]) -> None:
        """Refuse patterns that match nothing: most are misspelt."""
        idle = [
            pattern
            for pattern in self._patterns
            if not any(fnmatchcase(name, pattern) for name in names)
        ]
        if idle:
            msg = f"components: {idle} match no parameter; the model has {shown(list(names))}"
            raise InjectionError(msg)


def shown(names: list[str], most: int = 6) -> str:
    """List the first names."""
    rest = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
