"""Common form of execution traces: the nodes and edges of one rank, then a trace."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.load._files.archive import Source, Survey, streams, survey
from workbench.load._files.findings import Dropped, Finding, Findings, guarded, quality_frame
from workbench.load._files.json_events import to_ns
from workbench.load._files.rank_names import (
    NO_RANK_TOLD,
    RankArgument,
    Ranked,
    rank_in_name,
    ranked,
)
from workbench.load._files.stream import Stream
from workbench.load._files.text import tell_of_damage
from workbench.load._traces.selection import concat
from workbench.tables import (
    DEPENDENCIES,
    NODES,
    PROCESS_GROUPS,
    RANKS,
    Trace,
)

IntArray = npt.NDArray[np.int64]
Inputs = str | Path | Iterable[str | Path] | Iterable[Source]

_PLAIN_US = 1 << 52  # a shorter way for nearly all times
# What surrogateescape makes of bytes that are not UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")


class NodeRow(NamedTuple):
    """One row of table NODES without its rank."""

    node: int
    name: str
    type: str
    parent: int | None = None
    start_ns: int | None = None
    dur_ns: int | None = None
    record_function: int | None = None
    collective: str | None = None
    group: str | None = None
    size_bytes: int | None = None
    is_cpu: bool | None = None


class Group(NamedTuple):
    """A process group that a trace describes; ``members`` is empty if it does not list them."""

    name: str
    description: str | None
    backend: str | None
    size: int | None
    members: tuple[int, ...]


@dataclass
class RankGraph:
    """The execution trace of one rank, as one file has it."""

    label: str
    format: str
    findings: Findings
    rows: list[NodeRow] = field(default_factory=list)
    data_edges: list[tuple[int, int]] = field(default_factory=list)
    control_edges: list[tuple[int, int]] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    stated_rank: int | None = None
    world_size: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    backend: str | None = None

    @property
    def name_rank(self) -> int | None:
        return rank_in_name(self.label, is_chakra=self.format == "chakra")


def us_to_ns(value: object, findings: Findings, what: str) -> int | None:
    """Convert microseconds to ns, exactly; what is negative or no number counts as unreadable."""
    if value is None:
        return None
    is_plain = type(value) is int and 0 <= value < _PLAIN_US
    ns = value * 1000 if is_plain else to_ns(value)  # type: ignore[operator]
    if ns is not None and ns >= 0:
        return ns
    findings.add("dropped", f"{what}s that are negative or no time")
    return None


def clean_text(text: str, findings: Findings) -> str:
    if text.isascii() or not _SURROGATES.search(text):
        return text
    findings.add("repaired", "names with bytes that are not UTF-8, shown as \ufffd")
    return _SURROGATES.sub("\ufffd", text)


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the garbage collector off while many objects are built; it finds nothing there."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_all(stream: Stream, findings: Findings) -> bytes:
    data = stream.read()
    tell_of_damage(stream, findings)
    return data


def load(path: Inputs, read: Callable[[Source, Stream], RankGraph], rank: RankArgument) -> Trace:
    files = gather(path)
    dropped, graphs = Dropped(), []
    with without_collector():
        for source, stream in streams(files.sources, dropped):
            with dropped.trying(source.label):
                graphs.append(read(source, stream))
    if not graphs:
        dropped.raise_if_all()
    remarks = [*(remark.row for remark in files.remarks), *dropped.rows]
    with guarded(graphs[0].label):
        return assemble(graphs, remarks, rank)


def gather(path: Inputs) -> Survey:
    if isinstance(path, str | Path):
        return survey(path)
    entries = list(path)
    ready = [entry for entry in entries if isinstance(entry, Source)]
    if len(ready) == len(entries):
        return Survey(sources=ready)
    return survey([entry.path if isinstance(entry, Source) else entry for entry in entries])


def assemble(graphs: Sequence[RankGraph], remarks: Sequence[Finding], rank: RankArgument) -> Trace:
    entries = with_ranks(graphs, rank)
    nodes = [_nodes(entry) for entry in entries]
    edges = [_edges(entry) for entry in entries]
    rows = [row for entry in entries for row in entry.file.findings.rows()]
    return Trace.of(
        ranks=_ranks(entries), process_groups=_groups(entries), nodes=NODES.check(concat(nodes)),
        dependencies=DEPENDENCIES.check(concat(edges)), quality=quality_frame([*rows, *remarks]),
    )  # fmt: skip


def with_ranks(graphs: Sequence[RankGraph], wanted: RankArgument) -> list[Ranked[RankGraph]]:
    settled = ranked(graphs, wanted)
    for rank, source, graph in settled:
        if source == "assumed":
            graph.findings.add("assumed", NO_RANK_TOLD, 1, f"rank {rank}")
        elif source == "argument" and graph.stated_rank not in (None, rank):
            finding = f"rank {rank} was requested, but the trace says rank {graph.stated_rank}"
            graph.findings.add("suspicious", finding)
    return settled


def _nodes(entry: Ranked[RankGraph]) -> pd.DataFrame:
    rows = sorted(entry.file.rows, key=lambda row: row.node)
    entry.file.findings.add("read", "nodes", len(rows))
    columns = dict(zip(NodeRow._fields, zip(*rows, strict=True), strict=True))
    frame = pd.DataFrame(
        {name: _column(columns[name], NODES.columns[name].dtype) for name in NodeRow._fields}
    )
    frame.insert(0, "rank", np.full(len(frame), entry.rank, np.int32))
    return frame


# Categories in order of the alphabet, so that the same nodes give the same table.
def _column(values: Sequence[Any], dtype: str) -> Any:
    if dtype == "int64":
        return np.array(values, np.int64)
    if dtype != "category":
        return pd.Series(values, dtype=dtype).array
    texts = sorted({text for text in values if text is not None})
    codes = {text: code for code, text in enumerate(texts)}
    return pd.Categorical.from_codes(
        [-1 if text is None else codes[text] for text in values],
        categories=pd.Index(texts, dtype="str"),
    )


def _edges(entry: Ranked[RankGraph]) -> pd.DataFrame:
    graph = entry.file
    data = np.array(graph.data_edges, np.int64).reshape(-1, 2)
    control = np.array(graph.control_edges, np.int64).reshape(-1, 2)
    pairs = np.concatenate([data, control])
    kinds = pd.Categorical.from_codes(
        np.repeat([0, 1], [len(data), len(control)]),
        categories=pd.Index(["data", "control"], dtype="str"),
    )
    columns = {"rank": np.full(len(pairs), entry.rank, np.int32), "node": pairs[:, 0]}
    frame = pd.DataFrame({**columns, "needs": pairs[:, 1], "edge": kinds})
    nodes = np.array([row.node for row in graph.rows], np.int64)
    _note_edges(pairs, len(data), nodes, graph.findings)
    return frame.sort_values(["node", "needs"], kind="stable", ignore_index=True)


def _note_edges(pairs: IntArray, data_count: int, nodes: IntArray, findings: Findings) -> None:
    findings.add("read", "dependencies", len(pairs))
    ids, counts = np.unique(nodes, return_counts=True)
    for number in ids[counts > 1][:1]:
        count = int((counts - 1).sum())
        findings.add("suspicious", "node ids that occur again", count, f"node {number}")
    dangling = ~np.isin(pairs[:, 1], ids)
    if dangling.any():
        finding, where = "dependencies on nodes that the trace lacks", pairs[dangling.argmax(), 0]
        findings.add("suspicious", finding, int(dangling.sum()), f"node {where}")
    is_data = np.arange(len(pairs)) < data_count
    for kind, chosen in (("data", is_data), ("data and control", np.ones(len(pairs), np.bool_))):
        if stuck := on_cycles(pairs[~dangling & chosen]):
            finding = f"nodes on cycles of {kind} dependencies, or between them"
            findings.add("suspicious", finding, len(stuck), f"node {min(stuck)}")
            break


def on_cycles(pairs: IntArray) -> set[int]:
    """Return the nodes that remain when sources and sinks are taken off until none is left."""
    # A cycle has at least one edge that leads to a later node.
    if not (pairs[:, 1] >= pairs[:, 0]).any():
        return set()  # every node needs only earlier ones
    ids, numbered = np.unique(pairs, return_inverse=True)
    numbered = numbered.reshape(pairs.shape)
    left = _never_ready(numbered[:, 0], numbered[:, 1], len(ids))
    if left:
        left &= _never_ready(numbered[:, 1], numbered[:, 0], len(ids))
    return {int(ids[number]) for number in left}


# Kahn's algorithm: what is left when no node is ready any more waits for itself.
def _never_ready(node: IntArray, needs: IntArray, count: int) -> set[int]:
    waiting = np.bincount(node, minlength=count).tolist()
    by_needs = np.argsort(needs, kind="stable")
    users = node[by_needs].tolist()
    first = np.searchsorted(needs[by_needs], np.arange(count + 1)).tolist()
    ready = [number for number, left in enumerate(waiting) if left == 0]
    while ready:
        done = ready.pop()
        for user in users[first[done] : first[done + 1]]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    return {number for number, left in enumerate(waiting) if left}


def _ranks(entries: Sequence[Ranked[RankGraph]]) -> pd.DataFrame:
    rows = []
    for rank, source, graph in entries:
        stated = (graph.world_size, graph.backend, graph.label, graph.format)
        # Execution traces know no times, and have no events.
        rows.append((rank, source, *stated, "own", None, None, 0, None))
    return RANKS.check(RANKS.cast(pd.DataFrame(rows, columns=list(RANKS.columns))))


def _groups(entries: Sequence[Ranked[RankGraph]]) -> pd.DataFrame:
    rows = [
        (entry.rank, g.name, g.description, g.backend, g.size, ",".join(map(str, g.members)))
        for entry in entries
        for g in entry.file.groups
    ]
    if not rows:
        return PROCESS_GROUPS.empty()
    frame = pd.DataFrame(rows, columns=list(PROCESS_GROUPS.columns))
    return PROCESS_GROUPS.check(PROCESS_GROUPS.cast(frame))
