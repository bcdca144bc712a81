"""The gate between a graph and what is asked of it."""

from __future__ import annotations

import pandas as pd

from workbench.errors import PerformanceModelError
from workbench.tables import REPLAY_FIDELITY, ExecutionGraph


def usable_graph(graph: ExecutionGraph, fidelity: pd.DataFrame) -> ExecutionGraph:
    """Give a graph whose replay can be trusted, and refuse any other.

    A critical path or slack of a graph that does not know why its trace took the time it took looks
    as exact as that of one that does. Nothing should be read from a graph that does not pass here.

    Parameters
    ----------
    graph
        From :func:`execution_graph`.
    fidelity
        From :func:`replay_fidelity` of this graph.

    Returns
    -------
    ExecutionGraph
        The same graph.

    Raises
    ------
    PerformanceModelError
        If the replay of a rank is not usable, or if there is no replay.
    """
    refused = REPLAY_FIDELITY.check(fidelity).query("not is_usable")
    if refused.empty and len(fidelity):
        return graph
    if fidelity.empty:
        msg = "the graph is refused: no rank was replayed; load a trace with GPU work"
        raise PerformanceModelError(msg)
    first = refused.iloc[0]
    more = f" (and {len(refused) - 1:,} more ranks)" if len(refused) > 1 else ""
    msg = f"the graph is refused, rank {first['rank']}{more}: {first['doubt']}"
    raise PerformanceModelError(msg)
