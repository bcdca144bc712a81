"""When to stop injecting: the estimate as sites come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy

from workbench._shared.fixed_injections import is_enough
from workbench._shared.numbers import not_negative, positive, share_between, whole_number, wilson
from workbench.analyze._pvf import cluster_intervals as intervals
from workbench.analyze._pvf.allocation import site_shares
from workbench.analyze._pvf.groups import Rules, groups, rules_told
from workbench.analyze._pvf.injection_rows import campaigns, together
from workbench.analyze._pvf.parts import drawn_cells, parts
from workbench.errors import InjectionError
from workbench.tables import DETECTOR_TOLERANCE, DETECTOR_TRIALS, PVF_RUNNING, Injections

# Weights of one design differ by rounding at most.
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
        deed = "was judged" if component is None else f"hit component={component!r}"
        msg = f"no experiment {deed}"
        raise InjectionError(msg)
    _refuse_unequal(sites)
    wrong, counts = (sites[name].to_numpy(dtype=float) for name in ("wrong", "judged"))
    at = np.unique(np.append(np.arange(step, len(sites), step), len(sites)))
    trials = np.cumsum(counts)[at - 1]
    looks = intervals.running_intervals(wrong, counts, at, trials, confidence_level)
    by = Rules("bits", () if component is None else ("component",))
    grouped = groups(sites, by.by, together(injections, "parameters"))
    campaign, drawn = campaigns(injections), drawn_cells(injections, judged)
    label = parts(drawn, grouped, sites["campaign_id"], campaign, by).labels[0]
    by_campaign = campaign.set_index("campaign_id")
    rules = rules_told(by_campaign.loc[sites["campaign_id"].iloc[0]])
    enough = is_enough(looks, relative_error)
    return PVF_RUNNING.of(looks.assign(group=label, is_enough=enough, **rules))


# A part of sites that were not drawn alike would be no sample.
def _refuse_unequal(sites: pd.DataFrame) -> None:
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


_LEVEL = 0.95


def detector_tolerance(trials: pd.DataFrame, *, tolerances: Sequence[float]) -> pd.DataFrame:
    """Compute the detected share and the false-alarm rate of a detector, by its tolerance.

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
        {"detector": detector, "place": hit_place, "tolerance": tolerance}
        | _caught(faulty["residual"].to_numpy(), tolerance)
        | _alarms(clean.loc[clean["detector"] == detector, "residual"].to_numpy(), tolerance)
        for (detector, hit_place), faulty in hit.groupby(["detector", "place"], sort=False)
        for tolerance in sorted(levels)
    ]
    return DETECTOR_TOLERANCE.of(rows)


def _caught(residual: Any, tolerance: float) -> dict[str, float]:
    share = float(np.mean(~(residual <= tolerance)))
    low, high = wilson(share, len(residual), _LEVEL)
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
    # Not >: a residual that is not a number has to count as an alarm.
    alarms = int((~(clean <= tolerance)).sum())
    # Clopper-Pearson, one-sided: it says something even without any alarm.
    high = (
        float(scipy.stats.beta.ppf(_LEVEL, alarms + 1, count - alarms)) if alarms < count else 1.0
    )
    return {"clean_count": count, "false_alarm_share": alarms / count, "false_alarm_high": high}
