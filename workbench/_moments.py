"""Counts, means, extremes and squared deviations of parts, put together exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Of each of several groups of numbers: key, count, mean, extremes, squared deviations.

    ``squares`` is the sum of the squared deviations from the mean of the group.
    """

    key: NDArray[np.int64]
    count: NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats
    squares: Floats

    def __len__(self) -> int:
        return len(self.key)


def of_values(key: NDArray[np.int64], values: Floats) -> Moments:
    """Return the moments of the values of each key; keys come out in order."""
    if (key[1:] < key[:-1]).any():
        # Small keys are sorted by their digits, which is many times faster.
        is_small = len(key) > 0 and int(key.max()) < 1 << 16 and int(key.min()) >= 0
        order = np.argsort(key.astype(np.uint16) if is_small else key, kind="stable")
        key, values = key[order], values[order]
    starts = _starts(key)
    if not len(starts):
        nothing = np.zeros(0)
        return Moments(key[:0], np.zeros(0, np.int64), nothing, nothing, nothing, nothing)
    count = np.diff(np.r_[starts, len(key)])
    mean = np.add.reduceat(values, starts) / count
    squares = np.add.reduceat((values - np.repeat(mean, count)) ** 2, starts)
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return Moments(key[starts], count, np.clip(mean, low, high), low, high, squares)


def together(parts: Moments) -> Moments:
    """Merge the moments of parts that share a key; keys come out in order.

    Notes
    -----
    With parts *i* of a group: ``count = sum n_i``, ``mean = sum n_i m_i / count`` and
    ``squares = sum (s_i + n_i (m_i - mean)^2)``. No large numbers are subtracted, so the
    squares lose no digits where deviations are small against the mean.

    References
    ----------
    T. F. Chan, G. H. Golub, R. J. LeVeque, The American Statistician 37 (1983) 242.
    """
    order = np.argsort(parts.key, kind="stable")
    key, count, mean = parts.key[order], parts.count[order], parts.mean[order]
    starts = _starts(key)
    if len(starts) == len(key):
        return _taken(parts, order)
    total = np.add.reduceat(count, starts)
    size = np.diff(np.r_[starts, len(key)])
    # Deviations from the first mean of a group, so that equal means stay equal to the last bit.
    first = mean[starts]
    shift = np.add.reduceat(count * (mean - np.repeat(first, size)), starts) / total
    low = np.minimum.reduceat(parts.low[order], starts)
    high = np.maximum.reduceat(parts.high[order], starts)
    middle = np.clip(first + shift, low, high)
    apart = mean - np.repeat(middle, size)
    squares = np.add.reduceat(parts.squares[order] + count * apart**2, starts)
    return Moments(key[starts], total, middle, low, high, squares)


def joined(parts: list[Moments]) -> Moments:
    """Put several tables of moments below each other."""
    names = ("key", "count", "mean", "low", "high", "squares")
    return Moments(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _starts(key: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(key):
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(key[1:] != key[:-1]) + 1]).astype(np.int64)


def _taken(parts: Moments, order: NDArray[np.int64]) -> Moments:
    names = ("key", "count", "mean", "low", "high", "squares")
    return Moments(*(getattr(parts, name)[order] for name in names))
