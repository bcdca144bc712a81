"""Which nodes fail more often than chance has it, and whether the log is long enough to say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from workbench._numbers import share_between
from workbench.analyze._failures.exposure import Nodes, counts_by_node, exposure_days
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    counted,
    doubtful_counts,
    needed,
    with_value,
)
from workbench.analyze._failures.lemon_recall import Lemons, lemon_recall
from workbench.tables import LEMON_NODES


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
    failures
        Table :data:`workbench.tables.FAILURES`.
    nodes
        All nodes watched, failed or not: how many, their names, or table
        :data:`workbench.tables.NODE_SPANS`.
    days
        How long each was watched. May be left out for a table of nodes, whose spans are
        taken then.
    false_discovery_share
        Share of wrong ones among the flagged that is put up with.
    lemons
        What ``recall_share`` assumes of them; by default 1.2 % of the nodes have 15 % of the
        failures.
    leave_out
        Severities and categories that are no failures to count.

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
    left: dict[str, int]
    kept, left = counted(needed(failures, "node"), leave_out)
    kept = with_value(kept, "node", "no node", left)
    watched, doubts = exposure_days(nodes, days)
    doubts = [*doubts, *doubtful_counts(kept)]
    counts = counts_by_node(kept, watched)
    count = counts.to_numpy(dtype="float64")
    exposure = watched.to_numpy(dtype="float64")
    rate = count.sum() / exposure.sum()
    expected = exposure * rate
    p_value = stats.poisson.sf(count - 1, expected)
    adjusted = stats.false_discovery_control(p_value)
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
            "dispersion_ratio": _dispersion(count, expected),
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
    excess = ((count - exposure * rate) ** 2).sum() - count.sum()
    if not excess > 0:
        return np.full(len(count), rate)
    shape = rate**2 * (exposure**2).sum() / excess
    shrunk: NDArray[np.float64] = (shape + count) / (shape / rate + exposure)
    return shrunk


def _dispersion(count: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    if len(count) < 2 or not count.any():
        return float("nan")
    return float(((count - expected) ** 2 / expected).sum() / (len(count) - 1))


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
