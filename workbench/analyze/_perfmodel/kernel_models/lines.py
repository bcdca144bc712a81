"""Time of a collective by size: the lowest of three straight lines."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
COUNT = 3
# Where the sizes are first cut, as shares of their number; the best fit of these is kept.
_CUTS = ((0.4, 0.7), (0.5, 0.8), (0.6, 0.85))
LEAST_SIZES = 2 * COUNT + 1


@dataclass(frozen=True)
class Lines:
    """``min over i of (latency_i + size / speed_i)``, lowest latency first."""

    latency_s: Floats
    bytes_per_s: Floats

    def each(self, size: Floats) -> Floats:
        """Give the time on every line, one row per line."""
        return self.latency_s[:, None] + size[None] / self.bytes_per_s[:, None]

    def seconds(self, size: Floats) -> Floats:
        """Give the time on the lowest line."""
        lowest: Floats = self.each(size).min(axis=0)
        return lowest

    def line(self, size: Floats) -> NDArray[np.int64]:
        """Say which line is the lowest."""
        lowest: NDArray[np.int64] = self.each(size).argmin(axis=0)
        return lowest


def fit_lines(size: Floats, seconds: Floats) -> Lines:
    """Fit three lines by soft-L1 of the log ratio, so that every size counts the same."""
    from scipy.optimize import least_squares

    order = np.argsort(size, kind="stable")
    size, seconds = size[order], seconds[order]
    logs = np.log(seconds)

    def residual(parameters: Floats) -> Floats:
        # Where a line never matters, nothing would stop its parameters.
        latency, inverse = np.exp(np.clip(parameters, -60, 10)).reshape(2, COUNT)
        return np.log(Lines(latency, 1 / inverse).seconds(size)) - logs

    def slopes(parameters: Floats) -> Floats:
        latency, inverse = np.exp(np.clip(parameters, -60, 10)).reshape(2, COUNT)
        lines = Lines(latency, 1 / inverse)
        on = lines.line(size)[:, None] == np.arange(COUNT)
        shares = np.hstack([on * latency, on * size[:, None] * inverse])
        part: Floats = shares / lines.seconds(size)[:, None]
        return part

    tried = [
        least_squares(
            residual,
            _start(size, seconds, cuts),
            jac=slopes,
            loss="soft_l1",
            f_scale=0.05,
            x_scale="jac",
        )
        for cuts in _CUTS
    ]
    best = min(tried, key=lambda found: float(found.cost))
    latency, inverse = np.exp(np.clip(best.x, -60, 10)).reshape(2, COUNT)
    by_latency = np.argsort(latency, kind="stable")
    return Lines(latency[by_latency], 1 / inverse[by_latency])


def _start(size: Floats, seconds: Floats, cuts: tuple[float, float]) -> Floats:
    """Fit each part of the sizes by one line of its own."""
    ends = [0, *(int(cut * len(size)) for cut in cuts), len(size)]
    latency, inverse = [], []
    for first, last in pairwise(ends):
        part, times = size[first:last], seconds[first:last]
        weighted = np.column_stack([1 / times, part / times])
        offset, slope = np.linalg.lstsq(weighted, np.ones(len(part)), rcond=None)[0]
        latency.append(max(offset, 0.5 * float(seconds.min())))
        inverse.append(max(slope, 1e-15))
    return np.log([*latency, *inverse])
