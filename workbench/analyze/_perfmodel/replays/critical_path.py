"""What the end of a run waited for, and what could have come later without delaying it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import checked
from workbench.analyze._perfmodel.replays.change import Change, changed_weights
from workbench.analyze._perfmodel.timing.longest_path import LongestPath
from workbench.analyze._perfmodel.timing.replay import binding_edges, replay
from workbench.tables import CRITICAL_PATH, EDGE_KINDS, SLACK, ExecutionGraph


def critical_path(
    events: pd.DataFrame, graph: ExecutionGraph, *, changes: Sequence[Change] = ()
) -> pd.DataFrame:
    """Follow the longest path of a graph: only what is on it can make the run shorter.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`execution_graph`.
    changes
        What takes another time, as for :func:`what_if`; nothing by default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CRITICAL_PATH`, one row per dependency, in order of time.
        The times of all rows add up to the whole replayed time.

    Notes
    -----
    From the last point back along the edges that hold: t(v) = t(u) + w(u, v). Of several the
    first in the graph is followed.
    """
    checked(events, "name", "rank")
    weight = changed_weights(events, graph, list(changes))[0] if changes else graph.weight_ns
    time = replay(graph, weight_ns=weight)
    path = binding_edges(graph, time, int(np.argmax(time)), weight_ns=weight)[::-1]
    target = graph.target[path]
    name = events["name"].astype("object").reindex(graph.event[target])
    start = time[graph.source[path]]
    table = pd.DataFrame(
        {
            "rank": graph.point_rank[target],
            "kind": pd.Categorical.from_codes(
                graph.edge_kind[path].tolist(), categories=pd.Index(EDGE_KINDS)
            ),
            "name": name.fillna("").astype(str).to_numpy(),
            "event": pd.array(graph.event[target], dtype="Int64"),
            "start_ns": start + graph.origin_ns,
            "dur_ns": time[target] - start,
            "is_inferred": graph.is_inferred[path],
        }
    )
    table["event"] = table["event"].mask(table["event"] < 0)
    return CRITICAL_PATH.check(CRITICAL_PATH.cast(table))


def slack(events: pd.DataFrame, graph: ExecutionGraph) -> pd.DataFrame:
    """Say of all GPU work how much later it could come without delaying the end.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`execution_graph`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SLACK`, one row per piece of GPU work, in order of time.

    Notes
    -----
    Slack of v: T - t(v) - longest path from v to any end, T being the replayed time. It is the
    time that one piece of work may lose alone; what lies in a row shares it.
    """
    checked(events, "name", "rank", "kind", "stream")
    time = replay(graph)
    backwards = LongestPath(graph.target, graph.source, len(time)).times(graph.weight_ns)
    start = graph.gpu_start
    order = start[np.argsort(time[start], kind="stable")]
    rows = events.reindex(graph.event[order])
    table = pd.DataFrame(
        {
            "rank": graph.point_rank[order],
            "event": graph.event[order],
            "name": rows["name"].astype(str).to_numpy(),
            "kind": rows["kind"].array,
            "stream": rows["stream"].array,
            "start_ns": time[order] + graph.origin_ns,
            "dur_ns": time[order + 1] - time[order],
            "slack_ns": int(time.max()) - time[order] - backwards[order],
        }
    )
    return SLACK.check(SLACK.cast(table))
