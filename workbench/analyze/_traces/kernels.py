"""Which work fills the GPUs, by name and by kind."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import GPU_MEMORY, KINDS, UNCLASSIFIED, classify
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import MISSING, Ints, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.tables import KERNEL_KINDS, KERNELS, UNCLASSIFIED_KERNELS

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
