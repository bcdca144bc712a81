"""How well a replay fits what was measured, and how much of it the graph explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.dark import named
from workbench.analyze._lib.intervals import measure_within, union
from workbench.analyze._lib.rows import MISSING, Ints, codes, gpu_work, required, step_numbers
from workbench.analyze._perfmodel.graph.execution_graph import GRAPH_STEPS, execution_graph
from workbench.analyze._perfmodel.graph.rank_rows import GraphRules
from workbench.analyze._perfmodel.replays.step_bounds import (
    StepBounds,
    host_steps,
    launch_times,
    step_bounds,
)
from workbench.analyze._perfmodel.timing.replay import binding_edges, replay, replayed_events
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.errors import PerformanceModelError
from workbench.tables import (
    EDGE_KINDS,
    GPU_BUSY,
    GRAPH_ABLATION,
    HELD_OUT_STEPS,
    REPLAY_FIDELITY,
    ExecutionGraph,
)

_PARTS = ("compute", "overlap", "exposed_communication", "exposed_memory", "exposed_other", "idle")
_BIN_NS = 1_000_000
WITHOUT_GRAPHS = "profile a run without CUDA graphs (no reduce-overhead, enforce_eager)"
# Limits of GraphRules, the errors they are about, and what these are of.
_LIMITS = (
    ("most_error_ratio", ("error_ratio", "span_error_ratio"), "the replayed time is"),
    ("most_breakdown_error_ratio", ("breakdown_error_ratio",), "the parts of the GPU time are"),
    ("most_step_error_ratio", ("step_error_max_ratio",), "the worst step is"),
)


def replay_fidelity(
    events: pd.DataFrame,
    graph: ExecutionGraph,
    *,
    least_explained_share: float = 0.9,
    rules: GraphRules | None = None,
) -> pd.DataFrame:
    """Compare a replay with the trace it comes from, rank by rank.

    A good total proves little: errors cancel, and a graph that kept every delay as it was would
    have none. So the parts are compared, too, and the share of explained time.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`execution_graph`.
    least_explained_share
        Below it, ``is_usable`` is false and predictions are refused.
    rules
        With the errors from which on it is false, too: ``most_error_ratio``,
        ``most_breakdown_error_ratio`` and ``most_step_error_ratio``, and the limits
        ``most_unlaunched_share`` and ``most_halved_ratio``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.REPLAY_FIDELITY`, one row per rank.

    Notes
    -----
    Errors are predicted / measured - 1, of the whole window, of the span of GPU work, and of
    the time from each ProfilerStep to the next: on the host, or as :func:`what_if` measures
    steps if that is further off. Breakdown error: the sum of the absolute
    differences of compute, overlap, exposed communication, memory and other, and idle time,
    over the measured span. Busy correlation: of the busy time per ms. Explained share: walking
    back from the start of every step to that of the one before, and from the last event, along
    what each moment waited for, 1 - unexplained time / window. Calls that block are unexplained
    if the step was dropped that would give them a cause. Halved ratio: if all work and all of the
    host take half of their time, so does a graph that explains its time; launches and gaps between
    work keep theirs. A graph is usable if enough is explained and launched, that ratio is near 0.5,
    and the replay is near enough in all three: the time of the whole and of the GPU work, the parts
    of it, and the worst step.
    """
    rules = rules or GraphRules()
    time, half = replay(graph), replay(graph, weight_ns=_halved(graph))
    moved = replayed_events(events, graph, time)
    rows = []
    for rank in np.unique(graph.point_rank[graph.point_rank >= 0]).tolist():
        is_rank = events["rank"].to_numpy() == rank
        before, after = events[is_rank], moved[is_rank]
        steps = _step_errors(before, after, step_bounds(before, graph, rank), (graph.time_ns, time))
        rows.append(
            {"rank": rank, **_compared(before, after, steps), **_walked(before, graph, rank)}
            | {"unlaunched_share": _unlaunched(graph, rank)}
            | {
                "halved_ratio": half[graph.point_rank == rank].max()
                / max(int(time[graph.point_rank == rank].max()), 1)
            }
        )
    table = pd.DataFrame(rows)
    kinds = graph.build.set_index("step")
    # Dropped edges are counted per step of the builder, not per rank.
    table["left_out_count"] = int(kinds["left_out_count"].sum())
    records = table.to_dict("records")
    failed = [limits_failed(row, least_explained_share, rules) for row in records]
    has_graphs = bool(named(events, "GraphLaunch")[codes(events["name"])].any())
    table["is_usable"] = [not limits for limits in failed]
    table["doubt"] = [
        "; ".join([*words.values(), *_doubts(row, has_graphs=has_graphs), *graph.doubts])
        for words, row in zip(failed, records, strict=True)
    ]
    return REPLAY_FIDELITY.of(table)


# Times that neither a change of the CPU nor one of the GPU is about.
_KEPT = [EDGE_KINDS.index(kind) for kind in ("launch", "stream order", "inter-stream")]


def _halved(graph: ExecutionGraph) -> Ints:
    begins = (graph.edge_kind == EDGE_KINDS.index("trace start")) & (graph.thread[graph.target] < 0)
    kept = np.isin(graph.edge_kind, _KEPT) | begins
    return np.where(kept, graph.weight_ns, np.rint(graph.weight_ns / 2).astype(np.int64))


def _unlaunched(graph: ExecutionGraph, rank: int) -> float:
    launched = graph.target[graph.edge_kind == EDGE_KINDS.index("launch")]
    work = graph.gpu_start[graph.point_rank[graph.gpu_start] == rank]
    return 1 - float(np.isin(work, launched).mean())


def usable_graph(graph: ExecutionGraph, fidelity: pd.DataFrame) -> ExecutionGraph:
    """Return a graph whose replay can be trusted, and refuse any other.

    A critical path or slack of a graph that does not know why its trace took the time it took looks
    as exact as that of one that does. Nothing should be read from a graph that does not pass here.

    Parameters
    ----------
    graph
        From :func:`execution_graph`.
    fidelity
        From :func:`replay_fidelity` of this graph.

    Returns
    -------
    ExecutionGraph
        The same graph.

    Raises
    ------
    PerformanceModelError
        If the replay of a rank is not usable, or if there is no replay.
    """
    refused = REPLAY_FIDELITY.check(fidelity).query("not is_usable")
    if refused.empty and len(fidelity):
        return graph
    if fidelity.empty:
        msg = "the graph is refused: no rank was replayed; load a trace with GPU work"
        raise PerformanceModelError(msg)
    first = refused.iloc[0]
    more = f" (and {len(refused) - 1:,} more ranks)" if len(refused) > 1 else ""
    msg = f"the graph is refused, rank {first['rank']}{more}: {first['doubt']}"
    raise PerformanceModelError(msg)


def graph_ablation(
    events: pd.DataFrame,
    *,
    without: Iterable[str | Sequence[str]] = (*GRAPH_STEPS, ("inter-stream", "residual")),
    rules: GraphRules | None = None,
) -> pd.DataFrame:
    """Build the graph again without one step or several, to see what each is worth.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    without
        Steps to leave out, one case after the other; a case can be several steps.
    rules
        As for :func:`execution_graph`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GRAPH_ABLATION`: ``without`` (empty for the whole graph)
        and the columns of :data:`workbench.tables.REPLAY_FIDELITY`.
    """
    cases = [
        (),
        *(
            (case_steps,) if isinstance(case_steps, str) else tuple(case_steps)
            for case_steps in without
        ),
    ]
    tables = []
    for case in cases:
        graph = execution_graph(events, without=case, rules=rules)
        tables.append(replay_fidelity(events, graph).assign(without=", ".join(case)))
    return GRAPH_ABLATION.of(pd.concat(tables, ignore_index=True))


def _compared(before: pd.DataFrame, after: pd.DataFrame, steps: np.ndarray) -> dict[str, Any]:
    window, new_window = (_window(table) for table in (before, after))
    old, new = (time_breakdown(table).iloc[0] for table in (before, after))
    span = int(old["span_ns"])
    # L1 of the parts: errors of opposite sign cancel in the total, not here.
    error = sum(abs(int(old[f"{name}_ns"]) - int(new[f"{name}_ns"])) for name in _PARTS) / max(
        span, 1
    )
    return {
        "window_ns": window,
        "replayed_ns": new_window,
        "error_ratio": new_window / max(window, 1) - 1,
        "span_error_ratio": int(new["span_ns"]) / max(span, 1) - 1,
        "step_count": len(steps) + 1 if len(steps) else len(step_times(before)),
        "step_error_mean_ratio": np.abs(steps).mean() if len(steps) else None,
        "step_error_max_ratio": np.abs(steps).max() if len(steps) else None,
        "breakdown_error_ratio": error,
        "busy_correlation": _busy_correlation(before, after),
    }


def _window(events: pd.DataFrame) -> int:
    """Return the time from the first to the last GPU work or CPU row [ns]."""
    names = events["category"].astype(str)
    on_cpu = names.str.endswith(("_runtime", "_driver")) | (names == "cpu_op")
    used = (events["kind"].notna() | on_cpu).to_numpy() & (step_numbers(events) == MISSING)
    start = events["start_ns"].to_numpy()[used]
    end = start + events["dur_ns"].to_numpy()[used]
    return int(end.max() - start.min())


def _step_errors(
    before: pd.DataFrame, after: pd.DataFrame, bounds: StepBounds, times: tuple[Ints, Ints]
) -> np.ndarray:
    """Return the error of every step: on the host, or with its GPU work if that is further off."""
    old, new = (
        step_times(table)["start_ns"].dropna().to_numpy("int64") for table in (before, after)
    )
    if len(old) < 2:
        return np.zeros(0)
    errors = _relative(np.diff(new), np.diff(old))
    measured, replayed = (np.diff(bounds.times(time)) for time in times)
    behind = _relative(replayed, measured)
    if len(behind) != len(errors):
        return errors
    return np.where(np.abs(behind) > np.abs(errors), behind, errors)


def _relative(new: Ints, old: Ints) -> NDArray[np.float64]:
    # A step that took no time, as its work ended before that of the step before, has no ratio.
    return np.where(old > 0, new / np.maximum(old, 1) - 1, 0.0)


def _busy_correlation(before: pd.DataFrame, after: pd.DataFrame) -> float | None:
    works = [gpu_work(table) for table in (before, after)]
    first = min(int(work.start.min()) for work in works)
    last = max(int(work.end.max()) for work in works)
    edges = np.arange(first, last + _BIN_NS, _BIN_NS)
    # A correlation of fewer bins says nothing.
    if len(edges) < 4:
        return None
    curves = [
        np.asarray(measure_within(*union(work.start, work.end), edges[:-1], edges[1:]), dtype=float)
        for work in works
    ]
    if min(curve.std() for curve in curves) == 0:
        return None
    return float(np.corrcoef(curves[0], curves[1])[0, 1])


def _walked(events: pd.DataFrame, graph: ExecutionGraph, rank: int) -> dict[str, Any]:
    """Walk back from every step's start, and the last point, along what it waited for."""
    points = np.flatnonzero(graph.point_rank == rank)
    time = graph.time_ns
    last = int(points[np.argmax(time[points])])
    stops = [*host_steps(events, graph, rank).first[1:].tolist(), last]
    begin = int(time[points].min())
    walks = [
        _between(graph, stop, int(time[before]) if before is not None else begin)
        for before, stop in zip([None, *stops], stops, strict=False)
    ]
    path = np.concatenate(walks)
    window = int(time[last]) - begin
    # Keeping every residual as a weight would make any graph exact; so they are counted instead.
    late = time[graph.target[path]] - time[graph.source[path]]
    blocked = (graph.edge_kind[path] == EDGE_KINDS.index("call")) & (
        graph.weight_ns[path] > _longest_call(graph)
    )
    residual = np.where(blocked, late, np.maximum(late - graph.weight_ns[path], 0))
    unexplained = min(int(residual.sum()), window)

    def spent(chosen: np.ndarray) -> int:
        return int(graph.weight_ns[path][chosen].sum())

    kind = graph.edge_kind[path]
    return {
        "explained_share": 1 - unexplained / max(window, 1),
        "unexplained_ns": unexplained,
        "gap_share": min(spent(kind == EDGE_KINDS.index("gap")) / max(window, 1), 1.0),
        "inferred_share": min(spent(graph.is_inferred[path]) / max(window, 1), 1.0),
        "dark_ns": spent(kind == EDGE_KINDS.index("dark GPU time")),
        "point_count": len(points),
        "edge_count": int((graph.point_rank[graph.target] == rank).sum()),
    }


