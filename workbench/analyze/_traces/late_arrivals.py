"""Late arrivals at collectives: what the straggler was doing before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.intervals import gaps, running_end
from workbench.analyze._lib.rows import LAUNCH_CATEGORIES, MISSING, Ints, Work
from workbench.analyze._traces.rank_evidence import COVERED, coverage_moments, step_starts
from workbench.errors import WorkbenchError
from workbench.tables import COLLECTIVE_WAITS, LATE_ARRIVALS

_PARTS = ("compute_ns", "communication_ns", "memory_ns", "other_ns", "idle_ns")
_MEASURES = [*_PARTS, "began_late_ns", "late_ns"]
EXCESSES = ("compute", "communication", "memory", "other", "idle", "began late")
_COLUMNS = ("name", "category", "process", "thread", "step", "launch")
_DOUBTS = (
    "it is not sure who was last",
    "a rank of the group is missing",
    "no collective of the group before it: the window begins with the step, and what came before "
    "is not in the trace",
)
# Doubts, by position, about who the straggler is; the third is only about the window.
_SERIOUS = (0, 1)


def late_arrivals(events: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Show what the straggler of each collective was doing since the previous collective.

    All ranks leave a collective together. What one of them spends more time on than the others
    until it enters the next one is what makes it late: longer kernels, a GPU without work, or
    waiting in another group.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that ``waits`` was made from; if that was with clocks,
        from :func:`workbench.analyze.align_clocks`.
    waits
        Table :data:`workbench.tables.COLLECTIVE_WAITS`, all of it: choose rows afterwards.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LATE_ARRIVALS`, one row per collective of ``waits``.
        ``attrs["kernels_left_out"]`` counts the kernels of which ``waits`` knows nothing.

    Raises
    ------
    WorkbenchError
        If the events do not have the kernels of ``waits`` where it has them, or ``launch`` points
        to rows that launch nothing.

    Notes
    -----
    The window of a rank runs from the end of the matched collective before it in the same group to
    the start of this one; without one, from the first event of the step (of the trace, for work
    outside every step). It is split into compute, communication without compute (of other groups,
    waiting in them included), memory without both, other, idle.

    The excess of each is its time on the last rank minus the median of the other ranks, each in its
    own window; a window that itself began later than the median gives the excess *began late*. The
    largest of the six is given. Excess of communication means that the rank was kept by another
    group: look there for the straggler.

    ``compute_ratio`` compares the same work on all ranks whenever it ran: the summed durations of
    the compute launched between both collectives, divided by the median of the others. Above 1 the
    GPU is slow, or its share is larger; near 1 with an excess of compute, it merely runs now what
    the others ran while they waited in the collective before.

    The host is looked at during the longest time without GPU work, on the thread that launched the
    work after it.
    """
    COLLECTIVE_WAITS.check(waits)
    work = arrays.gpu_work(events, *_COLUMNS)
    rows = compared_arrivals(waits, coverage_moments(events), step_starts(events))
    late = rows[rows["is_late"]].drop_duplicates("collective").sort_values("collective")
    windows = (late[name].to_numpy("int64") for name in ("rank", "begin_ns", "end_ns"))
    table = presented(late).assign(
        **_described(events, longest_of(events, work, Windows(*windows)))
    )
    table = LATE_ARRIVALS.check(LATE_ARRIVALS.cast(table))
    table.attrs["kernels_left_out"] = dict(waits.attrs.get("left_out", {}))
    return table


