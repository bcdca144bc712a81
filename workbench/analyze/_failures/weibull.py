"""The Weibull law that fits lifetimes best, some of which ended without a failure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

Floats = NDArray[np.float64]


class Fit(NamedTuple):
    """A Weibull law: S(t) = exp(-(t / scale)^shape), with intervals and a test."""

    shape: float
    shape_low: float
    shape_high: float
    scale: float
    scale_low: float
    scale_high: float
    likelihood_ratio: float
    p_value: float

    def survival(self, time: Floats) -> Floats:
        """Return the share that lives beyond each time."""
        share: Floats = np.exp(-((time / self.scale) ** self.shape))
        return share


def fit(time: Floats, failed: NDArray[np.bool_], confidence: float) -> Fit | None:
    """Fit by maximum likelihood; None if fewer than two different times end in a failure.

    The scale has a closed form given the shape, so one equation in the shape remains; its
    left side falls with the shape. Intervals are Wald's in the logarithms of both.
    """
    deaths = int(failed.sum())
    if deaths < 2 or (time[failed] <= 0).any() or not _has_maximum(time, failed):
        return None
    unit = float(time.max())
    t = time[time > 0] / unit
    log_t = np.log(t)
    mean_log = float(np.log(time[failed] / unit).mean())

    def slope(log_shape: float) -> float:
        shape = np.exp(log_shape)
        power = t**shape
        return float((power @ log_t) / power.sum() - 1 / shape - mean_log)

    low, high = -10.0, 10.0
    if slope(low) >= 0 or slope(high) <= 0:
        return None
    shape = float(np.exp(optimize.brentq(slope, low, high, xtol=1e-13)))
    power = t**shape
    scale = float((power.sum() / deaths) ** (1 / shape))
    gain = 2 * (
        _likelihood(shape, scale, deaths, mean_log, power.sum())
        - _likelihood(1.0, float(t.sum()) / deaths, deaths, mean_log, float(t.sum()))
    )
    gain = max(float(gain), 0.0)
    spread = np.sqrt(np.diag(np.linalg.inv(_information(shape, scale, t, deaths))))
    reach = np.exp(float(stats.norm.ppf((1 + confidence) / 2)) * spread)
    return Fit(
        shape, shape / reach[0], shape * reach[0],
        scale * unit, scale * unit / reach[1], scale * unit * reach[1],
        gain, float(stats.chi2.sf(gain, 1)),
    )  # fmt: skip


def _has_maximum(time: Floats, failed: NDArray[np.bool_]) -> bool:
    """Say whether the likelihood has a maximum: not if all fail at the very last time."""
    return bool((time[failed] < time.max()).any())


def _likelihood(
    shape: float, scale: float, deaths: int, mean_log: float, power_sum: float
) -> float:
    return float(
        deaths * (np.log(shape / scale) + (shape - 1) * (mean_log - np.log(scale)))
        - power_sum / scale**shape
    )


def _information(shape: float, scale: float, t: Floats, deaths: int) -> Floats:
    """Return minus the second derivatives in the logarithms of shape and scale."""
    log_z = shape * np.log(t / scale)
    z = np.exp(log_z)
    # With a = ln shape and b = ln scale: ln z = e^a (ln t - b), the rest is linear in a and b
    # but for the sum of (e^a - 1)(ln t - b), whose derivatives vanish with those of z at the
    # maximum.
    shape_shape = float((z * log_z**2).sum() + deaths)
    both = -shape * float((z * log_z).sum())
    return np.array([[shape_shape, both], [both, shape**2 * deaths]])
