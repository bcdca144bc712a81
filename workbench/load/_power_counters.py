"""Power from counters of energy, where nothing else tells the power."""

from __future__ import annotations

import numpy as np

from workbench.load._findings import Finding
from workbench.load._power_rows import SECOND, Rows

_RESET = "counters of energy that fell (a reset); no power across it"
_DERIVED = "powers between updates of counters of energy"
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
    for what, bad, table in ((_RESET, is_reset, rows), (_BLANK, is_blank, counters)):
        if bad.any():
            name = table.names[table.codes[int(bad.argmax())]]
            findings.append((source, "noted", what, int(bad.sum()), name))
    found = Rows(rows.names, rows.codes, rows.time_ns, watts, rows.lines)
    return found.take(same), findings
