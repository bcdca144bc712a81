"""PyTorch execution traces: which operator called which, and what they passed on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import (
    REPAIR_WINDOW,
    Damaged,
    FloatText,
    Incomplete,
    read_event,
    to_integer,
)
from workbench.load._files.rank_names import RankArgument
from workbench.load._files.stream import Stream
from workbench.load._traces.execution import nodes as nodes_of
from workbench.load._traces.execution.nodes import Call
from workbench.load._traces.graph import Group, RankGraph, load, read_all
from workbench.tables import Trace

_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d+\.\d+')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_KNOWN_SCHEMAS = re.compile(r"1\.(0\.[1-4]|1\.[01])(-chakra\.0\.0\.4)?")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    return bool(_SCHEMA.search(head) and _NODES.search(head)) and b'"traceEvents"' not in head


def execution_trace(
    path: str | Path | Iterable[str | Path] | Iterable[Source], *, rank: RankArgument = None
) -> Trace:
    """Read PyTorch execution traces, one file per rank, of any schema from 1.0.1 to 1.1.1.

    An execution trace knows what called what and which tensors were passed on, but not when;
    ``record_function`` joins it to the profiler trace of the run. Traces to which Chakra's linker
    added times and GPU work are read too.

    Notes
    -----
    A node needs the last writer of each tensor it reads. Callers are in ``nodes.parent``; they are
    no dependencies, since a caller ends last. The rank is the argument, else the one by which the
    process called its collectives, else that of the file name, else counted in order of the files
    with a finding in ``quality``.

    References
    ----------
    pytorch/pytorch: torch/csrc/profiler/standalone/execution_trace_observer.cpp.
    """
    return load(path, _read, rank)


def _read(source: Source, stream: Stream) -> RankGraph:
    findings = Findings(source.label)
    data = read_all(stream, findings)
    document, raw = read_nodes(data, "nodes", label=source.label, findings=findings)
    schema = str(document.get("schema", "unknown"))[:40]
    findings.add("read", f"schema {schema}")
    if not _KNOWN_SCHEMAS.fullmatch(schema):
        findings.add("suspicious", f"schema {schema} is not known; read like the newest known one")
    nodes = _numbered(raw, findings)
    if not nodes:
        msg = f"{source.label}: holds no readable node; is it an execution trace?"
        raise LoadError(msg)
    graph = RankGraph(source.label, "execution_trace", findings)
    graph.rows = [nodes_of.row(node, number, findings) for number, node in nodes]
    _add_groups(graph, nodes)
    _add_edges(graph, nodes)
    return graph


def _numbered(raw: list[Any], findings: Findings) -> list[tuple[int, dict[str, Any]]]:
    kept = []
    for position, node in enumerate(raw):
        number = to_integer(node.get("id")) if isinstance(node, dict) else None
        if number is None:
            findings.add("dropped", "nodes without a usable id", 1, f"node {position} of the list")
        else:
            kept.append((number, node))
    return kept


def _add_edges(graph: RankGraph, nodes: list[tuple[int, dict[str, Any]]]) -> None:
    callers = {row.node: row.parent for row in graph.rows}
    missing = [row for row in graph.rows if row.parent is not None and row.parent not in callers]
    for row in missing[:1]:
        where = f"node {row.node}"
        graph.findings.add("suspicious", "callers that the trace lacks", len(missing), where)
    sides = {}
    for side in ("inputs", "outputs"):
        uses = {number: nodes_of.tensors(nodes_of.values(node, side)) for number, node in nodes}
        sides[side] = {number: [use.tensor for use in listed] for number, listed in uses.items()}
    graph.data_edges = tensor_edges(sides["inputs"], sides["outputs"], callers)
    finding = "data dependencies that are derived: on the last writer of each tensor read"
    graph.findings.add("noted", finding, len(graph.data_edges))


def _add_groups(graph: RankGraph, nodes: list[tuple[int, dict[str, Any]]]) -> None:
    addresses: dict[int, Group] = {}
    for _, node in nodes:
        for group, address in nodes_of.described_groups(node, graph.findings):
            graph.groups.append(group)
            if address:
                addresses[address] = group
    calls = {number: call for number, node in nodes if (call := nodes_of.communication(node))}
    by_address = {
        number: addresses[call.address].name
        for number, call in calls.items()
        if call.group is None and call.address in addresses
    }
    graph.rows = [row._replace(group=by_address.get(row.node, row.group)) for row in graph.rows]
    nameless = sum(row.type == "collective" and row.group is None for row in graph.rows)
    finding = "collectives whose process group has no name, only an address"
    graph.findings.add("noted", finding, nameless)
    if (everyone := world(graph.groups)) is not None:
        graph.world_size, graph.backend = everyone.size or None, everyone.backend
    graph.stated_rank = find_rank(graph, calls.values(), addresses)


_GAP = re.compile(r"[\s,]*")
# An error this near to the end is there because the file is cut.
_AT_END_CHARACTERS = 16
_strict = json.JSONDecoder(parse_float=FloatText)
_lenient = json.JSONDecoder(parse_float=FloatText, strict=False)

Document = dict[str, Any]


def read_nodes(
    data: bytes, key: str, *, label: str, findings: Findings
) -> tuple[Document, list[Any]]:
    try:
        document = json.loads(data, parse_float=FloatText)
    except (ValueError, RecursionError):
        return _read_piecewise(data, key, label=label, findings=findings)
    nodes = document.pop(key, None) if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        shown = f"a {type(document).__name__}"
        if isinstance(document, dict):
            shown = f"{[str(name)[:40] for name in list(document)[:8]]}"
        msg = f"{label}: has no list {key!r} at its top level; found {shown}"
        raise LoadError(msg)
    return document, nodes


def objects(
    data: bytes, start: int, *, label: str, findings: Findings, is_closed: bool = True
) -> Iterator[Any]:
    """Yield the JSON values from byte ``start`` on, up to a closing bracket or the end.

    ``is_closed`` says whether a bracket is expected.
    """
    text = data[start:].decode("utf-8", "surrogateescape")
    at = 0
    while True:
        at = _GAP.match(text, at).end()  # type: ignore[union-attr] # it matches nothing, too
        if at >= len(text):
            finding = "the list of nodes is not closed"
            findings.add("truncated", finding, int(is_closed), f"byte {len(data):,}")
            return
        if text[at] == "]":
            return
        try:
            value, at = _decode(text, at, findings)
        except (ValueError, RecursionError) as error:
            if _is_cut(error, text):
                where = f"byte {start + _bytes(text[:at]):,}"
                findings.add("truncated", "the file ends inside a node, which is dropped", 1, where)
                return
            value, at = _mend(data, start, text, at, label=label, findings=findings)
        yield value


# Raw control characters in strings are let pass and counted: they are not ambiguous.
def _decode(text: str, at: int, findings: Findings) -> tuple[Any, int]:
    try:
        return _strict.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Invalid control character"):
            raise
        read = _lenient.raw_decode(text, at)
        findings.add("repaired", "raw control characters inside a string")
        return read


def _read_piecewise(
    data: bytes, key: str, *, label: str, findings: Findings
) -> tuple[Document, list[Any]]:
    opening = re.search(rb'"%s"\s*:\s*\[' % re.escape(key).encode(), data)
    if opening is None:
        msg = f"{label}: is not JSON with a list {key!r}{_first_error(data)}"
        raise LoadError(msg)
    header = _header(data[: opening.start()])
    before = len(findings.frame())
    nodes = list(objects(data, opening.end(), label=label, findings=findings))
    if len(findings.frame()) == before:
        finding = f"the text around the list {key!r} is damaged, the list is whole"
        findings.add("suspicious", finding + _first_error(data))
    return header, nodes


def _header(before: bytes) -> Document:
    text = before.decode("utf-8", "replace").rstrip().rstrip(",")
    try:
        header = _lenient.decode(text + "}")
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _mend(
    data: bytes, start: int, text: str, at: int, *, label: str, findings: Findings
) -> tuple[Any, int]:
    offset = start + _bytes(text[:at])
    try:
        read = read_event(data[offset : offset + 2 * REPAIR_WINDOW])
    except Damaged as damage:
        byte = offset + damage.offset
        msg = f"{label}, byte {byte:,}: {damage.reason}; fix the file or write it again"
        raise LoadError(msg) from damage
    except Incomplete as damage:
        msg = f"{label}, byte {offset:,}: a node that does not end; fix the file or write it again"
        raise LoadError(msg) from damage
    findings.add("repaired", read.repair or "damaged nodes", 1, f"byte {offset:,}")
    return read.event, at + len(data[offset : offset + read.end].decode("utf-8", "surrogateescape"))


def _is_cut(error: Exception, text: str) -> bool:
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated") or error.pos >= len(text) - _AT_END_CHARACTERS


def _first_error(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    try:
        _lenient.decode(text)
    except json.JSONDecodeError as error:
        return f" (byte {_bytes(text[: error.pos]):,}: {error.msg})"
    except (ValueError, RecursionError) as error:
        return f" ({error})"
    return ""


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


# Of the others (broadcast, reduce) the recorded rank may be that of the root.
_UNROOTED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_DEFAULT_NAMES = ("0", "default_pg")


def world(groups: Iterable[Group]) -> Group | None:
    """Return the group of all ranks: the default one, which lists no members."""
    unlisted = [group for group in groups if not group.members]
    return min(unlisted, key=lambda group: group.name not in _DEFAULT_NAMES, default=None)


def find_rank(
    graph: RankGraph, calls: Iterable[Call], addresses: Mapping[int, Group]
) -> int | None:
    """Return the global rank that the collectives state, None if they state none or several.

    ``addresses`` are process groups by their address in memory, by which schemas before 1.0.3 name
    them.
    """
    by_name = {group.name: group for group in graph.groups}
    ranks: set[int] = set()
    unlisted: set[tuple[int | None, int]] = set()
    for call in calls:
        if call.rank is None or call.rank < 0 or not call.collective.startswith(_UNROOTED):
            continue
        group = by_name.get(call.group or "") or addresses.get(call.address or 0)
        number = _global_rank(call, call.rank, group)
        if number is not None:
            ranks.add(number)
        elif group is None:
            unlisted.add((call.address, call.rank))
    if not ranks and len(unlisted) == 1:
        ranks = {unlisted.pop()[1]}
        finding = (
            "the only process group of the trace, whose members it does not list, has all ranks"
        )
        graph.findings.add("assumed", finding)
    if len(ranks) > 1:
        finding = f"collectives state different ranks: {sorted(ranks)[:8]}"
        graph.findings.add("suspicious", finding)
    return ranks.pop() if len(ranks) == 1 else None


def _global_rank(call: Call, rank: int, group: Group | None) -> int | None:
    if group is not None and group.members:
        return group.members[rank] if rank < len(group.members) else None
    if group is not None:
        return rank
    if call.first_rank is None or call.first_rank < 0 or not call.rank_stride:
        return None
    number = call.first_rank + rank * call.rank_stride
    return number if 0 <= number < 1 << 31 else None


# Deeper than any call stack worth following; keeps made-up traces from costing time.
_MOST_STEPS = 64


def tensor_edges(
    reads: Mapping[int, Sequence[int]],
    writes: Mapping[int, Sequence[int]],
    callers: Mapping[int, int | None],
) -> list[tuple[int, int]]:
    """Derive who needs whom from the tensors that nodes read and write, as ``(node, needs)``.

    A node needs the last node before it that wrote a tensor it reads. Callers of the node are no
    candidates (they end after it), and of nested calls that wrote the tensor one after the other
    the outermost counts. Node ids grow with time, as PyTorch counts.

    Tensors are known by their own id: a view of a tensor is another tensor, so writing to a tensor
    and reading its view gives no edge.
    """
    spans = _spans(callers)
    writers: dict[int, list[int]] = {}
    outputs = {node: set(tensors) for node, tensors in writes.items()}
    edges: list[tuple[int, int]] = []
    for node in sorted(callers):
        needed = set()
        for tensor in reads.get(node, ()):
            latest = writers.get(tensor, [])[: -_MOST_STEPS - 1 : -1]
            writer = next((w for w in latest if not _calls(w, node, spans)), None)
            if writer is not None:
                needed.add(_outermost(writer, node, tensor, callers, outputs, spans))
        edges.extend((node, needs) for needs in sorted(needed))
        for tensor in outputs.get(node, ()):
            writers.setdefault(tensor, []).append(node)
    return edges


# Of nested calls that wrote the tensor the outermost is the one that was waited for.
def _outermost(
    writer: int,
    node: int,
    tensor: int,
    callers: Mapping[int, int | None],
    outputs: Mapping[int, set[int]],
    spans: Mapping[int, tuple[int, int]],
) -> int:
    for _ in range(_MOST_STEPS):
        caller = callers.get(writer)
        if caller is None or caller >= writer or tensor not in outputs.get(caller, ()):
            break
        if _calls(caller, node, spans):
            break
        writer = caller
    return writer


def _calls(caller: int, node: int, spans: Mapping[int, tuple[int, int]]) -> bool:
    first, last = spans[caller]
    return first <= spans[node][0] <= last


# Nested-set numbering: a call contains another if it spans its number, so asking is O(1).
def _spans(callers: Mapping[int, int | None]) -> dict[int, tuple[int, int]]:
    callees: dict[int, list[int]] = {}
    roots = []
    for node, caller in callers.items():
        # A caller comes first; anything else is damage and would make circles.
        if caller is not None and caller < node and caller in callers:
            callees.setdefault(caller, []).append(node)
        else:
            roots.append(node)
    spans: dict[int, tuple[int, int]] = {}
    entered: dict[int, int] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            spans[node] = (entered[node], len(entered) - 1)
            continue
        entered[node] = len(entered)
        stack.append((node, True))
        stack.extend((callee, False) for callee in callees.get(node, ()))
    return spans
