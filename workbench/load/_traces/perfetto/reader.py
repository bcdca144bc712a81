"""Perfetto traces (``.pftrace``): track events of rocprofv3 and of other tools."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import GPU_WORK
from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stream import Stream
from workbench.load._files.text import tell_of_damage
from workbench.load._traces.columns import Rows, rank_of
from workbench.load._traces.kineto.blocks import INTEGER, MISSING, Texts
from workbench.load._traces.kineto.rank import COLUMNS, RankTables
from workbench.load._traces.nsight.reader import part_label
from workbench.load._traces.perfetto.clocks import Clocks
from workbench.load._traces.perfetto.packets import looks_like, packets
from workbench.load._traces.rocm.records import (
    Records,
    category_of,
    copy_name,
    integers,
    kernel_name,
    name_collectives,
)

__all__ = ["looks_like", "perfetto"]  # as the register of signatures asks
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_CLEARED = 1
_LOST = "(name lost)"
# How rocprofv3 calls the tracks of GPUs, and its names of arguments.
_TRACK = re.compile(
    r"(AGENT|GPU) \[(\d{1,6})\] (?:STREAM|QUEUE|THREAD) \[(\d{1,18})\]", re.IGNORECASE
)
_ROCM_ARGS = {"corr_id": "correlation", "copy_bytes": "bytes"}
_NUMBERS = frozenset(name for name, (_, kind) in COLUMNS.items() if kind == INTEGER)
_LONGEST_CHAIN = 16
_LATEST_NS = 1 << 61


def perfetto(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    stream: Stream | None = None,
) -> list[RankTables]:
    """Read a trace, a rank per process with GPU work, or the one in ``source.part``.

    References
    ----------
    google/perfetto: protos/perfetto/trace/trace_packet.proto and track_event.proto.
    """
    findings, trace = Findings(source.label), _Trace()
    with stream or source.open() as opened:
        for packet in packets(opened, findings):
            trace.take(packet, findings)
        tell_of_damage(opened, findings)
    trace.close(findings)
    if not trace.slices:
        msg = (
            f"{source.label}: holds no slice of a track event, only other data of Perfetto; record "
            "with a tool that writes them: rocprofv3 --output-format pftrace --sys-trace -- COMMAND"
        )
        raise LoadError(msg)
    by_process = trace.by_process()
    idle = len(trace.slices) - sum(map(len, by_process.values()))
    findings.add("skipped by design", "slices of processes that used no GPU", idle)
    ranks = []
    for at, (pid, slices) in enumerate(by_process.items()):
        label = source.label if len(by_process) == 1 else part_label(source, pid)
        # What is wrong with the file is reported once.
        of_rank = findings if at == 0 else Findings(label)
        of_rank.source = label
        texts = Texts()
        parts = _rows(slices, trace, texts, of_rank)
        tables = rank_of(parts, texts, of_rank, metadata={}, args=args, rules=rules)
        ranks.append(replace(tables, format="perfetto"))
    return ranks


@dataclass(frozen=True)
class _Track:
    name: str
    pid: int | None
    tid: int | None
    parent: int


@dataclass(slots=True)
class _Slice:
    track: int
    category: str
    name: str
    start: int
    end: int
    arguments: dict[str, Any]


@dataclass
class _Sequence:
    """State shared by packets of one writer: texts by number, and defaults."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    clock: int = 0
    track: int = 0

    def learn(self, interned: Any) -> None:
        for table in ("names", "categories", "keys", "values"):
            known = getattr(self, table)
            for entry in getattr(interned, table):
                known[entry.iid] = _text(entry.name)


