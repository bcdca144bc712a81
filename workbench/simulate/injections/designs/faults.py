"""Designs: which bits to hit, drawn or listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._arguments import whole_number
from workbench.simulate.injections.designs.fault_model import FaultModel
from workbench.simulate.injections.designs.filled import filled
from workbench.simulate.injections.designs.parameters import parameters
from workbench.simulate.injections.designs.population import (
    Bits,
    Where,
    cells,
    chosen,
    positions,
    stratum_names,
)
from workbench.simulate.injections.designs.verify import verified
from workbench.tables import FAULTS, INJECTION_ALLOCATION

_SBF = FaultModel()
_NEEDED = ("param", "elem")


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
        If ``count`` is no whole number from 1, the model has no parameters, or ``where`` or
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
    places = cells(population, bits)
    bit_count = int(places["element_count"].sum())
    starts = fault_model.starts(places)
    sizes = starts["element_count"].to_numpy(dtype=np.int64)
    experiment, drawn = fault_model.draws(int(sizes.sum()), count, rng)
    cell, elem = positions(sizes, drawn)
    hits = fault_model.rows(_hits(population, starts, cell, elem, experiment))
    hits = _with_empty(hits, population, count).assign(inclusion_weight=bit_count / count)
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
    model
        A ``torch.nn.Module``; it is not changed.
    sites
        Experiments per stratum; or table
        :data:`workbench.tables.INJECTION_ALLOCATION`, whose ``site_count`` are drawn.
    seed
        Of the draw.
    by
        What makes a stratum, some of component, layer, param, kind, dtype, bit, bit_role.
    where, bits
        As for :func:`uniform_faults`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAULTS`; ``stratum`` is named like ``top, bit 30``,
        ``inclusion_weight`` is the bits of the stratum / its experiments.

    Raises
    ------
    InjectionError
        If ``sites`` is no whole number from 1, names a stratum that the model has not, or
        leaves out all.
    """
    rng = np.random.default_rng(seed)
    population = chosen(model, where)
    places = cells(population, bits)
    names = stratum_names(places, by)
    strata = {str(name): np.flatnonzero(names == name) for name in names.unique()}
    parts = []
    for name, count in _sites(sites, list(strata)).items():
        members = strata[name]
        sizes = places["element_count"].to_numpy(dtype=np.int64)[members]
        cell, elem = positions(sizes, rng.integers(0, sizes.sum(), count))
        part = _hits(population, places, members[cell], elem, np.arange(count))
        parts.append(part.assign(stratum=name, inclusion_weight=sizes.sum() / count))
    hits = pd.concat(parts, ignore_index=True)
    hits = _SBF.rows(hits.assign(exp_id=np.arange(len(hits))))
    head = {"design": "stratified", "seed": seed} | _SBF.provenance()
    return _finished(model, hits, population, head)


def _sites(sites: int | pd.DataFrame, strata: list[str]) -> dict[str, int]:
    """Give the experiments of every stratum."""
    if not isinstance(sites, pd.DataFrame):
        return dict.fromkeys(strata, whole_number("sites", sites, least=1))
    table = INJECTION_ALLOCATION.check(sites, "sites")
    if unknown := sorted(set(table["stratum"]) - set(strata)):
        msg = f"sites: strata {unknown[:3]} are not among those of by, where and bits, e.g. "
        raise InjectionError(msg + str(strata[:3]))
    wanted = dict(zip(table["stratum"], table["site_count"].tolist(), strict=True))
    if not any(wanted.values()):
        msg = "sites: site_count is 0 everywhere; there is nothing to draw"
        raise InjectionError(msg)
    return {name: count for name, count in wanted.items() if count}


def exhaustive_faults(model: Any, where: Where = "*", bits: Bits = None) -> pd.DataFrame:
    """List every single-bit fault, for tensors small enough to hit them all.

    Parameters
    ----------
    model
        A ``torch.nn.Module``; it is not changed.
    where, bits
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
    places = cells(population, bits)
    cell = np.repeat(np.arange(len(places)), places["element_count"])
    elem = np.concatenate([np.arange(size) for size in places["element_count"]])
    order = np.lexsort((places["bit"].to_numpy()[cell], elem, places["tensor"].to_numpy()[cell]))
    hits = _hits(population, places, cell[order], elem[order], np.arange(len(order)))
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
    if missing := [name for name in _NEEDED if name not in table]:
        msg = f"table: no column {missing}; a fault list needs param, elem, and bit or value_after"
        raise InjectionError(msg)
    given = table.reset_index(drop=True)
    plain = {"campaign_id": "", "exp_id": np.arange(len(given)), "flip": 0}
    columns = {name: given.get(name, plain.get(name)) for name in FAULTS.columns}
    faults = verified(model, FAULTS.cast(pd.DataFrame(columns, index=given.index)))
    known = filled(model, faults, parameters(model))
    known.attrs.update({"design": "fault_list", **table.attrs})
    return known


def _hits(
    population: pd.DataFrame,
    places: pd.DataFrame,
    cell: npt.NDArray[np.int64],
    elem: npt.NDArray[np.int64],
    experiment: npt.NDArray[np.int64],
) -> pd.DataFrame:
    """Give one row per place hit."""
    tensor = places["tensor"].to_numpy()[cell]
    return pd.DataFrame(
        {
            "exp_id": experiment,
            "param": population["param"].to_numpy(dtype=object)[tensor],
            "elem": elem,
            "bit": places["bit"].to_numpy()[cell],
            "stratum": None,
        }
    )


def _with_empty(hits: pd.DataFrame, population: pd.DataFrame, count: int) -> pd.DataFrame:
    """Add a row for every experiment that hits nothing, in the component it was drawn from."""
    empty = np.setdiff1d(np.arange(count), hits["exp_id"].unique())
    if not len(empty):
        return hits
    hits = hits.astype({"elem": "Int64", "bit": "Int16"})
    rows = pd.DataFrame({"exp_id": empty}).reindex(columns=hits.columns)
    parts = population["component"].unique()
    rows["component"] = parts[0] if len(parts) == 1 else None
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
    known = filled(model, FAULTS.cast(table), population)
    known.attrs.update(head)
    return known
