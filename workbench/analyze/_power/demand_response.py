"""Cost of limiting a feed to a level, and how many more machines the feeds would support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats, positive
from workbench.analyze._power.management import Case, FeedShortage, PowerPolicy
from workbench.errors import WorkbenchError
from workbench.tables import DEMAND_RESPONSE, OVERSUBSCRIPTION

_ROUNDING = 1e-9
_SECOND_PER_MIN, _J_PER_WH = 60.0, 3600.0


def demand_response(
    loads: pd.DataFrame,
    topology: pd.DataFrame,
    *,
    shed_shares: Sequence[float] = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    duration_min: float = 15.0,
    entity: str | None = None,
    policies: Sequence[PowerPolicy] = ("cost", "priority", "slack"),
) -> pd.DataFrame:
    """Compute the cost of limiting a feed to a share of its peak for some minutes.

    Energy that is not drawn is not all saved: the work that was not done draws power later.

    Parameters
    ----------
    loads, topology
        As for :func:`workbench.analyze.power_management`.
    shed_shares
        Shares of the peak of the feed's demand that must not be drawn, from 0 to 1.
    duration_min
        How long the feed is held to the rest, in minutes.
    entity
        Feed that is held; the root by default.
    policies
        Who is cut first, as in :func:`workbench.analyze.power_management`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DEMAND_RESPONSE`, by policy and share, as if it could begin
        at any instant of the loads: means over them. ``is_reached`` says whether it works
        without cutting anybody below the floor.

    Raises
    ------
    WorkbenchError
        If an option makes no sense, or loads and topology do not fit.

    Notes
    -----
    A job loses the speed of its slowest load, so ``lost GPU-hours = sum over jobs of GPUs x
    slowdown x time``. To catch up, the job runs so much longer at its mean power; demand is
    taken as the same without the event. Limits of other feeds hold as well, and what they cost by
    themselves is in every row.

    Examples
    --------
    >>> from workbench import simulate
    >>> table = demand_response(*simulate.power_loads(), shed_shares=[0.1], policies=["cost"])
    >>> bool(table["is_reached"].all())
    True
    """
    positive("duration_min", duration_min)
    if not len(shed_shares) or not len(policies):
        msg = "shed_shares and policies need a value each, e.g. shed_shares=[0.1]"
        raise WorkbenchError(msg)
    case = Case.of(loads, topology)
    name = str(case.fed.names[case.position(entity)])
    rows = []
    for policy in policies:
        for share in shed_shares:
            limits = case.limits(FeedShortage(share, name))
            row = _response(case, limits, policy, name)
            rows.append(row | {"policy": policy, "shed_share": share})
    seconds = duration_min * _SECOND_PER_MIN
    table = pd.DataFrame(rows).assign(
        entity=name, duration_min=duration_min, doubt="; ".join(case.doubts)
    )
    # Above are means per second.
    for column in ("lost_step_count", "lost_gpu_h", "saved_j", "catch_up_j"):
        table[column] = table[column] * seconds
    return DEMAND_RESPONSE.of(table.assign(lost_gpu_h=table["lost_gpu_h"] / _J_PER_WH))


def _response(case: Case, limits: Floats, policy: str, name: str) -> dict[str, Any]:
    at = case.position(name)
    cut = case.cuts(policy, limits)
    slowdown, below = _outcome(case, cut)
    lost = slowdown.mean(axis=1)
    step_s = np.full(len(lost), np.nan)
    step_s[case.job] = case.step_s
    largest = int(np.where(step_s > 0, case.job_gpus, 0).argmax())
    # What catching up takes is the power of the whole job for as long as it was behind.
    late = case.demand[:, case.is_known] * slowdown[case.job]
    drawn, again = case.drawn(cut)[:, case.is_known], case.drawn(late)
    return {
        "level_w": limits[at].min(),
        "reduced_w": drawn[at].mean(),
        "lost_step_count": lost[largest] / step_s[largest] if step_s[largest] > 0 else np.nan,
        "lost_gpu_h": case.job_gpus @ lost,
        "saved_j": drawn[case.roots].sum(axis=0).mean(),
        "catch_up_j": again[case.roots].sum(axis=0).mean(),
        "capped_count": int((cut > 0).any(axis=1).sum()),
        "below_floor_count": int(below.any(axis=1).sum()),
        "is_reached": not below.any(),
    }


def _outcome(case: Case, cut: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return slowdowns of jobs, and loads below their floors, where all demands are known."""
    below = cut > case.slack + _ROUNDING * case.demand
    return case.slowdowns(cut)[:, case.is_known], below[:, case.is_known]


def oversubscription(
    loads: pd.DataFrame,
    topology: pd.DataFrame,
    *,
    machines_ratios: Sequence[float] = (1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5),
    policy: PowerPolicy = "cost",
) -> pd.DataFrame:
    """Put more machines on the same feeds: how often they are capped, and what they gain.

    Parameters
    ----------
    loads, topology
        As for :func:`workbench.analyze.power_management`; some feed needs a limit.
    machines_ratios
        Machines over those there are, above 0.
    policy
        As for :func:`workbench.analyze.power_management`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OVERSUBSCRIPTION`. Nothing is best if no row keeps all
        floors.

    Raises
    ------
    WorkbenchError
        If nothing has a limit, an option makes no sense, or loads and topology do not fit.

    Notes
    -----
    Machines are added evenly, with the same loads at the same instants: no diversity is gained. So
    x times the machines on limits L are the same machines on ``L / x``. Limits of loads
    themselves grow with them.
    """
    case = Case.of(loads, topology)
    feeds = np.isfinite(case.limit_w) & ~case.is_load
    if not feeds[case.entities].any():
        msg = "no feed of the topology has a limit_w, so nothing says when machines are capped"
        raise WorkbenchError(msg)
    if not len(machines_ratios):
        msg = "machines_ratios needs a value, e.g. [1.1]"
        raise WorkbenchError(msg)
    rows = []
    for ratio in machines_ratios:
        positive("machines_ratios", ratio)
        limit_w = np.where(feeds, case.limit_w / ratio, case.limit_w)
        rows.append(_oversubscribed(replace(case, limit_w=limit_w), policy))
    table = pd.DataFrame(rows).assign(machines_ratio=list(machines_ratios))
    table["throughput_ratio"] = table["machines_ratio"] * (1 - table["lost_share"])
    kept = table["throughput_ratio"].where(table["below_floor_share"] == 0)
    return OVERSUBSCRIPTION.of(
        table.assign(is_best=kept.notna() & (kept >= kept.max()), doubt="; ".join(case.doubts))
    )


def _oversubscribed(case: Case, policy: str) -> dict[str, float]:
    cut = case.cuts(policy, case.limits())
    slowdown, below = _outcome(case, cut)
    known = case.is_known
    drawn, limit = case.drawn(case.demand - cut)[case.roots][:, known], case.limit_w[case.roots]
    used = drawn.sum(axis=0).mean() / limit.sum() if limit.sum() > 0 else np.nan
    return {
        "capped_time_share": float((cut[:, known] > 0).any(axis=0).mean()),
        "lost_share": float(case.job_gpus @ slowdown.mean(axis=1) / case.gpu_count.sum()),
        "unused_share": max(1 - used, 0.0) if np.isfinite(limit).all() else np.nan,
        "below_floor_share": float(below.any(axis=0).mean()),
    }
