"""Experiments of fault injection, one row each: what was hit, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from workbench import tables
from workbench._shared.fixed_injections import FixedInjections
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections, Injections

Given: TypeAlias = Injections | Sequence[Injections]
KEY = ["campaign_id", "exp_id"]
SEVERAL = "several"
OF_PARAMETERS = ("component", "layer", "kind", "dtype")
OF_PLACE = ("component", "layer", "param", "kind", "dtype", "stratum")
OF_ONE_FLIP = ("bit", "bit_role", "direction")


def bundles(injections: Given) -> list[Injections]:
    """Return the campaigns as a list, or say what was passed instead."""
    listed: list[Any] = [injections] if isinstance(injections, Injections) else list(injections)
    for bundle in listed:
        if isinstance(bundle, ExhaustiveInjections):
            msg = "ExhaustiveInjections are passed alone, not in a list; call once for each"
            raise InjectionError(msg)
        if not isinstance(bundle, Injections):
            kind = type(bundle).__name__
            msg = f"a {kind} is not tables.Injections; pass those of load.injections or a campaign"
            raise InjectionError(msg)
    if not listed:
        msg = "no injections were passed; pass one tables.Injections or several in a list"
        raise InjectionError(msg)
    return listed


def together(injections: Given, name: str) -> pd.DataFrame:
    """Check one table of all bundles, and put them together."""
    declared: tables.Table = getattr(tables, name.upper())
    frames = [declared.check(getattr(bundle, name), name) for bundle in bundles(injections)]
    filled = [frame for frame in frames if len(frame)]
    if len(filled) < 2:
        return filled[0] if filled else frames[0]
    # Categories differ between campaigns; their values are put together.
    categories = [c for c, column in declared.columns.items() if column.dtype == "category"]
    plain = [table.astype(dict.fromkeys(categories, object)) for table in filled]
    return pd.concat(plain, ignore_index=True)


def parameters_of(injections: Given | ExhaustiveInjections) -> pd.DataFrame:
    """Return the tensors of the model that was injected into."""
    if isinstance(injections, ExhaustiveInjections):
        return injections.parameters
    return together(injections, "parameters")


def campaigns(injections: Given) -> pd.DataFrame:
    """Return one row per campaign; a name that comes twice is refused."""
    table = together(injections, "campaign")
    twice = table.loc[table["campaign_id"].duplicated(), "campaign_id"]
    if len(twice):
        msg = (
            f"campaign {twice.iloc[0]!r} comes twice; give each its own campaign_id, or join the "
            "phases of one design with analyze.pooled"
        )
        raise InjectionError(msg)
    return table


def experiments(injections: Given) -> pd.DataFrame:
    """Return one row per judged experiment.

    Columns: those of ``outcomes``; of ``faults`` what all flips of an experiment share
    (``"several"`` where they differ); ``flip_count``, ``site`` (code of what was hit, the same
    for the same places in one campaign), ``weight`` (missing where the design is not known).
    ``attrs["unjudged"]`` counts the experiments that have no counts, ``attrs["never_run"]`` those
    of a design that is not a uniform one which have faults and no outcome.
    """
    if not isinstance(injections, FixedInjections):
        return _experiments(injections)
    if "experiments" not in injections.made:
        injections.made["experiments"] = _experiments(injections)
    kept: pd.DataFrame = injections.made["experiments"]
    return kept


def _experiments(injections: Given) -> pd.DataFrame:
    campaign = campaigns(injections)
    run = together(injections, "outcomes")
    outcomes = _judged(run, campaign)
    faults = together(injections, "faults")
    hit = _by_experiment(located(faults, together(injections, "parameters")))
    table = outcomes.merge(hit, on=KEY, how="left", validate="one_to_one")
    by_campaign = campaign.set_index("campaign_id")
    flips = table["campaign_id"].map(by_campaign["flip_count"])
    table["flip_count"] = table["flip_count"].astype("Int64").fillna(flips.astype("Int64"))
    table["dtype"] = _filled(table["dtype"], table["campaign_id"].map(by_campaign["dtype"]))
    # An experiment whose places are not known is a site of its own.
    site = table["site"].to_numpy(dtype="int64", na_value=-1)
    own = site.max(initial=0) + 1 + np.arange(len(table))
    table["site"] = np.where(site < 0, own, site)
    table.attrs = {
        "unjudged": outcomes.attrs["unjudged"],
        "never_run": _never_run(faults, run, campaign),
    }
    return table


# Of a uniform design any part is a sample; of other designs it is not.
def _never_run(faults: pd.DataFrame, outcomes: pd.DataFrame, campaign: pd.DataFrame) -> int:
    uniform = campaign.loc[campaign["design"] == "uniform", "campaign_id"]
    planned = faults.loc[~faults["campaign_id"].isin(uniform), KEY].drop_duplicates()
    if planned.empty:
        return 0
    done = pd.MultiIndex.from_frame(outcomes[KEY])
    return int((~pd.MultiIndex.from_frame(planned).isin(done)).sum())


def _judged(outcomes: pd.DataFrame, campaign: pd.DataFrame) -> pd.DataFrame:
    twice = outcomes.duplicated(KEY)
    if twice.any():
        row = outcomes[twice].iloc[0]
        msg = f"experiment {row['exp_id']} of campaign {row['campaign_id']!r} has two outcomes"
        raise InjectionError(msg)
    strange = ~outcomes["campaign_id"].isin(campaign["campaign_id"])
    if strange.any():
        name = outcomes.loc[strange, "campaign_id"].iloc[0]
        msg = f"outcomes of campaign {name!r}, which has no row in the table of campaigns"
        raise InjectionError(msg)
    has_counts = outcomes["sdc_count"].notna()
    if len(outcomes) and not has_counts.any():
        msg = (
            "no experiment says how many outputs were wrong (sdc_count is missing throughout); "
            "a tool that writes only a metric gives no PVF"
        )
        raise InjectionError(msg)
    table = outcomes[has_counts].reset_index(drop=True)
    inputs = table["campaign_id"].map(campaign.set_index("campaign_id")["input_count"])
    counted = table[["masked_count", "benign_count", "sdc_count", "due_count"]].sum(
        axis=1, min_count=1
    )
    full = table[["masked_count", "benign_count"]].notna().all(axis=1)
    # Without DUE the counts need not be all inputs: what the campaign says comes first.
    complete = counted.where(full & table["due_count"].notna())
    total = table["input_count"].fillna(complete).fillna(inputs).fillna(counted.where(full))
    _refuse(table, total.isna(), "has no input_count, and its campaign neither")
    table["input_count"] = total.astype("int64")
    _refuse_impossible(table)
    table = table[table["input_count"] > 0].reset_index(drop=True)
    table.attrs["unjudged"] = len(outcomes) - len(table)
    return table


def _refuse_impossible(table: pd.DataFrame) -> None:
    wrong = table["sdc_count"] + table["due_count"].fillna(0)
    counts = table[["masked_count", "benign_count", "sdc_count", "due_count"]]
    inputs = table["input_count"]
    _refuse(table, wrong > inputs, "counts more wrong outputs than inputs")
    off = counts.notna().all(axis=1) & (counts.sum(axis=1) != inputs)
    _refuse(table, off, "counts masked + benign + sdc + due that are not its inputs")
    more = (table["beneficial_count"] > table["sdc_count"]).fillna(value=False)
    _refuse(table, more, "counts more beneficial outputs than changed ones")


def _refuse(table: pd.DataFrame, bad: pd.Series, reason: str) -> None:
    is_bad = bad.fillna(value=False).to_numpy(dtype=bool)
    if is_bad.any():
        row = table.iloc[int(is_bad.argmax())]
        msg = (
            f"experiment {row['exp_id']} of campaign {row['campaign_id']!r} {reason} "
            f"({int(is_bad.sum()):,} experiments in all)"
        )
        raise InjectionError(msg)


def located(faults: pd.DataFrame, parameters: pd.DataFrame) -> pd.DataFrame:
    """Fill in what the table of parameters knows about the tensor that was hit."""
    empty = [name for name in OF_PARAMETERS if faults[name].isna().any()]
    if not empty or parameters.empty:
        return faults
    by_tensor = parameters.drop_duplicates(["campaign_id", "param"]).set_index(
        ["campaign_id", "param"]
    )
    keys = pd.MultiIndex.from_arrays([faults["campaign_id"], faults["param"].astype(object)])
    more = by_tensor[empty].reindex(keys).set_axis(faults.index)
    return faults.assign(**{name: _filled(faults[name], more[name]) for name in empty})


# As objects: pandas 2 would guess a dtype.
def _filled(values: pd.Series, fallback: pd.Series) -> pd.Series:
    values_or_fallback = np.where(values.notna(), values.astype(object), fallback.astype(object))
    return pd.Series(values_or_fallback, index=values.index, dtype=object)


def _by_experiment(faults: pd.DataFrame) -> pd.DataFrame:
    keys = [pd.factorize(faults[name])[0] for name in KEY]
    experiment = pd.factorize(keys[0] * (int(keys[1].max(initial=0)) + 1) + keys[1])[0]
    count = np.bincount(experiment, minlength=0)
    first = np.full(len(count), len(faults))
    # Rows of one experiment need not stand together.
    np.minimum.at(first, experiment, np.arange(len(faults)))
    one_each = len(count) == len(faults)
    table = faults.iloc[first][KEY].reset_index(drop=True)
    for name in OF_PLACE + OF_ONE_FLIP:
        codes, unique = pd.factorize(faults[name])
        values = np.array([*unique, None], dtype=object)
        shared = values[codes[first]]
        if not one_each:
            mixed = np.bincount(experiment, codes != codes[first][experiment]) > 0
            shared = np.where(mixed, SEVERAL, shared)
        table[name] = pd.Series(shared, dtype=object)
    table["flip_count"] = count
    table["site"] = _sites(faults, experiment, keys[0])
    table["weight"] = faults["inclusion_weight"].to_numpy(dtype=float)[first]
    return table


def _sites(faults: pd.DataFrame, experiment: Any, campaign: Any) -> pd.Series:
    """Return a code per experiment, the same for the same set of places; missing where unknown."""
    elem = faults["elem"].astype(object).where(faults["elem"].notna(), faults["index"])
    # Some tools number layers instead of naming tensors; only there is an index a whole place.
    is_place = faults["index"].astype(object).str.startswith("(", na=False).astype(bool)
    layer = ("layer " + faults["layer"].astype(object)).where(is_place)
    param_names = faults["param"].astype(object)
    param = pd.factorize(param_names.where(param_names.notna(), layer))[0]
    codes = [param, pd.factorize(elem)[0], pd.factorize(faults["bit"])[0]]
    site_code = campaign.astype(np.int64)
    for code in codes:
        site_code = joint(site_code, code)
    unknown = np.bincount(experiment, np.minimum.reduce(codes) < 0) > 0
    # Sorted, so that the same flips in another order are the same site.
    order = np.lexsort((site_code, experiment))
    ranked, home = site_code[order], experiment[order]
    turn = np.arange(len(home)) - np.searchsorted(home, home)
    site = np.full(len(unknown), -1, dtype=np.int64)
    for flip in range(int(turn.max(initial=-1)) + 1):
        now = turn == flip
        site[home[now]] = joint(site[home[now]], ranked[now]) + flip * len(faults)
    return pd.Series(pd.array(site, dtype="Int64")).mask(unknown)


def joint(left: Any, right: Any) -> Any:
    """Return a code per pair of codes, each from -1."""
    # Shifted by one, since -1 stands for unknown.
    width = int(right.max(initial=0)) + 2
    return pd.factorize((left.astype(np.int64) + 1) * width + right + 1)[0].astype(np.int64)


def several_hit(table: pd.DataFrame, bad: pd.Series, reason: str) -> InjectionError:
    """Make the error for experiments that hit more than one place."""
    row = table[bad.to_numpy(dtype=bool)].iloc[0]
    return InjectionError(
        f"{reason}: experiment {row['exp_id']} of campaign {row['campaign_id']!r} hits "
        f"{row['flip_count']} bits ({int(bad.sum()):,} experiments hit several)"
    )