class _Trace:
    def __init__(self) -> None:
        self.slices: list[_Slice] = []
        self.tracks: dict[int, _Track] = {}
        self._clocks = Clocks()
        self._sequences: defaultdict[int, _Sequence] = defaultdict(_Sequence)
        self._open: defaultdict[int, list[_Slice]] = defaultdict(list)
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)

    def take(self, packet: Any, findings: Findings) -> None:
        """Read one packet, in the order of the file."""
        number = packet.sequence
        if packet.is_cleared or packet.flags & _CLEARED:
            self._sequences[number] = _Sequence()
        of_writer = self._sequences[number]
        if packet.HasField("interned"):
            of_writer.learn(packet.interned)
        if packet.HasField("defaults"):
            of_writer.clock = packet.defaults.clock or of_writer.clock
            of_writer.track = packet.defaults.event.track or of_writer.track
        if packet.HasField("snapshot"):
            self._clocks.snapshot(number, packet.snapshot.clocks)
        if packet.HasField("track"):
            track = packet.track
            self.tracks[track.uuid] = _described(track)
        if packet.HasField("event"):
            clock = packet.clock or of_writer.clock
            time = self._clocks.time_ns(number, clock, packet.timestamp)
            if abs(time) < _LATEST_NS:
                self._event(packet.event, time, of_writer)
            else:
                findings.add("dropped", "events without a readable time")

    def _event(self, event: Any, time: int, of_writer: _Sequence) -> None:
        track = event.track if event.HasField("track") else of_writer.track
        if event.type == _END:
            if self._open[track]:
                ended = self._open[track].pop()
                ended.end = time
                self.slices.append(ended)
            else:
                self._counts["dropped", "ends of slices without a begin"] += 1
        elif event.type in (_BEGIN, _INSTANT):
            begun = self._begun(event, track, time, of_writer)
            (self._open[track] if event.type == _BEGIN else self.slices).append(begun)
        else:
            is_counter = event.type == _COUNTER
            finding = (
                "counter events, which have no place here" if is_counter else "events of no type"
            )
            self._counts["dropped", finding] += 1

    def _begun(self, event: Any, track: int, time: int, of_writer: _Sequence) -> _Slice:
        name = _text(event.name)
        if not name and event.name_iid:
            name = of_writer.names.get(event.name_iid, _LOST)
            self._counts["suspicious", "events whose name was lost with an earlier packet"] += (
                name == _LOST
            )
        categories = [_text(text) for text in event.categories]
        categories += [of_writer.categories.get(iid, "") for iid in event.category_iids]
        arguments = {}
        for annotation in event.annotations:
            key = _text(annotation.key) or of_writer.keys.get(annotation.key_iid, "")
            key = _ROCM_ARGS.get(key, key)
            if key in COLUMNS:
                arguments[key] = _value(annotation, of_writer.values)
        return _Slice(track, categories[0] if categories else "", name, time, time, arguments)

    def close(self, findings: Findings) -> None:
        never_ended = sum(map(len, self._open.values()))
        self._open.clear()
        findings.add("dropped", "begins of slices without an end", never_ended)
        for (finding, reason), count in self._counts.items():
            findings.add(finding, reason, count)

    def by_process(self) -> dict[int | None, list[_Slice]]:
        """Return the slices of each process with GPU work; one for all if at most one has any."""
        pids = self.pids()
        working = {
            pids[one.track] for one in self.slices if category_of(one.category) in GPU_WORK
        } - {None}
        if len(working) < 2:
            return {next(iter(working), None): self.slices}
        slices: dict[int | None, list[_Slice]] = {pid: [] for pid in sorted(working, key=str)}
        for one in self.slices:
            if pids[one.track] in slices:
                slices[pids[one.track]].append(one)
        return slices

    def pids(self) -> dict[int, int | None]:
        """Return the process of each track with slices, where it or a parent tells it."""
        return {uuid: self._pid(uuid) for uuid in {one.track for one in self.slices}}

    def _pid(self, uuid: int) -> int | None:
        for _ in range(_LONGEST_CHAIN):
            track = self.tracks.get(uuid)
            if track is None or track.pid is not None:
                return None if track is None else track.pid
            uuid = track.parent
        return None


def _described(track: Any) -> _Track:
    name, pid, tid = _text(track.name) or _text(track.static_name), None, None
    if track.HasField("thread"):
        pid, tid = track.thread.pid, track.thread.tid
    elif track.HasField("process"):
        pid = track.process.pid
    return _Track(name, pid, tid, track.parent)


def _value(annotation: Any, texts: dict[int, str]) -> object:
    for name in ("int", "uint", "pointer", "double", "bool"):
        if annotation.HasField(name):
            return getattr(annotation, name)
    return texts.get(annotation.text_iid, "") if annotation.text_iid else _text(annotation.text)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _rows(slices: Sequence[_Slice], trace: _Trace, texts: Texts, findings: Findings) -> list[Rows]:
    tracks, pids = trace.tracks, trace.pids()
    of_category: defaultdict[str, list[_Slice]] = defaultdict(list)
    for one in slices:
        of_category[category_of(one.category)].append(one)
    made, processes = [], []
    for category, group in of_category.items():
        spelled = {"kernel": kernel_name, "gpu_memcpy": copy_name}.get(category, str)
        names = np.array([texts.code(spelled(one.name)) for one in group], np.int32)
        start, end = (np.array([getattr(one, side) for one in group]) for side in ("start", "end"))
        records = Records(category, start, end, names, _threads(group, tracks))
        records.numbers |= _arguments(group, texts)
        if category in GPU_WORK:
            _place_on_gpu(records, group, tracks, findings)
        made.append(records)
        processes.append(integers([pids[one.track] for one in group]))
    name_collectives(made, texts, findings)
    return [one.rows(pid, texts, findings) for one, pid in zip(made, processes, strict=True)]


def _threads(group: Sequence[_Slice], tracks: dict[int, _Track]) -> Any:
    told = {uuid: track.tid for uuid, track in tracks.items()}
    return integers([told.get(one.track) for one in group])


def _arguments(group: Sequence[_Slice], texts: Texts) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in sorted({name for one in group for name in one.arguments}):
        values = [one.arguments.get(name) for one in group]
        if name in _NUMBERS:
            columns[name] = integers(values)
        else:
            codes = (MISSING if value is None else texts.code(str(value)) for value in values)
            columns[name] = np.array(list(codes), np.int64)
    return columns


def _place_on_gpu(
    records: Records, group: Sequence[_Slice], tracks: dict[int, _Track], findings: Findings
) -> None:
    """Take GPU and stream from the names of tracks, where no argument tells them."""
    named = {uuid: _TRACK.search(track.name) for uuid, track in tracks.items()}
    matches = [named.get(one.track) for one in group]
    numbers = {
        "device": integers([match and int(match[2]) for match in matches]),
        "stream": integers([match and int(match[3]) for match in matches]),
    }
    for name, values in numbers.items():
        own = records.numbers.get(name)
        records.numbers[name] = values if own is None else np.where(own == MISSING, values, own)
    agents = sum(match is not None and match[1].lower() == "agent" for match in matches)
    finding = "GPU rows numbered as agents of the node, of which CPUs are some"
    findings.add("noted", finding, agents)