def _between(graph: ExecutionGraph, last: int, begin: int) -> Ints:
    """Return the part of the path to a point that lies after a moment."""
    path = binding_edges(graph, graph.time_ns, last, begin=begin)
    return path[graph.time_ns[graph.target[path]] > begin]


def _longest_call(graph: ExecutionGraph) -> int:
    """Return the longest time of a call on the CPU that needs no cause [ns]."""
    used = graph.build.set_index("step")["is_used"]
    rules = GraphRules()
    if not used["synchronise"]:
        return rules.sync_ns
    # With both steps in use every wait has its cause, so none is too long.
    return rules.blocked_launch_ns if not used["queue limit"] else 1 << 62


def limits_failed(row: Mapping[Any, Any], least: float, rules: GraphRules) -> dict[str, str]:
    """Return the limits that make a graph unusable: the name of each limit, and why."""
    failed = {}
    if row["explained_share"] < least:
        failed["least_explained_share"] = (
            f"{1 - row['explained_share']:.0%} of the time is unexplained (at most {1 - least:.0%})"
        )
    if row["unlaunched_share"] > rules.most_unlaunched_share:
        failed["most_unlaunched_share"] = (
            f"the trace has no launch of {100 * row['unlaunched_share']:.0f} % of the GPU work (at "
            f"most {100 * rules.most_unlaunched_share:g} %), so a replay does not know when it "
            "could have begun; record runtime calls too"
        )
    if row["halved_ratio"] > rules.most_halved_ratio:
        failed["most_halved_ratio"] = (
            f"half the time for everything gives {row['halved_ratio']:.2f} of the time, not 0.5 "
            f"(at most {rules.most_halved_ratio:g}): much of it has no cause in the trace"
        )
    for name, columns, subject in _LIMITS:
        errors = [row[column] for column in columns if not pd.isna(row[column])]
        worst = max(errors, key=abs, default=0.0)
        if abs(worst) > getattr(rules, name):
            size = f"{worst:+.1%}" if name == "most_error_ratio" else f"{worst:.1%}"
            failed[name] = f"{subject} {size} off (at most {getattr(rules, name):.0%})"
    return failed


