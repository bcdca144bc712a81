"""Parameter vulnerability factor: how likely a fault is to give a wrong output, and how sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._pvf.cluster_intervals import (
    EXACT,
    Estimates,
    cluster_interval,
    doubts_of_events,
    estimates,
    wilson_interval,
)
from workbench.analyze._pvf.clusters import clusters
from workbench.analyze._pvf.drawn import drawn_cells
from workbench.analyze._pvf.exact import exact_pvf
from workbench.analyze._pvf.groups import (
    Groups,
    groups,
    members,
    never_hit,
    weights,
    with_columns,
)
from workbench.analyze._pvf.injection_rows import campaigns, experiments, together
from workbench.analyze._pvf.parts import parts
from workbench.analyze._pvf.result import finished
from workbench.analyze._pvf.rules import (
    MEMBERS,
    Average,
    Beneficial,
    NanPolicy,
    Rules,
    refuse_mixed,
    wrong_and_judged,
)
from workbench.tables import ExhaustiveInjections, Injections

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
    level_share: float = 0.95,
    beneficial: Beneficial = "wrong",
) -> pd.DataFrame:
    """Say how likely a fault is to give a wrong output, and how sure that is.

    Faults are the sample, inputs are not: under one fault most inputs go wrong together or
    none does, so 1,000 faults judged on 1,000 inputs each tell about as much as a few thousand
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
    level_share
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
        If level_share is not between 0 and 1.

    Notes
    -----
    What was drawn from is what the weights add up to, of the bits and tensors that were hit;
    without weights, bits and tensors that chance would hardly have missed were left out.

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
    rules = Rules(average, columns, nan_policy, beneficial, level_share)
    if isinstance(injections, ExhaustiveInjections):
        return exact_pvf(injections, rules)
    return _estimated(injections, rules)


def _estimated(injections: Injections | Sequence[Injections], rules: Rules) -> pd.DataFrame:
    """Estimate the factors from a sample of the faults."""
    campaign, parameters = campaigns(injections), together(injections, "parameters")
    rows = experiments(injections)
    table = with_columns(rows, campaign, rules.by)
    found = groups(table, rules.by, parameters)
    refuse_mixed(found.code, found.labels, table["campaign_id"], campaign, rules)
    counts = wrong_and_judged(table, rules)
    member = members(table, found.code, rules)
    weight, unknown = weights(table, found.code, rules)
    inside = weight * counts[1] > 0
    columns = (found.code, member, weight, *counts)
    site = clusters(table[inside], *(each[inside] for each in columns))
    estimate = estimates(site, len(found.labels))
    people = parts(drawn_cells(injections, rows), found, table["campaign_id"], campaign, rules)
    result = _intervals(estimate, table, found, counts, rules).assign(
        bit_count=people.bit_count, drawn_from=people.drawn_from
    )
    exact = _every_fault(result, table, found, campaign)
    ends = {name: result["pvf"].where(exact, result[name]) for name in ("low", "high")}
    result = result.assign(**ends, interval=result["interval"].where(~exact, EXACT))
    doubts = _doubts(table, found, estimate, campaign, unknown)
    doubts = [[] if known else each for each, known in zip(doubts, exact, strict=True)]
    for position, names in enumerate(people.names):
        hit = set(table.loc[found.code == position, MEMBERS[rules.average]]) if names else set()
        if text := never_hit(names, hit, rules.average):
            doubts[position].append(f"{text}; the mean is over the others")
        for name, what in _LEFT_OUT.items():
            if left := rows.attrs[name]:
                doubts[position].append(f"{left:,} experiments of the campaigns {what}")
    first = np.unique(found.code, return_index=True)[1]
    of_group = campaign.set_index("campaign_id").loc[table["campaign_id"].iloc[first]]
    return finished(result, found._replace(labels=people.labels), doubts, of_group, rules)


