"""When to stop injecting: the estimate as sites come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workbench._numbers import not_negative, positive, share_between, whole_number
from workbench.analyze._pvf.allocation import site_shares
from workbench.analyze._pvf.cluster_intervals import (
    cluster_interval,
    estimates,
    running_estimates,
    wilson_interval,
)
from workbench.analyze._pvf.estimates import clusters
from workbench.analyze._pvf.groups import (
    Rules,
    groups,
    refuse_half_weighted,
    refuse_mixed,
    rules_told,
    weights,
    with_columns,
)
from workbench.analyze._pvf.injection_rows import campaigns, experiments, joint, together
from workbench.analyze._pvf.parts import drawn_cells, parts, with_parts
from workbench.errors import InjectionError
from workbench.tables import (
    DETECTED_SHARES,
    DETECTOR_TOLERANCE,
    DETECTOR_TRIALS,
    PVF_RUNNING,
    Injections,
)

_CLOSE = 1e-6


def pvf_running(
    injections: Injections,
    *,
    component: str | None = None,
    every: int = 500,
    relative_error: float = 0.2,
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Follow the estimate while experiments come in, and say when it is good enough.

    Parameters
    ----------
    injections
        One campaign whose sites were drawn alike.
    component
        Part of the model; all of it if dropped.
    every
        Sites between two looks.
    relative_error
        Wanted: half the width of the interval over the estimate.
    confidence_level
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF_RUNNING`, one row per look, in the order of ``exp_id``;
        the last one at the end of the campaign.

    Raises
    ------
    InjectionError
        If the sites were not drawn alike, or the component was not hit.
    WorkbenchError
        If a number is out of range.

    Notes
    -----
    Intervals as in :func:`pvf`, outputs that are not finite count as wrong. Looking again and
    again until the interval is narrow costs little coverage here (95.6 % at factors about 0.7 %
    and one input per site), but the wanted width has to be fixed before.
    """
    step = whole_number("every", every, least=1)
    share_between("confidence_level", confidence_level)
    positive("relative_error", relative_error)
    judged = sites = site_shares(injections)
    if component is not None:
        sites = sites[sites["component"] == component]
    if sites.empty:
        what = "was judged" if component is None else f"hit component={component!r}"
        msg = f"no experiment {what}"
        raise InjectionError(msg)
    _refuse_unequal(sites)
    looks = _looks(sites, step, relative_error, confidence_level)
    by = Rules("bits", () if component is None else ("component",))
    found = groups(sites, by.by, together(injections, "parameters"))
    campaign, drawn = campaigns(injections), drawn_cells(injections, judged)
    label = parts(drawn, found, sites["campaign_id"], campaign, by).labels[0]
    known = campaign.set_index("campaign_id")
    rules = rules_told(known.loc[sites["campaign_id"].iloc[0]])
    return PVF_RUNNING.check(PVF_RUNNING.cast(looks.assign(group=label, **rules)))


def _refuse_unequal(sites: pd.DataFrame) -> None:
    """Refuse sites that were not drawn alike: a part of them would be no sample."""
    names, strata = sites["campaign_id"].nunique(), sites["stratum"].nunique()
    weights = sites["weight_each"].to_numpy(dtype=float)
    unequal = np.ptp(weights) > _CLOSE * weights.max() if not np.isnan(weights).any() else False
    why = [f"{names} campaigns"] if names > 1 else []
    why += [f"{strata} strata"] if strata > 1 else []
    why += ["weights that differ"] if unequal else []
    if why:
        msg = (
            f"{' and '.join(why)}: stopping early needs one campaign whose sites were drawn "
            "alike, in the order of its experiments"
        )
        raise InjectionError(msg)


def _looks(
    sites: pd.DataFrame, step: int, relative_error: float, confidence_level: float
) -> pd.DataFrame:
    wrong, judged = (sites[name].to_numpy(dtype=float) for name in ("wrong", "judged"))
    looks = np.unique(np.append(np.arange(step, len(sites), step), len(sites)))
    trials = np.cumsum(judged)[looks - 1]
    found = running_estimates(wrong, judged, looks)
    share = found.share
    low, high, _ = cluster_interval(found, trials, confidence_level)
    below, above = wilson_interval(share, trials, confidence_level)
    return pd.DataFrame(
        {"site_count": looks, "pvf": share, "low": low, "high": high, "independent_low": below,
         "independent_high": above, "event_site_count": found.event_count,
         "is_enough": (share > 0) & ((high - low) / 2 < relative_error * share)}
    )  # fmt: skip


# What a detector catches, and its false-alarm rate.

_LEVEL = 0.95
_PREFIX, _SUFFIX = "detected_", "_count"


