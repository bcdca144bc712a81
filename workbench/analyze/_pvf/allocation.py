"""Injecting in two phases: a pilot, then more where it found most to learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench._numbers import whole_number
from workbench.analyze._pvf.allocate import LEAST_SITES, neyman
from workbench.analyze._pvf.groups import groups
from workbench.analyze._pvf.injection_rows import KEY, bundles
from workbench.analyze._pvf.rules import SAME, first_difference
from workbench.analyze._pvf.strata import site_shares, strata
from workbench.errors import InjectionError
from workbench.tables import INJECTION_ALLOCATION, Injections

_CLOSE = 1e-6


def injection_allocation(
    pilot: Injections, site_count: int, *, by: str | Sequence[str] = ("bit",)
) -> pd.DataFrame:
    """Share out the next sites so that the factor becomes as sure as it can (Neyman).

    Parameters
    ----------
    pilot
        A first campaign that hit every stratum; 20 sites each are usual.
    site_count
        Sites to inject now, beyond the pilot.
    by
        Columns that make the strata; ``"stratum"`` for those that the pilot was drawn by.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INJECTION_ALLOCATION`: ``stratum``, ``bit_count``,
        ``pilot_count``, ``pilot_pvf``, ``spread``, ``site_count``. Named as in the pilot's
        faults where these name their strata.

    Raises
    ------
    InjectionError
        If the pilot missed a stratum, or the sites are too few for 2 of each.

    Notes
    -----
    A stratum gets sites in proportion to W (s + 1e-4), W its share of the bits, s the standard
    deviation of its sites' shares in the pilot; at least 2.

    References
    ----------
    J. Neyman, J. R. Stat. Soc. 97 (1934), 558.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    total = whole_number("site_count", site_count, least=1)
    table = _merged(strata(pilot, columns))
    least = LEAST_SITES * len(table)
    if total < least:
        msg = f"site_count={total} is too few for {len(table)} strata; at least {least} are needed"
        raise InjectionError(msg)
    _refuse_missed(pilot, table)
    weight = table["bit_count"] / table["bit_count"].sum()
    table["pilot_pvf"], table["pilot_count"] = table["pvf"], table["site_count"]
    table["site_count"] = neyman(weight.to_numpy(), table["spread"].to_numpy(), total)
    table["stratum"] = _names(pilot, columns, table)
    return INJECTION_ALLOCATION.check(INJECTION_ALLOCATION.cast(table))


def _merged(table: pd.DataFrame) -> pd.DataFrame:
    """Join the components of one stratum."""
    square = (table["site_count"] - 1) * table["spread"] ** 2
    sums = table.assign(
        square=square + table["site_count"] * table["pvf"] ** 2,
        total=table["site_count"] * table["pvf"],
    )
    one = sums.groupby("label", sort=False)[["site_count", "bit_count", "square", "total"]].sum()
    one["pvf"] = one["total"] / one["site_count"]
    rest = np.maximum(one["square"] - one["site_count"] * one["pvf"] ** 2, 0)
    one["spread"] = np.sqrt(rest / np.maximum(one["site_count"] - 1, 1))
    return one.reset_index()


def _refuse_missed(pilot: Injections, table: pd.DataFrame) -> None:
    """Refuse a pilot that left out a stratum of what it was drawn from."""
    hit = set(pilot.faults["component"].astype(object).dropna())
    people = pilot.parameters[pilot.parameters["component"].isin(hit)]
    bits, known = float(people["bit_count"].sum()), float(table["bit_count"].sum())
    if known < bits * (1 - _CLOSE):
        msg = (
            f"the pilot hit strata of {known:,.0f} of {bits:,.0f} bits; inject some of every "
            "stratum first"
        )
        raise InjectionError(msg)


def _names(pilot: Injections, columns: tuple[str, ...], table: pd.DataFrame) -> pd.Series:
    """Name the strata as the pilot's faults do, where they are the same."""
    if pilot.faults["stratum"].isna().any() or columns == ("stratum",):
        return table["label"]
    sites = site_shares(pilot, columns)
    labels = groups(sites, columns, pilot.parameters).labels_of_rows()
    pairs = pd.DataFrame({"label": labels, "stratum": sites["stratum"].to_numpy()})
    pairs = pairs.drop_duplicates()
    if pairs["label"].duplicated().any() or pairs["stratum"].duplicated().any():
        return table["label"]
    return table["label"].map(pairs.set_index("label")["stratum"])


def pooled(first: Injections, second: Injections) -> Injections:
    """Join two phases of one design into one campaign, weighted anew.

    Parameters
    ----------
    first, second
        Two campaigns of the same model, inputs and rules, drawn from the same strata (or both
        without strata). The second may have left out strata.

    Returns
    -------
    Injections
        One campaign under the first one's name; experiments of the second are numbered on.

    Raises
    ------
    InjectionError
        If the campaigns do not fit, or a weight is missing.

    Notes
    -----
    A stratum of N bits of which the phases injected n sites has the weight N / n, and
    N = sum(weights) of either phase.
    """
    for each in (first, second):
        _refuse_unpoolable(each)
    one, two = first.campaign.iloc[0], second.campaign.iloc[0]
    if name := first_difference(one, two, SAME):
        msg = f"the phases differ in {name}: {one[name]!r} and {two[name]!r}"
        raise InjectionError(msg)
    sizes = [_stratum_sizes(each.faults) for each in (first, second)]
    both = sizes[0].index.intersection(sizes[1].index)
    off = (sizes[0][both] / sizes[1][both] - 1).abs() > _CLOSE
    if len(new := sizes[1].index.difference(sizes[0].index)) or off.any():
        label = new[0] if len(new) else off.index[off][0]
        msg = f"the phases do not share their strata: {label!r} has other bits in each of them"
        raise InjectionError(msg)
    shift = int(first.outcomes["exp_id"].max()) + 1
    tables = {
        name: _joined(getattr(first, name), getattr(second, name), str(one["campaign_id"]), shift)
        for name in ("faults", "outcomes", "trials")
    }
    faults = tables["faults"]
    stratum = _stratum(faults)
    count = faults[stratum.notna() & ~faults.duplicated(KEY)].groupby(stratum).size()
    tables["faults"] = faults.assign(
        inclusion_weight=stratum.map(sizes[0]).astype(float) / stratum.map(count).astype(float)
    )
    quality = pd.concat([first.quality, second.quality.astype({"finding": object})])
    quality = quality.astype({"finding": "category"}).reset_index(drop=True)
    return Injections(
        first.campaign, **tables, parameters=first.parameters,
        quality=quality if len(second.quality) else first.quality,
    )  # fmt: skip


def _refuse_unpoolable(each: Injections) -> None:
    if len(bundles(each)[0].campaign) != 1:
        msg = f"pooled joins two campaigns, and one of these bundles holds {len(each.campaign)}"
        raise InjectionError(msg)
    if each.faults["inclusion_weight"].isna().any() or each.faults.empty:
        name = each.campaign["campaign_id"].iloc[0]
        msg = f"campaign {name!r} has faults without inclusion_weight; its design is not known"
        raise InjectionError(msg)


def _stratum(faults: pd.DataFrame) -> pd.Series:
    return faults["stratum"].astype(object).fillna("the whole")


def _stratum_sizes(faults: pd.DataFrame) -> pd.Series:
    one_each = faults[~faults.duplicated(KEY)]
    return one_each["inclusion_weight"].groupby(_stratum(one_each)).sum()


def _joined(one: pd.DataFrame, two: pd.DataFrame, name: str, shift: int) -> pd.DataFrame:
    """Put the second table under the first, in the same dtypes."""
    if two.empty:
        return one
    moved = two.assign(campaign_id=name, exp_id=two["exp_id"] + shift)
    named = [column for column in one if str(one[column].dtype) == "category"]
    plain = [each.astype(dict.fromkeys(named, object)) for each in (one, moved)]
    joined = pd.concat(plain, ignore_index=True) if len(one) else plain[1]
    return joined.astype(dict.fromkeys(named, "category"))
