"""Edges of GPU work: its launch, its place on the stream, and how far launches run ahead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._lib.latency import usual_latency
from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.draft import Draft
from workbench.analyze._perfmodel.graph.rank_rows import COPY, CpuRows, GpuRows
from workbench.analyze._perfmodel.graph.rules import GraphRules

_NEVER = np.iinfo(np.int64).min


def launch_edges(draft: Draft) -> None:
    """Join launches to the GPU work that they start.

    Work that found its stream idle shows what a launch takes. Its own latency is kept unless
    it is longer than ``longest_launch_ns``: then something else held it up, and the median
    is taken, if it is not longer itself. A call that lasts long for itself launches when it ends.
    """
    step, gpu, rules = draft.step("launch"), draft.gpu, draft.rules
    has_call = draft.launch != MISSING
    before_end = np.where(gpu.before != MISSING, gpu.end[gpu.before], _NEVER)
    delay = gpu.start - draft.issued
    idle = has_call & (before_end < draft.issued)
    usual = usual_latency(
        delay[idle],
        fewest=rules.fewest_launches,
        longest_ns=rules.longest_launch_ns,
        default_ns=rules.launch_ns,
    )
    step.notes.append(f"usual launch latency {usual / 1e3:.1f} µs, of {idle.sum():,} launches")
    weight = np.full(len(gpu.row), usual)
    if step.is_used:
        bound = has_call & (before_end < draft.issued + usual)
        kept = bound & (delay <= rules.longest_launch_ns)
        weight[kept] = delay[kept]
        if count := int((bound & ~kept).sum()):
            excess = int((delay - usual)[bound & ~kept].sum())
            step.notes.append(
                f"{count:,} began later than a launch explains, {excess / 1e6:.2f} ms in all"
            )
    draft.add(draft.launch[has_call], draft.starts[has_call], weight[has_call], "launch")
    lost = ~has_call & (gpu.before == MISSING)
    begin = gpu.start[lost] if "gaps" not in draft.without else 0
    draft.add(0, draft.starts[lost], begin, "trace start")
    if count := int((~has_call).sum()):
        step.notes.append(f"{count:,} pieces of GPU work without a launch in the trace")


def stream_edges(draft: Draft) -> None:
    """Join GPU work to what runs before it on its stream.

    The usual gap is that of work which was launched well before its turn. Work without a launch
    has the median gap of its kind of neighbours.
    """
    step, gpu, rules = draft.step("stream order"), draft.gpu, draft.rules
    later = np.flatnonzero(gpu.before != MISSING)
    before = gpu.before[later]
    gap = gpu.start[later] - gpu.end[before]
    alone = gpu.call[later] == MISSING
    queued = ~alone & (draft.call_start[later] + rules.queued_ns < gpu.end[before])
    known = gap[queued & (gap < rules.longest_stream_gap_ns)]
    usual = max(int(np.median(known)), 0) if len(known) else rules.stream_gap_ns
    step.notes.append(f"usual gap between queued work {usual / 1e3:.2f} µs")
    weight = np.full(len(later), usual)
    if not step.is_used:
        return
    if alone.any():
        pair = gpu.name[before] * (int(gpu.name.max()) + 1) + gpu.name[later]
        weight[alone] = _medians(gap[alone], pair[alone])
    draft.add(draft.starts[before] + 1, draft.starts[later], weight, "stream order")


def _medians(values: Ints, group: Ints) -> Ints:
    """Return the median of its group for every value; at least 0."""
    number = np.unique(group, return_inverse=True)[1]
    order = np.lexsort((values, number))
    bounds = np.append(0, np.cumsum(np.bincount(number)))
    middle = (bounds[:-1] + bounds[1:] - 1) // 2
    usual: Ints = np.maximum(values[order][middle][number], 0)
    return usual


def queue_limit(gpu: GpuRows, cpu: CpuRows, rules: GraphRules) -> int:
    """Find how many launches the driver takes before it makes the CPU wait; 0 if never seen."""
    has = np.flatnonzero(gpu.call != MISSING)
    call = gpu.call[has]
    took = (cpu.end - cpu.start)[call]
    blocked = _depths(gpu, cpu, has)[took > rules.blocked_ns]
    if len(blocked) <= rules.fewest_blocked or np.median(blocked) < rules.shortest_queue:
        return 0
    return int(np.median(blocked))


def _depths(gpu: GpuRows, cpu: CpuRows, has: Ints) -> Ints:
    """Give how many launches were waiting in the queue when each of some began."""
    begin = cpu.start[gpu.call[has]]
    order = np.argsort(begin, kind="stable")
    depth = np.empty(len(has), dtype=np.int64)
    depth[order] = np.arange(len(has)) - np.searchsorted(np.sort(gpu.start[has]), begin[order])
    return depth


def lasting_calls(gpu: GpuRows, cpu: CpuRows, limit: int, rules: GraphRules) -> NDArray[np.bool_]:
    """Say which calls launch when they end, not when they begin.

    They load a module or allocate memory first: none of their work began before, and the queue
    had room for it. A call to copy may wait for its stream meanwhile, so that it is none.
    """
    has = np.flatnonzero(gpu.call != MISSING)
    call = gpu.call[has]
    late = gpu.start[has] >= cpu.end[call] - rules.jitter_ns
    late &= ((cpu.end - cpu.start)[call] > rules.blocked_ns) & (cpu.what[call] != COPY)
    if limit:
        late &= _depths(gpu, cpu, has) < limit
    lasting = np.zeros(len(cpu.row), dtype=bool)
    lasting[call[late]] = True
    lasting[call[~late]] = False
    return lasting


def queue_edges(draft: Draft, limit: int) -> None:
    """Let a launch end when the work `limit` launches before it has started."""
    step, gpu, points = draft.step("queue limit"), draft.gpu, draft.points
    if not limit or not step.is_used:
        return
    step.notes.append(f"the queue takes {limit:,} launches")
    has = np.flatnonzero(gpu.call != MISSING)
    has = has[np.lexsort((gpu.start[has], draft.call_start[has]))]
    ahead, call = has[:-limit], gpu.call[has[limit:]]
    waits = points.ends[call] != points.starts[call]
    ahead, call = ahead[waits], call[waits]
    fits = gpu.start[ahead] <= draft.cpu.end[call] + draft.rules.clash_ns
    step.left_out = int((~fits).sum())
    end = draft.first + points.ends[call[fits]]
    draft.add(draft.starts[ahead[fits]], end, 0, "queue limit", inferred=True)
