"""What-if analysis, critical path and slack of an execution graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.numbers import share_between
from workbench.analyze._lib.rows import Ints, checked
from workbench.analyze._perfmodel.graph.rank_rows import GraphRules
from workbench.analyze._perfmodel.replays.change import Change, changed_weights
from workbench.analyze._perfmodel.replays.fidelity import (
    WITHOUT_GRAPHS,
    limits_failed,
    replay_fidelity,
)
from workbench.analyze._perfmodel.replays.step_bounds import StepBounds, step_bounds
from workbench.analyze._perfmodel.timing.longest_path import LongestPath
from workbench.analyze._perfmodel.timing.replay import binding_edges, replay
from workbench.errors import PerformanceModelError
from workbench.tables import (
    CRITICAL_PATH,
    EDGE_KINDS,
    REPLAY_FIDELITY,
    SLACK,
    WHAT_IF,
    ExecutionGraph,
)

_DRAWS = 2000
_SWAP_DOUBT = "what binds a kernel was inferred from its name, and latencies stay"


def what_if(  # noqa: PLR0913 - the entry point
    events: pd.DataFrame,
    graph: ExecutionGraph,
    changes: Sequence[Change | Sequence[Change]],
    *,
    fidelity: pd.DataFrame | None = None,
    least_explained_share: float = 0.9,
    rules: GraphRules | None = None,
    confidence_level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Replay a trace with other times, and say what a step would take.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`execution_graph`.
    changes
        Questions; one that is a list makes all its changes at once.
    fidelity
        Table :data:`workbench.tables.REPLAY_FIDELITY` of this graph; computed if not given.
    least_explained_share
        Predictions are refused where less of the time is explained; 0 allows all, whatever
        its errors.
    rules
        With the errors from which on predictions are refused, as for :func:`replay_fidelity`.
    confidence_level
        Confidence of the interval.
    seed
        Of the bootstrap.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.WHAT_IF`, one row per question.

    Raises
    ------
    PerformanceModelError
        If too little of the time is explained, the replay is too far off, or a change chooses
        nothing.

    Notes
    -----
    A step begins when the host is there and all GPU work that was launched before has ended, on
    all ranks of the graph: the steps of a host that runs ahead of its GPU are not what training
    takes. With fewer than two steps the whole counts, to the last end of any thread or stream.

    Every step is replayed as it was and as it would be. The prediction is the measured time of
    the mean step x sum(would be) / sum(was), so that errors of the graph cancel where they do
    not depend on the change. The interval is that of the change: percentiles of this ratio over
    steps redrawn. With one step there is none. Times are scaled, the order of work stays:
    what a scheduler would do otherwise is not in it.
    """
    share_between("confidence_level", confidence_level)
    rules = rules or GraphRules()
    if fidelity is None:
        fidelity = replay_fidelity(
            events, graph, least_explained_share=least_explained_share, rules=rules
        )
    worst = REPLAY_FIDELITY.check(fidelity).nsmallest(1, "explained_share").iloc[0]
    if least_explained_share > 0:
        _refuse(events, fidelity, least_explained_share, rules)
    bounds = step_bounds(events, graph)
    measured, before = _durations(bounds, graph.time_ns), _durations(bounds, replay(graph))
    if len(bounds.number) > 1:
        measured = bounds.durations()
    # Steps are drawn as pairs, before and after: a slow step is slow in both.
    draws = np.random.default_rng(seed).integers(len(measured), size=(_DRAWS, len(measured)))
    rows = []
    for question in changes:
        joint = [question] if isinstance(question, Change) else list(question)
        weight, touched = changed_weights(events, graph, joint)
        swap_doubt = _SWAP_DOUBT if any(change.to_gpu for change in joint) else ""
        after = _durations(bounds, replay(graph, weight_ns=weight))
        rows.append(
            {
                "question": "; ".join(change.question for change in joint),
                "measured_ns": measured.mean(),
                "replayed_ns": before.mean(),
                **_interval(measured.mean(), before, after, draws, confidence_level),
                "changed_ns": int(graph.weight_ns[touched].sum()),
                "step_count": len(measured),
                "basis": "scaled",
                "explained_share": worst["explained_share"],
                "doubt": "; ".join(sorted({*fidelity["doubt"], swap_doubt} - {""})),
            }
        )
    table = pd.DataFrame(rows, columns=list(WHAT_IF.columns))
    table["speedup_ratio"] = table["measured_ns"] / table["predicted_ns"].clip(lower=1)
    for name in ("measured_ns", "replayed_ns", "predicted_ns", "low_ns", "high_ns"):
        table[name] = table[name].astype("Float64").round()
    return WHAT_IF.of(table)


