"""How often nodes fail again and again, and whether that becomes more or less often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.numbers import Floats, share_between
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    NS_PER_H,
    counted,
    doubtful_counts,
    needed,
    observed,
    timed,
    with_value,
)
from workbench.tables import FAILURE_TREND, RECURRENCE

_H_PER_DAY = 24
_FEWEST = 2


class _Seen(NamedTuple):
    """Failures and the time over which nodes were watched, in hours since the first was."""

    at: Floats
    """Time of each failure, in order."""
    node: NDArray[np.int64]
    """Position of its node."""
    first: Floats
    last: Floats
    """From when to when each node was watched."""
    left_out: dict[str, int]

    def node_hours(self, time: Floats) -> Floats:
        first, last = np.sort(self.first), np.sort(self.last)
        begun, ended = np.searchsorted(first, time), np.searchsorted(last, time)
        first_sum = np.concatenate([[0.0], first.cumsum()])
        last_sum = np.concatenate([[0.0], last.cumsum()])
        hours: Floats = time * begun - first_sum[begun] - (time * ended - last_sum[ended])
        return hours


def recurrence(
    failures: pd.DataFrame,
    nodes: pd.DataFrame,
    *,
    leave_out: Sequence[str] = LEFT_OUT,
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Count the failures per node up to each time, nodes that come and go allowed for.

    A straight line means a constant rate; one that bends upwards means that failures become
    more frequent, one that flattens that repairs or burn-in help.

    Parameters
    ----------
    failures, nodes, leave_out
        As for :func:`lifetimes`.
    confidence_level
        Confidence of the band, at each time for itself.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.RECURRENCE`, by time. ``attrs["left_out"]`` counts what was
        not counted.

    Raises
    ------
    WorkbenchError
        If no failure has a time, clocks cannot be compared, a node has no span, or a failure
        lies outside the span of its node.

    Notes
    -----
    Mean cumulative function M(t) = Σ d_j / n_j over the times t_j ≤ t with d_j failures among
    n_j nodes watched (Nelson-Aalen). Its variance is the robust one,
    Σ_i [Σ_j (d_ij - d_j / n_j) / n_j]² over the nodes i watched at t_j, which holds also where
    some nodes fail much more often than others; it is not known once only one node is
    watched. The trend is that of :func:`failure_trend`.

    References
    ----------
    J. F. Lawless, C. Nadeau, Technometrics 37 (1995), 158.
    """
    confidence = share_between("confidence_level", confidence_level)
    seen = _seen(failures, nodes, leave_out)
    if not len(seen.at):
        table = RECURRENCE.empty()
        table.attrs["left_out"] = seen.left_out
        return table
    times, begin, count = np.unique(seen.at, return_index=True, return_counts=True)
    at_risk = _at_risk(seen, times)
    mean = np.cumsum(count / at_risk)
    deviation = np.sqrt(_robust_variance(seen, times, begin, count))
    reach = float(scipy.stats.norm.ppf((1 + confidence) / 2)) * deviation
    # The spread between nodes cannot be known of one.
    alone = np.maximum.accumulate(at_risk == 1)
    reach = np.where(alone, np.nan, reach)
    exposure = seen.node_hours(times)
    total = float(seen.node_hours(seen.last.max()[None])[0])
    growth = _growth(seen.node_hours(seen.at), total)
    power = 1.0 if np.isnan(growth) else growth
    # The power law is one of node-hours; per node as many are watched at that time.
    steps = np.diff((exposure / total) ** power * len(seen.at), prepend=0.0)
    table = RECURRENCE.of(
        {
            "time_h": times,
            "failure_count": count,
            "at_risk_count": at_risk,
            "mean_count": mean,
            "low_count": np.maximum(mean - reach, 0.0),
            "high_count": mean + reach,
            "trend_count": np.cumsum(steps / at_risk),
        }
    )
    doubts = doubtful_counts(counted(failures, leave_out)[0])
    table.attrs = {"left_out": seen.left_out, "doubts": doubts, "confidence_level": confidence}
    return table


