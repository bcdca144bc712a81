"""How many GPUs a site feeds at a power limit, and what they do together."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._shared.numbers import in_range, not_negative, positive
from workbench.errors import WorkbenchError
from workbench.tables import POWER_CURVE, PROVISIONING

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
