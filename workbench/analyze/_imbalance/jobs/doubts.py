"""What is doubtful about a recorded job although it can be replayed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    COMMUNICATION,
    COMPUTES,
    FORWARD,
    KNOWN,
    OVER_RANKS,
    SEND,
    Compute,
    Floats,
    Job,
    Operation,
    meetings,
    together,
)

# Computations of a worker that overlap by more than this share of a usual one cannot be right.
_OVERLAP_SHARE = 0.1
# Peers may miss each other by so much of a step; so many of the meetings may be off.
_CLOCK_SHARE, _FEW_SHARE = 1e-4, 0.01
# Replays of real jobs are within 2 % of the recording.
_REPLAY_LIMIT = 0.05


def doubts_of(it: Job, resolution_ns: int = 0) -> list[str]:
    """Say what may be wrong with a recording, in words."""
    at = {key: row for row, key in enumerate(it.keys)}
    return [
        *_unknown(it.keys),
        *implausible(it),
        *_overlapping(it.computes, at, it.start, it.end),
        *_apart(it, at, resolution_ns),
        *_absent(it),
        *_cut_off(it),
    ]


def doubts_of_replay(delay_ratio: float) -> list[str]:
    """Say if the replay does not take as long as the recording."""
    if abs(delay_ratio) <= _REPLAY_LIMIT:
        return []
    if delay_ratio > 0:
        reason = "what is lost lies between the operations (loading data, launches), or"
        how = "shorter"
    else:
        reason, how = "operations overlap that should not:", "longer"
    return [
        f"the replay is {abs(delay_ratio):.0%} {how} than the recording: {reason} clocks or "
        "units are wrong"
    ]


def _unknown(keys: list[Operation]) -> list[str]:
    """Name the operations of which it is not known who meets in them."""
    names = sorted({key.operation for key in keys} - KNOWN)
    listed = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
    return [f"replayed as local work, as nobody knows who meets in it: {listed}"] if names else []


def _overlapping(
    computes: dict[int, list[Compute]], at: dict[Operation, int], start: Floats, end: Floats
) -> list[str]:
    """Say if computations of one worker overlap: then times are too coarse or units differ."""
    checked = wrong = 0
    for items in computes.values():
        rows = [at[item.key] for item in items]
        usual = np.median((end - start)[rows])
        early = end[rows[:-1]] - start[rows[1:]] > _OVERLAP_SHARE * usual
        checked, wrong = checked + early.size, wrong + int(early.sum())
    if wrong <= 0.01 * checked:
        return []
    return [
        f"{wrong:,} of {checked:,} computations begin before the one before them on their worker "
        "is over: starts are too coarse (float32 seconds?), their unit is not that of the "
        "durations, or ranks differ in their order"
    ]


def _apart(it: Job, at: dict[Operation, int], resolution_ns: int) -> list[str]:
    """Say if peers miss each other: over for one before another begins."""
    near = max(_CLOCK_SHARE * float(it.actual.mean()), resolution_ns)
    missed, checked = [], 0
    for late in (_receives_too_early(it, at), _meetings_missed(it, at)):
        off = late > near
        checked += off.size
        if off.size and off.mean(axis=(0, 1)).max() > _FEW_SHARE:
            missed.append(late[off])
    if not missed:
        return []
    each = np.concatenate(missed)
    return [
        f"clocks differ: of {checked:,} transfers and collectives {len(each):,} are over for one "
        f"side before the other begins, by up to {each.max() / 1e6:,.3g} ms; causes may be wrong"
    ]


def _receives_too_early(it: Job, at: dict[Operation, int]) -> Floats:
    """Return by how much receives end before their send begins: transfers, steps, ranks."""
    items = [item for items in it.computes.values() for item in items]
    sends = {item.produces: item.send for item in items}
    late = [
        it.start[at[send]] - it.end[at[item.receive]]
        for item in items
        if item.needs is not None and item.receive is not None
        if (send := sends.get(item.needs)) is not None
    ]
    return np.array(late).reshape(-1, *it.own.shape[1:])


def _meetings_missed(it: Job, at: dict[Operation, int]) -> Floats:
    """Return by how much a collective ends for one before it begins for the last: by step."""
    late = []
    for group in meetings([key for key in it.before + it.after if key.operation in COMMUNICATION]):
        begin = together(group, {key.stage: it.start[at[key]] for key in group})
        each = np.array([begin[key.stage] - it.end[at[key]] for key in group])
        late.append(each.max(axis=(0, 2))[:, None])
    return np.array(late).reshape(-1, len(it.steps), 1)


def _absent(it: Job) -> list[str]:
    """Say if data-parallel ranks seem to be missing, or if there is one only."""
    ranks = it.dp_ranks.tolist()
    lacking = sorted(set(range(max(ranks) + 1)) - set(ranks))
    doubts = []
    if lacking:
        listed = ", ".join(str(rank) for rank in lacking[:5]) + " ..." * (len(lacking) > 5)
        doubts.append(
            f"data-parallel ranks {listed} are not there: waiting for them looks like slow "
            "collectives"
        )
    if len(ranks) == 1:
        if not lacking and any(key.operation in OVER_RANKS for key in it.keys):
            doubts.append(
                "data-parallel collectives, but one rank only: others may be missing, and "
                "waiting for them looks like slow collectives"
            )
        doubts.append("one data-parallel rank: a slow worker and a slow stage look alike")
    return doubts


def _cut_off(it: Job) -> list[str]:
    """Say if the last stage does not begin as the last one of 1F1B does."""
    last = it.computes.get(max(it.computes), [])
    one_chunk = len({item.produces[1] for item in last}) == 1
    kinds = [item.produces[0] for item in last]
    batches = len({item.produces[2] for item in last})
    has_sends = any(key.operation in SEND.values() for key in it.keys)
    if has_sends or not one_chunk or batches < 2 or BACKWARD not in kinds:
        return []
    leading = kinds.index(BACKWARD)
    if leading < 2:
        return []
    return [
        f"the last stage begins with {leading} {FORWARD} before a {BACKWARD}, where 1F1B has 1: "
        "is the stage after it missing?"
    ]


# Whether the times of a recorded job can be right: their unit, and single values.

# Steps of real jobs take a tenth of a second to minutes.
_LONGEST_STEP_S, _SHORTEST_STEP_S = 600.0, 1e-3
_LIKELY_STEP_S = (0.01, 600.0)
_SMALLER = {"ms": 1e3, "us": 1e6, "ns": 1e9}
# A value so many times the usual one of its kind, and so much of all that was recorded.
_OUTLIER_RATIO, _OUTLIER_SHARE = 100.0, 0.05
_NS_PER_S = 1e9


def implausible(it: Job) -> list[str]:
    """Say in words which times are hard to believe, and what may put them right."""
    return [*_unit(it), *_dominating(it), *_long_steps(it), *_without_time(it)]


def _unit(it: Job) -> list[str]:
    """Compare the usual step with those of real jobs."""
    step_s = float(np.median(it.actual)) / _NS_PER_S
    low, high = _LIKELY_STEP_S
    if step_s > _LONGEST_STEP_S:
        likely = [(unit, step_s / each) for unit, each in _SMALLER.items()]
        way = "read as a larger unit than they are"
    elif step_s < _SHORTEST_STEP_S:
        likely = [(f"{each:,.0f} times larger", step_s * each) for each in _SMALLER.values()]
        way = "read as a smaller unit than they are"
    else:
        return []
    fitting = [
        (f"time_unit={unit!r} makes it" if unit in _SMALLER else f"in a unit {unit} it is", length)
        for unit, length in likely
        if low <= length <= high
    ]
    words = "; ".join(f"{how} {duration(length)}" for how, length in fitting)
    return [
        f"the usual step takes {duration(step_s)}, so times may be {way}"
        + (f": {words} (load.job_operations)" if words else "")
    ]


def _dominating(it: Job) -> list[str]:
    """Name the longest operation, if it is out of all proportion."""
    lasted = it.end - it.start
    usual = np.median(lasted, axis=(1, 2))[:, None, None]
    total = float(it.actual.sum())
    is_odd = (lasted > _OUTLIER_RATIO * usual) & (lasted > _OUTLIER_SHARE * total)
    if not is_odd.any():
        return []
    row, step, rank = np.unravel_index(np.argmax(np.where(is_odd, lasted, -1)), lasted.shape)
    key = it.keys[row]
    return [
        f"{_counted(is_odd)} most of all time: {key.operation} in step {it.steps[step]} of "
        f"data-parallel rank {it.dp_ranks[rank]}, stage {key.stage} lasts "
        f"{duration(lasted[row, step, rank] / _NS_PER_S)}, usually "
        f"{duration(float(usual[row, 0, 0]) / _NS_PER_S)}: a stall, or a wrong value"
    ]


def _counted(is_odd: NDArray[np.bool_]) -> str:
    count = int(is_odd.sum())
    return "one operation takes" if count == 1 else f"{count:,} operations take"


def _long_steps(it: Job) -> list[str]:
    """Name the longest step, if its first start and last end are too far apart."""
    usual, longest = float(np.median(it.actual)), float(it.actual.max())
    if longest <= _OUTLIER_RATIO * usual or longest <= _OUTLIER_SHARE * float(it.actual.sum()):
        return []
    return [
        f"step {it.steps[int(it.actual.argmax())]} spans {duration(longest / _NS_PER_S)} from its "
        f"first start to its last end, a usual one {duration(usual / _NS_PER_S)}: a stall, or a "
        "wrong start or duration"
    ]


def _without_time(it: Job) -> list[str]:
    """Count the computations that take no time at all."""
    rows = [at for at, key in enumerate(it.keys) if key.operation in COMPUTES]
    lasted = (it.end - it.start)[rows]
    count = int((lasted <= 0).sum())
    if not count:
        return []
    return [
        f"{count:,} of {lasted.size:,} computations last exactly 0 ns: missing values, or a "
        "damaged file"
    ]


def duration(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
