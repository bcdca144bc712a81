"""What would be known if the nodes had been watched for less time."""

from __future__ import annotations

import pandas as pd

from workbench._numbers import positive
from workbench.analyze._failures.failure_rows import NS_PER_H, needed, timed
from workbench.analyze._failures.observed import observed
from workbench.errors import WorkbenchError
from workbench.tables import NODE_SPANS


def first_days(
    failures: pd.DataFrame, nodes: pd.DataFrame, *, days: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Keep the first days of an observation: the failures, and the spans of the nodes.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, with times.
    nodes
        Table :data:`workbench.tables.NODE_SPANS` with all nodes watched, failed or not.
    days
        How much to keep, from when the first node was watched.

    Returns
    -------
    tuple of pandas.DataFrame
        Failures and nodes, as given but for what came later. Failures without a time or a node
        are left out.

    Raises
    ------
    WorkbenchError
        If no failure has a time, clocks cannot be compared, a failure lies outside the span
        of its node, or no node was watched so early.
    """
    kept = timed(needed(failures, "node"), {})
    kept = kept[kept["node"].notna()]
    spans = observed(kept, nodes)
    end = int(spans["first_ns"].min() + positive("days", days) * 24 * NS_PER_H)
    kept = kept[(kept["start_ns"] <= end).to_numpy(dtype=bool)].reset_index(drop=True)
    early = (nodes["first_ns"] < end).to_numpy(dtype=bool)
    if not early.any():
        msg = f"no node was watched within the first {days:g} days"
        raise WorkbenchError(msg)
    some = nodes[early].reset_index(drop=True)
    counts = kept["node"].astype(str).value_counts()
    counts = counts.reindex(pd.Index(some["node"].astype(str)), fill_value=0)
    some = some.assign(
        last_ns=some["last_ns"].clip(upper=end), failure_count=counts.to_numpy(dtype="int64")
    )
    return kept, NODE_SPANS.check(some)
