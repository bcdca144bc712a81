"""How GPU work gets from the host to the GPU: launch calls, their cost and their delay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.intervals import coverage, running_end
from workbench.analyze._lib.rows import (
    LAUNCH_CATEGORIES,
    MISSING,
    Groups,
    Ints,
    Work,
    code_of,
    codes,
    gpu_work,
    grouped,
    in_order,
    labelled,
    launches_of,
    nullable,
    relabelled,
    shares,
    taken,
)
from workbench.tables import COPY_BANDWIDTH, LAUNCHES, QUEUE_LENGTH, QUEUE_SUMMARY

# What a call that can start GPU work is called, by any vendor.
_STARTS_WORK = r"Launch\w*Kernel|GraphLaunch|Mem(?:cpy|set)"
_COLUMNS = ("name", "category", "stream", "launch")


def launches(events: pd.DataFrame) -> pd.DataFrame:
    """Count and time the calls that start GPU work, and the delay until it begins.

    Two delays look alike and mean different things. If the stream had nothing to do
    when the call began, the time until the work begins is *launch latency*: the price
    of launching. If the stream was busy, the work waited its turn in the *queue*, as
    it should: the host runs ahead.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LAUNCHES`, one row per rank and name of a call,
        most GPU work first, and one without a name per rank for work whose launch is
        not in the trace. Every piece of GPU work is in one row and there in one of
        ``latency_count``, ``queued_count`` and ``early_count``, but for that without a
        launch. Empty if there is neither call nor work.

    Raises
    ------
    WorkbenchError
        If ``launch`` points to rows that launch nothing.

    Notes
    -----
    Work and call are joined whatever the call is named. A call counts if it started
    some work, or is named like one that does; CUDA and HIP graphs start many kernels
    with one call, of which all but the first of a stream count as queued. Work that
    begins before its launch call does (clocks disagree) has neither delay.
    """
    work = gpu_work(events, *_COLUMNS)
    started = _started(events, work)
    call = _calls(events, started.call)
    known = started.call != MISSING
    rank = events["rank"].to_numpy()
    name = codes(events["name"]).astype(np.int64)
    # Entries are calls first, then work; work without a launch has no name.
    entry_rank = np.append(rank[call], work.rank).astype(np.int64)
    entry_name = np.append(name[call], np.where(known, name[started.call], MISSING))
    groups = grouped(entry_rank, entry_name)
    of_call, of_work = groups.number[: len(call)], groups.number[len(call) :]
    size = len(groups.bounds)
    host = events["dur_ns"].to_numpy()[call]
    has_child = np.isin(call, started.call)
    early = known & (started.delay < 0)
    table = pd.DataFrame(
        {
            "rank": groups.keys[0].astype("int32"),
            "name": relabelled(groups.keys[1], events["name"]),
            "call_count": np.bincount(of_call, minlength=size),
            "childless_count": np.bincount(of_call[~has_child], minlength=size),
            "kernel_count": np.bincount(of_work, minlength=size),
            "host_ns": _sums(of_call, host, size),
            "early_count": np.bincount(of_work[early], minlength=size),
        }
    )
    table["host_mean_ns"] = shares(table["host_ns"], table["call_count"])
    table["host_max_ns"] = _spread(of_call, host, size)["max"]
    for column, chosen in {
        "latency": known & ~early & started.was_idle,
        "queue": known & ~early & ~started.was_idle,
    }.items():
        spread = _spread(of_work[chosen], started.delay[chosen], size)
        for statistic in ("mean", "median", "max"):
            table[f"{column}_{statistic}_ns"] = spread[statistic]
        table["queued_count" if column == "queue" else "latency_count"] = spread["count"]
    table = table.sort_values(["rank", "kernel_count"], ascending=[True, False], ignore_index=True)
    return LAUNCHES.check(table[list(LAUNCHES.columns)])


class Started(NamedTuple):
    """For each piece of GPU work, how it was launched."""

    call: Ints
    """Position of the call in the events table; -1 if there is none."""
    delay: Ints
    """From the start of the call to the start of the work [ns]."""
    was_idle: NDArray[np.bool_]
    """All earlier work of its stream had ended when the call began."""


def _started(events: pd.DataFrame, work: Work) -> Started:
    call = launches_of(events, work.row)
    issued = events["start_ns"].to_numpy()[call]
    stream = taken(events["stream"], work.row)
    queue = grouped(work.rank, work.device, stream).number
    order = in_order(queue, work.start)
    if order is None:
        order = np.arange(len(queue))
    ahead = np.full(len(queue), np.iinfo(np.int64).min)
    same = queue[order][1:] == queue[order][:-1]
    ahead[order[1:][same]] = running_end(work.end[order], queue[order])[:-1][same]
    return Started(call, work.start - issued, ahead <= issued)


def _calls(events: pd.DataFrame, used: Ints) -> Ints:
    names = pd.Index(events["name"].cat.categories.astype("str"))
    named = np.append(np.asarray(names.str.contains(_STARTS_WORK), dtype=bool), False)
    categories = pd.Index(list(events["category"].cat.categories))
    is_call = np.append(categories.isin(LAUNCH_CATEGORIES), False)
    chosen = is_call[codes(events["category"])] & named[codes(events["name"])]
    chosen[used[used != MISSING]] = True
    return np.flatnonzero(chosen)


def _sums(bucket: Ints, values: Ints, size: int) -> Ints:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, bucket, values)
    return total


def _spread(bucket: Ints, values: Ints, size: int) -> pd.DataFrame:
    by_bucket = pd.Series(values).groupby(bucket)
    spread = by_bucket.agg(["count", "mean", "median", "max"]).reindex(range(size))
    spread["count"] = spread["count"].fillna(0).astype("int64")
    return spread.astype({"mean": "Float64", "median": "Float64", "max": "Int64"})


# How fast memory is copied and set.

DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", "unknown")
_SPELLINGS = (
    ("HtoD", r"HtoD|HostToDevice|H2D"),
    ("DtoH", r"DtoH|DeviceToHost|D2H"),
    ("DtoD", r"DtoD|DeviceToDevice|D2D"),
    ("PtoP", r"PtoP|PeerToPeer|P2P"),
    ("HtoH", r"HtoH|HostToHost|H2H"),
    ("Memset", r"(?i:memset|fillbuffer)"),
)


def copy_bandwidth(events: pd.DataFrame, *, instant_ns: int = 1_000) -> pd.DataFrame:
    """Give the rate at which each GPU copied memory, by direction.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    instant_ns
        How long a copy is taken to last that the profiler gave a duration of 0, because
        its clock was too coarse [ns].

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COPY_BANDWIDTH`, one row per rank, device and
        direction; empty without copies. Rates are in 10^9 bytes per second and missing
        where no copy has a size, as on AMD.

    Notes
    -----
    A copy of b bytes in t ns runs at b / t GB/s. Rates of copies that run at once add
    up, and the mean is over the time in which at least one runs, so it is the sum of
    bytes over that time.
    """
    work = gpu_work(events, "category", "name", "size_bytes")
    category = codes(events["category"])[work.row]
    is_copy = (category == code_of(events["category"], "gpu_memcpy")) | (
        category == code_of(events["category"], "gpu_memset")
    )
    row, start = work.row[is_copy], work.start[is_copy]
    duration = work.end[is_copy] - start
    direction = _directions(events)[codes(events["name"])[row]]
    groups = grouped(work.rank[is_copy], work.device[is_copy], direction)
    size = taken(events["size_bytes"], row)
    sized = size >= 0
    lasting = np.where(duration == 0, instant_ns, duration)
    total = groups.total(np.where(sized, size, 0))
    sized_count = groups.total(sized.astype(np.int64))
    busy = _busy(groups, start, start + lasting, sized)
    rank, device, direction = groups.keys
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "device": nullable(device, "Int32"),
            "direction": labelled(direction, DIRECTIONS),
            "copy_count": groups.sizes(),
            "instant_count": groups.total((duration == 0).astype(np.int64)),
            "unsized_count": groups.sizes() - sized_count,
            "size_bytes": pd.Series(total, dtype="Int64").mask(sized_count == 0),
            "busy_ns": busy,
            "mean_gb_per_s": shares(total, busy),
            "peak_gb_per_s": _peaks(groups, start, lasting, size, sized),
        }
    )
    return COPY_BANDWIDTH.check(table)


def _directions(events: pd.DataFrame) -> Ints:
    names = pd.Index(events["name"].cat.categories.astype("str"))
    direction = np.full(len(names), DIRECTIONS.index("unknown"))
    for label, pattern in _SPELLINGS:
        direction[np.asarray(names.str.contains(pattern), dtype=bool)] = DIRECTIONS.index(label)
    return direction


def _busy(groups: Groups, start: Ints, end: Ints, sized: NDArray[np.bool_]) -> Ints:
    covered = coverage(
        start[sized], end[sized], np.zeros(int(sized.sum()), dtype=np.int64), groups.number[sized]
    )
    busy = np.zeros(len(groups.bounds), dtype=np.int64)
    busy[: len(covered)] = covered[:, -1] if covered.shape[1] > 1 else 0
    return busy


def _peaks(
    groups: Groups, start: Ints, lasting: Ints, size: Ints, sized: NDArray[np.bool_]
) -> pd.Series:
    """Return the largest sum of concurrent rates per group [GB/s]."""
    rate = size[sized] / lasting[sized]
    group = np.tile(groups.number[sized], 2)
    time = np.append(start[sized], (start + lasting)[sized])
    change = np.append(rate, -rate)
    order = np.lexsort((change, time, group))
    running = pd.Series(change[order]).groupby(group[order]).cumsum()
    peak = running.groupby(group[order]).max().reindex(range(len(groups.bounds)))
    return peak.astype("Float64")


# How far the host runs ahead: launches issued whose GPU work has not begun.


def queue_length(events: pd.DataFrame, *, limit: int = 1024) -> pd.DataFrame:
    """Follow the number of launches that wait in each stream.

    A long queue keeps the GPU busy while the host is late; an empty one means the host
    cannot keep up. A full one makes the launching call wait until there is room.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    limit
        Length from which on a launch call counts as blocked. CUDA streams have been seen
        to hold 1021 to 1024 launches.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.QUEUE_LENGTH`, one row per change, in order of rank,
        device, stream and time: ``rank``, ``device``, ``stream``, ``time_ns``,
        ``queue_count``, ``blocked_ns``. Empty if no work has a launch.

    Raises
    ------
    WorkbenchError
        If ``launch`` points to rows that launch nothing.

    Notes
    -----
    Plus one at the start of a launch call, minus one when its work begins. Work that one
    call starts in one stream (a graph) counts as one launch, which waits until the first
    of it begins. Work that begins no later than its launch call never waited and is left
    out; :func:`workbench.analyze.launches` counts it.

    References
    ----------
    facebookresearch/HolisticTraceAnalysis, ``get_queue_length_time_series`` and
    ``get_time_spent_blocked_on_full_queue``.
    """
    work = gpu_work(events, "stream", "launch")
    call = launches_of(events, work.row)
    issued = events["start_ns"].to_numpy()[call]
    waits = (call != MISSING) & (work.start > issued)
    stream = taken(events["stream"], work.row)
    launched = grouped(work.rank[waits], work.device[waits], stream[waits], call[waits])
    rank, device, queue, call = launched.keys
    begun = launched.smallest(work.start[waits])
    streams = grouped(rank, device, queue)
    issued = events["start_ns"].to_numpy()[call]
    series = _series(streams, issued, begun, events["dur_ns"].to_numpy()[call], limit)
    return QUEUE_LENGTH.check(series)


def _series(streams: Groups, issued: Ints, begun: Ints, call_ns: Ints, limit: int) -> pd.DataFrame:
    stream = np.append(streams.number, streams.number)
    time = np.append(issued, begun)
    change = np.repeat([1, -1], len(issued))
    duration = np.append(call_ns, np.zeros_like(call_ns))
    # At one instant, what begins leaves the queue before what is issued enters it.
    order = np.lexsort((change, time, stream))
    stream, change = stream[order], change[order]
    # Every stream ends with an empty queue, so one running sum serves them all.
    length = np.cumsum(change)
    is_blocked = (change > 0) & (length >= limit)
    rank, device, queue = (key[stream] for key in streams.keys)
    return pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "device": nullable(device, "Int32"),
            "stream": nullable(queue, "Int64"),
            "time_ns": time[order],
            "queue_count": length,
            "blocked_ns": np.where(is_blocked, duration[order], 0),
        }
    )


def queue_summary(queue: pd.DataFrame) -> pd.DataFrame:
    """Sum up the queue of each stream.

    Parameters
    ----------
    queue
        Table :data:`workbench.tables.QUEUE_LENGTH`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.QUEUE_SUMMARY`, one row per rank, device and stream.
        The mean is over the time from the first to the last change.
    """
    QUEUE_LENGTH.check(queue)
    groups = grouped(
        queue["rank"].to_numpy().astype(np.int64),
        queue["device"].to_numpy(dtype="int64", na_value=MISSING),
        queue["stream"].to_numpy(dtype="int64", na_value=MISSING),
    )
    rank, device, stream = groups.keys
    time, length = queue["time_ns"].to_numpy(), queue["queue_count"].to_numpy()
    lasts = np.append(np.diff(time), 0)
    lasts[np.append(np.diff(groups.number) != 0, True)[: len(lasts)]] = 0
    blocked = queue["blocked_ns"].to_numpy()
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "device": nullable(device, "Int32"),
            "stream": nullable(stream, "Int64"),
            "max_count": groups.largest(length),
            "mean_count": shares(groups.total(lasts * length), groups.total(lasts)),
            "blocked_count": groups.total((blocked > 0).astype(np.int64)),
            "blocked_ns": groups.total(blocked),
        }
    )
    return QUEUE_SUMMARY.check(table)
