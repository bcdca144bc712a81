"""PyTorch execution traces: which operator called which, and what they passed on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import RankArgument, rank_in_name
from workbench.load._files.stream import Stream
from workbench.load._traces.execution import nodes as nodes_of
from workbench.load._traces.execution.json_form import read_nodes
from workbench.load._traces.execution.ranks import find_rank, world
from workbench.load._traces.execution.tensor_edges import tensor_edges
from workbench.load._traces.graph import Group, RankGraph, load, read_all
from workbench.tables import Trace

_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d+\.\d+')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_KNOWN_SCHEMAS = re.compile(r"1\.(0\.[1-4]|1\.[01])(-chakra\.0\.0\.4)?")


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - one signature for all formats
    """Say whether a file that begins with ``head`` is a PyTorch execution trace."""
    return bool(_SCHEMA.search(head) and _NODES.search(head)) and b'"traceEvents"' not in head


def execution_trace(
    path: str | Path | Iterable[str | Path] | Iterable[Source], *, rank: RankArgument = None
) -> Trace:
    """Read PyTorch execution traces, one file per rank.

    An execution trace knows what called what and which tensors were passed on,
    but not when; ``record_function`` joins it to the profiler trace of the run.

    Parameters
    ----------
    path
        File, directory, archive or list of these; JSON of any schema from 1.0.1
        to 1.1.1-chakra.0.0.4, gzip is fine. Traces that Chakra's linker gave
        times and GPU work are read too.
    rank
        Ranks where the files do not tell them: one number for one file, a list in
        order of the files, or a dict from a part of the file name to the number.

    Returns
    -------
    Trace
        ``nodes`` and ``dependencies`` are filled, ``events`` is empty. The data
        dependencies are derived: a node needs the last writer of each tensor it
        reads. Callers are in ``nodes.parent``; they are no dependencies, since a
        caller ends last.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a file is no execution trace or damaged beyond repair (names the
        byte), two files are of one rank, or only some files tell theirs.

    Notes
    -----
    The rank is the argument, else the one by which the process called its
    collectives, else told by the file name, else counted in order of the files
    with a finding in ``quality``.

    References
    ----------
    pytorch/pytorch: torch/csrc/profiler/standalone/execution_trace_observer.cpp.
    """
    return load(path, _read, rank)


def _read(source: Source, stream: Stream) -> RankGraph:
    """Read one file."""
    findings = Findings(source.label)
    data = read_all(stream, findings)
    document, raw = read_nodes(data, "nodes", label=source.label, findings=findings)
    schema = str(document.get("schema", "unknown"))[:40]
    findings.add("read", f"schema {schema}")
    if not _KNOWN_SCHEMAS.fullmatch(schema):
        findings.add("suspicious", f"schema {schema} is not known; read like the newest known one")
    nodes = numbered(raw, findings)
    graph = read_document(source, nodes, findings)
    _add_edges(graph, nodes)
    return graph


def read_document(
    source: Source, nodes: list[tuple[int, dict[str, Any]]], findings: Findings
) -> RankGraph:
    """Make a graph without edges of numbered nodes.

    Raises
    ------
    LoadError
        If there are none.
    """
    if not nodes:
        msg = f"{source.label}: holds no readable node; is it an execution trace?"
        raise LoadError(msg)
    graph = RankGraph(source.label, "execution_trace", findings)
    graph.rows = [nodes_of.row(node, number, findings) for number, node in nodes]
    graph.name_rank = rank_in_name(source.label)
    _add_groups(graph, nodes)
    return graph


def numbered(raw: list[Any], findings: Findings) -> list[tuple[int, dict[str, Any]]]:
    """Return the nodes with their ids; what has none is left out and counted."""
    kept = []
    for position, node in enumerate(raw):
        number = to_integer(node.get("id")) if isinstance(node, dict) else None
        if number is None:
            findings.add("left out", "nodes without a usable id", 1, f"node {position} of the list")
        else:
            kept.append((number, node))
    return kept


def _add_edges(graph: RankGraph, nodes: list[tuple[int, dict[str, Any]]]) -> None:
    """Derive the data dependencies, and note callers that are missing."""
    callers = {row.node: row.parent for row in graph.rows}
    missing = [row for row in graph.rows if row.parent is not None and row.parent not in callers]
    for row in missing[:1]:
        where = f"node {row.node}"
        graph.findings.add("suspicious", "callers that the trace lacks", len(missing), where)
    sides = {
        side: {
            number: [use.tensor for use in nodes_of.tensors(nodes_of.values(node, side))]
            for number, node in nodes
        }
        for side in ("inputs", "outputs")
    }
    graph.data_edges = tensor_edges(sides["inputs"], sides["outputs"], callers)
    what = "data dependencies that are derived: on the last writer of each tensor read"
    graph.findings.add("noted", what, len(graph.data_edges))


def _add_groups(graph: RankGraph, nodes: list[tuple[int, dict[str, Any]]]) -> None:
    """Find the process groups, who calls them, and in the calls the rank."""
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
    graph.rows = [
        row._replace(group=by_address[row.node]) if row.node in by_address else row
        for row in graph.rows
    ]
    nameless = sum(row.type == "collective" and row.group is None for row in graph.rows)
    what = "collectives whose process group has no name, only an address"
    graph.findings.add("noted", what, nameless)
    if (everyone := world(graph.groups)) is not None:
        graph.world_size, graph.backend = everyone.size or None, everyone.backend
    graph.rank = find_rank(graph, calls.values(), addresses)
