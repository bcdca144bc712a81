"""Late arrivals: what a rank did before the others had to wait for it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import MISSING, Ints, codes, gpu_work, labelled, shares, texts
from workbench.analyze._traces.arrival_windows import (
    Longest,
    Windows,
    compute_between,
    longest_of,
    parts_of,
    windows_of,
)
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
_SERIOUS = (0, 1)


def late_arrivals(events: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Say what the last rank of each collective did since the collective before it.

    All ranks leave a collective together. What one of them spends more time on than the
    others until it enters the next one is what makes it late: longer kernels, a GPU
    without work, or waiting in another group.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that ``waits`` was made from; if that was
        with clocks, from :func:`workbench.analyze.on_one_clock`.
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
        If the events do not have the kernels of ``waits`` where it has them, or
        ``launch`` points to rows that launch nothing.

    Notes
    -----
    The window of a rank runs from the end of the matched collective before it in the same
    group to the start of this one; without one, from the first event of the step (of the
    trace, for work outside every step). It is split as in
    :func:`workbench.analyze.time_breakdown`: compute, communication without compute (of
    other groups, waiting in them included), memory without both, other, idle.

    The excess of a part is its time on the last rank minus the median of the other ranks,
    each in its own window. If the window itself began later than the median, that is the
    excess *began late*. The largest of the six is given; where it is well below
    ``late_ns``, several kinds add up to it. Excess of communication means that the rank
    was kept by another group: look there for who came last.

    ``compute_ratio`` compares the same work on all ranks whenever it ran: the summed durations
    of the compute that the rank launched after the collective before and before this one,
    divided by the median of the others. Above 1 the GPU is slow, or its share is larger;
    near 1 with an excess of compute, it merely runs now what the others ran while they
    waited in the collective before.

    The host is looked at during the longest time without GPU work, on the thread that
    launched the work after it.
    """
    COLLECTIVE_WAITS.check(waits)
    work = gpu_work(events, *_COLUMNS)
    windows = windows_of(events, work, waits)
    rows = _compared(waits, windows, parts_of(work, windows))
    rows["ratio"] = _ratios(rows, compute_between(events, work, windows))
    late = rows[rows["is_late"]].drop_duplicates("collective").sort_values("collective")
    told = longest_of(events, work, windows.at(late.index.to_numpy()))
    table = _presented(events, late, told)
    table.attrs["kernels_left_out"] = dict(waits.attrs.get("left_out", {}))
    return LATE_ARRIVALS.check(table)


def _compared(waits: pd.DataFrame, windows: Windows, parts: Ints) -> pd.DataFrame:
    """Compare every rank's window with those of the other ranks of its collective."""
    rows = pd.DataFrame(parts, columns=list(_PARTS))
    for name in ("collective", "operation", "group", "step", "blamed_rank"):
        rows[name] = waits[name].array
    rows["is_late"] = waits["rank"].to_numpy() == rows["blamed_rank"].to_numpy()
    each = waits.reset_index(drop=True).groupby("collective")
    rows["wait_ns"] = each["wait_ns"].transform("sum")
    # Relative to the collective, so that medians of times since 1970 stay exact.
    base = each["start_ns"].transform("min").to_numpy()
    rows["window_ns"] = windows.end - windows.start
    rows["began_late_ns"], rows["late_ns"] = windows.start - base, windows.end - base
    others = rows[~rows["is_late"]].groupby("collective")[_MEASURES].median()
    median = others.reindex(rows["collective"]).set_axis(rows.index)
    for name in _MEASURES:
        rows[f"excess {name}"] = (rows[name] - median[name]).round().astype("Int64")
    sure, complete = each["is_sure"].transform("all"), waits["is_complete"].fillna(value=True)
    follows = pd.Series(windows.previous != MISSING).groupby(rows["collective"]).transform("all")
    doubt = np.select([~sure, ~complete.to_numpy(bool), ~follows], range(len(_DOUBTS)), MISSING)
    return rows.assign(doubt=doubt)


def _ratios(rows: pd.DataFrame, compute: Ints) -> pd.Series:
    """Divide the compute launched since the collective before by the median of other ranks."""
    launched = pd.Series(compute, dtype="Float64").mask(compute == MISSING)
    others = launched[~rows["is_late"]].groupby(rows["collective"]).median()
    return shares(launched, others.reindex(rows["collective"]))


def _presented(events: pd.DataFrame, late: pd.DataFrame, told: Longest) -> pd.DataFrame:
    """Turn what is known of the last ranks into the columns of the table."""
    late = late.reset_index(drop=True)
    excess = late[[f"excess {name}" for name in _MEASURES[:-1]]]
    most = excess.fillna(0).to_numpy("int64")
    kind = np.where(most.max(axis=1, initial=0) > 0, most.argmax(axis=1), MISSING)
    names = np.append(events["name"].cat.categories.astype(str).to_numpy(dtype=object), "")
    code = codes(events["name"])
    table = late.assign(
        late_ns=late["excess late_ns"],
        began_late_ns=late["excess began_late_ns"],
        excess_kind=labelled(kind, EXCESSES),
        excess_ns=pd.Series(most.max(axis=1, initial=0), dtype="Int64").mask(kind == MISSING),
        compute_ratio=late["ratio"],
        longest_kernel=pd.Series(names[code[told.kernel]]).mask(told.kernel == MISSING),
        longest_kernel_ns=pd.Series(told.kernel_ns, dtype="Int64").mask(told.kernel == MISSING),
        longest_idle_ns=pd.Series(told.idle_ns, dtype="Int64").mask(told.idle_ns == 0),
        host_operator=pd.Series(names[code[told.host]]).mask(told.host == MISSING),
        host_operator_ns=pd.Series(told.host_ns, dtype="Int64").mask(told.host == MISSING),
        is_sure=~late["doubt"].isin(_SERIOUS),
        note=texts(late["doubt"].to_numpy(), _DOUBTS),
    )
    return LATE_ARRIVALS.cast(table)
