"""Edges from GPU work to the calls that wait for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.analyze._lib.dark import tails
from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.draft import Draft
from workbench.analyze._perfmodel.graph.rank_rows import (
    COPY,
    DEVICE_SYNC,
    EVENT_SYNC,
    GRAPH_LAUNCH,
    STREAM_SYNC,
    RankRows,
)

_NEVER = np.iinfo(np.int64).min


class Queue(NamedTuple):
    """Work of one stream, in order."""

    work: Ints
    launched: Ints
    end: Ints

    def last_before(self, moment: Ints) -> Ints:
        """Return the last work launched before each moment; -1 if there is none."""
        position = np.searchsorted(self.launched, moment, side="right") - 1
        return np.where(position >= 0, self.work[position], MISSING)

    def last_ended(self, moment: Ints, by: Ints) -> Ints:
        """Return the last work launched before `moment` that had ended `by` then; -1 if none."""
        position = np.minimum(
            np.searchsorted(self.launched, moment, side="right"),
            np.searchsorted(self.end, by, side="right"),
        )
        return np.where(position > 0, self.work[position - 1], MISSING)


def queues(rows: RankRows) -> list[Queue]:
    """Gather the work of every stream.

    Work without a launch in the trace was launched no earlier than what is before it on its
    stream; without such, before the trace began.
    """
    gpu = rows.gpu
    by_stream = []
    for stream in range(len(rows.streams)):
        work = np.flatnonzero(gpu.stream == stream)
        launched = np.append(rows.cpu.start, _NEVER)[gpu.call[work]]
        launched = np.maximum.accumulate(launched)
        by_stream.append(Queue(work, launched, np.maximum.accumulate(gpu.end[work])))
    return by_stream


def sync_edges(draft: Draft) -> None:
    """Let calls that wait for the GPU end when the work they wait for has.

    A wait for the device is for every stream. Waits for a stream or an event are read from
    ``cuda_sync`` records; without one the last launched work of all streams that ends last
    before the call does is taken for the cause.
    """
    step = draft.step("synchronise")
    if not step.is_used:
        return
    cpu, gpu, points, every = draft.cpu, draft.gpu, draft.points, queues(draft.rows)
    waits = points.ends != points.starts
    device = np.flatnonzero(waits & (cpu.effect == DEVICE_SYNC))
    for queue in every:
        _wait(draft, queue.last_before(cpu.start[device]), device)
    # A blocking copy (pageable memory, or to the host) waits for itself, not for the device.
    copies = np.flatnonzero(np.isin(gpu.call, np.flatnonzero(waits & (cpu.effect == COPY))))
    _wait(draft, copies, gpu.call[copies])
    # Waits for a stream or an event name it only in a cuda_sync record.
    narrow = np.flatnonzero(waits & np.isin(cpu.effect, (STREAM_SYNC, EVENT_SYNC)))
    recorded = np.array(
        [_told_stream(draft.rows, call) for call in narrow.tolist()], dtype=np.int64
    )
    for number, queue in enumerate(every):
        calls = narrow[recorded == number]
        _wait(draft, queue.last_before(cpu.start[calls]), calls)
    untold = narrow[recorded == MISSING]
    _wait(draft, _latest_ending(draft, every, untold), untold, inferred=True)


def _wait(draft: Draft, work: Ints, call: Ints, *, inferred: bool = False) -> None:
    has = work != MISSING
    work, call = work[has], call[has]
    # Work that ends well after the call was not waited for, whatever the record says.
    fits = draft.gpu.end[work] <= draft.cpu.end[call] + draft.rules.clash_ns
    draft.steps[-1].left_out += int((~fits).sum())
    end = draft.first + draft.points.ends[call[fits]]
    draft.add(draft.starts[work[fits]] + 1, end, 0, "synchronise", inferred=inferred)


def _told_stream(rows: RankRows, call: int) -> int:
    """Return the number of the stream that the trace says a call waits for; -1 if it does not."""
    record = rows.sync_records.get(int(rows.cpu.correlation[call]))
    if record is None:
        return MISSING
    # An event was recorded on another stream than the one the call names: wait_on_stream.
    is_event = rows.cpu.effect[call] == EVENT_SYNC
    return rows.number_of(
        record.wait_stream if is_event and record.wait_stream >= 0 else record.stream
    )


def _latest_ending(draft: Draft, every: list[Queue], call: Ints) -> Ints:
    begin, end = draft.cpu.start[call], draft.cpu.end[call]
    best, best_end = np.full(len(call), MISSING), np.full(len(call), _NEVER)
    for queue in every:
        work = queue.last_before(begin)
        ended = np.where(work != MISSING, draft.gpu.end[work], _NEVER)
        better = (ended <= end + draft.rules.jitter_ns) & (ended > best_end)
        best, best_end = np.where(better, work, best), np.where(better, ended, best_end)
    return np.where(best_end > begin, best, MISSING)


# CUDA graphs whose work the profiler did not record: the GPU looks idle and is not.

_KIND = "dark GPU time"


def dark_edges(draft: Draft) -> None:
    """Let what follows work of a graph that was not recorded wait for it.

    Of a graph without any recorded work, what follows is the first work that is launched after
    it on some stream, or the next call that waits for the GPU; of these the one that comes
    latest against what the rest of the trace explains. The graph runs from its launch, or from
    the end of the work before it on that stream if that is later, until then. A graph of which
    only some work was recorded leaves holes before and between this work, and after it.
    """
    step, cpu = draft.step("CUDA graphs"), draft.cpu
    graphs = np.flatnonzero(cpu.effect == GRAPH_LAUNCH)
    if not step.is_used:
        return
    graphs = graphs[np.argsort(cpu.start[graphs], kind="stable")]
    _outlasting(draft)
    if not len(graphs):
        return
    # Kernels of a graph share the correlation of its one launch, if they were recorded at all.
    is_silent = ~np.isin(graphs, draft.gpu.call)
    waiting = _waiting(draft, cpu.start[graphs])
    _silent_graphs(draft, graphs[is_silent], waiting[is_silent])
    _holes(draft, graphs[~is_silent], waiting[~is_silent])


def _outlasting(draft: Draft) -> None:
    """Let calls that outlast all recorded work wait for other work, where no graph ran."""
    gpu, cpu, points = draft.gpu, draft.cpu, draft.points
    calls = np.flatnonzero(np.isin(cpu.effect, (DEVICE_SYNC, STREAM_SYNC, EVENT_SYNC)))
    is_graph = cpu.effect == GRAPH_LAUNCH
    is_silent = cpu.launches & ~np.isin(np.arange(len(cpu.row)), gpu.call)
    launches = np.flatnonzero(is_graph | is_silent)
    launches = launches[np.argsort(cpu.start[launches], kind="stable")]
    at, begin, end, of_graph = tails(
        (cpu.start[calls], cpu.end[calls]), (gpu.start, np.maximum.accumulate(gpu.end)),
        (cpu.start[launches], is_graph[launches]),
    )  # fmt: skip
    call, dark = calls[at][~of_graph], (end - begin)[~of_graph]
    if not len(call):
        return
    last = _last_ended(draft, begin[~of_graph])
    is_behind = gpu.end[last] > cpu.start[call]
    source = np.where(is_behind, draft.starts[last] + 1, draft.first + points.starts[call])
    draft.add(source, draft.first + points.ends[call], dark, _KIND, inferred=True)
    draft.steps[-1].notes.append(
        f"{len(call):,} waits longer than for recorded work, {dark.sum() / 1e6:.2f} ms dark"
    )


def _last_ended(draft: Draft, moment: Ints) -> Ints:
    """Return the work that ended last by each moment; -1 if there is none."""
    by_end = np.argsort(draft.gpu.end, kind="stable")
    at = np.searchsorted(draft.gpu.end[by_end], moment, side="right")
    return np.append(MISSING, by_end)[at]


def _silent_graphs(draft: Draft, silent: Ints, waiting: Ints) -> None:
    if not len(silent):
        return
    launch, waiting = silent[waiting != MISSING], waiting[waiting != MISSING]
    source = draft.first + draft.points.starts[launch]
    before = np.full(len(waiting), MISSING)
    is_work = waiting < draft.first
    before[is_work] = draft.gpu.before[(waiting[is_work] - 1) // 2]
    # A call waits for the graph and for what was launched before; the graph runs after that.
    before[~is_work] = _last_ended(draft, draft.time[waiting[~is_work]])
    end = np.where(before != MISSING, draft.gpu.end[before], 0)
    behind = end > draft.time[source]
    dark = draft.time[waiting] - np.where(behind, end, draft.time[source])
    draft.add(source, waiting, dark, _KIND, inferred=True)
    draft.add(draft.starts[before[behind]] + 1, waiting[behind], dark[behind], _KIND, inferred=True)
    draft.steps[-1].notes.append(
        f"{len(silent):,} graph launches without recorded work, {dark.sum() / 1e6:.2f} ms dark"
    )


def _holes(draft: Draft, graphs: Ints, waiting: Ints) -> None:
    """Add edges for graphs of which some work was recorded and some was not.

    A hole is time in which no stream has work, though what ends it was launched before and
    waited for nothing that is known.
    """
    gpu = draft.gpu
    if not len(graphs):
        return
    work = np.flatnonzero(np.isin(gpu.call, graphs))
    # What ran before on the stream may be of an earlier launch; then the graph begins the hole.
    before = gpu.before[work]
    is_behind = (before != MISSING) & (gpu.end[before] > draft.issued[work])
    source = np.where(is_behind, draft.starts[before] + 1, draft.launch[work])
    last = np.full(len(draft.cpu.row), MISSING)
    by_end = work[np.argsort(gpu.end[work], kind="stable")]
    last[gpu.call[by_end]] = by_end
    follows = waiting != MISSING
    source = np.append(source, draft.starts[last[graphs[follows]]] + 1)
    target = np.append(draft.starts[work], waiting[follows])
    least = draft.rules.least_dark_ns
    is_hole = (draft.residual()[target] >= least) & (_idle_before(draft, target) >= least)
    is_hole &= draft.time[source] < draft.time[target]
    source, target = source[is_hole], target[is_hole]
    if not len(target):
        return
    dark = draft.time[target] - draft.time[source]
    draft.add(source, target, dark, _KIND, inferred=True)
    draft.steps[-1].notes.append(
        f"{len(target):,} holes in graphs of which only some work was recorded, "
        f"{dark.sum() / 1e6:.2f} ms dark"
    )


def _idle_before(draft: Draft, point: Ints) -> Ints:
    """Return how long no stream has had any work when some points come [ns]."""
    start, end = draft.gpu.start, np.maximum.accumulate(draft.gpu.end)
    moment = draft.time[point]
    position = np.searchsorted(start, moment) - 1
    ended = np.where(position >= 0, end[position], 0)
    return moment - np.minimum(ended, moment)


def _waiting(draft: Draft, launched: Ints) -> Ints:
    """Return the point that waits for the graph of each launch; -1 if there is none."""
    residual = draft.residual()
    points = draft.points
    ends = np.flatnonzero(points.ends != points.starts)
    ends = ends[np.argsort(points.time[points.ends[ends]], kind="stable")]
    calls = (draft.cpu.start[ends], draft.first + points.ends[ends])
    work = [(queue.launched, draft.starts[queue.work]) for queue in queues(draft.rows)]
    best = np.full(len(launched), MISSING)
    least = np.full(len(launched), draft.rules.least_dark_ns - 1)
    for moment, point in [*work, calls]:
        position = np.searchsorted(np.maximum.accumulate(moment), launched, side="right")
        follows = np.append(point, MISSING)[position]
        # What follows several launches follows the last of them.
        is_last = np.append(position[1:] != position[:-1], True) & (follows != MISSING)
        late = np.where(is_last, residual[follows], MISSING)
        best = np.where(late > least, follows, best)
        least = np.maximum(least, late)
    return best
