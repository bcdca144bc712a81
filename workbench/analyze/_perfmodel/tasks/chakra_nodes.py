"""A profiler trace's graph as nodes of an execution trace, to be written for simulators."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import OPERATIONS, input_sizes, operations, taken
from workbench.errors import PerformanceModelError
from workbench.tables import DEPENDENCIES, EDGE_KINDS, EVENTS, NODES, TASK_EDGES, TASKS

_COLLECTIVES = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather",
    "scatter": "scatter", "barrier": "barrier",
}  # fmt: skip
_POINT_TO_POINT = {"send": "COMM_SEND_NODE", "receive": "COMM_RECV_NODE"}


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
        Tables :data:`workbench.tables.TASKS` and :data:`workbench.tables.TASK_EDGES`.

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
    dependencies = DEPENDENCIES.check(DEPENDENCIES.cast(dependencies))
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
    frame = frame.sort_values(["rank", "node"], ignore_index=True)
    return NODES.check(NODES.cast(frame))
