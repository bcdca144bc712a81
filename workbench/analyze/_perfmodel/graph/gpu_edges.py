"""Edges of GPU work: its launch, its place on the stream, and how far launches run ahead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._lib.latency import usual_latency
from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.draft import Draft
from workbench.analyze._perfmodel.graph.rank_rows import (
    COPY,
    EVENT_RECORD,
    STREAM_WAIT,
    CpuRows,
    GpuRows,
    GraphRules,
)
from workbench.analyze._perfmodel.graph.sync_edges import Queue, queues

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
    # Behind other work the delay is queueing, so only launches onto an idle stream tell the
    # latency.
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
    # Work in flight when the trace begins has no launch row, and nothing before it on its stream.
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
    usual_gaps = gap[queued & (gap < rules.longest_stream_gap_ns)]
    usual = rules.stream_gap_ns
    if len(usual_gaps):
        # Some work waits for another stream as well, which only lengthens a gap: of an even
        # number of gaps the lower one in the middle counts.
        usual = max(int(np.quantile(usual_gaps, 0.5, method="lower")), 0)
    step.notes.append(f"usual gap between queued work {usual / 1e3:.2f} µs")
    weight = np.full(len(later), usual)
    if not step.is_used:
        return
    # A global median would bias the replay of work without a launch: the gap is that of the pair.
    if alone.any():
        pair = gpu.name[before] * (int(gpu.name.max()) + 1) + gpu.name[later]
        weight[alone] = _medians(gap[alone], pair[alone])
    draft.add(draft.starts[before] + 1, draft.starts[later], weight, "stream order")


def _medians(values: Ints, group: Ints) -> Ints:
    """Return the median of its group for every value; at least 0."""
    number = np.unique(group, return_inverse=True)[1]
    order = np.lexsort((values, number))
    bounds = np.append(0, np.cumsum(np.bincount(number)))
    # The lower median: an observed value, so that times stay whole nanoseconds.
    middle = (bounds[:-1] + bounds[1:] - 1) // 2
    usual: Ints = np.maximum(values[order][middle][number], 0)
    return usual


def queue_limit(gpu: GpuRows, cpu: CpuRows, rules: GraphRules) -> int:
    """Find how many launches the driver takes before it makes the CPU wait; 0 if never seen."""
    has = np.flatnonzero(gpu.call != MISSING)
    call = gpu.call[has]
    took = (cpu.end - cpu.start)[call]
    blocked = _depths(gpu, cpu, has)[took > rules.blocked_ns]
    # ROCm queues go deeper without blocking; V100s block at 1,021 launches.
    if len(blocked) <= rules.fewest_blocked or np.median(blocked) < rules.shortest_queue:
        return 0
    return int(np.median(blocked))


def _depths(gpu: GpuRows, cpu: CpuRows, has: Ints) -> Ints:
    """Return how many launches were waiting in the queue when each of some began."""
    begin = cpu.start[gpu.call[has]]
    order = np.argsort(begin, kind="stable")
    depth = np.empty(len(has), dtype=np.int64)
    # Launches before this one, less the work that had started when it began: what is still
    # queued.
    depth[order] = np.arange(len(has)) - np.searchsorted(np.sort(gpu.start[has]), begin[order])
    return depth


def lasting_calls(gpu: GpuRows, cpu: CpuRows, limit: int, rules: GraphRules) -> NDArray[np.bool_]:
    """Return which calls launch when they end, not when they begin.

    They load a module or allocate memory first: none of their work began before, and the queue
    had room for it. A call to copy may wait for its stream meanwhile, so that it is none.
    """
    has = np.flatnonzero(gpu.call != MISSING)
    call = gpu.call[has]
    # If any work of a call began before its end, the call launched at its begin.
    late = gpu.start[has] >= cpu.end[call] - rules.jitter_ns
    late &= ((cpu.end - cpu.start)[call] > rules.blocked_ns) & (cpu.effect[call] != COPY)
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
    # Only a call with a wait of its own can be held up; the others are one point.
    waits = points.ends[call] != points.starts[call]
    ahead, call = ahead[waits], call[waits]
    fits = gpu.start[ahead] <= draft.cpu.end[call] + draft.rules.clash_ns
    step.left_out = int((~fits).sum())
    end = draft.first + points.ends[call[fits]]
    draft.add(draft.starts[ahead[fits]], end, 0, "queue limit", inferred=True)


# Edges from work of one stream to work of another: recorded events, and what times suggest.


def stream_waits(draft: Draft) -> None:
    """Let the work after a stream wait begin when what it waits for has ended.

    With ``cuda_sync`` records both ends are told. Without, the next launch of the thread waits
    for that work of the other streams which ended last before it began.
    """
    step = draft.step("inter-stream")
    wait = np.flatnonzero(draft.cpu.effect == STREAM_WAIT)
    if not step.is_used or not len(wait):
        return
    every = queues(draft.rows)
    is_told = _told_waits(draft, every, wait)
    _untold_waits(draft, every, wait[~is_told])


def _told_waits(draft: Draft, every: list[Queue], wait: Ints) -> np.ndarray:
    cpu, gpu, rows = draft.cpu, draft.gpu, draft.rows
    calls = np.flatnonzero(cpu.effect == EVENT_RECORD)
    # Plain record and wait rows carry no event handle: a cuda_sync row joins them by correlation.
    records = dict(zip(cpu.correlation[calls].tolist(), calls.tolist(), strict=True))
    is_told = np.zeros(len(wait), dtype=bool)
    for position, call in enumerate(wait.tolist()):
        record = rows.sync_records.get(int(cpu.correlation[call]))
        if record is None or record.wait_correlation < 0:
            continue
        stream, waited = rows.number_of(record.stream), rows.number_of(record.wait_stream)
        if MISSING in (stream, waited):
            continue
        is_told[position] = True
        moment = cpu.start[records.get(record.wait_correlation, call)]
        target = int(_next_launch(draft, np.array([call]), every[stream].work)[0])
        source = int(every[waited].last_before(np.array([moment]))[0])
        if MISSING in (target, source) or target == source:
            continue
        if gpu.end[source] > gpu.start[target] + draft.rules.jitter_ns:
            draft.steps[-1].left_out += 1
            continue
        draft.add([draft.starts[source] + 1], [draft.starts[target]], 0, "inter-stream")
    return is_told


def _untold_waits(draft: Draft, every: list[Queue], wait: Ints) -> None:
    gpu = draft.gpu
    target = _next_launch(draft, wait, np.arange(len(gpu.row)))
    wait, target = wait[target != MISSING], target[target != MISSING]
    best, best_end = np.full(len(wait), MISSING), np.full(len(wait), _NEVER)
    for number, queue in enumerate(every):
        source = queue.last_ended(
            draft.cpu.start[wait], gpu.start[target] + draft.rules.jitter_ns // 2
        )
        source = np.where(gpu.stream[target] == number, MISSING, source)
        end = np.where(source != MISSING, gpu.end[source], _NEVER)
        # Of all other streams the latest end: earlier work cannot be what held this up.
        better = end > best_end
        best, best_end = np.where(better, source, best), np.where(better, end, best_end)
    has = best != MISSING
    source, later = draft.starts[best[has]] + 1, draft.starts[target[has]]
    draft.add(source, later, 0, "inter-stream", inferred=True)


def _next_launch(draft: Draft, call: Ints, work: Ints) -> Ints:
    """Find the first of some work that the thread of each call launches after it; -1 if none."""
    cpu, gpu = draft.cpu, draft.gpu
    work = work[gpu.call[work] != MISSING]
    # Rows of the CPU are by thread and time, so that later calls of a thread follow at once.
    work = work[np.lexsort((gpu.start[work], gpu.call[work]))]
    if not len(work):
        return np.full(len(call), MISSING)
    position = np.searchsorted(gpu.call[work], call, side="right")
    following = np.where(position < len(work), work[np.minimum(position, len(work) - 1)], MISSING)
    launch = gpu.call[following]
    calls_before = np.cumsum(cpu.is_call)
    usable = (following != MISSING) & (cpu.thread[launch] == cpu.thread[call])
    usable &= calls_before[launch] - calls_before[call] <= draft.rules.furthest_call
    return np.where(usable, following, MISSING)


def residual_edges(draft: Draft) -> None:
    """Join GPU work that began later than anything explains to what made room for it.

    Either other work had just ended, on another stream; or it was about to: a kernel that fills
    the GPU lets others in when the last of its blocks run. Such work begins a measured time
    after the start of the one that fills the GPU.
    """
    step, gpu, rules = draft.step("residual"), draft.gpu, draft.rules
    if not step.is_used:
        return
    residual = draft.residual()[draft.starts]
    # Unexplained delays below this are jitter of launches and clocks, not a missing dependency.
    late = np.flatnonzero(residual >= rules.least_residual_ns)
    cause = _just_ended(draft, late)
    has = cause != MISSING
    work, ended = late[has], cause[has]
    lag = gpu.start[work] - gpu.end[ended]
    draft.add(draft.starts[ended] + 1, draft.starts[work], lag, "inter-stream", inferred=True)
    uncaused = late[~has]
    cause = _about_to_end(draft, uncaused, residual[uncaused])
    crowded, filling = uncaused[cause != MISSING], cause[cause != MISSING]
    lag = gpu.start[crowded] - gpu.start[filling]
    draft.add(draft.starts[filling], draft.starts[crowded], lag, "shared GPU", inferred=True)
    for works, words in ((work, "that had ended"), (crowded, "that filled the GPU")):
        if len(works):
            step.notes.append(f"{residual[works].sum() / 1e6:.2f} ms behind work {words}")


def _just_ended(draft: Draft, late: Ints) -> Ints:
    """Find the work of another stream that ended last before some work began; -1 if none."""
    gpu, rules = draft.gpu, draft.rules
    by_end = np.argsort(gpu.end, kind="stable")
    end = gpu.end[by_end]
    latest = gpu.start[late] + rules.jitter_ns // 2
    position = np.searchsorted(end, latest, side="right") - 1
    causes = np.full(len(late), MISSING)
    looking = np.arange(len(late))
    while len(looking):
        at, began = position[looking], gpu.start[late[looking]]
        # Step back to the next earlier end, for all that still look, until it is on another
        # stream.
        near = (at >= 0) & (end[at] > began - rules.residual_window_ns)
        looking, at = looking[near], at[near]
        is_other = gpu.stream[by_end[at]] != gpu.stream[late[looking]]
        causes[looking[is_other]] = by_end[at[is_other]]
        looking = looking[~is_other]
        position[looking] -= 1
    return causes


def _about_to_end(draft: Draft, late: Ints, residual: Ints) -> Ints:
    """Find the work that ran while some work should have begun, and ended soon after; -1 if none.

    Communication takes few of the processors, so that it fills no GPU.
    """
    gpu, rules = draft.gpu, draft.rules
    by_end = np.argsort(gpu.end, kind="stable")
    end = gpu.end[by_end]
    position = np.searchsorted(end, gpu.start[late], side="right")
    causes = np.full(len(late), MISSING)
    looking = np.arange(len(late))
    while len(looking):
        at, work = position[looking], late[looking]
        began = gpu.start[work]
        near = (at < len(end)) & (end[np.minimum(at, len(end) - 1)] <= began + rules.draining_ns)
        looking, work, began = looking[near], work[near], began[near]
        cause = by_end[position[looking]]
        fits = (gpu.stream[cause] != gpu.stream[work]) & gpu.fills[cause]
        fits &= gpu.start[cause] <= began - residual[looking] // 2
        causes[looking[fits]] = cause[fits]
        looking = looking[~fits]
        position[looking] += 1
    return causes
