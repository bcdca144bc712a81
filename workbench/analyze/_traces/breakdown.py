"""Where the time of the GPUs goes."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.arrays import IntegerArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.intervals import coverage
from workbench.analyze._lib.rows import MISSING, Ints, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.tables import COMMUNICATION_OVERLAP, STEP_TIMES, TIME_BREAKDOWN

By: TypeAlias = Literal["rank", "step"]

# A bit per kind, as in the columns of mixes().
_COMPUTE, _COMMUNICATION, _MEMORY, _OTHER = (1 << KINDS.index(kind) for kind in KINDS)


@per_rank
def time_breakdown(events: pd.DataFrame, *, by: By = "rank") -> pd.DataFrame:
    """Split the time of each rank's GPUs into compute, exposed communication, copies and idle time.

    At any moment the GPU computes, or it only communicates, or it only copies, or it does only work
    of another kind, or nothing runs. Communication that runs while something computes costs no time
    of its own; only the *exposed* rest does.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    by
        ``"rank"``: one row per rank. ``"step"``: one row per rank and ProfilerStep, for the GPU
        work launched in the step, from the first to the last of it, so that windows may overlap or
        leave time between them. Work outside every step has a row of its own, without span and idle
        time.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TIME_BREAKDOWN`. A rank without GPU work keeps its row
        (``by="rank"``), with ``device_count`` 0 and no span.

    Raises
    ------
    WorkbenchError
        If no rank has GPU work.
    ValueError
        If ``by`` is neither rank nor step.

    Notes
    -----
    With C, N, M and O the times (sets of ns) in which compute, communication, memory and other work
    runs on any GPU of the rank, and the span W from the first start to the last end: compute =
    ``|C|``, overlap = ``|N ∩ C|``, exposed communication = ``|N - C|``, exposed memory = ``|M - C -
    N|``, exposed other = ``|O - C - N - M|``, busy = ``|C ∪ N ∪ M ∪ O|``, idle = W - busy. Hence
    compute + exposed communication + exposed memory + exposed other + idle = W, exactly.

    Examples
    --------
    >>> from workbench.tables import EVENTS
    >>> time_breakdown(EVENTS.empty())
    Traceback (most recent call last):
    workbench.errors.WorkbenchError: no GPU work, so no time breakdown: there are no events
    """
    return TIME_BREAKDOWN.check(_breakdown(events, by))


def _breakdown(events: pd.DataFrame, by: By) -> pd.DataFrame:
    if by not in get_args(By):
        msg = f"by must be one of {get_args(By)}, not {by!r}"
        raise ValueError(msg)
    needed = ("step",) if by == "step" else ()
    work = arrays.required(arrays.gpu_work(events, *needed), events, "time breakdown")
    if by == "step":
        groups = arrays.grouped(work.rank, arrays.taken(events["step"], work.row))
        rank, step = groups.keys
    else:
        groups = arrays.grouped(work.rank)
        rank, step = groups.keys[0], np.full(len(groups.bounds), MISSING)
    # Distinct pairs of group and GPU, so their number per group is that of its GPUs.
    pairs = arrays.grouped(groups.number, work.device)
    times = parts(mixes(work, groups.number))
    span = groups.largest(work.end) - groups.smallest(work.start)
    has_no_window = (step == MISSING) & (by == "step")
    columns = times | {
        "rank": rank.astype(np.int32),
        "step": arrays.nullable(step, "Int32"),
        "device_count": np.bincount(pairs.keys[0]).astype(np.int32),
        "span_ns": IntegerArray(span, has_no_window),
        "idle_ns": IntegerArray(span - times["busy_ns"], has_no_window),
    }
    table = pd.DataFrame({name: columns[name] for name in TIME_BREAKDOWN.columns})
    return _with_gpuless_ranks(table, events) if by == "rank" else table


def mixes(work: Work, group: Ints) -> Ints:
    """Measure how long exactly which kinds ran, per group [ns].

    Bit k of the column number says whether kind k ran.
    """
    covered = coverage(work.start, work.end, work.kind, group)
    # The last kinds may not occur; the others keep their columns.
    return np.pad(covered, ((0, 0), (0, (1 << len(KINDS)) - covered.shape[1])))


def parts(mixed: Ints) -> dict[str, Ints]:
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


def _with_gpuless_ranks(table: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    rank = events["rank"].to_numpy()
    # Events lie rank by rank: only where the rank changes is there something to compare.
    every = np.unique(rank[np.append(0, np.flatnonzero(rank[1:] != rank[:-1]) + 1)])
    absent = np.setdiff1d(every, table["rank"])
    if len(absent) == 0:
        return table
    rows = pd.DataFrame(dict.fromkeys(table.columns, 0), index=range(len(absent)))
    rows["rank"] = absent
    rows[["step", "span_ns", "idle_ns"]] = pd.NA
    rows = rows.astype(table.dtypes)
    return pd.concat([table, rows]).sort_values("rank", ignore_index=True)


@per_rank
def communication_overlap(events: pd.DataFrame, *, by: By = "rank") -> pd.DataFrame:
    """Say what share of the communication runs while something computes.

    Overlapped communication is free; the exposed rest makes the step longer.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    by
        ``"rank"`` or ``"step"``, as in :func:`workbench.analyze.time_breakdown`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COMMUNICATION_OVERLAP`, one row per rank (and step): ``rank``,
        ``step``, ``communication_ns``, ``overlap_ns``, ``exposed_ns``, ``overlap_share``. Where
        nothing communicates the share is missing: neither all nor nothing of it was hidden.

    Raises
    ------
    WorkbenchError
        If no rank has GPU work.
    ValueError
        If ``by`` is neither rank nor step.

    Notes
    -----
    With N and C the times in which communication and compute run, the share is ``|N ∩ C| / |N|``.
    """
    breakdown = _breakdown(events, by)
    table = breakdown[["rank", "step", "communication_ns", "overlap_ns"]].copy()
    table["exposed_ns"] = breakdown["exposed_communication_ns"]
    table["overlap_share"] = arrays.shares(table["overlap_ns"], table["communication_ns"])
    return COMMUNICATION_OVERLAP.check(table)


@per_rank
def step_times(events: pd.DataFrame) -> pd.DataFrame:
    """List the steps of every rank with their time on the host and on the GPU.

    The host usually runs ahead, so the two differ step by step and agree over many. In jobs that
    synchronise their gradients all ranks show the same step time, also those that only wait;
    :func:`workbench.analyze.straggler_attribution` tells them apart.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.STEP_TIMES`, one row per rank and step, in that order. Host
        times are missing where no ``ProfilerStep`` was recorded, GPU times where the step started
        no GPU work. Empty if nothing belongs to a step.
    """
    arrays.checked(events, "start_ns", "rank", "dur_ns", "name", "category")
    step = arrays.step_numbers(events)
    marks = events[step != MISSING]
    host = pd.DataFrame(
        {
            "rank": marks["rank"].to_numpy(np.int64),
            "step": step[step != MISSING],
            "start_ns": marks["start_ns"].to_numpy(),
            "host_ns": marks["dur_ns"].to_numpy(),
        }
    ).drop_duplicates(["rank", "step"])
    # Where one side lacks a step, integers would become floats, and epoch times lose 100 ns.
    host = host.astype({"start_ns": "Int64", "host_ns": "Int64"})
    table = host.merge(_gpu_steps(events), on=["rank", "step"], how="outer")
    table = table.sort_values(["rank", "step"], ignore_index=True)
    table = table.astype({name: column.dtype for name, column in STEP_TIMES.columns.items()})
    return STEP_TIMES.check(table[list(STEP_TIMES.columns)])


def _gpu_steps(events: pd.DataFrame) -> pd.DataFrame:
    work = arrays.gpu_work(events, "step")
    step = arrays.taken(events["step"], work.row)
    inside = np.flatnonzero(step != MISSING)
    work = Work(*(column[inside] for column in work))
    groups = arrays.grouped(work.rank, step[inside])
    first = groups.smallest(work.start)
    busy: Ints = mixes(work, groups.number)[:, 1:].sum(axis=1)
    span = groups.largest(work.end) - first
    columns = (*groups.keys, first, span, busy)
    names = ("rank", "step", "gpu_start_ns", "gpu_ns", "busy_ns")
    table = pd.DataFrame(dict(zip(names, columns, strict=True)))
    return table.astype(dict.fromkeys(names[2:], "Int64"))
