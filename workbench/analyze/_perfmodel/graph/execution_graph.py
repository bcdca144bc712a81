"""The execution graph of a trace: what had to wait for what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, Ints, checked, gpu_work, required
from workbench.analyze._perfmodel.graph.collective_edges import with_collectives
from workbench.analyze._perfmodel.graph.draft import Draft, Step, build_table
from workbench.analyze._perfmodel.graph.gpu_edges import (
    lasting_calls,
    launch_edges,
    queue_edges,
    queue_limit,
    residual_edges,
    stream_edges,
    stream_waits,
)
from workbench.analyze._perfmodel.graph.host_edges import host_edges, polling_doubts
from workbench.analyze._perfmodel.graph.rank_rows import (
    COPY,
    EVENT_RECORD,
    EVENT_SYNC,
    GRAPH_LAUNCH,
    PLAIN,
    STREAM_WAIT,
    GraphRules,
    RankRows,
    cpu_points,
    rank_rows,
)
from workbench.analyze._perfmodel.graph.sync_edges import dark_edges, sync_edges
from workbench.analyze._perfmodel.timing.longest_path import LongestPath
from workbench.analyze._perfmodel.timing.replay import keep_path
from workbench.errors import PerformanceModelError
from workbench.tables import COLLECTIVES, EDGE_KINDS, GRAPH_BUILD, POINT_KINDS, ExecutionGraph

GRAPH_STEPS = (
    "inter-thread", "gaps", "launch", "stream order", "queue limit", "synchronise", "inter-stream",
    "CUDA graphs", "residual",
)  # fmt: skip
_COLUMNS = ("category", "process", "thread", "correlation")


def execution_graph(
    events: pd.DataFrame,
    *,
    collectives: pd.DataFrame | None = None,
    without: Iterable[str] = (),
    rules: GraphRules | None = None,
) -> ExecutionGraph:
    """Build the graph of what had to wait for what.

    Points are the starts and ends of GPU work and the moments on the CPU that something
    depends on; edges say that a point is not before another one plus a weight. Weights are
    measured: the time of the work itself, of the CPU between two calls, of a launch.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`, of one rank or several. Several ranks must be on
        one clock (:func:`workbench.analyze.align_clocks`).
    collectives
        Table :data:`workbench.tables.COLLECTIVES` of these events. With it, ranks wait for each
        other in the collectives that were matched; without it each rank stands for itself, and
        its communication keeps its measured time.
    without
        Steps to leave out, of :data:`workbench.analyze.GRAPH_STEPS`, to see what they are worth.
    rules
        Times and counts from which the steps conclude.

    Returns
    -------
    workbench.tables.ExecutionGraph
        The graph. ``build`` states for every step how many edges it read, guessed and dropped.

    Raises
    ------
    WorkbenchError
        If there is no GPU work.
    PerformanceModelError
        If a step to leave out is unknown, row labels occur twice, or the ranks of the
        collectives were not measured on one clock.

    Notes
    -----
    Steps: the CPU along each thread, gaps included; *inter-thread* waits for what another
    thread ended in a long gap; *launch* with its latency; *stream order*; the *queue limit* of
    the driver (launches wait for room); what calls *synchronise* with; *inter-stream* waits,
    read from ``cuda_sync`` records or guessed; *CUDA graphs*, whose work hangs on one launch or
    was not recorded at all; and *residual*: work that began late, just as other work ended.
    Last, edges that make points wait for each other in a *circle*, as wrong records and clocks
    do, are dropped, those first that point back in time.

    A gap of the CPU in which communication runs, and that ends as it ends, may be a host that
    polls: all time in it that the GPU is busy. Such gaps are counted in ``build``; where they are
    a tenth of the critical path the graph is in doubt, and unreliable where they are most of it
    and the GPU is busy as long. It is unreliable as well where the GPU is busy for more than
    ``co_critical_busy_share`` of the window while gaps of any kind are more than
    ``co_critical_gap_share`` of the critical path.

    References
    ----------
    Lumos, arXiv:2504.09307, section 3 (kinds of dependencies). The other steps are not in it.
    """
    checked(events, "rank", "start_ns", "dur_ns", "name", *_COLUMNS)
    _labelled(events)
    left_out = frozenset([without] if isinstance(without, str) else without)
    if unknown := sorted(left_out - set(GRAPH_STEPS)):
        msg = f"without={unknown[0]!r}: there is no such step, only {', '.join(GRAPH_STEPS)}"
        raise PerformanceModelError(msg)
    work = required(gpu_work(events), events, "execution graph")
    rules = rules or GraphRules()
    steps: list[Step] = []
    arrays: list[dict[str, Any]] = []
    doubts = step_doubts(events)
    for rank in np.unique(work.rank).tolist():
        rows = rank_rows(events, rank, left_out)
        draft = _draft(rows, left_out, rules)
        steps += draft.steps
        arrays.append(_arrays(draft, rank))
        doubts += [f"rank {rank}: {doubt}" for doubt in rank_doubts(events, rows, rules)]
    graph = _joined(arrays, events)
    if collectives is not None:
        steps.append(Step("collectives", is_used=True))
        matched = COLLECTIVES.check(collectives)
        graph, collective_doubts = with_collectives(graph, matched, steps[-1], rules.jitter_ns)
        doubts += collective_doubts
    return _finished(graph, events, steps, doubts, rules)


def _labelled(events: pd.DataFrame) -> None:
    """Refuse row labels by which no event could be found again."""
    if events.index.dtype.kind not in "iu" or not events.index.is_unique:
        msg = "the row labels of the events must be whole numbers, each once: after concat or a "
        msg += "change of the index, load the ranks together (load.traces takes several files)"
        raise PerformanceModelError(msg)


def _draft(rows: RankRows, without: frozenset[str], rules: GraphRules) -> Draft:
    gpu, cpu = rows.gpu, rows.cpu
    # A point per launch, even without a wait: what it launched hangs on it.
    launching = np.zeros(len(cpu.row), dtype=bool)
    launching[gpu.call[gpu.call != MISSING]] = True
    limit = queue_limit(gpu, cpu, rules)
    blocking = (cpu.effect == COPY) & launching & (cpu.end - cpu.start > rules.blocking_copy_ns)
    waits = ((cpu.effect > PLAIN) & (cpu.effect <= EVENT_SYNC)) | blocking
    if limit:
        waits |= launching & (cpu.effect != COPY)
    lasting = lasting_calls(gpu, cpu, limit, rules)
    waits |= lasting
    anchors = launching | np.isin(cpu.effect, (STREAM_WAIT, EVENT_RECORD, GRAPH_LAUNCH))
    draft = Draft(rows, cpu_points(cpu, anchors, waits), rules, without, lasting)
    # The order matters: waits and residuals are measured against the edges added so far.
    draft.step("GPU work")
    draft.add(draft.starts, draft.starts + 1, gpu.end - gpu.start, "GPU work")
    host_edges(draft)
    launch_edges(draft)
    stream_edges(draft)
    queue_edges(draft, limit)
    sync_edges(draft)
    stream_waits(draft)
    dark_edges(draft)
    residual_edges(draft)
    return draft


def _arrays(draft: Draft, rank: int) -> dict[str, Any]:
    gpu, points = draft.gpu, draft.points
    pair = [POINT_KINDS.index("GPU start"), POINT_KINDS.index("GPU end")]
    return {
        "time_ns": draft.time,
        "point_rank": np.append(-1, np.full(len(draft.time) - 1, rank)),
        "point_kind": np.concatenate([[0], np.tile(pair, len(gpu.row)), points.kind]),
        "event": np.concatenate([[MISSING], np.repeat(gpu.row, 2), draft.cpu.row[points.cpu]]),
        "thread": np.concatenate([np.full(draft.first, MISSING), points.thread]),
        "gpu_start": draft.starts,
        "origin_ns": draft.rows.origin_ns,
        **draft.edges(),
    }


def _joined(ranks: list[dict[str, Any]], events: pd.DataFrame) -> ExecutionGraph:
    """Put ranks beside each other, with one start and one clock."""
    origin = min(rank["origin_ns"] for rank in ranks)
    offsets = np.cumsum([0, *(len(rank["time_ns"]) - 1 for rank in ranks)])
    threads = np.cumsum([0, *(int(rank["thread"].max(initial=0)) + 1 for rank in ranks)])

    def moved(rank: dict[str, Any], name: str, offset: int) -> Ints:
        return np.where(rank[name] == 0, 0, rank[name] + offset)

    def points(name: str) -> Ints:
        first = ranks[0][name][:1]
        return np.concatenate([first, *(rank[name][1:] for rank in ranks)])

    # Ranks keep their own start as point 0; later the common start is that of the earliest.
    for rank, thread in zip(ranks, threads, strict=False):
        shift = rank["origin_ns"] - origin
        rank["time_ns"] = rank["time_ns"] + shift
        rank["time_ns"][0] = 0
        rank["weight_ns"] = rank["weight_ns"] + np.where(rank["source"] == 0, shift, 0)
        rank["thread"] = np.where(rank["thread"] >= 0, rank["thread"] + thread, MISSING)
    arrays: dict[str, Any] = {
        name: np.concatenate([rank[name] for rank in ranks])
        for name in ("weight_ns", "edge_kind", "is_inferred")
    }
    for name in ("source", "target", "gpu_start"):
        numbers = [moved(rank, name, at) for rank, at in zip(ranks, offsets, strict=False)]
        arrays[name] = np.concatenate(numbers).astype(np.int32)
    label = np.append(events.index.to_numpy(dtype=np.int64), MISSING)
    return ExecutionGraph(
        time_ns=points("time_ns"),
        point_rank=points("point_rank").astype(np.int32),
        point_kind=points("point_kind").astype(np.int8),
        event=label[points("event")],
        thread=points("thread").astype(np.int32),
        origin_ns=origin,
        build=GRAPH_BUILD.empty(),
        **arrays,
    )


def _finished(
    graph: ExecutionGraph,
    events: pd.DataFrame,
    steps: list[Step],
    doubts: list[str],
    rules: GraphRules,
) -> ExecutionGraph:
    step = Step("circles", is_used=True)
    arrays = {name: getattr(graph, name) for name in EDGE_ARRAYS}
    arrays, path = without_circles(arrays, graph.time_ns, events["name"], graph.event, step)
    if step.left_out:
        doubts = [*doubts, f"{step.left_out:,} edges were dropped as they contradict others"]
    graph = replace(graph, **arrays)
    keep_path(graph, path)
    gaps = next(entry for entry in [*steps, step] if entry.name in {"gaps", "circles"})
    doubts = [*doubts, *polling_doubts(graph, events, rules, gaps)]
    build = build_table([*steps, step])
    # Ranks may have the same doubt: it is reported once.
    graph = replace(graph, build=build, doubts=tuple(dict.fromkeys(doubts)))
    keep_path(graph, path)
    return graph


# What holds in any trace: work ends after it starts, and threads and streams have an order.
_SURE = ("GPU work", "CPU", "gap", "call", "stream order", "trace start")
_NAMED = 3
EDGE_ARRAYS = ("source", "target", "weight_ns", "edge_kind", "is_inferred")


def without_circles(
    arrays: dict[str, Any], time: Ints, names: pd.Series, event: Ints, step: Step
) -> tuple[dict[str, Any], LongestPath]:
    """Leave out edges until nothing waits for itself, and say which.

    Only edges on a circle are dropped: first those that point back in time, then guesses
    between points of one moment, then launches that come after what they launch. ``step``
    counts them and names a few.
    """
    while True:
        path = LongestPath(arrays["source"], arrays["target"], len(time))
        if not path.circled(arrays["weight_ns"]):
            return arrays, path
        wrong = _wrong(arrays, time)
        kinds = [EDGE_KINDS[kind] for kind in np.unique(arrays["edge_kind"][wrong])]
        ends = [event[arrays[end][wrong][:_NAMED]].tolist() for end in ("source", "target")]
        examples = [
            f"{names[a]} (row {a}) > {names[b]} (row {b})" for a, b in zip(*ends, strict=True)
        ]
        step.left_out += int(wrong.sum())
        step.notes.append(f"edges of {', '.join(kinds)} contradict others: {'; '.join(examples)}")
        arrays = {name: values[~wrong] for name, values in arrays.items()}


def _wrong(arrays: dict[str, Any], time: Ints) -> NDArray[np.bool_]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    source, target = arrays["source"], arrays["target"]
    count = len(time)
    matrix = coo_array((np.ones(len(source)), (source, target)), shape=(count, count))
    # Points on a common circle are one strongly connected component.
    group = connected_components(matrix, connection="strong")[1]
    on_circle = (group[source] == group[target]) & (source != target)
    doubtful = on_circle & ~np.isin(arrays["edge_kind"], [EDGE_KINDS.index(kind) for kind in _SURE])
    launch = arrays["edge_kind"] == EDGE_KINDS.index("launch")
    back = time[source] > time[target]
    same = (time[source] == time[target]) & arrays["is_inferred"]
    # From the surest sign of an error to the weakest; one kind at a time, as few as possible.
    for chosen in (back & ~launch, same, back, ~launch):
        if (doubtful & chosen).any():
            return np.asarray(doubtful & chosen)
    msg = f"{on_circle.sum():,} edges form circles that nothing in the trace can open"
    raise PerformanceModelError(msg)


# Shares from which on a trace is in doubt.
_EARLY, _WITHOUT_WORK, _WITHOUT_LAUNCH = 0.01, 0.05, 0.2
_SHOWN = 4


def rank_doubts(events: pd.DataFrame, rows: RankRows, rules: GraphRules) -> list[str]:
    """List what is missing from, or impossible in, the trace of a rank."""
    gpu, cpu = rows.gpu, rows.cpu
    if not len(cpu.row):
        return ["nothing of the CPU is in the trace: GPU work keeps its place"]
    doubts = []
    has = gpu.call != MISSING
    early = gpu.start[has] < cpu.start[gpu.call[has]] - rules.jitter_ns
    if (share := _share(early)) > _EARLY:
        doubts.append(f"{share:.0%} of the GPU work begins before its launch: clocks are off")
    if (share := _share(~has)) > _WITHOUT_LAUNCH:
        doubts.append(f"{share:.0%} of the GPU work has no launch in the trace")
    is_launch = np.array(["LaunchKernel" in str(name) for name in events["name"].cat.categories])
    calls = np.flatnonzero(cpu.is_call & np.append(is_launch, False)[cpu.name])
    if (share := _share(~np.isin(calls, gpu.call))) > _WITHOUT_WORK:
        doubts.append(f"{share:.0%} of the kernel launches have no work on the GPU in the trace")
    return doubts


def step_doubts(events: pd.DataFrame) -> list[str]:
    if "step" not in events or events["rank"].nunique() < 2:
        return []
    pairs = events[["rank", "step"]].dropna().drop_duplicates()
    ranks = np.unique(pairs["rank"].to_numpy()).tolist()
    steps = {rank: sorted(pairs.loc[pairs["rank"] == rank, "step"]) for rank in ranks}
    if len({tuple(numbers) for numbers in steps.values()}) < 2:
        return []
    counts = [f"rank {rank}: {len(numbers)}" for rank, numbers in list(steps.items())[:_SHOWN]]
    return [f"ranks recorded different steps ({', '.join(counts)})"]


def _share(chosen: np.ndarray) -> float:
    return float(chosen.mean()) if len(chosen) else 0.0
