"""Power from counters of energy, where nothing else tells the power."""

from __future__ import annotations

import numpy as np

from workbench.load._files.findings import Finding
from workbench.load._power.rows import SECOND, Rows

_RESET = "counters of energy that fell (a reset); no power across it"
_DERIVED = "powers between updates of counters of energy"
_LOW = "readings of counters of energy far below those around them"
_BLANK = "readings of counters of energy without a value"


def power_of_counters(counters: Rows, source: str) -> tuple[Rows, list[Finding]]:
    """Turn energies into the power between updates, at the time of the later one.

    A counter that stands still between updates is read where it moves. Where it falls, the
    reading is missing: nobody knows how far it had come.

    Parameters
    ----------
    counters
        Energies in J, in order of entity and time.
    source
        What to name in findings.
    """
    is_blank = np.isnan(counters.numbers)
    rows = counters.take(~is_blank)
    same = np.zeros(len(rows.codes), dtype=bool)
    same[1:] = rows.codes[1:] == rows.codes[:-1]
    is_update = ~same
    is_update[1:] |= rows.numbers[1:] != rows.numbers[:-1]
    rows, same = rows.take(is_update), same[is_update]
    watts = np.full(len(rows.codes), np.nan)
    span_s = np.diff(rows.time_ns) / SECOND
    gained = np.diff(rows.numbers)
    with np.errstate(divide="ignore", invalid="ignore"):
        watts[1:] = np.where(same[1:] & (gained > 0), gained / span_s, np.nan)
    is_reset = np.zeros(len(same), dtype=bool)
    is_reset[1:] = same[1:] & (gained < 0)
    findings: list[Finding] = []
    if count := int((same & ~is_reset).sum()):
        findings.append((source, "read", _DERIVED, count, None))
    for what, bad, table in (
        (_RESET, is_reset, rows),
        (_BLANK, is_blank, counters),
    ):
        if bad.any():
            name = table.names[table.codes[int(bad.argmax())]]
            findings.append((source, "noted", what, int(bad.sum()), name))
    found = Rows(rows.names, rows.codes, rows.time_ns, watts, rows.lines)
    return found.take(same), findings


def without_slips(counters: Rows, source: str) -> list[Finding]:
    """Make readings missing that are far below those around them; say how many."""
    known = np.flatnonzero(~np.isnan(counters.numbers))
    is_slip = np.zeros(len(counters.codes), dtype=bool)
    is_slip[known] = _outliers(counters.take(~np.isnan(counters.numbers)))
    if not is_slip.any():
        return []
    counters.numbers[is_slip] = np.nan
    name = counters.names[counters.codes[int(is_slip.argmax())]]
    return [(source, "left out", _LOW, int(is_slip.sum()), name)]


def _outliers(rows: Rows) -> np.ndarray:
    """Say which readings are a moment's slip: the counter goes on from where it was before.

    After a reset it would have to be faster than usual to come back that soon.
    """
    found = np.zeros(len(rows.codes), dtype=bool)
    if len(found) < 3:
        return found
    before, low, after = rows.numbers[:-2], rows.numbers[1:-1], rows.numbers[2:]
    one = (rows.codes[:-2] == rows.codes[1:-1]) & (rows.codes[1:-1] == rows.codes[2:])
    candidate = one & (low < before) & (after > before)
    if not candidate.any():
        return found
    seconds = rows.time_ns / SECOND
    usual: dict[int, float] = {}
    for at in np.flatnonzero(candidate):
        code = int(rows.codes[at])
        if code not in usual:
            mine = rows.codes == code
            rates = np.diff(rows.numbers[mine]) / np.diff(seconds[mine])
            usual[code] = float(np.median(rates[rates > 0]))
        if_slip = (after[at] - before[at]) / (seconds[at + 2] - seconds[at])
        if_reset = (after[at] - low[at]) / (seconds[at + 2] - seconds[at + 1])
        found[at + 1] = abs(if_slip - usual[code]) < abs(if_reset - usual[code])
    return found
