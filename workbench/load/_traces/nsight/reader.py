"""Nsight Systems: exports of any version, by the tables and columns that they have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source, shown
from workbench.load._files.findings import Findings, Row
from workbench.load._files.stream import Stream
from workbench.load._traces.columns import Codes, IntArray, Rows, coded, rank_of
from workbench.load._traces.kineto.blocks import MISSING, Texts
from workbench.load._traces.kineto.rank import RankTables
from workbench.load._traces.nsight.steps import as_steps
from workbench.load._traces.nsight.stored import MAGIC, Read, Stored, opened

_PARQUET = b"PAR1"
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_STRINGS = "StringIds"
# Tables of the host and the category of their rows; calls of CUDA are told apart by their names.
_HOST = {
    f"{_CUPTI}RUNTIME": "cuda_runtime", f"{_CUPTI}DRIVER": "cuda_driver",
    "CUDNN_EVENTS": "library", "CUBLAS_EVENTS": "library", "OSRT_API": "os_runtime",
    "MPI_COLLECTIVES_EVENTS": "mpi", "MPI_P2P_EVENTS": "mpi", "MPI_START_WAIT_EVENTS": "mpi",
    "MPI_OTHER_EVENTS": "mpi", f"{_CUPTI}OVERHEAD": "overhead", "PROFILER_OVERHEAD": "overhead",
}  # fmt: skip
_CALLS = {"cuda_runtime", "cuda_driver"}
# Tables of GPU work, its category, and the argument that its rows have beside the common ones.
_GPU = {
    f"{_CUPTI}KERNEL": "kernel", f"{_CUPTI}GRAPH_TRACE": "kernel",
    f"{_CUPTI}MEMCPY": "gpu_memcpy", f"{_CUPTI}MEMSET": "gpu_memset",
}  # fmt: skip
_SYNC, _EVENT, _NVTX = f"{_CUPTI}SYNCHRONIZATION", f"{_CUPTI}CUDA_EVENT", "NVTX_EVENTS"
_ENOUGH = (*_GPU, *_HOST, _NVTX)
# CUPTI's numbers, which no version has changed, in Kineto's words.
_COPIES = (
    "", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
    "HtoD", "DtoH", "DtoD",
)  # fmt: skip
_MEMORIES = (
    "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static",
)  # fmt: skip
_SYNCS = ("", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
_PLACES = ("deviceId", "streamId", "correlationId", "globalPid")
_LAUNCH = re.compile(r"cu(?:da)?Launch(?:Cooperative)?Kernel")
_MARKS = (34, 65)  # NvtxMark, NvtxtMark
_RANGES = (35, 37, 59, 60, 66, 68)
# What PyTorch writes behind the name of an operator.
_OPERATOR = re.compile(r"^(.+?),? (?:seq|op_id|sizes|input_op_ids) = ", re.DOTALL)
_SEQUENCE = re.compile(r"\bseq = (\d{1,9})\b")
_CALL_VERSION = re.compile(r"_v\d{4,5}$")
_RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_THREAD_BITS = (1 << 24) - 1
_WITHOUT_THREAD = ~_THREAD_BITS
_NOT_TOLD = (
    "whole CUDA graphs as one row each, counted as compute; nsys profile --cuda-graph-trace=node "
    "records their kernels"
)


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - same shape for all formats
    """Return whether a file may be part of an export; :func:`is_export` opens it to be sure."""
    return head.startswith((MAGIC, _PARQUET))


def is_export(source: Source) -> bool:
    """Return whether a database, or the folder around a Parquet file, is an export."""
    is_table = source.path.suffix == ".parquet"
    if is_table and (source.member or not (source.path.parent / f"{_STRINGS}.parquet").exists()):
        return False
    # Parquet under another name is of no folder, and nothing for SQLite.
    if not is_table and source.head().startswith(_PARQUET):
        return False
    with opened(source, None, Findings(source.label)) as stored:
        return _is_known(stored)


def exports(sources: Sequence[Source]) -> list[Source]:
    """Return the files, and of a folder of Parquet files one that stands for it."""
    of_folder: dict[object, Source] = {}
    for source in sources:
        is_table = source.path.suffix == ".parquet"
        folder = source.path.parent
        label = shown(folder) if is_table else source.label
        of_folder.setdefault(folder if is_table else source.label, replace(source, label=label))
    return list(of_folder.values())


def _is_known(stored: Stored) -> bool:
    return any("start" in stored.columns.get(table, ()) for table in _ENOUGH)


@dataclass(frozen=True)
class Process:
    """One process that used a GPU, which is one rank."""

    key: int | None  # globalPid; None for all rows of a file with one process
    rank: int | None = None
    world_size: int | None = None

    @property
    def pid(self) -> int:
        return 0 if self.key is None else (self.key >> 24) & _THREAD_BITS


def nsight(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    stream: Stream | None = None,
) -> list[RankTables]:
    """Read an export, one rank per process that used a GPU, or the one in ``source.part``.

    References
    ----------
    Nsight Systems, SQLite schema reference, docs.nvidia.com/nsight-systems/nsys-exporter.
    """
    findings = Findings(source.label)
    with opened(source, stream, findings) as stored:
        if not _is_known(stored):
            names = ", ".join(sorted(stored.columns)[:8]) or "none"
            msg = (
                f"{source.label}: has no table of Nsight Systems with events (tables: {names}); "
                "export the report again: nsys export --type sqlite REPORT.nsys-rep"
            )
            raise LoadError(msg)
        reader = _Reader(stored, findings, tuple(args))
        parts = reader.parts()
        work = [part for part in parts if part.is_gpu]
        processes = reader.processes((p.process, p.rows.numbers["device"]) for p in work)
        wanted = [process for process in processes if source.part in (None, process.pid)]
        metadata = {process: reader.metadata(process, parts) for process in wanted}
    _tell_of_host(parts, processes, findings)
    tables, texts = [], reader.texts
    for process in wanted:
        label = source.label if len(processes) == 1 else part_label(source, process.pid)
        of_rank = Findings(label)
        if process is processes[0]:
            for _, finding, what, count, where in findings.rows():
                of_rank.add(finding, what, count, where)
        rows = [part.rows if process.key is None else part.of(process.key) for part in parts]
        tables.append(
            rank_of(rows, texts, of_rank, metadata=metadata[process], args=args, rules=rules)
        )
    return [replace(table, format="nsight") for table in tables]


def nsight_ranks(source: Source, stream: Stream | None = None) -> list[tuple[Source, Process]]:
    """List the ranks in a file without reading their events, each with where it is read from."""
    with opened(source, stream, Findings(source.label)) as stored:
        reader = _Reader(stored, Findings(source.label), ())
        processes = reader.processes(reader.gpu_rows())
    if len(processes) == 1:
        return [(source, processes[0])]
    return [
        (replace(source, label=part_label(source, process.pid), part=process.pid), process)
        for process in processes
    ]


def part_label(source: Source, pid: int | None) -> str:
    """Return the label of one process of a file with several."""
    if source.part is not None:
        return source.label
    return f"{source.label}!process {pid}"


@dataclass(frozen=True)
class _Part:
    """The rows of one table, and the process of each."""

    rows: Rows
    process: IntArray
    is_gpu: bool

    def of(self, key: int) -> Rows:
        return self.rows.take(self.process == key)


def _tell_of_host(parts: Sequence[_Part], processes: Sequence[Process], findings: Findings) -> None:
    if len(processes) == 1:
        return
    keys = [process.key for process in processes if process.key is not None]
    lost = sum(int((~np.isin(part.process, keys)).sum()) for part in parts)
    findings.add("dropped", "rows of processes that used no GPU, whose rank is unknown", lost)
    if processes[0].rank is None:
        what = "processes in one file, which states no ranks: in order of their GPUs and ids"
        findings.add("assumed", what, len(processes))


class _Reader:
    """Reads the tables that there are into rows."""

    def __init__(self, stored: Stored, findings: Findings, args: tuple[str, ...]) -> None:
        self.texts = Texts()
        self._stored, self._findings, self._args = stored, findings, args
        strings = self._read(_STRINGS, ("id",), ("value",))
        ids = strings.numbers["id"].tolist()
        values = strings.text("value") if "value" in strings.texts else []
        self._strings: dict[int, str] = {
            number: text for number, text in zip(ids, values, strict=False) if text is not None
        }
        self._unnamed = 0

    def _read(self, table: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> Read:
        return self._stored.read(table, numbers, texts)

    def parts(self) -> list[_Part]:
        parts = [self._host(table) for table in _HOST if self._has(table)]
        parts += [self._gpu(table) for table in _GPU if self._has(table)]
        if self._has(_SYNC):
            parts.append(self._synchronisations())
        if self._has(_NVTX):
            parts.append(self._ranges())
        self._findings.add("suspicious", "names missing from StringIds", self._unnamed)
        self._tell_of_others()
        self._tell_of_missing(parts)
        return parts

    def _tell_of_missing(self, parts: Sequence[_Part]) -> None:
        """Tell of columns without which rows stand in the wrong place, and of kernels left out."""
        there = {table: self._stored.columns[table] for table in _GPU if self._has(table)}
        has_process = any("globalPid" in columns for columns in there.values())
        for table, columns in there.items():
            needed = _PLACES if has_process else _PLACES[:-1]
            if lost := [name for name in needed if name not in columns]:
                what = f"table {table} lacks {', '.join(lost)}; its rows lack their place"
                self._findings.add("suspicious", what)
        for table in (*_GPU, *_HOST, _SYNC, _NVTX):
            is_there = table in self._stored.columns and not self._has(table)
            if is_there and self._stored.has_rows(table):
                self._findings.add("dropped", f"table {table}, which has no column 'start'")
        kernels = self.texts.code("kernel")
        if any((part.rows.category == kernels).any() for part in parts if part.is_gpu):
            return
        launches = [code for code, text in enumerate(self.texts.all()) if _LAUNCH.match(text)]
        calls = sum(int(np.isin(part.rows.name, launches).sum()) for part in parts)
        what = "calls that launch kernels, of which the export has none; busy time lacks them"
        self._findings.add("suspicious", what, calls)

    def _has(self, table: str) -> bool:
        return "start" in self._stored.columns.get(table, ())

    def _tell_of_others(self) -> None:
        read = {*_HOST, *_GPU, _SYNC, _NVTX}
        for table, columns in self._stored.columns.items():
            is_event = {"start", "timestamp"} & set(columns) and table not in read | {_EVENT}
            if is_event and self._stored.has_rows(table):
                self._findings.add("skipped by design", f"table {table}, which has no place here")

    def _name(self, number: int) -> str:
        text = self._strings.get(number)
        if text is None:
            self._unnamed += number != MISSING
            return "" if number == MISSING else f"string {number}"
        return text

    def _constant(self, text: str, rows: int) -> Codes:
        return np.full(rows, self.texts.code(text), np.int32)

    def _host(self, table: str) -> _Part:
        columns = ("start", "end", "globalTid", "correlationId", "nameId", "textId")
        read = self._read(table, columns).numbers
        category = _HOST[table]
        number = np.where(read["nameId"] == MISSING, read["textId"], read["nameId"])
        if category not in _CALLS:
            codes = coded(number, self._name, self.texts)
            kind = self._constant(category, len(number))
            return self._on_host(read, codes, kind, {})
        # The versions of a call that a driver exports are one call.
        codes = coded(number, lambda text: _CALL_VERSION.sub("", self._name(text)), self.texts)
        kind = coded(number, lambda text: _called(self._name(text), category), self.texts)
        return self._on_host(read, codes, kind, {"correlation": read["correlationId"]})

    def _on_host(
        self,
        read: Mapping[str, IntArray],
        name: Codes,
        kind: Codes,
        numbers: Mapping[str, IntArray],
    ) -> _Part:
        tid = read["globalTid"]
        pid = np.where(tid == MISSING, MISSING, tid & _WITHOUT_THREAD)
        process = coded(pid, lambda key: _spelled((key >> 24) & _THREAD_BITS, key), self.texts)
        thread = coded(tid, lambda key: _spelled(key & _THREAD_BITS, key), self.texts)
        start, dur = _times(read)
        return _Part(Rows(start, dur, name, kind, process, thread, numbers), pid, is_gpu=False)

    def _gpu(self, table: str) -> _Part:
        names = ("demangledName", "shortName", "copyKind", "srcKind", "dstKind", "bytes", "graphId")
        columns = self._stored.columns[table]
        extra = tuple(name for name in self._args if name in columns)
        read = self._read(table, (*_ON_GPU, *names, *extra)).numbers
        category, rows = _GPU[table], len(read["start"])
        if category == "gpu_memcpy":
            # Three small numbers in one, 255 for one that a version does not write.
            numbers_in = [np.where(read[kind] == MISSING, 255, read[kind]) & 255 for kind in
                          ("copyKind", "srcKind", "dstKind")]  # fmt: skip
            name = coded(
                numbers_in[0] << 16 | numbers_in[1] << 8 | numbers_in[2], _copied, self.texts
            )
        elif category == "gpu_memset":
            name = self._constant("Memset (Device)", rows)
        elif table.endswith("GRAPH_TRACE"):
            name = coded(read["graphId"], _graph, self.texts)
            self._findings.add("suspicious", _NOT_TOLD, rows)
        else:
            number = np.where(
                read["demangledName"] == MISSING, read["shortName"], read["demangledName"]
            )
            name = coded(number, self._name, self.texts)
        numbers = {"bytes": read["bytes"]} if category != "kernel" else {}
        numbers |= {argument: self._tokens(read[argument]) for argument in extra}
        return self._on_gpu(read, name, category, numbers)

    def _tokens(self, values: IntArray) -> IntArray:
        codes = coded(values, str, self.texts).astype(np.int64)
        codes[values == MISSING] = MISSING
        return codes

    def _on_gpu(
        self, read: Mapping[str, IntArray], name: Codes, category: str,
        numbers: Mapping[str, IntArray],
    ) -> _Part:  # fmt: skip
        device, stream = read["deviceId"], read["streamId"]
        start, dur = _times(read)
        rows = Rows(
            start, dur, name, self._constant(category, len(start)),
            coded(device, _number, self.texts), coded(stream, _number, self.texts),
            {"device": device, "stream": stream, "correlation": read["correlationId"], **numbers},
        )  # fmt: skip
        return _Part(rows, read["globalPid"], is_gpu=category != "cuda_sync")

    def _synchronisations(self) -> _Part:
        read = self._read(_SYNC, (*_ON_GPU, "syncType", "deprecatedSyncType", "eventSyncId"))
        numbers = read.numbers
        kind = np.where(
            numbers["syncType"] == MISSING, numbers["deprecatedSyncType"], numbers["syncType"]
        )
        name = coded(kind, lambda number: _of(_SYNCS, number, "Sync"), self.texts)
        waits = self._waits(numbers["eventSyncId"], numbers["globalPid"])
        return self._on_gpu(numbers, name, "cuda_sync", waits)

    def _waits(self, event: IntArray, process: IntArray) -> dict[str, IntArray]:
        """Find the record of the event that each row waits for: its call and its stream."""
        recorded = self._read(_EVENT, ("eventSyncId", "globalPid", "correlationId", "streamId"))
        records = pd.DataFrame(recorded.numbers)
        records = records[records["eventSyncId"] != MISSING]
        if records.empty:
            return {}
        keys = ["eventSyncId", "globalPid"]
        wanted = pd.DataFrame({"eventSyncId": event, "globalPid": process})
        joined = wanted.merge(records.drop_duplicates(keys), on=keys, how="left", validate="m:1")
        of_event = {
            "wait_on_cuda_event_record_corr_id": "correlationId", "wait_on_stream": "streamId",
        }  # fmt: skip
        return {
            name: np.array([MISSING if pd.isna(v) else int(v) for v in joined[column]], np.int64)
            for name, column in of_event.items()
        }

    def _ranges(self) -> _Part:
        columns = ("start", "end", "globalTid", "eventType", "textId")
        read = self._read(_NVTX, columns, ("text",))
        numbers, kind = read.numbers, read.numbers["eventType"]
        is_closed = numbers["end"] != MISSING
        is_mark = np.isin(kind, _MARKS)
        is_open = ~is_closed & np.isin(kind, _RANGES)
        skipped = int((~(is_closed | is_mark | is_open)).sum())
        self._findings.add("dropped", "NVTX ranges that never ended", int(is_open.sum()))
        self._findings.add("skipped by design", "names of NVTX domains and categories", skipped)
        numbers["end"] = np.where(is_closed, numbers["end"], numbers["start"])
        name, category = self._annotated(read)
        part = self._on_host(numbers, name, category, self._sequence(read))
        kept = np.flatnonzero(is_closed | is_mark)
        rows = part.rows.take(kept)
        return _Part(as_steps(rows, self.texts, self._findings), part.process[kept], is_gpu=False)

    def _sequence(self, read: Read) -> dict[str, IntArray]:
        """Return the autograd sequence numbers that PyTorch appends to its operators' names."""
        stated = [_SEQUENCE.search(text or "") for text in read.texts.get("text", [])]
        if not any(stated):
            return {}
        number = np.array([int(match[1]) if match else MISSING for match in stated])
        return {"Sequence number": number[read.codes["text"]]}

    def _annotated(self, read: Read) -> tuple[Codes, Codes]:
        """Return name and category: PyTorch annotates its operators, users anything else."""
        texts = read.texts.get("text", [])
        split = [_OPERATOR.match(text) if text else None for text in texts]
        spelled = [
            match[1] if match else text or "" for match, text in zip(split, texts, strict=True)
        ]
        kinds = ["cpu_op" if match else "user_annotation" for match in split]
        names = coded(read.numbers["textId"], self._name, self.texts)
        category = self._constant("user_annotation", len(names))
        if texts:
            codes = read.codes["text"]
            is_told = np.array([text is not None for text in texts])[codes]
            names = np.where(is_told, _table(spelled, self.texts)[codes], names)
            category = np.where(is_told, _table(kinds, self.texts)[codes], category)
        return names.astype(np.int32), category.astype(np.int32)

    def processes(self, pairs: Iterable[tuple[IntArray, IntArray]]) -> list[Process]:
        """List the processes that used a GPU, in order of their first device and id."""
        ranks = self._stated_ranks()
        lowest: dict[int, int] = {}
        for process, device in pairs:
            for key, first in pd.Series(device).groupby(process).min().items():
                lowest[int(key)] = min(first, lowest.get(int(key), first))  # type: ignore[call-overload]
        keys = sorted(lowest, key=lambda key: (lowest[key], key))
        # Before 2021 GPU rows did not tell their process.
        if len(keys) <= 1 or MISSING in lowest:
            key = keys[0] if len(keys) == 1 else MISSING
            rank, world = self._environment_rank()
            return [Process(None, ranks.get(key, rank), world)]
        return [Process(key, ranks.get(key)) for key in keys]

    def gpu_rows(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield process and device of the GPU work of each table."""
        for table in filter(self._has, _GPU):
            read = self._read(table, ("globalPid", "deviceId")).numbers
            yield read["globalPid"], read["deviceId"]

    def _stated_ranks(self) -> dict[int, int]:
        read = self._read("MPI_RANKS", ("globalPid", "rank")).numbers
        pairs = zip(read["globalPid"].tolist(), read["rank"].tolist(), strict=True)
        return {key: rank for key, rank in pairs if 0 <= rank < 1 << 31}

    def _environment_rank(self) -> tuple[int | None, int | None]:
        text = self._properties("TARGET_INFO_SYSTEM_ENV").get("DeviceEnvironment", "")
        pairs = dict(pair.partition("=")[::2] for pair in text.split(";"))
        told = [int(pairs[name]) for name in _RANK_NAMES if pairs.get(name, "").isdecimal()]
        world = pairs.get("WORLD_SIZE", "")
        return (told[0] if told else None), (int(world) if world.isdecimal() else None)

    def _properties(self, table: str) -> dict[str, str]:
        read = self._read(table, (), ("name", "value"))
        if set(read.texts) != {"name", "value"}:
            return {}
        pairs = zip(read.text("name"), read.text("value"), strict=True)
        return {name: value for name, value in pairs if name and value is not None}

    def metadata(self, process: Process, parts: Sequence[_Part]) -> Row:
        """Return what the export says of a rank, by Kineto's names."""
        export = self._properties("META_DATA_EXPORT")
        version = export.get("EXPORT_PRODUCT_VERSION", "of unknown version")
        host = self._properties("TARGET_INFO_SYSTEM_ENV").get("Hostname", "")
        on_host = f", recorded on {host}" if host else ""
        self._findings.add("read", f"export of Nsight Systems {version[:40]}{on_host[:80]}")
        told: Row = {"rank": process.rank, "world_size": process.world_size}
        metadata: Row = {"distributedInfo": told, "deviceProperties": self._devices(process, parts)}
        metadata["hostname"] = host
        sessions = self._read("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)).numbers
        starts = [value for value in sessions["utcEpochNs"].tolist() if value > 0]
        # Times are relative to the session, unless the export was requested in wall time.
        if starts and export.get("EXPORT_PARAM_TIME_NORMALIZE") != "true":
            metadata["baseTimeNanoseconds"] = starts[0]
        return metadata

    def _devices(self, process: Process, parts: Sequence[_Part]) -> list[Row]:
        used: set[int] = set()
        for part in parts:
            if part.is_gpu:
                is_own = slice(None) if process.key is None else part.process == process.key
                used |= set(np.unique(part.rows.numbers["device"][is_own]).tolist())
        gpus = self._read("TARGET_INFO_GPU", tuple(_OF_GPU), ("name",))
        names = gpus.text("name") if "name" in gpus.texts else []
        columns = [values.tolist() for values in gpus.numbers.values()]
        rows = [
            dict(zip(_OF_GPU.values(), values, strict=True)) | {"name": name}
            for *values, name in zip(*columns, names, strict=False)
        ]
        by_id = {int(row["id"]): row for row in rows}
        pairs = self._read("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid")).numbers
        places = {
            (pid, cuda): gpu
            for gpu, cuda, pid in zip(*(values.tolist() for values in pairs.values()), strict=True)
            if process.key is None or pid == process.pid
        }
        place = {cuda: gpu for (_, cuda), gpu in places.items()}
        found = [(device, by_id.get(place.get(device, device), {})) for device in sorted(used)]
        return [
            {key: value for key, value in row.items() if value != MISSING} | {"id": device}
            for device, row in found
            if device != MISSING
        ]


_ON_GPU = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_OF_GPU = {
    "id": "id", "totalMemory": "totalGlobalMem", "smCount": "numSms",
    "computeMajor": "computeMajor", "computeMinor": "computeMinor",
}  # fmt: skip


def _times(read: Mapping[str, IntArray]) -> tuple[IntArray, IntArray]:
    start, end = read["start"], read["end"]
    # A row without one of its times is marked by a duration that no loader takes.
    return start, np.where((start == MISSING) | (end == MISSING), -1, end - start)


def _table(texts: Sequence[str], pool: Texts) -> npt.NDArray[np.int32]:
    return np.array([pool.code(text) for text in texts], np.int32)


def _called(name: str, category: str) -> str:
    if name.startswith("cuda"):
        return "cuda_runtime"
    return "cuda_driver" if name.startswith("cu") else category


def _of(names: Sequence[str], number: int, otherwise: str) -> str:
    return (names[number] if 0 <= number < len(names) else "") or otherwise


def _copied(number: int) -> str:
    name = f"Memcpy {_of(_COPIES, number >> 16, 'unknown')}"
    memories = [_of(_MEMORIES, number >> shift & 255, "") for shift in (8, 0)]
    return f"{name} ({memories[0]} -> {memories[1]})" if all(memories) else name


def _graph(number: int) -> str:
    return "CUDA graph" if number == MISSING else f"CUDA graph {number}"


def _number(number: int) -> str:
    return "" if number == MISSING else str(number)


def _spelled(number: int, whole: int) -> str:
    return "" if whole == MISSING else str(number)
