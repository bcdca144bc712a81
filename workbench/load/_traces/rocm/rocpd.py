"""The rocpd database (SQLite) of rocprofv3 since ROCm 7, with one or several processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.json_events import to_integer
from workbench.load._files.stream import Stream
from workbench.load._traces.columns import Codes, IntArray, rank_of
from workbench.load._traces.kineto.blocks import MISSING, Texts
from workbench.load._traces.kineto.rank import RankTables
from workbench.load._traces.nsight.reader import part_label
from workbench.load._traces.nsight.stored import MAGIC, Read, Stored, opened
from workbench.load._traces.rocm.records import (
    Records,
    category_of,
    copy_name,
    device_property,
    joined,
    kernel_name,
    name_collectives,
    replaced,
    streams_or_queues,
)

_PREFIX = "rocpd_"
# Tables with events; each name ends with the id of the process that wrote it, or with nothing.
_SPANS = ("kernel_dispatch", "memory_copy", "region", "sample")
_PASSED_OVER = ("memory_allocate", "pmc_event")
# What launchers tell a process of its place.
_RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_EVENT = ("start", "end", "start_id", "end_id", "track_id", "event_id", "pid", "tid")
_TRACK = ("pid", "tid", "agent_id", "queue_id", "stream_id")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - same shape for all formats
    """Return whether a file may be a rocpd database; :func:`is_rocpd` opens it to be sure."""
    return head.startswith(MAGIC)


def is_rocpd(source: Source) -> bool:
    with opened(source, None, Findings(source.label)) as stored:
        return bool(_suffixes(stored))


def _suffixes(stored: Stored) -> list[str]:
    starts = [f"{_PREFIX}{name}" for name in _SPANS]
    names = (name.removeprefix(start) for name in stored.columns for start in starts
             if name.startswith(start))  # fmt: skip
    return sorted({name for name in names if not name or name.startswith("_")})


def rocpd(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    stream: Stream | None = None,
) -> list[RankTables]:
    """Read a database, a rank per process with GPU work, or the one in ``source.part``.

    References
    ----------
    ROCm/rocprofiler-sdk: source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql, schema version 3.
    """
    findings = Findings(source.label)
    with opened(source, stream, findings) as stored:
        readers = [_Reader(stored, suffix, findings) for suffix in _suffixes(stored)]
        if not readers:
            names = ", ".join(sorted(stored.columns)[:8]) or "none"
            msg = (
                f"{source.label}: has no table of rocpd with events (tables: {names}); record "
                "again: rocprofv3 --output-format rocpd --sys-trace -- COMMAND"
            )
            raise LoadError(msg)
        everyone = [one for reader in readers for one in reader.processes()]
    processes = _with_work(everyone)
    idle = "processes that used no GPU, and so are not ranks"
    findings.add("skipped by design", idle, len(everyone) - len(processes))
    several = len(processes) > 1
    ranks: list[RankTables] = []
    for process in processes:
        if source.part not in (None, process.pid):
            continue
        label = part_label(source, process.pid) if several else source.label
        # What is wrong with the file is reported once.
        of_rank = findings if not ranks else Findings(label)
        of_rank.source = label
        name_collectives(process.records, process.texts, of_rank)
        parts = [one.rows(process.pid, process.texts, of_rank) for one in process.records]
        tables = rank_of(
            parts, process.texts, of_rank, metadata=process.metadata, args=args, rules=rules
        )
        ranks.append(replace(tables, format="rocpd"))
    return ranks


def rocpd_ranks(source: Source, stream: Stream | None = None) -> list[tuple[Source, Place]]:
    """Return the ranks in a database, each with the source that reads it alone."""
    findings = Findings(source.label)
    with opened(source, stream, findings) as stored:
        places = [place for suffix in _suffixes(stored) for place in _places(stored, suffix)]
    working = [place for place in places if place.has_work] or places
    if len(working) < 2:
        return [(source, place) for place in working]
    return [
        (replace(source, label=part_label(source, place.pid), part=place.pid), place)
        for place in working
    ]


@dataclass(frozen=True)
class Place:
    """A process, and its place in the job where its environment was recorded."""

    pid: int
    rank: int | None
    world_size: int | None
    has_work: bool


def _places(stored: Stored, suffix: str) -> list[Place]:
    read = stored.read(f"{_PREFIX}info_process{suffix}", ["id", "pid"], ["environment"])
    tracks = stored.read(f"{_PREFIX}track{suffix}", ["id", "pid"]).numbers
    working: set[int] = set()
    for table in ("kernel_dispatch", "memory_copy"):
        numbers = stored.read(f"{_PREFIX}{table}{suffix}", ["pid", "track_id"]).numbers
        of_track = joined(numbers["track_id"], tracks["id"], tracks["pid"])
        pids = np.where(numbers["pid"] == MISSING, of_track, numbers["pid"])
        working |= set(np.unique(pids).tolist())
    places = []
    for row in _rows(read, ("environment",)):
        told = _place(row)
        rank, world = (to_integer(told[key]) for key in ("rank", "world_size"))
        pid = row["id"] if row["pid"] == MISSING else row["pid"]
        places.append(Place(pid, rank, world, bool({row["id"], row["pid"]} & working)))
    return places


@dataclass(frozen=True)
class _Process:
    pid: int
    records: list[Records]
    texts: Texts
    metadata: Row

    @property
    def has_work(self) -> bool:
        return any(one.is_on_gpu and len(one.start) for one in self.records)


def _with_work(processes: list[_Process]) -> list[_Process]:
    """Return the processes that used a GPU; all of them if none did."""
    return [process for process in processes if process.has_work] or processes


class _Reader:
    """The tables of one id: names, agents and events of its processes."""

    def __init__(self, stored: Stored, suffix: str, findings: Findings) -> None:
        self._stored, self._suffix, self._findings = stored, suffix, findings
        self._texts = Texts()
        strings = self._read("string", ["id"], ["string"])
        self._strings = dict(
            zip(strings.numbers["id"].tolist(), _texts(strings, "string"), strict=True)
        )
        self._tracks = self._read("track", ["id", *_TRACK])
        self._threads = self._read("info_thread", ["id", "tid"]).numbers
        stamps = self._read("timestamp", ["id", "value"]).numbers
        self._stamps = stamps["id"], stamps["value"]
        self._events = self._read("event", ["id", "stack_id", "category_id"]).numbers
        agents = self._read("info_agent", ["id", "type_index"],
                            ["type", "name", "product_name", "extdata"])  # fmt: skip
        self._agents = _rows(agents)
        self._gpus = {
            agent["id"]: at if agent["type_index"] == MISSING else agent["type_index"]
            for at, agent in enumerate(one for one in self._agents if one.get("type") == "GPU")
        }

    def _read(self, table: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> Read:
        return self._stored.read(f"{_PREFIX}{table}{self._suffix}", numbers, texts)

    def processes(self) -> list[_Process]:
        spans = [*self._dispatches(), *self._copies(), *self._regions(), *self._samples()]
        for table in _PASSED_OVER:
            count = len(self._read(table, ["id"]).numbers["id"])
            self._findings.add("skipped by design", f"{table} records, which are not spans", count)
        listed = _rows(self._read("info_process", ["id", "pid"], ["environment"]))
        # Events refer to a process by its key, in some versions by its process id.
        told = {row[key]: row for key in ("pid", "id") for row in listed}
        ids = sorted({int(number) for _, process in spans for number in np.unique(process)})
        made = []
        for number in ids or [MISSING]:
            row = told.get(number, {})
            pid = row.get("pid", MISSING)
            pid = number if pid == MISSING else pid
            records = [one.take(process == number) for one, process in spans]
            metadata = {
                "deviceProperties": self._devices(records), "distributedInfo": _place(row),
            }  # fmt: skip
            made.append(_Process(pid, records, self._texts, metadata))
        return made

    # Every kind of event gives records and the process of each.
    def _dispatches(self) -> list[tuple[Records, IntArray]]:
        read = self._read(
            "kernel_dispatch", [*_EVENT, "agent_id", "queue_id", "stream_id", "kernel_id"]
        )
        symbols = self._read("info_kernel_symbol", ["id"], ["display_name", "kernel_name"])
        names = {
            row["id"]: self._texts.code(
                kernel_name(row["display_name"] or row["kernel_name"] or "")
            )
            for row in _rows(symbols, ("display_name", "kernel_name"))
        }
        codes = replaced(read.numbers["kernel_id"], names)
        codes = np.where(codes == MISSING, self._texts.code("unknown kernel"), codes)
        return self._made("kernel", read, codes.astype(np.int32))

    def _copies(self) -> list[tuple[Records, IntArray]]:
        read = self._read("memory_copy", [*_EVENT, "queue_id", "stream_id", "name_id", "size",
                                          "dst_agent_id", "src_agent_id"])  # fmt: skip
        to = read.numbers["dst_agent_id"]
        is_gpu = np.isin(to, np.array(list(self._gpus), np.int64))
        read.numbers["agent_id"] = np.where(is_gpu, to, read.numbers["src_agent_id"])
        names = {
            number: self._texts.code(copy_name(name)) for number, name in self._strings.items()
        }
        return self._made("gpu_memcpy", read, self._named(read, names))

    def _regions(self) -> list[tuple[Records, IntArray]]:
        read = self._read("region", [*_EVENT, "name_id"])
        return self._on_host(read, self._event(read, "category_id"))

    def _samples(self) -> list[tuple[Records, IntArray]]:
        read = self._read("sample", [*_EVENT, "timestamp", "timestamp_id", "name_id"])
        numbers = read.numbers
        at = numbers["timestamp"]
        at = np.where(at == MISSING, joined(numbers["timestamp_id"], *self._stamps), at)
        numbers["start"] = numbers["end"] = at
        return self._on_host(read, self._event(read, "category_id"))

    def _on_host(self, read: Read, category: IntArray) -> list[tuple[Records, IntArray]]:
        codes = self._named(read, {n: self._texts.code(name) for n, name in self._strings.items()})
        made = []
        for number in np.unique(category).tolist():
            rows = category == number
            kind = category_of(self._strings.get(number, "region"))
            if kind == "user_annotation":
                codes = self._with_messages(read, codes, rows)
            part = Read({name: values[rows] for name, values in read.numbers.items()}, {}, {})
            made += self._made(kind, part, codes[rows])
        return made

    def _with_messages(self, read: Read, codes: Codes, rows: npt.NDArray[np.bool_]) -> Codes:
        """Return what was written into the markers in place of the name of the call."""
        events = self._read("event", ["id"], ["extdata"])
        wanted = set(read.numbers["event_id"][rows].tolist())
        messages = {}
        texts = _texts(events, "extdata")
        for number, text in zip(events.numbers["id"].tolist(), texts, strict=True):
            message = _json(text).get("message") if number in wanted else None
            if isinstance(message, str):
                messages[number] = self._texts.code(message)
        of_message = replaced(read.numbers["event_id"], messages)
        return np.where(rows & (of_message != MISSING), of_message, codes).astype(np.int32)

    def _named(self, read: Read, names: dict[int, int]) -> Codes:
        codes = replaced(read.numbers["name_id"], names)
        return np.where(codes == MISSING, -1, codes).astype(np.int32)

    def _event(self, read: Read, column: str) -> IntArray:
        return joined(read.numbers["event_id"], self._events["id"], self._events[column])

    def _made(self, category: str, read: Read, name: Codes) -> list[tuple[Records, IntArray]]:
        numbers = read.numbers
        start, end = (self._time(numbers, side) for side in ("start", "end"))
        place = {column: self._of_track(numbers, column) for column in _TRACK}
        more = {"correlation": self._event(read, "stack_id")}
        if category in ("kernel", "gpu_memcpy"):
            device = replaced(place["agent_id"], self._gpus)
            lacking = int(((device == MISSING) & (place["agent_id"] != MISSING)).sum())
            self._findings.add("suspicious", "records of agents that are not GPUs", lacking)
            more |= {
                "device": device,
                "stream": streams_or_queues(place["stream_id"], place["queue_id"]),
            }
            more |= {"bytes": numbers["size"]} if "size" in numbers else {}
        tid = joined(place["tid"], self._threads["id"], self._threads["tid"])
        thread = np.where(tid == MISSING, place["tid"], tid)
        return [(Records(category, start, end, name, thread, more), place["pid"])]

    def _time(self, numbers: dict[str, IntArray], side: str) -> IntArray:
        # Later versions keep the times apart.
        by_id = joined(numbers[f"{side}_id"], *self._stamps)
        return np.where(numbers[side] == MISSING, by_id, numbers[side])

    def _of_track(self, numbers: dict[str, IntArray], column: str) -> IntArray:
        own = numbers.get(column)
        tracks = self._tracks.numbers
        of_track = joined(numbers["track_id"], tracks["id"], tracks[column])
        return of_track if own is None else np.where(own == MISSING, of_track, own)

    def _devices(self, records: Sequence[Records]) -> list[Row]:
        used = {
            int(number)
            for one in records if one.is_on_gpu for number in np.unique(one.numbers["device"])
        }  # fmt: skip
        rows = []
        for agent in self._agents:
            index = self._gpus.get(agent["id"])
            if index in used:
                more = _json(agent.get("extdata"))
                banks = more.get("mem_banks")
                sizes = [
                    bank["size_in_bytes"] for bank in banks if isinstance(bank, dict)
                    and isinstance(bank.get("size_in_bytes"), int)
                ] if isinstance(banks, list) else []  # fmt: skip
                name = agent.get("product_name") or agent.get("name")
                rows.append(device_property(index, name, more.get, sum(sizes) or None))
        return rows


def _texts(read: Read, column: str) -> list[str]:
    count = len(next(iter(read.numbers.values())))
    return [text or "" for text in read.text(column)] if column in read.codes else [""] * count


def _rows(read: Read, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
    columns = {name: values.tolist() for name, values in read.numbers.items()}
    columns |= {name: _texts(read, name) for name in (*read.codes, *texts)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _json(text: object) -> Row:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _place(row: Row) -> Row:
    """Return rank and size of the job by the variables that launchers set."""
    environment = _json(row.get("environment"))
    told = {"rank": _RANK_NAMES, "world_size": _WORLD_NAMES}
    return {
        key: next((environment[name] for name in names if name in environment), None)
        for key, names in told.items()
    }
