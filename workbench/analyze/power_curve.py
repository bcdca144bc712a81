"""What a power limit does to the speed and energy of a job, from sweeps over limits."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import POWER_CURVE, POWER_SWEEPS

_CURVE = ["gpu", "job", "configuration"]
# Power that is this much over a limit is named; meters are good to a few per cent.
_HELD = 1.05


def power_curve(
    sweeps: pd.DataFrame, *, per: Literal["configuration", "job"] = "configuration"
) -> pd.DataFrame:
    """Compare speed and energy at every limit with those at the largest.

    Times of different jobs cannot be averaged, their ratios can. So every configuration is
    first compared with itself at its largest limit; curves of a whole job are medians of those
    ratios.

    Parameters
    ----------
    sweeps
        Table :data:`workbench.tables.POWER_SWEEPS`.
    per
        ``"configuration"``: one curve for each setting, runs that differ in nothing else
        averaged. ``"job"``: one curve for each GPU and job, the median of its configurations
        at each limit.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_CURVE` with basis ``measured``. The doubt says where
        runs are missing, so that limits are not compared like with like.

    Raises
    ------
    TableError
        If ``sweeps`` is not that table.
    WorkbenchError
        If ``per`` is neither.

    Notes
    -----
    ``energy = mean time x mean power``, ``speed = time at the largest limit / time``. A speed
    above 1 at a lower limit is noise of the measurement; it stays as it is.
    """
    POWER_SWEEPS.check(sweeps)
    if per not in ("configuration", "job"):
        msg = f"per must be 'configuration' or 'job', not {per!r}"
        raise WorkbenchError(msg)
    if sweeps.empty:
        return POWER_CURVE.empty()
    table = _by_configuration(sweeps)
    if per == "job":
        table = _by_job(table)
    table = table.assign(saving_ratio=1 - table["energy_ratio"])
    return POWER_CURVE.check(POWER_CURVE.cast(table))


def _by_configuration(sweeps: pd.DataFrame) -> pd.DataFrame:
    """Average the runs of each setting at each limit, and compare with its largest limit."""
    rows = _named(sweeps)
    usable = rows["time_s"].gt(0) & rows["power_w"].gt(0)
    lost = (~usable).groupby([rows[name] for name in _CURVE]).sum()
    rows = rows[usable]
    by_limit = rows.groupby([*_CURVE, "limit_w"], sort=True)
    mean = by_limit.agg(
        time_s=("time_s", "mean"),
        power_w=("power_w", "mean"),
        variants=("variant", lambda each: "|".join(sorted(set(each)))),
        source=("source", "first"),
    ).reset_index()
    top = mean.groupby(_CURVE, as_index=False).last()[[*_CURVE, "time_s", "power_w", "variants"]]
    mean = mean.merge(top, on=_CURVE, suffixes=("", "_at_top"))
    speed = mean["time_s_at_top"] / mean["time_s"]
    same = mean["variants"] == mean["variants_at_top"]
    missing = mean.merge(lost.rename("lost"), left_on=_CURVE, right_index=True)["lost"].to_numpy()
    return mean.assign(
        configuration_count=1,
        speed_ratio=speed,
        energy_ratio=mean["power_w"] / mean["power_w_at_top"] / speed,
        basis="measured",
        is_extrapolated=False,
        doubt=[
            "; ".join(_curve_doubts(bool(is_same), int(count), power / limit))
            for is_same, count, power, limit in zip(
                same, missing, mean["power_w"], mean["limit_w"], strict=True
            )
        ],
    )


def _named(sweeps: pd.DataFrame) -> pd.DataFrame:
    """Name the job, its configuration, and the variants that are averaged."""
    told = sweeps[["dataset", "batch_count"]].astype(object)
    words = told["dataset"].where(told["dataset"].notna(), "").astype(str)
    batch = [f", batch {count}" if pd.notna(count) else "" for count in told["batch_count"]]
    return sweeps.assign(
        job=sweeps["network"],
        configuration=[
            f"{name}{size}".removeprefix(", ") for name, size in zip(words, batch, strict=True)
        ],
        variant=sweeps["optimizer"].fillna("").astype(str),
    )


def _curve_doubts(has_same_runs: bool, lost_count: int, drawn: float) -> list[str]:
    doubts = [] if has_same_runs else ["other runs than at the largest limit"]
    if lost_count:
        doubts.append(f"{lost_count} runs without time or power left out")
    if drawn > _HELD:
        doubts.append(f"draws {100 * (drawn - 1):.0f} % more than its limit")
    return doubts


def _by_job(curves: pd.DataFrame) -> pd.DataFrame:
    """Take medians over the configurations of each job at each limit."""
    job = ["gpu", "job"]
    all_of = curves.groupby(job)["configuration"].nunique().rename("all_count")
    table = curves.groupby([*job, "limit_w"], as_index=False, sort=True).agg(
        configuration_count=("configuration", "nunique"),
        power_w=("power_w", "median"),
        speed_ratio=("speed_ratio", "median"),
        energy_ratio=("energy_ratio", "median"),
        source=("source", "first"),
    )
    table = table.merge(all_of, left_on=job, right_index=True)
    few = table["configuration_count"] < table["all_count"]
    return table.assign(
        configuration=[f"median of {count}" for count in table["all_count"]],
        basis="measured",
        is_extrapolated=False,
        doubt=[
            f"{count} of {of} configurations have this limit" if each else ""
            for each, count, of in zip(
                few, table["configuration_count"], table["all_count"], strict=True
            )
        ],
    )
