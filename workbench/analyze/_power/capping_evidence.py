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
) -> tuple[pd.DataFrame, pd.Index]:
    """Give every reading with what it says about capping, and the names of the entities.

    Returns
    -------
    tuple of pandas.DataFrame and pandas.Index
        Rows by entity (a place in the names) and time with ``evidence``, ``is_known``,
        ``is_capped``, ``period_ns`` (median of the entity), ``from_ns`` and ``to_ns`` (what the
        reading stands for), ``after_gap`` and ``before_gap``, and what was read.
    """
    POWER.check(power, "power")
    POWER_STATES.check(states, "states")
    names = power["entity"].cat.categories.union(states["entity"].cat.categories, sort=True)
    rows = _joined(_numbered(power, names), _numbered(states, names))
    step = rows.groupby("entity", sort=False)["time_ns"].diff()
    rows["step_ns"] = step
    rows["period_ns"] = step.groupby(rows["entity"]).transform("median").fillna(0.0)
    violation = rows["power_violation_ns"].astype("float64")
    rows["held_back_ns"] = violation.groupby(rows["entity"]).diff()
    rows = _with_evidence(rows, limit_share)
    # An increase across a gap may have come at any time in it.
    counted = rows["evidence"] == COUNTER
    rows.loc[counted & (step > longest_gap_periods * rows["period_ns"]), "is_known"] = False
    known = rows[rows["is_known"]].copy()
    _place(known, longest_gap_periods)
    if len(known) == len(rows):
        return known, names
    unknown = rows[~rows["is_known"]]
    unknown = unknown.assign(
        from_ns=unknown["time_ns"], to_ns=unknown["time_ns"], after_gap=True, before_gap=True
    )
    both = pd.concat([known, unknown]) if len(known) else unknown
    return _in_order(both), names


def _numbered(table: pd.DataFrame, names: pd.Index) -> pd.DataFrame:
    """Put numbers in place of the names of entities; they are compared much faster."""
    places = names.get_indexer(table["entity"].cat.categories)
    codes = table["entity"].cat.codes.to_numpy()
    return _in_order(table.assign(entity=places[codes].astype("int64")))


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort by entity and time, unless that is the order already."""
    entity, time = rows["entity"].to_numpy(), rows["time_ns"].to_numpy()
    same, later = np.diff(entity) == 0, np.diff(time) >= 0
    if ((np.diff(entity) > 0) | (same & later)).all():
        return rows.reset_index(drop=True)
    return rows.sort_values(["entity", "time_ns"], ignore_index=True, kind="stable")


def _joined(power: pd.DataFrame, states: pd.DataFrame) -> pd.DataFrame:
    """Put to each state the nearest power of the entity, not farther than half a period."""
    power = power[["time_ns", "entity", "power_w"]]
    if _are_same(power, states):
        return states.assign(power_w=power["power_w"])
    alone = power[~power["entity"].isin(states["entity"].unique())]
    power = power.dropna(subset=["power_w"])
    apart = states.groupby("entity")["time_ns"].diff().dropna()
    joined = pd.merge_asof(
        states.sort_values("time_ns", kind="stable"),
        power.sort_values("time_ns", kind="stable"),
        on="time_ns", by="entity", direction="nearest",
        tolerance=0 if apart.empty else int(apart.median() / 2),
    )  # fmt: skip
    # What has power but no state at all is judged by nothing, and must not vanish.
    more = alone.reindex(columns=joined.columns).astype(joined.dtypes)
    parts = [each for each in (joined, more) if len(each)]
    return _in_order(pd.concat(parts, ignore_index=True) if parts else joined)


def _are_same(power: pd.DataFrame, states: pd.DataFrame) -> bool:
    """Say whether both were read of the same entities in the same instants."""
    return len(power) == len(states) and all(
        np.array_equal(power[name].to_numpy(), states[name].to_numpy())
        for name in ("entity", "time_ns")
    )


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
    counted = known["evidence"] == COUNTER
    # A counter tells of all the time since the reading before, and of nothing else.
    longest = (longest_gap_periods * known["period_ns"]).where(~counted, known["step_ns"])
    half = known["period_ns"] / 2
    known["after_gap"] = ~(before <= longest)
    known["before_gap"] = known["after_gap"].groupby(known["entity"]).shift(-1, fill_value=True)
    back = np.where(known["after_gap"], half, before / 2)
    back = np.where(counted, known["step_ns"], back)
    ahead = np.where(counted, 0, np.where(known["before_gap"], half, after / 2))
    known["from_ns"] = known["time_ns"] - back.astype("int64")
    known["to_ns"] = known["time_ns"] + ahead.astype("int64")
