"""Fewer points that look the same: every bucket keeps its lowest and its highest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 5_000


def extremes(values: NDArray[Any], limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Choose the positions of a series that a line through it must not lose.

    The series is cut into buckets of equal length and each gives its lowest and its
    highest value, in the order they occur; the first and the last point always stay.
    So no peak or dip can vanish, however narrow, which an every-n-th rule or a mean
    would not promise.

    Parameters
    ----------
    values
        The series in drawing order. A missing value (NaN) is chosen only where a
        whole bucket is missing, so that a gap stays a gap.
    limit
        Number of points to keep at most, at least 4.

    Returns
    -------
    numpy.ndarray
        Increasing positions into ``values``, at most ``limit``; all of them when
        the series is short enough.

    Raises
    ------
    ValueError
        If ``limit`` is below 4.
    """
    if limit < 4:
        msg = f"limit is {limit}, but a bucket needs two points and the ends two more"
        raise ValueError(msg)
    count = len(values)
    if count <= limit:
        return np.arange(count, dtype=np.int64)
    width = -(-count // ((limit - 2) // 2))
    known = np.asarray(values, dtype=np.float64)
    low, high = np.where(np.isnan(known), [[np.inf], [-np.inf]], known)
    missing = -count % width
    low = np.pad(low, (0, missing), constant_values=np.inf)
    high = np.pad(high, (0, missing), constant_values=-np.inf)
    starts = np.arange(0, count, width)
    lowest = starts + low.reshape(-1, width).argmin(axis=1)
    highest = starts + high.reshape(-1, width).argmax(axis=1)
    return np.unique(np.r_[0, lowest, highest, count - 1].astype(np.int64))
