"""For how long which nodes were watched: what every rate is divided by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from workbench._numbers import positive, whole_number
from workbench.analyze._failures.failure_rows import NS_PER_H
from workbench.errors import WorkbenchError
from workbench.tables import NODE_SPANS

Nodes: TypeAlias = pd.DataFrame | Sequence[str] | int

_NS_PER_DAY = 24 * NS_PER_H
_ALL_FAILED = (
    "every node listed has failed: nodes seen only because they failed make all rates too high"
)


def exposure_days(nodes: Nodes, days: float | None) -> tuple[pd.Series, list[str]]:
    """Return the days that each node was watched, by its name, and what is doubtful about them.

    Parameters
    ----------
    nodes
        Table :data:`workbench.tables.NODE_SPANS`, names, or how many there are. Nodes
        without a name are called ``(unnamed 1)`` and so on.
    days
        Time that every node was watched; None to take the spans of the table.

    Raises
    ------
    WorkbenchError
        If there are no nodes, a name occurs twice, or it cannot be known how long they
        were watched.
    """
    if days is not None:
        days = positive("days", days)
    if isinstance(nodes, pd.DataFrame):
        return _of_spans(nodes, days)
    if isinstance(nodes, str):
        msg = f"nodes={nodes!r} is a text; pass a list of names, their number, or a table of nodes"
        raise WorkbenchError(msg)
    if days is None:
        msg = "it is not known how long the nodes were watched; pass days= or a table of nodes"
        raise WorkbenchError(msg)
    if isinstance(nodes, Sequence):
        return _once(pd.Series(days, index=pd.Index([str(node) for node in nodes]))), []
    count = whole_number("nodes", nodes, least=1)
    names = [f"(unnamed {number})" for number in range(1, count + 1)]
    return pd.Series(days, index=pd.Index(names)), []


def _of_spans(nodes: pd.DataFrame, days: float | None) -> tuple[pd.Series, list[str]]:
    NODE_SPANS.check(nodes)
    names = pd.Index(nodes["node"].astype(str))
    doubts = [_ALL_FAILED] if len(nodes) and (nodes["failure_count"] > 0).all() else []
    if days is not None:
        return _once(pd.Series(days, index=names)), doubts
    span = (nodes["last_ns"] - nodes["first_ns"]).astype("Float64")
    watched = (span.to_numpy(dtype="float64", na_value=np.nan)) / _NS_PER_DAY
    if bad := int((~(watched > 0)).sum()):
        first = names[int((~(watched > 0)).argmax())]
        msg = (
            f"{bad:,} of {len(nodes):,} nodes have no time over which they were watched, e.g. "
            f"{first!r}; pass days=, how long all of them were"
        )
        raise WorkbenchError(msg)
    return _once(pd.Series(watched, index=names)), doubts


def _once(days: pd.Series) -> pd.Series:
    if days.empty:
        msg = "there are no nodes; pass all that were watched, not only those that failed"
        raise WorkbenchError(msg)
    if days.index.has_duplicates:
        name = days.index[days.index.duplicated()][0]
        msg = f"node {name!r} is listed twice; every node has one row"
        raise WorkbenchError(msg)
    return days


def counts_by_node(failures: pd.DataFrame, days: pd.Series) -> pd.Series:
    """Return the failures of every node watched, in the order of ``days``.

    Nodes that were only counted take the names of those that failed.

    Raises
    ------
    WorkbenchError
        If a failure is of a node that was not watched.
    """
    counts = failures["node"].astype(str).value_counts()
    strange = counts.index.difference(days.index)
    unnamed = [name for name in days.index if name.startswith("(unnamed ")]
    if len(strange) > len(unnamed) > 0:
        verb = "was" if len(days) == 1 else "were"
        msg = f"{len(strange):,} nodes have failed, and only {len(days):,} {verb} watched"
        raise WorkbenchError(msg)
    if len(strange) > len(unnamed):
        msg = (
            f"{len(strange):,} nodes have failed that are not among the {len(days):,} nodes "
            f"watched, e.g. {str(strange[0])!r}; pass nodes= with all of them"
        )
        raise WorkbenchError(msg)
    known = days.rename(dict(zip(unnamed, strange, strict=False)))
    return counts.reindex(known.index, fill_value=0)
