"""The tensors that faults can hit."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import LAYOUTS, storage
from workbench.tables import FAULTS, PARAMETERS


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


# Whether faults fit a model: every row names something that is there.

OUTPUT = ":output"
_HINT = "is this a fault list for another model?"
_CATEGORIES = [name for name, column in FAULTS.columns.items() if column.dtype == "category"]


def is_output(param: str) -> bool:
    """Say whether a target is an activation."""
    return str(param).endswith(OUTPUT)


def verified(
    model: Any, faults: pd.DataFrame, activations: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the faults if all of them can be injected into the model."""
    # Tables that were joined have texts where their categories differed.
    joined = {name: "category" for name in _CATEGORIES if name in faults}
    faults = FAULTS.check(faults.astype(joined), "faults")
    _refuse(faults.duplicated(["exp_id", "flip"]), faults, "flip", "stands twice in its experiment")
    sizes, types = targets(model, activations)
    name = faults["param"].astype(object)
    is_hit = name.notna()
    known = name.isin(list(sizes))
    if activations is None:
        known |= name.map(is_output).astype(bool)
    _refuse(
        is_hit & ~known, faults, "param", f"is not of this model ({shown(list(sizes))}); {_HINT}"
    )
    size = name.map(sizes)
    elem = faults["elem"]
    _refuse(is_hit & elem.isna(), faults, "elem", "is missing")
    _refuse((elem >= size).fillna(value=False), faults, "elem", f"is outside its tensor; {_HINT}")
    dtype = name.map(types)
    written = faults["dtype"].astype(object)
    other = is_hit & written.notna() & dtype.notna() & (written != dtype)
    _refuse(other, faults, "dtype", f"is not the type that the model stores there; {_HINT}")
    width = dtype.map({layout.name: layout.bit_count for layout in LAYOUTS.values()})
    outside = (faults["bit"] >= width).fillna(value=False)
    _refuse(outside, faults, "bit", "is outside the type of its tensor")
    unsaid = is_hit & faults["bit"].isna() & faults["value_after"].isna()
    _refuse(unsaid, faults, "bit", "is missing and so is value_after; one of them is needed")
    return faults


def targets(
    model: Any, activations: pd.DataFrame | None = None
) -> tuple[dict[str, int], dict[str, str]]:
    """Give the elements and the stored type of everything faults can hit, by name."""
    named = dict(model.named_parameters())
    stored = storage(model)
    sizes = {name: named[name].numel() for name in stored}
    types = {name: kept.layout.name for name, kept in stored.items()}
    if activations is not None:
        sizes |= dict(zip(activations["param"], activations["element_count"], strict=True))
        types |= dict(zip(activations["param"], activations["dtype"], strict=True))
    return sizes, types


def refuse_other_values(
    faults: pd.DataFrame, field: str, ours: npt.NDArray[np.float64], is_hit: npt.NDArray[np.bool_]
) -> None:
    """Refuse faults whose values are not those that the model gives."""
    told = faults[field].to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        differs = ~np.isclose(told, ours, rtol=1e-5, atol=1e-30, equal_nan=True)
    bad = pd.Series(differs & ~np.isnan(told) & is_hit, index=faults.index)
    _refuse(
        bad,
        faults,
        field,
        f"is not what the model gives there; {_HINT} fault_list without the columns "
        "value_before, value_after and direction fills them from this model",
    )


def refuse_other_weights(model: Any, faults: pd.DataFrame) -> None:
    """Refuse faults drawn for the same model with other weights: their bits would not flip."""
    golden = np.full(len(faults), np.nan)
    name = faults["param"].astype(object).to_numpy()
    for param, parameter in model.named_parameters():
        rows = np.flatnonzero(name == param)
        if len(rows):
            elem = faults["elem"].to_numpy(dtype=np.int64, na_value=0)[rows]
            places = torch().from_numpy(elem).to(parameter.device)
            golden[rows] = parameter.detach().flatten()[places].cpu().double().numpy()
    refuse_other_values(faults, "value_before", golden, ~np.isnan(golden))


def _refuse(bad: pd.Series, faults: pd.DataFrame, field: str, reason: str) -> None:
    """Raise for the first bad row, naming field, row and value."""
    if bad.any():
        row = int(bad.to_numpy(dtype=bool).argmax())
        first = faults.iloc[row]
        value = f"{first[field]!r}" if isinstance(first[field], str) else first[field]
        msg = (
            f"faults: {field} {value} of {first['param']!r} {reason} "
            f"(row {row}, exp_id {first['exp_id']}; {int(bad.sum()):,} such rows)"
        )
        raise InjectionError(msg)
