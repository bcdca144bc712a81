"""Whether failures become more frequent, and whether they come in bursts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy

from workbench._shared.numbers import Floats, share_between
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    NS_PER_H,
    counted,
    doubtful_counts,
    needed,
    observed,
    several_reporters,
    timed,
    with_value,
)
from workbench.tables import FAILURE_GAPS, FAILURE_TREND

_H_PER_DAY = 24
_FEWEST = 2


class _Seen(NamedTuple):
    """Failures and the time over which nodes were watched, in hours since the first was."""

    at: Floats
    """Time of each failure, in order."""
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
    failures
        Table :data:`workbench.tables.FAILURES`, with times.
    nodes
        Table :data:`workbench.tables.NODE_SPANS` with all nodes watched, failed or not.
    leave_out
        Severities and categories that are not failures to count.
    confidence_level
        Confidence of the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_TREND`, one row.

    Raises
    ------
    WorkbenchError
        If no failure has a time, clocks cannot be compared, a node has no span, or a failure
        lies outside the span of its node.

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
    first, last = (
        (spans[name].to_numpy(dtype="int64") - zero) / NS_PER_H for name in ("first_ns", "last_ns")
    )
    return _Seen(np.sort(at), first, last, left)


def _growth(at: Floats, total: float) -> float:
    """Return the power of the power law; NaN for too few failures, or all at the very end."""
    if len(at) < _FEWEST:
        return float("nan")
    # A failure at the very start would make the sum infinite, and the power 0.
    logs = np.log(total / np.maximum(at, total * 1e-12)).sum()
    return float(len(at) / logs) if logs > 0 else float("nan")


def failure_gaps(
    failures: pd.DataFrame, *, leave_out: Sequence[str] = LEFT_OUT, confidence_level: float = 0.95
) -> pd.DataFrame:
    """Return whether the failures of all nodes together come in bursts.

    Models of goodput let failures come by chance, one independent of the next. In a log
    with bursts the recoveries overlap, and the same number of failures costs less.

    Parameters
    ----------
    failures, leave_out
        As for :func:`failure_trend`.
    confidence_level
        Confidence of the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_GAPS`, one row. ``attrs["left_out"]`` counts what
        was not counted.

    Raises
    ------
    WorkbenchError
        If no failure has a time, or clocks cannot be compared.

    Notes
    -----
    The shape k of the Weibull law fitted to the gaps above 0, with its likelihood ratio
    against k = 1; k < 1 means bursts. A rate that changes over weeks gives k < 1, too: look
    at :func:`failure_trend` first.
    """
    confidence = share_between("confidence_level", confidence_level)
    kept, left = counted(failures, leave_out)
    kept = timed(kept, left)
    gaps = np.diff(np.sort(kept["start_ns"].to_numpy(dtype="int64"))) / NS_PER_H
    # A Weibull density has no finite value at a gap of 0 where its shape is below 1.
    apart = gaps[gaps > 0]
    mean = float(gaps.mean()) if len(gaps) else np.nan
    row = {
        "gap_count": len(gaps),
        "together_count": len(gaps) - len(apart),
        "mean_h": mean,
        "variation_ratio": float(gaps.std()) / mean if len(gaps) > 1 and mean > 0 else np.nan,
        **weibull_shape(apart, confidence)._asdict(),
    }
    return FAILURE_GAPS.of(
        [row], {"left_out": left, "doubts": several_reporters(counted(failures, leave_out)[0])}
    )


class Shape(NamedTuple):
    shape_ratio: float = float("nan")
    low_shape_ratio: float = float("nan")
    high_shape_ratio: float = float("nan")
    p_value_share: float = float("nan")


def weibull_shape(gaps: Floats, confidence: float) -> Shape:
    """Fit a Weibull law by maximum likelihood; no shape for fewer than two different gaps.

    The scale has a closed form given the shape, so one equation in the shape remains; its
    left side falls with the shape. The interval is Wald's in the logarithm of the shape.
    """
    if len(gaps) < _FEWEST or gaps.min() >= gaps.max():
        return Shape()
    # In units of the longest gap, where powers of the gaps stay below 1.
    t = gaps / gaps.max()
    log_t, count = np.log(t), len(t)

    def slope(log_shape: float) -> float:
        power = t ** np.exp(log_shape)
        return float((power @ log_t) / power.sum() - np.exp(-log_shape) - log_t.mean())

    low, high = -10.0, 10.0
    if slope(low) >= 0 or slope(high) <= 0:
        return Shape()
    shape = float(np.exp(scipy.optimize.brentq(slope, low, high, xtol=1e-13)))
    log_scale = np.log((t**shape).mean()) / shape
    # Twice the gain in log-likelihood over k = 1, whose scale is the mean.
    of_law = np.log(shape) - shape * log_scale + (shape - 1) * log_t.mean()
    gain = max(2 * count * float(of_law + np.log(t.mean())), 0.0)
    # Information of ln k once ln scale has been estimated, too (the Schur complement).
    log_z = shape * (log_t - log_scale)
    first, second = (float((np.exp(log_z) * log_z**n).sum()) for n in (1, 2))
    spread = 1 / np.sqrt(second + count - first**2 / count)
    reach = float(np.exp(scipy.stats.norm.ppf((1 + confidence) / 2) * spread))
    return Shape(shape, shape / reach, shape * reach, float(scipy.stats.chi2.sf(gain, 1)))
