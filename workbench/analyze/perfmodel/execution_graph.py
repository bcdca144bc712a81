"""The execution graph of a trace: what had to wait for what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._rows import MISSING, Ints, checked, gpu_work, required
from workbench.analyze.perfmodel._cpu_points import cpu_points
from workbench.analyze.perfmodel._dark_time import dark_edges
from workbench.analyze.perfmodel._draft import Draft, Step, build_table
from workbench.analyze.perfmodel._gpu_edges import (
    launch_edges,
    queue_edges,
    queue_limit,
    stream_edges,
)
from workbench.analyze.perfmodel._host_edges import host_edges
from workbench.analyze.perfmodel._rank_rows import (
    COPY,
    EVENT_RECORD,
    EVENT_SYNC,
    GRAPH_LAUNCH,
    PLAIN,
    STREAM_WAIT,
    RankRows,
    rank_rows,
)
from workbench.analyze.perfmodel._stream_waits import residual_edges, stream_waits
from workbench.analyze.perfmodel._sync_edges import sync_edges
from workbench.analyze.perfmodel.graph_rules import GraphRules
from workbench.errors import PerformanceModelError
from workbench.tables import COLLECTIVES, EDGE_KINDS, POINT_KINDS, ExecutionGraph

GRAPH_STEPS = (
    "inter-thread",
    "gaps",
    "launch",
    "stream order",
    "queue limit",
    "synchronise",
    "inter-stream",
    "CUDA graphs",
    "residual",
)
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
        one clock (:func:`workbench.analyze.on_one_clock`).
    collectives
        Table :data:`workbench.tables.COLLECTIVES` of these events. With it, ranks wait for each
        other in the collectives that were matched; without it each rank stands for itself, and
        its communication keeps its measured time.
    without
        Steps to leave out, of :data:`workbench.analyze.GRAPH_STEPS`, to see what they are
        worth.
    rules
        Times and counts from which the steps conclude.

    Returns
    -------
    workbench.tables.ExecutionGraph
        The graph. ``build`` tells of every step how many edges it read, guessed and left out.

    Raises
    ------
    WorkbenchError
        If there is no GPU work.
    PerformanceModelError
        If a step to leave out is unknown, or two ranks of a collective were not measured on
        one clock.

    Notes
    -----
    Steps: the CPU along each thread, gaps included; *inter-thread* waits for what another
    thread ended in a long gap; *launch* with its latency; *stream order*; the *queue limit* of
    the driver (launches wait for room); what calls *synchronise* with; *inter-stream* waits,
    read from ``cuda_sync`` records or guessed; *CUDA graphs*, whose work hangs on one launch or
    was not recorded at all; and *residual*: work that began late, just as other work ended.

    References
    ----------
    Lumos, arXiv:2504.09307, section 3 (kinds of dependencies). The other steps are not in it.
    """
    checked(events, "rank", "start_ns", "dur_ns", "name", *_COLUMNS)
    left_out = frozenset(without)
    if unknown := sorted(left_out - set(GRAPH_STEPS)):
        msg = f"without={unknown[0]!r}: there is no such step, only {', '.join(GRAPH_STEPS)}"
        raise PerformanceModelError(msg)
    work = required(gpu_work(events), events, "execution graph")
    steps: list[Step] = []
    parts: list[dict[str, Any]] = []
    origin = None
    for rank in np.unique(work.rank).tolist():
        rows = rank_rows(events, rank, left_out)
        draft = _draft(rows, left_out, rules or GraphRules())
        steps += draft.steps
        parts.append(_arrays(draft, rank))
        origin = rows.origin_ns if origin is None else min(origin, rows.origin_ns)
    graph = _joined(parts, events, origin or 0, steps)
    if collectives is not None:
        graph = _with_collectives(graph, COLLECTIVES.check(collectives), steps)
    return graph


def _draft(rows: RankRows, without: frozenset[str], rules: GraphRules) -> Draft:
    gpu, cpu = rows.gpu, rows.cpu
    launching = np.zeros(len(cpu.row), dtype=bool)
    launching[gpu.call[gpu.call != MISSING]] = True
    limit = queue_limit(gpu, cpu, rules)
    blocking = (cpu.what == COPY) & launching & (cpu.end - cpu.start > rules.blocking_copy_ns)
    waits = ((cpu.what > PLAIN) & (cpu.what <= EVENT_SYNC)) | blocking
    if limit:
        waits |= launching & (cpu.what != COPY)
    anchors = launching | np.isin(cpu.what, (STREAM_WAIT, EVENT_RECORD, GRAPH_LAUNCH))
    draft = Draft(rows, cpu_points(cpu, anchors, waits), rules, without)
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
    """Give the points and edges of a rank; its point 0 is the common start."""
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