def compared_arrivals(
    waits: pd.DataFrame, moments: pd.DataFrame, starts: pd.DataFrame
) -> pd.DataFrame:
    """Compare what each rank did before each collective with the median of the others.

    ``moments`` and ``starts`` are what :func:`coverage_moments` and :func:`step_starts` return, on
    the clock of ``waits``. One row per row of ``waits``.
    """
    at, previous = _windows(waits, starts)
    begin, end = _moments_of(moments, waits, at)
    covered = moments[list(COVERED)].to_numpy("int64")
    upto = covered[end] - covered[begin]
    idle = at.end - at.begin - upto[:, -1]
    rows = pd.DataFrame(
        np.column_stack([np.diff(upto, axis=1, prepend=0), idle]), columns=[*_PARTS]
    )
    rows = _compared(waits, rows.assign(rank=at.rank, begin_ns=at.begin, end_ns=at.end), previous)
    launched = moments["launched_ns"].to_numpy("int64")[end]
    between = launched - launched[previous]
    is_known = (previous != MISSING) & (launched != MISSING) & (launched[previous] != MISSING)
    compute = pd.Series(between, dtype="Float64").where(is_known & (between >= 0))
    usual = compute[~rows["is_late"]].groupby(rows["collective"]).median()
    return rows.assign(ratio=arrays.shares(compute, usual.reindex(rows["collective"])))


def _compared(waits: pd.DataFrame, rows: pd.DataFrame, previous: Ints) -> pd.DataFrame:
    for name in ("collective", "operation", "group", "step", "blamed_rank"):
        rows[name] = waits[name].array
    rows["is_late"] = waits["rank"].to_numpy() == rows["blamed_rank"].to_numpy()
    by_collective = waits.reset_index(drop=True).groupby("collective")
    rows["wait_ns"] = by_collective["wait_ns"].transform("sum")
    # Relative to the collective, so that medians of times since 1970 stay exact.
    base = by_collective["start_ns"].transform("min").to_numpy()
    rows["window_ns"] = rows["end_ns"] - rows["begin_ns"]
    rows["began_late_ns"], rows["late_ns"] = rows["begin_ns"] - base, rows["end_ns"] - base
    usual = rows[~rows["is_late"]].groupby("collective")[_MEASURES].median()
    median = usual.reindex(rows["collective"]).set_axis(rows.index)
    for name in _MEASURES:
        rows[f"excess {name}"] = (rows[name] - median[name]).round().astype("Int64")
    sure = by_collective["is_sure"].transform("all")
    complete = waits["is_complete"].fillna(value=True)
    follows = pd.Series(previous != MISSING).groupby(rows["collective"]).transform("all")
    doubt = np.select([~sure, ~complete.to_numpy(bool), ~follows], range(len(_DOUBTS)), MISSING)
    return rows.assign(doubt=doubt)


def presented(late: pd.DataFrame) -> pd.DataFrame:
    """Add to rows of late ranks the columns of the table, except those that describe events."""
    late = late.reset_index(drop=True)
    excess = late[[f"excess {name}" for name in _MEASURES[:-1]]].fillna(0).to_numpy("int64")
    most = excess.max(axis=1, initial=0)
    kind = np.where(most > 0, excess.argmax(axis=1), MISSING)
    return late.assign(
        late_ns=late["excess late_ns"],
        began_late_ns=late["excess began_late_ns"],
        excess_kind=arrays.labelled(kind, EXCESSES),
        excess_ns=_if_any(most, kind),
        compute_ratio=late["ratio"],
        is_sure=~late["doubt"].isin(_SERIOUS),
        note=arrays.texts(late["doubt"].to_numpy(), _DOUBTS),
    )


def _described(events: pd.DataFrame, longest: Longest) -> dict[str, pd.Series]:
    names = np.append(events["name"].cat.categories.astype(str).to_numpy(dtype=object), "")
    code = arrays.codes(events["name"])
    return {
        "longest_kernel": _if_any(names[code[longest.kernel]], longest.kernel),
        "longest_kernel_ns": _if_any(longest.kernel_ns, longest.kernel),
        "longest_idle_ns": pd.Series(longest.idle_ns, dtype="Int64").mask(longest.idle_ns == 0),
        "host_operator": _if_any(names[code[longest.host]], longest.host),
        "host_operator_ns": _if_any(longest.host_ns, longest.host),
    }


def host_operator(events: pd.DataFrame, begin_ns: int, end_ns: int) -> str | None:
    """Return what the host of the one rank did in the longest idle time of a window."""
    rank, begin, end = (np.array([time]) for time in (events["rank"].iloc[0], begin_ns, end_ns))
    work = arrays.gpu_work(events, *_COLUMNS)
    longest = longest_of(events, work, Windows(rank.astype(np.int64), begin, end))
    operator = _described(events, longest)["host_operator"].iloc[0]
    return None if pd.isna(operator) else str(operator)


