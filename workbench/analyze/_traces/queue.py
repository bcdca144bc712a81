"""How far the host runs ahead: launches issued whose GPU work has not begun."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import (
    MISSING,
    Groups,
    Ints,
    gpu_work,
    grouped,
    launches_of,
    nullable,
    shares,
    taken,
)
from workbench.tables import QUEUE_LENGTH, QUEUE_SUMMARY


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
