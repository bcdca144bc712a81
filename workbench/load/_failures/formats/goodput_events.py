"""Goodput logs: what a training job did, one JSON event per line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Record, Row
from workbench.load._files.text import text_lines
from workbench.load._files.time import SECOND, Given, LogPart, log_part, set_forward, utc_ns
from workbench.tables import SAYS_SYNTHETIC

NAME = "goodput events"
_TEXT_LENGTH = 200
# Event -> the state it begins, and the states it may end.
_BEGINS = {
    "start": ("starting", {""}),
    "running": ("running", {"starting", "joining"}),
    "checkpoint_start": ("checkpoint", {"running"}),
    "checkpoint_end": ("running", {"checkpoint"}),
    "interrupt": ("detecting", {"starting", "running", "checkpoint", "joining"}),
    "detected": ("allocating", {"detecting"}),
    "nodes_ready": ("joining", {"allocating"}),
    "end": ("ended", {"starting", "running", "checkpoint", "detecting", "allocating", "joining"}),
}
# What tells the state whatever came before; the others mean nothing out of order.
_PLAIN = frozenset({"start", "running", "interrupt", "end"})


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    lines = head.decode(errors="replace").removeprefix("\ufeff").split("\n")
    # Comments may stand before the first event.
    plain = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return is_event(next(plain, ""))


def read(source: Source, settings: Given) -> LogPart:
    """Read the states of each job, and a failure for each interruption.

    Events follow each other in a strict order: start, running, any number of checkpoints
    (checkpoint_start, checkpoint_end), interrupt, detected, nodes_ready, running, ... end. A job
    whose start is not followed by running runs from its start. An event that cannot follow is
    counted; running, interrupt, start and end tell the state all the same, others are dropped.

    References
    ----------
    The format of inigogonzalezgarcia/12-gpu-goodput-mtbi, docs/event-log.md, and the bundled
    demo job's, which adds steps.
    """
    findings = Findings(source.label)
    events = events_of(text_lines(source, findings), settings, findings)
    findings.add("read", "events", len(events))
    synthetic = sum(1 for event in events if event.rest.get("synthetic") is True)
    findings.add("noted", SAYS_SYNTHETIC, synthetic)
    jobs: dict[str | None, list[Event]] = {}
    for event in events:
        jobs.setdefault(event.job, []).append(event)
    failures: list[Row] = []
    spans: list[Row] = []
    for own in jobs.values():
        story = _Story(own, settings, findings)
        failures += story.failures
        spans += story.spans
    failures.sort(key=lambda row: row["start_ns"])
    spans.sort(key=lambda row: (row["start_ns"], row["line"]))
    return log_part(findings, failures, spans)


class _Story:
    def __init__(self, events: list[Event], settings: Given, findings: Findings) -> None:
        self.failures: list[Row] = []
        self.spans: list[Row] = []
        self._findings = findings
        self._zone = f"tz={settings.tz}"
        self._state, self._attempt = "", 1
        self._size: Row = {}
        self._nodes: list[str] = []
        self._lost_node: str | None = None
        for event, following in zip(events, [*events[1:], None], strict=True):
            self._take(event, following)
        if self._state != "ended":
            remark = "jobs whose log does not reach their end"
            findings.add("noted", remark, 1, f"after line {events[-1].line:,}")

    def _take(self, event: Event, following: Event | None) -> None:
        if event.name == "step":
            self._step(event)
            return
        state, may_end = _BEGINS[event.name]
        if self._state not in may_end and not (event.name == "start" and self._state == "ended"):
            self._complain(event)
            # Out of order it would begin a state that cannot be.
            if event.name not in _PLAIN:
                return
        self._close(event)
        if event.name == "start":
            self._begin(event)
            # A job that never says when it runs, runs from its start.
            says = following is not None and following.name == "running"
            state = state if says else "running"
        if event.name in ("start", "running", "nodes_ready"):
            self._renew(event)
        if event.name == "interrupt":
            self._interrupt(event)
        if event.name == "running":
            self._recover(event)
        self._open(event, state)

    def _complain(self, event: Event) -> None:
        after = f"after {self._state!r}" if self._state else "at the beginning"
        remark = f"event {event.name!r} {after}, where it cannot be"
        finding = "suspicious" if event.name in _PLAIN else "dropped"
        self._findings.add(finding, remark, 1, f"line {event.line:,}")

    def _step(self, event: Event) -> None:
        step = _whole(event.rest.get("step"))
        if self._state not in ("running", "checkpoint"):
            self._complain_step(event, "while the job does not run")
        elif self._state == "checkpoint":
            self._complain_step(event, "during a checkpoint, which did not block them")
        elif step is not None:
            span = self.spans[-1]
            span["first_step"] = step if span.get("_begun") is None else span["first_step"]
            span |= {"last_step": step, "_begun": True}

    def _complain_step(self, event: Event, when: str) -> None:
        self._findings.add("suspicious", f"steps {when}", 1, f"line {event.line:,}")

    def _close(self, event: Event) -> None:
        if self._state and self._state != "ended":
            self.spans[-1]["end_ns"] = event.at_ns
            if event.name == "interrupt":
                self.spans[-1]["outcome"] = str(event.rest.get("cause") or "interrupted")

    def _open(self, event: Event, state: str) -> None:
        self._state = state
        step = _whole(event.rest.get("step"))
        row = {"start_ns": event.at_ns, "end_ns": None, "job": event.job, "state": state}
        row |= {"attempt": self._attempt, "first_step": step, "line": event.line, **self._size}
        if state in ("checkpoint", "ended"):
            row["last_step"] = step
        if state == "ended":
            row["end_ns"] = event.at_ns
        if self._nodes:
            row |= {"nodes": ",".join(self._nodes)}
        if event.name == "checkpoint_end":
            # The step of a checkpoint is the last one before it.
            row["first_step"] = None
        self.spans.append(row)

    def _begin(self, event: Event) -> None:
        if self._state == "ended":
            self._attempt += 1
        nodes = event.rest.get("nodes")
        self._nodes = [str(node) for node in nodes] if isinstance(nodes, list) else []
        count = len(self._nodes) or _whole(nodes)
        per_node = _whole(event.rest.get("gpus_per_node"))
        gpus = _whole(event.rest.get("gpus")) or _whole(event.rest.get("ranks"))
        # A number that the job states itself goes first.
        if gpus is None and per_node is not None and count:
            gpus = count * per_node
        self._size = {"node_count": count, "gpu_count": gpus}

    def _renew(self, event: Event) -> None:
        """Count the attempt, and put the spare in the place of the node that was lost."""
        attempt = _whole(event.rest.get("attempt"))
        if attempt:
            self._attempt = max(attempt, 1)
        elif event.name == "nodes_ready":
            self._attempt += 1
        spare = event.rest.get("spare")
        if event.name == "nodes_ready" and isinstance(spare, str) and self._lost_node:
            self._nodes = [spare if node == self._lost_node else node for node in self._nodes]

    def _interrupt(self, event: Event) -> None:
        cause = str(event.rest.get("cause") or "unknown")
        node = event.rest.get("node")
        self._lost_node = None if node is None else str(node)
        xid = re.search(r"xid[ _-]?(\d{1,3})\b", cause, re.IGNORECASE)
        row = {"start_ns": event.at_ns, "end_ns": event.at_ns, "job": event.job}
        row |= {"node": self._lost_node, "kind": "goodput", "severity": "fatal"}
        row |= {"code": xid[1] if xid else None, "cause": cause, "line": event.line}
        row |= {"text": event.text[:_TEXT_LENGTH]}
        row |= {"assumed": self._zone if event.is_local else "", "_open": True}
        self.failures.append(row)

    def _recover(self, event: Event) -> None:
        """Interruptions last until the job runs again."""
        for row in self.failures:
            if row.pop("_open", False):
                row["end_ns"] = event.at_ns


def _whole(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**31 else None


# Events of a goodput log: one JSON object per line, with a time and a job.

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
    line: int
    name: str
    at_ns: int
    job: str | None
    is_local: bool
    rest: Record
    text: str


def is_event(text: str) -> bool:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return False
    has_time = isinstance(entry, dict) and any(key in entry for key in (*_TIMES, *_UNITS))
    return has_time and isinstance(entry.get("event"), str) and entry["event"] in EVENTS


def events_of(lines: Iterable[tuple[int, str]], settings: Given, findings: Findings) -> list[Event]:
    """Read all events, in order of time; lines that are none are dropped and counted."""
    kept: list[tuple[int, Row, str]] = []
    for number, text in lines:
        if text.strip() and not text.lstrip().startswith("#"):
            entry = _entry(text, number, findings)
            if entry is not None:
                kept.append((number, entry, text.strip()))
    times, local = _times(kept, settings, findings)
    rows = zip(kept, times, local, strict=True)
    events = [
        Event(number, entry["event"], at, _job(entry), is_local, entry, text)
        for (number, entry, text), at, is_local in rows
        if at is not None
    ]
    _name_jobs(events, findings)
    _set_forward(events, findings)
    ordered = sorted(events, key=lambda event: event.at_ns)
    moved = [a for a, b in zip(events, ordered, strict=True) if a is not b]
    remark = "events not in order of time; they were sorted"
    findings.add("repaired", remark, len(moved), f"line {moved[0].line:,}" if moved else None)
    return ordered


def _set_forward(events: list[Event], findings: Findings) -> None:
    """Move stamps on where the clock was set back: where the order of the lines fits the steps.

    The numbers of the steps rise more often in that order than in the order of time.
    """
    steps = [(event, _whole(event.rest.get("step"))) for event in events if event.name == "step"]
    numbered = [(event.at_ns, number) for event, number in steps if number is not None]
    as_written, by_time = (
        sum(after[1] <= before[1] for before, after in pairwise(pairs))
        for pairs in (numbered, sorted(numbered, key=lambda pair: pair[0]))
    )
    if as_written >= by_time:
        return
    at = pd.Series([event.at_ns for event in events])
    lines = pd.Series([event.line for event in events])
    falls, usual = at.diff() < 0, at.diff()[at.diff() > 0].median()
    more = set_forward(at, falls, at * 0 + int(usual), lines, findings)
    for event, ns in zip(events, more.tolist(), strict=True):
        event.at_ns += ns


def _entry(text: str, number: int, findings: Findings) -> Row | None:
    where = f"line {number:,}: {text[:40]}"
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        findings.add("dropped", "lines that are not JSON", 1, where)
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
        findings.add("dropped", "lines without an event", 1, where)
        return None
    if entry["event"] not in EVENTS:
        findings.add("skipped by design", f"event {entry['event'][:40]!r}", 1, f"line {number:,}")
        return None
    return entry


def _job(entry: Record) -> str | None:
    value = next((entry[key] for key in _JOBS if entry.get(key) is not None), None)
    return None if value is None else str(value)


def _name_jobs(events: list[Event], findings: Findings) -> None:
    """Assign events without a job to the only one that the log names."""
    jobs = {event.job for event in events} - {None}
    nameless = [event for event in events if event.job is None]
    # Events without a job can only be of the one there is.
    if len(jobs) == 1:
        only = jobs.pop()
        for event in nameless:
            event.job = only
    elif jobs and nameless:
        where = f"line {nameless[0].line:,}"
        findings.add("suspicious", "events that do not say of which job", len(nameless), where)


def _times(
    kept: list[tuple[int, Row, str]], settings: Given, findings: Findings
) -> tuple[list[int | None], list[bool]]:
    times: list[int | None] = [None] * len(kept)
    texts: dict[int, str] = {}
    for index, (number, entry, _) in enumerate(kept):
        value = next((entry[key] for key in _TIMES if key in entry), None)
        unit = next((key for key in _UNITS if key in entry), None)
        given_ns = None if unit is None else _number(entry[unit], _UNITS[unit])
        seconds = _number(value, 1)
        if given_ns is not None:
            times[index] = round(given_ns)
        elif seconds is not None:
            times[index] = _epoch_ns(seconds, number, findings)
        elif isinstance(value, str):
            texts[index] = value
        else:
            findings.add("dropped", "events without a time", 1, f"line {number:,}")
    stamps = pd.Series(list(texts.values()), index=list(texts), dtype=pd.Series([""]).dtype)
    lines = pd.Series({index: kept[index][0] for index in texts}, dtype="int64")
    read = utc_ns(stamps, lines, settings.tz, findings)
    for index, at in zip(texts, read.ns.tolist(), strict=True):
        times[index] = None if pd.isna(at) else int(at)
    local = set(read.is_local[read.is_local].index)
    return times, [index in local for index in range(len(kept))]


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
