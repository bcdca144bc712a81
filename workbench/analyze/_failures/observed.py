"""From when to when each node was watched, on the clock of its failures."""

from __future__ import annotations

import pandas as pd

from workbench.analyze._failures.failure_rows import NS_PER_H, clock_of
from workbench.errors import WorkbenchError
from workbench.tables import NODE_SPANS


def observed(failures: pd.DataFrame, nodes: pd.DataFrame) -> pd.DataFrame:
    """Return first and last instant of every node, in ns; refuse what does not fit the failures.

    Parameters
    ----------
    failures
        Failures of known time and node, all on one clock.
    nodes
        Table :data:`workbench.tables.NODE_SPANS`.

    Raises
    ------
    WorkbenchError
        If there are no nodes, a node has no span or another clock, or a failure is of a node
        that was not watched, or of a time at which it was not.
    """
    NODE_SPANS.check(nodes)
    if nodes.empty:
        msg = "there are no nodes; pass all that were watched, not only those that failed"
        raise WorkbenchError(msg)
    spans = nodes.set_index(nodes["node"].astype(str))[["first_ns", "last_ns"]]
    if spans.index.has_duplicates:
        name = spans.index[spans.index.duplicated()][0]
        msg = f"node {name!r} is listed twice; every node has one row"
        raise WorkbenchError(msg)
    _refuse(spans.isna().any(axis=1), "have no time over which they were watched")
    spans = spans.astype("int64")
    _refuse(spans["last_ns"] <= spans["first_ns"], "were last seen no later than first")
    clock = clock_of(failures)
    other = (nodes["clock"] != (clock.name if clock else nodes["clock"].iloc[0])).to_numpy()
    _refuse(pd.Series(other, index=spans.index), "are on another clock than the failures")
    _refuse_strangers(failures, spans)
    return spans


def _refuse(bad: pd.Series, why: str) -> None:
    if bad.any():
        first = str(bad.index[bad.to_numpy()][0])
        msg = (
            f"{int(bad.sum()):,} of {len(bad):,} nodes {why}, e.g. {first!r}; say from when to "
            "when each was watched in first_ns and last_ns"
        )
        raise WorkbenchError(msg)


def _refuse_strangers(failures: pd.DataFrame, spans: pd.DataFrame) -> None:
    node = failures["node"].astype(str)
    if strange := sorted(set(node) - set(spans.index)):
        msg = (
            f"{len(strange):,} nodes have failed that are not among the {len(spans):,} nodes "
            f"watched, e.g. {strange[0]!r}; pass all nodes"
        )
        raise WorkbenchError(msg)
    at = failures["start_ns"].to_numpy(dtype="int64")
    mine = spans.iloc[spans.index.get_indexer(pd.Index(node))]
    first = mine["first_ns"].to_numpy()
    outside = (at < first) | (at > mine["last_ns"].to_numpy())
    if outside.any():
        row = int(outside.argmax())
        msg = (
            f"{int(outside.sum()):,} failures lie outside the time that their node was watched, "
            f"e.g. of {node.iloc[row]!r} {(at[row] - first[row]) / NS_PER_H:,.3g} h after its "
            "first_ns"
        )
        raise WorkbenchError(msg)
