"""How much communication hides behind compute, and which kinds of work run together."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import gpu_work, grouped, required, shares
from workbench.analyze._traces.breakdown import By, mixes, time_breakdown
from workbench.kernel_kinds import KINDS
from workbench.tables import COMMUNICATION_OVERLAP, KIND_OVERLAPS


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
        Table :data:`workbench.tables.COMMUNICATION_OVERLAP`, one row per rank (and
        step): ``rank``, ``step``, ``communication_ns``, ``overlap_ns``,
        ``exposed_ns``, ``overlap_share``. Where nothing communicates the share is
        missing: neither all nor nothing of it was hidden.

    Raises
    ------
    WorkbenchError
        If no rank has GPU work.
    ValueError
        If ``by`` is neither rank nor step.

    Notes
    -----
    With N and C the times in which communication and compute run, the share is
    ``|N ∩ C| / |N|``.
    """
    parts = time_breakdown(events, by=by)
    table = parts[["rank", "step", "communication_ns", "overlap_ns"]].copy()
    table["exposed_ns"] = parts["exposed_communication_ns"]
    table["overlap_share"] = shares(table["overlap_ns"], table["communication_ns"])
    return COMMUNICATION_OVERLAP.check(table)


def kind_overlaps(events: pd.DataFrame) -> pd.DataFrame:
    """Say how long exactly which kinds of GPU work ran at the same time.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.KIND_OVERLAPS`, one row per rank and set of kinds
        that occurred: ``rank``, ``kinds`` such as ``"compute + communication"``,
        ``time_ns``, ``time_share`` of the busy time. The times of a rank add up to its
        busy time.

    Raises
    ------
    WorkbenchError
        If no rank has GPU work.
    """
    work = required(gpu_work(events), events, "overlap of kinds")
    groups = grouped(work.rank)
    mixed = mixes(work, groups.number)[:, 1:]
    row, column = np.nonzero(mixed)
    labels = [
        " + ".join(kind for bit, kind in enumerate(KINDS) if mask >> bit & 1)
        for mask in range(1, 1 << len(KINDS))
    ]
    table = pd.DataFrame(
        {
            "rank": groups.keys[0][row].astype("int32"),
            "kinds": pd.Series([labels[number] for number in column], dtype="str"),
            "time_ns": mixed[row, column],
        }
    )
    table["time_share"] = shares(table["time_ns"], mixed.sum(axis=1)[row])
    return KIND_OVERLAPS.check(table)