def _if_any(values: Any, row: Ints) -> pd.Series:
    column = pd.Series(values)
    return column.astype("Int64" if column.dtype == np.int64 else object).mask(row == MISSING)


class Windows(NamedTuple):
    """The time before each start of a collective on a rank."""

    rank: Ints
    begin: Ints
    end: Ints  # when the rank entered the collective


class Longest(NamedTuple):
    """The longest kernel and the longest idle time of each window."""

    kernel: Ints  # position in the events table, -1 if nothing ran
    kernel_ns: Ints
    idle_ns: Ints
    # what the host did in the idle time, as a position in the events table; -1 if unknown
    host: Ints
    host_ns: Ints


def _windows(waits: pd.DataFrame, starts: pd.DataFrame) -> tuple[Windows, Ints]:
    """Find the window before each row of a table of waits, and the row of the collective before.

    A window begins at the end of that collective, of the same group; the row is -1 if none is.
    """
    rank = waits["rank"].to_numpy().astype(np.int64)
    arrival = waits["start_ns"].to_numpy()
    left = arrival + waits["wait_ns"].to_numpy() + waits["transfer_ns"].to_numpy()
    order = np.lexsort((arrival, arrays.codes(waits["group"]), rank))
    lane = arrays.grouped(rank, arrays.codes(waits["group"]).astype(np.int64)).number[order]
    later = np.flatnonzero(lane[1:] == lane[:-1]) + 1
    start, previous = arrival.copy(), np.full(len(rank), MISSING)
    # Collectives of one group may overlap, and then the latest end so far counts.
    start[order[later]] = running_end(left[order], lane)[later - 1]
    previous[order[later]] = order[later - 1]
    first = np.flatnonzero(previous == MISSING)
    keys = [rank[first], arrays.taken(waits["step"], first)]
    times = pd.MultiIndex.from_frame(starts[["rank", "step"]].astype("int64"))
    position = times.get_indexer(pd.MultiIndex.from_arrays(keys))
    # Of a rank that is not there the error names the collective.
    start[first] = np.append(starts["time_ns"].to_numpy(), arrival[:1])[position]
    return Windows(rank, np.minimum(start, arrival), arrival), previous


def positions_of(moments: pd.DataFrame, rank: Ints, time: Ints) -> Ints:
    """Return the rows of coverage moments at some times of ranks, -1 where there is none."""
    known_rank, known_time = moments["rank"].to_numpy(np.int64), moments["time_ns"].to_numpy()
    position = np.full(len(rank), MISSING)
    for number in np.unique(rank).tolist():
        low, high = np.searchsorted(known_rank, [number, number + 1]).tolist()
        of_rank = np.flatnonzero(rank == number)
        at = low + np.searchsorted(known_time[low:high], time[of_rank])
        is_there = np.append(known_time[:high], time[:1])[at] == time[of_rank]
        position[of_rank[is_there & (at < high)]] = at[is_there & (at < high)]
    return position


def _moments_of(moments: pd.DataFrame, waits: pd.DataFrame, at: Windows) -> tuple[Ints, Ints]:
    """Return the moments at which windows begin and end; refuse waits of other events."""
    begin, end = (positions_of(moments, at.rank, time) for time in (at.begin, at.end))
    is_arrival = np.append(moments["is_arrival"].to_numpy(), False)
    absent = (begin == MISSING) | ~is_arrival[end]
    if absent.any():
        row = waits[absent].iloc[0]
        msg = (
            f"collective {row['collective']} begins at {row['start_ns']} ns on rank {row['rank']}, "
            f"where the events have no communication kernel ({absent.sum():,} such rows); pass the "
            "events that the waits were made from, with clocks those of align_clocks"
        )
        raise WorkbenchError(msg)
    return begin, end


