"""Readings that tell whether a device was held back by power, whatever the telemetry records."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.tables import POWER, POWER_STATES

POWER_CAP, POWER_BRAKE = 0x4, 0x80
REASONS, COUNTER, AT_LIMIT, NOTHING = (
    "clock reasons", "violation counter", "power at limit", "none",
)  # fmt: skip


def judged_readings(
    power: pd.DataFrame, states: pd.DataFrame, *, limit_share: float, longest_gap_periods: float
) -> pd.DataFrame:
    """Give every reading with what it says about capping.

    Returns
    -------
    pandas.DataFrame
        Rows by entity and time with ``evidence``, ``is_known``, ``is_capped``, ``period_ns``
        (median of the entity), ``from_ns`` and ``to_ns`` (what the reading stands for),
        ``after_gap`` and ``before_gap``, and what was read.
    """
    POWER.check(power, "power")
    POWER_STATES.check(states, "states")
    rows = _joined(power, states)
    by_entity = rows.groupby("entity", sort=False)
    step = by_entity["time_ns"].diff()
    rows["period_ns"] = step.groupby(rows["entity"]).transform("median").fillna(0.0)
    violation = rows["power_violation_ns"].astype("float64")
    rows["held_back_ns"] = violation.groupby(rows["entity"]).diff()
    rows = _with_evidence(rows, limit_share)
    # An increase across a gap may have come at any time in it.
    counted = rows["evidence"] == COUNTER
    rows.loc[counted & (step > longest_gap_periods * rows["period_ns"]), "is_known"] = False
    known = rows[rows["is_known"]].copy()
    _place(known, longest_gap_periods)
    unknown = rows[~rows["is_known"]]
    unknown = unknown.assign(
        from_ns=unknown["time_ns"], to_ns=unknown["time_ns"], after_gap=True, before_gap=True
    )
    both = [each for each in (known, unknown) if len(each)]
    if not both:
        return known
    return pd.concat(both).sort_values(["entity", "time_ns"], ignore_index=True, kind="stable")


def _joined(power: pd.DataFrame, states: pd.DataFrame) -> pd.DataFrame:
    """Put to each state the nearest power of the entity, not farther than half a period."""
    states = states.assign(entity=states["entity"].astype(object))
    power = power.assign(entity=power["entity"].astype(object))[["time_ns", "entity", "power_w"]]
    alone = power[~power["entity"].isin(set(states["entity"]))]
    power = power.dropna(subset=["power_w"])
    apart = states.sort_values(["entity", "time_ns"]).groupby("entity")["time_ns"].diff()
    half = 0 if apart.dropna().empty else int(apart.median() / 2)
    joined = pd.merge_asof(
        states.sort_values("time_ns", kind="stable"),
        power.sort_values("time_ns", kind="stable"),
        on="time_ns", by="entity", direction="nearest", tolerance=half,
    )  # fmt: skip
    # What has power but no state at all is judged by nothing, and must not vanish.
    more = alone.reindex(columns=joined.columns)
    more = more.astype({name: joined[name].dtype for name in joined if name != "entity"})
    parts = [each for each in (joined, more) if len(each)]
    rows = pd.concat(parts) if parts else joined
    return rows.sort_values(["entity", "time_ns"], ignore_index=True, kind="stable")


def _with_evidence(rows: pd.DataFrame, limit_share: float) -> pd.DataFrame:
    """Choose the best evidence that an entity has, and judge its readings by it."""
    reasons = rows["reasons"]
    at_limit = rows["power_w"].notna() & (rows["limit_w"] > 0)
    candidates = {
        REASONS: (reasons.notna(), _has(reasons, POWER_CAP) | _has(reasons, POWER_BRAKE)),
        COUNTER: (rows["held_back_ns"] >= 0, rows["held_back_ns"] > 0),
        AT_LIMIT: (at_limit, at_limit & (rows["power_w"] >= limit_share * rows["limit_w"])),
    }
    evidence = np.full(len(rows), NOTHING, dtype=object)
    is_known, is_capped = np.zeros((2, len(rows)), dtype=bool)
    for name, (known, capped) in candidates.items():
        has_it = known.groupby(rows["entity"]).transform("any").to_numpy(dtype=bool)
        mine = has_it & (evidence == NOTHING)
        evidence = np.where(mine, name, evidence)
        is_known |= mine & known.to_numpy()
        is_capped |= mine & (known & capped).to_numpy()
    return rows.assign(evidence=evidence, is_known=is_known, is_capped=is_capped)


def _has(reasons: pd.Series, bit: int) -> pd.Series:
    """Say of each mask whether it holds a bit; a missing mask holds none."""
    masks = reasons.fillna(0).to_numpy(dtype=np.int64)
    return pd.Series((masks & bit) > 0, index=reasons.index)


def _place(known: pd.DataFrame, longest_gap_periods: float) -> None:
    """Let each reading stand for the time halfway to its neighbours, and never across a gap."""
    time = known["time_ns"].astype("float64")
    by_entity = time.groupby(known["entity"], sort=False)
    before, after = time - by_entity.shift(1), by_entity.shift(-1) - time
    longest = longest_gap_periods * known["period_ns"]
    half = known["period_ns"] / 2
    known["after_gap"] = ~(before <= longest)
    known["before_gap"] = ~(after <= longest)
    counted = known["evidence"] == COUNTER
    # A counter tells of all the time since the reading before, and of nothing later.
    back = np.where(counted, before, before / 2)
    back = np.where(known["after_gap"], np.where(counted, known["period_ns"], half), back)
    ahead = np.where(counted, 0, np.where(known["before_gap"], half, after / 2))
    known["from_ns"] = known["time_ns"] - back.astype("int64")
    known["to_ns"] = known["time_ns"] + ahead.astype("int64")
