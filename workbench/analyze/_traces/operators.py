"""What the CPU operators cost, on the host and on the GPU."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.nesting import Nest, nest
from workbench.analyze._lib.rows import MISSING, Ints, codes, gpu_work, grouped, relabelled
from workbench.tables import OPERATORS

_COLUMNS = (
    "name",
    "category",
    "process",
    "thread",
    "launch",
    "external_id",
    "correlation",
)


def operators(events: pd.DataFrame) -> pd.DataFrame:
    """Add up host and GPU time by operator, most GPU time first within each rank.

    An operator's own time is what it spends outside the operators inside it. The GPU
    work it started runs later and elsewhere; it is credited to the innermost operator
    around the launching call, and to those around that one in ``gpu_ns``.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OPERATORS`, one row per rank and operator, and one
        without a name per rank for GPU work that no operator is known to have started.
        So ``gpu_self_ns`` adds up to the durations of all GPU work. Empty if there is
        neither operator nor GPU work.

    Raises
    ------
    WorkbenchError
        If ``launch`` points to rows that launch nothing.

    Notes
    -----
    ``total_ns`` and ``gpu_ns`` count an operator that calls itself once, through its
    outermost call, so neither exceeds what was spent.
    """
    work = gpu_work(events, *_COLUMNS)
    tree = nest(events, work)
    rank = events["rank"].to_numpy()[tree.row].astype(np.int64)
    name = codes(events["name"])[tree.row].astype(np.int64)
    groups = grouped(rank, name)
    bucket = groups.number
    total, own = _host_times(events, tree)
    outermost = _outermost(tree.parent, bucket)
    duration = work.end - work.start
    started = tree.starter != MISSING
    credit = np.zeros((4, len(groups.bounds)), dtype=np.int64)
    np.add.at(credit[0], bucket[outermost], total[outermost])
    direct = bucket[tree.starter[started]]
    np.add.at(credit[1], direct, 1)
    np.add.at(credit[2], direct, duration[started])
    _credit_upwards(credit[3], tree, bucket, outermost, duration)
    table = pd.DataFrame(
        {
            "rank": groups.keys[0].astype("int32"),
            "name": relabelled(groups.keys[1], events["name"]),
            "op_count": groups.sizes(),
            "total_ns": credit[0],
            "self_ns": groups.total(own),
            "kernel_count": credit[1],
            "gpu_self_ns": credit[2],
            "gpu_ns": credit[3],
        }
    )
    table = pd.concat([table, _unowned(table, work.rank[~started], duration[~started])])
    table = table.sort_values(
        ["rank", "gpu_ns", "total_ns"], ascending=[True, False, False], ignore_index=True
    )
    return OPERATORS.check(table)


def _host_times(events: pd.DataFrame, tree: Nest) -> tuple[Ints, Ints]:
    """Return the duration of each operator, and what is left without those inside it."""
    start = events["start_ns"].to_numpy()[tree.row]
    total = events["dur_ns"].to_numpy()[tree.row]
    inside = np.flatnonzero(tree.parent != MISSING)
    around = tree.parent[inside]
    shared = np.minimum((start + total)[inside], (start + total)[around]) - start[inside]
    own = total.copy()
    np.subtract.at(own, around, shared)
    return total, own


def _outermost(parent: Ints, bucket: Ints) -> Ints:
    """List the operators that have no other of the same name around them."""
    is_inner = np.zeros(len(parent), dtype=bool)
    climbing, above = np.arange(len(parent)), parent
    while len(climbing):
        on = above != MISSING
        climbing, above = climbing[on], above[on]
        same = bucket[above] == bucket[climbing]
        is_inner[climbing[same]] = True
        climbing, above = climbing[~same], parent[above[~same]]
    return np.flatnonzero(~is_inner)


def _credit_upwards(
    credit: Ints, tree: Nest, bucket: Ints, outermost: Ints, duration: Ints
) -> None:
    """Add the duration of GPU work to every operator around its launch."""
    counts = np.zeros(len(bucket), dtype=bool)
    counts[outermost] = True
    above = tree.starter
    while len(above):
        on = above != MISSING
        above, duration = above[on], duration[on]
        np.add.at(credit, bucket[above], np.where(counts[above], duration, 0))
        above = tree.parent[above]


def _unowned(table: pd.DataFrame, rank: Ints, duration: Ints) -> pd.DataFrame:
    """Make one row per rank for the GPU work without an operator."""
    groups = grouped(rank)
    rows = pd.DataFrame(dict.fromkeys(table.columns, 0), index=range(len(groups.bounds)))
    rows["rank"] = groups.keys[0]
    rows["kernel_count"] = groups.sizes()
    rows["gpu_self_ns"] = rows["gpu_ns"] = groups.total(duration)
    rows["name"] = pd.Categorical([None] * len(rows), categories=table["name"].cat.categories)
    return rows.astype(table.dtypes)
