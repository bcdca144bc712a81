"""Whether the times of a recorded job can be right: their unit, and single values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._imbalance.jobs.replay import COMPUTES, Job

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
