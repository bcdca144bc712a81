"""Dark time: a GPU does work that the profiler did not record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib.intervals import measure_within
from workbench.analyze._lib.rows import LAUNCH_CATEGORIES, MISSING, Ints, Work, codes, launches_of

# Waits and launches of some tens of microseconds are those of the host.
LEAST_DARK_NS = 50_000
_LONG_AGO = np.iinfo(np.int64).min


class DarkTimes(NamedTuple):
    """Times in which GPUs do work that was not recorded, by rank."""

    rank: Ints
    start: Ints
    end: Ints
    of_graph: NDArray[np.bool_]  # a CUDA or HIP graph was launched that may be this work

    def within(self, rank: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return the dark time in some windows of ranks, and that of graphs [ns]."""
        both = np.zeros((2, len(rank)), dtype=np.int64)
        for number in np.unique(self.rank).tolist():
            at = np.flatnonzero(rank == number)
            for times, chosen in zip(both, (self.rank == number, self.of_graph), strict=True):
                own = (self.rank == number) & chosen
                times[at] = measure_within(self.start[own], self.end[own], start[at], end[at])
        return both[0], both[1]


def dark_times(events: pd.DataFrame, work: Work) -> DarkTimes:
    """Find what follows the last recorded work under a synchronisation, or a graph without work.

    A call that waits for the GPU returns when the GPU has done all: if that is long after the last
    recorded work ended, and a graph or anything without recorded work was launched, the rest was
    not recorded. A host may also wait for another GPU. Work that was launched behind a graph
    without any recorded work begins when the graph has ended.
    """
    rank, start = events["rank"].to_numpy(), events["start_ns"].to_numpy()
    is_host = np.append(events["category"].cat.categories.isin(LAUNCH_CATEGORIES), False)
    host, name = np.flatnonzero(is_host[codes(events["category"])]), codes(events["name"])
    waits, launches = (host[named(events, text)[name[host]]] for text in ("Synchronize", "Launch"))
    call = launches_of(events, work.row) if len(launches) else np.zeros(0, np.int64)
    is_graph, is_silent = named(events, "GraphLaunch")[name[launches]], ~np.isin(launches, call)
    hints = launches[is_graph | is_silent]
    parts = []
    for number in np.unique(rank[hints]).tolist():
        low, high = np.searchsorted(work.rank, [number, number + 1]).tolist()
        reach = np.maximum.accumulate(work.end[low:high])
        own_waits, own = (rows[rank[rows] == number] for rows in (waits, hints))
        own = own[np.argsort(start[own], kind="stable")]
        of_graph = named(events, "GraphLaunch")[name[own]]
        returned = start[own_waits] + events["dur_ns"].to_numpy()[own_waits]
        found = tails((start[own_waits], returned), (work.start[low:high], reach),
                      (start[own], of_graph))[1:]  # fmt: skip
        parts.append((np.full(len(found[0]), number), *found))
        silent = own[of_graph & ~np.isin(own, call)]
        if len(silent):
            of_rank = Work(*(column[low:high] for column in work))
            begun, until = _behind(events, of_rank, reach, call[low:high], start[silent])
            parts.append((np.full(len(begun), number), begun, until, np.ones(len(begun), bool)))
    if not parts:
        return DarkTimes(*(np.zeros(0, dtype) for dtype in (np.int64,) * 3 + (bool,)))
    return DarkTimes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def named(events: pd.DataFrame, text: str) -> NDArray[np.bool_]:
    """Return for each name, and for none, whether it contains a text."""
    return np.array([*(text in str(name) for name in events["name"].cat.categories), False])


def tails(
    waits: tuple[Ints, Ints], work: tuple[Ints, Ints], launches: tuple[Ints, NDArray[np.bool_]]
) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    """Return of waits that outlast all recorded work their position, and what they outlast it by.

    ``work`` is when work begins, in order, and when all up to it has ended; ``launches`` are
    starts of launches of graphs, and of others without recorded work, in order, and which are of
    graphs. Times begin with the first launch since the wait before, or when recorded work ended;
    the last column tells whether that launch was of a graph.
    """
    order = np.argsort(waits[1], kind="stable")
    begun, returned = waits[0][order], waits[1][order]
    ended = np.append(_LONG_AGO, work[1])[np.searchsorted(work[0], returned)]
    before = np.append(_LONG_AGO, returned[:-1])[: len(order)]
    number = np.searchsorted(launches[0], before, side="right")
    launched = np.append(launches[0], np.iinfo(np.int64).max)[number]
    begin = np.maximum(launched, ended)
    # A wait that returns at once shows that the GPU was idle, whatever was launched before.
    is_dark = (launched < returned) & (np.maximum(begun, begin) <= returned - LEAST_DARK_NS)
    of_graph = np.append(launches[1], False)[number][is_dark]
    return order[is_dark], begin[is_dark], returned[is_dark], of_graph


def _behind(
    events: pd.DataFrame, work: Work, reach: Ints, call: Ints, silent: Ints
) -> tuple[Ints, Ints]:
    """Return the times of graphs without recorded work that later work waited for."""
    issued = np.where(call == MISSING, _LONG_AGO, events["start_ns"].to_numpy()[call])
    done = issued + np.where(call == MISSING, 0, events["dur_ns"].to_numpy()[call])
    last = np.searchsorted(silent, issued[1:]) - 1
    launched = np.append(silent, _LONG_AGO)[last]
    begun, until = np.maximum(launched, reach[:-1]), work.start[1:]
    late = until - np.maximum(np.maximum(done[1:], reach[:-1]), launched)
    follows = (last >= 0) & (launched >= issued[:-1]) & (late >= LEAST_DARK_NS)
    follows &= work.kind[1:] != KINDS.index("communication")
    return begun[follows], until[follows]
