"""When devices were held back by power, and for how much of their time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._shared.numbers import in_range, positive, whole_number
from workbench.tables import CAPPED_SHARE, CAPPING_EVENTS, POWER, POWER_STATES

_SECOND = 1e9


def capping_events(
    power: pd.DataFrame,
    states: pd.DataFrame,
    *,
    limit_share: float = 0.97,
    least_reading_count: int = 3,
    longest_gap_periods: float = 3.0,
    least_load_share: float = 0.5,
) -> pd.DataFrame:
    """Find the segments in which each device was held back by power.

    Each device is judged by the best evidence it has: the clock event reasons, else a counter
    of time held back, else power that stays at its limit, which is a hint only. A device without
    any of them has no events; :func:`workbench.analyze.capped_share` says what is known.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`.
    states
        Table :data:`workbench.tables.POWER_STATES`.
    limit_share
        Share of the limit from which power counts as capped, by power alone.
    least_reading_count
        How many such readings in a row it takes.
    longest_gap_periods
        A pause longer than so many median periods of the device ends an event.
    least_load_share
        Share of the power when capped from which an uncapped clock is compared: an idle device
        is not a measure.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CAPPING_EVENTS`, in order of start.

    Raises
    ------
    WorkbenchError
        If an option makes no sense.

    Notes
    -----
    An event is a maximal run of capped readings without a pause. Each reading stands for the
    time halfway to its neighbours (a counter for the time since the reading before), so both
    ends are uncertain by half a period. Reasons: software power cap 0x4, hardware power
    brake 0x80.

    References
    ----------
    NVML API, ``nvmlClocksEventReasons``.

    Examples
    --------
    >>> len(capping_events(POWER.empty(), POWER_STATES.empty()))
    0
    """
    _check(limit_share, least_reading_count, longest_gap_periods)
    in_range("least_load_share", least_load_share, least=0, most=1)
    readings, names = judged_readings(
        power, states, limit_share=limit_share, longest_gap_periods=longest_gap_periods
    )
    events = _found(readings, least_reading_count, least_load_share)
    if events.empty:
        return CAPPING_EVENTS.empty()
    events = events.assign(entity=names[events["entity"].to_numpy()])
    return CAPPING_EVENTS.of(events.sort_values(["start_ns", "entity"], ignore_index=True))


def _check(limit_share: float, least_reading_count: int, longest_gap_periods: float) -> None:
    in_range("limit_share", limit_share, least=0, most=1, strictly=True)
    whole_number("least_reading_count", least_reading_count, least=1)
    positive("longest_gap_periods", longest_gap_periods)


def _found(
    readings: pd.DataFrame, least_reading_count: int, least_load_share: float
) -> pd.DataFrame:
    runs = _runs(readings, least_reading_count)
    events = _events(runs)
    clocks = _uncapped_clocks(readings, events, least_load_share)
    events["uncapped_clock_mhz"] = events["entity"].map(clocks).astype("float64")
    events["clock_loss_ratio"] = 1 - events["clock_mhz"] / events["uncapped_clock_mhz"]
    return events


def _runs(readings: pd.DataFrame, least_reading_count: int) -> pd.DataFrame:
    valid = readings[readings["is_known"]]
    # A run ends at a gap, at the next entity, and where capping begins or ends.
    starts = (
        valid["after_gap"]
        | (valid["entity"] != valid["entity"].shift())
        | (valid["is_capped"] != valid["is_capped"].shift())
    )
    capped = valid.assign(run=starts.cumsum())[valid["is_capped"]]
    counts = capped.groupby("run")["run"].transform("size")
    # Power at its limit for a moment is not capping.
    return capped[(capped["evidence"] != AT_LIMIT) | (counts >= least_reading_count)]


def _events(runs: pd.DataFrame) -> pd.DataFrame:
    by_run = runs.groupby("run", sort=True)
    masks = runs["reasons"].fillna(0).astype("int64")
    brake, cap = (
        ((masks & bit) > 0).groupby(runs["run"]).any() for bit in (POWER_BRAKE, POWER_CAP)
    )
    events = by_run.agg(
        entity=("entity", "first"),
        start_ns=("from_ns", "min"),
        end_ns=("to_ns", "max"),
        evidence=("evidence", "first"),
        reading_count=("time_ns", "size"),
        limit_w=("limit_w", "median"),
        power_w=("power_w", "median"),
        clock_mhz=("clock_mhz", "median"),
        period_ns=("period_ns", "first"),
        is_cut_before=("after_gap", "first"),
        is_cut_after=("before_gap", "last"),
    )
    labels = events["evidence"] == REASONS
    words = np.select(
        [labels & brake & cap, labels & brake, labels],
        ["power cap and power brake", "power brake", "power cap"],
        default="not told",
    )
    # A counter that falls was reset; what it lost is unknown.
    held = runs["held_back_ns"].where(runs["held_back_ns"] >= 0)
    return events.assign(
        duration_s=(events["end_ns"] - events["start_ns"]) / _SECOND,
        uncertain_s=events["period_ns"] / 2 / _SECOND,
        reason=words,
        power_to_limit_ratio=events["power_w"] / events["limit_w"].where(events["limit_w"] > 0),
        held_back_s=held.groupby(runs["run"]).sum(min_count=1) / _SECOND,
        is_cut=events["is_cut_before"] | events["is_cut_after"],
    )


def _uncapped_clocks(
    readings: pd.DataFrame, events: pd.DataFrame, least_load_share: float
) -> pd.Series:
    """Return the median clock of each device under load while it was not capped."""
    needed = least_load_share * events.groupby("entity")["power_w"].median()
    free = readings[readings["is_known"] & ~readings["is_capped"]]
    least = free["entity"].map(needed).astype("float64")
    # Where no power is known, load cannot be told, and every uncapped clock counts.
    loaded = free[(free["power_w"] >= least) | least.isna()]
    clocks: pd.Series = loaded.groupby("entity")["clock_mhz"].median()
    return clocks


def capped_share(
    power: pd.DataFrame,
    states: pd.DataFrame,
    *,
    limit_share: float = 0.97,
    least_reading_count: int = 3,
    longest_gap_periods: float = 3.0,
) -> pd.DataFrame:
    """Tell of each device how much of its time was capped, and how much is known at all.

    No event can mean that nothing was capped or that nothing was recorded. Here every device
    has a row, with its evidence and how much of the time that evidence covers.

    Parameters
    ----------
    power, states, limit_share, least_reading_count, longest_gap_periods
        As for :func:`workbench.analyze.capping_events`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CAPPED_SHARE`, in order of the names.

    Raises
    ------
    WorkbenchError
        If an option makes no sense.
    """
    _check(limit_share, least_reading_count, longest_gap_periods)
    readings, names = judged_readings(
        power, states, limit_share=limit_share, longest_gap_periods=longest_gap_periods
    )
    if readings.empty:
        return CAPPED_SHARE.empty()
    events = _found(readings, least_reading_count, 0.0)
    # The last reading stands for a period, too.
    span = readings["time_ns"].max() - readings["time_ns"].min() + readings["period_ns"].median()
    stands_for = (readings["to_ns"] - readings["from_ns"]).groupby(readings["entity"])
    known_s = stands_for.sum() / _SECOND
    by_event = events.groupby("entity")["duration_s"].agg(["size", "sum"])
    by_event = by_event.reindex(known_s.index, fill_value=0)
    table = pd.DataFrame(
        {
            "evidence": readings.groupby("entity")["evidence"].first(),
            "event_count": by_event["size"].astype("int64"),
            "capped_s": by_event["sum"].astype("float64"),
            "known_s": known_s,
            # Both are sums of the same cells, up to rounding.
            "capped_share": (by_event["sum"] / known_s.where(known_s > 0)).clip(upper=1),
            "covered_share": (known_s / (span / _SECOND)).clip(upper=1) if span > 0 else 0.0,
        }
    )
    table["entity"] = names[table.index.to_numpy()]
    return CAPPED_SHARE.of(table.reset_index(drop=True))


# Readings that tell whether a device was held back by power, whatever the telemetry records.

# Bits of NVML: nvmlClocksEventReasonSwPowerCap and HwPowerBrakeSlowdown.
POWER_CAP, POWER_BRAKE = 0x4, 0x80
REASONS, COUNTER, AT_LIMIT, NOTHING = (
    "clock reasons", "violation counter", "power at limit", "none",
)  # fmt: skip


def judged_readings(
    power: pd.DataFrame, states: pd.DataFrame, *, limit_share: float, longest_gap_periods: float
) -> tuple[pd.DataFrame, pd.Index]:
    """Return every reading with what it says about capping, and the names of the entities.

    Rows are by entity (a position in the names) and time: ``evidence``, ``is_known``,
    ``is_capped``, ``period_ns`` (median of the entity), the interval that the reading stands for
    (``from_ns``, ``to_ns``), ``after_gap``, ``before_gap`` and the reading itself.
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
    valid = rows[rows["is_known"]].copy()
    _place(valid, longest_gap_periods)
    if len(valid) == len(rows):
        return valid, names
    unknown = rows[~rows["is_known"]]
    unknown = unknown.assign(
        from_ns=unknown["time_ns"], to_ns=unknown["time_ns"], after_gap=True, before_gap=True
    )
    joined = pd.concat([valid, unknown]) if len(valid) else unknown
    return _in_order(joined), names


def _numbered(table: pd.DataFrame, names: pd.Index) -> pd.DataFrame:
    # Numbers are compared much faster than names.
    positions = names.get_indexer(table["entity"].cat.categories)
    codes = table["entity"].cat.codes.to_numpy()
    return _in_order(table.assign(entity=positions[codes].astype("int64")))


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
    if len(power) == len(states) and all(
        np.array_equal(power[name].to_numpy(), states[name].to_numpy())
        for name in ("entity", "time_ns")
    ):
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
    pieces = [item for item in (joined, more) if len(item)]
    return _in_order(pd.concat(pieces, ignore_index=True) if pieces else joined)


def _with_evidence(rows: pd.DataFrame, limit_share: float) -> pd.DataFrame:
    reasons = rows["reasons"]
    at_limit = rows["power_w"].notna() & (rows["limit_w"] > 0)
    candidates = {
        REASONS: (reasons.notna(), _has(reasons, POWER_CAP) | _has(reasons, POWER_BRAKE)),
        COUNTER: (rows["held_back_ns"] >= 0, rows["held_back_ns"] > 0),
        AT_LIMIT: (at_limit, at_limit & (rows["power_w"] >= limit_share * rows["limit_w"])),
    }
    evidence = np.full(len(rows), NOTHING, dtype=object)
    is_known, is_capped = np.zeros((2, len(rows)), dtype=bool)
    for name, (facts, capped) in candidates.items():
        has_it = facts.groupby(rows["entity"]).transform("any").to_numpy(dtype=bool)
        # Each device is judged by its best evidence alone, so that weaker ones add no events.
        own = has_it & (evidence == NOTHING)
        evidence = np.where(own, name, evidence)
        is_known |= own & facts.to_numpy()
        is_capped |= own & (facts & capped).to_numpy()
    return rows.assign(evidence=evidence, is_known=is_known, is_capped=is_capped)


def _has(reasons: pd.Series, bit: int) -> pd.Series:
    # A missing mask holds no bit.
    masks = reasons.fillna(0).to_numpy(dtype=np.int64)
    return pd.Series((masks & bit) > 0, index=reasons.index)


def _place(facts: pd.DataFrame, longest_gap_periods: float) -> None:
    """Let each reading stand for the time halfway to its neighbours, and never across a gap."""
    time = facts["time_ns"].astype("float64")
    by_entity = time.groupby(facts["entity"], sort=False)
    before, after = time - by_entity.shift(1), by_entity.shift(-1) - time
    counted = facts["evidence"] == COUNTER
    # A counter covers all the time since the reading before, and nothing else.
    longest = (longest_gap_periods * facts["period_ns"]).where(~counted, facts["step_ns"])
    half = facts["period_ns"] / 2
    # Negated, so that the first reading, which has none before it, follows a gap.
    facts["after_gap"] = ~(before <= longest)
    facts["before_gap"] = facts["after_gap"].groupby(facts["entity"]).shift(-1, fill_value=True)
    back = np.where(facts["after_gap"], half, before / 2)
    back = np.where(counted, facts["step_ns"], back)
    ahead = np.where(counted, 0, np.where(facts["before_gap"], half, after / 2))
    facts["from_ns"] = facts["time_ns"] - back.astype("int64")
    facts["to_ns"] = facts["time_ns"] + ahead.astype("int64")
