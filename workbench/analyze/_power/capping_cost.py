"""Cost of power capping in job time, with the reasons to doubt the number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import positive, share_between, whole_number
from workbench.analyze._power.capping import AT_LIMIT
from workbench.errors import WorkbenchError
from workbench.tables import CAPPING_BLAME, CAPPING_COST, CAPPING_EVENTS, LOGGED_STEPS

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
