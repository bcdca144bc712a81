"""Nodes that fail more often than chance explains, and whether the log is long enough to tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.numbers import positive, share_between, whole_number
from workbench.analyze._failures.failure_rates import Nodes, counts_by_node, exposure_days
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    counted,
    doubtful_counts,
    needed,
    with_value,
)
from workbench.errors import WorkbenchError
from workbench.tables import LEMON_NODES, LEMON_RECALL


def lemon_nodes(
    failures: pd.DataFrame,
    *,
    nodes: Nodes,
    days: float | None = None,
    false_discovery_share: float = 0.05,
    lemons: Lemons | None = None,
    leave_out: Sequence[str] = LEFT_OUT,
) -> pd.DataFrame:
    """Flag the nodes that fail more often than nodes of equal rate would by chance.

    Among thousands of nodes some fail three times by chance alone, so every count is held
    against what chance gives that many nodes. That a node is *not* flagged means little in a
    short log: ``recall_share`` says how many lemons such an observation is to find at all.

    Parameters
    ----------
    failures, nodes, days
        As for :func:`failure_rates`.
    false_discovery_share
        Share of wrong ones among the flagged that is put up with.
    lemons
        What ``recall_share`` assumes of them; by default 1.2 % of the nodes have 15 % of the
        failures.
    leave_out
        Severities and categories that are not failures to count.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LEMON_NODES`, the highest shrunk rate first.
        ``attrs["left_out"]`` counts what was not counted, ``attrs["doubts"]`` lists what speaks
        against the exposure.

    Raises
    ------
    WorkbenchError
        If the exposure cannot be known, or a failed node is not among ``nodes``.

    Notes
    -----
    With n_i failures in e_i node-days and the rate λ = Σn / Σe of all nodes,
    p_i = P(Poisson(e_i λ) ≥ n_i); those are adjusted after Benjamini and Hochberg. The shrunk
    rate is (a + n_i) / (a / λ + e_i), the mean of the gamma-Poisson model whose variance of
    rates λ²/a = (Σ(n_i - e_i λ)² - Σn) / Σe_i² is found by moments; if that is not above 0 all
    rates are λ. The dispersion is Σ(n_i - e_i λ)² / (e_i λ) / (N - 1), which for equal
    exposure is the variance over the mean of the counts. The expected recall is that of
    :func:`lemon_recall` at the mean exposure.

    References
    ----------
    Y. Benjamini, Y. Hochberg, Journal of the Royal Statistical Society B 57 (1995), 289;
    lemon nodes: arXiv:2410.21680, section 4.

    Examples
    --------
    >>> from workbench.tables import FAILURES
    >>> found = lemon_nodes(FAILURES.empty(), nodes=100, days=30)
    >>> bool(found["is_lemon"].any()), float(found["recall_share"].iloc[0])
    (False, 0.0)
    """
    false = share_between("false_discovery_share", false_discovery_share)
    kept, left = counted(needed(failures, "node"), leave_out)
    kept = with_value(kept, "node", "no node", left)
    watched, doubts = exposure_days(nodes, days)
    doubts = [*doubts, *doubtful_counts(kept)]
    counts = counts_by_node(kept, watched)
    count = counts.to_numpy(dtype="float64")
    exposure = watched.to_numpy(dtype="float64")
    rate = count.sum() / exposure.sum()
    expected = exposure * rate
    # sf(n - 1) is P(X >= n): the count itself is as extreme as observed.
    p_value = scipy.stats.poisson.sf(count - 1, expected)
    # Benjamini-Hochberg, which scipy applies by default.
    adjusted = scipy.stats.false_discovery_control(p_value)
    dispersion = np.nan
    if len(count) > 1 and count.any():
        dispersion = ((count - expected) ** 2 / expected).sum() / (len(count) - 1)
    table = pd.DataFrame(
        {
            "node": counts.index.astype(str),
            "failure_count": count,
            "exposure_node_days": exposure,
            "expected_count": expected,
            "p_value_share": p_value,
            "adjusted_p_value_share": adjusted,
            "shrunk_per_1000_node_days": 1000 * _shrunk(count, exposure, rate),
            "is_lemon": (adjusted <= false) & (count > 0),
            "dispersion_ratio": dispersion,
            "recall_share": _expected_recall(exposure, rate, lemons, false),
        }
    )
    order = ["shrunk_per_1000_node_days", "failure_count"]
    table = LEMON_NODES.cast(table.sort_values(order, ascending=False, kind="stable"))
    table = table.reset_index(drop=True)
    table.attrs = {"left_out": left, "doubts": doubts, "assumed": str(lemons or Lemons())}
    return LEMON_NODES.check(table)


def _shrunk(
    count: NDArray[np.float64], exposure: NDArray[np.float64], rate: float
) -> NDArray[np.float64]:
    """Draw every node's rate towards that of all, the more the less it was watched."""
    # Method of moments: the variance beyond that of a Poisson process, at equal rates.
    excess = ((count - exposure * rate) ** 2).sum() - count.sum()
    if not excess > 0:
        return np.full(len(count), rate)
    shape = rate**2 * (exposure**2).sum() / excess
    shrunk: NDArray[np.float64] = (shape + count) / (shape / rate + exposure)
    return shrunk


def _expected_recall(
    exposure: NDArray[np.float64], rate: float, lemons: Lemons | None, false: float
) -> float:
    if len(exposure) * (lemons or Lemons()).node_share < 1:
        return float("nan")
    if not rate > 0:
        return 0.0
    expected = lemon_recall(
        len(exposure),
        1000 * rate,
        days=[float(exposure.mean())],
        lemons=lemons,
        false_discovery_share=false,
    )
    return float(expected["recall_share"].iloc[0])


# How long nodes must be watched until those that fail too often stand out.


@dataclass(frozen=True)
class Lemons:
    """How many bad nodes there may be, and how bad they are together."""

    node_share: float = 0.012
    """Of all nodes that are lemons."""
    failure_share: float = 0.15
    """Of all failures that strike them."""

    def __str__(self) -> str:
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
    """Predict how many lemons :func:`lemon_nodes` finds, by how long nodes are observed.

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
    lemons, false_discovery_share
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
    watched = sorted(positive("days", length) for length in days)
    rows = [_recall(nodes, rate * length, assumed, false) for length in watched]
    table = pd.DataFrame(rows, columns=["least_failures_count", "recall_share", "precision_share"])
    table = table.assign(
        observed_days=np.array(watched, dtype="float64"),
        failure_count=np.array(watched, dtype="float64") * rate * nodes,
    )
    return LEMON_RECALL.of(table, {"assumed": str(assumed)})


def _recall(
    nodes: int, mean_count: float, assumed: Lemons, false: float
) -> tuple[int | None, float, float | None]:
    """Return the least count that is flagged, and the recall and precision it gives."""
    bad = assumed.node_share * nodes
    lemon_mean = assumed.failure_share * mean_count / assumed.node_share
    other_mean = (1 - assumed.failure_share) * mean_count / (1 - assumed.node_share)
    # Beyond this a count is impossible for lemons, too.
    most = int(scipy.stats.poisson.isf(1e-9, lemon_mean)) + 10
    count = np.arange(1, most)
    recall = scipy.stats.poisson.sf(count - 1, lemon_mean)
    flagged, wrong = bad * recall, (nodes - bad) * scipy.stats.poisson.sf(count - 1, other_mean)
    # Benjamini-Hochberg for expected counts: the first threshold at which it would hold.
    flags = nodes * scipy.stats.poisson.sf(count - 1, mean_count) <= false * (flagged + wrong)
    if not flags.any():
        return None, 0.0, None
    first = int(flags.argmax())
    return (
        int(count[first]),
        float(recall[first]),
        float(flagged[first] / (flagged[first] + wrong[first])),
    )
