"""Events of a goodput log: one JSON object per line, with a time and a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.local_times import utc_ns
from workbench.load._files.log_file import SECOND, Given

EVENTS = frozenset(
    {"start", "running", "step", "checkpoint_start", "checkpoint_end", "interrupt"}
    | {"detected", "nodes_ready", "end", "evaluation_start", "evaluation_end"}
)
_TIMES = ("time", "timestamp", "ts")
_UNITS = {"time_ns": 1, "time_us": 1_000, "time_ms": 1_000_000, "time_s": SECOND}
_JOBS = ("job", "job_id")
_LATEST_NS = 2**62
# Epoch times of the years 2001 to 2096, which no two units share.
_EPOCH = {"s": (10**9, 4 * 10**9, SECOND), "ms": (10**12, 4 * 10**12, 1_000_000)}


@dataclass
class Event:
    """One event: what happened when, and the rest of its line."""

    line: int
    name: str
    at_ns: int
    job: str | None
    is_local: bool
    rest: Mapping[str, Any]
    text: str


def is_event(text: str) -> bool:
    """Whether one line is an event of this kind."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return False
    has_time = isinstance(entry, dict) and any(key in entry for key in (*_TIMES, *_UNITS))
    return has_time and isinstance(entry.get("event"), str) and entry["event"] in EVENTS


def events_of(lines: Iterable[tuple[int, str]], given: Given, findings: Findings) -> list[Event]:
    """Read all events, in order of time; lines that are none are left out and counted."""
    kept: list[tuple[int, dict[str, Any], str]] = []
    for number, text in lines:
        if text.strip() and not text.lstrip().startswith("#"):
            entry = _entry(text, number, findings)
            if entry is not None:
                kept.append((number, entry, text.strip()))
    times, local = _times(kept, given, findings)
    rows = zip(kept, times, local, strict=True)
    events = [
        Event(number, entry["event"], at, _job(entry), is_local, entry, text)
        for (number, entry, text), at, is_local in rows
        if at is not None
    ]
    _name_jobs(events, findings)
    ordered = sorted(events, key=lambda event: event.at_ns)
    moved = [a for a, b in zip(events, ordered, strict=True) if a is not b]
    what = "events not in order of time; they were sorted"
    findings.add("repaired", what, len(moved), f"line {moved[0].line:,}" if moved else None)
    return ordered


def _entry(text: str, number: int, findings: Findings) -> dict[str, Any] | None:
    where = f"line {number:,}: {text[:40]}"
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        findings.add("left out", "lines that are no JSON", 1, where)
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
        findings.add("left out", "lines without an event", 1, where)
        return None
    if entry["event"] not in EVENTS:
        findings.add("set aside", f"event {entry['event'][:40]!r}", 1, f"line {number:,}")
        return None
    return entry


def _job(entry: Mapping[str, Any]) -> str | None:
    value = next((entry[key] for key in _JOBS if entry.get(key) is not None), None)
    return None if value is None else str(value)


def _name_jobs(events: list[Event], findings: Findings) -> None:
    """Give events without a job the only one that the log names."""
    jobs = {event.job for event in events} - {None}
    nameless = [event for event in events if event.job is None]
    if len(jobs) == 1:
        only = jobs.pop()
        for event in nameless:
            event.job = only
    elif jobs and nameless:
        where = f"line {nameless[0].line:,}"
        findings.add("suspicious", "events that do not say of which job", len(nameless), where)


def _times(
    kept: list[tuple[int, dict[str, Any], str]], given: Given, findings: Findings
) -> tuple[list[int | None], list[bool]]:
    """Return the times in ns, missing where there is none, and whether they are local."""
    times: list[int | None] = [None] * len(kept)
    texts: dict[int, str] = {}
    for place, (number, entry, _) in enumerate(kept):
        value = next((entry[key] for key in _TIMES if key in entry), None)
        unit = next((key for key in _UNITS if key in entry), None)
        given_ns = None if unit is None else _number(entry[unit], _UNITS[unit])
        seconds = _number(value, 1)
        if given_ns is not None:
            times[place] = round(given_ns)
        elif seconds is not None:
            times[place] = _epoch_ns(seconds, number, findings)
        elif isinstance(value, str):
            texts[place] = value
        else:
            findings.add("left out", "events without a time", 1, f"line {number:,}")
    stamps = pd.Series(list(texts.values()), index=list(texts), dtype=pd.Series([""]).dtype)
    lines = pd.Series({place: kept[place][0] for place in texts}, dtype="int64")
    read = utc_ns(stamps, lines, given.tz, findings)
    for place, at in zip(texts, read.ns.tolist(), strict=True):
        times[place] = None if pd.isna(at) else int(at)
    local = set(read.is_local[read.is_local].index)
    return times, [place in local for place in range(len(kept))]


def _number(value: object, scale: int) -> float | None:
    """Return ``value`` times ``scale`` if that is a number of a size that time can have."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value * scale if abs(value) * scale < _LATEST_NS else None


def _epoch_ns(value: float, number: int, findings: Findings) -> int:
    for unit, (first, last, ns) in _EPOCH.items():
        if first <= value < last:
            findings.add("noted", f"times are {unit} since 1970", 1, f"line {number:,}")
            return round(value * ns)
    msg = (
        f"{findings.source}, line {number:,}: time {value!r} is neither s nor ms since 1970; "
        "write ISO 8601 with an offset, or name the unit: time_s, time_ms, time_us or time_ns"
    )
    raise LoadError(msg)
