"""What a mitigation buys: the same faults with it and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workbench._numbers import share_between
from workbench.analyze._pvf.cluster_intervals import Clusters, cluster_interval, estimates
from workbench.analyze._pvf.groups import groups, refuse_half_weighted
from workbench.analyze._pvf.injection_rows import bundles, experiments, joint, together
from workbench.analyze._pvf.parts import with_parts
from workbench.analyze._pvf.rules import (
    SAME,
    NanPolicy,
    Rules,
    comparable,
    first_difference,
    wrong_and_judged,
)
from workbench.errors import InjectionError
from workbench.tables import PVF_MITIGATION, Injections

_NONE = "none"
# A mitigation may be built into the weights.
_RULES = tuple(name for name in SAME if name not in ("mitigation", "model_sha"))


def pvf_mitigation(
    base: Injections,
    mitigated: Sequence[Injections],
    *,
    nan_policy: NanPolicy = "wrong",
    level_share: float = 0.95,
) -> pd.DataFrame:
    """Compare campaigns that injected the same faults with a mitigation and without.

    Parameters
    ----------
    base
        The campaign without.
    mitigated
        Campaigns with a mitigation, which ``campaign.mitigation`` names.
    nan_policy
        As for :func:`pvf`.
    level_share
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF_MITIGATION`, by component and mitigation; the first row of
        a component is without (``none``).

    Raises
    ------
    InjectionError
        If a campaign follows other rules, injected none of the same sites, or does not name its
        mitigation.
    WorkbenchError
        If level_share is not between 0 and 1.

    Notes
    -----
    Only sites that both injected count, with the weights of ``base``: the same faults make a
    far more certain comparison than two samples. With R = sum(w wrong with) / sum(w wrong
    without), removed = 1 - R; its interval from the variance of w (wrong with - R wrong
    without) over sites, with Student's t.
    """
    share_between("level_share", level_share)
    given = bundles(mitigated)
    _refuse(base, given, Rules("bits", nan_policy=nan_policy))
    plain, labels = _sites(base, nan_policy), _labels(base)
    tables = [_rows(plain, plain, _NONE, _golden(base), level_share)]
    for each in given:
        name = str(each.campaign["mitigation"].iloc[0])
        with_it = _sites(each, nan_policy)
        if plain.index.intersection(with_it.index).empty:
            msg = f"the campaign with {name!r} injected none of the sites of the one without"
            raise InjectionError(msg)
        _refuse_other_parts(labels, _labels(each), name)
        tables.append(_rows(plain, with_it, name, _golden(each), level_share))
    result = pd.concat(tables, ignore_index=True)
    order = pd.factorize(result["group"])[0]
    result = result.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)
    result["group"] = result["group"].map(labels)
    return PVF_MITIGATION.check(PVF_MITIGATION.cast(result))


def _refuse(base: Injections, mitigated: list[Injections], rules: Rules) -> None:
    """Refuse campaigns whose difference is not the mitigation alone."""
    for each in (base, *mitigated):
        if len(each.campaign) != 1:
            msg = f"pass single campaigns; one of these bundles holds {len(each.campaign)}"
            raise InjectionError(msg)
    told = comparable(together([base, *mitigated], "campaign"), rules)
    one = told.iloc[0]
    for position in range(1, len(told)):
        two = told.iloc[position]
        if pd.isna(two["mitigation"]):
            msg = f"campaign {two['campaign_id']!r} does not name its mitigation"
            raise InjectionError(msg)
        if name := first_difference(one, two, _RULES):
            msg = (
                f"campaign {two['campaign_id']!r} differs in {name} from the one without: "
                f"{two[name]!r} instead of {one[name]!r}"
            )
            raise InjectionError(msg)


def _labels(each: Injections) -> dict[str, str]:
    """Name every component by the part of it that faults were drawn from."""
    table, rules = experiments(each), Rules("bits", ("component",))
    found = groups(table, rules.by, pd.DataFrame())
    named = with_parts(each, table, found, each.campaign, rules)
    return dict(zip(found.labels, named.labels, strict=True))


def _refuse_other_parts(one: dict[str, str], two: dict[str, str], name: str) -> None:
    """Refuse a mitigation that was tried on another part than what it is compared with."""
    if off := [
        component for component in one if two.get(component, one[component]) != one[component]
    ]:
        msg = (
            f"the campaign with {name!r} was drawn from {two[off[0]]}, the one without from "
            f"{one[off[0]]}; inject the same faults into both"
        )
        raise InjectionError(msg)


def _golden(each: Injections) -> float:
    value = each.campaign["golden_metric"].iloc[0]
    return np.nan if pd.isna(value) else float(value)


def _sites(each: Injections, nan_policy: NanPolicy) -> pd.DataFrame:
    """Return wrong and judged inputs by site; sites are numbered alike in all campaigns."""
    table = experiments(each)
    wrong, judged = wrong_and_judged(table, Rules("bits", nan_policy=nan_policy))
    table = table.assign(wrong=wrong, judged=judged)
    own = each.outcomes[["campaign_id", "exp_id"]].assign(place=_places(each))
    table = table.merge(own, on=["campaign_id", "exp_id"], how="left")
    sites = table.groupby("place", sort=False).agg(
        wrong=("wrong", "sum"),
        judged=("judged", "sum"),
        inputs=("input_count", "sum"),
        weight=("weight", "first"),
        component=("component", "first"),
        stratum=("stratum", "first"),
    )
    return sites[sites["judged"] > 0]


def _places(each: Injections) -> pd.Series:
    """Give every experiment a text that names its places, the same in all campaigns."""
    faults = together(each, "faults")
    elem = faults["elem"].astype(object).where(faults["elem"].notna(), faults["index"])
    parts = [faults["param"].astype(object), elem, faults["bit"].astype(object)]
    known = pd.concat(parts, axis=1).notna().all(axis=1)
    place = parts[0].astype(str) + "\x1f" + parts[1].astype(str) + "\x1f" + parts[2].astype(str)
    # Where a place is not known, experiments of the same number are taken for the same fault.
    place = place.where(known, "experiment " + faults["exp_id"].astype(str))
    ordered = pd.DataFrame({"exp_id": faults["exp_id"], "place": place}).sort_values("place")
    if ordered["exp_id"].duplicated().any():
        named = ordered.groupby("exp_id")["place"].agg("\x1e".join)
    else:
        named = ordered.set_index("exp_id")["place"]
    number = each.outcomes["exp_id"]
    return number.map(named).fillna("experiment " + number.astype(str))


def _rows(
    plain: pd.DataFrame, with_it: pd.DataFrame, name: str, golden: float, level_share: float
) -> pd.DataFrame:
    """Compare paired sites, by component."""
    both = plain.join(with_it[["wrong", "judged", "inputs"]].add_suffix("_with"), how="inner")
    _refuse_other_inputs(both, name)
    both = both.reset_index(drop=True)
    found = groups(both, ("component",), pd.DataFrame())
    group, size = found.code, len(found.labels)
    refuse_half_weighted(both, group, found.labels)
    weight = both["weight"].to_numpy(dtype=float)
    weight = np.where(np.bincount(group, np.isnan(weight))[group] > 0, 1.0, weight)
    stratum = joint(pd.factorize(both["stratum"])[0], group)
    after = both[["wrong_with", "judged_with"]].to_numpy(dtype=float)
    wrong, judged = weight * after[:, 0], weight * after[:, 1]
    before = weight * both["wrong"].to_numpy(dtype=float)
    estimate = estimates(Clusters(group, group, stratum, wrong, judged), size)
    trials = np.bincount(group, both["judged_with"].to_numpy(dtype=float), size)
    low, high, _ = cluster_interval(estimate, trials, level_share)
    removed, half = _removed((wrong, before), group, stratum, level_share)
    if name == _NONE:
        removed, half = np.full(size, np.nan), np.full(size, np.nan)
    return pd.DataFrame(
        {
            "group": found.labels,
            "mitigation": name,
            "site_count": np.bincount(group, minlength=size),
            "pvf": estimate.share,
            "low": low,
            "high": high,
            "removed_ratio": removed,
            "removed_low": removed - half,
            "removed_high": np.minimum(removed + half, 1),
            "golden_metric": golden,
        }
    )


def _refuse_other_inputs(both: pd.DataFrame, name: str) -> None:
    """Refuse sites that were judged on more inputs in one campaign than in the other."""
    if (off := both["inputs"] != both["inputs_with"]).any():
        row = both[off].iloc[0]
        msg = (
            f"{int(off.sum()):,} sites were judged on another number of inputs with {name!r} than "
            f"without ({row['inputs_with']:,} and {row['inputs']:,}); judge both on the same inputs"
        )
        raise InjectionError(msg)


def _removed(counts: Any, group: Any, stratum: Any, level_share: float) -> tuple[Any, Any]:
    """Give the share removed and half its interval."""
    wrong, before = counts
    whole = np.bincount(group, before)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.bincount(group, wrong) / whole
        rest = np.where(whole[group] > 0, wrong - ratio[group] * before, 0.0)
        # The same arithmetic as for a factor: a ratio, over sites, within strata.
        found = estimates(Clusters(group, group, stratum, rest, np.ones(len(group))), len(whole))
        error = np.sqrt(found.variance) * found.cluster_count / whole
    half = stats.t.isf((1 - level_share) / 2, found.freedom) * error
    ratio = np.where(whole > 0, ratio, np.nan)
    return 1 - ratio, np.where(found.cluster_count > 1, half, np.nan)
