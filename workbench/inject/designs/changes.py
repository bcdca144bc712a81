"""Effects of faults on a model: bits combined per element, with the values before and after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.inject._model import torch
from workbench.inject.designs import bits
from workbench.inject.designs.bits import LAYOUTS, Ints, Stored, masks, storage
from workbench.inject.designs.population import (
    is_output,
    refuse_other_values,
    verified,
)
from workbench.tables import FAULTS

_Longs = npt.NDArray[np.int64]
_PER_ENTRY = ("experiment", "target", "elem", "before", "after", "cleared", "flips")


@dataclass(frozen=True, eq=False)
class Changes:
    """Elements that experiments change, one entry per element, sorted by experiment.

    Several flips of one element are one entry: the bits are combined before.

    Attributes
    ----------
    experiment_count
        Experiments; those without an entry change nothing.
    experiment
        int64, 0 .. ``experiment_count`` - 1, not decreasing.
    targets
        Names of what is hit: dotted parameter names, or ``"<module>:output"`` for the
        activation that a module gives.
    target
        int32, index into ``targets``.
    elem
        int64, flat in C order; of one input's part for an activation.
    before, after
        Tensors of the golden and the faulty value in the type the model computes in (for
        stored types such as int8: as the model sees them, after scaling). Infinities and
        NaN are kept. NaN for an activation: its values depend on the input.
    cleared, flips
        int64, for activations: the bits that are cleared first, and those flipped then, of
        whatever value the input gives. One element can have several such entries; they act
        in their order. 0 for parameters.
    """

    experiment_count: int
    experiment: Ints
    targets: tuple[str, ...]
    target: Ints
    elem: Ints
    before: Any
    after: Any
    cleared: Ints
    flips: Ints

    def rows(self, entries: Any) -> Changes:
        """Return some entries of the same experiments: a slice, or their positions."""
        return replace(self, **{name: getattr(self, name)[entries] for name in _PER_ENTRY})

    def part(self, start: int, stop: int) -> Changes:
        """Return the experiments ``start`` to ``stop`` - 1, renumbered from 0."""
        first, last = np.searchsorted(self.experiment, [start, stop])
        span = self.rows(slice(int(first), int(last)))
        return replace(span, experiment_count=stop - start, experiment=span.experiment - start)

    def only(self, experiments: Ints) -> Changes:
        """Return some experiments (in rising order), renumbered from 0."""
        span = self.rows(np.flatnonzero(np.isin(self.experiment, experiments)))
        numbers = np.searchsorted(experiments, span.experiment)
        return replace(span, experiment_count=len(experiments), experiment=numbers)


@dataclass(frozen=True, eq=False)
class Counts:
    """Outcomes per experiment, each an array as long as there are experiments.

    ``masked + benign + sdc + due`` is the number of inputs; ``beneficial`` is part of
    ``sdc``. ``max_abs_delta`` is NaN where an engine does not know it.
    """

    masked: Ints
    benign: Ints
    sdc: Ints
    due: Ints
    beneficial: Ints
    max_abs_delta: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Hits:
    """The rows of a FAULTS table that hit one target, as plain arrays.

    ``bit`` is -1 where a row sets a value. ``direction`` is 1 (the bit can only become 1),
    0 (only 0) or -1 (it flips).
    """

    experiment: _Longs
    elem: _Longs
    bit: _Longs
    direction: _Longs
    value: npt.NDArray[np.float64]

    @classmethod
    def of(cls, table: pd.DataFrame, experiment: _Longs) -> _Hits:
        direction = table["direction"].astype(object).map({"0to1": 1, "1to0": 0})
        return cls(
            experiment,
            table["elem"].to_numpy(dtype=np.int64),
            table["bit"].fillna(-1).to_numpy(dtype=np.int64),
            pd.to_numeric(direction).fillna(-1).to_numpy(dtype=np.int64),
            table["value_after"].to_numpy(dtype=np.float64),
        )

    def masks(self) -> _Longs:
        """Return the bit of every row as a mask; of a row without a bit, any."""
        return masks(np.maximum(self.bit, 0))


class _Entries(NamedTuple):
    """Changes of one target by experiments; see :class:`Changes`."""

    experiment: _Longs
    elem: _Longs
    before: Any
    after: Any
    cleared: _Longs
    flips: _Longs


def _row_masks(hits: _Hits, golden: _Longs, stored: Stored) -> _Longs:
    mask = hits.masks()
    is_set = ((golden & mask) != 0).astype(np.int64)
    # A bit that is already as its direction wants stays.
    changed = np.where((hits.bit >= 0) & (hits.direction != is_set), mask, 0)
    for row in np.flatnonzero(hits.bit < 0):
        wanted = bits.patterns(stored.nearest(float(hits.value[row])).reshape(1))
        changed[row] = golden[row] ^ int(wanted[0])
    return changed


def _combined(
    parameter: Any, stored: Stored, hits: _Hits, name: str
) -> tuple[_Entries, _Longs, _Longs]:
    """Combine what the rows of one parameter do to the same element of an experiment.

    Returns the entries, and per row its entry and the golden bits it meets.
    """
    # Rows of one experiment and element stand together; the stable sort keeps their order.
    order = np.lexsort((hits.elem, hits.experiment))
    experiment, elem = hits.experiment[order], hits.elem[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(experiment) != 0) | (np.diff(elem) != 0)
    starts = np.flatnonzero(is_first)
    values = parameter.detach().flatten()[torch().from_numpy(hits.elem).to(parameter.device)].cpu()
    golden = bits.patterns(stored.codes(values, name))
    changed = _row_masks(hits, golden.numpy(), stored)[order]
    # Of several rows that set a value, only the last one counts; bits are flipped on top of it.
    setting = np.where(hits.bit[order] < 0, np.arange(len(order)), -1)
    sizes = np.diff(np.append(starts, len(order)))
    last = np.repeat(np.maximum.reduceat(setting, starts), sizes)
    changed[(setting >= 0) & (setting < last)] = 0
    mask = torch().from_numpy(np.bitwise_xor.reduceat(changed, starts))
    first = torch().from_numpy(order[starts])
    after = stored.widened(bits.from_patterns(golden[first] ^ mask, stored.layout.dtype))
    entry = np.empty(len(order), dtype=np.int64)
    entry[order] = np.cumsum(is_first) - 1
    none = np.zeros(len(starts), dtype=np.int64)
    entries = _Entries(experiment[starts], elem[starts], values[first], after, none, none)
    return entries, entry, golden.numpy()


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
    parameters = dict(model.named_parameters())
    targets = tuple(str(name) for name in faults["param"].dropna().unique())
    stored = storage(model, targets)
    entries = []
    for name in targets:
        is_hit = (faults["param"] == name).fillna(value=False).to_numpy(dtype=bool)
        table = faults[is_hit]
        hits = _Hits.of(table, experiment[is_hit].astype(np.int64))
        if is_output(name):
            entries.append(_activation(hits, str(table["dtype"].iloc[0])))
        else:
            entries.append(_combined(parameters[name], stored[name], hits, name)[0])
    sizes = np.array([len(entry.elem) for entry in entries], dtype=np.int64)

    def arrays(name: str) -> _Longs:
        return np.concatenate([getattr(entry, name) for entry in entries] or [sizes])

    def tensors(name: str) -> Any:
        return torch().cat([getattr(entry, name) for entry in entries] or [torch().zeros(0)])

    joined = Changes(
        len(numbers), arrays("experiment"), targets,
        np.repeat(np.arange(len(entries), dtype=np.int32), sizes), arrays("elem"),
        tensors("before"), tensors("after"), arrays("cleared"), arrays("flips"),
    )  # fmt: skip
    # Entries come target by target; engines search them by experiment.
    return joined.rows(np.argsort(joined.experiment, kind="stable"))


def _activation(hits: _Hits, dtype: str) -> _Entries:
    """Return the bits that every row clears first and flips then; the values are not known yet."""
    mask = hits.masks()
    cleared = np.where(hits.direction >= 0, mask, 0)
    flips = np.where(hits.direction == 0, 0, mask)
    for row in np.flatnonzero(hits.bit < 0):
        value = torch().tensor([hits.value[row]], dtype=LAYOUTS[dtype].dtype)
        # All bits are cleared, then those of the value set: the same form as for bits.
        cleared[row], flips[row] = -1, int(bits.patterns(value)[0])
    unknown = torch().full((len(hits.elem),), float("nan"))
    return _Entries(hits.experiment, hits.elem, unknown, unknown, cleared, flips)


def filled(model: Any, faults: pd.DataFrame, population: pd.DataFrame) -> pd.DataFrame:
    """Fill what is missing in faults; ``population`` holds the tensors they hit."""
    tensors = population.set_index("param")
    name = faults["param"].astype(object)
    table = faults.copy()
    for column in ("component", "layer", "kind", "dtype"):
        own, looked_up = table[column].astype(object), name.map(tensors[column].astype(object))
        table[column] = looked_up if column == "dtype" else own.where(own.notna(), looked_up)
    roles = np.full(len(table), None, dtype=object)
    bit = table["bit"].fillna(-1).to_numpy(dtype=np.int64)
    dtypes = table["dtype"].to_numpy(dtype=object)
    for layout in LAYOUTS.values():
        rows = (dtypes == layout.name) & (bit >= 0)
        roles[rows] = layout.roles(bit[rows])
    table["bit_role"] = roles
    return FAULTS.of(_with_values(model, table))


def _with_values(model: Any, faults: pd.DataFrame) -> pd.DataFrame:
    """Fill index, value_before, value_after and direction from the model."""
    parameters = dict(model.named_parameters())
    before, after = (
        faults[column].to_numpy(dtype=np.float64, na_value=np.nan).copy()
        for column in ("value_before", "value_after")
    )
    direction = faults["direction"].to_numpy(dtype=object).copy()
    index = faults["index"].to_numpy(dtype=object).copy()
    golden = np.full(len(faults), np.nan)
    names = faults["param"].astype(object)
    experiment = faults["exp_id"].to_numpy(dtype=np.int64)
    hit = [name for name in names.dropna().unique() if not is_output(name)]
    for name, stored in storage(model, hit).items():
        rows = np.flatnonzero((names == name).to_numpy())
        hits = _Hits.of(faults.iloc[rows], experiment[rows])
        entries, entry, golden_bits = _combined(parameters[name], stored, hits, name)
        golden[rows] = entries.before.double().numpy()[entry]
        after[rows] = entries.after.double().numpy()[entry]
        index[rows] = indices(tuple(parameters[name].shape), hits.elem)
        flips = (hits.bit >= 0) & (hits.direction < 0)
        is_set = (golden_bits & hits.masks()) != 0
        direction[rows[flips]] = np.where(is_set, "1to0", "0to1")[flips]
    is_known = ~np.isnan(golden)
    bit = faults["bit"].fillna(-1).to_numpy(dtype=np.int64)
    refuse_other_values(faults, "value_before", golden, is_known)
    refuse_other_values(faults, "value_after", after, is_known & (bit >= 0))
    before = np.where(is_known, golden, before)
    return faults.assign(value_before=before, value_after=after, direction=direction, index=index)


def indices(shape: tuple[int, ...], elem: _Longs) -> npt.NDArray[np.object_]:
    """Write flat positions as positions per axis, e.g. (3, 0, 2, 1)."""
    # Texts are slow to write, and several bits of an element are common.
    unique, inverse = np.unique(elem, return_inverse=True)
    axes = [axis.tolist() for axis in np.unravel_index(unique, shape)] if shape else []
    texts = (
        [str(position) for position in zip(*axes, strict=True)] if axes else ["()"] * len(unique)
    )
    return np.array(texts, dtype=object)[inverse]
