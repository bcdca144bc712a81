"""Which CPU operator is inside which, and which one started a piece of GPU work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import (
    MISSING,
    Ints,
    Work,
    code_of,
    codes,
    launches_of,
    step_numbers,
    taken,
)


class Nest(NamedTuple):
    """The CPU operators of an events table, by thread and start."""

    row: Ints
    """Position in the events table."""
    parent: Ints
    """The operator around each operator, as a position here; -1 if there is none."""
    starter: Ints
    """For each piece of GPU work the operator that started it; -1 if none was found."""


def nest(events: pd.DataFrame, work: Work) -> Nest:
    """Find the operator around every operator and around every launch.

    The operator of a launch is the innermost one around the call on its thread. Where
    the call is missing or stands alone, the external id of the work or of its launch
    decides, unless it merely repeats the correlation, as profilers wrote it until 2022.
    """
    is_operator = codes(events["category"]) == code_of(events["category"], "cpu_op")
    # A step is around all operators and is none itself, in whatever category it was written.
    operator = np.flatnonzero(is_operator & (step_numbers(events) == MISSING))
    launch = launches_of(events, work.row)
    call, call_number = np.unique(launch[launch != MISSING], return_inverse=True)
    row = np.concatenate([operator, call])
    is_call = np.arange(len(row)) >= len(operator)
    start = events["start_ns"].to_numpy()[row]
    end = np.where(is_call, start, start + events["dur_ns"].to_numpy()[row])
    thread = _threads(events, row)
    order = np.lexsort((start - end, start, thread))
    parent = enclosing(start[order], end[order], thread[order])
    # From positions among operators and calls to positions among operators alone.
    place = np.append(np.cumsum(~is_call[order]) - 1, MISSING)
    operator = row[order][~is_call[order]]
    around = np.empty(len(row), dtype=np.int64)
    around[order] = place[parent]
    starter = np.full(len(launch), MISSING)
    starter[launch != MISSING] = around[is_call][call_number]
    lost = starter == MISSING
    starter[lost] = _by_external_id(events, operator, work.row[lost], launch[lost])
    return Nest(operator, place[parent[~is_call[order]]], starter)


def enclosing(start: Ints, end: Ints, group: Ints) -> Ints:
    """Find, for each interval, the latest earlier one of its group that still runs.

    Parameters
    ----------
    start, end, group
        Intervals in order of group, start and (longest first) duration.

    Returns
    -------
    numpy.ndarray
        Position of the enclosing interval, -1 if there is none.

    Notes
    -----
    Every interval points to its predecessor. If that has ended, so has everything
    between it and what *it* points to, so the pointer may jump there; pointers double
    their reach until each finds an interval that still runs.
    """
    pointer = np.arange(len(start)) - 1
    pointer[np.append(True, group[1:] != group[:-1])[: len(start)]] = MISSING
    searching = np.flatnonzero(pointer != MISSING)
    while len(searching):
        over = end[pointer[searching]] <= start[searching]
        searching = searching[over]
        pointer[searching] = pointer[pointer[searching]]
        searching = searching[pointer[searching] != MISSING]
    return pointer


def _threads(events: pd.DataFrame, row: Ints) -> Ints:
    """Give every thread of every rank one number."""
    process, thread = events["process"].cat, events["thread"].cat
    number = events["rank"].to_numpy()[row].astype(np.int64) * (len(process.categories) + 1)
    number = (number + codes(events["process"])[row]) * (len(thread.categories) + 1)
    return np.asarray(number + codes(events["thread"])[row])


def _by_external_id(events: pd.DataFrame, operator: Ints, row: Ints, launch: Ints) -> Ints:
    """Find the operators that carry the external id of some GPU work or of its launch."""
    found = np.full(len(row), MISSING)
    names = ["rank", "external"]
    known = pd.DataFrame(
        {
            "rank": events["rank"].to_numpy()[operator],
            "external": taken(events["external_id"], operator),
        }
    )
    known = known[~known.duplicated(keep=False)]
    index = pd.MultiIndex.from_frame(known)
    for candidate in (row, np.where(launch == MISSING, row, launch)):
        external, usable = _external_ids(events, candidate)
        wanted = pd.DataFrame({"rank": events["rank"].to_numpy()[row], "external": external})
        position = index.get_indexer(pd.MultiIndex.from_frame(wanted[names]))
        hit = usable & (position >= 0) & (found == MISSING)
        found[hit] = known.index.to_numpy()[position[hit]]
    return found


def _external_ids(events: pd.DataFrame, row: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    external = taken(events["external_id"], row)
    repeats = external == taken(events["correlation"], row)
    return external, (external != MISSING) & (external != 0) & ~repeats
