"""Execution graphs of points as graphs of tasks, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, Ints, checked
from workbench.analyze._perfmodel.graph.draft import Step, build_table
from workbench.errors import PerformanceModelError
from workbench.tables import (
    EDGE_KINDS,
    POINT_KINDS,
    TASK_EDGES,
    TASKS,
    ExecutionGraph,
    TaskGraph,
)

_LANES = tuple(EDGE_KINDS.index(kind) for kind in ("GPU work", "CPU", "gap", "call"))
_WORK, _CPU, *_ = _LANES
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
        ``tasks`` (:data:`workbench.tables.TASKS`): GPU work, and the stretches of a thread
        between two moments that something depends on; ``edges``
        (:data:`workbench.tables.TASK_EDGES`). :func:`chakra_nodes` makes an execution trace of
        them.

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
    there = np.flatnonzero(graph.point_kind[graph.target] == _READY)
    rank = np.zeros(len(graph.time_ns), dtype=np.int32)
    rank[graph.target[there[::-1]]] = graph.point_rank[graph.source[there[::-1]]]
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
    place = pd.Index(transfer).get_indexer(pd.Index(edges["dst"]))
    arriving = edges[(place >= 0) & ~edges["src"].isin(meeting)]
    place = place[arriving.index]
    parts = [edges, arriving.assign(dst=meeting[place], kind="collective")]
    both = pd.concat([part for part in parts if len(part)] or parts[:1])
    both = both.drop_duplicates(["src", "dst"], ignore_index=True)
    return TASK_EDGES.check(TASK_EDGES.cast(both))


def _words(kind: NDArray[np.int8]) -> NDArray[np.object_]:
    return np.array(EDGE_KINDS, dtype=object)[kind]


def _at_points(
    graph: ExecutionGraph, number: Ints, on_lane: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Give the task of a thread or stream that ends, and the one that begins, at each point."""
    ending, beginning = np.full((2, len(graph.time_ns)), MISSING)
    # What begins a thread has no stretch before it, but can wait for another thread.
    ending[graph.target[number != MISSING]] = number[number != MISSING]
    ending[graph.target[on_lane]] = number[on_lane]
    beginning[graph.source[on_lane]] = number[on_lane]
    return ending, beginning


def _edges_between(
    graph: ExecutionGraph, number: Ints, on_lane: NDArray[np.bool_], ending: Ints, beginning: Ints
) -> pd.DataFrame:
    parts = []
    inside = np.flatnonzero(on_lane)
    before = ending[graph.source[inside]]
    parts.append((before, number[inside], np.full(len(inside), "lane"), inside))
    other = np.flatnonzero(~on_lane)
    alone, timed = other[number[other] == MISSING], other[number[other] != MISSING]
    words = _words(graph.edge_kind)
    parts.append((ending[graph.source[alone]], beginning[graph.target[alone]], words[alone], alone))
    parts.append((ending[graph.source[timed]], number[timed], words[timed], timed))
    parts.append((number[timed], beginning[graph.target[timed]], words[timed], timed))
    source, target, kind, edge = (np.concatenate(each) for each in zip(*parts, strict=True))
    known = (source != MISSING) & (target != MISSING) & (source != target)
    frame = pd.DataFrame(
        {
            "src": source[known],
            "dst": target[known],
            "kind": pd.Categorical(kind[known]),
            "is_inferred": graph.is_inferred[edge][known],
        }
    ).drop_duplicates(["src", "dst"], ignore_index=True)
    return TASK_EDGES.check(TASK_EDGES.cast(frame))


