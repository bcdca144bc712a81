"""Injecting in two phases: a pilot, then more where it found most to learn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy

from workbench import tables
from workbench._shared.numbers import share_between, whole_number
from workbench.analyze._pvf import groups as grouping
from workbench.analyze._pvf.groups import SAME, Rules, groups
from workbench.analyze._pvf.injection_rows import KEY, bundles, campaigns, experiments, together
from workbench.analyze._pvf.interval_funnel import LEAST_SITES, neyman
from workbench.analyze._pvf.parts import component_names, parts_of, with_parts
from workbench.analyze._pvf.truth_cells import cells, inputs_of
from workbench.errors import InjectionError, WorkbenchError
from workbench.tables import ExhaustiveInjections, Injections

# Sums of weights of two phases differ by rounding at most.
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
    return tables.INJECTION_ALLOCATION.of(table)


def _merged(table: pd.DataFrame) -> pd.DataFrame:
    # Means and spreads of the parts give those of the whole without the single sites.
    square = (table["site_count"] - 1) * table["spread"] ** 2
    sums = table.assign(
        square=square + table["site_count"] * table["pvf"] ** 2,
        total=table["site_count"] * table["pvf"],
    )
    merged = sums.groupby("label", sort=False)[["site_count", "bit_count", "square", "total"]].sum()
    merged["pvf"] = merged["total"] / merged["site_count"]
    variance = np.maximum(merged["square"] - merged["site_count"] * merged["pvf"] ** 2, 0)
    merged["spread"] = np.sqrt(variance / np.maximum(merged["site_count"] - 1, 1))
    return merged.reset_index()


def _refuse_missed(pilot: Injections, table: pd.DataFrame) -> None:
    hit = set(pilot.faults["component"].astype(object).dropna())
    people = pilot.parameters[pilot.parameters["component"].isin(hit)]
    bits, held = float(people["bit_count"].sum()), float(table["bit_count"].sum())
    if held < bits * (1 - _CLOSE):
        msg = (
            f"the pilot hit strata of {held:,.0f} of {bits:,.0f} bits; inject some of every "
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
    """Join two phases of one design into one campaign, reweighted.

    Parameters
    ----------
    first, second
        Two campaigns of the same model, inputs and rules, drawn from the same strata (or both
        without strata). The second may have dropped strata.

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
    for phase in (first, second):
        _refuse_unpoolable(phase)
    first_row, two = first.campaign.iloc[0], second.campaign.iloc[0]
    if name := grouping.first_difference(first_row, two, SAME):
        msg = f"the phases differ in {name}: {first_row[name]!r} and {two[name]!r}"
        raise InjectionError(msg)
    sizes = [_stratum_sizes(phase.faults) for phase in (first, second)]
    # The second phase may have dropped strata, but what both have must be of one size.
    common = sizes[0].index.intersection(sizes[1].index)
    off = (sizes[0][common] / sizes[1][common] - 1).abs() > _CLOSE
    if len(new := sizes[1].index.difference(sizes[0].index)) or off.any():
        label = new[0] if len(new) else off.index[off][0]
        msg = f"the phases do not share their strata: {label!r} has other bits in each of them"
        raise InjectionError(msg)
    # Numbered on, so that no experiment of the second phase has the number of one of the first.
    shift = int(first.outcomes["exp_id"].max()) + 1
    frames = {
        name: _joined(
            getattr(first, name), getattr(second, name), str(first_row["campaign_id"]), shift
        )
        for name in ("faults", "outcomes", "trials")
    }
    faults = frames["faults"]
    stratum = _stratum(faults)
    count = faults[stratum.notna() & ~faults.duplicated(KEY)].groupby(stratum).size()
    frames["faults"] = faults.assign(
        inclusion_weight=stratum.map(sizes[0]).astype(float) / stratum.map(count).astype(float)
    )
    quality = pd.concat([first.quality, second.quality.astype({"finding": object})])
    quality = quality.astype({"finding": "category"}).reset_index(drop=True)
    return Injections(
        first.campaign, **frames, parameters=first.parameters,
        quality=quality if len(second.quality) else first.quality,
    )  # fmt: skip


