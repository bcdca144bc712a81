"""How many GPUs a site feeds at a power limit, and what they do together; limited feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats, in_range, not_negative, positive
from workbench.analyze._power.management import Case, FeedShortage, PowerPolicy
from workbench.errors import WorkbenchError
from workbench.tables import DEMAND_RESPONSE, POWER_CURVE, PROVISIONING

_CURVE = ["gpu", "job", "configuration"]


def provisioning(
    curve: pd.DataFrame,
    *,
    budget_w: float,
    pue_ratio: float,
    fixed_w: float,
    overhead_w: float,
    reference_limit_w: float | None = None,
) -> pd.DataFrame:
    """Work out, for every limit of a curve, how many GPUs a site feeds and their throughput.

    A lower limit makes each GPU slower and lets the site feed more of them; the more overhead per
    GPU, the less is gained.

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.POWER_CURVE`; limits that it lacks come from
        :func:`workbench.analyze.extended_curve`, which marks them.
    budget_w
        What the site may draw, in W.
    pue_ratio
        Power of the site / power of its IT, 1 or more.
    fixed_w
        IT power that does not grow with the GPUs (network core, services), in W.
    overhead_w
        IT power per GPU beside the GPU (CPU, fans, network cards), in W.
    reference_limit_w
        Limit to compare with, one of each curve; the largest of each by default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PROVISIONING`, in the order of the curves and limits.

    Raises
    ------
    WorkbenchError
        If an argument makes no sense, the fixed load leaves nothing for GPUs, the site feeds
        not one GPU, or a curve lacks the reference limit.

    Notes
    -----
    With budget B, fixed load F, overhead o and limit P: ``N = floor((B / PUE - F) / (P + o))``,
    throughput ``N x speed(P)``, site power ``PUE x (F + N x (P + o))`` and energy of the same
    work = site power / throughput. GPUs are taken to draw their limit; those that draw less
    leave power unused.

    Examples
    --------
    >>> from workbench.analyze import published_curve
    >>> site = {"budget_w": 150e6, "pue_ratio": 1.0, "fixed_w": 0, "overhead_w": 357.14}
    >>> table = provisioning(published_curve("gb200-meta"), **site)
    >>> table["gpu_count"].tolist(), table["gain_ratio"].round(3).tolist()
    ([110526, 96330], [0.09, 0.0])
    """
    POWER_CURVE.check(curve)
    if curve.empty:
        return PROVISIONING.empty()
    positive("budget_w", budget_w)
    in_range("pue_ratio", pue_ratio, least=1)
    left = budget_w / pue_ratio - not_negative("fixed_w", fixed_w)
    not_negative("overhead_w", overhead_w)
    if left <= 0:
        msg = (
            f"fixed_w is {fixed_w:,.0f} W, and the budget of {budget_w:,.0f} W at PUE "
            f"{pue_ratio:g} leaves {budget_w / pue_ratio:,.0f} W for all IT: nothing is left for "
            "GPUs; raise the budget or lower the fixed load (both are in W)"
        )
        raise WorkbenchError(msg)
    need = curve["limit_w"] + overhead_w
    if (need <= 0).any():
        msg = "a limit of 0 W without overhead would feed any number of GPUs; give overhead_w"
        raise WorkbenchError(msg)
    # A budget that is a whole multiple must not lose a GPU to rounding.
    rows = curve.assign(gpu_count=np.floor(left / need + 1e-9).astype("int64"))
    if (rows["gpu_count"] < 1).all():
        msg = (
            f"{left:,.0f} W are left for GPUs that need {need.min():,.0f} W or more each: not one "
            "can be fed; budget_w is in W, not MW"
        )
        raise WorkbenchError(msg)
    rows = rows.assign(
        throughput_ratio=rows["gpu_count"] * rows["speed_ratio"],
        site_w=pue_ratio * (fixed_w + rows["gpu_count"] * need),
    )
    table = pd.concat(
        [_compared(own, reference_limit_w) for _, own in rows.groupby(_CURVE, sort=False)],
        ignore_index=True,
    )
    return PROVISIONING.of(table)


def _compared(own: pd.DataFrame, reference_limit_w: float | None) -> pd.DataFrame:
    own = own.sort_values("limit_w", kind="stable")
    wanted = own["limit_w"].max() if reference_limit_w is None else float(reference_limit_w)
    same = own[own["limit_w"] == wanted]
    if same.empty:
        name = ", ".join(str(own[limit].iloc[0]) for limit in _CURVE)
        limits = [f"{limit:g}" for limit in own["limit_w"]]
        msg = (
            f"{name} has no limit of {wanted:g} W to compare with; it has {', '.join(limits)} "
            "(analyze.extended_curve adds others)"
        )
        raise WorkbenchError(msg)
    throughput = float(same["throughput_ratio"].iloc[0])
    if throughput <= 0:
        msg = f"the site feeds not one GPU at the reference limit of {wanted:g} W; choose a lower"
        raise WorkbenchError(msg)
    energy = own["site_w"] / own["throughput_ratio"].where(own["throughput_ratio"] > 0)
    return own.assign(
        reference_limit_w=wanted,
        gain_ratio=own["throughput_ratio"] / throughput - 1,
        energy_ratio=energy / (float(same["site_w"].iloc[0]) / throughput),
        is_best=own["throughput_ratio"] >= own["throughput_ratio"].max(),
    )


def overhead_w_implied(
    gain_ratio: float, *, speed_share: float, limit_w: float, reference_limit_w: float
) -> float:
    """Return the power beside each GPU that a published gain in throughput implies [W].

    The larger the overhead, the fewer GPUs a lower limit adds.

    Parameters
    ----------
    gain_ratio
        Throughput at the lower limit / throughput at the reference; +9 % is 1.09.
    speed_share
        Speed of one GPU at the lower limit against the reference.
    limit_w
        The lower limit, in W.
    reference_limit_w
        The limit compared with, in W.

    Returns
    -------
    float
        Overhead per GPU in W, everything included that grows with the GPUs.

    Raises
    ------
    WorkbenchError
        If no overhead of 0 or more gives that gain.

    Notes
    -----
    ``(reference + o) / (limit + o) x speed = gain`` solved for o, with the number of GPUs not
    rounded: ``o = (reference x speed - gain x limit) / (gain - speed)``. Fixed load and PUE
    cancel.

    Examples
    --------
    >>> implied = overhead_w_implied(1.09, speed_share=0.95, limit_w=1000, reference_limit_w=1200)
    >>> round(implied, 2)
    357.14
    """
    positive("gain_ratio", gain_ratio)
    in_range("speed_share", speed_share, least=0, most=1, strictly=True)
    positive("limit_w", limit_w)
    if positive("reference_limit_w", reference_limit_w) <= limit_w:
        msg = f"limit_w={limit_w:g} must be below reference_limit_w={reference_limit_w:g}"
        raise WorkbenchError(msg)
    # Without any overhead, the number of GPUs grows as the limit falls.
    most = reference_limit_w / limit_w * speed_share
    if not speed_share < gain_ratio <= most:
        msg = (
            f"a gain of {gain_ratio:g} is not possible: at {speed_share:g} of the speed it is "
            f"above {speed_share:g} (no GPU added) and at most {most:.4g} (no overhead)"
        )
        raise WorkbenchError(msg)
    return (reference_limit_w * speed_share - gain_ratio * limit_w) / (gain_ratio - speed_share)


# Cost of limiting a feed to a level.

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
