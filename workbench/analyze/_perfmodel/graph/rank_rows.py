"""What a graph is built from: the GPU work and the CPU rows of one rank, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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

_DEVICE_SYNC = ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cudaCtxSynchronize")
_STREAM_SYNC = ("cudaStreamSynchronize", "hipStreamSynchronize")
_EVENT_SYNC = ("cudaEventSynchronize", "hipEventSynchronize")
_STREAM_WAIT = ("cudaStreamWaitEvent", "hipStreamWaitEvent")
_EVENT_RECORD = ("cudaEventRecord", "cudaEventRecordWithFlags", "hipEventRecord")
_COPIES = ("cudaMemcpyAsync", "cudaMemcpy", "hipMemcpyAsync", "hipMemcpy", "hipMemcpyWithStream")
_GRAPH_LAUNCH = ("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch")

PLAIN, DEVICE_SYNC, STREAM_SYNC, EVENT_SYNC, STREAM_WAIT, EVENT_RECORD, COPY, GRAPH_LAUNCH = range(
    8
)
_CALLS = {
    **dict.fromkeys(_DEVICE_SYNC, DEVICE_SYNC),
    **dict.fromkeys(_STREAM_SYNC, STREAM_SYNC),
    **dict.fromkeys(_EVENT_SYNC, EVENT_SYNC),
    **dict.fromkeys(_STREAM_WAIT, STREAM_WAIT),
    **dict.fromkeys(_EVENT_RECORD, EVENT_RECORD),
    **dict.fromkeys(_COPIES, COPY),
    **dict.fromkeys(_GRAPH_LAUNCH, GRAPH_LAUNCH),
}


class GpuRows(NamedTuple):
    """GPU work of a rank, in order of start."""

    row: Ints
    """Position in the events table."""
    start: Ints
    end: Ints
    stream: Ints
    """Number of the stream in `RankRows.streams`."""
    call: Ints
    """The CPU row that launched it, as a position in `CpuRows`; -1 if none."""
    before: Ints
    """The work before it on its stream, as a position here; -1 if none."""
    name: Ints
    """Code of its name."""
    fills: NDArray[np.bool_]
    """It is a kernel that computes, which can take the whole GPU."""


class CpuRows(NamedTuple):
    """Operators and runtime calls of a rank, by thread, start and (longest first) duration."""

    row: Ints
    """Position in the events table."""
    start: Ints
    end: Ints
    thread: Ints
    is_call: NDArray[np.bool_]
    """Runtime or driver call, not an operator."""
    what: NDArray[np.int8]
    """PLAIN, or what the call does to streams."""
    name: Ints
    """Code of its name."""
    correlation: Ints


class SyncRecord(NamedTuple):
    """A ``cuda_sync`` record; -1 where it does not tell."""

    stream: int
    wait_stream: int
    wait_correlation: int


class RankRows(NamedTuple):
    """All of it, with times from the start of the graph."""

    gpu: GpuRows
    cpu: CpuRows
    streams: list[tuple[int, int]]
    """Device and stream, by number."""
    sync_records: dict[int, SyncRecord]
    """What the profiler says of synchronisation calls, by their correlation."""
    origin_ns: int

    def number_of(self, stream: int) -> int:
        """Return the number of a stream; -1 if nothing ran on it."""
        return next((n for n, (_, each) in enumerate(self.streams) if each == stream), MISSING)


def rank_rows(events: pd.DataFrame, rank: int, without: frozenset[str]) -> RankRows:
    """Pick the rows of a rank that has GPU work."""
    category = codes(events["category"])
    names = [str(each) for each in events["category"].cat.categories]
    of_rank = events["rank"].to_numpy() == rank
    work = gpu_work(events, "stream", "launch", "correlation", "wait_stream", "wait_correlation")
    mine = work.row[of_rank[work.row]]
    if "CUDA graphs" in without:
        # As tools see it that join one call with one piece of work.
        called = np.append(codes(events["name"]), -1)[launches_of(events, mine)]
        mine = mine[~np.append(_is_graph_launch(events), False)[called]]
    # A missing category has code -1, the entry after the last.
    is_call = np.append(np.isin(names, list(LAUNCH_CATEGORIES)), False)
    is_cpu = is_call | np.append(np.isin(names, ["cpu_op"]), False)
    row = np.flatnonzero(of_rank & is_cpu[category] & (step_numbers(events) == MISSING))
    origin = int(events["start_ns"].to_numpy()[np.append(mine, row)].min())
    cpu = _cpu_rows(events, row, is_call[category[row]], origin)
    gpu, streams = _gpu_rows(events, mine, cpu, origin)
    return RankRows(gpu, cpu, streams, _sync_records(events, of_rank, names, category), origin)


def _is_graph_launch(events: pd.DataFrame) -> NDArray[np.bool_]:
    return np.isin([str(name) for name in events["name"].cat.categories], _GRAPH_LAUNCH)


def _cpu_rows(events: pd.DataFrame, row: Ints, is_call: NDArray[np.bool_], origin: int) -> CpuRows:
    start = events["start_ns"].to_numpy()[row] - origin
    duration = events["dur_ns"].to_numpy()[row]
    process, thread = (codes(events[name])[row].astype(np.int64) for name in ("process", "thread"))
    number = np.unique(process * (int(thread.max(initial=0)) + 2) + thread, return_inverse=True)[1]
    order = np.lexsort((-duration, start, number))
    what = np.array([_CALLS.get(str(name), PLAIN) for name in events["name"].cat.categories])
    what = np.append(what, PLAIN).astype(np.int8)[codes(events["name"])[row]]
    return CpuRows(
        row=row[order],
        start=start[order],
        end=(start + duration)[order],
        thread=number[order],
        is_call=is_call[order],
        what=np.where(is_call, what, PLAIN)[order],
        name=codes(events["name"])[row].astype(np.int64)[order],
        correlation=_taken(events["correlation"], row)[order],
    )


def _gpu_rows(
    events: pd.DataFrame, row: Ints, cpu: CpuRows, origin: int
) -> tuple[GpuRows, list[tuple[int, int]]]:
    start = events["start_ns"].to_numpy()[row] - origin
    # Of work that starts at one moment, what takes no time was first.
    order = np.lexsort((events["dur_ns"].to_numpy()[row], start))
    row, start = row[order], start[order]
    device, stream = _taken(events["device"], row), _taken(events["stream"], row)
    pairs, number = np.unique(np.stack([device, stream]), axis=1, return_inverse=True)
    number = number.reshape(-1)
    place = np.full(len(events) + 1, MISSING)
    place[cpu.row] = np.arange(len(cpu.row))
    by_stream = np.argsort(number, kind="stable")
    before = np.full(len(row), MISSING)
    same = number[by_stream][1:] == number[by_stream][:-1]
    before[by_stream[1:][same]] = by_stream[:-1][same]
    gpu = GpuRows(
        row=row,
        start=start,
        end=start + events["dur_ns"].to_numpy()[row],
        stream=number,
        call=place[launches_of(events, row)],
        before=before,
        name=codes(events["name"])[row].astype(np.int64),
        fills=codes(events["kind"])[row] == code_of(events["kind"], "compute"),
    )
    return gpu, [(int(one), int(two)) for one, two in pairs.T]


def _sync_records(
    events: pd.DataFrame, of_rank: NDArray[np.bool_], names: list[str], category: Ints
) -> dict[int, SyncRecord]:
    """Read what the profiler says of synchronisation calls, by their correlation."""
    if "cuda_sync" not in names:
        return {}
    row = np.flatnonzero(of_rank & (category == names.index("cuda_sync")))
    columns = ("correlation", "stream", "wait_stream", "wait_correlation")
    told = [_taken(events[name], row).tolist() for name in columns]
    return {
        correlation: SyncRecord(stream, waited, record)
        for correlation, stream, waited, record in zip(*told, strict=True)
        if correlation > 0
    }
