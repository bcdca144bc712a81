"""Which work fills the GPUs, by name and by kind."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import GPU_MEMORY, KINDS, UNCLASSIFIED, classify
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import MISSING, Ints, Nest, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.tables import KERNEL_KINDS, KERNELS, OPERATORS, UNCLASSIFIED_KERNELS

Rules: TypeAlias = pd.DataFrame | str | Path | None

# Names in the column of rules for kinds that no rule decided.
_BY_CATEGORY, _BY_LOADER = "category", "loader"


@per_rank
def kernels(events: pd.DataFrame, *, by_step: bool = False) -> pd.DataFrame:
    """Count and time the GPU work by name, longest total first within each rank.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    by_step
        Keep the steps apart. Work outside every step has no step then.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.KERNELS`, one row per rank (and step), name and kind; empty
        without GPU work. ``time_share`` is the part in the summed durations, which exceed the busy
        time where work overlaps.

    Notes
    -----
    ``std_ns`` is the sample standard deviation (divisor n - 1).
    """
    work = arrays.gpu_work(events, "name", "step")
    step = arrays.taken(events["step"], work.row) if by_step else np.full(len(work.row), MISSING)
    name = arrays.codes(events["name"])[work.row].astype(np.int64)
    groups = arrays.grouped(work.rank, step, name, work.kind)
    rank, step, name, kind = groups.keys
    duration = work.end - work.start
    total, number = groups.total(duration), groups.sizes()
    mean = total / np.maximum(number, 1)
    # From deviations, not from sums of squares, which lose digits where durations hardly vary.
    squares = np.bincount(
        groups.number, weights=(duration - mean[groups.number]) ** 2, minlength=len(total)
    )
    deviation = pd.Series(np.sqrt(squares / np.maximum(number - 1, 1)), dtype="Float64")
    per_rank = arrays.grouped(rank, step)
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "step": arrays.nullable(step, "Int32"),
            "name": arrays.relabelled(name, events["name"]),
            "kind": arrays.labelled(kind, KINDS),
            "kernel_count": number,
            "total_ns": total,
            "mean_ns": mean,
            "min_ns": groups.smallest(duration),
            "max_ns": groups.largest(duration),
            "std_ns": deviation.mask(number < 2),
            "time_share": arrays.shares(total, per_rank.total(total)[per_rank.number]),
        }
    )
    # Work outside the steps comes after them, although its number, -1, is the smallest.
    order = np.lexsort((-total, step, step == MISSING, rank))
    return KERNELS.check(table.iloc[order].reset_index(drop=True))


@per_rank
def kernel_kinds(events: pd.DataFrame, *, rules: Rules = None) -> pd.DataFrame:
    """Classify GPU work by kind, with the rule that applied and the share that no rule covers.

    Work that no rule knows counts as compute, so a large unclassified share makes the compute time
    a guess; see :func:`unclassified_kernels` for the names.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    rules
        File or table of your own rules (``kind``, ``rule``, ``pattern``); the kinds are then taken
        from the names again. Without them the kinds of ``events`` stand.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.KERNEL_KINDS`, one row per rank, kind and rule, longest total
        first within each rank; empty without GPU work.

    Raises
    ------
    LoadError
        If the rules cannot be used.
    """
    work = arrays.gpu_work(events, "name", "category")
    kind, rule, rule_names = _ruled(events, work, rules)
    name = arrays.codes(events["name"])[work.row].astype(np.int64)
    groups = arrays.grouped(work.rank, kind, rule)
    names = arrays.grouped(groups.number, name)
    rank, kind, rule = groups.keys
    total = groups.total(work.end - work.start)
    per_rank = arrays.grouped(rank)
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "kind": arrays.labelled(kind, KINDS),
            "rule": arrays.texts(rule, rule_names),
            "is_unclassified": rule == rule_names.index(UNCLASSIFIED),
            "name_count": np.bincount(names.keys[0], minlength=len(rank)),
            "kernel_count": groups.sizes(),
            "total_ns": total,
            "time_share": arrays.shares(total, per_rank.total(total)[per_rank.number]),
        }
    )
    order = np.lexsort((-total, rank))
    return KERNEL_KINDS.check(table.iloc[order].reset_index(drop=True))


def unclassified_kernels(
    events: pd.DataFrame, *, rules: Rules = None, limit: int = 10
) -> pd.DataFrame:
    """List the unlabelled kernels, those with the longest total first.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    rules
        Rules of one's own, as for :func:`kernel_kinds`.
    limit
        How many names to list.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.UNCLASSIFIED_KERNELS`: ``name``, ``kind``, ``kernel_count``,
        ``total_ns``, ``time_share`` of all GPU work, over all ranks.

    Raises
    ------
    LoadError
        If the rules cannot be used.
    """
    work = arrays.gpu_work(events, "name", "category")
    kind, rule, rule_names = _ruled(events, work, rules)
    unknown = rule == rule_names.index(UNCLASSIFIED)
    name = arrays.codes(events["name"])[work.row].astype(np.int64)
    groups = arrays.grouped(name[unknown], kind[unknown])
    duration = work.end - work.start
    total = groups.total(duration[unknown])
    table = pd.DataFrame(
        {
            "name": arrays.relabelled(groups.keys[0], events["name"]).astype(str),
            "kind": arrays.labelled(groups.keys[1], KINDS),
            "kernel_count": groups.sizes(),
            "total_ns": total,
            "time_share": arrays.shares(total, np.full(len(total), duration.sum())),
        }
    )
    order = np.argsort(-total, kind="stable")[:limit]
    return UNCLASSIFIED_KERNELS.check(table.iloc[order].reset_index(drop=True))


def _ruled(events: pd.DataFrame, work: Work, rules: Rules) -> tuple[Ints, Ints, list[str]]:
    used, name = np.unique(arrays.codes(events["name"])[work.row], return_inverse=True)
    classified = classify(events["name"].cat.categories[used], rules=rules)
    rule_names = list(dict.fromkeys([*classified["rule"], _BY_CATEGORY, _BY_LOADER, UNCLASSIFIED]))
    rule = pd.Index(rule_names).get_indexer(pd.Index(classified["rule"]))[name]
    kind = pd.Index(KINDS).get_indexer(pd.Index(classified["kind"]))[name]
    categories = pd.Index(list(events["category"].cat.categories))
    is_copy = categories.isin(GPU_MEMORY)[arrays.codes(events["category"])[work.row]]
    kind = np.where(is_copy, KINDS.index("memory"), kind)
    rule = np.where(is_copy, rule_names.index(_BY_CATEGORY), rule)
    # Where the loader was given other rules, its kind stands, and no shipped rule made it.
    if rules is None:
        rule = np.where(kind == work.kind, rule, rule_names.index(_BY_LOADER))
        kind = work.kind
    return kind, rule, rule_names


_COLUMNS = ("name", "category", "process", "thread", "launch", "external_id", "correlation")


@per_rank
def operators(events: pd.DataFrame) -> pd.DataFrame:
    """Add up host and GPU time by operator, most GPU time first within each rank.

    An operator's own time is what it spends outside the operators inside it. The GPU work it
    started runs later and elsewhere; it is credited to the innermost operator around the launching
    call, and to those around that one in ``gpu_ns``.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OPERATORS`, one row per rank and operator, and one without a
        name per rank for GPU work that no operator is known to have started. So ``gpu_self_ns``
        adds up to the durations of all GPU work. Empty if there is neither operator nor GPU work.

    Raises
    ------
    WorkbenchError
        If ``launch`` points to rows that launch nothing.

    Notes
    -----
    ``total_ns`` and ``gpu_ns`` count an operator that calls itself once, through its outermost
    call, so neither exceeds what was spent.
    """
    work = arrays.gpu_work(events, *_COLUMNS)
    tree = arrays.nest(events, work)
    rank = events["rank"].to_numpy()[tree.row].astype(np.int64)
    name = arrays.codes(events["name"])[tree.row].astype(np.int64)
    groups = arrays.grouped(rank, name)
    bucket = groups.number
    total, own = _host_times(events, tree)
    is_outermost = _is_outermost(tree.parent, bucket)
    duration = work.end - work.start
    started = tree.starter != MISSING
    direct = bucket[tree.starter[started]]
    host, kernels, gpu_self, gpu = (np.zeros(len(groups.bounds), np.int64) for _ in range(4))
    np.add.at(host, bucket[is_outermost], total[is_outermost])
    np.add.at(kernels, direct, 1)
    np.add.at(gpu_self, direct, duration[started])
    # Up from the launch to every operator around it.
    above, of_work = tree.starter[started], duration[started]
    while len(above):
        np.add.at(gpu, bucket[above], np.where(is_outermost[above], of_work, 0))
        above = tree.parent[above]
        above, of_work = above[above != MISSING], of_work[above != MISSING]
    table = pd.DataFrame(
        {
            "rank": groups.keys[0].astype("int32"),
            "name": arrays.relabelled(groups.keys[1], events["name"]),
            "op_count": groups.sizes(),
            "total_ns": host,
            "self_ns": groups.total(own),
            "kernel_count": kernels,
            "gpu_self_ns": gpu_self,
            "gpu_ns": gpu,
        }
    )
    table = pd.concat([table, _unowned(table, work.rank[~started], duration[~started])])
    table = table.sort_values(
        ["rank", "gpu_ns", "total_ns"], ascending=[True, False, False], ignore_index=True
    )
    return OPERATORS.check(table)


# Operators inside may end after the one around them where times are rounded, so they are cut.
def _host_times(events: pd.DataFrame, tree: Nest) -> tuple[Ints, Ints]:
    start = events["start_ns"].to_numpy()[tree.row]
    total = events["dur_ns"].to_numpy()[tree.row]
    inside = np.flatnonzero(tree.parent != MISSING)
    around = tree.parent[inside]
    shared = np.minimum((start + total)[inside], (start + total)[around]) - start[inside]
    own = total.copy()
    np.subtract.at(own, around, shared)
    return total, own


# Climbs all chains of callers at once, a level per round; recursion must count once.
def _is_outermost(parent: Ints, bucket: Ints) -> NDArray[np.bool_]:
    is_inner = np.zeros(len(parent), dtype=bool)
    climbing, above = np.arange(len(parent)), parent
    while len(climbing):
        has_parent = above != MISSING
        climbing, above = climbing[has_parent], above[has_parent]
        same = bucket[above] == bucket[climbing]
        is_inner[climbing[same]] = True
        climbing, above = climbing[~same], parent[above[~same]]
    return ~is_inner


def _unowned(table: pd.DataFrame, rank: Ints, duration: Ints) -> pd.DataFrame:
    groups = arrays.grouped(rank)
    rows = pd.DataFrame(dict.fromkeys(table.columns, 0), index=range(len(groups.bounds)))
    rows["rank"] = groups.keys[0]
    rows["kernel_count"] = groups.sizes()
    rows["gpu_self_ns"] = rows["gpu_ns"] = groups.total(duration)
    rows["name"] = pd.Categorical([None] * len(rows), categories=table["name"].cat.categories)
    return rows.astype(table.dtypes)
