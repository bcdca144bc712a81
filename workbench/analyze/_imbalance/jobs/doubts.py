"""Doubts about a recorded job that can be replayed all the same."""

from __future__ import annotations

import numpy as np

from workbench._shared.numbers import Floats
from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    COMMUNICATION,
    COMPUTES,
    FORWARD,
    KNOWN,
    OVER_RANKS,
    SEND,
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


def doubts_of(job: Job, resolution_ns: int = 0) -> list[str]:
    """List possible faults of a recording, in words."""
    row_of = {key: row for row, key in enumerate(job.keys)}
    doubts = (
        _unknown(job),
        _unit(job),
        _dominating(job),
        _long_step(job),
        _timeless(job),
        _overlapping(job, row_of),
        _apart(job, row_of, resolution_ns),
        *_absent(job),
        _cut_off(job),
    )
    return [doubt for doubt in doubts if doubt]


def doubts_of_replay(delay_ratio: float) -> list[str]:
    if abs(delay_ratio) <= _REPLAY_LIMIT:
        return []
    if delay_ratio > 0:
        reason = "the lost time lies between the operations (loading data, launches), or"
        how = "shorter"
    else:
        reason, how = "operations overlap that should not:", "longer"
    return [
        f"the replay is {abs(delay_ratio):.0%} {how} than the recording: {reason} clocks or "
        "units are wrong"
    ]


def _unknown(job: Job) -> str:
    names = sorted({key.operation for key in job.keys} - KNOWN)
    listed = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
    return f"replayed as local work, as its participants are unknown: {listed}" if names else ""


def _overlapping(job: Job, row_of: dict[Operation, int]) -> str:
    checked = wrong = 0
    for items in job.computes.values():
        rows = [row_of[item.key] for item in items]
        usual = np.median((job.end - job.start)[rows])
        early = job.end[rows[:-1]] - job.start[rows[1:]] > _OVERLAP_SHARE * usual
        checked, wrong = checked + early.size, wrong + int(early.sum())
    # A few overlaps may come from rounded stamps.
    if wrong <= 0.01 * checked:
        return ""
    return (
        f"{wrong:,} of {checked:,} computations begin before the one before them on their worker "
        "is over: starts are too coarse (float32 seconds?), their unit is not that of the "
        "durations, or ranks differ in their order"
    )


def _apart(job: Job, row_of: dict[Operation, int], resolution_ns: int) -> str:
    """Report peers that miss each other: an operation ends for one before another begins it."""
    near = max(_CLOCK_SHARE * float(job.actual.mean()), resolution_ns)
    missed, checked = [], 0
    for late in (_receives_too_early(job, row_of), _meetings_missed(job, row_of)):
        off = late > near
        checked += off.size
        # By rank: one clock that is off does it in most of its transfers, noise in few of all.
        if off.size and off.mean(axis=(0, 1)).max() > _FEW_SHARE:
            missed.append(late[off])
    if not missed:
        return ""
    late = np.concatenate(missed)
    return (
        f"clocks differ: of {checked:,} transfers and collectives {len(late):,} are over for one "
        f"side before the other begins, by up to {late.max() / 1e6:,.3g} ms; causes may be wrong"
    )


def _receives_too_early(job: Job, row_of: dict[Operation, int]) -> Floats:
    """Return by how much receives end before their send begins: transfers, steps, ranks."""
    sends = {item.produces: item.send for item in job.items}
    late = [
        job.start[row_of[send]] - job.end[row_of[item.receive]]
        for item in job.items
        if item.needs is not None and item.receive is not None
        if (send := sends.get(item.needs)) is not None
    ]
    return np.array(late).reshape(-1, *job.own.shape[1:])


def _meetings_missed(job: Job, row_of: dict[Operation, int]) -> Floats:
    """Return by how much a collective ends for one before it begins for the last: by step."""
    late = []
    for group in meetings(
        [key for key in job.before + job.after if key.operation in COMMUNICATION]
    ):
        begin = together(group, {key.stage: job.start[row_of[key]] for key in group})
        missed = np.array([begin[key.stage] - job.end[row_of[key]] for key in group])
        late.append(missed.max(axis=(0, 2))[:, None])
    return np.array(late).reshape(-1, len(job.steps), 1)


