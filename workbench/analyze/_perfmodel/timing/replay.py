"""Replay of an execution graph: the time of every point and event."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, Ints, checked, codes
from workbench.analyze._perfmodel.timing.longest_path import LongestPath
from workbench.errors import PerformanceModelError
from workbench.tables import ExecutionGraph

# Weak, so that an order goes with its graph.
_PATHS: WeakKeyDictionary[ExecutionGraph, LongestPath] = WeakKeyDictionary()


def replay(graph: ExecutionGraph, *, weight_ns: Ints | None = None) -> Ints:
    """Replay a graph: every point comes as soon as all it waits for allows.

    Parameters
    ----------
    graph
        From :func:`execution_graph`.
    weight_ns
        Other weights of its edges [ns], e.g. of kernels made faster; measured ones by default.

    Returns
    -------
    numpy.ndarray
        Time of every point from the start of the graph, int64 [ns].

    Raises
    ------
    PerformanceModelError
        If the weights do not fit, or points of a graph that :func:`execution_graph` did not
        build wait for each other in a circle.

    Notes
    -----
    t(v) = max over edges (u, v) of t(u) + w(u, v): the longest path. The order of work on a
    stream or thread is that of the trace. The first replay of a graph finds an order of its
    points; further ones follow it.
    """
    weight = graph.weight_ns if weight_ns is None else np.asarray(weight_ns)
    if weight.shape != graph.weight_ns.shape or weight.dtype.kind not in "iu":
        msg = f"weight_ns must be {len(graph.weight_ns):,} integers, one per edge, not "
        raise PerformanceModelError(msg + f"{weight.shape} of {weight.dtype}")
    return paths_of(graph).times(weight)


def paths_of(graph: ExecutionGraph) -> LongestPath:
    if graph not in _PATHS:
        _PATHS[graph] = LongestPath(graph.source, graph.target, len(graph.time_ns))
    return _PATHS[graph]


def keep_path(graph: ExecutionGraph, path: LongestPath) -> None:
    _PATHS[graph] = path


def binding_edges(
    graph: ExecutionGraph,
    time_ns: Ints,
    last: int,
    *,
    begin: int = -1,
    weight_ns: Ints | None = None,
) -> Ints:
    """Return the edges along which a point came as late as it did, the last one first.

    The walk back from the point ``last`` stops at the time ``begin``; times and weights are those
    measured or those of a replay.
    """
    into = paths_of(graph).into
    path: list[int] = []
    arrival = time_ns[graph.source] + (graph.weight_ns if weight_ns is None else weight_ns)
    point = last
    while time_ns[point] > begin and len(edges := into(point)):
        path.append(int(edges[np.argmax(arrival[edges])]))
        point = int(graph.source[path[-1]])
    return np.array(path, dtype=np.int64)


def replayed_events(events: pd.DataFrame, graph: ExecutionGraph, time_ns: Ints) -> pd.DataFrame:
    """Put the events of a trace where a replay puts them.

    Parameters
    ----------
    events, graph
        As for :func:`what_if`.
    time_ns
        Times of its points, from :func:`replay`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EVENTS`: GPU work starts and ends as replayed. What else
        happened on a thread or stream is moved with the points around it, in proportion. So
        every analysis and figure of a trace works on the prediction, too.
    """
    checked(events, "rank", "start_ns", "dur_ns", "process", "thread", "stream", "device")
    start = events["start_ns"].to_numpy(copy=True)
    end = start + events["dur_ns"].to_numpy()
    lane = _lanes(events)
    position = pd.Index(events.index).get_indexer(pd.Index(graph.event))
    points = np.flatnonzero((position >= 0) & (graph.event >= 0))
    order = points[np.lexsort((graph.time_ns[points], lane[position[points]]))]
    of_point = lane[position[order]]
    measured, predicted = graph.time_ns[order] + graph.origin_ns, time_ns[order] + graph.origin_ns
    # Bounds of each lane in the sorted points and rows, in place of a mask for each.
    begin = np.searchsorted(of_point, np.arange(lane.max(initial=-1) + 2))
    by_lane = np.argsort(lane, kind="stable")
    rows = np.searchsorted(lane[by_lane], np.arange(lane.max(initial=-1) + 2))
    for number in np.unique(of_point).tolist():
        at = slice(begin[number], begin[number + 1])
        lane_rows = by_lane[rows[number] : rows[number + 1]]
        for moment in (start, end):
            moment[lane_rows] = _moved(moment[lane_rows], measured[at], predicted[at])
    # GPU work has points of its own; interpolation is for the rows that have none.
    work = position[graph.gpu_start]
    start[work] = time_ns[graph.gpu_start] + graph.origin_ns
    end[work] = time_ns[graph.gpu_start + 1] + graph.origin_ns
    return events.assign(start_ns=start, dur_ns=np.maximum(end - start, 0))


def _lanes(events: pd.DataFrame) -> Ints:
    keys = [events["rank"].to_numpy(dtype=np.int64)]
    keys += [codes(events[name]).astype(np.int64) for name in ("process", "thread")]
    keys += [
        np.asarray(events[name].array.to_numpy(dtype="int64", na_value=MISSING))
        for name in ("device", "stream")
    ]
    number = np.zeros(len(events), dtype=np.int64)
    # Renumbered after each key: the product of all codes could exceed int64.
    for key in keys:
        number = pd.factorize(number * (int(key.max(initial=0)) + 2) + key + 1)[0]
    return number


def _moved(moment: Ints, measured: Ints, predicted: Ints) -> Ints:
    """Move moments with the points around them; before and after these by as much as they."""
    inside = np.clip(moment, measured[0], measured[-1])
    before = np.clip(np.searchsorted(measured, inside, side="right") - 1, 0, len(measured) - 1)
    after = np.minimum(before + 1, len(measured) - 1)
    width = np.maximum(measured[after] - measured[before], 1)
    share = (inside - measured[before]) / width
    new = predicted[before] + np.rint(share * (predicted[after] - predicted[before])).astype(
        np.int64
    )
    moved: NDArray[np.int64] = new + (moment - inside)
    return moved
