"""Chakra execution traces as protobuf: messages one after the other, each behind its length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import to_integer
from workbench.load._files.protobuf import decoder_of
from workbench.load._traces.chakra import schema
from workbench.load._traces.graph import NodeRow, RankGraph, clean_text, us_to_ns
from workbench.tables import SAYS_OBFUSCATED, SAYS_SYNTHETIC

# What of a node the schema cannot hold (nanoseconds, a recorded 0, callers) is one attribute of it,
# so that files stay readable by every tool of Chakra and still give back the rows written.
ATTRIBUTE = b"workbench_row"
# Attributes of the metadata by which a file says that nobody recorded it so.
ORIGINS = {b"workbench_synthetic": SAYS_SYNTHETIC, b"workbench_obfuscated": SAYS_OBFUSCATED}
_TEXTS = ("type", "collective", "group")
_COUNTS = ("dur_ns", "size_bytes")
_NUMBERS = ("parent", "start_ns", "record_function", *_COUNTS)
# Numbers must fit the int64 columns they are put back into.
_MOST_BITS = 63

_SAMPLES = 256
# More broken messages than whole ones: the file is something else.
_MOST_BROKEN_SHARE = 0.5
_NOT_NUL = re.compile(rb"[^\0]")
# Attributes that become columns.
_NAMES = ("comm_type", "comm_size", "tensor_size", "pg_name", "rf_id", "is_cpu_op", "runtime")
_WANTED = {name.encode(): name for name in _NAMES} | {ATTRIBUTE: "exact"}


def looks_like(head: bytes) -> bool:
    try:
        length, start = schema.varint(head, 0)
        first = head[start : start + length]
        if schema.is_header(first) and length:
            length, start = schema.varint(head, start + length)
            first = head[start : start + length]
    except (IndexError, OverflowError):
        return False
    if len(first) < length:
        return _begins_like_a_node(first)
    present = set(schema.fields(first))
    return bool(present) and (2, 2) in present and present <= _NODE_FIELDS


_NODE_FIELDS = {(1, 0), (2, 2), (3, 0)} | {(n, w) for n in range(4, 23) for w in (0, 2)}


# The head may end inside the first node; id and name, which every node has, come first.
def _begins_like_a_node(cut: bytes) -> bool:
    try:
        number, wire, at = schema.tag(cut, 0)
        if (number, wire) == (1, 0):
            _, at = schema.varint(cut, at)
            number, wire, at = schema.tag(cut, at)
        length, at = schema.varint(cut, at)
    except (IndexError, OverflowError):
        return False
    return (number, wire) == (2, 2) and 0 < length < 1 << 16


def read(data: bytes, graph: RankGraph) -> None:
    split = list(_messages(data, graph.findings))
    if not split:
        msg = f"{graph.label}: holds no whole message; is it a Chakra execution trace?"
        raise LoadError(msg)
    generation = schema.recognise(split[0][1], [raw for _, raw in split[1:_SAMPLES]])
    if schema.is_header(split[0][1]):
        stated = _header(split.pop(0)[1], graph.findings) or generation.name
    else:
        stated = generation.name
        finding = "metadata in front of the nodes" if generation.has_header else ""
        graph.findings.add("suspicious", f"{finding}: there are none", int(bool(finding)))
    graph.findings.add("read", f"schema {stated}")
    if stated != generation.name:
        finding = f"schema {stated} is not known; read like {generation.name}"
        graph.findings.add("suspicious", finding)
    broken = _add_nodes(graph, split, generation)
    if len(broken) > _MOST_BROKEN_SHARE * len(split) or not graph.rows:
        where = f", first at byte {broken[0]:,}" if broken else ""
        msg = (
            f"{graph.label}: {len(broken):,} of {len(split):,} nodes cannot be decoded{where}; "
            "is it a Chakra execution trace, copied in binary mode?"
        )
        raise LoadError(msg)
    if broken:
        finding = "nodes that cannot be decoded"
        graph.findings.add("dropped", finding, len(broken), f"byte {broken[0]:,}")


def _header(header: bytes, findings: Findings) -> str:
    for mark, words in ORIGINS.items():
        findings.add("noted", words, int(mark in header))
    return schema.version(header)


def _add_nodes(
    graph: RankGraph, split: Sequence[tuple[int, bytes]], generation: schema.Generation
) -> list[int]:
    """Add nodes, and return where those lie that cannot be decoded."""
    decode, broken = decoder_of(generation.node_class()), []
    for offset, raw in split:
        if (node := decode(raw)) is None:
            broken.append(offset)
        else:
            _add_node(graph, node, generation)
    return broken


def _add_node(graph: RankGraph, node: Any, generation: schema.Generation) -> None:
    findings = graph.findings
    values = _attributes(node, generation)
    present = generation is schema.NOW
    duration = node.duration_us if generation is not schema.OF_2023 else values.get("runtime")
    type_name = generation.type_name(node.type)
    if type_name.startswith("NODE_TYPE_"):
        findings.add("suspicious", "node types that the schema does not know", 1, f"node {node.id}")
    group = values.get("pg_name")
    cpu = values.get("is_cpu_op")
    size = to_integer(values.get("comm_size", values.get("tensor_size")))
    collective = generation.collective_name(values.get("comm_type"))
    is_collective = type_name == "COMM_COLL_NODE"
    row = NodeRow(
        node=node.id,
        name=clean_text(node.name.decode("utf-8", "surrogateescape"), findings),
        type=type_name,
        # Numbers that are 0 are not written, so 0 and unknown look the same.
        start_ns=us_to_ns((present and node.start_us) or None, findings, "start"),
        dur_ns=us_to_ns(duration or None, findings, "duration"),
        record_function=to_integer(values.get("rf_id")) or None,
        collective=collective if is_collective else None,
        group=None if group is None else clean_text(_text(group), findings),
        size_bytes=size if size is not None and size >= 0 else None,
        is_cpu=None if cpu is None else bool(cpu),
    )
    graph.rows.append(restored(row, values.get("exact"), findings))
    number = node.id
    graph.data_edges.extend((number, needs) for needs in node.data_deps)
    if present:
        graph.control_edges.extend((number, needs) for needs in node.ctrl_deps)


# Before attributes there were fields of their own for the same.
def _attributes(node: Any, generation: schema.Generation) -> dict[str, object]:
    if generation.attribute is None:
        fields = ("comm_type", "comm_size", "tensor_size")
        return {name: value for name in fields if (value := getattr(node, name))}
    values = {}
    for attribute in node.attributes:
        name = _WANTED.get(attribute.name)
        if name is not None and (value := generation.value(attribute)) is not None:
            values[name] = value
    return values


def _messages(data: bytes, findings: Findings) -> Iterator[tuple[int, bytes]]:
    """Split a file into its messages, each with its offset; a cut-off end is noted."""
    at, end = 0, len(data)
    while at < end:
        try:
            length, start = schema.varint(data, at)
        except (IndexError, OverflowError):
            # A length that cannot be read ends the file, as one that leads beyond its end does.
            length, start = end - at + 1, at
        if start + length > end:
            finding = "the file ends inside a node, or a length is damaged: the rest is dropped"
            findings.add("truncated", finding, 1, f"byte {at:,} of {end:,}")
            return
        if length == 0 and at > 0:
            content = _NOT_NUL.search(data, at)
            stop = content.start() if content else end
            findings.add("dropped", "empty messages, or NUL padding", stop - at, f"byte {at:,}")
            at = stop
            continue
        yield at, data[start : start + length]
        at = start + length


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def exact(wanted: NodeRow, plain: NodeRow) -> bytes | None:
    """Return the attribute that turns ``plain``, as it would be read, into ``wanted``."""
    names = (*_TEXTS, *_NUMBERS, "is_cpu")
    values = {name: (getattr(wanted, name), getattr(plain, name)) for name in names}
    differing = {name: value for name, (value, read) in values.items() if value != read}
    return json.dumps(differing, separators=(",", ":")).encode() if differing else None


def restored(plain: NodeRow, attribute: object, findings: Findings) -> NodeRow:
    """Return a node as it was written; an attribute that makes no sense is dropped, counted."""
    if attribute is None:
        return plain
    try:
        stated = json.loads(attribute) if isinstance(attribute, bytes) else None
    except (ValueError, RecursionError):
        stated = None
    is_sound = isinstance(stated, dict) and all(map(_is_sound, stated, stated.values()))
    if not is_sound or not isinstance(stated, dict):
        findings.add("dropped", "exact times and types of nodes that cannot be read", 1)
        return plain
    texts = {n: clean_text(text, findings) for n, text in stated.items() if isinstance(text, str)}
    return plain._replace(**{**stated, **texts})


def _is_sound(name: object, value: object) -> bool:
    if name in _TEXTS:
        return isinstance(value, str) or (value is None and name != "type")
    if name == "is_cpu":
        return value is None or isinstance(value, bool)
    if name not in _NUMBERS:
        return False
    if value is None:
        return True
    is_number = type(value) is int and value.bit_length() <= _MOST_BITS
    return is_number and not (name in _COUNTS and value < 0)  # type: ignore[operator]
