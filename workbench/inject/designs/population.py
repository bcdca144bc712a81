"""The tensors that faults can hit, and whether faults fit them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.inject._model import batches, in_evaluation, refuse_if, torch
from workbench.inject.designs.bits import BIT_COUNTS, LAYOUTS, storage
from workbench.tables import FAULTS, PARAMETERS

OUTPUT = ":output"
_HINT = "is this a fault list for another model?"
_CATEGORIES = [name for name, column in FAULTS.columns.items() if column.dtype == "category"]
_COLUMNS = ["component", "layer", "param", "kind", "dtype", "element_count"]


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
    refuse_if(
        not stored,
        f"model: {type(model).__name__} has no parameters; there is nothing to inject into",
    )
    tensors = dict(model.named_parameters())
    patterns = _own_components(model) if components is None else components
    if idle := [p for p in patterns if not any(fnmatchcase(name, p) for name in tensors)]:
        # Most are misspelt.
        msg = f"components: {idle} match no parameter; the model has {shown(list(tensors))}"
        raise InjectionError(msg)
    modules = dict(model.named_modules())
    rows = []
    for name, kept in stored.items():
        layer, _, leaf = name.rpartition(".")
        component, kind = _component(name, patterns), _kind(modules[layer], leaf)
        rows.append((component, layer, name, kind, kept.layout.name, tensors[name].numel()))
    return _population(rows)


def _population(rows: Iterable[tuple[str, str, str, str, str, int]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=_COLUMNS).assign(campaign_id="")
    table["bit_count"] = table["element_count"] * table["dtype"].map(BIT_COUNTS)
    return PARAMETERS.of(table[list(PARAMETERS.columns)])


def _kind(module: Any, leaf: str) -> str:
    """Describe what a parameter is for, by the module that owns it."""
    owner = type(module).__name__
    # Before the name of the leaf: a norm has weight and bias, too.
    if owner.startswith("Embedding"):
        return "embedding"
    if "Norm" in owner:
        return "norm"
    return "bias" if "bias" in leaf else "weight"


def _own_components(model: Any) -> Mapping[str, str]:
    own = getattr(model, "components", None)
    return own if isinstance(own, Mapping) else {}


def _component(name: str, patterns: Mapping[str, str]) -> str:
    matching = (component for pattern, component in patterns.items() if fnmatchcase(name, pattern))
    # Without a pattern, the outermost module names the component.
    return next(matching, name.split(".", 1)[0])


def shown(names: Sequence[str]) -> str:
    """List the first names."""
    more = f", ... ({len(names)} in all)" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more


def activations(model: Any, inputs: Any, where: str | Sequence[str] = "*") -> pd.DataFrame:
    """List the activations that faults can hit: one input's part of what each module gives.

    Parameters
    ----------
    model
        A ``torch.nn.Module``; it is run on the first batch.
    inputs
        As for :func:`campaign`.
    where
        Patterns of module names; ``"*"`` means the modules without submodules.

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
    outputs, leaves = _outputs(model, inputs), leaf_names(model)
    chosen: dict[str, None] = {}
    for pattern in [where] if isinstance(where, str) else where:
        # "*" alone means leaves: the output of a container is that of a leaf, hit twice as often.
        candidates = [name for name in outputs if pattern != "*" or name in leaves]
        names = [name for name in candidates if fnmatchcase(name, pattern)]
        refuse_if(
            not names,
            f"where: {pattern!r} names no module that gives a tensor with one row per input; "
            f"those that do: {shown([name for name in outputs if name])}",
        )
        chosen |= dict.fromkeys(names)
    return _activations(model, outputs, chosen)


def activations_hit(model: Any, inputs: Any, params: Collection[str]) -> pd.DataFrame:
    """List the activations of the modules without submodules, and those named."""
    outputs, leaves = _outputs(model, inputs), leaf_names(model)
    chosen = [name for name in outputs if name in leaves or f"{name}{OUTPUT}" in params]
    return _activations(model, outputs, chosen)


def leaf_names(model: Any) -> set[str]:
    """Name the modules without submodules."""
    return {
        name for name, module in model.named_modules() if not any(True for _ in module.children())
    }


def _activations(
    model: Any, outputs: Mapping[str, tuple[str, int]], chosen: Iterable[str]
) -> pd.DataFrame:
    patterns = _own_components(model)
    return _population(
        [
            (_component(name, patterns), name, f"{name}{OUTPUT}", "activation", *outputs[name])
            for name in chosen
        ]
    )