def _refuse_unpoolable(phase: Injections) -> None:
    if len(bundles(phase)[0].campaign) != 1:
        msg = f"pooled joins two campaigns, and one of these bundles holds {len(phase.campaign)}"
        raise InjectionError(msg)
    if phase.faults["inclusion_weight"].isna().any() or phase.faults.empty:
        name = phase.campaign["campaign_id"].iloc[0]
        msg = f"campaign {name!r} has faults without inclusion_weight; its design is not known"
        raise InjectionError(msg)


def _stratum(faults: pd.DataFrame) -> pd.Series:
    return faults["stratum"].astype(object).fillna("the whole")


def _stratum_sizes(faults: pd.DataFrame) -> pd.Series:
    one_each = faults[~faults.duplicated(KEY)]
    return one_each["inclusion_weight"].groupby(_stratum(one_each)).sum()


def _joined(first: pd.DataFrame, second: pd.DataFrame, name: str, shift: int) -> pd.DataFrame:
    if second.empty:
        return first
    moved = second.assign(campaign_id=name, exp_id=second["exp_id"] + shift)
    categories = [column for column in first if str(first[column].dtype) == "category"]
    plain = [table.astype(dict.fromkeys(categories, object)) for table in (first, moved)]
    joined = pd.concat(plain, ignore_index=True) if len(first) else plain[1]
    return joined.astype(dict.fromkeys(categories, "category"))


_INPUTS = ("one", "all")


def injection_sample_sizes(
    pilot_or_truth: Injections | Sequence[Injections] | ExhaustiveInjections,
    *,
    relative_error: float | Sequence[float] = 0.1,
    absolute_error: float = 0.01,
    confidence_level: float | Sequence[float] = 0.95,
) -> pd.DataFrame:
    """Compute how many faults to inject under each of the designs in use.

    The usual count (Leveugle) asks for an error of 1 percentage point, which says nothing about
    factors far below 1 %: expect less than one wrong output then. A relative error needs more
    sites, and strata by bit need far fewer of them.

    Parameters
    ----------
    pilot_or_truth
        A first campaign of single flips, or every fault; what to expect is taken from it.
    relative_error
        Half the width of the interval over the factor; several give the rows of each.
    absolute_error
        Half the width of the interval itself, for ``leveugle``.
    confidence_level
        Confidence of the interval; several give the rows of each.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INJECTION_SAMPLE_SIZES`, rows by confidence, component,
        design, whether a site is judged on one input or all, and error.

    Raises
    ------
    WorkbenchError
        If an error or the confidence is out of range, or the bits are not known.

    Notes
    -----
    With z of the confidence, r the relative error, P the factor, W the share of the bits in a
    stratum (a bit place) and s the spread between its sites: uniform n = (z/r)**2 s**2 / P**2,
    proportional (z/r)**2 sum(W s**2) / P**2, Neyman (z/r)**2 sum(W s)**2 / P**2. With one input
    per site s**2 = p (1 - p). A pilot that saw no event in a stratum takes its spread for 0: then
    these are lower ends. Wrong outputs of ``leveugle`` are counted with one input per site.

    References
    ----------
    R. Leveugle and others, DATE 2009, 502. J. Neyman, J. R. Stat. Soc. 97 (1934), 558.
    """
    errors = [share_between("relative_error", value) for value in _listed(relative_error)]
    levels = [share_between("confidence_level", value) for value in _listed(confidence_level)]
    share_between("absolute_error", absolute_error)
    rows: list[dict[str, Any]] = []
    components = list(strata(pilot_or_truth, ("bit",)).groupby("part", sort=False))
    for share, (component, strata_rows) in itertools.product(levels, components):
        totals = _known(strata_rows)
        count = sample_size_leveugle(totals["bits"], error=absolute_error, confidence_level=share)
        shared = {"group": str(component), "pvf": totals["pvf"], "confidence_level": share}
        rows.append(
            {"design": "leveugle", "inputs": "one", "error": absolute_error,
             "error_kind": "absolute", "site_count": count,
             "expected_event_count": count * totals["pvf"]} | shared
        )  # fmt: skip
        z = float(scipy.stats.norm.isf((1 - share) / 2))
        rows += [
            {"inputs": inputs, "error": error, "error_kind": "relative"} | shared | value
            for inputs, error in itertools.product(_INPUTS, errors)
            for value in _designs(strata_rows, totals["pvf"], (z / error) ** 2, inputs)
        ]
    return tables.INJECTION_SAMPLE_SIZES.of(rows)


