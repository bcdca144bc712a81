"""What a power limit does to the speed and energy of a job, from sweeps over limits."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import POWER_CURVE, POWER_SWEEPS

_CURVE = ["gpu", "job", "configuration"]


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
        ``"configuration"``: one curve for each job of the sweeps. ``"job"``: one curve for each
        GPU and network, the median of its configurations at each limit.

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
        If ``per`` is neither, or a sweep has two rows at one limit.

    Notes
    -----
    ``speed = time at the largest limit / time``, ``energy ratio = energy / energy at the largest
    limit``. A speed above 1 at a lower limit is noise of the measurement; it stays as it is.
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
    """Compare each setting with its own largest limit."""
    rows = sweeps.assign(
        gpu=sweeps["gpu"].fillna("unknown GPU"),
        job=sweeps["network"].fillna(sweeps["job"]),
        configuration=sweeps["job"],
        variant=sweeps["variant"].fillna(""),
    )
    usable = rows["time_s"].gt(0) & rows["energy_j"].gt(0) & rows["limit_w"].notna()
    lost = (~usable).groupby([rows[name] for name in _CURVE]).sum().rename("lost_count")
    rows = rows[usable].sort_values([*_CURVE, "limit_w"], ignore_index=True)
    again = rows.duplicated([*_CURVE, "limit_w"])
    if again.any():
        at = rows[again].iloc[0]
        msg = (
            f"{at['gpu']}, {at['job']}, {at['configuration']} has two rows at {at['limit_w']:g} W "
            f"(the second from {at['source']}, line {at['line']}); load each sweep once"
        )
        raise WorkbenchError(msg)
    top = rows.groupby(_CURVE)[["time_s", "energy_j", "variant", "run_count"]].transform("last")
    same = (rows["variant"] == top["variant"]) & (rows["run_count"] == top["run_count"])
    missing = rows.join(lost, on=_CURVE)["lost_count"]
    return rows.assign(
        configuration_count=1,
        speed_ratio=top["time_s"] / rows["time_s"],
        energy_ratio=rows["energy_j"] / top["energy_j"],
        basis="measured",
        is_extrapolated=False,
        doubt=[
            "; ".join(_doubts(bool(is_same), int(count), str(doubt)))
            for is_same, count, doubt in zip(same, missing, rows["doubt"], strict=True)
        ],
    )


def _doubts(has_same_runs: bool, lost_count: int, doubt: str) -> list[str]:
    """Say why a point cannot be compared, beside what its sweep says."""
    doubts = [doubt] if doubt else []
    if not has_same_runs:
        doubts.append("other runs than at the largest limit")
    if lost_count:
        doubts.append(f"{lost_count} limits without time, energy or limit left out")
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
