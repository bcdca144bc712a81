"""Execution graphs as graphs of tasks, and as nodes of an execution trace for simulators."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from claims._tables import TASK_EDGES, TASKS, TaskGraph
from workbench._shared.collective_names import OPERATIONS
from workbench.analyze._lib.rows import (
    MISSING,
    Ints,
    checked,
    input_sizes,
    operations,
    taken,
)
from workbench.errors import PerformanceModelError
from workbench.tables import DEPENDENCIES, EDGE_KINDS, EVENTS, NODES, POINT_KINDS, ExecutionGraph

_LANES = tuple(EDGE_KINDS.index(kind) for kind in ("GPU work", "CPU", "gap", "call"))
_WORK, _CPU = _LANES[:2]
_READY = POINT_KINDS.index("collective ready")
_COLLECTIVES = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather",
    "scatter": "scatter", "barrier": "barrier",
}  # fmt: skip
_POINT_TO_POINT = {"send": "COMM_SEND_NODE", "receive": "COMM_RECV_NODE"}


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
        ``tasks`` (:data:`claims._tables.TASKS`): GPU work, and the segments of a thread between
        two moments that something depends on; ``edges`` (:data:`claims._tables.TASK_EDGES`).
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
    return TaskGraph(TASKS.of(table), frame, doubts=tuple(graph.doubts))


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
    return TASK_EDGES.of(joined.drop_duplicates(["src", "dst"], ignore_index=True))


def _words(kind: NDArray[np.int8]) -> NDArray[np.object_]:
    return np.array(EDGE_KINDS, dtype=object)[kind]


def _at_points(
    graph: ExecutionGraph, number: Ints, on_lane: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the task of a thread or stream that ends, and the one that begins, at each point."""
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
    return TASK_EDGES.of(frame)


