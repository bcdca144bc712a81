"""Intervals of a share whose trials come in clusters: the sites of faults are the sample."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.numbers import wilson

Floats: TypeAlias = NDArray[Any]
Codes: TypeAlias = NDArray[Any]

KORN_GRAUBARD = "Korn-Graubard"
RULE_OF_THREE = "rule of three"
EXACT = "exact"


class Clusters(NamedTuple):
    """Clusters of trials, one entry each; every trial is weighted as its design asks."""

    group: Codes
    """Code of the group, 0 .. groups - 1."""
    member: Codes
    """Code of what weighs the same in its group; a member is in one group."""
    stratum: Codes
    """Code of the stratum; a stratum is in one group."""
    wrong: Floats
    """Weighted trials that were wrong."""
    judged: Floats
    """Weighted trials; above 0."""


class Estimates(NamedTuple):
    """Statistics of the clusters of each group; missing where a group has none."""

    share: Floats
    variance: Floats
    freedom: Floats
    """Degrees of freedom of the variance."""
    cluster_count: Floats
    event_count: Floats
    """Clusters with any event; of the rarer of the two outcomes where most trials are wrong."""
    effective_event_count: Floats
    """As many clusters of equal size would tell as much."""
    effective_cluster_count: Floats
    lonely_count: Floats
    """Clusters that are the only one of their stratum."""


def estimates(clusters: Clusters, group_count: int) -> Estimates:
    """Estimate the share of every group as the mean of its members' ratios.

    Notes
    -----
    Member t has the ratio r_t = sum(wrong) / sum(judged), a group the mean of its T members.
    With z = (wrong - r_t judged) / (T sum(judged)) per cluster, the variance is the sum over
    strata of n / (n - 1) sum (z - mean z)**2 (Taylor linearisation). The only cluster of a
    stratum or member is compared with the group's share instead, which is on the safe side.
    Degrees of freedom after Satterthwaite. With one member, no weights and clusters of equal
    size this is the mean of the clusters' shares and its variance s**2 / n; with several
    members, each its own stratum, it is the sum of their variances over T**2.
    """
    group, member, stratum, wrong, judged = clusters
    member_judged = np.bincount(member, judged)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.bincount(member, wrong) / member_judged
        home = np.zeros(len(member_judged), dtype=np.int64)
        home[member] = group
        present = np.bincount(member) > 0
        members = np.bincount(home[present], minlength=group_count)
        share = np.bincount(home[present], ratio[present], minlength=group_count) / members
    own = np.bincount(member)[member]
    # One cluster has no spread around its own mean.
    lonely = (np.bincount(stratum)[stratum] == 1) | (own == 1)
    centre = np.where(lonely, share[group], ratio[member])
    z = (wrong - centre * judged) / (member_judged[member] * members[group])
    if _spans(stratum, member):
        z = z * np.sqrt(own / np.maximum(own - 1, 1))
    variance, freedom = _variance(z, stratum, group, group_count)
    # Intervals fail for lack of the rarer outcome, whichever it is.
    rare = np.where(share[group] > 0.5, judged - wrong, wrong)
    return Estimates(
        np.clip(share, 0, 1),
        variance,
        freedom,
        np.bincount(group, minlength=group_count).astype(float),
        np.bincount(group, rare > 0, minlength=group_count),
        _kish(rare, group, group_count),
        _kish(judged / (member_judged[member] * members[group]), group, group_count),
        np.bincount(group, lonely, minlength=group_count),
    )


def running_estimates(wrong: Floats, judged: Floats, looks: Codes) -> Estimates:
    """Estimate the share after each number of clusters, as they come; they weigh the same."""
    at = looks - 1
    trials = np.cumsum(judged)[at]
    share = np.cumsum(wrong)[at] / trials
    # Sum of (wrong - share judged)**2 by its three parts: the share is another at every look.
    square = (
        np.cumsum(wrong**2)[at]
        - 2 * share * np.cumsum(wrong * judged)[at]
        + share**2 * np.cumsum(judged**2)[at]
    )
    free = np.maximum(looks - 1.0, 1.0)
    variance = np.maximum(square, 0) * looks / free / trials**2
    events = np.cumsum(wrong > 0)[at]
    clusters = looks.astype(float)
    return Estimates(
        share, variance, free, clusters, events, events, clusters, np.zeros(len(looks))
    )


def running_intervals(
    wrong: Floats, judged: Floats, looks: Codes, trials: Floats, confidence_level: float
) -> pd.DataFrame:
    """Return share, intervals and sites with events after each number of sites, or of trials."""
    estimate = running_estimates(wrong, judged, looks)
    low, high, _ = cluster_interval(estimate, trials, confidence_level)
    below, above = wilson(estimate.share, trials, confidence_level)
    return pd.DataFrame(
        {"site_count": looks, "pvf": estimate.share, "low": low, "high": high,
         "independent_low": below, "independent_high": above,
         "event_site_count": estimate.event_count}
    )  # fmt: skip


def _spans(stratum: Codes, member: Codes) -> bool:
    home = np.zeros(int(stratum.max(initial=-1)) + 1, dtype=np.int64)
    home[stratum] = member
    return bool((home[stratum] != member).any())


def _kish(size: Floats, group: Codes, group_count: int) -> Floats:
    """Count entries of equal size that would tell as much as these."""
    total = np.bincount(group, size, minlength=group_count)
    square = np.bincount(group, size**2, minlength=group_count)
    return np.divide(total**2, square, out=np.zeros(group_count), where=square > 0)


def _variance(z: Floats, stratum: Codes, group: Codes, group_count: int) -> tuple[Floats, Floats]:
    size = np.bincount(stratum)
    mean = np.bincount(stratum, z) / np.maximum(size, 1)
    deviation = np.where(size[stratum] > 1, z - mean[stratum], z)
    terms = np.bincount(stratum, deviation**2) * size / np.maximum(size - 1, 1)
    home = np.zeros(len(size), dtype=np.int64)
    home[stratum] = group
    variance = np.bincount(home, terms, minlength=group_count)
    spread = np.bincount(home, terms**2 / np.maximum(size - 1, 1), minlength=group_count)
    plain = np.maximum(np.bincount(home, np.maximum(size - 1, 0), minlength=group_count), 1)
    freedom = np.divide(variance**2, spread, out=plain.astype(float), where=spread > 0)
    return variance, np.maximum(freedom, 1.0)


def cluster_interval(
    estimate: Estimates, trial_count: Floats, confidence_level: float
) -> tuple[Floats, Floats, NDArray[Any]]:
    """Return the ends of the interval of every group, and how they were found.

    Notes
    -----
    Korn and Graubard: the exact binomial interval of n trials with n p events, where
    n = p (1 - p) / variance (z / t)**2 is how many independent trials would have the same
    variance, no more than there were. With one trial per cluster this is the interval of Clopper
    and Pearson. Where nothing or everything is wrong there is no variance; then the upper
    (lower) end is the one-sided exact one of as many trials as there are clusters. One cluster
    has no interval.
    """
    share, variance = estimate.share, estimate.variance
    tail = (1 - confidence_level) / 2
    ratio = scipy.stats.norm.isf(tail) / scipy.stats.t.isf(tail, estimate.freedom)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Never more than the trials there were: a variance that chance made small proves nothing.
        count = np.fmin(share * (1 - share) / variance * ratio**2, trial_count)
    low, high = binomial_interval(share * count, count, confidence_level)
    # expm1 and log1p keep the digits of 1 - (1 - confidence)**(1/n), which is near 0 for large n.
    one_sided = -np.expm1(
        np.log1p(-confidence_level) / np.maximum(estimate.effective_cluster_count, 1)
    )
    none, all_wrong = share <= 0, share >= 1
    low = np.where(none, 0.0, np.where(all_wrong, 1 - one_sided, low))
    high = np.where(all_wrong, 1.0, np.where(none, one_sided, high))
    # One cluster has no variance; ~(> 1) also catches the missing count of an empty group.
    unknown = ~(estimate.cluster_count > 1)
    low, high = (np.where(unknown, np.nan, end) for end in (low, high))
    method = np.where(none | all_wrong, RULE_OF_THREE, KORN_GRAUBARD).astype(object)
    return np.minimum(low, share), np.maximum(high, share), np.where(unknown, "none", method)


def binomial_interval(events: Any, trials: Any, confidence_level: float) -> tuple[Floats, Floats]:
    """Return the Clopper-Pearson interval; counts may be fractions, as effective ones are."""
    # binomtest(...).proportion_ci takes whole counts only; effective counts are fractions.
    tail = (1 - confidence_level) / 2
    events, trials = np.asarray(events, dtype=float), np.asarray(trials, dtype=float)
    non_events = np.maximum(trials - events, 0)
    low = scipy.stats.beta.ppf(tail, np.where(events > 0, events, 1), non_events + 1)
    high = scipy.stats.beta.isf(tail, events + 1, np.where(non_events > 0, non_events, 1))
    return np.where(events > 0, low, 0.0), np.where(non_events > 0, high, 1.0)


# Bounds of doubts_of_events, measured on all faults of a DLRM.
_EVENTS = 10
_UNEQUAL_EVENTS = 100
_UNEQUAL = 0.4


def doubts_of_events(estimate: Estimates, position: int) -> list[str]:
    """List reasons why the interval of a group may not hold, judged by the clusters with events.

    Notes
    -----
    An interval can only know the clusters it saw. Measured on all faults of a DLRM: it covers
    95 % from 10 clusters with events on where these are alike, and from about 100 on where a few
    of them hold most of the events; below, the rare bad cluster is mostly unseen and the
    estimate too low.
    """
    clusters = int(estimate.cluster_count[position])
    if clusters == 1:
        return ["a single site gives no interval"]
    events = int(estimate.event_count[position])
    effective = float(estimate.effective_event_count[position])
    if events >= _EVENTS and effective >= _EVENTS:
        if events >= _UNEQUAL_EVENTS or effective >= _UNEQUAL * events:
            return []
        return [
            f"a few of the {events} sites with events hold most of them (as good as "
            f"{effective:.0f} alike), so worse ones may be unseen: inject more, by stratum"
        ]
    if events >= _EVENTS:
        return [
            f"the {events} sites with events tell no more than {effective:.1f} alike would, "
            f"fewer than {_EVENTS}: worse ones may be unseen"
        ]
    outcome = "events" if not estimate.share[position] > 0.5 else "right outputs"
    return [
        f"{events} of {clusters:,} sites have {outcome}, fewer than {_EVENTS}: inject more sites"
    ]