def _doubts(row: Mapping[Any, Any], *, has_graphs: bool) -> list[str]:
    doubts = []
    if row["dark_ns"]:
        doubts.append(
            f"{row['dark_ns'] / 1e6:.1f} ms of GPU work were not recorded, "
            f"{row['dark_ns'] / max(row['window_ns'], 1):.0%} of the window; they "
            + (f"are of CUDA graphs and keep their time: {WITHOUT_GRAPHS}" if has_graphs
               else "keep their time")
        )  # fmt: skip
    if row["step_count"] < 2:
        doubts.append("fewer than two steps, so their variation is unknown")
    return doubts


_MOST_BINS = 10_000_000


def gpu_busy(events: pd.DataFrame, *, bin_ns: int = 1_000_000) -> pd.DataFrame:
    """Measure the busy share of the GPU in equal bins of time.

    A replay (:func:`replayed_events`) that has the right total can still place the work
    wrongly; the two curves side by side show where.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, measured or replayed.
    bin_ns
        Width of the bins [ns].

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GPU_BUSY`: ``rank``, ``start_ns``, ``busy_share``. All
        ranks have the same bins, from the first GPU work of any to the last.

    Raises
    ------
    PerformanceModelError
        If the bin width is not positive, or too narrow for so long a trace.
    WorkbenchError
        If there is no GPU work.

    Notes
    -----
    Busy share of a bin: time in it that at least one piece of GPU work covers / ``bin_ns``.
    Bins begin at multiples of ``bin_ns``, so that those of two traces on one clock agree.
    """
    work = required(gpu_work(events), events, "busy time")
    if bin_ns <= 0:
        msg = f"bin_ns={bin_ns}: give a width above 0, e.g. 1_000_000 for a millisecond"
        raise PerformanceModelError(msg)
    # Whole multiples of the width: two traces on one clock share their bins.
    first, last = int(work.start.min()) // bin_ns, -(-int(work.end.max()) // bin_ns)
    ranks = np.unique(work.rank)
    if (count := max(last - first, 1)) * len(ranks) > _MOST_BINS:
        msg = f"bin_ns={bin_ns}: {count:,} bins on {len(ranks)} ranks are too many; widen them"
        raise PerformanceModelError(msg)
    starts = (first + np.arange(count, dtype=np.int64)) * bin_ns
    tables = []
    for rank in ranks.tolist():
        is_rank = work.rank == rank
        busy = measure_within(
            *union(work.start[is_rank], work.end[is_rank]), starts, starts + bin_ns
        )
        tables.append(pd.DataFrame({"rank": rank, "start_ns": starts, "busy_share": busy / bin_ns}))
    return GPU_BUSY.of(pd.concat(tables, ignore_index=True))


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
    position = _places(events, graph, step)
    # Waits and orders have no time of their own to replace.
    varying = np.isin(graph.edge_kind, [EDGE_KINDS.index(kind) for kind in _VARYING])
    weight = graph.weight_ns.astype(float)
    count = len(starts)
    size = int(position.max()) + 1
    sums, counts = np.zeros((2, count + 1, size))
    np.add.at(sums, (step[varying], position[varying]), weight[varying])
    np.add.at(counts, (step[varying], position[varying]), 1)
    measured = bounds.durations()
    before_first = measured - np.diff(bounds.times(time))
    rows = []
    for number in range(1, count):
        is_other = np.arange(1, count) != number
        total, times = sums[1:count][is_other].sum(0), counts[1:count][is_other].sum(0)
        edges = np.flatnonzero(varying & (step == number))
        replaceable = edges[times[position[edges]] > 0]
        changed = weight.copy()
        changed[replaceable] = total[position[replaceable]] / times[position[replaceable]]
        again = bounds.times(replay(graph, weight_ns=np.rint(changed).astype(np.int64)))
        rows.append(
            {
                "step": bounds.number[number - 1],
                "measured_ns": measured[number - 1],
                "predicted_ns": again[number] - again[number - 1] + before_first[number - 1],
                "naive_ns": np.delete(measured, number - 1).mean(),
                "known_share": weight[replaceable].sum() / max(weight[edges].sum(), 1),
            }
        )
    table = pd.DataFrame(rows)
    table["error_ratio"] = table["predicted_ns"] / table["measured_ns"] - 1
    table["naive_error_ratio"] = table["naive_ns"] / table["measured_ns"] - 1
    return HELD_OUT_STEPS.of(table.round({"naive_ns": 0}))