def task_graph(given: TaskGraph) -> ExecutionGraph:
    """Turn tasks, e.g. of a PyTorch or Chakra execution trace, into a graph that can be replayed.

    Parameters
    ----------
    given
        From :func:`trace_tasks` or :func:`graph_tasks`.

    Returns
    -------
    workbench.tables.ExecutionGraph
        Two points per task, its start and its end. ``time_ns`` is recorded where all starts are,
        else it is that of a replay, so that there is nothing to compare with: ``doubts`` say so.

    Raises
    ------
    PerformanceModelError
        If tasks wait for each other in a circle, or none has a time.

    Notes
    -----
    A task begins when all that it needs have ended. Tasks without a time take none.
    """
    tasks, edges = TASKS.check(given.tasks), TASK_EDGES.check(given.edges)
    if given.cyclic:
        msg = (
            f"{len(given.cyclic):,} tasks wait for each other in a circle, e.g. {given.cyclic[0]}; "
            "leave out the edges between them"
        )
        raise PerformanceModelError(msg)
    untimed = int(tasks["dur_ns"].isna().sum())
    if untimed == len(tasks):
        msg = "none of the tasks has a time; join them with those of a profiler trace (node_times)"
        raise PerformanceModelError(msg)
    count = len(tasks)
    place = pd.Index(tasks["task"])
    source, target = (place.get_indexer(pd.Index(edges[name])) for name in ("src", "dst"))
    starts = 1 + 2 * np.arange(count)
    free = np.setdiff1d(np.arange(count), target)
    duration = tasks["dur_ns"].fillna(0).to_numpy("int64")
    on_gpu = tasks["stream"].notna().to_numpy() | tasks["thread"].isna().to_numpy()
    parts = [
        (starts, starts + 1, duration, np.where(on_gpu, _WORK, _CPU), np.zeros(count, dtype=bool)),
        (starts[source] + 1, starts[target], 0, EDGE_KINDS.index("data"), edges["is_inferred"]),
        (np.zeros(len(free)), starts[free], 0, EDGE_KINDS.index("trace start"), False),
    ]
    sizes = [len(part[1]) for part in parts]

    def joined(at: int, dtype: str) -> Any:
        values = [
            np.broadcast_to(np.asarray(part[at]), size)
            for part, size in zip(parts, sizes, strict=True)
        ]
        return np.concatenate(values).astype(dtype)

    kinds = ("GPU start", "GPU end"), ("CPU start", "CPU end")
    pairs = [[POINT_KINDS.index(each) for each in pair] for pair in kinds]
    step = Step("tasks", is_used=True, read=int((~edges["is_inferred"]).sum()))
    step.inferred = int(edges["is_inferred"].sum())
    doubts = list(given.doubts)
    if untimed:
        doubts.append(f"{untimed:,} of {count:,} tasks have no time and take none")
    graph = ExecutionGraph(
        time_ns=np.zeros(1 + 2 * count, dtype=np.int64),
        point_rank=np.append(-1, np.repeat(tasks["rank"], 2)).astype(np.int32),
        point_kind=np.append(0, np.where(on_gpu[:, None], *pairs).ravel()).astype(np.int8),
        event=np.append(MISSING, np.repeat(tasks["event"].fillna(MISSING).astype("int64"), 2)),
        source=joined(0, "int32"),
        target=joined(1, "int32"),
        weight_ns=joined(2, "int64"),
        edge_kind=joined(3, "int8"),
        is_inferred=joined(4, "bool"),
        gpu_start=starts[on_gpu].astype(np.int32),
        thread=np.append(MISSING, np.repeat(np.where(on_gpu, MISSING, 0), 2)).astype(np.int32),
        origin_ns=0,
        build=build_table([step]),
        doubts=tuple(doubts),
    )
    return _timed(graph, tasks, duration)


def _timed(graph: ExecutionGraph, tasks: pd.DataFrame, duration: Ints) -> ExecutionGraph:
    """Put recorded times into a graph, or those of a replay."""
    from dataclasses import replace

    from workbench.analyze._perfmodel.timing.replay import replay

    if tasks["start_ns"].isna().any():
        doubt = "starts were not recorded: times are those of the replay itself"
        return replace(graph, time_ns=replay(graph), doubts=(*graph.doubts, doubt))
    start = tasks["start_ns"].to_numpy("int64")
    origin = int(start.min())
    time = np.stack([start - origin, start - origin + duration], axis=1).ravel()
    return replace(graph, time_ns=np.append(0, time), origin_ns=origin)
