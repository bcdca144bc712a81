"""Replay where launches may come in another order: streams take work as it is launched."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import numpy as np

from workbench.analyze._lib.rows import Ints
from workbench.analyze._perfmodel.replays import stream_queues as _stream_queues
from workbench.analyze._perfmodel.timing import engine_python as _engine_python
from workbench.errors import PerformanceModelError
from workbench.tables import EDGE_KINDS, ExecutionGraph

_NO_GAP = 0


def list_schedule(graph: ExecutionGraph, *, weight_ns: Ints | None = None) -> Ints:
    """Replay a graph, and let every stream take its work in the order of launch.

    :func:`replay` keeps the order of the trace. Where threads launch into one stream and one of
    them becomes faster, its work goes first; this replay shows it.

    Parameters
    ----------
    graph
        From :func:`execution_graph`.
    weight_ns
        Other weights of its edges [ns]; measured ones by default.

    Returns
    -------
    numpy.ndarray
        Time of every point from the start of the graph, int64 [ns]. Equal to that of
        :func:`replay` where the order of launches stays.

    Raises
    ------
    PerformanceModelError
        If the weights do not fit, or the order that results cannot be played: work at the head
        of a stream waits for work behind it.

    Notes
    -----
    Events in order of time. Work is queued when its launch is done, begins when it is first in
    its queue, what it waits for has come and the work before it has ended (plus the gap of its
    edge of kind stream order), and leaves the queue when it ends.
    """
    weight = graph.weight_ns if weight_ns is None else np.asarray(weight_ns)
    if weight.shape != graph.weight_ns.shape or weight.dtype.kind not in "iu":
        msg = f"weight_ns must be {len(graph.weight_ns):,} integers, one per edge"
        raise PerformanceModelError(msg)
    count = len(graph.time_ns)
    in_order = graph.edge_kind == EDGE_KINDS.index("stream order")
    source, target = graph.source[~in_order], graph.target[~in_order]
    bounds, by_source, waiting = _engine_python.ordered(source, target, count)
    is_launch = (graph.edge_kind == EDGE_KINDS.index("launch"))[~in_order][by_source]
    gap = np.full(count, _NO_GAP, dtype=np.int64)
    gap[graph.target[in_order]] = weight[in_order]
    stream = _streams(graph, in_order)
    sizes = np.bincount(stream[stream >= 0], minlength=int(stream.max(initial=-1)) + 1)
    length = np.append(0, np.cumsum(sizes)).astype(np.int32)
    time, done = _engine()(
        bounds,
        target[by_source],
        weight[~in_order][by_source].astype(np.int64),
        is_launch,
        waiting,
        stream,
        gap,
        np.full(int(length[-1]) + 1, -1, dtype=np.int32),
        length,
    )
    if done < count:
        msg = (
            f"{count - done:,} of {count:,} points never come: with these times work at the head "
            "of a stream waits for work behind it; replay() keeps the order of the trace"
        )
        raise PerformanceModelError(msg)
    times: Ints = time
    return times


def _streams(graph: ExecutionGraph, in_order: Any) -> Any:
    """Give streams a number: work that follows each other is of one."""
    stream = np.full(len(graph.time_ns), -1, dtype=np.int32)
    before = np.full(len(graph.time_ns), -1, dtype=np.int64)
    before[graph.target[in_order]] = graph.source[in_order] - 1
    starts = graph.gpu_start[np.argsort(graph.time_ns[graph.gpu_start], kind="stable")]
    found = 0
    for start in starts.tolist():
        earlier = before[start]
        if earlier >= 0 and stream[earlier] >= 0:
            stream[start] = stream[earlier]
        else:
            stream[start], found = found, found + 1
    return stream


@cache
def _engine() -> Any:
    if importlib.util.find_spec("numba") is None:
        return _stream_queues.play
    return _stream_queues.compiled()
