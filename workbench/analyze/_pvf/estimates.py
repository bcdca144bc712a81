"""Parameter vulnerability factor: how likely a fault is to give a wrong output, and how sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.numbers import wilson
from workbench.analyze._pvf import cluster_intervals as intervals
from workbench.analyze._pvf import groups as grouping
from workbench.analyze._pvf.cluster_intervals import EXACT, Clusters, Estimates
from workbench.analyze._pvf.groups import Average, Beneficial, Groups, NanPolicy, Rules, groups
from workbench.analyze._pvf.injection_rows import campaigns, experiments, joint, together
from workbench.analyze._pvf.parts import drawn_cells, parts
from workbench.analyze._pvf.truth_cells import cells, inputs_of
from workbench.errors import InjectionError
from workbench.tables import PVF, ExhaustiveInjections, Injections

_DESIGNS_OF_EQUAL_WEIGHT = ("uniform", "exhaustive")
_LEFT_OUT = {
    "unjudged": "have no counts",
    "never_run": "were never run: the design is not complete",
}


def pvf(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections,
    *,
    average: Average,
    by: str | Sequence[str] = ("component",),
    nan_policy: NanPolicy = "wrong",
    confidence_level: float = 0.95,
    beneficial: Beneficial = "wrong",
) -> pd.DataFrame:
    """Estimate how likely a fault is to give a wrong output, with its interval.

    The sampling unit is the fault, not the input: under one fault most inputs go wrong together
    or none does, so 1,000 faults judged on 1,000 inputs each tell about as much as a few thousand
    independent trials, not a million. The interval takes the injection site as the unit.

    Parameters
    ----------
    injections
        Results of one or several campaigns, or of one that injected every fault; then the
        factors are exact.
    average
        What weighs the same: ``"bits"`` (a fault strikes any bit alike), ``"parameters"``
        (any element), ``"tensors"`` or ``"layers"`` (the mean of their factors). Factors of one
        model differ by 20 times between these, so there is no default.
    by
        Columns of the faults or the campaign that tell groups apart. An experiment that hits
        several components is in group ``several``.
    nan_policy
        Outputs that are not finite: ``"wrong"``, ``"due"`` (left to a detector: not wrong) or
        ``"ignore"`` (dropped above and below).
    confidence_level
        Confidence of the intervals.
    beneficial
        Whether a wrong decision that the fault made right is ``"wrong"`` or ``"right"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF`, one row per group, the columns of ``by`` in front.
        Where faults were drawn from a part of a group only (some bits, some layers),
        ``group`` and ``bit_count`` are those of that part, and ``drawn_from`` names it.

    Raises
    ------
    InjectionError
        If a rule does not exist or the tool cannot tell what it needs, if groups by bit hold
        experiments of several flips, or a group mixes campaigns that follow different rules or
        were drawn from parts of it that overlap.
    WorkbenchError
        If confidence_level is not between 0 and 1.

    Notes
    -----
    What was drawn from is what the weights add up to, of the bits and tensors that were hit;
    without weights, bits and tensors that chance would hardly have missed were dropped.

    Faults are weighted by the bits they stand for (``inclusion_weight``):
    PVF = sum(w wrong) / sum(w judged), with the variance of that ratio over sites within strata
    and the interval of Korn and Graubard. It covers 94.5 to 96.4 % where a symmetric t interval
    covers 91.9 to 95.1 % (1,000 sites x 1,000 inputs of four skewed truths). The interval of
    independent trials, beside it, covers 7 to 10 %.

    References
    ----------
    Definition: arXiv:2405.01741. Ratio: W. G. Cochran, Sampling Techniques (1977), chapter 6.
    Interval: E. Korn, B. Graubard, Survey Methodology 24 (1998), 193.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    rules = Rules(average, columns, nan_policy, beneficial, confidence_level)
    if isinstance(injections, ExhaustiveInjections):
        return exact_pvf(injections, rules)
    return _estimated(injections, rules)


def _estimated(injections: Injections | Sequence[Injections], rules: Rules) -> pd.DataFrame:
    campaign, parameters = campaigns(injections), together(injections, "parameters")
    rows = experiments(injections)
    table = grouping.with_columns(rows, campaign, rules.by)
    grouped = groups(table, rules.by, parameters)
    grouping.refuse_mixed(grouped.code, grouped.labels, table["campaign_id"], campaign, rules)
    counts = grouping.wrong_and_judged(table, rules)
    member = grouping.members(table, grouped.code, rules)
    weight, unknown = grouping.weights(table, grouped.code, rules)
    # Rows that stand for no bits, or judged no input, are not sites of the sample.
    inside = weight * counts[1] > 0
    columns = (grouped.code, member, weight, *counts)
    site = clusters(table[inside], *(column[inside] for column in columns))
    estimate = intervals.estimates(site, len(grouped.labels))
    people = parts(drawn_cells(injections, rows), grouped, table["campaign_id"], campaign, rules)
    result = _intervals(estimate, table, grouped, counts, rules).assign(
        bit_count=people.bit_count, drawn_from=people.drawn_from
    )
    exact = _every_fault(result, table, grouped, campaign)
    ends = {name: result["pvf"].where(exact, result[name]) for name in ("low", "high")}
    result = result.assign(**ends, interval=result["interval"].where(~exact, EXACT))
    doubts = _doubts(table, grouped, estimate, campaign, unknown)
    # Where every fault was injected nothing was estimated, so nothing is in doubt.
    doubts = [[] if is_exact else column for column, is_exact in zip(doubts, exact, strict=True)]
    for position, names in enumerate(people.names):
        if names:
            hit = set(table.loc[grouped.code == position, grouping.MEMBERS[rules.average]])
            if text := grouping.never_hit(names, hit, rules.average):
                doubts[position].append(f"{text}; the mean is over the others")
        for name, reason in _LEFT_OUT.items():
            if left := rows.attrs[name]:
                doubts[position].append(f"{left:,} experiments of the campaigns {reason}")
    # The first row speaks for its group: refuse_mixed lets only campaigns of equal rules share one.
    first = np.unique(grouped.code, return_index=True)[1]
    of_group = campaign.set_index("campaign_id").loc[table["campaign_id"].iloc[first]]
    return finished(result, grouped._replace(labels=people.labels), doubts, of_group, rules)


def _intervals(
    estimate: Estimates, table: pd.DataFrame, grouped: Groups, counts: Any, rules: Rules
) -> pd.DataFrame:
    wrong, judged = counts
    size = len(grouped.labels)

    def total(values: Any) -> Any:
        return np.bincount(grouped.code, values, size)

    trials = total(judged)
    low, high, method = intervals.cluster_interval(estimate, trials, rules.confidence_level)
    below, above = wilson(estimate.share, trials, rules.confidence_level)
    # The design effect is the variance over that of as many independent trials.
    independent = estimate.share * (1 - estimate.share) / np.where(trials > 0, trials, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = np.where(independent > 0, estimate.variance / independent, np.nan)
    sites = pd.DataFrame(
        {"group": grouped.code, "site": table["site"].to_numpy(), "event": wrong > 0}
    )
    events = sites[sites["event"]].drop_duplicates(["group", "site"])["group"]
    is_told = total(table["due_count"].isna()) == 0
    due = total(table["due_count"].to_numpy(dtype="float64", na_value=0))
    return pd.DataFrame(
        {
            "pvf": estimate.share,
            "low": low,
            "high": high,
            "independent_low": below,
            "independent_high": above,
            "interval": method,
            "site_count": np.bincount(
                sites.drop_duplicates(["group", "site"])["group"], minlength=size
            ),
            "trial_count": total(table["input_count"]).astype("int64"),
            "event_site_count": np.bincount(events, minlength=size),
            "sdc_count": total(table["sdc_count"].to_numpy(dtype="float64")).astype("int64"),
            "due_count": pd.array(np.where(is_told, due, np.nan), dtype="Int64"),
            "design_effect_ratio": np.where(estimate.cluster_count > 1, effect, np.nan),
        }
    )


def _every_fault(
    result: pd.DataFrame, table: pd.DataFrame, grouped: Groups, campaign: pd.DataFrame
) -> pd.Series:
    design = campaign.set_index("campaign_id")["design"].astype(object)
    sampled = (table["campaign_id"].map(design) != "exhaustive") | (table["flip_count"] != 1)
    is_sampled = np.bincount(grouped.code, sampled.fillna(value=True), len(grouped.labels)) > 0
    return (result["site_count"] == result["bit_count"]) & ~is_sampled


def _doubts(
    table: pd.DataFrame, grouped: Groups, estimate: Estimates, campaign: pd.DataFrame, unknown: Any
) -> list[list[str]]:
    size = len(grouped.labels)
    equal_weights = "the design's weights are not known: every site weighs the same"
    flags = {equal_weights: _unequal(table, grouped, campaign, unknown), **_blind(table, campaign)}
    counts = {text: np.bincount(grouped.code, flag, size) for text, flag in flags.items()}
    doubts = []
    for position in range(size):
        if estimate.cluster_count[position] == 0:
            doubts.append(["no output is left to judge"])
            continue
        texts = intervals.doubts_of_events(estimate, position)
        if lonely := int(estimate.lonely_count[position]):
            texts.append(f"{lonely} sites are the only one of their stratum or member")
        texts += [text for text, count in counts.items() if count[position]]
        doubts.append(texts)
    return doubts


def _unequal(table: pd.DataFrame, grouped: Groups, campaign: pd.DataFrame, unknown: Any) -> Any:
    size = len(grouped.labels)
    design = campaign.set_index("campaign_id")["design"].astype(object)
    is_equal = table["campaign_id"].map(design).isin(_DESIGNS_OF_EQUAL_WEIGHT).to_numpy()
    pairs = pd.DataFrame({"group": grouped.code, "campaign": table["campaign_id"]})
    pairs = pairs.drop_duplicates()
    several = np.bincount(pairs["group"], minlength=size) > 1
    partly = np.bincount(grouped.code, ~unknown, size) > 0
    return unknown & (~is_equal | several[grouped.code] | partly[grouped.code])


def _blind(table: pd.DataFrame, campaign: pd.DataFrame) -> dict[str, Any]:
    policy = campaign.set_index("campaign_id")["nan_policy"].astype(object)
    policy = table["campaign_id"].map(policy)
    unseen = table["due_count"].isna()
    counts = table[["masked_count", "benign_count", "sdc_count", "due_count"]]
    is_split = counts[["masked_count", "benign_count"]].notna().all(axis=1)
    unexplained = is_split & (counts.sum(axis=1) < table["input_count"])
    as_is = policy == "as_is"
    text = "the tool takes outputs that are not finite as they are: some look right"
    return {
        text: (unseen & as_is).to_numpy(dtype=bool),
        "outputs that are not finite are not recorded: they count as right": (
            unseen & ~as_is & (policy != "wrong")
        ).to_numpy(dtype=bool),
        "some outputs are neither masked, benign nor wrong: they count as right": (
            unexplained.to_numpy(dtype=bool)
        ),
    }


def clusters(
    table: pd.DataFrame, group: Any, member: Any, weight: Any, wrong: Any, judged: Any
) -> Clusters:
    """Sum the rows of every site in a group; sites in the order in which they first come.

    ``table`` has ``campaign_id``, ``stratum`` and ``site``. Strata of the same name in two
    campaigns are two strata.
    """
    stratum = pd.factorize(table["stratum"])[0]
    # Strata of the design run through all members; without them every member is one.
    span = np.where(stratum < 0, member, int(member.max(initial=0)) + 1 + group)
    stratum = joint(joint(pd.factorize(table["campaign_id"])[0], stratum), span)
    home = joint(table["site"].to_numpy(), group)
    first = np.flatnonzero(~pd.Series(home).duplicated().to_numpy())
    return Clusters(
        group[first],
        member[first],
        stratum[first],
        np.bincount(home, weight * wrong),
        np.bincount(home, weight * judged),
    )


def exact_pvf(truth: ExhaustiveInjections, rules: Rules) -> pd.DataFrame:
    """Return the factors of a truth; there is nothing to estimate."""
    if strange := [name for name in rules.by if name in ("direction", "stratum")]:
        msg = f"by={strange[0]!r}: the table of all sites does not hold it; group by its place"
        raise InjectionError(msg)
    if rules.beneficial == "right":
        msg = "beneficial='right': the table of all sites does not count them; ask for 'wrong'"
        raise InjectionError(msg)
    inputs = inputs_of(truth)
    table = _with_campaign(cells(truth, rules.nan_policy), truth.campaign, rules)
    grouped = groups(table, rules.by, truth.parameters)
    member = grouping.members(table, grouped.code, rules)
    weight, _ = grouping.weights(table.assign(weight=1.0), grouped.code, rules)
    judged = table["site_count"].to_numpy(dtype=float) * inputs
    if rules.nan_policy == "ignore":
        judged = judged - table["due_count"].to_numpy(dtype=float)
    share = _share(grouped, member, weight * table["wrong_count"].to_numpy(), weight * judged)
    result = _numbers(table, grouped, share, inputs)
    if rules.average not in ("bits", "parameters") or rules.nan_policy == "ignore":
        result["design_effect_ratio"] = np.nan
    people = parts(drawn_cells(truth, table), grouped, table["campaign_id"], truth.campaign, rules)
    result = result.assign(drawn_from=people.drawn_from)
    doubts: list[list[str]] = [[] for _ in grouped.labels]
    for position in np.flatnonzero(np.isnan(share)):
        doubts[position].append("no output is left to judge")
    of_group = truth.campaign.iloc[np.zeros(len(grouped.labels), dtype=int)]
    return finished(result, grouped._replace(labels=people.labels), doubts, of_group, rules)


def _with_campaign(table: pd.DataFrame, campaign: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    row = campaign.iloc[0]
    missing = set(grouping.OF_CAMPAIGN) - set(table)
    more = {name: row[name] for name in rules.by if name in missing}
    flips = {"flip_count": 1, "campaign_id": row["campaign_id"], "exp_id": -1}
    table = table.assign(**{**more, **flips})
    return table.assign(dtype=table["dtype"].fillna(row["dtype"]))


def _share(grouped: Groups, member: Any, wrong: Any, judged: Any) -> Any:
    home = np.zeros(int(member.max(initial=-1)) + 1, dtype=np.int64)
    home[member] = grouped.code
    judged = np.bincount(member, judged)
    ratio = np.bincount(member, wrong)[judged > 0] / judged[judged > 0]
    home = home[judged > 0]
    size = len(grouped.labels)
    with np.errstate(invalid="ignore"):
        return np.bincount(home, ratio, size) / np.bincount(home, minlength=size)


def _numbers(table: pd.DataFrame, grouped: Groups, share: Any, inputs: int) -> pd.DataFrame:
    size = len(grouped.labels)

    def total(name: str) -> Any:
        return np.bincount(grouped.code, table[name].to_numpy(dtype=float), size)

    sites = total("site_count")
    mean = total("wrong_count") / sites / inputs
    variance = total("square") / sites / inputs**2 - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = np.where(mean * (1 - mean) > 0, inputs * variance / (mean * (1 - mean)), np.nan)
    return pd.DataFrame(
        {
            "pvf": share,
            "low": share,
            "high": share,
            "independent_low": np.nan,
            "independent_high": np.nan,
            "interval": "exact",
            "site_count": sites.astype("int64"),
            "trial_count": sites.astype("int64") * inputs,
            "event_site_count": total("event_site_count").astype("int64"),
            "sdc_count": total("sdc_count").astype("int64"),
            "due_count": pd.array(total("due_count").astype("int64"), dtype="Int64"),
            "design_effect_ratio": np.maximum(effect, 0),
            "bit_count": sites,
        }
    )


def finished(
    result: pd.DataFrame,
    grouped: Groups,
    doubts: list[list[str]],
    of_group: pd.DataFrame,
    rules: Rules,
) -> pd.DataFrame:
    """Put names, rules and doubts to the numbers; ``of_group`` has a campaign per group."""
    text = pd.Series([""]).dtype
    result = result.assign(
        group=pd.Series(grouped.labels, dtype=text),
        drawn_from=pd.Series(result["drawn_from"], dtype=text),
        confidence_level=rules.confidence_level,
        is_sure=[not reasons for reasons in doubts],
        doubt=pd.Series(["; ".join(reasons) for reasons in doubts], dtype=text),
        average=pd.Series(rules.average, index=result.index, dtype=text),
        nan_policy=pd.Series(rules.nan_policy, index=result.index, dtype=text),
    )
    for name in ("criterion", "fault_model"):
        values = of_group[name].astype(object)
        result[name] = pd.Series(values.where(values.notna(), None).to_numpy(), dtype=object)
    table = PVF.of(result)
    keys = grouped.keys.reset_index(drop=True)
    table = table[[name for name in table if name not in keys]]
    return PVF.check(pd.concat([keys, table], axis=1))