def _listed(values: float | Sequence[float]) -> list[float]:
    listed: list[float] = np.atleast_1d(values).tolist()
    return listed


def _known(rows: pd.DataFrame) -> dict[str, float]:
    bits = float(rows["bit_count"].sum())
    return {"bits": bits, "pvf": float((rows["bit_count"] * rows["pvf"]).sum() / bits)}


def _designs(
    strata_rows: pd.DataFrame, factor: float, scale: float, inputs: str
) -> list[dict[str, Any]]:
    weight = (strata_rows["bit_count"] / strata_rows["bit_count"].sum()).to_numpy()
    mean, event = strata_rows["pvf"].to_numpy(), strata_rows["event_share"].to_numpy()
    spread = strata_rows["spread"].to_numpy()
    total_variance = float((weight * (spread**2 + mean**2)).sum()) - factor**2
    if inputs == "one":
        spread, event = np.sqrt(mean * (1 - mean)), mean
        total_variance = factor * (1 - factor)
    needed = {
        "uniform": total_variance,
        "proportional": float((weight * spread**2).sum()),
        "neyman": float((weight * spread).sum()) ** 2,
    }
    drawn = dict.fromkeys(needed, weight)
    # A pilot without any event has no spread by which to share out sites.
    if needed["neyman"] > 0:
        drawn["neyman"] = weight * spread / (weight * spread).sum()
    rows = []
    for design, variance in needed.items():
        count = scale * variance / factor**2 if factor > 0 else np.nan
        events = count * float((drawn[design] * event).sum())
        rows.append({"design": design, "site_count": count, "expected_event_count": events})
    return rows


def sample_size_leveugle(
    population: float, *, error: float = 0.01, share: float = 0.5, confidence_level: float = 0.95
) -> float:
    """Return the number of faults by the formula that most campaigns cite.

    Parameters
    ----------
    population
        Faults that could be injected.
    error
        Half the width of the interval, as a share: 0.01 is one percentage point.
    share
        The share that is expected; 0.5 is the worst case.
    confidence_level
        Confidence.

    Returns
    -------
    float
        Faults to inject; round up.

    Raises
    ------
    WorkbenchError
        If an argument is out of range.

    Notes
    -----
    n = N / (1 + e**2 (N - 1) / (z**2 p (1 - p))).

    References
    ----------
    R. Leveugle and others, Statistical fault injection, DATE 2009, 502, equation 3.

    Examples
    --------
    >>> round(sample_size_leveugle(821_280))
    9493
    """
    share_between("confidence_level", confidence_level)
    if not (population >= 1 and error > 0 and 0 < share < 1):
        msg = (
            f"population={population!r} must be 1 or more, error={error!r} above 0 and "
            f"share={share!r} between 0 and 1"
        )
        raise WorkbenchError(msg)
    z = float(scipy.stats.norm.isf((1 - confidence_level) / 2))
    return population / (1 + error**2 * (population - 1) / (z**2 * share * (1 - share)))


