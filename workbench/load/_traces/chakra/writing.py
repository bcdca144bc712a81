"""Writing execution graphs as Chakra execution traces, for simulators and replay tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench._shared.writing import write_whole
from workbench.errors import LoadError
from workbench.load._files.findings import Findings, listed
from workbench.load._traces.chakra import protobuf_form, schema
from workbench.load._traces.graph import NodeRow, on_cycles
from workbench.tables import DEPENDENCIES, NODES, PROCESS_GROUPS, Trace

_VERSION = b"0.0.4"
_LISTED = 8


class ChakraFiles(list[Path]):
    """The files that were written, by rank, and what simulators will not see in them."""

    def __init__(self, files: Iterable[Path], findings: Findings, groups: Path | None) -> None:
        super().__init__(files)
        self._rows = findings.rows()
        self.quality = findings.frame()
        """Table :data:`workbench.tables.QUALITY`: nodes written otherwise than recorded."""
        self.groups = groups
        """File with the process groups; None without collectives in groups."""

    def __repr__(self) -> str:
        return super().__repr__() + listed(self._rows)


def write_chakra(
    graph: Trace | tuple[pd.DataFrame, pd.DataFrame],
    path: str | Path,
    *,
    allow_stuck: bool = False,
    process_groups: pd.DataFrame | None = None,
) -> ChakraFiles:
    """Write execution graphs as Chakra execution traces, one file per rank.

    Chakra's feeder, converters and visualiser read the files, and so does :func:`traces`, which
    gives back the same rows.

    Parameters
    ----------
    graph
        A loaded trace with ``nodes`` and ``dependencies``, or those two: tables
        :data:`workbench.tables.NODES` and :data:`workbench.tables.DEPENDENCIES`.
    path
        Folder and name of the files without rank: ``"run/job"`` makes ``run/job.0.et``,
        ``run/job.1.et``, ... A file appears complete or not at all.
    allow_stuck
        Write graphs too that no reader can work off, since a node needs itself or one that is not
        there; they are refused by default.
    process_groups
        Table :data:`workbench.tables.PROCESS_GROUPS`, that of a loaded trace by default. The
        members of a group that it does not list are the ranks with collectives of that group.

    Returns
    -------
    list of pathlib.Path
        The files, by rank. Its ``quality`` counts what is written otherwise than recorded, and what
        keeps simulators waiting; its ``groups`` is the file ``job.comm_groups.json`` beside them,
        ASTRA-sim's ``--comm-group-configuration``.

    Raises
    ------
    TableError
        If a frame does not fit its table.
    LoadError
        If there is no node, an id is used twice or negative, or nodes can never start.

    Notes
    -----
    ``GlobalMetadata`` and then one ``Node`` after the other, each behind its length. Node types of
    PyTorch become ``COMP_NODE``, calls of the communication library ``COMM_COLL_NODE``, with the
    bytes that one rank puts in. Sends and receives in a group of two ranks become
    ``COMM_SEND_NODE`` and ``COMM_RECV_NODE`` with ranks and tag, if both sides list the same sizes
    in the same order. Simulators stop at collectives without a size or of a kind that they do not
    model (reduce, gather, scatter, barrier), and at sends and receives without a partner: these
    become ``COMP_NODE`` of their measured time. Process groups have a number above
    0: names that are such a number stay, others get one. Times are rounded to microseconds. What
    the schema cannot hold (nanoseconds, callers, a recorded 0, names of groups) is in the attribute
    ``workbench_row``. Callers are not written as control edges, as other converters do: a caller
    ends last.

    ASTRA-sim gives each rank one CPU and one stream of computation: traces of several busy threads
    or streams take longer there than they did.

    References
    ----------
    mlcommons/chakra: schema/protobuf/et_def.proto, src/feeder/et_feeder.cpp; astra-sim:
    astra-sim/workload/Workload.cc; Chakra, arXiv 2305.14516.
    """
    if process_groups is not None:
        described = PROCESS_GROUPS.check(process_groups, "process_groups")
    else:
        described = graph.process_groups if isinstance(graph, Trace) else PROCESS_GROUPS.empty()
    tables = (graph.nodes, graph.dependencies) if isinstance(graph, Trace) else graph
    nodes, dependencies = NODES.check(tables[0], "nodes"), DEPENDENCIES.check(tables[1])
    if nodes.empty:
        msg = "there are no nodes to write; load an execution trace"
        raise LoadError(msg)
    stem = Path(path).with_suffix("") if Path(path).suffix == ".et" else Path(path)
    nodes_of = {rank: nodes[nodes["rank"] == rank] for rank in sorted(set(nodes["rank"]))}
    needed = {rank: dependencies[dependencies["rank"] == rank] for rank in nodes_of}
    for rank, of_rank in nodes_of.items():
        _refuse(rank, of_rank, needed[rank], allow_stuck=allow_stuck)
    findings = Findings(stem.name)
    talking = nodes[nodes["type"].isin(COMMUNICATION)]
    rows_of = {rank: list(_rows(talking[talking["rank"] == rank])) for rank in nodes_of}
    messages_of = messages_between(rows_of, described)
    groups = groups_of(calls(rows_of, messages_of, findings), described, findings)
    written = []
    for rank, of_rank in nodes_of.items():
        numbers = {name: number for (of, name), number in groups.number.items() if of == rank}
        nodes_as = _messages(of_rank, needed[rank], numbers, messages_of.get(rank, {}))
        all_messages = (_header(described[described["rank"] == rank], graph), *nodes_as)
        content = b"".join(_varint(len(message)) + message for message in all_messages)
        written.append(stem.parent / f"{stem.name}.{rank}.et")
        write_whole(written[-1], lambda opened, content=content: opened.write(content))
    if not groups.members:
        return ChakraFiles(written, findings, None)
    file = stem.parent / f"{stem.name}.comm_groups.json"
    members = {str(number): list(ranks) for number, ranks in sorted(groups.members.items())}
    write_whole(file, lambda opened: opened.write(json.dumps(members).encode()))
    return ChakraFiles(written, findings, file)


def _refuse(rank: int, nodes: pd.DataFrame, edges: pd.DataFrame, *, allow_stuck: bool) -> None:
    ids = nodes["node"]
    if (ids < 0).any() or ids.duplicated().any():
        wrong = ids[(ids < 0) | ids.duplicated()]
        msg = (
            f"rank {rank}: ids of nodes must be unique and not negative, {_some(wrong)} "
            "are not; renumber the nodes, and the dependencies with them"
        )
        raise LoadError(msg)
    unknown = edges.loc[~edges["node"].isin(ids), "node"]
    if len(unknown):
        why = f"{len(unknown):,} dependencies are of nodes that are not there"
        msg = f"rank {rank}: {why}: {_some(unknown)}"
        raise LoadError(msg)
    if allow_stuck:
        return
    dangling = edges.loc[~edges["needs"].isin(ids), "needs"]
    stuck = pd.Series(sorted(on_cycles(edges[["node", "needs"]].to_numpy(np.int64))))
    if len(dangling) or len(stuck):
        missing, cyclic = (f" ({_some(rows)})" if len(rows) else "" for rows in (dangling, stuck))
        msg = (
            f"rank {rank} can never finish: {len(dangling):,} dependencies are on nodes "
            f"that are not there{missing}, and {len(stuck):,} nodes are on cycles or between "
            f"them{cyclic}. Fix or leave out these edges, or pass allow_stuck=True to write them "
            "as they are"
        )
        raise LoadError(msg)


def _some(ids: pd.Series) -> str:
    different = sorted(set(ids.tolist()))
    dots = ", ..." if len(different) > _LISTED else ""
    return ", ".join(map(str, different[:_LISTED])) + dots


# Process groups as PyTorch writes them.
def _header(groups: pd.DataFrame, graph: object) -> bytes:
    metadata = _message(1, _VERSION)
    metadata += _message(2, _message(1, b"schema") + _message(29, b"workbench"))
    noted = set(graph.quality["what"]) if isinstance(graph, Trace) else set()
    for mark, words in protobuf_form.ORIGINS.items():
        metadata += _message(2, _message(1, mark) + _message(29, b"yes")) if words in noted else b""
    if len(groups):
        described = [
            {"pg_name": row.group, "pg_desc": _given(row.description),
             "backend_config": _given(row.backend), "group_size": _given(row.group_size),
             "ranks": [int(member) for member in str(row.members).split(",") if member]}
            for row in groups.itertuples()
        ]  # fmt: skip
        texts = _message(1, b"process_groups") + _message(29, json.dumps(described).encode())
        metadata += _message(2, texts)
    return metadata


def _rows(nodes: pd.DataFrame) -> Iterator[NodeRow]:
    columns = {name: [_given(v) for v in nodes[name].astype(object)] for name in NodeRow._fields}
    return (NodeRow(*values) for values in zip(*columns.values(), strict=True))


def _messages(
    nodes: pd.DataFrame,
    edges: pd.DataFrame,
    groups: Mapping[str, int],
    messages: Mapping[int, Message],
) -> Iterator[bytes]:
    needed: dict[tuple[str, int], list[int]] = {}
    columns = (edges[name].tolist() for name in ("edge", "node", "needs"))
    for edge, node, needs in zip(*columns, strict=True):
        needed.setdefault((edge, node), []).append(needs)
    for row in _rows(nodes):
        yield _node(row, needed, groups, messages.get(row.node))


def _node(
    row: NodeRow,
    needed: Mapping[tuple[str, int], list[int]],
    groups: Mapping[str, int],
    between: Message | None,
) -> bytes:
    make = schema.NOW.node_class()
    message = make(id=row.node, name=str(row.name).encode("utf-8", "replace"))
    kind = kind_of(row, between)
    is_collective, is_talk = kind.type == COLLECTIVE, kind.type in COMMUNICATION
    message.type = schema.NOW.types.index(kind.type)
    message.data_deps.extend(needed.get(("data", row.node), ()))
    message.ctrl_deps.extend(needed.get(("control", row.node), ()))
    message.start_us = max((row.start_ns or 0) // 1000, 0)
    message.duration_us = ((row.dur_ns or 0) + 500) // 1000
    plain = row._replace(
        type=kind.type,
        parent=None,
        start_ns=message.start_us * 1000 or None,
        dur_ns=message.duration_us * 1000 or None,
        record_function=row.record_function or None,
        collective=schema.NOW.collective_name(kind.collective) if is_collective else None,
        group=str(groups[row.group]) if is_collective and row.group is not None else None,
        size_bytes=None if kind.reason else row.size_bytes,
        # Feeders refuse nodes without that attribute, and communication of the CPU.
        is_cpu=not is_talk and row.is_cpu is not False,
    )
    stated = {
        "comm_type": ("int64_val", kind.collective),
        # Chakra's feeder wants these two in fields of their own.
        "comm_size": ("int64_val", plain.size_bytes if is_talk else None),
        "tensor_size": ("uint64_val", None if is_talk else plain.size_bytes),
        "pg_name": ("string_val", plain.group and plain.group.encode()),
        "rf_id": ("int64_val", row.record_function),
        "is_cpu_op": ("bool_val", plain.is_cpu),
        **({} if between is None else between.attributes()),
    }
    for name, (field, value) in stated.items():
        if value is not None:
            message.attributes.add(name=name.encode(), **{field: value})
    if (more := protobuf_form.exact(row, plain)) is not None:
        message.attributes.add(name=protobuf_form.ATTRIBUTE, string_val=more)
    encoded: bytes = message.SerializeToString()
    return encoded


def _given(value: Any) -> Any:
    if value is None or value is pd.NA or value != value:
        return None
    return value.item() if isinstance(value, np.generic) else value


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


# What a simulator needs of a Chakra file: collectives that it can play, and their groups.
# ASTRA-sim stops, with exit code 0, at a collective without size or of a kind that it does not
# model, at a send without its partner, and at communication that is marked as work of the CPU.
# Such nodes are written as compute of their measured time, and counted.

COLLECTIVE, COMPUTE = "COMM_COLL_NODE", "COMP_NODE"
COMMUNICATION = ("collective", COLLECTIVE, "COMM_SEND_NODE", "COMM_RECV_NODE")
# Collectives that the schema knows under another name.
_SAME_AS = {"all_to_allv": "all_to_all", "all_gatherv": "all_gather"}
_MODELLED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_AS_COMPUTE = "written as compute of their measured time, as simulators need it: "
_MOST_GROUP_NUMBER = (1 << 31) - 1

Calls = dict[tuple[int, str | None], list[tuple[str, int]]]


class Message(NamedTuple):
    """A send or receive whose partner is known; messages between two ranks are counted."""

    source: int
    target: int
    tag: int

    def attributes(self) -> dict[str, tuple[str, int]]:
        """Return what Chakra's feeder asks of a message, and in which field."""
        names = ("comm_src", "comm_dst", "comm_tag")
        return {name: ("int32_val", value) for name, value in zip(names, self, strict=True)}