def _absent(job: Job) -> list[str]:
    ranks = job.dp_ranks.tolist()
    lacking = sorted(set(range(max(ranks) + 1)) - set(ranks))
    doubts = []
    if lacking:
        listed = ", ".join(str(rank) for rank in lacking[:5]) + " ..." * (len(lacking) > 5)
        doubts.append(
            f"data-parallel ranks {listed} are not there: waiting for them looks like slow "
            "collectives"
        )
    if len(ranks) == 1:
        if not lacking and any(key.operation in OVER_RANKS for key in job.keys):
            doubts.append(
                "data-parallel collectives, but one rank only: others may be missing, and "
                "waiting for them looks like slow collectives"
            )
        doubts.append("one data-parallel rank: a slow worker looks like a slow stage")
    return doubts


def _cut_off(job: Job) -> str:
    """Return whether the last stage does not begin as the last one of 1F1B does."""
    last = job.computes.get(max(job.computes), [])
    kinds, chunks, batches = (
        list(labels) for labels in zip(*(i.produces for i in last), strict=True)
    )
    # Sends without another end are refused before; without any recorded only the order can tell.
    has_sends = any(key.operation in SEND.values() for key in job.keys)
    if has_sends or len(set(chunks)) > 1 or len(set(batches)) < 2 or BACKWARD not in kinds:
        return ""
    leading = kinds.index(BACKWARD)
    if leading < 2:
        return ""
    return (
        f"the last stage begins with {leading} {FORWARD} before a {BACKWARD}, where 1F1B has 1: "
        "is the stage after it missing?"
    )


# Steps of real jobs take a tenth of a second to minutes.
_LONGEST_STEP_S, _SHORTEST_STEP_S = 600.0, 1e-3
_LIKELY_STEP_S = (0.01, 600.0)
_SMALLER = {"ms": 1e3, "us": 1e6, "ns": 1e9}
# A value so many times the usual one of its kind, and so much of all that was recorded.
_OUTLIER_RATIO, _OUTLIER_SHARE = 100.0, 0.05
_NS_PER_S = 1e9


def _unit(job: Job) -> str:
    step_s = float(np.median(job.actual)) / _NS_PER_S
    if step_s > _LONGEST_STEP_S:
        likely = [
            (f"time_unit={unit!r} makes it", step_s / size) for unit, size in _SMALLER.items()
        ]
        way = "larger"
    elif step_s < _SHORTEST_STEP_S:
        likely = [
            (f"in a unit {size:,.0f} times larger it is", step_s * size)
            for size in _SMALLER.values()
        ]
        way = "smaller"
    else:
        return ""
    low, high = _LIKELY_STEP_S
    words = "; ".join(f"{how} {duration(step)}" for how, step in likely if low <= step <= high)
    doubt = f"the usual step takes {duration(step_s)}, so times may be read as a {way} unit than "
    return doubt + "they are" + (f": {words} (load.job_operations)" if words else "")


def _dominating(job: Job) -> str:
    lasted = job.end - job.start
    usual = np.median(lasted, axis=(1, 2))[:, None, None]
    total = float(job.actual.sum())
    is_odd = (lasted > _OUTLIER_RATIO * usual) & (lasted > _OUTLIER_SHARE * total)
    if not is_odd.any():
        return ""
    row, step, rank = np.unravel_index(np.argmax(np.where(is_odd, lasted, -1)), lasted.shape)
    key, count = job.keys[row], int(is_odd.sum())
    return (
        f"{'one operation takes' if count == 1 else f'{count:,} operations take'} most of all "
        f"time: {key.operation} in step {job.steps[step]} of data-parallel rank "
        f"{job.dp_ranks[rank]}, stage {key.stage} lasts "
        f"{duration(lasted[row, step, rank] / _NS_PER_S)}, usually "
        f"{duration(float(usual[row, 0, 0]) / _NS_PER_S)}: a stall, or a wrong value"
    )


def _long_step(job: Job) -> str:
    usual, longest = float(np.median(job.actual)), float(job.actual.max())
    if longest <= max(_OUTLIER_RATIO * usual, _OUTLIER_SHARE * float(job.actual.sum())):
        return ""
    return (
        f"step {job.steps[int(job.actual.argmax())]} spans {duration(longest / _NS_PER_S)} from "
        f"its first start to its last end, a usual one {duration(usual / _NS_PER_S)}: a stall, or "
        "a wrong start or duration"
    )


def _timeless(job: Job) -> str:
    rows = [row for row, key in enumerate(job.keys) if key.operation in COMPUTES]
    lasted = (job.end - job.start)[rows]
    count = int((lasted <= 0).sum())
    doubt = f"{count:,} of {lasted.size:,} computations last exactly 0 ns: missing values, or a "
    return f"{doubt}damaged file" if count else ""


def duration(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
