"""JSON of rocprofv3 (ROCm 6.2 and later): one object per process, records by domain."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.json_events import Damaged, JsonWalk
from workbench.load._files.stream import Stream
from workbench.load._files.text import tell_of_damage
from workbench.load._traces.columns import IntArray, rank_of
from workbench.load._traces.kineto.blocks import MISSING, Texts
from workbench.load._traces.kineto.rank import RankTables
from workbench.load._traces.nsight.reader import part_label
from workbench.load._traces.rocm.records import (
    Records,
    category_of,
    copy_name,
    device_property,
    integers,
    kernel_name,
    name_collectives,
    replaced,
    streams_or_queues,
)

_TOOL = "rocprofiler-sdk-tool"
_MARK = re.compile(rb'^\s*\{\s*"rocprofiler-sdk-tool"\s*:')
_GPU = 2  # the type of an agent; 1 is a CPU
_FLUSH_ROWS = 1 << 16
# Records that are spans of a thread or of the GPU; others are counted and skipped.
_SPANS = re.compile(r"kernel_dispatch|memory_copy|memory_allocation|\w+_api")


def _id(record: Row, name: str) -> object:
    value = record.get(name)
    return value.get("handle") if isinstance(value, dict) else value


def _correlation(record: Row) -> object:
    value = record.get("correlation_id")
    return value.get("internal") if isinstance(value, dict) else value


def _of_dispatch(record: Row, name: str) -> object:
    info = record.get("dispatch_info")
    return _id(info, name) if isinstance(info, dict) else None


# Columns of every record, and those of two domains beside them.
_COLUMNS: Mapping[str, Callable[[Row], object]] = {
    "start": lambda record: record.get("start_timestamp"),
    "end": lambda record: record.get("end_timestamp"),
    "thread": lambda record: record.get("thread_id"), "correlation": _correlation,
    "kind": lambda record: record.get("kind"), "operation": lambda record: record.get("operation"),
}  # fmt: skip
_MORE_COLUMNS: Mapping[str, Mapping[str, Callable[[Row], object]]] = {
    "kernel_dispatch": {
        "agent": lambda record: _of_dispatch(record, "agent_id"),
        "queue": lambda record: _of_dispatch(record, "queue_id"),
        "kernel": lambda record: _of_dispatch(record, "kernel_id"),
        "stream": lambda record: _id(record, "stream_id"),
    },
    "memory_copy": {
        "to": lambda record: _id(record, "dst_agent_id"),
        "agent": lambda record: _id(record, "src_agent_id"),
        "stream": lambda record: _id(record, "stream_id"),
        "bytes": lambda record: record.get("bytes"),
    },
}


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - same shape for all formats
    return _MARK.match(head) is not None


def rocprofv3(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    stream: Stream | None = None,
) -> list[RankTables]:
    """Read one file, a rank per process in it.

    References
    ----------
    ROCm/rocprofiler-sdk: source/lib/output/generateJSON.cpp.
    """
    findings, processes = Findings(source.label), list[_Process]()
    with stream or source.open() as opened:
        walk = JsonWalk(opened)
        try:
            for key in walk.members():
                if key != _TOOL:
                    walk.value()
                    continue
                for _ in walk.items():
                    processes.append(_Process())
                    processes[-1].read(walk, findings)
        except Damaged as damage:
            _tell(damage, processes, findings)
        tell_of_damage(opened, findings)
    if not processes:
        msg = (
            f"{source.label}: lists no process under {_TOOL!r}; was the profiled command started? "
            "Record again: rocprofv3 --runtime-trace --output-format json -- COMMAND"
        )
        raise LoadError(msg)
    tables = []
    for process in processes:
        label = source.label if len(processes) == 1 else part_label(source, process.pid)
        of_rank = findings if process is processes[0] else Findings(label)
        of_rank.source = label
        texts = Texts()
        records = process.records(texts, of_rank)
        name_collectives(records, texts, of_rank)
        parts = [one.rows(process.pid, texts, of_rank) for one in records]
        metadata = {"deviceProperties": process.devices()}
        ranks = rank_of(parts, texts, of_rank, metadata=metadata, args=args, rules=rules)
        tables.append(replace(ranks, format="rocprofv3"))
    return tables


def _tell(damage: Damaged, processes: Sequence[_Process], findings: Findings) -> None:
    if not any(process.count for process in processes):
        msg = (
            f"{findings.source}: no record of rocprofv3 can be read; it is damaged at character "
            f"{damage.offset:,} ({damage.reason}): get the file again"
        )
        raise LoadError(msg)
    where = f"character {damage.offset:,}"
    findings.add("truncated", f"everything behind damage ({damage.reason})", 1, where)


@dataclass
class _Process:
    """Contents of a file about one process, before numbers are resolved."""

    pid: int | None = None
    count: int = 0
    agents: list[Row] = field(default_factory=list)
    # By kind of record the names of its domain and operations.
    domains: list[tuple[str, list[str]]] = field(default_factory=list)
    markers: dict[int, str] = field(default_factory=dict)
    kernels: dict[int, str] = field(default_factory=dict)
    columns: dict[str, list[dict[str, IntArray]]] = field(default_factory=dict)

    def read(self, walk: JsonWalk, findings: Findings) -> None:
        for key in walk.members():
            sign = walk.next_sign()
            if key in ("buffer_records", "callback_records") and sign == "{":
                for domain in walk.members():
                    self._read_domain(domain, walk, findings)
            elif sign == "[":
                # Lists may be long; nothing of an item is kept that is not used.
                for _ in walk.items():
                    self._add_item(key, walk.value())
            else:
                self._add(key, _dict(walk.value()))

    def _add(self, key: str, value: Row) -> None:
        if key == "metadata":
            self.pid = _integer(value.get("pid"))
        elif key == "strings":
            self._add_strings(value)

    def _add_item(self, key: str, item: object) -> None:
        if key == "kernel_symbols":
            self._add_kernel(_dict(item))
        elif key == "agents" and isinstance(item, dict):
            self.agents.append(item)

    def _add_kernel(self, told: Row) -> None:
        number = _integer(told.get("kernel_id"))
        names = (told.get("formatted_kernel_name"), told.get("kernel_name"))
        if number is not None:
            self.kernels[number] = next((n for n in names if isinstance(n, str) and n), "")

    def _add_strings(self, strings: Row) -> None:
        for kind in map(_dict, _list(strings.get("buffer_records"))):
            names = [str(name) for name in _list(kind.get("operations"))]
            self.domains.append((str(kind.get("kind")), names))
        for message in map(_dict, _list(strings.get("marker_api"))):
            key = _integer(message.get("key"))
            if key is not None and isinstance(message.get("value"), str):
                self.markers[key] = message["value"]

    def _read_domain(self, domain: str, walk: JsonWalk, findings: Findings) -> None:
        if walk.next_sign() != "[":
            walk.value()
            return
        is_wanted = _SPANS.fullmatch(domain) is not None
        wanted = {**_COLUMNS, **_MORE_COLUMNS.get(domain, {})}
        pending: dict[str, list[object]] = {name: [] for name in wanted}
        skipped = others = 0
        try:
            for _ in walk.items():
                record = walk.value()
                if not is_wanted:
                    skipped += 1
                elif not isinstance(record, dict):
                    others += 1
                else:
                    self.count += 1
                    for name, value_of in wanted.items():
                        pending[name].append(value_of(record))
                    if self.count % _FLUSH_ROWS == 0:
                        self._flush(domain, pending)
        finally:
            self._flush(domain, pending)
            findings.add("skipped by design", f"{domain} records, which are not spans", skipped)
            findings.add("dropped", f"{domain} records that are not objects", others)

    def _flush(self, domain: str, pending: dict[str, list[object]]) -> None:
        block = {name: integers(values) for name, values in pending.items()}
        self.columns.setdefault(domain, []).append(block)
        for values in pending.values():
            values.clear()

    def records(self, texts: Texts, findings: Findings) -> list[Records]:
        made = []
        for domain, blocks in self.columns.items():
            columns = {
                name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]
            }
            if not len(columns["start"]):
                continue
            numbers = {"correlation": columns["correlation"]}
            if domain in _MORE_COLUMNS:
                numbers |= self._on_gpu(columns, findings)
            name, times = self._names(domain, columns, texts), (columns["start"], columns["end"])
            made.append(Records(category_of(domain), *times, name, columns["thread"], numbers))
        return made

    def _on_gpu(self, columns: Mapping[str, IntArray], findings: Findings) -> dict[str, IntArray]:
        index = self._gpu_indexes()
        agents = columns["agent"]
        if "to" in columns:
            # A copy from the host is the work of the GPU that it goes to.
            is_gpu = np.isin(columns["to"], np.array(list(index), np.int64))
            agents = np.where(is_gpu, columns["to"], agents)
        device = replaced(agents, index)
        lacking = (device == MISSING) & (agents != MISSING)
        findings.add("suspicious", "records of agents that are not GPUs", int(lacking.sum()))
        queue = columns.get("queue", np.full(len(agents), MISSING, np.int64))
        numbers = {"device": device, "stream": streams_or_queues(columns["stream"], queue)}
        return numbers | ({"bytes": columns["bytes"]} if "bytes" in columns else {})

    def _names(self, domain: str, columns: Mapping[str, IntArray], texts: Texts) -> Any:
        if domain == "kernel_dispatch":
            told = {number: texts.code(kernel_name(name)) for number, name in self.kernels.items()}
            codes = replaced(columns["kernel"], told)
            return np.where(codes == MISSING, texts.code("unknown kernel"), codes).astype(np.int32)
        pairs = pd.MultiIndex.from_arrays([columns["kind"], columns["operation"]])
        numbers, distinct = pairs.factorize()
        table = [texts.code(self._operation(domain, *pair)) for pair in distinct]
        codes = np.array([*table, -1], np.int64)[numbers]
        if category_of(domain) == "user_annotation" and self.markers:
            messages = {number: texts.code(text) for number, text in self.markers.items()}
            of_message = replaced(columns["correlation"], messages)
            codes = np.where(of_message == MISSING, codes, of_message)
        return codes.astype(np.int32)

    def _operation(self, domain: str, kind: int, operation: int) -> str:
        operations = self.domains[kind][1] if 0 <= kind < len(self.domains) else []
        if not 0 <= operation < len(operations):
            return f"{domain} {operation}" if operation != MISSING else domain
        name = operations[operation]
        return copy_name(name) if domain == "memory_copy" else name

    def _gpu_indexes(self) -> dict[int, int]:
        """Return the index of each GPU, from 0, by the handle of its agent."""
        gpus = [agent for agent in self.agents if agent.get("type") == _GPU]
        indexes = {}
        for at, agent in enumerate(gpus):
            handle, told = _integer(_id(agent, "id")), _integer(agent.get("logical_node_type_id"))
            if handle is not None:
                indexes[handle] = at if told is None or told < 0 else told
        return indexes

    def devices(self) -> list[Row]:
        used = {
            int(handle)
            for name in _MORE_COLUMNS
            for block in self.columns.get(name, ())
            for column in ("agent", "to") if column in block
            for handle in np.unique(block[column])
        }  # fmt: skip
        rows = []
        for handle, index in self._gpu_indexes().items():
            agent = next(one for one in self.agents if _integer(_id(one, "id")) == handle)
            if handle in used:
                banks = map(_dict, _list(agent.get("mem_banks")))
                sizes = [_integer(bank.get("size_in_bytes")) or 0 for bank in banks]
                name = agent.get("product_name") or agent.get("name")
                rows.append(device_property(index, name, agent.get, sum(sizes) or None))
        return rows


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None


def _dict(value: object) -> Row:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
