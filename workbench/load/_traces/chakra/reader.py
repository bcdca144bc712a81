"""Chakra execution traces (MLCommons): nodes, and what each must wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import RankArgument
from workbench.load._files.stream import Stream
from workbench.load._traces.chakra import protobuf_form, schema
from workbench.load._traces.execution.reader import objects, read_nodes
from workbench.load._traces.graph import NodeRow, RankGraph, clean_text, load, read_all, us_to_ns
from workbench.tables import Trace

_JSON_STARTS = (b"{", b"[")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    if _is_json(head):
        return _looks_like_json(head)
    return protobuf_form.looks_like(head)


def chakra(
    path: str | Path | Iterable[str | Path] | Iterable[Source], *, rank: RankArgument = None
) -> Trace:
    """Read Chakra execution traces, one file per rank.

    Protobuf (``.et``) of every generation of the schema since 2022, a JSON workload graph, or
    protobuf printed as JSON. Protobuf does not write 0, so a duration of 0 is missing.

    Notes
    -----
    A Chakra trace does not state its rank: it is the argument, else taken from the file name
    (``<name>.<rank>.et``), else counted in order of the files with a finding in ``quality``.
    Dependencies on missing nodes and on cycles are kept and counted there.

    References
    ----------
    mlcommons/chakra: schema/protobuf/et_def.proto; before 2024 et_def/et_def.proto and
    eg_def/eg_def.proto.
    """
    return load(path, _read, rank)


def _read(source: Source, stream: Stream) -> RankGraph:
    graph = RankGraph(source.label, "chakra", Findings(source.label))
    data = read_all(stream, graph.findings)
    read = _read_json if _is_json(data[:64]) else protobuf_form.read
    read(data, graph)
    return graph


# A first byte of protobuf may be a brace, too: it is the length of a message of 123 bytes.
def _is_json(head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return start.startswith(_JSON_STARTS) and b'"' in start[:64] and head[:1] in b"\xef {[ \t\r\n"


# The JSON forms: a workload graph, or the protobuf messages printed one by one.

_GRAPH = "workload_graph"
_MESSAGE = re.compile(
    rb'"(?:ctrlDeps|dataDeps|durationMicros|int64Val|stringVal|boolVal)"'
    rb'|"type"\s*:\s*"(?:COMP|COMM|MEM|METADATA)_\w*NODE"'
)

Raw = Row


def _looks_like_json(head: bytes) -> bool:
    if b'"%s"' % _GRAPH.encode() in head:
        return True
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and bool(_MESSAGE.search(head))


def _read_json(data: bytes, graph: RankGraph) -> None:
    if b'"%s"' % _GRAPH.encode() in data:
        document, nodes = read_nodes(data, _GRAPH, label=graph.label, findings=graph.findings)
        ranks = to_integer(document.get("ngpus"))
        graph.world_size = ranks if ranks is not None and 0 < ranks < 1 << 31 else None
        graph.findings.add("read", "schema workload graph")
    else:
        start = data.index(b"{")
        label, findings = graph.label, graph.findings
        nodes = list(objects(data, start, label=label, findings=findings, is_closed=False))
        # The first message, without id, is metadata.
        if nodes and isinstance(nodes[0], dict) and not {"id", "name", "type"} & set(nodes[0]):
            del nodes[0]
        graph.findings.add("read", "schema 0.0.4 as JSON")
    for position, node in enumerate(nodes):
        _add_node(graph, node, position)
    if not graph.rows:
        msg = f"{graph.label}: holds no readable node; is it a Chakra execution trace?"
        raise LoadError(msg)


def _add_node(graph: RankGraph, node: object, position: int) -> None:
    findings = graph.findings
    if not isinstance(node, dict):
        findings.add("dropped", "entries that are not nodes", 1, f"entry {position}")
        return
    values = _flat(node)
    # Protobuf leaves an id out if it is 0.
    number = to_integer(values.get("id", 0 if "attr" in node or "type" in node else None))
    if number is None:
        findings.add("dropped", "nodes without a usable id", 1, f"entry {position}")
        return
    type_name = _type(values.get("type"))
    size = to_integer(values.get("comm_size", values.get("tensor_size")))
    cpu, group = values.get("is_cpu_op"), values.get("pg_name")
    collective = values.get("comm_type")
    if isinstance(collective, str):
        collective = to_integer(collective) if collective.isdigit() else collective.encode()
    name = schema.NOW.collective_name(collective) if type_name == "COMM_COLL_NODE" else None
    graph.rows.append(NodeRow(
        node=number, name=clean_text(str(values.get("name", "")), findings),
        type=clean_text(type_name, findings),
        start_ns=us_to_ns(values.get("start"), findings, "start"),
        dur_ns=us_to_ns(values.get("duration"), findings, "duration"),
        record_function=to_integer(values.get("rf_id")) or None, collective=name,
        group=clean_text(str(group), findings) if group is not None else None,
        size_bytes=size if size is not None and size >= 0 else None,
        is_cpu=cpu if isinstance(cpu, bool) else None,
    ))  # fmt: skip
    graph.data_edges += _edges(graph, number, values.get("data_deps"))
    graph.control_edges += _edges(graph, number, values.get("ctrl_deps"))


# Spellings of the same field: of workload graphs, of protobuf, of protobuf as JSON.
_NAMES = {
    "Id": "id", "Name": "name", "NodeType": "type", "node_type": "type",
    "ctrlDeps": "ctrl_deps", "dataDeps": "data_deps", "runtime": "duration",
    "duration_micros": "duration", "durationMicros": "duration",
    "start_time_micros": "start", "startTimeMicros": "start",
}  # fmt: skip


def _flat(node: Raw) -> Raw:
    flat = {_NAMES.get(name, name): value for name, value in node.items()}
    listed = node.get("attr")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            values = [value for name, value in entry.items() if name.endswith(("Val", "_val"))]
            flat.setdefault(entry["name"], values[0] if values else None)
    return flat


def _type(stated: object) -> str:
    number = to_integer(stated)
    if number is None and isinstance(stated, str) and stated:
        return stated
    return schema.NOW.type_name(number or 0)


def _edges(graph: RankGraph, number: int, stated: object) -> list[tuple[int, int]]:
    listed = stated if isinstance(stated, list) else [] if stated is None else [stated]
    needs = [to_integer(entry) for entry in listed]
    unusable = needs.count(None)
    graph.findings.add("dropped", "dependencies without a usable id", unusable, f"node {number}")
    return [(number, entry) for entry in needs if entry is not None]
