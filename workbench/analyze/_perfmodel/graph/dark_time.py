"""CUDA graphs whose work the profiler did not record: the GPU looks idle and is not."""

from __future__ import annotations

import numpy as np

from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.draft import Draft
from workbench.analyze._perfmodel.graph.rank_rows import GRAPH_LAUNCH
from workbench.analyze._perfmodel.graph.sync_edges import queues

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
    graphs = np.flatnonzero(cpu.what == GRAPH_LAUNCH)
    if not step.is_used or not len(graphs):
        return
    graphs = graphs[np.argsort(cpu.start[graphs], kind="stable")]
    is_silent = ~np.isin(graphs, draft.gpu.call)
    waiting = _waiting(draft, cpu.start[graphs])
    _silent_graphs(draft, graphs[is_silent], waiting[is_silent])
    _holes(draft, graphs[~is_silent], waiting[~is_silent])


def _silent_graphs(draft: Draft, silent: Ints, waiting: Ints) -> None:
    """Add edges for graphs without recorded work, whose launches come before some points."""
    if not len(silent):
        return
    launch, waiting = silent[waiting != MISSING], waiting[waiting != MISSING]
    source = draft.first + draft.points.starts[launch]
    before = np.full(len(waiting), MISSING)
    is_work = waiting < draft.first
    before[is_work] = draft.gpu.before[(waiting[is_work] - 1) // 2]
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
    mine = np.flatnonzero(np.isin(gpu.call, graphs))
    # What ran before on the stream may be of an earlier launch; then the graph begins the hole.
    before = gpu.before[mine]
    is_behind = (before != MISSING) & (gpu.end[before] > draft.issued[mine])
    source = np.where(is_behind, draft.starts[before] + 1, draft.launch[mine])
    last = np.full(len(draft.cpu.row), MISSING)
    by_end = mine[np.argsort(gpu.end[mine], kind="stable")]
    last[gpu.call[by_end]] = by_end
    follows = waiting != MISSING
    source = np.append(source, draft.starts[last[graphs[follows]]] + 1)
    target = np.append(draft.starts[mine], waiting[follows])
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
    """Give how long no stream has had any work when some points come [ns]."""
    start, end = draft.gpu.start, np.maximum.accumulate(draft.gpu.end)
    moment = draft.time[point]
    place = np.searchsorted(start, moment) - 1
    ended = np.where(place >= 0, end[place], 0)
    return moment - np.minimum(ended, moment)


def _waiting(draft: Draft, launched: Ints) -> Ints:
    """Give the point that waits for the graph of each launch; -1 if there is none."""
    residual = draft.residual()
    points = draft.points
    ends = np.flatnonzero(points.ends != points.starts)
    ends = ends[np.argsort(points.time[points.ends[ends]], kind="stable")]
    calls = (draft.cpu.start[ends], draft.first + points.ends[ends])
    work = [(queue.launched, draft.starts[queue.work]) for queue in queues(draft.rows)]
    best = np.full(len(launched), MISSING)
    least = np.full(len(launched), draft.rules.least_dark_ns - 1)
    for moment, point in [*work, calls]:
        place = np.searchsorted(np.maximum.accumulate(moment), launched, side="right")
        follows = np.append(point, MISSING)[place]
        # What follows several launches follows the last of them.
        is_last = np.append(place[1:] != place[:-1], True) & (follows != MISSING)
        late = np.where(is_last, residual[follows], MISSING)
        best = np.where(late > least, follows, best)
        least = np.maximum(least, late)
    return best
