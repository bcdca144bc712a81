"""When devices were held back by power, and for how much of their time, and the cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import in_range, positive, share_between, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import (
    CAPPED_SHARE,
    CAPPING_BLAME,
    CAPPING_COST,
    CAPPING_EVENTS,
    LOGGED_STEPS,
    POWER,
    POWER_STATES,
)

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


# Cost of power capping in job time, with the reasons to doubt the number.

_RESAMPLES, _NEIGHBOURS = 2_000, 5
_FEWEST_CAPPED, _FEWEST_UNCAPPED = 5, 10
# Sides that differ by more than this share of a step, or the cost by half of itself, are named.
_NOISE, _DISAGREES = 0.02, 0.5
_Times = NDArray[np.float64]


def capping_cost(
    events: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    first_step_count: int = 1,
    longest_step_ratio: float = 2.0,
    confidence_level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Sum what capped steps took beyond steps that were not capped.

    Whatever else slowed the same steps is in the sum as well. So the cost is given twice,
    against all uncapped steps of the attempt and against the nearest ones, with an interval,
    and with a doubt wherever the two disagree or the comparison is thin.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.CAPPING_EVENTS`, on the clock of the steps.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS` of one job.
    first_step_count
        Steps dropped at the start of each attempt (warm-up, compilation).
    longest_step_ratio
        Steps longer than so many medians of their kind (capped or not) are dropped: evaluations
        and checkpoints.
    confidence_level
        Share of the bootstrap interval.
    seed
        Seed of the bootstrap.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CAPPING_COST`, one row per attempt.

    Raises
    ------
    WorkbenchError
        If steps overlap each other, or an option makes no sense.

    Notes
    -----
    ``cost = sum over capped steps of (duration - median of uncapped steps)``. A step is capped
    if it shares time with an event, uncapped if it does not even with the uncertainty of the
    event's ends. The local cost compares each segment of capped steps with the 5 nearest
    uncapped steps on either side, and takes the slower side. The interval is that of a moving
    block bootstrap of both groups (2,000 resamples, blocks of the cube root of their size), as
    steps that follow each other are alike.

    References
    ----------
    Künsch: The jackknife and the bootstrap for general stationary observations, Annals of
    Statistics 17 (3), 1989.

    Examples
    --------
    >>> len(capping_cost(CAPPING_EVENTS.empty(), LOGGED_STEPS.empty()))
    0
    """
    share_between("confidence_level", confidence_level)
    rows = capped_steps(
        events, steps, first_step_count=first_step_count, longest_step_ratio=longest_step_ratio
    )
    if rows.empty:
        return CAPPING_COST.empty()
    misses = len(events) > 0 and not (rows["state"] == CAPPED).any()
    general = ["no event overlaps any step: are both on one clock?"] if misses else []
    if (events["evidence"] == AT_LIMIT).any():
        general.append("capping was inferred from power at its limit")
    rng = np.random.default_rng(seed)
    result = [
        {"attempt": attempt} | _cost(own.reset_index(drop=True), general, confidence_level, rng)
        for attempt, own in rows.groupby("attempt", sort=True)
    ]
    return CAPPING_COST.of(result)


def _cost(
    own: pd.DataFrame, general: list[str], confidence_level: float, rng: np.random.Generator
) -> dict[str, Any]:
    kept = own[own["is_kept"]].reset_index(drop=True)
    capped, free = (
        kept.loc[kept["state"] == state, "dur_s"].to_numpy() for state in (CAPPED, UNCAPPED)
    )
    row: dict[str, Any] = {
        "capped_step_count": len(capped),
        "uncapped_step_count": len(free),
        "left_out_step_count": len(own) - len(capped) - len(free),
        "capped_median_s": np.median(capped) if len(capped) else np.nan,
        "uncapped_median_s": np.median(free) if len(free) else np.nan,
    }
    missing = dict.fromkeys(("cost_s", "low_cost_s", "high_cost_s", "local_cost_s", "cost_ratio"))
    if not len(capped):
        nothing = dict.fromkeys(missing, 0.0)
        return row | nothing | {"doubt": "; ".join(general)}
    if not len(free):
        return row | missing | {"doubt": "; ".join([*general, "no uncapped step to compare with"])}
    cost = float(np.sum(capped - np.median(free)))
    low, high = _interval(capped, free, confidence_level, rng)
    sides = _sides(kept)
    # Against the slower side: of a drift, the larger part is not blamed on capping.
    local = float(sum(np.sum(stretch - max(around)) for stretch, *around in sides))
    row |= {"cost_s": cost, "low_cost_s": low, "high_cost_s": high, "local_cost_s": local}
    row["cost_ratio"] = cost / float(kept["dur_s"].sum())
    doubts = [*general, *_thin(capped, free), *_confounded(sides, cost, local, high - low)]
    return row | {"doubt": "; ".join(doubts)}


