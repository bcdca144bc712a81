"""What a FAULTS table says beside the place: names, roles, and values before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.simulate.injections.designs.bits import LAYOUTS, masks
from workbench.simulate.injections.designs.combine import Rows, combined
from workbench.simulate.injections.designs.stored import storage
from workbench.simulate.injections.designs.verify import is_output, refuse_other_values
from workbench.tables import FAULTS

_NAMES = ("component", "layer", "kind", "dtype")


def filled(model: Any, faults: pd.DataFrame, population: pd.DataFrame) -> pd.DataFrame:
    """Fill what is missing in faults; ``population`` holds the tensors they hit."""
    known = population.set_index("param")
    name = faults["param"].astype(object)
    table = faults.copy()
    for column in _NAMES:
        given = table[column].astype(object)
        told = name.map(known[column].astype(object))
        table[column] = told if column == "dtype" else given.where(given.notna(), told)
    roles = np.full(len(table), None, dtype=object)
    bit = table["bit"].fillna(-1).to_numpy(dtype=np.int64)
    dtypes = table["dtype"].to_numpy(dtype=object)
    for layout in LAYOUTS.values():
        meant = (dtypes == layout.name) & (bit >= 0)
        roles[meant] = layout.roles(bit[meant])
    table["bit_role"] = roles
    return FAULTS.check(FAULTS.cast(_with_values(model, table)))


def _with_values(model: Any, faults: pd.DataFrame) -> pd.DataFrame:
    """Fill index, value_before, value_after and direction from the model."""
    named = dict(model.named_parameters())
    columns = {
        column: faults[column].to_numpy(dtype=np.float64, na_value=np.nan).copy()
        for column in ("value_before", "value_after")
    }
    direction = faults["direction"].to_numpy(dtype=object).copy()
    index = faults["index"].to_numpy(dtype=object).copy()
    golden = np.full(len(faults), np.nan)
    names = faults["param"].astype(object)
    experiment = faults["exp_id"].to_numpy(dtype=np.int64)
    hit = [name for name in names.dropna().unique() if not is_output(name)]
    for name, stored in storage(model, hit).items():
        rows = np.flatnonzero((names == name).to_numpy())
        each = Rows.of(faults.iloc[rows], experiment[rows])
        part = combined(named[name], stored, each, name)
        golden[rows] = _floats(part.before)[part.of_row]
        columns["value_after"][rows] = _floats(part.after)[part.of_row]
        index[rows] = indices(tuple(named[name].shape), each.elem)
        flips = (each.bit >= 0) & (each.direction < 0)
        is_set = (part.golden & masks(np.maximum(each.bit, 0))) != 0
        direction[rows[flips]] = np.where(is_set, "1to0", "0to1")[flips]
    known = ~np.isnan(golden)
    bit = faults["bit"].fillna(-1).to_numpy(dtype=np.int64)
    refuse_other_values(faults, "value_before", golden, known)
    refuse_other_values(faults, "value_after", columns["value_after"], known & (bit >= 0))
    columns["value_before"] = np.where(np.isnan(golden), columns["value_before"], golden)
    return faults.assign(**columns, direction=direction, index=index)


def _floats(values: Any) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = values.double().numpy()
    return found


def indices(shape: tuple[int, ...], elem: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """Write flat places as places per axis, e.g. (3, 0, 2, 1)."""
    unique, inverse = np.unique(elem, return_inverse=True)
    axes = [axis.tolist() for axis in np.unravel_index(unique, shape)] if shape else []
    texts = [str(place) for place in zip(*axes, strict=True)] if axes else ["()"] * len(unique)
    return np.array(texts, dtype=object)[inverse]
