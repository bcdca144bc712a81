"""XPlane, the profile that JAX, TensorFlow and PyTorch/XLA write (``*.xplane.pb``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.protobuf import decoder_of
from workbench.load._files.stream import Stream
from workbench.load._traces.columns import IntArray, Rows, rank_of
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
from workbench.load._traces.xplane.wire import Fields, fields, space_class

# A plane begins with its id or its name.
_HEAD = re.compile(
    rb"\x0a[\x80-\xff]{0,4}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12[\x01-\x7f]"
    rb"(?:/host:|/device:|Task Environment|#Chip|/task:)"
)
_BATCH_BYTES = 16 << 20
_LONGEST_TEXT = 4096
# Fields of an event and of a statistic.
_EVENT_NAME, _OFFSET, _DURATION, _STATS, _OCCURRENCES = 1, 2, 3, 4, 5
_STAT_NAME, _DOUBLE, _UNSIGNED, _SIGNED, _STRING, _BYTES, _REFERENCE = range(1, 8)
_WALL_TIME_FROM_NS = 1_000_000_000_000_000_000
_LATEST_NS = 1 << 61


def looks_like(head: bytes, label: str) -> bool:
    """Return whether a file begins with a plane, or is named so and begins as a message does."""
    named = label.lower().endswith((".xplane.pb", ".xplane.pb.gz"))
    return _HEAD.match(head) is not None or (named and head.startswith(b"\x0a"))


@dataclass(frozen=True)
class _Plane:
    """One plane: texts by their numbers, and what it says of itself."""

    name: str
    events: Mapping[int, Any]
    stats: Mapping[int, str]

    def event_name(self, number: int) -> str:
        entry = self.events.get(number)
        return "" if entry is None else _text(entry.display_name or entry.name)

    def stat_name(self, number: int) -> str:
        return self.stats.get(number, "")


def xplane(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    stream: Stream | None = None,
) -> list[RankTables]:
    """Read the profile of one host, each device of which becomes a rank.

    References
    ----------
    openxla/xla: third_party/tsl/tsl/profiler/protobuf/xplane.proto.
    """
    findings, texts = Findings(source.label), Texts()
    with stream or source.open() as opened:
        data = read_all(opened, findings)
    if (space := decoder_of(space_class())(data)) is None:
        msg = f"{source.label}: is cut off or damaged, no XPlane can be decoded; copy it again"
        raise LoadError(msg)
    planes = [(_plane(message), message.lines) for message in space.planes]
    metadata: Row = {"deviceProperties": []}
    told_of = _told([(plane, message.stats) for (plane, _), message in
                     zip(planes, space.planes, strict=True)])  # fmt: skip
    for (plane, lines), told in zip(planes, told_of, strict=True):
        began = told.get("profile_start_time")
        if isinstance(began, int) and began > 0:
            metadata["baseTimeNanoseconds"] = began
        device = Line(plane.name, "").device
        if device is not None and lines:
            metadata["deviceProperties"].append(_device(told, device))
    parts = [*_rows(planes, (texts, findings, tuple(args)))]
    if not parts:
        msg = f"{source.label}: holds no events; was the profiler stopped before the work?"
        raise LoadError(msg)
    if any(len(rows) and np.median(rows.start) > _WALL_TIME_FROM_NS for _, rows in parts):
        metadata.pop("baseTimeNanoseconds", None)
    hosts = ", ".join(_text(host) for host in space.hostnames[:8])
    findings.add("read", f"XPlane{f' of {hosts[:80]}' if hosts else ''}")
    rows = one_kind_of_steps(parts, texts)
    tables = rank_of(rows, texts, findings, metadata=metadata, args=args, rules=rules)
    return [replace(tables, format="xplane")]


def _plane(message: Any) -> _Plane:
    return _Plane(
        _text(message.name),
        {entry.key: entry.value for entry in message.event_metadata},
        {entry.key: _text(entry.value.name) for entry in message.stat_metadata},
    )


def _text(raw: bytes) -> str:
    return raw[:_LONGEST_TEXT].decode("utf-8", "replace")


def _device(told: Mapping[str, object], device: int) -> Row:
    names = {
        "name": "device_type_string", "totalGlobalMem": "memory_size", "numSms": "core_count",
        "computeMajor": "compute_cap_major", "computeMinor": "compute_cap_minor",
    }  # fmt: skip
    return {"id": device} | {ours: told[theirs] for ours, theirs in names.items() if theirs in told}


def _told(owners: Sequence[tuple[_Plane, Sequence[bytes]]]) -> list[dict[str, object]]:
    """Return what statistics say that belong to planes or kinds of events, an entry per owner.

    Those of all owners are decoded at once.
    """
    read = _Stats(*_joined([stat for _, stats in owners for stat in stats]))
    rows = iter(range(len(read)))
    return [
        {plane.stat_name(int(read.name[row])): read.value(row, plane)
         for row in islice(rows, len(stats))}
        for plane, stats in owners
    ]  # fmt: skip


def _joined(messages: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], IntArray, IntArray]:
    data = np.frombuffer(b"".join(messages), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
    return data, np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ends)], ends


class _Stats:
    """Statistics of events, decoded: the number of the name, and which field has the value."""

    def __init__(self, data: npt.NDArray[np.uint8], begin: IntArray, end: IntArray) -> None:
        self._data, decoded = data, fields(data, begin, end)
        self.damaged_count = decoded.damaged_count
        self.name, self.field, self.number, self.begin, self.end = (
            np.zeros(len(begin), np.int64) for _ in range(5)
        )
        names = decoded.of(_STAT_NAME)
        self.name[names.message] = names.value
        rows = np.flatnonzero((decoded.number > _STAT_NAME) & (decoded.number <= _REFERENCE))
        message = decoded.message[rows]
        self.field[message] = decoded.number[rows]
        self.number[message] = decoded.value[rows]
        self.begin[message], self.end[message] = decoded.begin[rows], decoded.end[rows]

    def __len__(self) -> int:
        return len(self.name)

    def value(self, row: int, plane: _Plane) -> object:
        field = self.field[row]
        if field == _REFERENCE:
            return plane.stat_name(int(self.number[row]))
        if field in (_UNSIGNED, _SIGNED):
            return int(self.number[row])
        raw = self._data[self.begin[row] : self.end[row]].tobytes()
        if field == _DOUBLE:
            return float(np.frombuffer(raw, "<f8")[0]) if len(raw) == 8 else None
        return _text(raw) if field else None


_Context = tuple[Texts, Findings, tuple[str, ...]]


def _rows(
    planes: Sequence[tuple[_Plane, Sequence[Any]]], context: _Context
) -> Iterator[tuple[Line, Rows]]:
    """Return the rows of the lines of all planes, and say which lines are left out."""
    batch: list[_Piece] = []
    size = 0
    for plane, lines in planes:
        names = [_text(message.display_name or message.name) for message in lines]
        has_streams = any(map(is_stream, names))
        for name, message in zip(names, lines, strict=True):
            line, events = Line(plane.name, name, message.id, has_streams), list(message.events)
            if line.left_out:
                context[1].add("skipped by design", line.left_out, len(events))
            elif events:
                batch.append(_Piece(plane, line, message.timestamp_ns, events))
                size += sum(map(len, events))
            # Many lines have few events: they are decoded together, and those of all planes.
            if size >= _BATCH_BYTES:
                yield from _batch(batch, context)
                batch, size = [], 0
    yield from _batch(batch, context)


@dataclass(frozen=True)
class _Piece:
    """A line of a plane with its events, still encoded."""

    plane: _Plane
    line: Line
    first_ns: int
    events: Sequence[bytes]


def _batch(pieces: Sequence[_Piece], context: _Context) -> Iterator[tuple[Line, Rows]]:
    texts, findings, _ = context
    events = [event for piece in pieces for event in piece.events]
    data, begin, end = _joined(events)
    decoded = fields(data, begin, end)
    findings.add("truncated", "events that break off", decoded.damaged_count)
    columns = {}
    for number in (_EVENT_NAME, _OFFSET, _DURATION):
        columns[number] = np.zeros(len(events), np.int64)
        of_number = decoded.of(number)
        columns[number][of_number.message] = of_number.value
    is_counted = np.zeros(len(events), np.bool_)
    is_counted[decoded.of(_OCCURRENCES).message] = True
    findings.add("dropped", "events that are counted, not timed", int(is_counted.sum()))
    stats = _OfEvents(data, decoded.of(_STATS), findings)
    first = 0
    for _, group in groupby(pieces, key=lambda piece: id(piece.plane)):
        of_plane = [*group]
        plane, behind = of_plane[0].plane, first + sum(len(piece.events) for piece in of_plane)
        name = columns[_EVENT_NAME][first:behind]
        numbers = _statistics(plane, stats, (first, behind), name, context)
        kinds, distinct = pd.factorize(name)
        names = Names([plane.event_name(number) for number in distinct.tolist()], texts)
        begun = first
        for piece in of_plane:
            rows = np.arange(first, first + len(piece.events))
            first += len(rows)
            kept = rows[~is_counted[rows]]
            times = _times(piece.first_ns, columns[_OFFSET][kept], columns[_DURATION][kept])
            of_line = {key: values[kept - begun] for key, values in numbers.items()}
            yield piece.line, piece.line.rows(times, kinds[kept - begun], names, of_line)


def _times(first_ns: int, offset_ps: IntArray, dur_ps: IntArray) -> tuple[IntArray, IntArray]:
    start = offset_ps // 1000
    # Ends are rounded as starts are, so that what touched still does.
    end = (offset_ps + dur_ps) // 1000
    is_sound = (np.abs(offset_ps) < _LATEST_NS) & (dur_ps >= 0) & (dur_ps < _LATEST_NS)
    is_sound &= abs(first_ns) < _LATEST_NS
    base = first_ns if abs(first_ns) < _LATEST_NS else 0
    return start + base, np.where(is_sound, end - start, -1)


class _OfEvents:
    """Statistics of all events of a batch, in the order of the events; decoded on demand."""

    def __init__(self, data: npt.NDArray[np.uint8], stats: Fields, findings: Findings) -> None:
        order = np.argsort(stats.message, kind="stable")
        self._data, self._findings, self._event = data, findings, stats.message[order]
        self._begin, self._end = stats.begin[order], stats.end[order]

    @cached_property
    def read(self) -> _Stats:
        read = _Stats(self._data, self._begin, self._end)
        self._findings.add("truncated", "statistics that break off", read.damaged_count)
        return read

    def between(self, first: int, behind: int) -> tuple[IntArray, IntArray]:
        """Return the event of each statistic, counted from ``first``, and its position."""
        rows = np.arange(*np.searchsorted(self._event, [first, behind]))
        return self._event[rows] - first, rows


def _statistics(
    plane: _Plane,
    stats: _OfEvents,
    between: tuple[int, int],
    event_name: IntArray,
    context: _Context,
) -> dict[str, IntArray]:
    """Return the statistics that have a column, a value per event."""
    texts, _, args = context
    numbers = {name: number for number, name in plane.stats.items()}
    columns: dict[str, IntArray] = {
        name: _of_kinds(plane, name, event_name, texts) for name in args
    }
    wanted = [name for name in (CORRELATION, STEP, *COPIES, *args) if name in numbers]
    if not wanted:
        return columns
    event, places = stats.between(*between)
    read = stats.read
    of_name, of_field = read.name[places], read.field[places]
    for name in wanted:
        column = "bytes" if name in COPIES else name
        values = columns.setdefault(column, np.full(len(event_name), MISSING, np.int64))
        rows = np.flatnonzero(of_name == numbers[name])
        if name in (CORRELATION, STEP):
            rows = rows[np.isin(of_field[rows], (_UNSIGNED, _SIGNED))]
            values[event[rows]] = read.number[places[rows]]
        else:
            spelled = [read.value(row, plane) for row in places[rows].tolist()]
            stored = [
                copied_bytes(str(value)) if name in COPIES else texts.code(json.dumps(value))
                for value in spelled
            ]
            values[event[rows]] = stored
    return columns


def _of_kinds(plane: _Plane, name: str, event_name: IntArray, texts: Texts) -> IntArray:
    """Return a statistic that XLA wrote once for all events of a kind, such as FLOPs on TPUs."""
    told_of = _told([(plane, entry.stats) for entry in plane.events.values()])
    codes = {
        number: texts.code(json.dumps(told[name]))
        for number, told in zip(plane.events, told_of, strict=True)
        if told.get(name) is not None
    }
    kinds, distinct = pd.factorize(event_name)
    table = np.array([codes.get(number, MISSING) for number in distinct.tolist()], np.int64)
    return table[kinds] if len(table) else np.zeros(0, np.int64)