def _interval(
    capped: _Times, free: _Times, confidence_level: float, rng: np.random.Generator
) -> tuple[float, float]:
    # One step alone has no spread to resample.
    if min(len(capped), len(free)) < 2:
        return float("nan"), float("nan")
    sums = _resampled(capped, rng).sum(axis=1)
    medians = np.median(_resampled(free, rng), axis=1)
    outside = (1 - confidence_level) / 2
    low, high = np.quantile(sums - len(capped) * medians, (outside, 1 - outside))
    return float(low), float(high)


def _resampled(values: _Times, rng: np.random.Generator) -> _Times:
    count = len(values)
    # Moving block bootstrap: neighbours are alike, so blocks of them are drawn, not single steps.
    length = max(1, round(count ** (1 / 3)))
    starts = rng.integers(0, count - length + 1, size=(_RESAMPLES, -(-count // length)))
    positions = (starts[:, :, None] + np.arange(length)).reshape(_RESAMPLES, -1)[:, :count]
    return values[positions]


def _sides(kept: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return each segment of capped steps with the medians of the uncapped steps around it."""
    is_capped = (kept["state"] == CAPPED).to_numpy()
    durations = kept["dur_s"].to_numpy()
    free = np.flatnonzero((kept["state"] == UNCAPPED).to_numpy())
    edges = np.flatnonzero(np.diff(np.r_[False, is_capped, False].astype(np.int8)))
    result: list[tuple[Any, ...]] = []
    for first, last in edges.reshape(-1, 2):
        before, after = free[free < first][-_NEIGHBOURS:], free[free >= last][:_NEIGHBOURS]
        around = [float(np.median(durations[side])) for side in (before, after) if len(side)]
        result.append((durations[first:last], *around))
    return result


def _thin(capped: _Times, free: _Times) -> list[str]:
    doubts = []
    if len(capped) < _FEWEST_CAPPED:
        doubts.append(f"too few capped steps: {len(capped)}, {_FEWEST_CAPPED} or more are wanted")
    if len(free) < _FEWEST_UNCAPPED:
        doubts.append(f"too few uncapped steps: {len(free)}, {_FEWEST_UNCAPPED} or more are wanted")
    return doubts


def _confounded(sides: list[tuple[Any, ...]], cost: float, local: float, width: float) -> list[str]:
    """List signs of another cause in the same steps."""
    doubts = []
    apart = [max(around) / min(around) - 1 for _, *around in sides if len(around) == 2]
    if len(apart) < len(sides):
        doubts.append("uncapped steps on one side only: a drift cannot be told from capping")
    if apart and max(apart) > _NOISE:
        doubts.append(
            f"uncapped steps before and after the capping differ by {100 * max(apart):.0f} %: "
            "something else changed as well"
        )
    most = max(abs(cost), abs(local))
    if abs(cost - local) > max(_DISAGREES * most, width / 2):
        doubts.append(
            f"against the nearest uncapped steps the cost is {local:.3g} s, not {cost:.3g} s"
        )
    return doubts


# Steps and the capping they overlap.

CAPPED, UNCAPPED, UNSURE = "capped", "uncapped", "unsure"


def capped_steps(
    events: pd.DataFrame, steps: pd.DataFrame, *, first_step_count: int, longest_step_ratio: float
) -> pd.DataFrame:
    """Return the steps in order of time with their duration, state, and whether they are kept.

    ``state`` is capped, uncapped, or unsure: within the uncertainty of an event's end.
    """
    whole_number("first_step_count", first_step_count, least=0)
    positive("longest_step_ratio", longest_step_ratio)
    rows = ordered_steps(events, steps)
    if rows.empty:
        return rows.assign(dur_s=pd.Series(dtype="float64"), state="", is_kept=False)
    blur = (events["uncertain_s"] * 1e9).astype("int64")
    # Within the uncertainty of the ends a step is neither capped nor free.
    near = _touched(rows, events["start_ns"] - blur, events["end_ns"] + blur)
    touched = _touched(rows, events["start_ns"], events["end_ns"])
    state = np.select([touched, near], [CAPPED, UNSURE], default=UNCAPPED)
    rows = rows.assign(dur_s=(rows["end_ns"] - rows["start_ns"]) / 1e9, state=state)
    # Capped steps are slow as a whole, so they are compared among themselves.
    usual = rows.groupby(["attempt", "state"])["dur_s"].transform("median")
    late = rows.groupby("attempt").cumcount() >= first_step_count
    return rows.assign(is_kept=late & (rows["dur_s"] <= longest_step_ratio * usual))


def ordered_steps(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Check both tables and give the steps in order of time; steps of two jobs are refused."""
    CAPPING_EVENTS.check(events, "events")
    LOGGED_STEPS.check(steps, "steps")
    rows = steps.sort_values(["start_ns", "end_ns"], ignore_index=True, kind="stable")
    # Stamps are rounded and late; only steps that run beside each other are of two jobs.
    shared = rows["end_ns"].shift() - rows["start_ns"]
    early = shared > (rows["end_ns"] - rows["start_ns"]) / 2
    if early.any():
        at = int(early.to_numpy().argmax())
        first, second = rows.iloc[at - 1], rows.iloc[at]
        msg = (
            f"step {second['step']} ({second['source']}, line {second['line']}) runs beside step "
            f"{first['step']} (line {first['line']}); pass the steps of one job on one clock"
        )
        raise WorkbenchError(msg)
    return rows[["attempt", "step", "start_ns", "end_ns"]]


def overlapped(rows: pd.DataFrame, start_ns: int, end_ns: int) -> slice:
    first = int(np.searchsorted(rows["end_ns"].to_numpy(), start_ns, side="right"))
    last = int(np.searchsorted(rows["start_ns"].to_numpy(), end_ns, side="left"))
    return slice(first, max(first, last))


def _touched(rows: pd.DataFrame, starts: pd.Series, ends: pd.Series) -> np.ndarray:
    first = np.searchsorted(rows["end_ns"].to_numpy(), starts.to_numpy(), side="right")
    last = np.searchsorted(rows["start_ns"].to_numpy(), ends.to_numpy(), side="left")
    last = np.maximum(first, last)
    change = np.zeros(len(rows) + 1, dtype=np.int64)
    # add.at, because several events may begin in one step.
    np.add.at(change, first, 1)
    np.add.at(change, last, -1)
    touched: np.ndarray = np.cumsum(change)[:-1] > 0
    return touched


# Which capped device a synchronous job waited for.


def capping_blame(
    events: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    first_step_count: int = 1,
    longest_step_ratio: float = 2.0,
) -> pd.DataFrame:
    """Charge each capped step to the device that was held back most.

    All ranks of a synchronous job wait for the slowest. Of several devices that were capped in
    one step, the one whose clock fell most decides; the others cost nothing on top.

    Parameters
    ----------
    events, steps, first_step_count, longest_step_ratio
        As for :func:`workbench.analyze.capping_cost`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CAPPING_BLAME`, most blamed first.

    Raises
    ------
    WorkbenchError
        If steps overlap each other, or an option makes no sense.

    Notes
    -----
    Held back most: the largest loss of clock; where a loss is not known, the lowest clock; where
    no clock is known, all devices capped in the step. Ties are charged to each, so shares may
    sum to more than 1. Time is against the median uncapped step of the attempt.
    """
    rows = capped_steps(
        events, steps, first_step_count=first_step_count, longest_step_ratio=longest_step_ratio
    )
    if events.empty:
        return CAPPING_BLAME.empty()
    kept = rows[rows["is_kept"]]
    free = kept[kept["state"] == UNCAPPED].groupby("attempt")["dur_s"].median()
    excess = kept["dur_s"] - kept["attempt"].map(free).astype("float64")
    pairs = _pairs(events, rows)
    pairs = pairs[pairs["at"].isin(kept.index[kept["state"] == CAPPED])]
    blamed = pairs[_is_most_held_back(pairs)]
    of_each = events.groupby("entity", sort=True)
    steps_of, blamed_of = (table_.groupby("entity")["at"].nunique() for table_ in (pairs, blamed))
    time_of = (
        blamed.assign(excess=blamed["at"].map(excess)).groupby("entity")["excess"].sum(min_count=1)
    )
    all_steps = max(int(pairs["at"].nunique()), 1)
    names = of_each.size().index
    table = pd.DataFrame({
        "event_count": of_each.size(), "capped_step_count": steps_of.reindex(names, fill_value=0),
        "blamed_step_count": blamed_of.reindex(names, fill_value=0),
        "blamed_share": blamed_of.reindex(names, fill_value=0) / all_steps,
        "blamed_s": time_of.reindex(names),
        "clock_loss_ratio": of_each["clock_loss_ratio"].median(),
    })  # fmt: skip
    shared = blamed.groupby("at")["entity"].transform("size") > 1
    cost = capping_cost(
        events, steps, first_step_count=first_step_count, longest_step_ratio=longest_step_ratio
    )
    in_doubt = cost.loc[(cost["capped_step_count"] > 0) & (cost["doubt"] != ""), "doubt"]
    table["doubt"] = _doubts(table, set(blamed.loc[shared, "entity"]), list(in_doubt))
    table = table.rename_axis("entity").reset_index()
    table = table.sort_values(
        ["blamed_step_count", "capped_step_count", "entity"],
        ascending=[False, False, True], ignore_index=True,
    )  # fmt: skip
    return CAPPING_BLAME.of(table)


def _pairs(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return every pair of step and device that was capped in it."""
    positions = [
        np.arange(len(rows))[overlapped(rows, start, end)]
        for start, end in zip(events["start_ns"], events["end_ns"], strict=True)
    ]
    counts = [len(steps_) for steps_ in positions]
    columns = ["entity", "clock_loss_ratio", "clock_mhz"]
    pairs = events.loc[events.index.repeat(counts), columns].reset_index(drop=True)
    at = np.concatenate(positions) if positions else np.empty(0, dtype=np.int64)
    return pairs.assign(at=at)


def _is_most_held_back(pairs: pd.DataFrame) -> pd.Series:
    """Return for each pair whether no other device of the step was held back more."""
    all_told = pairs["clock_loss_ratio"].notna().groupby(pairs["at"]).transform("all")
    any_clock = pairs["clock_mhz"].notna().groupby(pairs["at"]).transform("all")
    # Losses and clocks cannot be ranked together, so one measure serves all devices of a step.
    measure = pairs["clock_loss_ratio"].where(all_told, -pairs["clock_mhz"])
    measure = measure.where(all_told | any_clock, 0.0)
    return measure >= measure.groupby(pairs["at"]).transform("max")


def _doubts(table: pd.DataFrame, sharing: set[str], in_doubt: list[str]) -> list[str]:
    result = []
    for row in table.reset_index().to_dict("records"):
        words = list(dict.fromkeys(in_doubt)) if row["blamed_step_count"] else []
        if row["entity"] in sharing:
            words.append("other devices were held back as much in some steps")
        if np.isnan(row["clock_loss_ratio"]):
            words.append("no uncapped clock to compare with")
        if not row["capped_step_count"]:
            words.append("capped in no step that was kept")
        result.append("; ".join(words))
    return result
