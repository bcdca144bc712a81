"""Inputs of a graph: the GPU work and the CPU rows of one rank, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import not_negative, whole_number
from workbench.analyze._lib.dark import named
from workbench.analyze._lib.intervals import running_end
from workbench.analyze._lib.rows import (
    LAUNCH_CATEGORIES,
    MISSING,
    Ints,
    code_of,
    codes,
    gpu_work,
    launches_of,
    step_numbers,
)
from workbench.analyze._lib.rows import taken as _taken
from workbench.tables import POINT_KINDS

PLAIN, DEVICE_SYNC, STREAM_SYNC, EVENT_SYNC, STREAM_WAIT, EVENT_RECORD, COPY, GRAPH_LAUNCH = range(
    8
)
_CALL_NAMES = {
    DEVICE_SYNC: ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"),
    STREAM_SYNC: ("cudaStreamSynchronize", "hipStreamSynchronize", "cuStreamSynchronize"),
    EVENT_SYNC: ("cudaEventSynchronize", "hipEventSynchronize", "cuEventSynchronize"),
    STREAM_WAIT: ("cudaStreamWaitEvent", "hipStreamWaitEvent"),
    EVENT_RECORD: ("cudaEventRecord", "cudaEventRecordWithFlags", "hipEventRecord"),
    COPY: ("cudaMemcpyAsync", "cudaMemcpy", "hipMemcpyAsync", "hipMemcpy", "hipMemcpyWithStream"),
    GRAPH_LAUNCH: ("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"),
}
_CALLS = {name: effect for effect, names in _CALL_NAMES.items() for name in names}


class GpuRows(NamedTuple):
    """GPU work of a rank, in order of start."""

    row: Ints  # position in the events table
    start: Ints
    end: Ints
    stream: Ints  # number of the stream in `RankRows.streams`
    call: Ints  # the CPU row that launched it, as a position in `CpuRows`; -1 if none
    before: Ints  # the work before it on its stream, as a position here; -1 if none
    name: Ints  # code of its name
    fills: NDArray[np.bool_]  # it is a kernel that computes, which can take the whole GPU


class CpuRows(NamedTuple):
    """Operators and runtime calls of a rank, by thread, start and (longest first) duration."""

    row: Ints  # position in the events table
    start: Ints
    end: Ints
    thread: Ints
    is_call: NDArray[np.bool_]  # runtime or driver call, not an operator
    effect: NDArray[np.int8]  # PLAIN, or what the call does to streams
    name: Ints  # code of its name
    correlation: Ints
    launches: NDArray[np.bool_]  # a call that launches work, as its name says


class SyncRecord(NamedTuple):
    """A ``cuda_sync`` record; -1 if unknown."""

    stream: int
    wait_stream: int
    wait_correlation: int


class RankRows(NamedTuple):
    """All of it, with times from the start of the graph."""

    gpu: GpuRows
    cpu: CpuRows
    streams: list[tuple[int, int]]  # device and stream, by number
    sync_records: dict[int, SyncRecord]
    """What the profiler says of synchronisation calls, by their correlation."""
    origin_ns: int

    def number_of(self, stream: int) -> int:
        """Return the number of a stream; -1 if nothing ran on it."""
        return next((n for n, (_, name) in enumerate(self.streams) if name == stream), MISSING)


def rank_rows(events: pd.DataFrame, rank: int, without: frozenset[str]) -> RankRows:
    category = codes(events["category"])
    categories = [str(label) for label in events["category"].cat.categories]
    of_rank = events["rank"].to_numpy() == rank
    work = gpu_work(events, "stream", "launch", "correlation", "wait_stream", "wait_correlation")
    work_row = work.row[of_rank[work.row]]
    if "CUDA graphs" in without:
        # As tools see it that join one call with one piece of work.
        names = [str(name) for name in events["name"].cat.categories]
        is_launch = np.append(np.isin(names, _CALL_NAMES[GRAPH_LAUNCH]), False)
        called = np.append(codes(events["name"]), -1)[launches_of(events, work_row)]
        work_row = work_row[~is_launch[called]]
    # A missing category has code -1, the entry after the last.
    is_call = np.append(np.isin(categories, list(LAUNCH_CATEGORIES)), False)
    is_cpu = is_call | np.append(np.isin(categories, ["cpu_op"]), False)
    row = np.flatnonzero(of_rank & is_cpu[category] & (step_numbers(events) == MISSING))
    origin = int(events["start_ns"].to_numpy()[np.append(work_row, row)].min())
    cpu = _cpu_rows(events, row, is_call[category[row]], origin)
    gpu, streams = _gpu_rows(events, work_row, cpu, origin)
    return RankRows(gpu, cpu, streams, _sync_records(events, of_rank, categories, category), origin)


def _cpu_rows(events: pd.DataFrame, row: Ints, is_call: NDArray[np.bool_], origin: int) -> CpuRows:
    start = events["start_ns"].to_numpy()[row] - origin
    duration = events["dur_ns"].to_numpy()[row]
    process, thread = (codes(events[name])[row].astype(np.int64) for name in ("process", "thread"))
    number = np.unique(process * (int(thread.max(initial=0)) + 2) + thread, return_inverse=True)[1]
    # Longest first: of rows that start together the outer one comes before what it holds.
    order = np.lexsort((-duration, start, number))
    effect = np.array([_CALLS.get(str(name), PLAIN) for name in events["name"].cat.categories])
    effect = np.append(effect, PLAIN).astype(np.int8)[codes(events["name"])[row]]
    name, correlation = codes(events["name"])[row].astype(np.int64), events["correlation"]
    effect = np.where(is_call, effect, PLAIN)
    columns: list[Any] = [row, start, start + duration, number, is_call, effect, name]
    columns += [_taken(correlation, row), is_call & named(events, "Launch")[name]]
    return CpuRows(*(column[order] for column in columns))


def _gpu_rows(
    events: pd.DataFrame, row: Ints, cpu: CpuRows, origin: int
) -> tuple[GpuRows, list[tuple[int, int]]]:
    start = events["start_ns"].to_numpy()[row] - origin
    # Of work that starts at one moment, what takes no time was first.
    order = np.lexsort((events["dur_ns"].to_numpy()[row], start))
    row, start = row[order], start[order]
    device, stream = _taken(events["device"], row), _taken(events["stream"], row)
    # Stream numbers repeat from device to device.
    pairs, number = np.unique(np.stack([device, stream]), axis=1, return_inverse=True)
    number = number.reshape(-1)
    cpu_position = np.full(len(events) + 1, MISSING)
    cpu_position[cpu.row] = np.arange(len(cpu.row))
    # Stable, so that the order of start is kept within each stream.
    by_stream = np.argsort(number, kind="stable")
    before = np.full(len(row), MISSING)
    same = number[by_stream][1:] == number[by_stream][:-1]
    before[by_stream[1:][same]] = by_stream[:-1][same]
    gpu = GpuRows(
        row=row,
        start=start,
        end=start + events["dur_ns"].to_numpy()[row],
        stream=number,
        call=cpu_position[launches_of(events, row)],
        before=before,
        name=codes(events["name"])[row].astype(np.int64),
        fills=codes(events["kind"])[row] == code_of(events["kind"], "compute"),
    )
    return gpu, [(int(gpu_device), int(gpu_stream)) for gpu_device, gpu_stream in pairs.T]


def _sync_records(
    events: pd.DataFrame, of_rank: NDArray[np.bool_], names: list[str], category: Ints
) -> dict[int, SyncRecord]:
    if "cuda_sync" not in names:
        return {}
    row = np.flatnonzero(of_rank & (category == names.index("cuda_sync")))
    columns = ("correlation", "stream", "wait_stream", "wait_correlation")
    values = [_taken(events[name], row).tolist() for name in columns]
    return {
        correlation: SyncRecord(stream, waited, record)
        for correlation, stream, waited, record in zip(*values, strict=True)
        # Rows without a correlation could be joined with no call.
        if correlation > 0
    }


START, END, CALL, WAIT_START, WAIT_END = (
    POINT_KINDS.index(kind) for kind in ("CPU start", "CPU end", "call", "wait start", "wait end")
)


class CpuPoints(NamedTuple):
    """Points of all threads, by thread and time."""

    time: Ints
    kind: NDArray[np.int8]
    cpu: Ints  # the CPU row a point belongs to
    thread: Ints
    starts: Ints  # per CPU row the point where its call begins; -1 if it has none
    ends: Ints  # per CPU row the point where its wait ends, or its call begins; -1 if it has none


def cpu_points(cpu: CpuRows, is_anchor: NDArray[np.bool_], waits: NDArray[np.bool_]) -> CpuPoints:
    """Lay out the points of every thread.

    Only outermost rows give points of their own: what is nested takes no time besides. Calls
    that GPU work or events depend on (`is_anchor`) are one point, calls that wait for the GPU
    (`waits`) are two.
    """
    every = np.arange(len(cpu.row))
    before = np.full(len(every), np.iinfo(np.int64).min)
    if len(every) > 1:
        same = cpu.thread[1:] == cpu.thread[:-1]
        before[1:] = np.where(same, running_end(cpu.end, cpu.thread)[:-1], before[1:])
    outermost = cpu.start >= before
    # Clocks round: a row can end after the one it is in, whose segment it extends.
    reaches = outermost | (cpu.end > before)
    groups = [
        (every[outermost], START, cpu.start),
        (every[reaches], END, cpu.end),
        (every[is_anchor & ~waits], CALL, cpu.start),
        (every[waits], WAIT_START, cpu.start),
        (every[waits], WAIT_END, cpu.end),
    ]
    row = np.concatenate([group[0] for group in groups])
    kind = np.repeat([group[1] for group in groups], [len(group[0]) for group in groups])
    time = np.concatenate([of[group] for group, _, of in groups])
    order = _order(cpu, row, kind, time)
    row, kind, time = row[order], kind[order], time[order]
    starts, ends = np.full((2, len(every)), MISSING)
    for wanted, slot in ((CALL, starts), (WAIT_START, starts), (CALL, ends), (WAIT_END, ends)):
        chosen = np.flatnonzero(kind == wanted)
        slot[row[chosen]] = chosen
    return CpuPoints(time, kind.astype(np.int8), row, cpu.thread[row], starts, ends)


def _order(cpu: CpuRows, row: Ints, kind: Ints, time: Ints) -> Ints:
    """Sort points: at one moment inner ends, outer ends, then outer starts, inner starts."""
    is_end = (kind == END) | (kind == WAIT_END)
    lasting = cpu.end[row] > cpu.start[row]
    # What takes no time ends after it starts, so it counts among the starts.
    late = ~(is_end & lasting)
    within = np.where(late, 2 * row + is_end, -row)
    # An END closes its segment: after the waits of the same row, which are inside.
    last = np.where(is_end, kind == END, kind != START)
    return np.lexsort((last, within, late, time, cpu.thread[row]))


@dataclass(frozen=True, kw_only=True)
class GraphRules:
    """Times and counts from which the builder of a graph concludes, all changeable.

    The defaults were chosen on twelve public traces (V100, A100, H100) and hold on thirteen
    others. Halving or doubling one of them moves the replayed time by some tenths of a per cent.

    Parameters
    ----------
    sync_ns
        What a call that waits for the GPU costs the CPU besides waiting.
    blocked_launch_ns
        What a launch into a full queue costs the CPU besides waiting.
    longest_gap_ns
        A longer time between two operators of a thread may be a wait for another thread.
    launch_ns
        Launch latency where too few launches found their stream idle.
    fewest_launches
        As many such launches tell what a launch usually takes.
    longest_launch_ns
        A longer launch latency has another cause than the launch.
    queued_ns
        Work launched this long before the one before it ended was certainly queued.
    longest_stream_gap_ns
        Longer times between queued work do not count as the usual gap.
    stream_gap_ns
        Usual gap where none can be measured.
    blocked_ns
        A launch call that takes longer may wait for room in the queue; if there was room, its
        work is launched when the call ends, not when it begins.
    fewest_blocked
        As many such calls are no sign of a limit yet.
    shortest_queue
        Queues that fill earlier are not taken for the limit of the driver.
    clash_ns
        Work that ends this much after the call that should have waited for it was not waited for.
    jitter_ns
        Ends up to this much after what they should precede are rounding.
    furthest_call
        The launch after a stream wait is looked for among as many calls of the thread.
    least_residual_ns
        Work that begins later than explained by this much is looked into.
    residual_window_ns
        Its cause may have ended this long before.
    draining_ns
        A kernel that fills the GPU lets other work begin this long before its end.
    blocking_copy_ns
        A call to copy that takes longer waits for the copy.
    least_dark_ns
        A wait for a CUDA graph without recorded work is dark GPU time from this length on.
    polling_ns
        Time of the CPU that no call accounts for, longer than this, may have been spent asking
        whether communication is done if it ends at most this long before or after that does.
    co_critical_busy_share
        Where the GPU is busy for more of the window than this...
    co_critical_gap_share
        ... and more of the critical path than this is time of the CPU that no row accounts for,
        what-ifs are unreliable: the host may poll for the GPU, or be as late as it is by chance.
    most_error_ratio
        A graph whose replay is further off in time is not usable: of the whole window, or from
        the first to the last GPU work.
    most_breakdown_error_ratio
        Nor is one whose parts of the GPU time are further off, summed, of the span.
    most_step_error_ratio
        Nor is one that is further off in its worst step.
    most_unlaunched_share
        Nor is one of a trace that has no launch of more of the GPU work: it is unknown when such
        work could have begun.
    most_halved_ratio
        Nor is one that takes more of its time if all work and all of the host take half of theirs:
        it keeps what it does not explain.
    """

    sync_ns: int = 5_000
    blocked_launch_ns: int = 60_000
    longest_gap_ns: int = 200_000
    launch_ns: int = 6_000
    fewest_launches: int = 3
    longest_launch_ns: int = 100_000
    queued_ns: int = 20_000
    longest_stream_gap_ns: int = 50_000
    stream_gap_ns: int = 1_000
    blocked_ns: int = 50_000
    fewest_blocked: int = 5
    shortest_queue: int = 1_000
    clash_ns: int = 5_000
    jitter_ns: int = 2_000
    furthest_call: int = 200
    least_residual_ns: int = 50_000
    residual_window_ns: int = 40_000
    draining_ns: int = 150_000
    blocking_copy_ns: int = 30_000
    least_dark_ns: int = 50_000
    polling_ns: int = 100_000
    co_critical_busy_share: float = 0.9
    co_critical_gap_share: float = 0.3
    most_error_ratio: float = 0.05
    most_breakdown_error_ratio: float = 0.05
    most_step_error_ratio: float = 0.1
    most_unlaunched_share: float = 0.3
    most_halved_ratio: float = 0.6

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name.endswith(("_ns", "_blocked", "_queue", "_call", "_launches")):
                whole_number(field.name, getattr(self, field.name), least=0)
            else:
                not_negative(field.name, getattr(self, field.name))
