"""The bits that a design draws from."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections.designs.bits import LAYOUTS, refuse_outside
from workbench.simulate.injections.designs.parameters import parameters, shown
from workbench.tables import PARAMETERS

Where: TypeAlias = "str | Sequence[str] | pd.DataFrame"
Bits: TypeAlias = "int | Sequence[int] | None"
STRATA = ("component", "layer", "param", "kind", "dtype", "bit", "bit_role")


def chosen(model: Any, where: Where) -> pd.DataFrame:
    """Give the tensors that ``where`` means, as table PARAMETERS."""
    if isinstance(where, pd.DataFrame):
        given = PARAMETERS.check(where, "where").reset_index(drop=True)
        if given.empty or not given["element_count"].sum():
            msg = "where: the table has no elements to hit"
            raise InjectionError(msg)
        return given
    table = parameters(model)
    wanted = [where] if isinstance(where, str) else list(where)
    names = table[["param", "layer", "component"]].to_numpy(dtype=object)
    is_meant = np.zeros(len(table), dtype=bool)
    for pattern in wanted:
        hit = np.array([any(fnmatchcase(name, pattern) for name in row) for row in names])
        if not hit.any():
            msg = (
                f"where: {pattern!r} names no parameter, layer or component of the model; it has "
                f"{shown(table['param'].tolist())} in {shown(table['component'].unique().tolist())}"
            )
            raise InjectionError(msg)
        is_meant |= hit
    return table[is_meant].reset_index(drop=True)


def cells(population: pd.DataFrame, bits: Bits) -> pd.DataFrame:
    """Split tensors by bit: one row per tensor and bit place, with its elements."""
    layouts = [LAYOUTS[name] for name in population["dtype"]]
    if bits is None:
        places = [np.arange(layout.bit_count) for layout in layouts]
    else:
        asked = np.unique(np.atleast_1d(np.asarray(bits, dtype=np.int64)))
        if not asked.size:
            msg = "bits: none are given; leave it out for all of them"
            raise InjectionError(msg)
        for layout in layouts:
            refuse_outside(asked, layout, "bits")
        places = [asked] * len(layouts)
    table = population.loc[population.index.repeat([len(each) for each in places])]
    table = table.assign(
        tensor=table.index.to_numpy(),
        bit=np.concatenate(places),
        bit_role=np.concatenate(
            [layout.roles(each) for layout, each in zip(layouts, places, strict=True)]
        ),
    )
    return table.reset_index(drop=True)


def stratum_names(table: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """Name the stratum of every cell, e.g. ``top, bit 30``."""
    if unknown := [name for name in by if name not in STRATA]:
        msg = f"by: {unknown} cannot make strata; take some of {STRATA}"
        raise InjectionError(msg)
    if not by:
        msg = f"by: no column is given; take some of {STRATA}"
        raise InjectionError(msg)
    parts = [
        ("bit " + table["bit"].astype(str)) if name == "bit" else table[name].astype(str)
        for name in by
    ]
    names = parts[0]
    for part in parts[1:]:
        names = names + ", " + part
    return names


def positions(
    sizes: npt.NDArray[np.int64], drawn: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Turn numbers below ``sum(sizes)`` into a cell and the place within it."""
    ends = np.cumsum(sizes)
    cell = np.searchsorted(ends, drawn, side="right")
    return cell, drawn - (ends - sizes)[cell]
