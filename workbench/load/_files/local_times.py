"""Stamps of logs as ns since 1970: local ones need a zone, and none is ever assumed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

from workbench.load._files.findings import Findings
from workbench.load._files.zones import no_zone, zone_of

ABSENT = frozenset({"", "Unknown", "None", "NONE", "N/A", "Invalid", "(null)"})
_LOCAL = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
_ZONED = rf"{_LOCAL} ?(?:Z|[+-]\d\d(?::?\d\d)?)"
_LATEST_S = 7_258_118_400  # 2200-01-01
# No job runs for 30 years, and no stamp plus that is beyond what int64 can hold.
_LONGEST_S = 30 * 366 * 86_400
_SECONDS = r"\d{9,10}(?:\.\d+)?"


@dataclass(frozen=True)
class Times:
    """Stamps read: ns since 1970, and whether a zone of the caller was used."""

    ns: pd.Series
    is_local: pd.Series


def utc_ns(texts: pd.Series, lines: pd.Series, tz: str | None, findings: Findings) -> Times:
    """Read stamps: ISO 8601 with or without an offset, or seconds since 1970.

    Stamps that are none, and local ones that the zone's clock change makes ambiguous or
    impossible, become missing and are counted.

    Raises
    ------
    LoadError
        If a local stamp is met and ``tz`` is None, or ``tz`` is no zone.
    """
    values = texts.str.strip()
    unique = pd.Series(values[~values.isin(ABSENT)].unique(), dtype=values.dtype)
    local = unique.str.fullmatch(_LOCAL)
    if tz is None and local.any():
        first = values[values.isin(unique[local])].index[0]
        raise no_zone(label=findings.source, line=int(lines[first]), text=values[first])
    ns, problem = _read(unique, local, tz)
    place = pd.Series(range(len(unique)), index=unique).reindex(values).to_numpy()
    at = pd.Series(place, index=texts.index).dropna().astype("int64")
    result = pd.Series(ns.iloc[at].array, index=at.index).reindex(texts.index)
    for what in sorted({*problem} - {""}):
        bad = at[problem.iloc[at].eq(what).to_numpy()]
        where = f"line {int(lines[bad.index[0]]):,}: {values[bad.index[0]][:40]}"
        findings.add("left out", what, len(bad), where)
    used = pd.Series(local.iloc[at].to_numpy(dtype=bool), index=at.index)
    return Times(result, used.reindex(texts.index, fill_value=False))


def _read(unique: pd.Series, local: pd.Series, tz: str | None) -> tuple[pd.Series, pd.Series]:
    """Return ns and problem of each distinct stamp."""
    year = pd.to_numeric(unique.str.slice(0, 4), errors="coerce").between(1970, 2200)
    zoned = unique.str.fullmatch(_ZONED)
    # Both forms of an offset are ISO 8601; pandas wants no space before it.
    tidy = unique.str.replace(r" (?=(?:Z|[+-]\d\d(?::?\d\d)?)$)", "", regex=True)
    absolute = _parsed(tidy.where(zoned & year), utc=True)
    naive = _parsed(tidy.where(local & year), utc=False)
    both = absolute
    if tz is not None:
        # Records stand alone, so nothing tells which hour of two is meant.
        placed = naive.dt.tz_localize(zone_of(tz), ambiguous="NaT", nonexistent="NaT")
        both = absolute.fillna(placed.dt.tz_convert("UTC"))
    raw = both.dt.tz_localize(None).astype("int64")
    ns = raw.astype("Int64").mask(both.isna())
    for index in unique.index[unique.str.fullmatch(_SECONDS)]:
        whole, _, fraction = unique[index].partition(".")
        if int(whole) < _LATEST_S:
            ns[index] = int(whole) * 10**9 + int(f"{fraction[:9]:0<9}")
    problem = pd.Series("stamps that are no time; they are missing", index=unique.index)
    shifted = f"local times that the clock change makes ambiguous or impossible in {tz}; "
    problem = problem.mask(naive.notna(), shifted + "they are missing").mask(ns.notna(), "")
    return ns, problem


def _parsed(texts: pd.Series, *, utc: bool) -> pd.Series:
    stamps = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=utc)
    in_ns: pd.Series = stamps.dt.as_unit("ns")
    return in_ns


def duration_ns(text: str) -> int | None:
    """Read a duration of Slurm, ``2-03:41:40`` or ``00:23.779``; None if it is none."""
    match = re.fullmatch(
        r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.(\d{1,9}))?", text.strip(), re.ASCII
    )
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if whole > _LONGEST_S:
        return None
    return whole * 10**9 + int(f"{match[5] or '0':0<9}")
