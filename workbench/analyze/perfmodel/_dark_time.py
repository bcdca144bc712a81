"""CUDA graphs whose work the profiler did not record: the GPU looks idle and is not."""

from __future__ import annotations

import numpy as np

from workbench.analyze._rows import MISSING
from workbench.analyze.perfmodel._draft import Draft
from workbench.analyze.perfmodel._rank_rows import GRAPH_LAUNCH


def dark_edges(draft: Draft) -> None:
    """Let calls that wait for a graph without recorded work end a measured time after its launch.

    A wait that nothing recorded explains, after such a launch, is taken for the time of the
    graph. What recurs is given its median, so that it can be predicted; what occurs once keeps
    its own.
    """
    step, cpu, points = draft.step("CUDA graphs"), draft.cpu, draft.points
    silent = np.flatnonzero(cpu.what == GRAPH_LAUNCH)
    silent = silent[~np.isin(silent, draft.gpu.call)]
    if not step.is_used or not len(silent):
        return
    silent = silent[np.argsort(cpu.start[silent], kind="stable")]
    residual = draft.residual()
    # Whatever waits for the GPU: calls on the CPU, and work that follows on any stream.
    ends = np.flatnonzero(points.ends != points.starts)
    waiting = np.concatenate([draft.first + points.ends[ends], draft.starts])
    waiting = waiting[residual[waiting] >= draft.rules.least_dark_ns]
    waiting = waiting[np.argsort(draft.time[waiting], kind="stable")]
    place = np.searchsorted(cpu.start[silent], draft.time[waiting], side="left") - 1
    # One wait per launch: the first after it.
    place, first = np.unique(place, return_index=True)
    launch, waiting = silent[place[place >= 0]], waiting[first[place >= 0]]
    source = draft.first + points.starts[launch]
    known = points.starts[launch] != MISSING
    source, waiting = source[known], waiting[known]
    lag = draft.time[waiting] - draft.time[source]
    usual = int(np.median(lag)) if len(lag) else 0
    close = np.abs(lag - usual) <= 0.2 * usual
    weight = np.where(close & (close.sum() > 1), np.minimum(usual, lag), lag)
    draft.add(source, waiting, weight, "dark GPU time", inferred=True)
    step.notes.append(
        f"{len(silent):,} graph launches without recorded work, {lag.sum() / 1e6:.2f} ms dark"
    )
