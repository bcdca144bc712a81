"""Where the time of the GPUs goes."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.intervals import coverage
from workbench.analyze._lib.rows import (
    MISSING,
    Groups,
    Ints,
    Work,
    gpu_work,
    grouped,
    nullable,
    required,
    taken,
)
from workbench.kernel_kinds import KINDS
from workbench.tables import TIME_BREAKDOWN

By: TypeAlias = Literal["rank", "step"]

_COMPUTE, _COMMUNICATION, _MEMORY, _OTHER = (1 << KINDS.index(kind) for kind in KINDS)


def time_breakdown(events: pd.DataFrame, *, by: By = "rank") -> pd.DataFrame:
    """Split the time of each rank's GPUs into parts that add up to the whole.

    At any moment the GPU computes, or it only communicates, or it only copies, or it
    does only work of another kind, or nothing runs. Communication that runs while
    something computes costs no time of its own; only the *exposed* rest does.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    by
        ``"rank"``: one row per rank. ``"step"``: one row per rank and ProfilerStep.
        A step's GPU work is that which was launched in the step, and its window runs
        from the first to the last of that work, so windows of neighbouring steps may
        overlap or leave time between them. Work outside every step has a row of its
        own, without a step, span and idle time.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TIME_BREAKDOWN`. A rank without GPU work keeps
        its row (``by="rank"``), with ``device_count`` 0 and no span.

    Raises
    ------
    WorkbenchError
        If no rank has GPU work.
    ValueError
        If ``by`` is neither rank nor step.

    Notes
    -----
    With C, N, M and O the times (sets of ns) in which compute, communication, memory
    and other work runs on any GPU of the rank, and the span W from the first start to
    the last end: compute = ``|C|``, overlap = ``|N ∩ C|``, exposed communication =
    ``|N - C|``, exposed memory = ``|M - C - N|``, exposed other = ``|O - C - N - M|``,
    busy = ``|C ∪ N ∪ M ∪ O|``, idle = W - busy. Hence compute + exposed communication +
    exposed memory + exposed other + idle = W, exactly.

    Examples
    --------
    >>> from workbench.tables import EVENTS
    >>> time_breakdown(EVENTS.empty())
    Traceback (most recent call last):
    workbench.errors.WorkbenchError: no GPU work, so no time breakdown: there are no events
    """
    if by not in get_args(By):
        msg = f"by must be one of {get_args(By)}, not {by!r}"
        raise ValueError(msg)
    work = required(gpu_work(events, "step"), events, "time breakdown")
    if by == "step":
        groups = grouped(work.rank, taken(events["step"], work.row))
        rank, step = groups.keys
        has_window = step != MISSING
    else:
        groups = grouped(work.rank)
        rank, step = groups.keys[0], np.full(len(groups.bounds), MISSING)
        has_window = np.ones(len(rank), dtype=bool)
    table = pd.DataFrame({"rank": rank.astype("int32"), "step": nullable(step, "Int32")})
    table["device_count"] = _device_counts(work, groups)
    for name, time in parts(mixes(work, groups.number)).items():
        table[name] = time
    span = groups.largest(work.end) - groups.smallest(work.start)
    table["span_ns"] = pd.Series(span, dtype="Int64").where(has_window)
    table["idle_ns"] = table["span_ns"] - table["busy_ns"]
    if by == "rank":
        table = _with_gpuless_ranks(table, events)
    return TIME_BREAKDOWN.check(table[list(TIME_BREAKDOWN.columns)])


def mixes(work: Work, group: Ints) -> Ints:
    """Measure how long exactly which kinds ran, per group.

    Returns
    -------
    numpy.ndarray
        Time [ns] of shape (groups, 2 ** number of kinds); bit k of the column number
        says whether kind k ran.
    """
    covered = coverage(work.start, work.end, work.kind, group)
    missing = (1 << len(KINDS)) - covered.shape[1]
    return np.pad(covered, ((0, 0), (0, missing)))


def parts(mixed: Ints) -> dict[str, Ints]:
    """Give the times that a breakdown consists of, from :func:`mixes` [ns]."""
    mask = np.arange(mixed.shape[1])

    def total(which: NDArray[np.bool_]) -> Ints:
        return np.asarray(mixed[:, which].sum(axis=1))

    compute, communication = (mask & _COMPUTE) > 0, (mask & _COMMUNICATION) > 0
    memory = (mask & _MEMORY) > 0
    return {
        "compute_ns": total(compute),
        "overlap_ns": total(compute & communication),
        "communication_ns": total(communication),
        "memory_ns": total(memory),
        "exposed_communication_ns": total(communication & ~compute),
        "exposed_memory_ns": total(memory & ~compute & ~communication),
        "exposed_other_ns": total(mask == _OTHER),
        "busy_ns": total(mask > 0),
    }


def _device_counts(work: Work, groups: Groups) -> NDArray[np.int32]:
    pairs = grouped(groups.number, work.device)
    return np.bincount(pairs.keys[0]).astype(np.int32)


def _with_gpuless_ranks(table: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Keep a row for every rank, so that one without GPU work is seen."""
    rank = events["rank"].to_numpy()
    every = np.unique(rank[np.append(True, rank[1:] != rank[:-1])])
    absent = np.setdiff1d(every, table["rank"])
    if len(absent) == 0:
        return table
    rows = pd.DataFrame(dict.fromkeys(table.columns, 0), index=range(len(absent)))
    rows["rank"] = absent
    rows[["step", "span_ns", "idle_ns"]] = pd.NA
    rows = rows.astype(table.dtypes)
    return pd.concat([table, rows]).sort_values("rank", ignore_index=True)