def _intervals(
    estimate: Estimates, table: pd.DataFrame, found: Groups, counts: Any, rules: Rules
) -> pd.DataFrame:
    """Put estimates, intervals and counts together, one row per group."""
    wrong, judged = counts
    size = len(found.labels)

    def total(values: Any) -> Any:
        return np.bincount(found.code, values, size)

    trials = total(judged)
    low, high, method = cluster_interval(estimate, trials, rules.level_share)
    below, above = wilson_interval(estimate.share, trials, rules.level_share)
    independent = estimate.share * (1 - estimate.share) / np.where(trials > 0, trials, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = np.where(independent > 0, estimate.variance / independent, np.nan)
    sites = pd.DataFrame(
        {"group": found.code, "site": table["site"].to_numpy(), "event": wrong > 0}
    )
    events = sites[sites["event"]].drop_duplicates(["group", "site"])["group"]
    told = total(table["due_count"].isna()) == 0
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
            "due_count": pd.array(np.where(told, due, np.nan), dtype="Int64"),
            "design_effect_ratio": np.where(estimate.cluster_count > 1, effect, np.nan),
        }
    )


def _every_fault(
    result: pd.DataFrame, table: pd.DataFrame, found: Groups, campaign: pd.DataFrame
) -> pd.Series:
    """Say in which groups every single-bit fault was injected, so that nothing is estimated."""
    design = campaign.set_index("campaign_id")["design"].astype(object)
    sampled = (table["campaign_id"].map(design) != "exhaustive") | (table["flip_count"] != 1)
    some = np.bincount(found.code, sampled.fillna(value=True), len(found.labels)) > 0
    return (result["site_count"] == result["bit_count"]) & ~some


def _doubts(
    table: pd.DataFrame, found: Groups, estimate: Estimates, campaign: pd.DataFrame, unknown: Any
) -> list[list[str]]:
    """List per group why its interval, or its estimate, may not hold."""
    size = len(found.labels)
    flags = {
        "the design's weights are not known: every site weighs the same": _unequal(
            table, found, campaign, unknown
        ),
        **_blind(table, campaign),
    }
    counts = {text: np.bincount(found.code, flag, size) for text, flag in flags.items()}
    doubts = []
    for position in range(size):
        if estimate.cluster_count[position] == 0:
            doubts.append(["no output is left to judge"])
            continue
        texts = doubts_of_events(estimate, position)
        if lonely := int(estimate.lonely_count[position]):
            texts.append(f"{lonely} sites are the only one of their stratum or member")
        texts += [text for text, count in counts.items() if count[position]]
        doubts.append(texts)
    return doubts


def _unequal(table: pd.DataFrame, found: Groups, campaign: pd.DataFrame, unknown: Any) -> Any:
    """Flag experiments that weigh the same for want of weights, though their designs differ."""
    size = len(found.labels)
    design = campaign.set_index("campaign_id")["design"].astype(object)
    is_equal = table["campaign_id"].map(design).isin(_DESIGNS_OF_EQUAL_WEIGHT).to_numpy()
    pairs = pd.DataFrame({"group": found.code, "campaign": table["campaign_id"]}).drop_duplicates()
    several = np.bincount(pairs["group"], minlength=size) > 1
    partly = np.bincount(found.code, ~unknown, size) > 0
    return unknown & (~is_equal | several[found.code] | partly[found.code])


def _blind(table: pd.DataFrame, campaign: pd.DataFrame) -> dict[str, Any]:
    """Flag experiments of which not all that went wrong is told."""
    policy = campaign.set_index("campaign_id")["nan_policy"].astype(object)
    policy = table["campaign_id"].map(policy)
    unseen = table["due_count"].isna()
    counts = table[["masked_count", "benign_count", "sdc_count", "due_count"]]
    told = counts[["masked_count", "benign_count"]].notna().all(axis=1)
    rest = told & (counts.sum(axis=1) < table["input_count"])
    as_is = policy == "as_is"
    text = "the tool takes outputs that are not finite as they are: some look right"
    return {
        text: (unseen & as_is).to_numpy(dtype=bool),
        "outputs that are not finite are not told: they are taken for right": (
            unseen & ~as_is & (policy != "wrong")
        ).to_numpy(dtype=bool),
        "some outputs are neither masked, benign nor wrong: they are taken for right": (
            rest.to_numpy(dtype=bool)
        ),
    }
