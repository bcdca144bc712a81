"""Designs: which bits to hit, drawn or listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.inject._model import in_range, refuse_if, whole_number
from workbench.inject.designs.bits import BIT_COUNTS, LAYOUTS, refuse_outside
from workbench.inject.designs.changes import filled
from workbench.inject.designs.population import (
    activations,
    parameters,
    shown,
    verified,
)
from workbench.tables import FAULTS, INJECTION_ALLOCATION, PARAMETERS

Kind = Literal["sbf", "mbf", "mbbf", "stuck0", "stuck1", "value"]
Where: TypeAlias = "str | Sequence[str] | pd.DataFrame"
Bits: TypeAlias = "int | Sequence[int] | None"
STRATA = ("component", "layer", "param", "kind", "dtype", "bit", "bit_role")
_Longs = npt.NDArray[np.int64]
_LEAST = {"flip_count": 1, "burst_bits": 2}
_NUMBERS = {"mbf": ["flip_count", "bit_error_ratio"], "mbbf": ["burst_bits"], "value": ["value"]}


@dataclass(frozen=True)
class FaultModel:
    """Effect of one experiment on the bits it hits.

    Parameters
    ----------
    kind
        ``"sbf"``: one random bit flips; ``"mbf"``: several different bits flip, either
        ``flip_count`` of them or a share ``bit_error_ratio``; ``"mbbf"``: a burst of
        ``burst_bits`` neighbouring bits of one element flips; ``"stuck0"``, ``"stuck1"``:
        one random bit becomes 0 or 1, which it may be already; ``"value"``: one random
        element becomes ``value``.
    flip_count
        Of ``"mbf"``: bits per experiment.
    bit_error_ratio
        Of ``"mbf"``, instead of ``flip_count``: the probability of every bit to flip. An
        experiment can come out without any.
    burst_bits
        Of ``"mbbf"``: length of the burst.
    value
        Of ``"value"``: rounded to what the tensor can store.

    Raises
    ------
    InjectionError
        If the kind is not one of these, it lacks its number or is given another one's, or the
        number is out of range.
    """

    kind: Kind = "sbf"
    flip_count: int | None = None
    bit_error_ratio: float | None = None
    burst_bits: int | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        kinds = get_args(Kind)
        refuse_if(self.kind not in kinds, f"kind={self.kind!r} is not one of {kinds}")
        needed = _NUMBERS.get(self.kind, [])
        numbers = [name for names in _NUMBERS.values() for name in names]
        stated = [name for name in numbers if getattr(self, name) is not None]
        wanted = " or ".join(needed) if needed else "no further number"
        refuse_if(
            len(stated) != bool(needed) or not set(stated) <= set(needed),
            f"kind={self.kind!r} takes {wanted}, and was given {stated or 'none'}",
        )
        for name in stated:
            object.__setattr__(self, name, _number(name, getattr(self, name)))

    def starts(self, cells: pd.DataFrame) -> pd.DataFrame:
        """Return the cells in which an experiment can begin."""
        if self.kind == "value":
            return cells.drop_duplicates("tensor").reset_index(drop=True)
        if self.burst_bits is None:
            return cells
        width = cells["dtype"].map(BIT_COUNTS)
        # A burst stays inside its element; bits beyond the width belong to a neighbour.
        fits = cells[cells["bit"] + self.burst_bits <= width].reset_index(drop=True)
        types = sorted(set(cells["dtype"]))
        refuse_if(fits.empty, f"burst_bits={self.burst_bits} does not fit into {types}")
        return fits

    def draws(self, population: int, count: int, rng: np.random.Generator) -> tuple[_Longs, _Longs]:
        """Draw numbers below ``population``: the experiment of each, and the numbers."""
        if self.kind != "mbf":
            return np.arange(count), rng.integers(0, population, count)
        sizes = np.full(count, self.flip_count or 0)
        if self.bit_error_ratio is not None:
            sizes = rng.binomial(population, self.bit_error_ratio, count)
        refuse_if(
            sizes.max(initial=0) > population,
            f"flip_count={self.flip_count} is more than the {population} bits there are",
        )
        # Without replacement: two flips of the same bit would undo each other.
        drawn = [rng.choice(population, size, replace=False) for size in sizes]
        return np.repeat(np.arange(count), sizes), np.concatenate([*drawn, np.zeros(0, int)])

    def rows(self, hits: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of the bits hit, with what only this kind knows."""
        hits = hits.assign(direction=None, value_after=np.nan)
        if self.burst_bits is not None:
            hits = hits.loc[hits.index.repeat(self.burst_bits)]
            step = np.tile(np.arange(self.burst_bits), len(hits) // self.burst_bits)
            hits = hits.assign(bit=hits["bit"] + step).reset_index(drop=True)
        elif self.kind == "value":
            hits = hits.assign(bit=None, value_after=self.value)
        elif self.kind != "sbf" and self.kind != "mbf":
            hits = hits.assign(direction="1to0" if self.kind == "stuck0" else "0to1")
        return hits

    def provenance(self) -> dict[str, Any]:
        """Return the entry in the head of a campaign."""
        count = {"sbf": 1, "stuck0": 1, "stuck1": 1, "mbf": self.flip_count}.get(self.kind)
        return {
            "fault_model": self.kind,
            "flip_count": self.burst_bits if self.kind == "mbbf" else count,
            "bit_error_ratio": self.bit_error_ratio,
        }


def _number(name: str, value: Any) -> float:
    if name in _LEAST:
        return whole_number(name, value, least=_LEAST[name])
    if name == "bit_error_ratio":
        return in_range(name, value, least=0, most=1)
    # Infinities are values too; only NaN differs from itself.
    refuse_if(
        isinstance(value, bool) or not isinstance(value, Real) or value != value,
        f"value must be a number, not {value!r}: a missing value of a table cannot be told "
        "from NaN; flip exponent bits instead",
    )
    return float(value)


_SBF = FaultModel()


def uniform_faults(
    model: Any,
    count: int,
    *,
    seed: int,
    fault_model: FaultModel = _SBF,
    where: Where = "*",
    bits: Bits = None,
) -> pd.DataFrame:
    """Draw faults so that every bit is as likely as any other.

    Parameters
    ----------
    model
        A ``torch.nn.Module``; it is not changed.
    count
        Experiments.
    seed
        Of the draw; the same seed draws the same faults.
    fault_model
        What happens to the bits that are hit.
    where
        Patterns of parameters, layers or components; or some rows of
        :func:`parameters` or :func:`activations`.
    bits
        Only these bits (0 is the least significant); of a burst: where it starts.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAULTS`, one row per bit hit.
        ``inclusion_weight`` is the number of bits chosen from / ``count``.
        ``value_after`` is the value with all bits of the experiment. An experiment
        that hits nothing is one row without a place.

    Raises
    ------
    InjectionError
        If ``count`` is not a whole number from 1, the model has no parameters, or ``where`` or
        ``bits`` name none.

    Notes
    -----
    Experiments are independent draws, so the same place can come twice. For
    ``bit_error_ratio`` the number of bits of an experiment is binomial, and the bits of
    one experiment differ from one another.
    """
    count = whole_number("count", count, least=1)
    rng = np.random.default_rng(seed)
    population = chosen(model, where)
    every_cell = cells(population, bits)
    starts = fault_model.starts(every_cell)
    sizes = starts["element_count"].to_numpy(dtype=np.int64)
    experiment, drawn = fault_model.draws(int(sizes.sum()), count, rng)
    hits = fault_model.rows(_hits(starts, *_located(sizes, drawn), experiment))
    # The weight counts bits, also of a burst, which has fewer starts than there are bits.
    weight = int(every_cell["element_count"].sum()) / count
    hits = _with_empty(hits, population, count).assign(inclusion_weight=weight)
    head = {"design": "uniform", "seed": seed} | fault_model.provenance()
    return _finished(model, hits, population, head)


def stratified_faults(
    model: Any,
    sites: int | pd.DataFrame,
    *,
    seed: int,
    by: Sequence[str] = ("component", "bit"),
    where: Where = "*",
    bits: Bits = None,
) -> pd.DataFrame:
    """Draw single-bit faults from every stratum, such as every bit of every component.

    The pilot of a two-phase design takes the same number from each stratum; what it found
    tells how many more each is worth (table ``INJECTION_ALLOCATION``), and this function
    draws those. :func:`workbench.analyze.pooled` joins what the two find.

    Parameters
    ----------
    model, seed, where, bits
        As for :func:`uniform_faults`.
    sites
        Experiments per stratum; or table
        :data:`workbench.tables.INJECTION_ALLOCATION`, whose ``site_count`` are drawn.
    by
        What makes a stratum, some of component, layer, param, kind, dtype, bit, bit_role.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAULTS`; ``stratum`` is named like ``top, bit 30``,
        ``inclusion_weight`` is the bits of the stratum / its experiments.

    Raises
    ------
    InjectionError
        If ``sites`` is not a whole number from 1, names a stratum that the model has not, or
        drops all.
    """
    rng = np.random.default_rng(seed)
    population = chosen(model, where)
    every_cell = cells(population, bits)
    sizes = every_cell["element_count"].to_numpy(dtype=np.int64)
    names = _stratum_names(every_cell, by)
    strata = {str(name): np.flatnonzero(names == name) for name in names.unique()}
    drawn = []
    for name, count in _sites(sites, list(strata)).items():
        members = strata[name]
        # Drawn over the bits of the stratum, so a tensor gets its share by size within it.
        bit_count = sizes[members].sum()
        cell, elem = _located(sizes[members], rng.integers(0, bit_count, count))
        of_stratum = _hits(every_cell, members[cell], elem, np.arange(count))
        drawn.append(of_stratum.assign(stratum=name, inclusion_weight=bit_count / count))
    hits = pd.concat(drawn, ignore_index=True)
    hits = _SBF.rows(hits.assign(exp_id=np.arange(len(hits))))
    head = {"design": "stratified", "seed": seed} | _SBF.provenance()
    return _finished(model, hits, population, head)


def _sites(sites: int | pd.DataFrame, strata: list[str]) -> dict[str, int]:
    if not isinstance(sites, pd.DataFrame):
        return dict.fromkeys(strata, whole_number("sites", sites, least=1))
    table = INJECTION_ALLOCATION.check(sites, "sites")
    if unknown := sorted(set(table["stratum"]) - set(strata)):
        first = strata[:3]
        msg = f"sites: strata {unknown[:3]} are not among those of by, where and bits, e.g. {first}"
        raise InjectionError(msg)
    wanted = dict(zip(table["stratum"], table["site_count"].tolist(), strict=True))
    refuse_if(
        not any(wanted.values()), "sites: site_count is 0 everywhere; there is nothing to draw"
    )
    return {name: count for name, count in wanted.items() if count}


def exhaustive_faults(model: Any, where: Where = "*", bits: Bits = None) -> pd.DataFrame:
    """List every single-bit fault, for tensors small enough to hit them all.

    Parameters
    ----------
    model, where, bits
        As for :func:`uniform_faults`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAULTS`, one row and one experiment per bit, in
        order of tensor, element and bit; every ``inclusion_weight`` is 1.

    Raises
    ------
    InjectionError
        If ``where`` or ``bits`` name none.
    """
    population = chosen(model, where)
    every_cell = cells(population, bits)
    sizes = every_cell["element_count"]
    cell = np.repeat(np.arange(len(every_cell)), sizes)
    elem = np.concatenate([np.arange(size) for size in sizes])
    bit, tensor = (every_cell[name].to_numpy()[cell] for name in ("bit", "tensor"))
    # lexsort sorts by its last key first.
    order = np.lexsort((bit, elem, tensor))
    hits = _hits(every_cell, cell[order], elem[order], np.arange(len(order)))
    head = {"design": "exhaustive", "seed": None} | _SBF.provenance()
    return _finished(model, _SBF.rows(hits.assign(inclusion_weight=1.0)), population, head)


def fault_list(model: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Check faults from elsewhere against a model, and fill what they leave out.

    Parameters
    ----------
    model
        The model to inject into; it is not changed.
    table
        Table :data:`workbench.tables.FAULTS`, or any frame with ``param`` and ``elem``, and
        ``bit`` or ``value_after``. Without ``exp_id`` every row is an experiment. A row
        with a ``direction`` acts only on a bit at its start, a row without one flips it.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAULTS`, with the values of this model.

    Raises
    ------
    InjectionError
        If a row names a parameter, element or bit that the model has not, or values that
        the model does not give: the list was made for another model.
    """
    missing = [name for name in ("param", "elem") if name not in table]
    refuse_if(
        missing,
        f"table: no column {missing}; a fault list needs param, elem, and bit or value_after",
    )
    rows = table.reset_index(drop=True)
    plain = {"campaign_id": "", "exp_id": np.arange(len(rows)), "flip": 0}
    columns = {name: rows.get(name, plain.get(name)) for name in FAULTS.columns}
    faults = verified(model, FAULTS.cast(pd.DataFrame(columns, index=rows.index)))
    completed = filled(model, faults, parameters(model))
    completed.attrs.update({"design": "fault_list", **table.attrs})
    return completed


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
    count, seed, fault_model
        As for :func:`uniform_faults`.
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


def _hits(cells: pd.DataFrame, cell: _Longs, elem: _Longs, experiment: _Longs) -> pd.DataFrame:
    """Return one row per bit hit: an element of a cell."""
    param, bit = cells["param"].to_numpy(dtype=object)[cell], cells["bit"].to_numpy()[cell]
    return pd.DataFrame(
        {"exp_id": experiment, "param": param, "elem": elem, "bit": bit, "stratum": None}
    )


def _with_empty(hits: pd.DataFrame, population: pd.DataFrame, count: int) -> pd.DataFrame:
    """Add a row for every experiment that hits nothing, in the component it was drawn from."""
    empty = np.setdiff1d(np.arange(count), hits["exp_id"].unique())
    if not len(empty):
        return hits
    # Types that can be missing, as experiments without a hit have neither element nor bit.
    hits = hits.astype({"elem": "Int64", "bit": "Int16"})
    rows = pd.DataFrame({"exp_id": empty}).reindex(columns=hits.columns)
    components = population["component"].unique()
    rows["component"] = components[0] if len(components) == 1 else None
    rows = rows.astype({"elem": "Int64", "bit": "Int16", "value_after": "float64"})
    return pd.concat([hits.assign(component=None), rows]).sort_values("exp_id", kind="stable")


def _finished(
    model: Any, hits: pd.DataFrame, population: pd.DataFrame, head: dict[str, Any]
) -> pd.DataFrame:
    """Make the FAULTS table of hits, with what the campaign's head says of the design."""
    hits = hits.reset_index(drop=True)
    flip = hits.groupby("exp_id").cumcount()
    columns = {name: hits.get(name) for name in FAULTS.columns}
    table = pd.DataFrame(columns | {"campaign_id": "", "flip": flip}, index=hits.index)
    completed = filled(model, FAULTS.cast(table), population)
    completed.attrs.update(head)
    return completed


def chosen(model: Any, where: Where) -> pd.DataFrame:
    """Return the tensors that ``where`` means, as table PARAMETERS."""
    if isinstance(where, pd.DataFrame):
        population = PARAMETERS.check(where, "where").reset_index(drop=True)
        has_elements = len(population) and population["element_count"].sum()
        refuse_if(not has_elements, "where: the table has no elements to hit")
        return population
    table = parameters(model)
    names = table[["param", "layer", "component"]].to_numpy(dtype=object)
    is_chosen = np.zeros(len(table), dtype=bool)
    for pattern in [where] if isinstance(where, str) else where:
        hit = np.array([any(fnmatchcase(name, pattern) for name in row) for row in names])
        refuse_if(
            not hit.any(),
            f"where: {pattern!r} names no parameter, layer or component of the model; it has "
            f"{shown(table['param'].tolist())} in {shown(table['component'].unique().tolist())}",
        )
        is_chosen |= hit
    return table[is_chosen].reset_index(drop=True)


def cells(population: pd.DataFrame, bits: Bits) -> pd.DataFrame:
    """Split tensors by bit: one row (a cell) per tensor and bit, with its elements."""
    layouts = [LAYOUTS[name] for name in population["dtype"]]
    of_tensor = [np.arange(layout.bit_count) for layout in layouts]
    if bits is not None:
        wanted = np.unique(np.atleast_1d(np.asarray(bits, dtype=np.int64)))
        refuse_if(not wanted.size, "bits: the list is empty; omit it for all of them")
        for layout in layouts:
            refuse_outside(wanted, layout, "bits")
        of_tensor = [wanted] * len(layouts)
    roles = [layout.roles(bit) for layout, bit in zip(layouts, of_tensor, strict=True)]
    table = population.loc[population.index.repeat([len(bit) for bit in of_tensor])]
    tensor, bit = table.index.to_numpy(), np.concatenate(of_tensor)
    table = table.assign(tensor=tensor, bit=bit, bit_role=np.concatenate(roles))
    return table.reset_index(drop=True)


def _stratum_names(table: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """Name the stratum of every cell, e.g. ``top, bit 30``."""
    unknown = [name for name in by if name not in STRATA]
    refuse_if(unknown, f"by: {unknown} cannot make strata; take some of {STRATA}")
    refuse_if(not by, f"by: no column is given; take some of {STRATA}")
    first, *further = (
        ("bit " + table["bit"].astype(str)) if name == "bit" else table[name].astype(str)
        for name in by
    )
    for label in further:
        first = first + ", " + label
    return first


def _located(sizes: _Longs, drawn: _Longs) -> tuple[_Longs, _Longs]:
    """Turn numbers below ``sum(sizes)`` into a cell and the element within it."""
    ends = np.cumsum(sizes)
    # side="right" passes over cells without elements.
    cell = np.searchsorted(ends, drawn, side="right")
    return cell, drawn - (ends - sizes)[cell]
