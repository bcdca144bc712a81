"""What a host thread did while a GPU had nothing to run."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.intervals import measure_within
from workbench.analyze._lib.rows import (
    LAUNCH_CATEGORIES,
    MISSING,
    Ints,
    codes,
    grouped,
    in_order,
    step_numbers,
)

ACTIVITIES = ("blocking call", "runtime call", "operator", "Python", "untraced")
_BLOCKING, _RUNTIME, _OPERATOR, _PYTHON, _UNTRACED = range(len(ACTIVITIES))


def time_by_activity(events: pd.DataFrame, call: Ints, start: Ints, end: Ints) -> Ints:
    """Split windows of time by what the thread of a call did in them.

    Where records overlap, the more telling one counts: a blocking call before another
    runtime call, that before an operator, that before Python.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    call
        Position of a call in ``events``, whose thread is meant, per window.
    start, end
        The windows [ns].

    Returns
    -------
    numpy.ndarray
        Time [ns] of shape (windows, activities); a row adds up to its window.
    """
    rank = events["rank"].to_numpy()
    process, thread = codes(events["process"]), codes(events["thread"])
    threads = grouped(
        rank[call].astype(np.int64), process[call].astype(np.int64), thread[call].astype(np.int64)
    )
    order = in_order(rank)
    ordered_rank = rank if order is None else rank[order]
    is_step = step_numbers(events) != MISSING
    level_of = _level_of_category(events), _is_blocking(events), is_step
    times = np.zeros((len(call), len(ACTIVITIES)), dtype=np.int64)
    for number, (one_rank, one_process, one_thread) in enumerate(zip(*threads.keys, strict=True)):
        low, high = np.searchsorted(ordered_rank, [one_rank, one_rank + 1])
        rows = slice(low, high) if order is None else order[low:high]
        its_own = (process[rows] == one_process) & (thread[rows] == one_thread)
        row = low + np.flatnonzero(its_own) if order is None else order[low:high][its_own]
        here = np.flatnonzero(threads.number == number)
        times[here] = _split(events, row, level_of, start[here], end[here])
    return times


def _split(
    events: pd.DataFrame,
    row: Ints,
    level_of: tuple[NDArray[np.int8], NDArray[np.bool_], NDArray[np.bool_]],
    start: Ints,
    end: Ints,
) -> Ints:
    """Split windows by the activity of one thread, whose rows are given."""
    by_category, is_blocking, is_step = level_of
    level = by_category[codes(events["category"])[row]]
    level[is_step[row]] = _UNTRACED
    level[(level == _RUNTIME) & is_blocking[codes(events["name"])[row]]] = _BLOCKING
    begin = events["start_ns"].to_numpy()[row]
    finish = begin + events["dur_ns"].to_numpy()[row]
    times = np.zeros((len(start), len(ACTIVITIES)), dtype=np.int64)
    covered = np.zeros(len(start), dtype=np.int64)
    for number in range(_UNTRACED):
        if (level == number).any():
            some = level <= number
            upto = measure_within(begin[some], finish[some], start, end)
            times[:, number], covered = upto - covered, upto
    times[:, _UNTRACED] = end - start - covered
    return times


def _level_of_category(events: pd.DataFrame) -> NDArray[np.int8]:
    """Give the activity that each category means; the last one where it means none."""
    return np.array(
        [
            _RUNTIME
            if category in LAUNCH_CATEGORIES
            else {"cpu_op": _OPERATOR, "python_function": _PYTHON}.get(category, _UNTRACED)
            for category in events["category"].cat.categories
        ],
        dtype=np.int8,
    )


def _is_blocking(events: pd.DataFrame) -> NDArray[np.bool_]:
    """Say for each name whether a runtime call of that name waits for the GPU."""
    names = events["name"].cat.categories.astype("str")
    copies = names.str.contains("^(?:cuda|cu|hip)Mem(?:cpy|set)")
    blocks = names.str.contains("Synchronize") | (copies & ~names.str.contains("Async"))
    return np.append(np.asarray(blocks, dtype=bool), False)