class Kind(NamedTuple):
    """Node type and number of the collective in the schema; why it is not a collective there."""

    type: str
    collective: int | None = None
    reason: str | None = None


class Groups(NamedTuple):
    """Process groups as simulators number them, from 1."""

    number: Mapping[tuple[int, str], int]  # by rank and recorded name
    members: Mapping[int, Sequence[int]]  # ranks, by number of the group


def _direction(row: NodeRow) -> str:
    """Return the node type of a send or receive; empty for everything else."""
    of_name = {"send": "COMM_SEND_NODE", "recv": "COMM_RECV_NODE", "receive": "COMM_RECV_NODE"}
    return row.type if row.type in COMMUNICATION[2:] else of_name.get(row.collective or "", "")


def messages_between(
    ranks: Mapping[int, Sequence[NodeRow]], described: pd.DataFrame
) -> dict[int, dict[int, Message]]:
    """Return the messages of each rank by node: those whose two sides agree in number and sizes.

    The partner is the other member of a group of two.
    """
    partner = {
        (row.rank, row.group): set(map(int, str(row.members).split(","))) - {row.rank}
        for row in described.itertuples()
        if str(row.members).count(",") == 1
    }
    sides: dict[tuple[int, int], dict[int, list[tuple[int, int | None]]]] = {}
    for rank, rows in ranks.items():
        for row in sorted(rows, key=lambda row: (row.start_ns or 0, row.node)):
            others = partner.get((rank, row.group or ""), set())
            if (direction := _direction(row)) and len(others) == 1:
                ends = (rank, *others) if direction == "COMM_SEND_NODE" else (*others, rank)
                of_rank = sides.setdefault((ends[0], ends[1]), {}).setdefault(rank, [])
                of_rank.append((row.node, row.size_bytes))
    messages: dict[int, dict[int, Message]] = {}
    for ends, of_ranks in sides.items():
        sent, received = ([size for _, size in of_ranks.get(rank, [])] for rank in ends)
        # A message that one side lacks would keep a simulator waiting forever.
        if sent == received and all(sent):
            for rank, listed in of_ranks.items():
                numbered = {node: Message(*ends, tag) for tag, (node, _) in enumerate(listed)}
                messages.setdefault(rank, {}).update(numbered)
    return messages


