"""Execution graphs of points as graphs of tasks."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, Ints, checked
from workbench.tables import EDGE_KINDS, POINT_KINDS, TASK_EDGES, TASKS, ExecutionGraph, TaskGraph

_LANES = tuple(EDGE_KINDS.index(kind) for kind in ("GPU work", "CPU", "gap", "call"))
_WORK, _CPU = _LANES[:2]
_READY = POINT_KINDS.index("collective ready")


def graph_tasks(events: pd.DataFrame, graph: ExecutionGraph) -> TaskGraph:
    """Turn a graph of points in time into tasks and what each waits for.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`execution_graph`.

    Returns
    -------
    TaskGraph
        ``tasks`` (:data:`workbench.tables.TASKS`): GPU work, and the segments of a thread between
        two moments that something depends on; ``edges`` (:data:`workbench.tables.TASK_EDGES`).
        :func:`chakra_nodes` makes an execution trace of them.

    Notes
    -----
    An edge from point u to point v becomes one from the task that ends at u to the one that
    begins at v; its own time (a launch latency, a gap between kernels) becomes a task where it
    is longer than 0, since tasks alone have times. In a graph with matched collectives, each of
    them is also a task without time, ``collective ready``, that waits for all its ranks.
    """
    checked(events, "rank", "name", "category", "stream", "thread")
    kind = graph.edge_kind
    on_lane = np.isin(kind, _LANES)
    # The transfer of a matched collective is the work of its kernel, and begins when all are there.
    is_transfer = graph.point_kind[graph.source] == _READY
    edge = np.flatnonzero((graph.weight_ns > 0) | on_lane | is_transfer)
    number = np.full(len(kind), MISSING)
    number[edge] = np.arange(len(edge))
    ending, beginning = _at_points(graph, number, on_lane)
    beginning[graph.target[is_transfer] - 1] = number[is_transfer]
    ready = np.flatnonzero(graph.point_kind == _READY)
    ending[ready] = len(edge) + np.arange(len(ready))
    is_work = (kind[edge] == _WORK) | is_transfer[edge]
    label = graph.event[np.where(kind == _WORK, graph.source, graph.target)[edge]]
    rows = events.reindex(label)
    names = np.where(is_work | (kind[edge] == _CPU), rows["name"].astype(str), _words(kind[edge]))
    categories = np.where(is_work, rows["category"].astype(str), _words(kind[edge]))
    table = pd.DataFrame(
        {
            "task": np.arange(len(edge)),
            "rank": np.maximum(graph.point_rank[graph.target[edge]], 0),
            "event": pd.array(rows.index.to_numpy(), dtype="Int64"),
            "name": names,
            "category": categories,
            "start_ns": pd.array(
                graph.time_ns[graph.source[edge]] + graph.origin_ns, dtype="Int64"
            ),
            "dur_ns": pd.array(graph.weight_ns[edge], dtype="Int64"),
            "stream": rows["stream"].mask(~is_work).array,
            "thread": rows["thread"].astype("object").mask(is_work, None).array,
        }
    )
    if len(ready):  # pandas 2 warns of empty frames, and of columns that are missing throughout
        table = pd.concat([table, _meetings(graph, ready, len(edge))], ignore_index=True)
    table = table.reindex(columns=list(TASKS.columns))
    between = _edges_between(graph, number, on_lane, ending, beginning)
    frame = _with_meetings(between, number[is_transfer], ending[graph.source[is_transfer]])
    return TaskGraph(TASKS.check(TASKS.cast(table)), frame, doubts=tuple(graph.doubts))


def _meetings(graph: ExecutionGraph, ready: Ints, first: int) -> pd.DataFrame:
    """Make one task without time per matched collective, which waits for all its ranks."""
    arriving = np.flatnonzero(graph.point_kind[graph.target] == _READY)
    rank = np.zeros(len(graph.time_ns), dtype=np.int32)
    rank[graph.target[arriving[::-1]]] = graph.point_rank[graph.source[arriving[::-1]]]
    return pd.DataFrame(
        {
            "task": first + np.arange(len(ready)),
            "rank": rank[ready],
            "name": "collective ready",
            "category": "collective",
            "start_ns": pd.array(graph.time_ns[ready] + graph.origin_ns, dtype="Int64"),
            "dur_ns": pd.array(np.zeros(len(ready), dtype=np.int64), dtype="Int64"),
        }
    )


def _with_meetings(edges: pd.DataFrame, transfer: Ints, meeting: Ints) -> pd.DataFrame:
    """Let what a transfer waits for on its own rank hold up its other ranks too."""
    position = pd.Index(transfer).get_indexer(pd.Index(edges["dst"]))
    arriving = edges[(position >= 0) & ~edges["src"].isin(meeting)]
    position = position[arriving.index]
    tables = [edges, arriving.assign(dst=meeting[position], kind="collective")]
    joined = pd.concat([table for table in tables if len(table)] or tables[:1])
    joined = joined.drop_duplicates(["src", "dst"], ignore_index=True)
    return TASK_EDGES.check(TASK_EDGES.cast(joined))


def _words(kind: NDArray[np.int8]) -> NDArray[np.object_]:
    return np.array(EDGE_KINDS, dtype=object)[kind]


def _at_points(
    graph: ExecutionGraph, number: Ints, on_lane: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Give the task of a thread or stream that ends, and the one that begins, at each point."""
    ending, beginning = np.full((2, len(graph.time_ns)), MISSING)
    # What begins a thread has no segment before it, but can wait for another thread.
    ending[graph.target[number != MISSING]] = number[number != MISSING]
    # Lanes last: at a point where both end, the thread or stream goes on, not the lag.
    ending[graph.target[on_lane]] = number[on_lane]
    beginning[graph.source[on_lane]] = number[on_lane]
    return ending, beginning


def _edges_between(
    graph: ExecutionGraph, number: Ints, on_lane: NDArray[np.bool_], ending: Ints, beginning: Ints
) -> pd.DataFrame:
    groups = []
    inside = np.flatnonzero(on_lane)
    before = ending[graph.source[inside]]
    groups.append((before, number[inside], np.full(len(inside), "lane"), inside))
    off_lane = np.flatnonzero(~on_lane)
    alone, timed = off_lane[number[off_lane] == MISSING], off_lane[number[off_lane] != MISSING]
    words = _words(graph.edge_kind)
    groups.append(
        (ending[graph.source[alone]], beginning[graph.target[alone]], words[alone], alone)
    )
    groups.append((ending[graph.source[timed]], number[timed], words[timed], timed))
    groups.append((number[timed], beginning[graph.target[timed]], words[timed], timed))
    source, target, kind, edge = (np.concatenate(columns) for columns in zip(*groups, strict=True))
    is_known = (source != MISSING) & (target != MISSING) & (source != target)
    frame = pd.DataFrame(
        {
            "src": source[is_known],
            "dst": target[is_known],
            "kind": pd.Categorical(kind[is_known]),
            "is_inferred": graph.is_inferred[edge][is_known],
        }
    ).drop_duplicates(["src", "dst"], ignore_index=True)
    return TASK_EDGES.check(TASK_EDGES.cast(frame))
