"""CUDA graphs whose work the profiler did not record: the GPU looks idle and is not."""

from __future__ import annotations

import numpy as np

from workbench.analyze._rows import MISSING, Ints
from workbench.analyze.perfmodel._draft import Draft
from workbench.analyze.perfmodel._rank_rows import GRAPH_LAUNCH
from workbench.analyze.perfmodel._sync_edges import queues

_KIND = "dark GPU time"


def dark_edges(draft: Draft) -> None:
    """Let what follows a graph without recorded work wait for it.

    What follows is the first work that is launched after the graph on some stream, or the next
    call that waits for the GPU; of these the one that comes latest against what the rest of the
    trace explains. The graph runs from its launch, or from the end of the work before it on
    that stream if that is later, until then.
    """
    step, cpu, points = draft.step("CUDA graphs"), draft.cpu, draft.points
    silent = np.flatnonzero(cpu.what == GRAPH_LAUNCH)
    silent = silent[~np.isin(silent, draft.gpu.call)]
    if not step.is_used or not len(silent):
        return
    silent = silent[np.argsort(cpu.start[silent], kind="stable")]
    waiting = _waiting(draft, cpu.start[silent])
    launch, waiting = silent[waiting != MISSING], waiting[waiting != MISSING]
    source = draft.first + points.starts[launch]
    before = np.full(len(waiting), MISSING)
    is_work = waiting < draft.first
    before[is_work] = draft.gpu.before[(waiting[is_work] - 1) // 2]
    end = np.where(before != MISSING, draft.gpu.end[before], 0)
    behind = end > draft.time[source]
    dark = draft.time[waiting] - np.where(behind, end, draft.time[source])
    draft.add(source, waiting, dark, _KIND, inferred=True)
    draft.add(draft.starts[before[behind]] + 1, waiting[behind], dark[behind], _KIND, inferred=True)
    step.notes.append(
        f"{len(silent):,} graph launches without recorded work, {dark.sum() / 1e6:.2f} ms dark"
    )


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
