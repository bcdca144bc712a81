"""Take all nodes of a log as watched from its beginning to its end."""

from __future__ import annotations

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import NODE_SPANS


def watched_throughout(nodes: pd.DataFrame, *, span_ns: tuple[int, int]) -> pd.DataFrame:
    """Say that every node was watched over the whole span of a log.

    A log mentions a node when something happens to it, not from when to when it was watched;
    a node that is mentioned once would have no time at all. If the log is that of a cluster
    whose nodes did not change, all of them were watched all the time.

    Parameters
    ----------
    nodes
        Table :data:`workbench.tables.NODE_SPANS`.
    span_ns
        From when to when the log watched; see :func:`observed_span`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.NODE_SPANS`: ``node``, ``first_ns`` and ``last_ns`` (the
        span), ``clock``, ``gpu_count``, ``failure_count``. Nodes without a clock get that of
        the others.

    Raises
    ------
    WorkbenchError
        If the span is empty, or the nodes are on different clocks.

    Examples
    --------
    >>> len(watched_throughout(NODE_SPANS.empty(), span_ns=(0, 1)))
    0
    """
    NODE_SPANS.check(nodes)
    first, last = (int(each) for each in span_ns)
    if last <= first:
        msg = f"span_ns must end after it begins, not {span_ns}"
        raise WorkbenchError(msg)
    clocks = sorted(set(nodes["clock"]) - {"none"})
    if len(clocks) > 1:
        msg = f"nodes are on different clocks ({', '.join(clocks)}); pass those of one"
        raise WorkbenchError(msg)
    table = nodes.assign(first_ns=first, last_ns=last, clock=clocks[0] if clocks else "none")
    return NODE_SPANS.check(NODE_SPANS.cast(table))