def _bounds(events: pd.DataFrame, graph: ExecutionGraph) -> StepBounds:
    if events["rank"].nunique() != 1:
        msg = f"the events are of {events['rank'].nunique()} ranks; hold out steps of one at a time"
        raise PerformanceModelError(msg)
    bounds = step_bounds(events, graph)
    if len(bounds.number) < 3:
        msg = f"{len(bounds.number)} ProfilerSteps: to hold one out, record three or more "
        raise PerformanceModelError(msg + "(torch.profiler.schedule, and step() in the loop)")
    return bounds


def _places(events: pd.DataFrame, graph: ExecutionGraph, step: Ints) -> Ints:
    """Enumerate every position of an edge in a step, the same in every step."""
    codes = np.append(events["name"].cat.codes.to_numpy(dtype=np.int64), MISSING)
    name = codes[events.index.get_indexer(pd.Index(graph.event))]
    stream = np.append(events["stream"].array.to_numpy(dtype="int64", na_value=MISSING), MISSING)
    of_point = stream[events.index.get_indexer(pd.Index(graph.event))]
    # Threads below -1, streams from 0: one number for both without a clash.
    lane = np.where(graph.thread >= 0, -2 - graph.thread, of_point)
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
    # Numbered by time, so that the n-th of a kind in one step is the n-th in the others.
    order = np.argsort(graph.time_ns[graph.target], kind="stable")
    number = np.empty(len(frame), dtype=np.int64)
    number[order] = frame.iloc[order].groupby(list(keys)).cumcount().to_numpy()
    frame["number"] = number
    same = [name for name in frame if name != "step"]
    position: Ints = frame.groupby(same).ngroup().to_numpy().astype(np.int64)
    return position