def kind_of(row: NodeRow, between: Message | None = None) -> Kind:
    """Tell what a node becomes in a file that is to be simulated."""
    if row.type not in COMMUNICATION:
        return Kind(row.type if row.type in schema.NOW.types else COMPUTE)
    if direction := _direction(row):
        if between is not None:
            return Kind(direction)
        return Kind(COMPUTE, reason="sends and receives, whose partner is not in the tables")
    name = _SAME_AS.get(row.collective or "", row.collective or "")
    if name not in _MODELLED:
        return Kind(COMPUTE, reason="collectives of a kind that simulators do not model")
    if not row.size_bytes:
        return Kind(COMPUTE, reason="collectives whose size was not recorded")
    return Kind(COLLECTIVE, schema.NOW.collectives.index(name))


def calls(
    ranks: Mapping[int, Sequence[NodeRow]],
    messages: Mapping[int, Mapping[int, Message]],
    findings: Findings,
) -> Calls:
    """List the collectives of each rank and group as they began; note what is not a collective."""
    listed: Calls = {}
    for rank, nodes in ranks.items():
        # Ranks must list the collectives of a group in the same order, or simulators wait forever.
        for row in sorted(nodes, key=lambda row: (row.start_ns or 0, row.node)):
            kind = kind_of(row, messages.get(rank, {}).get(row.node))
            if kind.reason:
                finding, where = _AS_COMPUTE + kind.reason, f"rank {rank} node {row.node}"
                findings.add("repaired", finding, 1, where)
            elif kind.type == COLLECTIVE:
                call = (schema.NOW.collectives[kind.collective or 0], row.size_bytes or 0)
                listed.setdefault((rank, row.group), []).append(call)
    return listed


