"""How evenly a file was written: periods, and pauses in between."""

from __future__ import annotations

import numpy as np

from workbench.load._files.findings import Findings
from workbench.load._power.rows import SECOND, Rows, place

_LONG_PERIODS = 3.0
_FEWEST_STEPS = 5
_SLACK = 0.5
_IRREGULAR_SHARE = 0.1
_LOST_SHARE = 0.01
_EARLIEST_NS = 946_684_800 * SECOND  # 2000-01-01


def tell_of_rhythm(rows: Rows, findings: Findings) -> None:
    """Note pauses longer than three periods, and things that are read at odd times."""
    counts, gap_ns, span_ns, first_gap = 0, 0, 0, -1
    uneven: list[str] = []
    for name, some in rows.slices():
        step = np.diff(rows.time_ns[some])
        if len(step) < _FEWEST_STEPS:
            continue
        period = float(np.median(step))
        is_long = step > _LONG_PERIODS * period
        span_ns += int(step.sum())
        if is_long.any():
            counts += int(is_long.sum())
            gap_ns += int(step[is_long].sum())
            at = some.start + 1 + int(is_long.argmax())
            first_gap = at if first_gap < 0 else min(first_gap, at, key=lambda n: rows.lines[n])
        is_odd = (np.abs(step - period) > _SLACK * period) & ~is_long
        if is_odd.mean() > _IRREGULAR_SHARE:
            uneven.append(name)
    if counts:
        kind = "suspicious" if gap_ns > _LOST_SHARE * span_ns else "noted"
        what = f"pauses longer than 3 periods, {gap_ns / max(span_ns, 1):.2%} of the time in all"
        findings.add(kind, what, counts, place(rows, first_gap))
    if uneven:
        what = "entities read at uneven times (more than a tenth of the steps is half a period off)"
        findings.add("noted", what, len(uneven), uneven[0])


def is_before_any_clock(time_ns: int) -> bool:
    """Say whether a time is before the year 2000: the clock was not set."""
    return time_ns < _EARLIEST_NS