def _outputs(model: Any, inputs: Any) -> dict[str, tuple[str, int]]:
    """Run one batch and note type and elements per input of what every module gives first."""
    seen: dict[str, Any] = {}
    names = {layout.dtype: layout.name for layout in LAYOUTS.values()}
    # One batch tells all shapes per input.
    batch = batches(inputs)[0]

    def note(name: str, _module: Any, _args: Any, output: Any) -> None:
        if isinstance(output, torch().Tensor) and output.dtype in names and output.ndim:
            # A module that is called several times is hit in its first call.
            seen.setdefault(name, output)

    with ExitStack() as undo, in_evaluation(model):
        for name, module in model.named_modules():
            undo.callback(module.register_forward_hook(partial(note, name)).remove)
        count = len(model(*batch.args, **batch.kwargs))
    return {
        name: (names[output.dtype], output[0].numel())
        for name, output in seen.items()
        if len(output) == count
    }


def is_output(param: str) -> bool:
    """Return whether a target is an activation."""
    return str(param).endswith(OUTPUT)


def verified(
    model: Any, faults: pd.DataFrame, activations: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the faults if all of them can be injected into the model."""
    # Tables that were joined have texts where their categories differed.
    joined = {name: "category" for name in _CATEGORIES if name in faults}
    faults = FAULTS.check(faults.astype(joined), "faults")
    refuse = partial(_refuse, faults)
    refuse(faults.duplicated(["exp_id", "flip"]), "flip", "appears twice in its experiment")
    sizes, types = _targets(model, activations)
    name = faults["param"].astype(object)
    is_hit = name.notna()
    is_known = name.isin(list(sizes))
    # Without inputs, the outputs of modules are not known: they are checked when the model runs.
    if activations is None:
        is_known |= name.map(is_output).astype(bool)
    refuse(is_hit & ~is_known, "param", f"is not of this model ({shown(list(sizes))}); {_HINT}")
    elem, bit = faults["elem"], faults["bit"]
    refuse(is_hit & elem.isna(), "elem", "is missing")
    is_outside = (elem >= name.map(sizes)).fillna(value=False)
    refuse(is_outside, "elem", f"is outside its tensor; {_HINT}")
    dtype, written = name.map(types), faults["dtype"].astype(object)
    differs = is_hit & written.notna() & dtype.notna() & (written != dtype)
    refuse(differs, "dtype", f"is not the type that the model stores there; {_HINT}")
    is_outside = (bit >= dtype.map(BIT_COUNTS)).fillna(value=False)
    refuse(is_outside, "bit", "is outside the type of its tensor")
    unsaid = is_hit & bit.isna() & faults["value_after"].isna()
    refuse(unsaid, "bit", "is missing and so is value_after; one of them is needed")
    return faults


def _targets(model: Any, activations: pd.DataFrame | None) -> tuple[dict[str, int], dict[str, str]]:
    """Return the elements and the stored type of everything faults can hit, by name."""
    tensors = dict(model.named_parameters())
    stored = storage(model)
    sizes = {name: tensors[name].numel() for name in stored}
    types = {name: kept.layout.name for name, kept in stored.items()}
    if activations is not None:
        sizes |= dict(zip(activations["param"], activations["element_count"], strict=True))
        types |= dict(zip(activations["param"], activations["dtype"], strict=True))
    return sizes, types


def refuse_other_values(
    faults: pd.DataFrame, field: str, own: npt.NDArray[np.float64], is_hit: npt.NDArray[np.bool_]
) -> None:
    """Refuse faults whose values are not those that the model gives."""
    listed = faults[field].to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        # Lists are often written as text, with fewer digits than a float32 has.
        differs = ~np.isclose(listed, own, rtol=1e-5, atol=1e-30, equal_nan=True)
    bad = pd.Series(differs & ~np.isnan(listed) & is_hit, index=faults.index)
    _refuse(
        faults,
        bad,
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
            positions = torch().from_numpy(elem).to(parameter.device)
            golden[rows] = parameter.detach().flatten()[positions].cpu().double().numpy()
    refuse_other_values(faults, "value_before", golden, ~np.isnan(golden))


def _refuse(faults: pd.DataFrame, bad: pd.Series, field: str, reason: str) -> None:
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
