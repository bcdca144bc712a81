"""Sizes, durations and gaps of a twin, drawn from the quantiles of a profile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench._shared.numbers import Floats
from workbench.tables.trace_profile import SYNC, KindProfile, Operation, TraceProfile

# Quantiles of few values are those values: what is drawn is near them, never one of them.
_JITTER = 0.01
_SMALL_BYTES = 256


class Draws:
    """Draws all values of one step after the other."""

    def __init__(self, profile: TraceProfile, rng: np.random.Generator) -> None:
        self._rng, self._kinds = rng, profile.kinds
        step = [
            (code, gap)
            for block in profile.motif
            for code, gap in list(zip(block.operations, block.gaps, strict=True)) * block.repeats
        ]
        self.operations = [profile.operations[code] for code, _ in step]
        self.codes = np.array([code for code, _ in step])
        self._gaps = np.array([gap for _, gap in step])
        # Time for the two calls by which a stream waits for another one [ns].
        self.least_gaps = np.where([o.waits >= 0 for o in self.operations], 400, 0)

    def sizes(self) -> Floats:
        """Draw the size of each symbol once: a buffer keeps its size; -1 where it has none."""
        size = np.full(len(self.codes), -1.0)
        for members, operation in self._groups():
            kind = self._kinds.get(operation.kind)
            if kind is not None and kind.size_bytes:
                drawn = np.median(_points(kind.size_bytes, operation.bucket))
                drawn *= np.exp(_JITTER * self._rng.standard_normal())
                # Small sizes are single values of some type, larger ones whole lines of memory.
                line = 16 if drawn >= _SMALL_BYTES else 1
                size[members] = max(round(float(drawn) / line) * line, 1)
        return size

    def durations(self, size: Floats) -> Floats:
        """Draw durations of one step: by the bucket, or given the size through the copula [ns]."""
        duration = np.zeros(len(self.codes))
        for members, operation in self._groups():
            if operation.kind == SYNC:
                continue
            kind = self._kinds[operation.kind]
            if kind.size_bytes:
                duration[members] = self._given_size(kind, size[members])
            else:
                duration[members] = self._inside(kind.dur_ns, operation.bucket, len(members))
        return duration

    def gaps(self) -> Floats:
        """Draw the host time before each operation of one step [ns]."""
        gap = np.zeros(len(self.codes))
        for half in np.unique(self._gaps).tolist():
            members = np.flatnonzero(self._gaps == half)
            low, high = _bounds(half)
            # Stratified, so that a step of many operations has the host time of the source.
            share = (self._rng.permutation(len(members)) + self._rng.random(len(members))) / len(
                members
            )
            gap[members] = low + share * (high - low)
        return gap

    def _groups(self) -> list[tuple[NDArray[np.int64], Operation]]:
        numbers = np.unique(self.codes)
        return [
            (
                np.flatnonzero(self.codes == number),
                self.operations[int(np.argmax(self.codes == number))],
            )
            for number in numbers
        ]

    def _inside(self, quantile: tuple[float, ...], half: int, count: int) -> Floats:
        """Draw from the part of a distribution inside one bucket."""
        points = np.log(np.maximum(_points(quantile, half), 0.5))
        strata = (self._rng.permutation(count) + self._rng.random(count)) / count
        drawn = np.interp(strata * (len(points) - 1), np.arange(len(points)), points)
        values: Floats = np.exp(drawn + _JITTER * self._rng.standard_normal(count))
        return values

    def _given_size(self, kind: KindProfile, size: Floats) -> Floats:
        from scipy.special import ndtr, ndtri

        share = np.linspace(0, 1, len(kind.size_bytes))
        logs = np.log(np.maximum(kind.size_bytes, 0.5))
        # Of sizes that many have, the middle of their quantiles.
        below, above = (np.searchsorted(logs, np.log(size) + side * 0.06) for side in (-1, 1))
        middle = np.clip((below + above) / 2 / len(logs), 0.005, 0.995)
        noise = self._rng.standard_normal(len(size))
        normal = kind.correlation * ndtri(middle)
        normal += np.sqrt(1 - kind.correlation**2) * noise
        points = np.log(np.maximum(kind.dur_ns, 0.5))
        drawn = np.interp(ndtr(normal), share, points)
        values: Floats = np.exp(drawn + _JITTER * self._rng.standard_normal(len(size)))
        return values


def _points(quantile: tuple[float, ...], half: int) -> tuple[float, ...]:
    """Return the quantiles in a bucket; its bounds where work is too rare for a quantile."""
    low, high = _bounds(half)
    return tuple(point for point in quantile if low <= point < high) or (low, high)


def _bounds(half: int) -> tuple[float, float]:
    """Return the least and the largest value of a bucket."""
    return (0.0, 1.0) if half < 0 else (2 ** (half / 2), 2 ** ((half + 1) / 2))
