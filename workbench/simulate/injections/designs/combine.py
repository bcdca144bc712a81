"""What faults do to the bits of a model: combined per element, with the values before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import (
    LAYOUTS,
    Changes,
    Stored,
    from_patterns,
    masks,
    patterns,
    storage,
)
from workbench.simulate.injections.designs.parameters import (
    is_output,
    refuse_other_values,
    verified,
)
from workbench.tables import FAULTS

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a FAULTS table that hit something, as plain arrays.

    ``bit`` is -1 where a row sets a value. ``direction`` is 1 (the bit can only become 1),
    0 (only 0) or -1 (it flips).
    """

    experiment: _Longs
    elem: _Longs
    bit: _Longs
    direction: _Longs
    value: npt.NDArray[np.float64]

    @classmethod
    def of(cls, table: pd.DataFrame, experiment: _Longs) -> Rows:
        """Read them from a part of the table."""
        direction = table["direction"].astype(object).map({"0to1": 1, "1to0": 0})
        return cls(
            experiment,
            table["elem"].to_numpy(dtype=np.int64),
            table["bit"].fillna(-1).to_numpy(dtype=np.int64),
            pd.to_numeric(direction).fillna(-1).to_numpy(dtype=np.int64),
            table["value_after"].to_numpy(dtype=np.float64),
        )


def row_masks(rows: Rows, golden: _Longs, stored: Stored) -> _Longs:
    """Give the bits that every row changes, for the golden bits it meets."""
    place = masks(np.maximum(rows.bit, 0))
    is_set = ((golden & place) != 0).astype(np.int64)
    found = np.where((rows.bit >= 0) & (rows.direction != is_set), place, 0)
    for row in np.flatnonzero(rows.bit < 0):
        wanted = patterns(stored.nearest(float(rows.value[row])).reshape(1))
        found[row] = golden[row] ^ int(wanted[0])
    return found


def _outlived(rows: Rows, order: _Longs, starts: _Longs) -> npt.NDArray[np.bool_]:
    """Say of the rows in ``order`` which set a value that a later row of the element sets anew."""
    sizes = np.diff(np.append(starts, len(order)))
    places = np.where(rows.bit[order] < 0, np.arange(len(order)), -1)
    last = np.repeat(np.maximum.reduceat(places, starts), sizes)
    found: npt.NDArray[np.bool_] = (places >= 0) & (places < last)
    return found


@dataclass(frozen=True, eq=False)
class Part:
    """Elements of one parameter that experiments change.

    Of the rows of the faults: ``golden`` are the bits they meet, ``of_row`` the element.
    """

    experiment: _Longs
    elem: _Longs
    before: Any
    after: Any
    of_row: _Longs
    golden: _Longs


def combined(parameter: Any, stored: Stored, rows: Rows, name: str) -> Part:
    """Combine what the rows of one parameter do to the same element of an experiment."""
    order = np.lexsort((rows.elem, rows.experiment))
    experiment, elem = rows.experiment[order], rows.elem[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(experiment) != 0) | (np.diff(elem) != 0)
    starts = np.flatnonzero(is_first)
    places = torch().from_numpy(rows.elem).to(parameter.device)
    values = parameter.detach().flatten()[places].cpu()
    golden = patterns(stored.codes(values, name))
    each = row_masks(rows, golden.numpy(), stored)[order]
    each[_outlived(rows, order, starts)] = 0
    mask = torch().from_numpy(np.bitwise_xor.reduceat(each, starts))
    first = torch().from_numpy(order[starts])
    after = from_patterns(golden[first] ^ mask, stored.layout.dtype)
    of_row = np.empty(len(order), dtype=np.int64)
    of_row[order] = np.cumsum(is_first) - 1
    wide = stored.widened(after)
    return Part(experiment[starts], elem[starts], values[first], wide, of_row, golden.numpy())


def changes(model: Any, faults: pd.DataFrame) -> Changes:
    """Turn faults into the values that engines inject.

    Several hits of one element in one experiment are combined first: of several values the
    last stays, then bits act by exclusive or. A row with a direction acts only where the
    bit is at the start of that direction, a row without one flips it, a row without a bit
    sets ``value_after``, and a row without a parameter hits nothing (a draw by bit-error
    ratio can come out empty).

    Parameters
    ----------
    model
        The model, as it was when the faults were drawn; it is not changed.
    faults
        Table :data:`workbench.tables.FAULTS`. Experiments are numbered in order of
        ``exp_id``.

    Returns
    -------
    Changes
        One entry per element that an experiment changes.

    Raises
    ------
    InjectionError
        If the faults do not fit the model: see :func:`fault_list`.
    """
    return unchecked_changes(model, verified(model, faults))


def unchecked_changes(model: Any, faults: pd.DataFrame) -> Changes:
    """Turn faults that were checked before into changes."""
    numbers, experiment = np.unique(faults["exp_id"].to_numpy(), return_inverse=True)
    named = dict(model.named_parameters())
    targets = tuple(str(name) for name in faults["param"].dropna().unique())
    stored = storage(model, targets)
    found = []
    for number, name in enumerate(targets):
        meant = (faults["param"] == name).fillna(value=False).to_numpy(dtype=bool)
        part = faults[meant]
        rows = Rows.of(part, experiment[meant].astype(np.int64))
        if is_output(name):
            found.append(_activation(number, rows, str(part["dtype"].iloc[0])))
        else:
            each = combined(named[name], stored[name], rows, name)
            none = np.zeros_like(each.elem)
            found.append(
                _Entries(number, each.experiment, each.elem, each.before, each.after, none, none)
            )
    return _joined(len(numbers), targets, found)


class _Entries(NamedTuple):
    """What experiments change of one target; see :class:`Changes`."""

    target: int
    experiment: _Longs
    elem: _Longs
    before: Any
    after: Any
    cleared: _Longs
    flips: _Longs


def _activation(target: int, rows: Rows, dtype: str) -> _Entries:
    """Give the bits that every row clears first and flips then; the values are not known yet."""
    place = masks(np.maximum(rows.bit, 0))
    cleared = np.where(rows.direction >= 0, place, 0)
    flips = np.where(rows.direction == 0, 0, place)
    for row in np.flatnonzero(rows.bit < 0):
        value = torch().tensor([rows.value[row]], dtype=LAYOUTS[dtype].dtype)
        cleared[row], flips[row] = -1, int(patterns(value)[0])
    unknown = torch().full((len(rows.elem),), float("nan"))
    return _Entries(target, rows.experiment, rows.elem, unknown, unknown, cleared, flips)


def _joined(count: int, targets: tuple[str, ...], parts: list[_Entries]) -> Changes:
    """Join the entries of all targets, sorted by experiment."""
    if not parts:
        empty, none = np.zeros(0, dtype=np.int64), torch().zeros(0)
        return Changes(count, empty, (), empty.astype(np.int32), empty, none, none, empty, empty)
    sizes = [len(part.elem) for part in parts]
    found = Changes(
        experiment_count=count,
        experiment=np.concatenate([part.experiment for part in parts]),
        targets=targets,
        target=np.repeat(np.array([part.target for part in parts], dtype=np.int32), sizes),
        elem=np.concatenate([part.elem for part in parts]),
        before=torch().cat([part.before for part in parts]),
        after=torch().cat([part.after for part in parts]),
        cleared=np.concatenate([part.cleared for part in parts]),
        flips=np.concatenate([part.flips for part in parts]),
    )
    return found.rows(np.argsort(found.experiment, kind="stable"))


# What a FAULTS table says beside the place: names, roles, and values before and after.

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
