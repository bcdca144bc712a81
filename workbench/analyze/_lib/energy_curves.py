"""Energy of stretches of time, summed over meters, and how much of that time is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench._numbers import is_finite
from workbench.analyze._lib.power_scopes import (
    refuse_double_counting,
    refuse_metered_twice,
    tracks_of,
)
from workbench.analyze._lib.power_signal import known_up_to, signal
from workbench.errors import WorkbenchError
from workbench.tables import POWER

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SECOND = 1_000_000_000


def offset_ns(clock_offset_s: float) -> int:
    """Give how far the clock of a meter is ahead in ns, or raise if that is not known."""
    if not is_finite(clock_offset_s):
        msg = (
            f"clock_offset_s must be a finite number of seconds, not {clock_offset_s!r}; where "
            "analyze.power_clock_offset has no offset, its doubt says why"
        )
        raise WorkbenchError(msg)
    return round(clock_offset_s * SECOND)


@dataclass(frozen=True)
class Known:
    """Energy of some stretches: per stretch, summed over entities."""

    energy_j: Floats
    mean_w: Floats  # missing where nothing is known
    covered_share: Floats
    reading_count: Ints


class EnergyCurves:
    """Readings of many meters as energy up to any moment, cut wherever the work is.

    Stretches that follow each other share nothing and lose nothing, so their energies add up to
    that of the whole, however it is cut.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`.
    longest_gap_periods
        Readings of an entity further apart than this many of its median periods leave a gap.
    clock_offset_s
        How far the clock of the meter is ahead of that of the job log.

    Raises
    ------
    WorkbenchError
        If something would be counted twice.
    """

    def __init__(
        self, power: pd.DataFrame, *, longest_gap_periods: float, clock_offset_s: float = 0.0
    ) -> None:
        POWER.check(power)
        if shift := offset_ns(clock_offset_s):
            power = power.assign(time_ns=power["time_ns"] - shift)
        # Without readings nothing is covered; that is an answer, too.
        self.signal = signal(power, longest_gap_periods=longest_gap_periods) if len(power) else None
        names = [] if self.signal is None else self.signal.names.tolist()
        if self.signal is not None:
            refuse_metered_twice(tracks_of(self.signal))
        self.names = [str(name) for name in refuse_double_counting(pd.Index(names), None)]

    def between(self, start_ns: ArrayLike, end_ns: ArrayLike) -> Known:
        """Sum stretches over entities; a stretch that nothing covers has energy 0, coverage 0."""
        starts, ends = np.asarray(start_ns, dtype=np.int64), np.asarray(end_ns, dtype=np.int64)
        at, place = np.unique(np.concatenate([starts, ends]), return_inverse=True)
        first, last = np.split(place, 2)
        # Whole ns stay exact in a float up to a hundred days of meters, and never overflow.
        energy, mean, covered = (np.zeros(len(starts)) for _ in range(3))
        blocks = known_up_to(self.signal, at) if self.signal is not None else ()
        for _, energy_j, covered_ns in blocks:
            drawn = np.maximum(energy_j[:, last] - energy_j[:, first], 0.0)
            known = np.maximum(covered_ns[:, last] - covered_ns[:, first], 0)
            energy += drawn.sum(axis=0)
            covered += known.sum(axis=0)
            mean += np.divide(
                drawn, known / SECOND, out=np.zeros(known.shape), where=known > 0
            ).sum(axis=0)
        whole = np.maximum(ends - starts, 0) * float(len(self.names))
        share = np.divide(covered, whole, out=np.zeros(len(starts)), where=whole > 0)
        mean = np.where(covered > 0, mean, np.nan)
        return Known(energy, mean, np.clip(share, 0.0, 1.0), self._readings(starts, ends))

    def _readings(self, starts: Ints, ends: Ints) -> Ints:
        """Count readings from the start of each stretch to before its end."""
        count = np.zeros(len(starts), dtype=np.int64)
        if self.signal is None:
            return count
        for low, high in zip(self.signal.first[:-1], self.signal.first[1:], strict=True):
            inside = np.searchsorted(self.signal.time_ns[low:high], np.stack([starts, ends]))
            count += np.maximum(inside[1] - inside[0], 0)
        return count

    def reach(self) -> tuple[int, int]:
        """Give the first and the last reading of all; 0 and 0 without readings."""
        return (self.signal.earliest_ns, self.signal.latest_ns) if self.signal else (0, 0)

    def period_s(self) -> float:
        """Give the median time between two readings that belong together; 0 without any."""
        if self.signal is None:
            return 0.0
        steps = np.diff(self.signal.time_ns)[self.signal.joined[1:]]
        steps = steps[steps > 0]
        return float(np.median(steps)) / SECOND if len(steps) else 0.0
