"""Predict a step from the other steps of its trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.replays.step_bounds import StepBounds, launch_times, step_bounds
from workbench.analyze._perfmodel.timing.replay import replay
from workbench.errors import PerformanceModelError
from workbench.tables import EDGE_KINDS, HELD_OUT_STEPS, ExecutionGraph

_VARYING = ("GPU work", "CPU", "gap", "launch", "call")


def held_out_steps(events: pd.DataFrame, graph: ExecutionGraph) -> pd.DataFrame:
    """Replay every step with the times of the others, and compare with what it took.

    A replay that knows the times of a step shows that the graph is right; one that does not
    shows what a prediction is worth.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of one rank, with three ProfilerSteps or more.
    graph
        From :func:`execution_graph` of these events.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.HELD_OUT_STEPS`, one row per step but the last.

    Raises
    ------
    PerformanceModelError
        If there are fewer than three steps, or several ranks.

    Notes
    -----
    The time of GPU work, CPU segments, gaps and launches of a step is replaced by the mean of
    that of the same place in the other steps: equal kind, names and point kinds of both ends,
    thread or stream, and number within the step. What has no such place keeps its own time;
    ``known_share`` says how much of the step was replaced. ``naive_ns`` is the mean of the
    other steps. Steps begin as in :func:`what_if`.
    """
    bounds = _bounds(events, graph)
    time = graph.time_ns
    starts = bounds.of_rank[0].start
    step = np.searchsorted(starts, launch_times(events, graph)[graph.target], side="right")
    place = _places(events, graph, step)
    varying = np.isin(graph.edge_kind, [EDGE_KINDS.index(kind) for kind in _VARYING])
    weight = graph.weight_ns.astype(float)
    count = len(starts)
    size = int(place.max()) + 1
    sums, found = np.zeros((2, count + 1, size))
    np.add.at(sums, (step[varying], place[varying]), weight[varying])
    np.add.at(found, (step[varying], place[varying]), 1)
    measured = bounds.durations()
    before_first = measured - np.diff(bounds.times(time))
    rows = []
    for number in range(1, count):
        others = np.arange(1, count) != number
        total, times = sums[1:count][others].sum(0), found[1:count][others].sum(0)
        mine = np.flatnonzero(varying & (step == number))
        known = mine[times[place[mine]] > 0]
        changed = weight.copy()
        changed[known] = total[place[known]] / times[place[known]]
        again = bounds.times(replay(graph, weight_ns=np.rint(changed).astype(np.int64)))
        rows.append(
            {
                "step": bounds.number[number - 1],
                "measured_ns": measured[number - 1],
                "predicted_ns": again[number] - again[number - 1] + before_first[number - 1],
                "naive_ns": np.delete(measured, number - 1).mean(),
                "known_share": weight[known].sum() / max(weight[mine].sum(), 1),
            }
        )
    table = pd.DataFrame(rows)
    table["error_ratio"] = table["predicted_ns"] / table["measured_ns"] - 1
    table["naive_error_ratio"] = table["naive_ns"] / table["measured_ns"] - 1
    return HELD_OUT_STEPS.check(HELD_OUT_STEPS.cast(table.round({"naive_ns": 0})))


def _bounds(events: pd.DataFrame, graph: ExecutionGraph) -> StepBounds:
    if events["rank"].nunique() != 1:
        msg = f"the events are of {events['rank'].nunique()} ranks; hold out steps of one at a time"
        raise PerformanceModelError(msg)
    bounds = step_bounds(events, graph)
    if len(bounds.number) < 3:
        msg = (
            f"{len(bounds.number)} ProfilerSteps: to hold one out, record three or more "
            "(torch.profiler.schedule, and step() in the loop)"
        )
        raise PerformanceModelError(msg)
    return bounds


def _places(events: pd.DataFrame, graph: ExecutionGraph, step: Ints) -> Ints:
    """Give every place of an edge in a step one number, the same in every step."""
    codes = np.append(events["name"].cat.codes.to_numpy(dtype=np.int64), MISSING)
    name = codes[events.index.get_indexer(pd.Index(graph.event))]
    lane = _lanes(events, graph)
    keys: dict[str, Any] = {
        "kind": graph.edge_kind,
        "from": name[graph.source],
        "to": name[graph.target],
        "from_kind": graph.point_kind[graph.source],
        "to_kind": graph.point_kind[graph.target],
        "lane": lane[graph.target],
        "step": step,
    }
    frame = pd.DataFrame(keys)
    order = np.argsort(graph.time_ns[graph.target], kind="stable")
    number = np.empty(len(frame), dtype=np.int64)
    number[order] = frame.iloc[order].groupby(list(keys)).cumcount().to_numpy()
    frame["number"] = number
    same = [name for name in frame if name != "step"]
    place: Ints = frame.groupby(same).ngroup().to_numpy().astype(np.int64)
    return place


def _lanes(events: pd.DataFrame, graph: ExecutionGraph) -> Ints:
    """Give threads and streams a number."""
    stream = np.append(events["stream"].array.to_numpy(dtype="int64", na_value=MISSING), MISSING)
    of_point = stream[events.index.get_indexer(pd.Index(graph.event))]
    return np.where(graph.thread >= 0, -2 - graph.thread, of_point)