def failure_trend(
    failures: pd.DataFrame,
    nodes: pd.DataFrame,
    *,
    leave_out: Sequence[str] = LEFT_OUT,
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Return whether failures became more or less frequent while the nodes were watched.

    Parameters
    ----------
    failures, nodes, leave_out
        As for :func:`lifetimes`.
    confidence_level
        Confidence of the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_TREND`, one row.

    Raises
    ------
    WorkbenchError
        As for :func:`recurrence`.

    Notes
    -----
    Time is measured in node-hours, so that adding nodes does not look like a trend. Power law
    (Crow-AMSAA), observation ended at T: β = n / Σ ln(T / t_i), and 2nβ₀ / β is χ² with 2n
    degrees of freedom for the true β₀, which gives the exact interval. Laplace's test:
    (Σ t_i / n - T/2) / (T / √(12 n)), normal if the rate is constant.

    References
    ----------
    L. H. Crow, Reliability analysis for complex repairable systems, SIAM 1974, p. 379.
    """
    confidence = share_between("confidence_level", confidence_level)
    seen = _seen(failures, nodes, leave_out)
    total = float(seen.node_hours(seen.last.max()[None])[0])
    at = seen.node_hours(seen.at)
    count, growth = len(at), _growth(at, total)
    tail = (1 - confidence) / 2
    ends = scipy.stats.chi2.ppf([tail, 1 - tail], 2 * max(count, 1)) / (2 * max(count, 1))
    enough = count >= _FEWEST
    laplace = (at.mean() / total - 0.5) * np.sqrt(12 * count) if enough else np.nan
    row = {
        "failure_count": count,
        "node_count": len(seen.first),
        "exposure_node_days": total / _H_PER_DAY,
        "growth_ratio": growth,
        "low_growth_ratio": growth * ends[0],
        "high_growth_ratio": growth * ends[1],
        "laplace_ratio": laplace,
        "p_value_share": 2 * scipy.stats.norm.sf(abs(laplace)),
    }
    return FAILURE_TREND.of(
        [row],
        {"left_out": seen.left_out, "doubts": doubtful_counts(counted(failures, leave_out)[0])},
    )


def _seen(failures: pd.DataFrame, nodes: pd.DataFrame, leave_out: Sequence[str]) -> _Seen:
    kept, left = counted(needed(failures, "node"), leave_out)
    kept = timed(with_value(kept, "node", "no node", left), left)
    spans = observed(kept, nodes)
    zero = int(spans["first_ns"].min())
    at = (kept["start_ns"].to_numpy(dtype="int64") - zero) / NS_PER_H
    order = np.argsort(at, kind="stable")
    position = spans.index.get_indexer(pd.Index(kept["node"].astype(str)))
    first, last = (
        (spans[name].to_numpy(dtype="int64") - zero) / NS_PER_H for name in ("first_ns", "last_ns")
    )
    return _Seen(at[order], position[order].astype(np.int64), first, last, left)


def _growth(at: Floats, total: float) -> float:
    """Return the power of the power law; NaN for too few failures, or all at the very end."""
    if len(at) < _FEWEST:
        return float("nan")
    # A failure at the very start would make the sum infinite, and the power 0.
    logs = np.log(total / np.maximum(at, total * 1e-12)).sum()
    return float(len(at) / logs) if logs > 0 else float("nan")


def _at_risk(seen: _Seen, times: Floats) -> NDArray[np.int64]:
    begun = np.searchsorted(np.sort(seen.first), times, side="right")
    ended = np.searchsorted(np.sort(seen.last), times, side="left")
    return (begun - ended).astype(np.int64)


def _robust_variance(
    seen: _Seen, times: Floats, begin: NDArray[np.int64], count: NDArray[np.int64]
) -> Floats:
    """Return the variance of the mean cumulative function at each time.

    Every node watched falls behind by the same step, so it is enough to keep the sum of
    the squares over all nodes, and the sum over those watched, which only changes as they go.
    """
    size = _at_risk(seen, times)
    behind = np.concatenate([[0.0], np.cumsum(count / size**2)])
    entry = behind[np.searchsorted(times, seen.first)]
    own = np.zeros(len(seen.first))
    going = np.argsort(seen.last, kind="stable")
    gone = np.searchsorted(seen.last[going], times)  # no longer watched at each time
    variance, squares, total, left = np.empty(len(times)), 0.0, 0.0, 0
    for step, (start, failures) in enumerate(zip(begin, count, strict=True)):
        leaving = going[left : gone[step]]
        total -= float((own[leaving] - (behind[step] - entry[leaving])).sum())
        left = gone[step]
        less = failures / size[step] ** 2
        squares += less * (less * size[step] - 2 * total)
        for node in seen.node[start : start + failures]:
            apart = own[node] - (behind[step + 1] - entry[node])
            squares += (2 * apart + 1 / size[step]) / size[step]
            own[node] += 1 / size[step]
        variance[step] = squares
    return np.maximum(variance, 0.0)
