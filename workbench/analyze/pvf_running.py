"""When to stop injecting: the estimate as sites come in."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import whole_number
from workbench.analyze._cluster_intervals import (
    Estimates,
    cluster_interval,
    level,
    wilson_interval,
)
from workbench.analyze._strata import site_shares
from workbench.errors import InjectionError
from workbench.tables import PVF_RUNNING, Injections

_CLOSE = 1e-6


def pvf_running(
    injections: Injections,
    *,
    component: str | None = None,
    every: int = 500,
    relative_error: float = 0.2,
    level_share: float = 0.95,
) -> pd.DataFrame:
    """Follow the estimate while experiments come in, and say when it is good enough.

    Parameters
    ----------
    injections
        One campaign whose sites were drawn alike.
    component
        Part of the model; all of it if left out.
    every
        Sites between two looks.
    relative_error
        Wanted: half the width of the interval over the estimate.
    level_share
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

    Notes
    -----
    Intervals as in :func:`pvf`, outputs that are not finite count as wrong. Looking again and
    again until the interval is narrow costs little coverage here (95.6 % at factors about 0.7 %
    and one input per site), but the wanted width has to be fixed before.
    """
    step = whole_number("every", every, least=1)
    level(level_share)
    if not relative_error > 0:
        msg = f"relative_error must be above 0, e.g. 0.2, not {relative_error!r}"
        raise InjectionError(msg)
    sites = site_shares(injections)
    if component is not None:
        sites = sites[sites["component"] == component]
    if sites.empty:
        what = "was judged" if component is None else f"hit component={component!r}"
        msg = f"no experiment {what}"
        raise InjectionError(msg)
    _refuse_unequal(sites)
    return _looks(sites, step, relative_error, level_share)


def _refuse_unequal(sites: pd.DataFrame) -> None:
    """Refuse sites that were not drawn alike: a part of them would be no sample."""
    names, strata = sites["campaign_id"].nunique(), sites["stratum"].nunique()
    weights = sites["weight_each"].to_numpy(dtype=float)
    unequal = np.ptp(weights) > _CLOSE * weights.max() if not np.isnan(weights).any() else False
    if names > 1 or strata > 1 or unequal:
        msg = (
            f"{names} campaigns, {max(strata, 1)} strata and weights that "
            f"{'differ' if unequal else 'do not tell'}: stopping early needs one campaign whose "
            "sites were drawn alike, in the order of its experiments"
        )
        raise InjectionError(msg)


def _looks(
    sites: pd.DataFrame, step: int, relative_error: float, level_share: float
) -> pd.DataFrame:
    wrong, judged = (sites[name].to_numpy(dtype=float) for name in ("wrong", "judged"))
    looks = np.unique(np.append(np.arange(step, len(sites), step), len(sites)))
    at = looks - 1
    total, trials = np.cumsum(wrong)[at], np.cumsum(judged)[at]
    share = total / trials
    # Sum of (wrong - share judged)**2 by its three parts: the share is another at every look.
    square = (
        np.cumsum(wrong**2)[at]
        - 2 * share * np.cumsum(wrong * judged)[at]
        + share**2 * np.cumsum(judged**2)[at]
    )
    free = np.maximum(looks - 1.0, 1.0)
    variance = np.maximum(square, 0) * looks / free / trials**2
    events = np.cumsum(wrong > 0)[at]
    many = looks.astype(float)
    found = Estimates(share, variance, free, many, events, events, many, np.zeros(len(looks)))
    low, high, _ = cluster_interval(found, trials, level_share)
    below, above = wilson_interval(share, trials, level_share)
    table = pd.DataFrame(
        {"site_count": looks, "pvf": share, "low": low, "high": high, "independent_low": below,
         "independent_high": above, "event_site_count": events,
         "is_enough": (share > 0) & ((high - low) / 2 < relative_error * share)}
    )  # fmt: skip
    return PVF_RUNNING.check(PVF_RUNNING.cast(table))
