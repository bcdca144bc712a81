"""How GPU work gets from the host to the GPU: launch calls, their cost and their delay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.intervals import running_end
from workbench.analyze._lib.rows import (
    LAUNCH_CATEGORIES,
    MISSING,
    Ints,
    Work,
    codes,
    gpu_work,
    grouped,
    in_order,
    launches_of,
    relabelled,
    shares,
    taken,
)
from workbench.tables import LAUNCHES

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
    """List the calls that started work or are named like such."""
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
    """Return count, mean, median and maximum per bucket; missing where it is empty."""
    by_bucket = pd.Series(values).groupby(bucket)
    spread = by_bucket.agg(["count", "mean", "median", "max"]).reindex(range(size))
    spread["count"] = spread["count"].fillna(0).astype("int64")
    return spread.astype({"mean": "Float64", "median": "Float64", "max": "Int64"})
