"""Uncertainty of the mean of a series whose neighbours resemble each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

_BATCHES = 8
# A short series cannot tell its autocorrelation: it starts from this one, as if eight values had
# shown it. Without it five steps that drift look like five independent ones.
_PRIOR_CORRELATION, _PRIOR_COUNT = 0.5, 8
_MOST_CORRELATED = 0.97
# Fewer degrees of freedom than this would hide every change in a short trace.
_LEAST_FREEDOM = 3.0


def lag_one(values: NDArray[np.float64]) -> float:
    """Estimate the autocorrelation of neighbours, shrunk towards 0.5 in short series.

    Notes
    -----
    The usual estimate r is too low by (1 + 3 rho) / n on average, which (n r + 1) / (n - 3)
    undoes. Shrunk with the weight of eight values: (n r + 1 + 8 / 2) / (n - 3 + 8), at least 0,
    as a negative estimate must not narrow an interval.

    References
    ----------
    Kendall (1954), doi:10.1093/biomet/41.3-4.403.
    """
    count = len(values)
    centred = values - values.mean()
    total = float((centred**2).sum())
    ratio = float((centred[1:] * centred[:-1]).sum()) / total if total else 0.0
    shown = count * ratio + 1 + _PRIOR_COUNT * _PRIOR_CORRELATION
    return float(np.clip(shown / (count - 3 + _PRIOR_COUNT), 0, _MOST_CORRELATED))


def mean_variance(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the variance of the mean of a series, and its degrees of freedom.

    Notes
    -----
    The larger of two estimates. First order: s^2 / m with the effective sample size
    m = n (1 - rho) / (1 + rho), and m^2 / n - 1 degrees of freedom, fewer than m - 1 because rho
    is estimated too, but at least 3. From 16 values on also the variance of the means of eight
    batches, which sees correlations that reach further than neighbours.

    References
    ----------
    Effective sample size: Bayley and Hammersley (1946), doi:10.2307/2983560. Batch means: Conway
    (1963), doi:10.1287/mnsc.10.1.47.

    Examples
    --------
    >>> drifting, steady = np.arange(20.0), np.tile([0.0, 19.0], 10)
    >>> bool(mean_variance(drifting)[0] > steady.var() / 20)
    True
    """
    count = len(values)
    correlation = lag_one(values)
    effective = float(np.clip(count * (1 - correlation) / (1 + correlation), 1, count))
    # The mean is fitted: of an effective sample of m only m - 1 are left for the spread.
    spread = float(values.var()) / (1 - min(1 / effective, 0.5))
    variance = spread / effective
    freedom = min(max(effective**2 / count - 1, _LEAST_FREEDOM), count - 1.0)
    if count >= 2 * _BATCHES:
        size = count // _BATCHES
        means = values[count - size * _BATCHES :].reshape(_BATCHES, size).mean(axis=1)
        if (of_batches := float(means.var(ddof=1)) / _BATCHES) > variance:
            return of_batches, min(freedom, _BATCHES - 1.0)
    return variance, freedom


def welch(
    first: tuple[float, float, float], second: tuple[float, float, float], level: float
) -> tuple[float, float, float]:
    """Compare two means, each with its variance and degrees of freedom.

    Returns the interval of second minus first at that level, and the p-value of no difference.
    """
    (mean_a, *a), (mean_b, *b) = first, second
    difference = mean_b - mean_a
    variance = a[0] + b[0]
    if variance <= 0:
        # Two constants have no spread: their difference is what it is.
        return difference, difference, float(difference == 0)
    freedom = variance**2 / (a[0] ** 2 / a[1] + b[0] ** 2 / b[1])
    error = float(np.sqrt(variance))
    reach = float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * error
    p_value: Any = 2 * scipy.stats.t.sf(abs(difference) / error, freedom)
    return difference - reach, difference + reach, float(p_value)
