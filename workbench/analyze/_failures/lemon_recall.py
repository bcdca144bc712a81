"""How long nodes must be watched until those that fail too often stand out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from workbench._numbers import positive, share_between, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import LEMON_RECALL


@dataclass(frozen=True)
class Lemons:
    """How many bad nodes there may be, and how bad they are together."""

    node_share: float = 0.012
    """Of all nodes that are lemons."""
    failure_share: float = 0.15
    """Of all failures that strike them."""

    def __str__(self) -> str:
        """Say what is assumed, as figures print it."""
        return (
            f"{100 * self.node_share:.3g} % of the nodes have {100 * self.failure_share:.3g} % of "
            "the failures"
        )

    def __post_init__(self) -> None:
        share_between("node_share", self.node_share)
        share_between("failure_share", self.failure_share)
        if self.failure_share < self.node_share:
            msg = (
                f"lemons that are {self.node_share:.3g} of the nodes cannot have only "
                f"{self.failure_share:.3g} of the failures; they would be the better ones"
            )
            raise WorkbenchError(msg)


def lemon_recall(
    node_count: int,
    per_1000_node_days: float,
    *,
    days: Sequence[float] = (7, 14, 21, 30, 45, 54, 75, 90, 120, 180),
    lemons: Lemons | None = None,
    false_discovery_share: float = 0.05,
) -> pd.DataFrame:
    """Say how many lemons :func:`lemon_nodes` is to find, by how long nodes are watched.

    A node that fails twice as often as others looks like them for weeks, because even a bad
    node fails rarely. So a short list of lemons from a short log proves nothing about the
    nodes that are not on it.

    Parameters
    ----------
    node_count
        Nodes watched.
    per_1000_node_days
        Failures of all nodes together, per 1,000 node-days.
    days
        Lengths of observation.
    lemons
        How many lemons there are, and which share of the failures they have; by default
        1.2 % of the nodes have 15 % of the failures.
    false_discovery_share
        As for :func:`lemon_nodes`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LEMON_RECALL`: ``observed_days``, ``failure_count``,
        ``least_failures_count``, ``recall_share``, ``precision_share``, by length.

    Raises
    ------
    WorkbenchError
        If an argument is out of range, or less than one node would be a lemon.

    Notes
    -----
    Counts of lemons and of other nodes are Poisson. Benjamini and Hochberg's procedure flags
    nodes with at least c failures, c being the smallest number for which
    N P(X ≥ c) ≤ q E(nodes with ≥ c), X being Poisson with the mean of all nodes and q the
    false discovery rate. Here the expected number stands for the actual one, so that nothing
    is drawn at random; the recall is P(lemon has ≥ c). It grows in steps, as c is whole.

    References
    ----------
    Y. Benjamini, Y. Hochberg, Journal of the Royal Statistical Society B 57 (1995), 289.

    Examples
    --------
    >>> lemon_recall(12_288, 6.51, days=(14, 90))["recall_share"].round(2).tolist()
    [0.03, 0.85]
    """
    nodes = whole_number("node_count", node_count, least=1)
    rate = positive("per_1000_node_days", per_1000_node_days) / 1000
    false = share_between("false_discovery_share", false_discovery_share)
    assumed = Lemons() if lemons is None else lemons
    if nodes * assumed.node_share < 1:
        msg = f"{assumed}: of {nodes:,} nodes that is less than one; pass lemons= that fit"
        raise WorkbenchError(msg)
    watched = sorted(positive("days", each) for each in days)
    rows = [_recall(nodes, rate * each, assumed, false) for each in watched]
    table = pd.DataFrame(rows, columns=["least_failures_count", "recall_share", "precision_share"])
    table = table.assign(
        observed_days=np.array(watched, dtype="float64"),
        failure_count=np.array(watched, dtype="float64") * rate * nodes,
    )
    table = LEMON_RECALL.cast(table)
    table.attrs["assumed"] = str(assumed)
    return LEMON_RECALL.check(table)


def _recall(
    nodes: int, mean_count: float, assumed: Lemons, false: float
) -> tuple[int | None, float, float | None]:
    """Return the least count that is flagged, and the recall and precision it gives."""
    bad = assumed.node_share * nodes
    lemon_mean = assumed.failure_share * mean_count / assumed.node_share
    other_mean = (1 - assumed.failure_share) * mean_count / (1 - assumed.node_share)
    # Beyond this a count is impossible for lemons, too.
    most = int(stats.poisson.isf(1e-9, lemon_mean)) + 10
    count = np.arange(1, most)
    recall = stats.poisson.sf(count - 1, lemon_mean)
    found, wrong = bad * recall, (nodes - bad) * stats.poisson.sf(count - 1, other_mean)
    flags = nodes * stats.poisson.sf(count - 1, mean_count) <= false * (found + wrong)
    if not flags.any():
        return None, 0.0, None
    first = int(flags.argmax())
    return (
        int(count[first]),
        float(recall[first]),
        float(found[first] / (found[first] + wrong[first])),
    )
