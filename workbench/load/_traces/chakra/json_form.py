"""Chakra execution traces as JSON: a workload graph, or the protobuf messages one by one."""

from __future__ import annotations

import re
from typing import Any

from workbench.errors import LoadError
from workbench.load._files.json_events import to_integer
from workbench.load._traces.chakra import schema
from workbench.load._traces.execution.reader import objects, read_nodes
from workbench.load._traces.graph import NodeRow, RankGraph, clean_text, us_to_ns

_GRAPH = "workload_graph"
_MESSAGE = re.compile(
    rb'"(?:ctrlDeps|dataDeps|durationMicros|int64Val|stringVal|boolVal)"'
    rb'|"type"\s*:\s*"(?:COMP|COMM|MEM|METADATA)_\w*NODE"'
)

Raw = dict[str, Any]


def looks_like(head: bytes) -> bool:
    if b'"%s"' % _GRAPH.encode() in head:
        return True
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and bool(_MESSAGE.search(head))


def read(data: bytes, graph: RankGraph) -> None:
    if b'"%s"' % _GRAPH.encode() in data:
        document, nodes = read_nodes(data, _GRAPH, label=graph.label, findings=graph.findings)
        ranks = to_integer(document.get("ngpus"))
        graph.world_size = ranks if ranks is not None and 0 < ranks < 1 << 31 else None
        graph.findings.add("read", "schema workload graph")
    else:
        start = data.index(b"{")
        nodes = list(_messages(data, start, graph))
        graph.findings.add("read", "schema 0.0.4 as JSON")
    for position, node in enumerate(nodes):
        _add_node(graph, node, position)
    if not graph.rows:
        msg = f"{graph.label}: holds no readable node; is it a Chakra execution trace?"
        raise LoadError(msg)


def _messages(data: bytes, start: int, graph: RankGraph) -> list[Raw]:
    """Return the messages that follow each other; the first, without id, is metadata."""
    found = list(objects(data, start, label=graph.label, findings=graph.findings, is_closed=False))
    return found[1:] if found and isinstance(found[0], dict) and _metadata(found[0]) else found


def _metadata(message: Raw) -> bool:
    return not {"id", "name", "type"} & set(message)


def _add_node(graph: RankGraph, node: object, position: int) -> None:
    findings = graph.findings
    if not isinstance(node, dict):
        findings.add("dropped", "entries that are no nodes", 1, f"entry {position}")
        return
    given = _flat(node)
    # Protobuf leaves an id out if it is 0.
    number = to_integer(given.get("id", 0 if "attr" in node or "type" in node else None))
    if number is None:
        findings.add("dropped", "nodes without a usable id", 1, f"entry {position}")
        return
    type_name = _type(given.get("type"))
    size = to_integer(given.get("comm_size", given.get("tensor_size")))
    cpu, group = given.get("is_cpu_op"), given.get("pg_name")
    collective = given.get("comm_type")
    if isinstance(collective, str):
        collective = to_integer(collective) if collective.isdigit() else collective.encode()
    graph.rows.append(
        NodeRow(
            node=number,
            name=clean_text(str(given.get("name", "")), findings),
            type=clean_text(type_name, findings),
            start_ns=us_to_ns(given.get("start"), findings, "start"),
            dur_ns=us_to_ns(given.get("duration"), findings, "duration"),
            record_function=to_integer(given.get("rf_id")) or None,
            collective=schema.NOW.collective_name(collective)
            if type_name == "COMM_COLL_NODE"
            else None,
            group=clean_text(str(group), findings) if group is not None else None,
            size_bytes=size if size is not None and size >= 0 else None,
            is_cpu=cpu if isinstance(cpu, bool) else None,
        )
    )
    graph.data_edges += _edges(graph, number, given.get("data_deps"))
    graph.control_edges += _edges(graph, number, given.get("ctrl_deps"))


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


def _type(given: object) -> str:
    number = to_integer(given)
    if number is not None:
        return schema.NOW.type_name(number)
    return given if isinstance(given, str) and given else schema.NOW.type_name(0)


def _edges(graph: RankGraph, number: int, given: object) -> list[tuple[int, int]]:
    listed = given if isinstance(given, list) else [] if given is None else [given]
    needs = [to_integer(entry) for entry in listed]
    unusable = sum(entry is None for entry in needs)
    graph.findings.add("dropped", "dependencies without a usable id", unusable, f"node {number}")
    return [(number, entry) for entry in needs if entry is not None]
