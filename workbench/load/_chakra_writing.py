"""Writing execution graphs as Chakra execution traces, for simulators and replay tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load import _chakra_rows as rows
from workbench.load import _chakra_schema as schema
from workbench.load._graph import NodeRow, on_cycles
from workbench.load.parquet import write_whole
from workbench.tables import DEPENDENCIES, NODES, PROCESS_GROUPS, Trace

_VERSION = b"0.0.4"
_COLLECTIVE, _SEND, _RECEIVE, _COMPUTE = (
    "COMM_COLL_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "COMP_NODE",
)  # fmt: skip
# Collectives that the schema knows under another name, or not as a collective.
_SAME_AS = {"all_to_allv": "all_to_all", "all_gatherv": "all_gather"}
_POINT_TO_POINT = {"send": _SEND, "recv": _RECEIVE, "receive": _RECEIVE}
_LISTED = 8


class _Edges(NamedTuple):
    """What the nodes of one rank need, by node."""

    data: Mapping[int, Sequence[int]]
    control: Mapping[int, Sequence[int]]


def write_chakra(
    graph: Trace | tuple[pd.DataFrame, pd.DataFrame],
    path: str | Path,
    *,
    allow_stuck: bool = False,
) -> list[Path]:
    """Write execution graphs as Chakra execution traces, one file per rank.

    Chakra's feeder, converters and visualiser read the files, and so does
    :func:`traces`, which gives back the same rows.

    Parameters
    ----------
    graph
        A loaded trace with ``nodes`` and ``dependencies``, or those two: tables
        :data:`workbench.tables.NODES` and :data:`workbench.tables.DEPENDENCIES`.
    path
        Folder and name of the files without rank: ``"run/job"`` makes ``run/job.0.et``,
        ``run/job.1.et``, ... A file appears complete or not at all.
    allow_stuck
        Write graphs too that no reader can work off, since a node needs itself or one
        that is not there; they are refused by default.

    Returns
    -------
    list of pathlib.Path
        The files, by rank.

    Raises
    ------
    TableError
        If a frame does not fit its table.
    LoadError
        If there is no node, an id is used twice or negative, or nodes can never start.

    Notes
    -----
    ``GlobalMetadata`` and then one ``Node`` after the other, each behind its length. Node
    types of PyTorch become ``COMP_NODE``, calls of the communication library
    ``COMM_COLL_NODE``, ``COMM_SEND_NODE`` or ``COMM_RECV_NODE``; a collective that the
    schema does not know becomes ``COMP_NODE``, for it cannot be simulated. Times are
    rounded to microseconds. What the schema cannot hold (nanoseconds, callers, a recorded
    0) is in the attribute ``workbench_row``. Callers are not written as control edges, as
    other converters do: a caller ends last.

    References
    ----------
    mlcommons/chakra: schema/protobuf/et_def.proto, src/feeder/et_feeder.cpp; Chakra,
    arXiv 2305.14516.
    """
    groups = graph.process_groups if isinstance(graph, Trace) else PROCESS_GROUPS.empty()
    both = (graph.nodes, graph.dependencies) if isinstance(graph, Trace) else graph
    nodes, dependencies = NODES.check(both[0], "nodes"), DEPENDENCIES.check(both[1], "dependencies")
    if nodes.empty:
        msg = "there are no nodes to write; load an execution trace, or use analyze.chakra_nodes"
        raise LoadError(msg)
    stem = Path(path)
    stem = stem.with_suffix("") if stem.suffix == ".et" else stem
    ranks: list[int] = sorted(nodes["rank"].unique().tolist())
    parts = {rank: nodes[nodes["rank"] == rank] for rank in ranks}
    needed = {rank: dependencies[dependencies["rank"] == rank] for rank in ranks}
    for rank in ranks:
        _refuse(rank, parts[rank], needed[rank], allow_stuck=allow_stuck)
    written = []
    for rank in ranks:
        header = _header(groups[groups["rank"] == rank])
        messages = [header, *_messages(parts[rank], needed[rank])]
        content = b"".join(_varint(len(message)) + message for message in messages)
        file = stem.parent / f"{stem.name}.{rank}.et"
        write_whole(file, lambda opened, content=content: opened.write(content))
        written.append(file)
    return written


def _refuse(rank: int, nodes: pd.DataFrame, edges: pd.DataFrame, *, allow_stuck: bool) -> None:
    """Raise if no reader of Chakra could work off these nodes."""
    ids = nodes["node"]
    if (ids < 0).any() or ids.duplicated().any():
        wrong = ids[(ids < 0) | ids.duplicated()]
        msg = (
            f"rank {rank}: ids of nodes must be unique and not negative, {_some(wrong)} "
            "are not; number the nodes anew, and the dependencies with them"
        )
        raise LoadError(msg)
    is_unknown = ~edges["node"].isin(ids)
    if is_unknown.any():
        msg = (
            f"rank {rank}: {int(is_unknown.sum()):,} dependencies are of nodes that are not "
            f"there: {_some(edges['node'][is_unknown])}"
        )
        raise LoadError(msg)
    if allow_stuck:
        return
    dangling = edges[~edges["needs"].isin(ids)]
    stuck = sorted(on_cycles(edges[["node", "needs"]].to_numpy(np.int64)))
    if len(dangling) or stuck:
        why = f"{len(dangling):,} dependencies are on nodes that are not there"
        why += f" ({_some(dangling['needs'])})" if len(dangling) else ""
        why += f", and {len(stuck):,} nodes are on cycles or between them"
        why += f" ({_some(pd.Series(stuck))})" if stuck else ""
        msg = (
            f"rank {rank} can never be worked off: {why}. Mend or leave out these edges, or "
            "pass allow_stuck=True to write them as they are"
        )
        raise LoadError(msg)


def _some(ids: pd.Series) -> str:
    different = sorted(set(ids.tolist()))
    dots = ", ..." if len(different) > _LISTED else ""
    return ", ".join(map(str, different[:_LISTED])) + dots


def _header(groups: pd.DataFrame) -> bytes:
    """Describe the file: its schema, and the process groups as PyTorch writes them."""
    metadata = _message(1, _VERSION)
    metadata += _message(2, _message(1, b"schema") + _message(29, b"workbench"))
    if len(groups):
        described = [
            {
                "pg_name": row.group,
                "pg_desc": _given(row.description),
                "backend_config": _given(row.backend),
                "ranks": [int(member) for member in str(row.members).split(",") if member],
                "group_size": _given(row.group_size),
            }
            for row in groups.itertuples()
        ]
        texts = _message(1, b"process_groups") + _message(29, json.dumps(described).encode())
        metadata += _message(2, texts)
    return metadata


def _messages(nodes: pd.DataFrame, edges: pd.DataFrame) -> Iterator[bytes]:
    """Give the nodes of one rank as protobuf messages."""
    kinds = {}
    for kind in ("data", "control"):
        chosen = edges[edges["edge"].astype(str) == kind]
        grouped = chosen.groupby("node", sort=False)["needs"]
        kinds[kind] = {int(str(node)): needs.tolist() for node, needs in grouped}
    needed = _Edges(**kinds)
    columns = {name: [_given(v) for v in nodes[name].astype(object)] for name in NodeRow._fields}
    for values in zip(*columns.values(), strict=True):
        yield _node(NodeRow(*values), needed)


def _node(row: NodeRow, needed: _Edges) -> bytes:
    """Make the message of one node."""
    make = schema.NOW.decoder()
    message = make(id=row.node, name=_bytes(row.name))
    kind, collective = _kind(row)
    message.type = schema.NOW.types.index(kind)
    message.data_deps.extend(needed.data.get(row.node, ()))
    message.ctrl_deps.extend(needed.control.get(row.node, ()))
    message.start_us = max((row.start_ns or 0) // 1000, 0)
    message.duration_us = ((row.dur_ns or 0) + 500) // 1000
    stated = {
        "comm_type": ("int64_val", collective),
        # Chakra's feeder wants these two in fields of their own.
        "comm_size": ("int64_val", row.size_bytes if kind != _COMPUTE else None),
        "tensor_size": ("uint64_val", row.size_bytes if kind == _COMPUTE else None),
        "pg_name": ("string_val", None if row.group is None else _bytes(row.group)),
        "rf_id": ("int64_val", row.record_function),
        "is_cpu_op": ("bool_val", row.is_cpu),
    }
    for name, (field, value) in stated.items():
        if value is not None:
            message.attributes.add(name=name.encode(), **{field: value})
    plain = row._replace(
        type=kind,
        parent=None,
        start_ns=message.start_us * 1000 or None,
        dur_ns=message.duration_us * 1000 or None,
        record_function=row.record_function or None,
        collective=schema.NOW.collective_name(collective) if kind == _COLLECTIVE else None,
    )
    if (more := rows.exact(row, plain)) is not None:
        message.attributes.add(name=rows.ATTRIBUTE, string_val=more)
    encoded: bytes = message.SerializeToString()
    return encoded


def _kind(row: NodeRow) -> tuple[str, int | None]:
    """Return node type and collective number as the schema has them."""
    wants_communication = row.type in ("collective", _COLLECTIVE)
    if not wants_communication:
        return (row.type if row.type in schema.NOW.types else _COMPUTE), None
    name = row.collective or ""
    if name in _POINT_TO_POINT:
        return _POINT_TO_POINT[name], None
    name = _SAME_AS.get(name, name)
    if name in schema.NOW.collectives:
        return _COLLECTIVE, schema.NOW.collectives.index(name)
    return (_COLLECTIVE if row.type == _COLLECTIVE else _COMPUTE), None


def _given(value: Any) -> Any:
    """Return a plain value, None for what is missing."""
    if value is None or value is pd.NA or value != value:
        return None
    return value.item() if isinstance(value, np.generic) else value


def _bytes(text: str) -> bytes:
    return str(text).encode("utf-8", "replace")


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])
