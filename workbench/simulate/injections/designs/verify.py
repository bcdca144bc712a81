"""Whether faults fit a model: every row names something that is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import LAYOUTS
from workbench.simulate.injections.designs.parameters import shown
from workbench.simulate.injections.designs.stored import storage
from workbench.tables import FAULTS

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
