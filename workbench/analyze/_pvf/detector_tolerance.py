"""What a detector catches, and how often it cries wolf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workbench._numbers import not_negative
from workbench.analyze._pvf.cluster_intervals import cluster_interval, estimates, wilson_interval
from workbench.analyze._pvf.clusters import clusters
from workbench.analyze._pvf.groups import groups, refuse_half_weighted, weights, with_columns
from workbench.analyze._pvf.injection_rows import campaigns, experiments, joint, together
from workbench.analyze._pvf.parts import with_parts
from workbench.analyze._pvf.rules import Rules, refuse_mixed
from workbench.errors import InjectionError
from workbench.tables import DETECTED_SHARES, DETECTOR_TOLERANCE, DETECTOR_TRIALS, Injections

_LEVEL = 0.95
_PREFIX, _SUFFIX = "detected_", "_count"


def detector_tolerance(trials: pd.DataFrame, *, tolerances: Sequence[float]) -> pd.DataFrame:
    """Say what a detector catches and how often it cries wolf, by its tolerance.

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
    level_share: float = 0.95,
) -> pd.DataFrame:
    """Say how often the detectors of a campaign raised an alarm.

    Parameters
    ----------
    injections
        Campaigns whose outcomes have columns ``detected_<detector>_count``.
    by
        Columns that tell groups apart, as for :func:`pvf`.
    level_share
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
        If level_share is not between 0 and 1.

    Notes
    -----
    Counts do not tell whether the alarm came for the inputs that went wrong.
    ``caught_site_share`` therefore counts sites: of those with any wrong output, the share
    with any alarm. Experiments that a detector did not watch are left out.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    rules = Rules("bits", columns, level_share=level_share)
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
    low, high, _ = cluster_interval(found, trials, rules.level_share)
    event, alarm = np.bincount(home, wrong) > 0, np.bincount(home, alarms) > 0
    events = np.bincount(at, event, size)
    caught = np.bincount(at, event & alarm, size) / np.where(events > 0, events, np.nan)
    below, above = wilson_interval(caught, events, rules.level_share)
    return pd.DataFrame(
        {"site_count": np.bincount(at, minlength=size), "trial_count": trials.astype("int64"),
         "alarm_share": found.share, "alarm_low": low, "alarm_high": high,
         "event_site_count": events.astype("int64"), "caught_site_share": caught,
         "caught_low": below, "caught_high": above}
    )  # fmt: skip