def chakra_nodes(
    events: pd.DataFrame, tasks: pd.DataFrame, task_edges: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Describe a profiler trace's graph as nodes of a Chakra execution trace.

    ``load.write_chakra`` writes them.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, of which the tasks are made.
    tasks, task_edges
        Tables :data:`claims._tables.TASKS` and :data:`claims._tables.TASK_EDGES`.

    Returns
    -------
    tuple of pandas.DataFrame
        Tables :data:`workbench.tables.NODES` and :data:`workbench.tables.DEPENDENCIES`, one
        node per task of a rank with the task's number as id. ``attrs["left_out"]`` of the second
        counts edges between ranks: a Chakra trace is of one rank, and simulators join ranks
        by their collectives.

    Raises
    ------
    PerformanceModelError
        If a task has no duration, or tasks and edges do not fit events or each other.

    Notes
    -----
    Kernels that communicate become ``COMM_COLL_NODE`` (``COMM_SEND_NODE``,
    ``COMM_RECV_NODE``) with operation, process group, and the bytes that the rank puts in, as
    Chakra counts them; other work, CPU segments and lags (a launch latency, a gap between
    kernels) become ``COMP_NODE``. Communication of unknown kind stays ``COMP_NODE``: its
    measured time, with its wait for other ranks, is all that is known. Every edge becomes a
    data dependency, the only kind that Chakra's first feeder obeys.

    References
    ----------
    Chakra, arXiv 2305.14516; mlcommons/chakra: src/feeder/et_feeder.cpp.
    """
    TASKS.check(tasks, "tasks")
    TASK_EDGES.check(task_edges, "task_edges")
    EVENTS.check(events, "events")
    position = events.index.get_indexer(pd.Index(tasks["event"].fillna(-1).astype("int64")))
    position[tasks["event"].isna().to_numpy()] = -1
    _refuse(tasks, task_edges, position)
    # Where ranks meet, simulators join them by the collectives themselves.
    is_meeting = (tasks["event"].isna() & (tasks["category"] == "collective")).to_numpy()
    nodes = _nodes(events, tasks[~is_meeting], position[~is_meeting])
    rank = tasks.set_index("task")["rank"]
    src, dst = rank.loc[task_edges["src"]].to_numpy(), rank.loc[task_edges["dst"]].to_numpy()
    at_meeting = task_edges[["src", "dst"]].isin(set(tasks["task"][is_meeting])).any(axis=1)
    # A Chakra file is of one rank, so edges between ranks cannot be written.
    is_inside = (src == dst) & ~at_meeting.to_numpy()
    inside = task_edges[is_inside]
    frame = pd.DataFrame(
        {
            "rank": dst[is_inside],
            "node": inside["dst"].to_numpy(),
            "needs": inside["src"].to_numpy(),
            "edge": pd.Categorical(["data"] * len(inside), categories=["data", "control"]),
        }
    ).drop_duplicates(["node", "needs"])
    dependencies = frame.sort_values(["rank", "node", "needs"], ignore_index=True)
    dependencies = DEPENDENCIES.of(dependencies)
    dependencies.attrs["left_out"] = {"edges between ranks": int((src != dst).sum())}
    return nodes, dependencies


def _refuse(tasks: pd.DataFrame, edges: pd.DataFrame, position: np.ndarray) -> None:
    is_absent = (position < 0) & tasks["event"].notna().to_numpy()
    is_unknown = ~edges[["src", "dst"]].isin(set(tasks["task"])).all(axis=1)
    counts = {
        "tasks have no duration": tasks["dur_ns"].isna().sum(),
        "numbers of tasks occur twice": tasks["task"].duplicated().sum(),
        "tasks are of events that are not in this table": is_absent.sum(),
        "edges are of tasks that do not exist": is_unknown.sum(),
    }
    if wrong := [f"{count:,} {words}" for words, count in counts.items() if count]:
        msg = "; ".join(wrong) + ": pass the tasks and edges of one graph, and its events"
        raise PerformanceModelError(msg)


def _nodes(events: pd.DataFrame, tasks: pd.DataFrame, position: np.ndarray) -> pd.DataFrame:
    has_event = position >= 0
    row = position[has_event].astype(np.int64)
    kind = pd.Series(None, index=range(len(tasks)), dtype=object)
    kind[has_event] = events["kind"].astype(object).to_numpy()[row]
    on_gpu = kind.notna().to_numpy() | tasks["stream"].notna().to_numpy()
    # A lag is called after its edge and bears the event that it ends at, whose work it is not.
    is_lag = tasks["category"].astype(str).isin(EDGE_KINDS).to_numpy()
    is_communication = (kind == "communication").to_numpy() & ~is_lag
    operation = pd.Series("", index=range(len(tasks)), dtype=object)
    number = operations(events, row)
    operation[has_event] = np.array(OPERATIONS, dtype=object)[number]
    operation[~is_communication] = ""
    group = pd.Series(None, index=range(len(tasks)), dtype=object)
    group[has_event] = events["group"].astype(object).to_numpy()[row]
    collective = operation.map(_COLLECTIVES)
    types = np.where(operation.isin(_COLLECTIVES), "COMM_COLL_NODE", "COMP_NODE").astype(object)
    for name, kind_of in _POINT_TO_POINT.items():
        types[(operation == name).to_numpy()] = kind_of
    size = pd.Series(-1, index=range(len(tasks)), dtype="int64")
    put_in = input_sizes(events, row, number)
    recorded = taken(events["size_bytes"], row)
    size[has_event] = np.where(is_communication[has_event], put_in, recorded)
    start, duration = (tasks[name].reset_index(drop=True) for name in ("start_ns", "dur_ns"))
    if is_communication.any():
        # Waiting for other ranks is not the task's own time, but nobody else has it here.
        measured = events.iloc[position[is_communication]]
        start[is_communication] = measured["start_ns"].to_numpy()
        duration[is_communication] = measured["dur_ns"].to_numpy()
    frame = pd.DataFrame(
        {
            "rank": tasks["rank"].to_numpy(),
            "node": tasks["task"].to_numpy(),
            "name": tasks["name"].astype(str).to_numpy(),
            "type": types,
            "parent": pd.array([pd.NA] * len(tasks), dtype="Int64"),
            "start_ns": start,
            "dur_ns": duration,
            "record_function": pd.array([pd.NA] * len(tasks), dtype="Int64"),
            "collective": collective.where(collective.notna(), None),
            "group": group.where(is_communication, None),
            "size_bytes": size.astype("Int64").mask((size < 0).to_numpy() | is_lag),
            "is_cpu": ~on_gpu,
        }
    )
    return NODES.of(frame.sort_values(["rank", "node"], ignore_index=True))