def strata(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections, by: tuple[str, ...]
) -> pd.DataFrame:
    """Return one row per component and stratum.

    Columns: ``component`` and those of ``by``, ``label`` (of ``by`` alone), ``part`` (the
    component, or what was drawn from of it), ``site_count``,
    ``bit_count``, ``pvf``, ``spread`` (standard deviation of the sites' shares),
    ``event_share`` (of sites with any wrong output).
    """
    columns = ("component", *(name for name in by if name != "component"))
    if isinstance(injections, ExhaustiveInjections):
        return _of_truth(injections, columns, by)
    table = site_shares(injections, columns)
    parameters, campaign = together(injections, "parameters"), campaigns(injections)
    rules = Rules("bits", columns)
    grouped = groups(table, columns, parameters)
    grouping.refuse_mixed(grouped.code, grouped.labels, table["campaign_id"], campaign, rules)
    share = table["share"].to_numpy()
    size = np.bincount(grouped.code, minlength=len(grouped.labels))
    mean = np.bincount(grouped.code, share, len(size)) / size
    square = np.bincount(grouped.code, (share - mean[grouped.code]) ** 2, len(size))
    bits: Any
    if "stratum" in by:
        bits = np.bincount(grouped.code, table["weight"].to_numpy(), len(size))
    else:
        bits = parts_of(injections, table, grouped, campaign, rules).bit_count
    if np.isnan(bits).any():
        label = grouped.labels[int(np.isnan(bits).argmax())]
        msg = (
            f"the bits of {label!r} are not known: the injections need a table of parameters, or "
            "weights and by='stratum'"
        )
        raise InjectionError(msg)
    rules = Rules("bits", ("component",))
    components = with_parts(injections, table, groups(table, rules.by, parameters), campaign, rules)
    return grouped.keys.assign(
        part=grouped.keys["component"].map(
            dict(zip(components.keys["component"], components.labels, strict=True))
        ),
        label=groups(grouped.keys, by, parameters).labels_of_rows() if by else "all",
        site_count=size,
        bit_count=bits,
        pvf=mean,
        # One site has no spread to estimate; divided by 1 it is 0, not NaN.
        spread=np.sqrt(square / np.maximum(size - 1, 1)),
        event_share=np.bincount(grouped.code, share > 0, len(size)) / size,
    )


def _of_truth(
    truth: ExhaustiveInjections, columns: tuple[str, ...], by: tuple[str, ...]
) -> pd.DataFrame:
    inputs = inputs_of(truth)
    table = cells(truth)
    if strange := [name for name in columns if name not in table]:
        msg = f"by={strange[0]!r}: the table of all sites does not hold it"
        raise InjectionError(msg)
    grouped = groups(table, columns, truth.parameters)

    def total(name: str) -> Any:
        return np.bincount(grouped.code, table[name].to_numpy(dtype=float), len(grouped.labels))

    size = total("site_count")
    mean = total("wrong_count") / size / inputs
    variance = np.maximum(total("square") / size / inputs**2 - mean**2, 0)
    return grouped.keys.assign(
        part=grouped.keys["component"].map(component_names(truth)),
        label=groups(grouped.keys, by, truth.parameters).labels_of_rows() if by else "all",
        site_count=size.astype("int64"),
        bit_count=size,
        pvf=mean,
        spread=np.sqrt(variance),
        event_share=total("event_site_count") / size,
    )


def site_shares(
    injections: Injections | Sequence[Injections], columns: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Return one row per site, in the order of the experiments: its share of wrong outputs."""
    table = grouping.with_columns(experiments(injections), campaigns(injections), columns)
    rules = Rules("bits", columns)
    wrong, judged = grouping.wrong_and_judged(table, rules)
    table = table.assign(wrong=wrong, judged=judged)
    table = table.sort_values(["campaign_id", "exp_id"], kind="stable", ignore_index=True)
    code = pd.factorize(table["site"])[0]
    first = ~pd.Series(code).duplicated().to_numpy()
    sums = {name: np.bincount(code, table[name]) for name in ("wrong", "judged")}
    sites = table[first].reset_index(drop=True).assign(**sums)
    # A site that came twice stands for as many bits as both its experiments.
    weight = np.bincount(code, table["weight"].to_numpy(dtype=float))
    return sites.assign(
        share=sites["wrong"] / sites["judged"], weight=weight, weight_each=sites["weight"]
    )
