"""How GPU work gets from the host to the GPU: launch calls, their cost and their delay."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.intervals import coverage, running_end
from workbench.analyze._lib.rows import LAUNCH_CATEGORIES, MISSING, Ints, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.tables import COPY_BANDWIDTH, LAUNCHES, QUEUE_LENGTH, QUEUE_SUMMARY

# What a call that can start GPU work is called, by any vendor.
_STARTS_WORK = r"Launch\w*Kernel|GraphLaunch|Mem(?:cpy|set)"
_COLUMNS = ("name", "category", "stream", "launch")


@per_rank
def launches(events: pd.DataFrame) -> pd.DataFrame:
    """Count and time the calls that start GPU work, and the delay until it begins.

    Two delays look alike and mean different things. If the stream had nothing to do when the call
    began, the time until the work begins is *launch latency*: the price of launching. If it was
    busy, the work waited its turn in the *queue*, as it should: the host runs ahead.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LAUNCHES`, one row per rank and name of a call, most GPU work
        first, and one without a name per rank for work whose launch is not in the trace. Launched
        work is in one of ``latency_count``, ``queued_count`` and ``early_count``. Empty if there is
        neither call nor work.

    Raises
    ------
    WorkbenchError
        If ``launch`` points to rows that launch nothing.

    Notes
    -----
    A call counts if it started some work, or is named like one that does; CUDA and HIP graphs start
    many kernels with one call, of which all but the first of a stream count as queued. Work that
    begins before its launch call does (clocks disagree) has neither delay.
    """
    work = arrays.gpu_work(events, *_COLUMNS)
    launch, delay, was_idle = _started(events, work)
    call = _calls(events, launch)
    is_launched = launch != MISSING
    rank = events["rank"].to_numpy()
    name = arrays.codes(events["name"]).astype(np.int64)
    # Entries are calls first, then work; work without a launch has no name.
    entry_rank = np.append(rank[call], work.rank).astype(np.int64)
    entry_name = np.append(name[call], np.where(is_launched, name[launch], MISSING))
    groups = arrays.grouped(entry_rank, entry_name)
    of_call, of_work = groups.number[: len(call)], groups.number[len(call) :]
    count = partial(np.bincount, minlength=len(groups.bounds))
    host = events["dur_ns"].to_numpy()[call]
    by_name = pd.Series(host).groupby(of_call)
    is_early = is_launched & (delay < 0)
    table = pd.DataFrame(
        {
            "rank": groups.keys[0].astype("int32"),
            "name": arrays.relabelled(groups.keys[1], events["name"]),
            "call_count": count(of_call),
            "childless_count": count(of_call[~np.isin(call, launch)]),
            "kernel_count": count(of_work),
            "host_ns": by_name.sum().reindex(range(len(groups.bounds)), fill_value=0),
            "early_count": count(of_work[is_early]),
            "host_max_ns": by_name.max().astype("Int64").reindex(range(len(groups.bounds))),
        }
    )
    table["host_mean_ns"] = arrays.shares(table["host_ns"], table["call_count"])
    for column, counted, is_idle in (("latency", "latency", True), ("queue", "queued", False)):
        chosen = is_launched & ~is_early & (was_idle == is_idle)
        spread = _spread(of_work[chosen], delay[chosen], len(groups.bounds))
        for statistic in ("mean", "median", "max"):
            table[f"{column}_{statistic}_ns"] = spread[statistic]
        table[f"{counted}_count"] = spread["count"]
    table = table.sort_values(["rank", "kernel_count"], ascending=[True, False], ignore_index=True)
    return LAUNCHES.check(table[list(LAUNCHES.columns)])


def _started(events: pd.DataFrame, work: Work) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return the call of each piece of work, the delay since its start, and if the stream idled."""
    call = arrays.launches_of(events, work.row)
    issued = events["start_ns"].to_numpy()[call]
    queue = arrays.grouped(work.rank, work.device, arrays.taken(events["stream"], work.row)).number
    order = arrays.in_order(queue, work.start)
    order = np.arange(len(queue)) if order is None else order
    # The stream was idle if all earlier work of it had ended when the call began.
    ahead = np.full(len(queue), np.iinfo(np.int64).min)
    same = queue[order][1:] == queue[order][:-1]
    ahead[order[1:][same]] = running_end(work.end[order], queue[order])[:-1][same]
    return call, work.start - issued, ahead <= issued


def _calls(events: pd.DataFrame, used: Ints) -> Ints:
    names = pd.Index(events["name"].cat.categories.astype("str"))
    is_named = np.append(np.asarray(names.str.contains(_STARTS_WORK), dtype=bool), False)
    categories = pd.Index(list(events["category"].cat.categories))
    is_call = np.append(categories.isin(LAUNCH_CATEGORIES), False)
    chosen = is_call[arrays.codes(events["category"])] & is_named[arrays.codes(events["name"])]
    # Whatever launched work is a launch, also calls of vendors whose names nobody knows.
    chosen[used[used != MISSING]] = True
    return np.flatnonzero(chosen)


def _spread(bucket: Ints, values: Ints, size: int) -> pd.DataFrame:
    by_bucket = pd.Series(values).groupby(bucket)
    spread = by_bucket.agg(["count", "mean", "median", "max"]).reindex(range(size))
    spread["count"] = spread["count"].fillna(0).astype("int64")
    return spread.astype({"mean": "Float64", "median": "Float64", "max": "Int64"})


DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", "unknown")
# How vendors spell them, in the same order.
_SPELLINGS = (
    r"HtoD|HostToDevice|H2D",
    r"DtoH|DeviceToHost|D2H",
    r"DtoD|DeviceToDevice|D2D",
    r"PtoP|PeerToPeer|P2P",
    r"HtoH|HostToHost|H2H",
    r"(?i:memset|fillbuffer)",
)


@per_rank
def copy_bandwidth(events: pd.DataFrame, *, instant_ns: int = 1_000) -> pd.DataFrame:
    """Return the rate at which each GPU copied memory, by direction.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    instant_ns
        How long a copy is taken to last that the profiler gave a duration of 0, because its clock
        was too coarse [ns].

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COPY_BANDWIDTH`, one row per rank, device and direction; empty
        without copies. Rates are in 10^9 bytes per second and missing where no copy has a size, as
        on AMD.

    Notes
    -----
    A copy of b bytes in t ns runs at b / t GB/s. Rates of copies that run at once add up, and the
    mean is over the time in which at least one runs, so it is the sum of bytes over that time.
    """
    work = arrays.gpu_work(events, "category", "name", "size_bytes")
    copies = events["category"].cat.categories.isin(["gpu_memcpy", "gpu_memset"])
    is_copy = np.append(copies, False)[arrays.codes(events["category"])[work.row]]
    row, start = work.row[is_copy], work.start[is_copy]
    duration = work.end[is_copy] - start
    direction = _directions(events)[arrays.codes(events["name"])[row]]
    groups = arrays.grouped(work.rank[is_copy], work.device[is_copy], direction)
    size = arrays.taken(events["size_bytes"], row)
    is_sized = size >= 0
    end = start + np.where(duration == 0, instant_ns, duration)
    total = groups.total(np.where(is_sized, size, 0))
    sized_count = groups.total(is_sized.astype(np.int64))
    # Rates and times are those of sized copies alone.
    group, begin, finish = groups.number[is_sized], start[is_sized], end[is_sized]
    covered = coverage(begin, finish, np.zeros_like(group), group)
    busy = np.zeros(len(groups.bounds), dtype=np.int64)
    busy[: len(covered)] = covered[:, 1:].sum(axis=1)
    rank, device, direction = groups.keys
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "device": arrays.nullable(device, "Int32"),
            "direction": arrays.labelled(direction, DIRECTIONS),
            "copy_count": groups.sizes(),
            "instant_count": groups.total((duration == 0).astype(np.int64)),
            "unsized_count": groups.sizes() - sized_count,
            "size_bytes": pd.Series(total, dtype="Int64").mask(sized_count == 0),
            "busy_ns": busy,
            "mean_gb_per_s": arrays.shares(total, busy),
        }
    )
    peak = _peaks(group, begin, finish, size[is_sized] / (finish - begin))
    table["peak_gb_per_s"] = peak.reindex(table.index).astype("Float64")
    return COPY_BANDWIDTH.check(table)


def _directions(events: pd.DataFrame) -> Ints:
    names = events["name"].cat.categories.astype("str")
    stated = [np.asarray(names.str.contains(pattern), dtype=bool) for pattern in _SPELLINGS]
    # Of several patterns that fit, the last one counts; "unknown" is behind all of them.
    order = range(len(_SPELLINGS) - 1, -1, -1)
    return np.select([stated[at] for at in order], list(order), len(_SPELLINGS))


# A sweep over starts (+ rate) and ends (- rate): the highest running sum is the peak.
def _peaks(group: Ints, start: Ints, end: Ints, rate: NDArray[np.float64]) -> pd.Series:
    groups, time, change = np.tile(group, 2), np.append(start, end), np.append(rate, -rate)
    # At one instant a copy ends before the next begins, so that back to back is not concurrent.
    order = np.lexsort((change, time, groups))
    running = pd.Series(change[order]).groupby(groups[order]).cumsum()
    return running.groupby(groups[order]).max()


@per_rank
def queue_length(events: pd.DataFrame, *, limit: int = 1024) -> pd.DataFrame:
    """Follow the number of launches that wait in each stream.

    A long queue keeps the GPU busy while the host launches work late; an empty one means the
    host cannot keep up. A full one makes the launching call wait until there is room.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    limit
        Length from which on a launch call counts as blocked. CUDA streams have been seen to hold
        1021 to 1024 launches.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.QUEUE_LENGTH`, one row per change, in order of rank, device,
        stream and time: ``rank``, ``device``, ``stream``, ``time_ns``, ``queue_count``,
        ``blocked_ns``. Empty if no work has a launch.

    Raises
    ------
    WorkbenchError
        If ``launch`` points to rows that launch nothing.

    Notes
    -----
    Plus one at the start of a launch call, minus one when its work begins. Work that one call
    starts in one stream (a graph) is one launch, which waits until the first of it begins. Work
    that begins no later than its launch call never waited.

    References
    ----------
    facebookresearch/HolisticTraceAnalysis, ``get_queue_length_time_series`` and
    ``get_time_spent_blocked_on_full_queue``.
    """
    work = arrays.gpu_work(events, "stream", "launch")
    call = arrays.launches_of(events, work.row)
    issued = events["start_ns"].to_numpy()[call]
    # Clocks of GPU and host differ a little; work that seems to begin first never queued.
    waits = (call != MISSING) & (work.start > issued)
    stream = arrays.taken(events["stream"], work.row)
    launched = arrays.grouped(work.rank[waits], work.device[waits], stream[waits], call[waits])
    rank, device, queue, call = launched.keys
    begun = launched.smallest(work.start[waits])
    number = arrays.grouped(rank, device, queue).number
    stream = np.append(number, number)
    time = np.append(events["start_ns"].to_numpy()[call], begun)
    change = np.repeat([1, -1], len(call))
    # At one instant, what begins leaves the queue before what is issued enters it.
    order = np.lexsort((change, time, stream))
    # Every stream ends with an empty queue, so one running sum serves them all.
    length = np.cumsum(change[order])
    is_blocked = (change[order] > 0) & (length >= limit)
    call_ns = np.append(events["dur_ns"].to_numpy()[call], np.zeros_like(call))
    table = pd.DataFrame(
        {
            "rank": np.tile(rank, 2)[order].astype("int32"),
            "device": arrays.nullable(np.tile(device, 2)[order], "Int32"),
            "stream": arrays.nullable(np.tile(queue, 2)[order], "Int64"),
            "time_ns": time[order],
            "queue_count": length,
            "blocked_ns": np.where(is_blocked, call_ns[order], 0),
        }
    )
    return QUEUE_LENGTH.check(table)


def queue_summary(queue: pd.DataFrame) -> pd.DataFrame:
    """Sum up the queue of each stream.

    Parameters
    ----------
    queue
        Table :data:`workbench.tables.QUEUE_LENGTH`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.QUEUE_SUMMARY`, one row per rank, device and stream. The mean
        is over the time from the first to the last change.
    """
    QUEUE_LENGTH.check(queue)
    groups = arrays.grouped(
        queue["rank"].to_numpy().astype(np.int64),
        queue["device"].to_numpy(dtype="int64", na_value=MISSING),
        queue["stream"].to_numpy(dtype="int64", na_value=MISSING),
    )
    rank, device, stream = groups.keys
    time, length = queue["time_ns"].to_numpy(), queue["queue_count"].to_numpy()
    lasts = np.append(np.diff(time), 0)
    # The last change of a stream lasts for no time that is known.
    lasts[np.append(np.diff(groups.number) != 0, True)[: len(lasts)]] = 0
    blocked = queue["blocked_ns"].to_numpy()
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "device": arrays.nullable(device, "Int32"),
            "stream": arrays.nullable(stream, "Int64"),
            "max_count": groups.largest(length),
            "mean_count": arrays.shares(groups.total(lasts * length), groups.total(lasts)),
            "blocked_count": groups.total((blocked > 0).astype(np.int64)),
            "blocked_ns": groups.total(blocked),
        }
    )
    return QUEUE_SUMMARY.check(table)
