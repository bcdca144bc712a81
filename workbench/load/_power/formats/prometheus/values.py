"""Values of Prometheus in the units of the tables: blanks out, repeats once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.load._files.findings import Findings
from workbench.load._power.formats.prometheus.metrics import Meaning
from workbench.load._power.formats.prometheus.series import Series
from workbench.load._power.samples import NO_TIME, Floats, Integers

# What DCGM writes for a value it has not: blank, not found, not supported, not permitted.
_BLANK_FLOATS = 140737488355328.0 + np.arange(4)
_BLANK_INT32 = (0x7FFFFFF0, 0x7FFFFFFF)
_BLANK_INT64 = 9.2233720368547e18
# Totals run through the small blanks on their way; only the largest is none of theirs.
_TOTALS = frozenset({"energy", "violation", "reasons"})
_SHARES = frozenset({"busy", "share"})
_NEVER_NEGATIVE = frozenset({"energy", "violation", "reasons", "limit", "clock"})
_TIMELESS_BELOW = NO_TIME + (1 << 40)

_SENTINELS = "values by which DCGM says that it has none; they are missing"
_NOT_FINITE = "values that are not a number (NaN, Inf); they are missing"
_IMPOSSIBLE = "limits, clocks, totals and loads that cannot be; they are missing"
_REPEATED = "readings that stand there twice, as for MIG slices and pods of one GPU; taken once"
_DIFFERENT = "readings of one device that differ at one instant; the first is taken"
_OTHERS = "series that say the same of a device under another name; set aside"

Samples = tuple[Integers, Floats, Integers]


def merged(group: Sequence[tuple[Meaning, Series]], findings: Findings) -> Samples:
    """Return times, values and lines of the series of one kind of one thing, in order of time.

    Times that nobody knows are told apart by how often their series came before; see
    :func:`settled_times`.
    """
    if not group:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
    least = min(meaning.rank for meaning, _ in group)
    taken = [(meaning, series) for meaning, series in group if meaning.rank == least]
    findings.add("noted", _OTHERS, len(group) - len(taken), taken[0][1].name)
    time_ns = np.concatenate([_told_apart(series.time_ns) for _, series in taken])
    values = np.concatenate([_cleaned(meaning, each, findings) for meaning, each in taken])
    line = np.concatenate([series.line for _, series in taken])
    if len(time_ns) > 1 and not (np.diff(time_ns) > 0).all():
        return _once((time_ns, values, line), findings)
    return time_ns, values, line


def settled_times(time_ns: Integers) -> Integers:
    """Return times with all that nobody knows alike."""
    return np.where(time_ns < _TIMELESS_BELOW, NO_TIME, time_ns)


def _told_apart(time_ns: Integers) -> Integers:
    timeless = time_ns == NO_TIME
    return time_ns + np.where(timeless, np.cumsum(timeless) - 1, 0) if timeless.any() else time_ns


def _once(samples: Samples, findings: Findings) -> Samples:
    """Order by time, and of readings at one instant take the first that has a value."""
    time_ns, values, line = samples
    order = np.lexsort((np.isnan(values), time_ns))
    time_ns, values, line = time_ns[order], values[order], line[order]
    first = np.concatenate([[True], np.diff(time_ns) > 0])
    leader = values[first][np.cumsum(first) - 1]
    differs = ~first & ~np.isnan(values) & (values != leader)
    where = f"line {line[differs][0]:,}" if differs.any() else None
    findings.add("suspicious", _DIFFERENT, int(differs.sum()), where)
    findings.add("noted", _REPEATED, int((~first & ~differs).sum()))
    return time_ns[first], values[first], line[first]


def _cleaned(meaning: Meaning, series: Series, findings: Findings) -> Floats:
    """Return values in the units of the tables; what is none is missing and counted."""
    values, where = series.values, f"{series.name[:80]}, line {series.line[:1].sum():,}"
    blank = (values >= _BLANK_INT64) & np.isfinite(values)
    if meaning.kind not in _TOTALS:
        blank |= np.isin(values, _BLANK_FLOATS)
        blank |= (values >= _BLANK_INT32[0]) & (values <= _BLANK_INT32[1])
    findings.add("left out", _SENTINELS, int(blank.sum()), where)
    lost = ~np.isfinite(values)
    findings.add("left out", _NOT_FINITE, int(lost.sum()), where)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.where(blank | lost, np.nan, values * _factor(meaning, values[~lost & ~blank]))
        wrong = np.isinf(scaled)
        if meaning.kind in _NEVER_NEGATIVE or meaning.kind in _SHARES:
            wrong |= scaled < 0
        if meaning.kind in _SHARES:
            wrong |= scaled > 1
    findings.add("left out", _IMPOSSIBLE, int(wrong.sum()), where)
    return np.where(wrong, np.nan, scaled)


def _factor(meaning: Meaning, known: Floats) -> float:
    """Return what leads to the unit of the tables; loads are per cent unless they are shares."""
    if meaning.kind != "busy":
        return meaning.factor
    is_share = bool(len(known)) and known.max() <= 1 and bool((known % 1 != 0).any())
    return 1.0 if is_share else 0.01
