"""Late arrivals at collectives: what the straggler was doing before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.intervals import gaps, measure_within, running_end
from workbench.analyze._lib.rows import LAUNCH_CATEGORIES, MISSING, Ints, Work
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
    """Say what the straggler of each collective was doing since the collective before it.

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
    windows = windows_of(events, work, waits)
    rows = _compared(waits, windows, parts_of(work, windows))
    compute = compute_between(events, work, windows)
    launched = pd.Series(compute, dtype="Float64").mask(compute == MISSING)
    usual = launched[~rows["is_late"]].groupby(rows["collective"]).median()
    rows["ratio"] = arrays.shares(launched, usual.reindex(rows["collective"]))
    late = rows[rows["is_late"]].drop_duplicates("collective").sort_values("collective")
    longest = longest_of(events, work, windows.at(late.index.to_numpy()))
    table = _presented(events, late, longest)
    table.attrs["kernels_left_out"] = dict(waits.attrs.get("left_out", {}))
    return LATE_ARRIVALS.check(table)


def _compared(waits: pd.DataFrame, windows: Windows, times: Ints) -> pd.DataFrame:
    rows = pd.DataFrame(times, columns=list(_PARTS))
    for name in ("collective", "operation", "group", "step", "blamed_rank"):
        rows[name] = waits[name].array
    rows["is_late"] = waits["rank"].to_numpy() == rows["blamed_rank"].to_numpy()
    by_collective = waits.reset_index(drop=True).groupby("collective")
    rows["wait_ns"] = by_collective["wait_ns"].transform("sum")
    # Relative to the collective, so that medians of times since 1970 stay exact.
    base = by_collective["start_ns"].transform("min").to_numpy()
    rows["window_ns"] = windows.end - windows.start
    rows["began_late_ns"], rows["late_ns"] = windows.start - base, windows.end - base
    usual = rows[~rows["is_late"]].groupby("collective")[_MEASURES].median()
    median = usual.reindex(rows["collective"]).set_axis(rows.index)
    for name in _MEASURES:
        rows[f"excess {name}"] = (rows[name] - median[name]).round().astype("Int64")
    sure = by_collective["is_sure"].transform("all")
    complete = waits["is_complete"].fillna(value=True)
    follows = pd.Series(windows.previous != MISSING).groupby(rows["collective"]).transform("all")
    doubt = np.select([~sure, ~complete.to_numpy(bool), ~follows], range(len(_DOUBTS)), MISSING)
    return rows.assign(doubt=doubt)


def _presented(events: pd.DataFrame, late: pd.DataFrame, longest: Longest) -> pd.DataFrame:
    late = late.reset_index(drop=True)
    excess = late[[f"excess {name}" for name in _MEASURES[:-1]]].fillna(0).to_numpy("int64")
    most = excess.max(axis=1, initial=0)
    kind = np.where(most > 0, excess.argmax(axis=1), MISSING)
    names = np.append(events["name"].cat.categories.astype(str).to_numpy(dtype=object), "")
    code = arrays.codes(events["name"])

    def if_any(values: Any, row: Ints) -> pd.Series:
        column = pd.Series(values)
        return column.astype("Int64" if column.dtype == np.int64 else object).mask(row == MISSING)

    table = late.assign(
        late_ns=late["excess late_ns"],
        began_late_ns=late["excess began_late_ns"],
        excess_kind=arrays.labelled(kind, EXCESSES),
        excess_ns=if_any(most, kind),
        compute_ratio=late["ratio"],
        longest_kernel=if_any(names[code[longest.kernel]], longest.kernel),
        longest_kernel_ns=if_any(longest.kernel_ns, longest.kernel),
        longest_idle_ns=pd.Series(longest.idle_ns, dtype="Int64").mask(longest.idle_ns == 0),
        host_operator=if_any(names[code[longest.host]], longest.host),
        host_operator_ns=if_any(longest.host_ns, longest.host),
        is_sure=~late["doubt"].isin(_SERIOUS),
        note=arrays.texts(late["doubt"].to_numpy(), _DOUBTS),
    )
    return LATE_ARRIVALS.cast(table)


# Earlier kinds hide later ones, as in the time breakdown.
_LAYERS = tuple(KINDS.index(kind) for kind in ("compute", "communication", "memory", "other"))


class Windows(NamedTuple):
    """The time before each start of a collective on a rank."""

    rank: Ints
    start: Ints
    end: Ints  # when the rank entered the collective
    kernel: Ints  # the kernel of the collective, as a position in the GPU work
    # that of the group's collective before it, at whose end the window begins; -1 if none
    previous: Ints

    def at(self, chosen: Ints) -> Windows:
        return Windows(*(column[chosen] for column in self))