def _joined(
    parts: list[dict[str, Any]], events: pd.DataFrame, origin: int, steps: list[Step]
) -> ExecutionGraph:
    """Put ranks beside each other, with one start and one clock."""
    offsets = np.cumsum([0, *(len(part["time_ns"]) - 1 for part in parts)])
    threads = np.cumsum([0, *(int(part["thread"].max(initial=0)) + 1 for part in parts)])

    def moved(part: dict[str, Any], name: str, offset: int) -> Ints:
        return np.where(part[name] == 0, 0, part[name] + offset)

    def points(name: str) -> Ints:
        first = parts[0][name][:1]
        return np.concatenate([first, *(part[name][1:] for part in parts)])

    for part, thread in zip(parts, threads, strict=False):
        shift = part["origin_ns"] - origin
        part["time_ns"] = part["time_ns"] + shift
        part["time_ns"][0] = 0
        part["weight_ns"] = part["weight_ns"] + np.where(part["source"] == 0, shift, 0)
        part["thread"] = np.where(part["thread"] >= 0, part["thread"] + thread, MISSING)
    arrays: dict[str, Any] = {
        name: np.concatenate(
            [moved(part, name, at) for part, at in zip(parts, offsets, strict=False)]
        ).astype(np.int32)
        for name in ("source", "target", "gpu_start")
    }
    for name in ("weight_ns", "edge_kind", "is_inferred"):
        arrays[name] = np.concatenate([part[name] for part in parts])
    label = np.append(events.index.to_numpy(dtype=np.int64), MISSING)
    return ExecutionGraph(
        time_ns=points("time_ns"),
        point_rank=points("point_rank").astype(np.int32),
        point_kind=points("point_kind").astype(np.int8),
        event=label[points("event")],
        thread=points("thread").astype(np.int32),
        origin_ns=origin,
        build=build_table(steps),
        **arrays,
    )


def _with_collectives(
    graph: ExecutionGraph, collectives: pd.DataFrame, steps: list[Step]
) -> ExecutionGraph:
    """Let the transfer of a collective begin when its last rank is there."""
    step = Step("collectives", is_used=True)
    known = collectives[collectives["transfer_ns"].notna() & (collectives["rank_count"] > 1)]
    position = pd.Index(graph.event[graph.gpu_start]).get_indexer(pd.Index(known["event"]))
    known, start = known[position >= 0], graph.gpu_start[position[position >= 0]]
    step.left_out = int(collectives["transfer_ns"].isna().sum())
    number, first = np.unique(known["collective"], return_index=True)
    ready = len(graph.time_ns) + np.searchsorted(number, known["collective"])
    latest = np.zeros(len(number), dtype=np.int64)
    np.maximum.at(latest, ready - len(graph.time_ns), graph.time_ns[start])
    transfer = known["transfer_ns"].to_numpy("int64")
    kind = EDGE_KINDS.index("collective")
    # The work itself no longer lasts as long as it did: waiting is not its own time.
    own = np.isin(graph.source, start) & (graph.edge_kind == EDGE_KINDS.index("GPU work"))
    weak = known["confidence"].isin(("low", "medium")).to_numpy()
    step.read, step.inferred = int((~weak).sum()), int(weak.sum())
    if step.left_out:
        step.notes.append("communication that was not matched keeps its measured time")

    def points(name: str, values: Any) -> Any:
        old = getattr(graph, name)
        return np.concatenate([old, np.broadcast_to(values, len(number))]).astype(old.dtype)

    def edges(name: str, arriving: Any, ending: Any) -> Any:
        old = getattr(graph, name)
        new = [np.broadcast_to(each, len(start)) for each in (arriving, ending)]
        return np.concatenate([old[~own], *new]).astype(old.dtype)

    return ExecutionGraph(
        time_ns=points("time_ns", latest),
        point_rank=points("point_rank", MISSING),
        point_kind=points("point_kind", POINT_KINDS.index("collective ready")),
        event=points("event", known["event"].to_numpy("int64")[first]),
        thread=points("thread", MISSING),
        source=edges("source", start, ready),
        target=edges("target", ready, start + 1),
        weight_ns=edges("weight_ns", 0, transfer),
        edge_kind=edges("edge_kind", kind, kind),
        is_inferred=edges("is_inferred", weak, weak),
        gpu_start=graph.gpu_start,
        origin_ns=graph.origin_ns,
        build=build_table([*steps, step]),
    )
