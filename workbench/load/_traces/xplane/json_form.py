"""The JSON that JAX and XProf make of an XPlane (``*.trace.json.gz``): the same lines by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.json_events import to_integer, to_ns
from workbench.load._files.stream import Stream
from workbench.load._traces.columns import IntArray, Rows, rank_of
from workbench.load._traces.execution.reader import objects
from workbench.load._traces.graph import read_all
from workbench.load._traces.kineto.blocks import MISSING, Texts
from workbench.load._traces.kineto.rank import RankTables
from workbench.load._traces.xplane.lines import (
    COPIES,
    CORRELATION,
    STEP,
    Line,
    Names,
    copied_bytes,
    is_stream,
    one_kind_of_steps,
)

# Processes are named in front of all events, and as planes are.
_HEAD = re.compile(
    rb'"process_name"[^{}]{0,80}\{[^{}]{0,80}"/(?:device:[GT]PU:\d|host:CPU)'
    rb'|\{[^{}]{0,80}"/(?:device:[GT]PU:\d|host:CPU)[^{}]{0,80}\}[^{}]{0,80}"process_name"'
)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - same shape for all formats
    """Return whether a list of events names its processes as XLA does."""
    # The pattern is slow to say no, and most files name no process in front.
    return b'"process_name"' in head and _HEAD.search(head) is not None


def xprof_json(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    stream: Stream | None = None,
) -> list[RankTables]:
    """Read the events of one host, each device of which becomes a rank.

    XProf writes a million events at most; the ``.xplane.pb`` beside it has all of them.
    """
    findings, texts = Findings(source.label), Texts()
    with stream or source.open() as opened:
        data = read_all(opened, findings)
    begun = _EVENTS.search(data)
    if begun is None:
        msg = f"{source.label}: is cut off before its list of events; get the file again"
        raise LoadError(msg)
    names: dict[tuple[object, object], str] = {}
    lines: dict[tuple[object, object], list[Row]] = {}
    unusable = 0
    for event in objects(data, begun.end(), label=source.label, findings=findings):
        kind = event.get("ph") if isinstance(event, dict) else None
        if kind == "M":
            note_name(event, names)
        elif kind == "X":
            lines.setdefault((key_of(event.get("pid")), key_of(event.get("tid"))), []).append(event)
        else:
            unusable += event != {}
    findings.add("dropped", "entries that are not complete events", unusable)
    parts = list(_parts(lines, names, (texts, findings, tuple(args))))
    metadata: Row = {"deviceProperties": _devices(parts)}
    rows = one_kind_of_steps(parts, texts)
    tables = rank_of(rows, texts, findings, metadata=metadata, args=args, rules=rules)
    return [replace(tables, format="xprof json")]


def key_of(value: object) -> object:
    """Return the id of a process or thread, None if it can be none."""
    return value if isinstance(value, str | int | float) else None


def note_name(event: Row, names: dict[tuple[object, object], str]) -> None:
    """Keep the name of a process, or of one of its threads."""
    told = event.get("args")
    name = told.get("name") if isinstance(told, dict) else None
    if isinstance(name, str) and event.get("name") == "process_name":
        names[key_of(event.get("pid")), None] = name
    elif isinstance(name, str) and event.get("name") == "thread_name":
        names[key_of(event.get("pid")), key_of(event.get("tid"))] = name


def _devices(parts: Sequence[tuple[Line, Rows]]) -> list[Row]:
    devices = {line.device for line, _ in parts if line.device is not None}
    return [{"id": device} for device in sorted(devices)]


def _parts(
    lines: Mapping[tuple[Any, Any], Sequence[Row]],
    names: Mapping[tuple[Any, Any], str],
    context: tuple[Texts, Findings, tuple[str, ...]],
) -> Any:
    """Yield the lines of planes as rows; lines that repeat others are told."""
    texts, findings, args = context
    streamed = {pid for pid, tid in lines if is_stream(names.get((pid, tid), ""))}
    for (pid, tid), events in lines.items():
        plane = names.get((pid, None), "/host:unnamed")
        name = names.get((pid, tid), str(tid))
        line = Line(plane, name, to_integer(tid) or 0, pid in streamed)
        if line.left_out:
            findings.add("skipped by design", line.left_out, len(events))
            continue
        start, dur = (_column(to_ns(event.get(key)) for event in events) for key in ("ts", "dur"))
        is_timed = start != MISSING
        findings.add("dropped", "events without a readable time stamp", int((~is_timed).sum()))
        dur = np.where(is_timed, np.where(dur == MISSING, 0, dur), -1)
        spelled = [str(event.get("name") or "")[:4096] for event in events]
        kind, distinct = pd.factorize(np.array(spelled, object))
        numbers = _numbers(events, args, texts)
        times = (np.where(is_timed, start, 0), dur)
        yield line, line.rows(times, kind, Names(distinct.tolist(), texts), numbers)


def _column(values: Any) -> IntArray:
    return np.array([MISSING if value is None else value for value in values], np.int64)


def _numbers(events: Sequence[Row], args: tuple[str, ...], texts: Texts) -> dict[str, IntArray]:
    told = [event["args"] if isinstance(event.get("args"), dict) else {} for event in events]
    columns = {
        name: _column(to_integer(row.get(name)) for row in told)
        for name in (CORRELATION, STEP)
        if any(name in row for row in told)
    }
    details = [next((row[name] for name in COPIES if name in row), None) for row in told]
    if any(details):
        columns["bytes"] = _column(copied_bytes(str(text)) for text in details)
    for name in args:
        columns[name] = _column(
            texts.code(json.dumps(row[name])) if name in row else None for row in told
        )
    return columns