def detector_tolerance(trials: pd.DataFrame, *, tolerances: Sequence[float]) -> pd.DataFrame:
    """Say what a detector catches and its false-alarm rate, by its tolerance.

    Parameters
    ----------
    trials
        Table :data:`workbench.tables.DETECTOR_TRIALS`.
    tolerances
        Residuals above which it raises an alarm.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DETECTOR_TOLERANCE`, by detector, place and tolerance.

    Raises
    ------
    InjectionError
        If there is no tolerance.
    WorkbenchError
        If a tolerance is negative or not finite.

    Notes
    -----
    Only faults that changed the output can be detected. ``detected_low`` and ``detected_high``
    are Wilson's 95 % interval; ``false_alarm_high`` is the exact one-sided 95 % bound, over all
    checks of the detector without a fault. A residual that is not a number is an alarm.
    """
    DETECTOR_TRIALS.check(trials)
    levels = [not_negative("tolerances", value) for value in tolerances]
    if not levels:
        msg = "tolerances=[] must be one or more numbers from 0"
        raise InjectionError(msg)
    clean = trials[~trials["is_faulty"]]
    hit = trials[trials["is_faulty"] & trials["is_effective"]]
    rows = [
        {"detector": detector, "place": place, "tolerance": tolerance}
        | _caught(part["residual"].to_numpy(), tolerance)
        | _alarms(clean.loc[clean["detector"] == detector, "residual"].to_numpy(), tolerance)
        for (detector, place), part in hit.groupby(["detector", "place"], sort=False)
        for tolerance in sorted(levels)
    ]
    table = pd.DataFrame(rows, columns=list(DETECTOR_TOLERANCE.columns))
    return DETECTOR_TOLERANCE.check(DETECTOR_TOLERANCE.cast(table))


def _caught(residual: Any, tolerance: float) -> dict[str, float]:
    share = float(np.mean(~(residual <= tolerance)))
    low, high = wilson_interval(share, len(residual), _LEVEL)
    return {
        "fault_count": len(residual),
        "detected_share": share,
        "detected_low": float(low),
        "detected_high": float(high),
    }


def _alarms(clean: Any, tolerance: float) -> dict[str, float]:
    if len(clean) == 0:
        return {"clean_count": 0, "false_alarm_share": np.nan, "false_alarm_high": np.nan}
    count = len(clean)
    alarms = int((~(clean <= tolerance)).sum())
    high = float(stats.beta.ppf(_LEVEL, alarms + 1, count - alarms)) if alarms < count else 1.0
    return {"clean_count": count, "false_alarm_share": alarms / count, "false_alarm_high": high}


def detected_shares(
    injections: Injections | Sequence[Injections],
    *,
    by: str | Sequence[str] = ("component",),
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Say how often the detectors of a campaign raised an alarm.

    Parameters
    ----------
    injections
        Campaigns whose outcomes have columns ``detected_<detector>_count``.
    by
        Columns that tell groups apart, as for :func:`pvf`.
    confidence_level
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DETECTED_SHARES`, by group and detector.

    Raises
    ------
    InjectionError
        If no detector was attached, or it counts more alarms than inputs.
    WorkbenchError
        If confidence_level is not between 0 and 1.

    Notes
    -----
    Counts do not tell whether the alarm came for the inputs that went wrong.
    ``caught_site_share`` therefore counts sites: of those with any wrong output, the share
    with any alarm. Experiments that a detector did not watch are dropped.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    rules = Rules("bits", columns, confidence_level=confidence_level)
    campaign = campaigns(injections)
    table = with_columns(experiments(injections), campaign, columns)
    names = [c for c in map(str, table) if c.startswith(_PREFIX) and c.endswith(_SUFFIX)]
    if not names:
        msg = "no column detected_<detector>_count: no detector was attached to these campaigns"
        raise InjectionError(msg)
    parameters = together(injections, "parameters")
    parts = []
    for name in names:
        watched = table[table[name].notna()].reset_index(drop=True)
        found = groups(watched, columns, parameters)
        refuse_half_weighted(watched, found.code, found.labels)
        refuse_mixed(found.code, found.labels, watched["campaign_id"], campaign, rules)
        found = with_parts(injections, watched, found, campaign, rules)
        part = _shares(watched, found.code, len(found.labels), (name, rules))
        parts.append(part.assign(group=found.labels, detector=name[len(_PREFIX) : -len(_SUFFIX)]))
    result = pd.concat(parts, ignore_index=True)
    return DETECTED_SHARES.check(DETECTED_SHARES.cast(result))


def _shares(table: pd.DataFrame, group: Any, size: int, what: tuple[str, Rules]) -> pd.DataFrame:
    name, rules = what
    weight, _ = weights(table, group, rules)
    alarms, inputs = (table[c].to_numpy(dtype=float) for c in (name, "input_count"))
    if (alarms > inputs).any():
        row = table.iloc[int((alarms > inputs).argmax())]
        msg = f"experiment {row['exp_id']} counts more alarms ({name}) than inputs"
        raise InjectionError(msg)
    wrong = table["sdc_count"].to_numpy(dtype=float)
    wrong = wrong + table["due_count"].to_numpy(dtype="float64", na_value=0)
    site = clusters(table, group, group, weight, alarms, inputs)
    at, home = site.group, joint(table["site"].to_numpy(), group)
    found = estimates(site, size)
    trials = np.bincount(group, inputs, size)
    low, high, _ = cluster_interval(found, trials, rules.confidence_level)
    event, alarm = np.bincount(home, wrong) > 0, np.bincount(home, alarms) > 0
    events = np.bincount(at, event, size)
    caught = np.bincount(at, event & alarm, size) / np.where(events > 0, events, np.nan)
    below, above = wilson_interval(caught, events, rules.confidence_level)
    return pd.DataFrame(
        {"site_count": np.bincount(at, minlength=size), "trial_count": trials.astype("int64"),
         "alarm_share": found.share, "alarm_low": low, "alarm_high": high,
         "event_site_count": events.astype("int64"), "caught_site_share": caught,
         "caught_low": below, "caught_high": above}
    )  # fmt: skip
