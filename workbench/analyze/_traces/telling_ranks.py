"""The ranks of a large job that are worth a look at their events."""

from __future__ import annotations

import pandas as pd

from workbench.tables import TELLING_RANKS, Findings


def telling_ranks(
    found: Findings, *, most_ranks: int = 8, largest_whole_job: int = 15
) -> pd.DataFrame:
    """Choose the ranks whose events a page shows of a job of many.

    Findings are about all ranks. A timeline of a thousand of them shows nothing, so it takes those
    that hold up the others, one that waits for them, and a usual one to compare with.

    Parameters
    ----------
    found
        What :func:`workbench.analyze.findings` returned for traces.
    most_ranks
        Ranks to choose, at least 3.
    largest_whole_job
        A job of no more ranks is shown whole, so none is chosen.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TELLING_RANKS`, one row per chosen rank: ``rank``, ``reason``,
        ``lost_ms`` and ``exposed_communication_ns``; empty where all ranks are shown.

    Raises
    ------
    ValueError
        If fewer than 3 ranks are to be chosen.

    Notes
    -----
    The rank that waits most has the most exposed communication and is the fastest; the usual one
    has the median of it. The others are those with the largest ``lost_ms``, in that order.
    """
    if most_ranks < 3:
        msg = f"most_ranks must be at least 3, for a late, a waiting and a usual rank: {most_ranks}"
        raise ValueError(msg)
    table = found.tables.get("traces.by_rank")
    if table is None or len(table) <= largest_whole_job:
        return TELLING_RANKS.empty()
    exposed = table["exposed_communication_ns"].sort_values(kind="stable")
    lost = found.tables.get("traces.lost_to", pd.DataFrame()).sum().sort_values(ascending=False)
    reasons = dict.fromkeys(lost.index[lost > 0][: most_ranks - 2], "holds up the others")
    reasons.setdefault(exposed.index[-1], "waits most, so it is the fastest")
    reasons.setdefault(exposed.index[len(exposed) // 2], "waits as long as the median rank")
    ranks = pd.Index(reasons)
    rows = {
        "rank": ranks,
        "reason": list(reasons.values()),
        "lost_ms": (lost.reindex(ranks) / 1e6).to_numpy("float64"),
        "exposed_communication_ns": exposed.reindex(ranks).to_numpy(),
    }
    return TELLING_RANKS.of(pd.DataFrame(rows))