def longest_of(events: pd.DataFrame, work: Work, windows: Windows) -> Longest:
    """Find what ran longest in each window, and what the host did while nothing ran."""
    count = len(windows.rank)
    kernel, following = np.full(count, MISSING), np.full(count, MISSING)
    kernel_ns = np.zeros(count, dtype=np.int64)
    idle_start, idle_end = np.zeros_like(kernel_ns), np.zeros_like(kernel_ns)
    for rank in np.unique(windows.rank).tolist():
        of_rank = _of_rank(work, rank)
        start, end = work.start[of_rank], work.end[of_rank]
        # Ends do not ascend with starts, and a search needs values that do.
        reach = np.maximum.accumulate(end)
        for at in np.flatnonzero(windows.rank == rank).tolist():
            low, high = int(windows.begin[at]), int(windows.end[at])
            first, last = np.searchsorted(reach, low, "right"), np.searchsorted(start, high)
            begin, finish = start[first:last], end[first:last]
            inside = np.minimum(finish, high) - np.maximum(begin, low)
            if len(inside) and inside.max() > 0:
                kernel[at] = work.row[of_rank][first + int(inside.argmax())]
                kernel_ns[at] = inside.max()
            opening, closing = gaps(begin, finish, window=(low, high))
            if len(opening):
                widest = int((closing - opening).argmax())
                idle_start[at], idle_end[at] = opening[widest], closing[widest]
                following[at] = of_rank.start + np.searchsorted(start, closing[widest])
    host, host_ns = _host_of(events, work, following, idle_start, idle_end)
    return Longest(kernel, kernel_ns, idle_end - idle_start, host, host_ns)


def _of_rank(work: Work, rank: int) -> slice:
    # GPU work lies rank by rank, so its rows are a slice, not a copy.
    low, high = np.searchsorted(work.rank, [rank, rank + 1]).tolist()
    return slice(low, high)


# Only the outermost work is looked at: what is inside it happened because of it.
def _host_of(
    events: pd.DataFrame, work: Work, following: Ints, start: Ints, end: Ints
) -> tuple[Ints, Ints]:
    host, host_ns = np.full(len(following), MISSING), np.zeros(len(following), dtype=np.int64)
    is_known = np.flatnonzero(following != MISSING)
    launch = np.full(len(following), MISSING)
    launch[is_known] = arrays.launches_of(events, work.row[following[is_known]])
    with_launch = np.flatnonzero(launch != MISSING)
    if len(with_launch) == 0:
        return host, host_ns
    row, thread, begin, finish = _outermost(events)
    thread_of = arrays.threads(events, launch[with_launch])
    for at, number in zip(with_launch.tolist(), thread_of.tolist(), strict=True):
        low, high = np.searchsorted(thread, [number, number + 1])
        first = low + np.searchsorted(finish[low:high], start[at], "right")
        last = low + np.searchsorted(begin[low:high], end[at])
        inside = np.minimum(finish[first:last], end[at]) - np.maximum(begin[first:last], start[at])
        if len(inside) and inside.max() > 0:
            host[at], host_ns[at] = row[first + int(inside.argmax())], inside.max()
    return host, host_ns


def _outermost(events: pd.DataFrame) -> tuple[Ints, Ints, Ints, Ints]:
    telling = {"cpu_op", "user_annotation", *LAUNCH_CATEGORIES}
    is_step = arrays.step_numbers(events) != MISSING
    row = np.flatnonzero(events["category"].isin(telling).to_numpy() & ~is_step)
    thread, begin = arrays.threads(events, row), events["start_ns"].to_numpy()[row]
    finish = begin + events["dur_ns"].to_numpy()[row]
    # Of records that begin together the longest is around the others.
    order = np.lexsort((-finish, begin, thread))
    row, thread, begin, finish = row[order], thread[order], begin[order], finish[order]
    reach = running_end(finish, thread)
    inside = np.append(False, (thread[1:] == thread[:-1]) & (begin[1:] < reach[:-1]))[: len(row)]
    return row[~inside], thread[~inside], begin[~inside], finish[~inside]