def groups_of(listed: Calls, described: pd.DataFrame, findings: Findings) -> Groups:
    """Enumerate the groups of the collectives; note what keeps a simulator from playing them."""
    ranks = {rank for rank, _ in listed}
    members = _members(listed, described, findings)
    # Names that are numbers first, so that they can keep their own.
    distinct = sorted(
        {(name, who) for (_, name), who in members.items()},
        key=lambda group: (_as_number(group[0]) == 0, _as_number(group[0]), *group),
    )
    numbers = _numbers([name for name, _ in distinct])
    by_group = dict(zip(distinct, numbers, strict=True))
    number = {(rank, name): by_group[name, who] for (rank, name), who in members.items()}
    for (name, who), chosen in by_group.items():
        if absent := sorted(set(who) - ranks):
            finding = "process groups with ranks whose collectives are not here; simulators wait"
            findings.add("suspicious", finding, 1, f"group {name}: rank {absent[0]}")
        keys = [key for key, group in number.items() if group == chosen]
        _note_difference([listed[key] for key in keys], f"group {name}", findings)
    alone = [collectives for (_, name), collectives in listed.items() if name is None]
    _note_difference(alone, "collectives without group", findings)
    return Groups(number, {by_group[key]: key[1] for key in distinct})


def _members(
    listed: Calls, described: pd.DataFrame, findings: Findings
) -> dict[tuple[int, str], tuple[int, ...]]:
    """Return the members of each group: those recorded, else the ranks that use its name."""
    rows = described[["rank", "group", "members"]].itertuples(index=False, name=None)
    recorded = {
        (rank, name): tuple(sorted({int(text) for text in str(members).split(",") if text.strip()}))
        for rank, name, members in rows
    }
    members_of = {}
    for rank, name in listed:
        if name is None:
            continue
        members = recorded.get((rank, name), ())
        if not members:
            members = tuple(sorted(r for r, n in listed if n == name and not recorded.get((r, n))))
            finding = "members of process groups: the ranks that use the name"
            findings.add("assumed", finding, 1, f"rank {rank} group {name}")
        members_of[rank, name] = members
    return members_of


def _as_number(name: str) -> int:
    plain = name.isascii() and name.isdecimal() and len(name) <= len(str(_MOST_GROUP_NUMBER))
    number = int(name) if plain else 0
    return number if number <= _MOST_GROUP_NUMBER else 0


# 0 means all ranks to a simulator, so numbers begin at 1; names that are numbers keep theirs.
def _numbers(names: Sequence[str]) -> list[int]:
    numbers: list[int] = []
    wanted = {_as_number(name) for name in names}
    free = (number for number in count(1) if number not in wanted)
    for name in names:
        number = _as_number(name)
        numbers.append(next(free) if number == 0 or number in numbers else number)
    return numbers


def _note_difference(
    lists: Sequence[Sequence[tuple[str, int]]], where: str, findings: Findings
) -> None:
    finding = "groups whose ranks do not have the same collectives and sizes in the same order"
    findings.add("suspicious", finding, int(any(calls != lists[0] for calls in lists[1:])), where)