def _refuse(events: pd.DataFrame, fidelity: pd.DataFrame, least: float, rules: GraphRules) -> None:
    """Refuse predictions from a graph that is not usable, the least explained rank first."""
    for row in fidelity.sort_values("explained_share", kind="stable").to_dict("records"):
        failed = limits_failed(row, least, rules)
        if not failed:
            continue
        share = row["explained_share"]
        if "least_explained_share" in failed:
            failed["least_explained_share"] = (
                f"only {share:.1%} of the time is explained, less than "
                f"least_explained_share={least:g}"
            )
        ratios = [name for name in failed if name != "least_explained_share"]
        ways = ["least_explained_share"] if len(ratios) < len(failed) else []
        ways += [f"rules=GraphRules({'=..., '.join(ratios)}=...)"] if ratios else []
        msg = f"rank {row['rank']}: {'; '.join(failed.values())}; {_advice(events)}or allow more "
        raise PerformanceModelError(msg + f"by {', '.join(ways)}")


def _advice(events: pd.DataFrame) -> str:
    """Describe what of the recording may help; nothing where it has all of it."""
    names, categories = (events[name].cat.categories for name in ("name", "category"))
    advice = ""
    if any("GraphLaunch" in str(name) for name in names):
        advice += f"{WITHOUT_GRAPHS}, "
    if "cuda_sync" not in categories:
        advice += "record cuda_sync events (enable_cuda_sync_events), "
    return advice


def _durations(bounds: StepBounds, time_ns: Ints) -> Ints:
    """Return the time of every step; without two steps that of the whole, to its last end."""
    if len(bounds.number) < 2:
        return np.array([time_ns.max(initial=1)])
    return np.diff(bounds.times(time_ns))


def _interval(
    measured_ns: float, before: Ints, after: Ints, draws: Ints, confidence_level: float
) -> dict[str, Any]:
    """Scale the measured time of the mean step by the replays; both are of all steps drawn."""
    low, high = None, None
    if len(before) > 1:
        ratios = after[draws].sum(axis=1) / np.maximum(before[draws].sum(axis=1), 1)
        tail = (1 - confidence_level) / 2
        low, high = np.quantile(ratios, [tail, 1 - tail]) * measured_ns
    return {
        "predicted_ns": measured_ns * (after.sum() / max(before.sum(), 1)),
        "low_ns": low,
        "high_ns": high,
    }


# What the end of a run waited for, and what could have come later without delaying it.


def critical_path(
    events: pd.DataFrame, graph: ExecutionGraph, *, changes: Sequence[Change] = ()
) -> pd.DataFrame:
    """Follow the longest path of a graph: only what is on it can make the run shorter.

    Parameters
    ----------
    events, graph
        As for :func:`what_if`.
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
    # Points that belong to no event, such as the start, carry -1 inside.
    table["event"] = table["event"].mask(table["event"] < 0)
    return CRITICAL_PATH.of(table)


def slack(events: pd.DataFrame, graph: ExecutionGraph) -> pd.DataFrame:
    """Compute how much later each piece of GPU work could come without delaying the end.

    Parameters
    ----------
    events, graph
        As for :func:`what_if`.

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
    # The longest path to the end is the longest path from the start with all edges turned round.
    backwards = LongestPath(graph.target, graph.source, len(time)).times(graph.weight_ns)
    start = graph.gpu_start
    order = start[np.argsort(time[start], kind="stable")]
    rows = events.reindex(graph.event[order])
    return SLACK.of(
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