class Longest(NamedTuple):
    """The longest kernel and the longest idle time of each window."""

    kernel: Ints  # position in the events table, -1 if nothing ran
    kernel_ns: Ints
    idle_ns: Ints
    # what the host did in the idle time, as a position in the events table; -1 if unknown
    host: Ints
    host_ns: Ints


def windows_of(events: pd.DataFrame, work: Work, waits: pd.DataFrame) -> Windows:
    """Find the window before each row of a table of waits."""
    rank = waits["rank"].to_numpy().astype(np.int64)
    arrival = waits["start_ns"].to_numpy()
    kernel = _kernels_of(work, waits)
    left = arrival + waits["wait_ns"].to_numpy() + waits["transfer_ns"].to_numpy()
    order = np.lexsort((arrival, arrays.codes(waits["group"]), rank))
    lane = arrays.grouped(rank, arrays.codes(waits["group"]).astype(np.int64)).number[order]
    later = np.flatnonzero(lane[1:] == lane[:-1]) + 1
    start, previous = arrival.copy(), np.full(len(rank), MISSING)
    # Collectives of one group may overlap, and then the latest end so far counts.
    start[order[later]] = running_end(left[order], lane)[later - 1]
    previous[order[later]] = kernel[order[later - 1]]
    first = np.flatnonzero(previous == MISSING)
    start[first] = _first_events(events, rank[first], arrays.taken(waits["step"], first))
    return Windows(rank, np.minimum(start, arrival), arrival, kernel, previous)


def parts_of(work: Work, windows: Windows) -> Ints:
    """Split windows into compute, communication, memory, other and idle time [ns], exactly."""
    times = np.zeros((len(windows.rank), len(_LAYERS) + 1), dtype=np.int64)
    for rank in np.unique(windows.rank).tolist():
        of_rank = np.flatnonzero(windows.rank == rank)
        work_of_rank = _of_rank(work, rank)
        kind, covered = work.kind[work_of_rank], np.zeros(len(of_rank), dtype=np.int64)
        for column in range(len(_LAYERS)):
            chosen = np.isin(kind, _LAYERS[: column + 1])
            upto = measure_within(
                work.start[work_of_rank][chosen],
                work.end[work_of_rank][chosen],
                windows.start[of_rank],
                windows.end[of_rank],
            )
            times[of_rank, column], covered = upto - covered, upto
        times[of_rank, -1] = windows.end[of_rank] - windows.start[of_rank] - covered
    return times


def compute_between(events: pd.DataFrame, work: Work, windows: Windows) -> Ints:
    """Add up the compute that was launched between both collectives of a window [ns].

    Every rank launches the same work in the same order, whenever it runs. Returns -1 where no
    collective came before, or a launch is not in the trace.
    """
    launch = arrays.launches_of(events, work.row)
    when = events["start_ns"].to_numpy()[launch]
    # In order of launch, which is the same on all ranks; that of execution is not.
    order = np.lexsort((work.start, when, work.rank))
    spent = np.where(work.kind == KINDS.index("compute"), work.end - work.start, 0)[order]
    until = np.empty_like(spent)
    until[order] = np.cumsum(spent)
    is_known = (windows.previous != MISSING) & (launch[windows.kernel] != MISSING)
    is_known &= launch[windows.previous] != MISSING
    between = until[windows.kernel] - until[windows.previous]
    return np.where(is_known & (between >= 0), between, MISSING)


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
            low, high = int(windows.start[at]), int(windows.end[at])
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


def _kernels_of(work: Work, waits: pd.DataFrame) -> Ints:
    communication = np.flatnonzero(work.kind == KINDS.index("communication"))
    recorded = pd.DataFrame(
        {"rank": work.rank[communication], "start": work.start[communication]}
    ).drop_duplicates()
    wanted = pd.MultiIndex.from_arrays([waits["rank"].astype("int64"), waits["start_ns"]])
    position = pd.MultiIndex.from_frame(recorded).get_indexer(wanted)
    absent = position < 0
    if absent.any():
        row = waits[absent].iloc[0]
        msg = (
            f"collective {row['collective']} begins at {row['start_ns']} ns on rank {row['rank']}, "
            f"where the events have no communication kernel ({absent.sum():,} such rows); pass the "
            "events that the waits were made from, with clocks those of align_clocks"
        )
        raise WorkbenchError(msg)
    return np.asarray(communication[recorded.index.to_numpy()[position]])


def _first_events(events: pd.DataFrame, rank: Ints, step: Ints) -> Ints:
    if len(rank) == 0:
        return np.zeros(0, dtype=np.int64)
    number = events["step"].fillna(MISSING).astype("int64")
    first = events["start_ns"].groupby([events["rank"].astype("int64"), number]).min()
    of_rank = first.groupby(level=0).min()
    position = first.index.get_indexer(pd.MultiIndex.from_arrays([rank, step]))
    in_step = first.to_numpy()[position]
    return np.where(step == MISSING, of_rank.reindex(rank).to_numpy(), in_step)


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
