"""Gain of protection: the most harmful parameters first, and which bits and parts matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
import scipy

from workbench._shared.numbers import share_between
from workbench.analyze._pvf import groups as grouping
from workbench.analyze._pvf.allocation import site_shares
from workbench.analyze._pvf.cluster_intervals import Clusters, cluster_interval, estimates
from workbench.analyze._pvf.groups import SAME, NanPolicy, Rules, groups
from workbench.analyze._pvf.injection_rows import (
    SEVERAL,
    bundles,
    campaigns,
    experiments,
    joint,
    parameters_of,
    together,
)
from workbench.analyze._pvf.parts import parts_of, with_parts
from workbench.analyze._pvf.truth_cells import cells, inputs_of, wrong_counts
from workbench.errors import InjectionError
from workbench.tables import PVF_MITIGATION, PVF_PROTECTION, ExhaustiveInjections, Injections

Unit: TypeAlias = Literal["elements", "bits", "tensors"]
# Steps are drawn at logarithmic distances: the first units remove most.
_POINTS = 200
_CLOSE = 1e-9


class _Units(NamedTuple):
    name: Any
    size: Any
    """What protecting it costs: elements, or bits."""
    rank: Any
    """Wrong outputs expected, by which it is ranked."""
    judge: Any
    """Wrong outputs expected, that are removed."""


def pvf_protection(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections,
    *,
    unit: Unit = "elements",
    component: str | None = None,
) -> pd.DataFrame:
    """Compute the share of expected wrong outputs avoided if the worst is protected first.

    Parameters
    ----------
    injections
        Every fault of a model, or a campaign of single flips.
    unit
        What is protected as a whole: ``"elements"``, ``"bits"`` (one place in all elements) or
        ``"tensors"``.
    component
        Part of the model; all of them together and each by itself if dropped.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF_PROTECTION`, at most 202 rows per group.

    Raises
    ------
    InjectionError
        If faults were drawn from some bits only, experiments hit several places, the places or
        the parameters are not known, or campaigns follow different rules.

    Notes
    -----
    Ranked by wrong outputs per bit protected. A sample that both ranks and judges overstates what
    protection buys, as chance ranks high what chance made bad. So a random half of the
    sites ranks and the other judges, and the other way round; the curve is the mean of both.
    Units without an event in the half that ranks come last, in no order: a straight line.
    Sampled single elements therefore tell little; use the truth, or bits and tensors.
    """
    if unit not in get_args(Unit):
        msg = f"unit={unit!r} is not one of {', '.join(map(repr, get_args(Unit)))}"
        raise InjectionError(msg)
    exact = isinstance(injections, ExhaustiveInjections)
    if isinstance(injections, ExhaustiveInjections):
        table = _truth_units(injections, unit)
    else:
        table = _sampled_units(injections, unit)
    parameters = parameters_of(injections)
    if parameters.empty:
        msg = "the injections have no table of parameters: shares need to know what can be hit"
        raise InjectionError(msg)
    names = _components(table, parameters, component)
    labels = _drawn_tensors(injections, ("component",))
    labels |= _drawn_tensors(injections, ()) if None in names else {}
    curves: dict[str, pd.DataFrame] = {}
    for name in names:
        units = table if name is None else table[table["component"] == name]
        label, tensors = labels["all" if name is None else str(name)]
        people = parameters[parameters["param"].isin(tensors)]
        if label not in curves:
            # A bit place is one unit in all its tensors.
            if unit == "bits":
                units = units.groupby("place", as_index=False)[["one", "two"]].sum()
            curve = _curve(units, people, unit, exact)
            curves[label] = curve.assign(group=label)
    result = pd.concat(curves.values(), ignore_index=True)
    ranked = "truth" if exact else "half of the sites, judged on the other half"
    return PVF_PROTECTION.of(result.assign(unit=unit, ranked_by=ranked))


def _drawn_tensors(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections, by: tuple[str, ...]
) -> dict[str, tuple[str, set[str]]]:
    """Return by group its name and its tensors; refuse one of which only some bits were drawn."""
    if isinstance(injections, ExhaustiveInjections):
        campaign = injections.campaign
        table = cells(injections).assign(campaign_id=campaign["campaign_id"].iloc[0])
    else:
        campaign, table = campaigns(injections), experiments(injections)
    people = parameters_of(injections)
    grouped = groups(table, by, people)
    origin = parts_of(injections, table, grouped, campaign, Rules("tensors", by))
    size = people.drop_duplicates("param").set_index("param")["bit_count"]
    for label, names, bits in zip(origin.labels, origin.names, origin.bit_count, strict=True):
        if not bits >= size.reindex(list(names)).sum() * (1 - _CLOSE):
            msg = (
                f"the faults were drawn from {label}: what protection removes needs faults in all "
                "bits of what is protected; draw them without bits=..."
            )
            raise InjectionError(msg)
    return dict(zip(grouped.labels, zip(origin.labels, origin.names, strict=True), strict=True))


def _components(
    table: pd.DataFrame, parameters: pd.DataFrame, component: str | None
) -> list[str | None]:
    hit = set(table["component"])
    if component is None:
        ordered = dict.fromkeys([*parameters["component"], *sorted(hit)])
        return [None, *(name for name in ordered if name in hit)]
    if component not in hit:
        msg = f"component={component!r} was not hit; there are {', '.join(sorted(hit))}"
        raise InjectionError(msg)
    return [component]


def _truth_units(truth: ExhaustiveInjections, unit: Unit) -> pd.DataFrame:
    """Sum up the wrong outputs of each unit and component; both halves are the truth."""
    inputs_of(truth)
    wrong = wrong_counts(truth)
    hit = np.flatnonzero(wrong)
    sites = truth.sites.iloc[hit]
    param = sites["param"].cat
    home = truth.parameters.drop_duplicates("param").set_index("param")["component"]
    column = {"elements": "elem", "bits": "bit", "tensors": "bit"}[unit]
    inside = sites[column].to_numpy(dtype=np.int64)
    if unit == "tensors":
        inside = np.zeros(len(inside), dtype=np.int64)
    width = int(inside.max(initial=0)) + 1
    code, home_of = np.unique(param.codes.to_numpy().astype(np.int64) * width + inside,
                              return_inverse=True)  # fmt: skip
    names = np.asarray(param.categories, dtype=object)[code // width]
    total = np.bincount(home_of, wrong[hit], len(code))
    table = pd.DataFrame({"param": names, "place": code % width, "one": total, "two": total})
    return table.assign(component=table["param"].map(home.astype(object)))


def _sampled_units(injections: Injections | Sequence[Injections], unit: Unit) -> pd.DataFrame:
    """Sum up the wrong outputs of each unit by half of the sites."""
    column = {"elements": "elem", "bits": "bit", "tensors": "param"}[unit]
    sites = site_shares(injections, ("bit", "param"))
    if column == "elem":
        faults = together(injections, "faults")
        one_each = faults.drop_duplicates(["campaign_id", "exp_id"])
        elements = one_each.set_index(["campaign_id", "exp_id"])["elem"]
        own = pd.MultiIndex.from_frame(sites[["campaign_id", "exp_id"]])
        sites["elem"] = elements.reindex(own).to_numpy(dtype=object)
    unknown = sites[column].isna() | sites["component"].isna() | (sites["component"] == SEVERAL)
    if unknown.any():
        row = sites[unknown].iloc[0]
        msg = (
            f"unit={unit!r}: the place that experiment {row['exp_id']} of campaign "
            f"{row['campaign_id']!r} hit is not known"
        )
        raise InjectionError(msg)
    nobody = np.zeros(len(sites), dtype=np.int64)
    rules = Rules("bits")
    grouping.refuse_mixed(nobody, ["all"], sites["campaign_id"], campaigns(injections), rules)
    grouping.refuse_half_weighted(sites, nobody, ["all"])
    weight = sites["weight"].fillna(1.0)
    worth = sites["share"] * weight
    # By chance, always the same: every second one could be every second bit.
    odd = np.random.default_rng(0).permutation(len(sites)) % 2 == 1
    code = sites["param"].map(lambda _: 0) if unit == "tensors" else sites[column].astype("int64")
    table = pd.DataFrame(
        {"param": sites["param"], "place": code, "component": sites["component"],
         "one": np.where(odd, worth, 0.0), "two": np.where(odd, 0.0, worth)}
    )  # fmt: skip
    keys = ["component", "param", "place"]
    return table.groupby(keys, sort=False, as_index=False)[["one", "two"]].sum()


def _curve(table: pd.DataFrame, parameters: pd.DataFrame, unit: Unit, exact: bool) -> pd.DataFrame:
    size = _sizes(table, parameters, unit)
    total = _total(parameters, unit, table)
    names = _names(table, unit)
    first_half, second_half = (table[name].to_numpy(dtype=float) for name in ("one", "two"))
    # Each half judges the order that the other one found: chance cannot rank and judge at once.
    first = _steps(_Units(names, size, first_half, second_half), total)
    if exact:
        return first
    second = _steps(_Units(names, size, second_half, first_half), total)
    return _mean(first, second)


def _sizes(table: pd.DataFrame, parameters: pd.DataFrame, unit: Unit) -> Any:
    # Tied weights are one tensor under their first name.
    by_tensor = parameters.drop_duplicates("param").set_index("param")
    if unit == "tensors":
        return by_tensor["bit_count"].reindex(table["param"]).fillna(1).to_numpy(dtype=float)
    if unit == "elements" or parameters.empty:
        return np.ones(len(table))
    width = by_tensor["dtype"].map(grouping.bit_width).to_numpy(dtype=float)
    elements = by_tensor["element_count"].to_numpy(dtype=float)
    return np.array([elements[width > bit].sum() for bit in table["place"]], dtype=float)


def _total(parameters: pd.DataFrame, unit: Unit, table: pd.DataFrame) -> tuple[int, float]:
    tensors = parameters.drop_duplicates("param")
    if tensors.empty:
        return len(table), float(len(table))
    if unit == "elements":
        return int(tensors["element_count"].sum()), float(tensors["element_count"].sum())
    bits = float(tensors["bit_count"].sum())
    if unit == "tensors":
        return len(tensors), bits
    return int(tensors["dtype"].map(grouping.bit_width).max()), bits


def _names(table: pd.DataFrame, unit: Unit) -> Any:
    if unit == "bits":
        return np.array([f"bit {bit}" for bit in table["place"]], dtype=object)
    names = table["param"].astype(str).to_numpy(dtype=object)
    if unit == "elements":
        return names + np.array([f" [{elem}]" for elem in table["place"]], dtype=object)
    return names


def _steps(units: _Units, total: tuple[int, float]) -> pd.DataFrame:
    count, size = total
    # Harm per bit protected: the greedy order of a knapsack.
    order = np.argsort(-units.rank / units.size, kind="stable")
    # Units without an event have no order among themselves: the last step takes them together.
    order = order[units.rank[order] > 0]
    harm = units.judge.sum()
    removed = np.cumsum(units.judge[order]) / harm if harm > 0 else np.zeros(len(order))
    shown = np.unique(np.geomspace(1, max(len(order), 1), _POINTS).astype(int)) - 1
    shown = shown[shown < len(order)]
    last = list(units.name[order][shown])
    return pd.DataFrame(
        {
            "protected_count": [0, *(shown + 1), count],
            "protected_share": [0.0, *(np.cumsum(units.size[order])[shown] / size), 1.0],
            "removed_share": [0.0, *removed[shown], 1.0 if harm > 0 else 0.0],
            "last": pd.Series([None, *last, None], dtype=object),
        }
    ).assign(
        protected_share=lambda t: t["protected_share"].clip(0, 1),
        removed_share=lambda t: t["removed_share"].clip(0, 1),
    )


def _mean(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    curve = first if len(first) >= len(second) else second
    # Both halves have their own steps; on those of the longer one they can be averaged.
    at = curve["protected_share"].to_numpy()
    curves = [
        np.interp(at, half["protected_share"], half["removed_share"]) for half in (first, second)
    ]
    return curve.assign(removed_share=np.clip((curves[0] + curves[1]) / 2, 0, 1))


_NONE = "none"
# A mitigation may be built into the weights.
_RULES = tuple(name for name in SAME if name not in ("mitigation", "model_sha"))


def pvf_mitigation(
    base: Injections,
    mitigated: Sequence[Injections],
    *,
    nan_policy: NanPolicy = "wrong",
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Compare campaigns that injected the same faults with a mitigation and without.

    Parameters
    ----------
    base
        The campaign without.
    mitigated
        Campaigns with a mitigation, which ``campaign.mitigation`` names.
    nan_policy, confidence_level
        As for :func:`pvf`.

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
        If confidence_level is not between 0 and 1.

    Notes
    -----
    Only sites that both injected count, with the weights of ``base``: the same faults make a
    far more certain comparison than two samples. With R = sum(w wrong with) / sum(w wrong
    without), removed = 1 - R; its interval from the variance of w (wrong with - R wrong
    without) over sites, with Student's t.
    """
    share_between("confidence_level", confidence_level)
    listed = bundles(mitigated)
    _refuse(base, listed, Rules("bits", nan_policy=nan_policy))
    plain, labels = _sites(base, nan_policy), _labels(base)
    tables = [_rows(plain, plain, _NONE, _golden(base), confidence_level)]
    for campaign in listed:
        name = str(campaign.campaign["mitigation"].iloc[0])
        with_it = _sites(campaign, nan_policy)
        if plain.index.intersection(with_it.index).empty:
            msg = f"the campaign with {name!r} injected none of the sites of the one without"
            raise InjectionError(msg)
        _refuse_other_parts(labels, _labels(campaign), name)
        tables.append(_rows(plain, with_it, name, _golden(campaign), confidence_level))
    result = pd.concat(tables, ignore_index=True)
    order = pd.factorize(result["group"])[0]
    result = result.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)
    result["group"] = result["group"].map(labels)
    return PVF_MITIGATION.of(result)


def _refuse(base: Injections, mitigated: list[Injections], rules: Rules) -> None:
    """Refuse campaigns whose difference is not the mitigation alone."""
    for bundle in (base, *mitigated):
        if len(bundle.campaign) != 1:
            msg = f"pass single campaigns; one of these bundles holds {len(bundle.campaign)}"
            raise InjectionError(msg)
    fields = grouping.comparable(together([base, *mitigated], "campaign"), rules)
    reference = fields.iloc[0]
    for position in range(1, len(fields)):
        row = fields.iloc[position]
        if pd.isna(row["mitigation"]):
            msg = f"campaign {row['campaign_id']!r} does not name its mitigation"
            raise InjectionError(msg)
        if name := grouping.first_difference(reference, row, _RULES):
            msg = (
                f"campaign {row['campaign_id']!r} differs in {name} from the one without: "
                f"{row[name]!r} instead of {reference[name]!r}"
            )
            raise InjectionError(msg)


def _labels(injections: Injections) -> dict[str, str]:
    table, rules = experiments(injections), Rules("bits", ("component",))
    grouped = groups(table, rules.by, pd.DataFrame())
    drawn_groups = with_parts(injections, table, grouped, injections.campaign, rules)
    return dict(zip(grouped.labels, drawn_groups.labels, strict=True))


def _refuse_other_parts(
    base_labels: dict[str, str], with_labels: dict[str, str], name: str
) -> None:
    """Refuse a mitigation that was tried on another part than what it is compared with."""
    if off := [
        component
        for component in base_labels
        if with_labels.get(component, base_labels[component]) != base_labels[component]
    ]:
        msg = (
            f"the campaign with {name!r} was drawn from {with_labels[off[0]]}, the one without "
            f"from {base_labels[off[0]]}; inject the same faults into both"
        )
        raise InjectionError(msg)


def _golden(injections: Injections) -> float:
    value = injections.campaign["golden_metric"].iloc[0]
    return np.nan if pd.isna(value) else float(value)


def _sites(injections: Injections, nan_policy: NanPolicy) -> pd.DataFrame:
    """Return wrong and judged inputs by site; sites are numbered alike in all campaigns."""
    table = experiments(injections)
    wrong, judged = grouping.wrong_and_judged(table, Rules("bits", nan_policy=nan_policy))
    table = table.assign(wrong=wrong, judged=judged)
    own = injections.outcomes[["campaign_id", "exp_id"]].assign(place=_places(injections))
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


def _places(injections: Injections) -> pd.Series:
    """Add to every experiment a text that names its places, the same in all campaigns."""
    faults = together(injections, "faults")
    elem = faults["elem"].astype(object).where(faults["elem"].notna(), faults["index"])
    columns = [faults["param"].astype(object), elem, faults["bit"].astype(object)]
    is_known = pd.concat(columns, axis=1).notna().all(axis=1)
    site_text = (
        columns[0].astype(str) + "\x1f" + columns[1].astype(str) + "\x1f" + columns[2].astype(str)
    )
    # Where a place is not known, experiments of the same number are taken for the same fault.
    site_text = site_text.where(is_known, "experiment " + faults["exp_id"].astype(str))
    ordered = pd.DataFrame({"exp_id": faults["exp_id"], "place": site_text}).sort_values("place")
    if ordered["exp_id"].duplicated().any():
        by_experiment = ordered.groupby("exp_id")["place"].agg("\x1e".join)
    else:
        by_experiment = ordered.set_index("exp_id")["place"]
    number = injections.outcomes["exp_id"]
    return number.map(by_experiment).fillna("experiment " + number.astype(str))


def _rows(
    plain: pd.DataFrame, with_it: pd.DataFrame, name: str, golden: float, confidence_level: float
) -> pd.DataFrame:
    paired = plain.join(with_it[["wrong", "judged", "inputs"]].add_suffix("_with"), how="inner")
    _refuse_other_inputs(paired, name)
    paired = paired.reset_index(drop=True)
    grouped = groups(paired, ("component",), pd.DataFrame())
    group, size = grouped.code, len(grouped.labels)
    grouping.refuse_half_weighted(paired, group, grouped.labels)
    weight = paired["weight"].to_numpy(dtype=float)
    # One missing weight makes those of its group useless.
    weight = np.where(np.bincount(group, np.isnan(weight))[group] > 0, 1.0, weight)
    stratum = joint(pd.factorize(paired["stratum"])[0], group)
    after = paired[["wrong_with", "judged_with"]].to_numpy(dtype=float)
    wrong, judged = weight * after[:, 0], weight * after[:, 1]
    before = weight * paired["wrong"].to_numpy(dtype=float)
    estimate = estimates(Clusters(group, group, stratum, wrong, judged), size)
    trials = np.bincount(group, paired["judged_with"].to_numpy(dtype=float), size)
    low, high, _ = cluster_interval(estimate, trials, confidence_level)
    removed, half = _removed((wrong, before), group, stratum, confidence_level)
    # The campaign without a mitigation, compared with itself, would show a removal of 0 +- 0.
    if name == _NONE:
        removed, half = np.full(size, np.nan), np.full(size, np.nan)
    return pd.DataFrame(
        {
            "group": grouped.labels,
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


def _refuse_other_inputs(paired: pd.DataFrame, name: str) -> None:
    if (off := paired["inputs"] != paired["inputs_with"]).any():
        row = paired[off].iloc[0]
        msg = (
            f"{int(off.sum()):,} sites were judged on another number of inputs with {name!r} than "
            f"without ({row['inputs_with']:,} and {row['inputs']:,}); judge both on the same inputs"
        )
        raise InjectionError(msg)


def _removed(counts: Any, group: Any, stratum: Any, confidence_level: float) -> tuple[Any, Any]:
    wrong, before = counts
    total = np.bincount(group, before)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.bincount(group, wrong) / total
        residual = np.where(total[group] > 0, wrong - ratio[group] * before, 0.0)
        # The same arithmetic as for a factor: a ratio, over sites, within strata.
        estimate = estimates(
            Clusters(group, group, stratum, residual, np.ones(len(group))), len(total)
        )
        error = np.sqrt(estimate.variance) * estimate.cluster_count / total
    half = scipy.stats.t.isf((1 - confidence_level) / 2, estimate.freedom) * error
    ratio = np.where(total > 0, ratio, np.nan)
    return 1 - ratio, np.where(estimate.cluster_count > 1, half, np.nan)
