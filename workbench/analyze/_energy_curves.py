"""Energy of each metered thing up to any time, and how much of that time is known.

Power between two readings is a straight line, so energy is exact to the trapezoid. What
lies between readings that are too far apart is unknown: it adds neither energy nor known time.
Both run as sums from the first reading, so that energies of stretches that follow each other add
up, however a stretch is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench._numbers import positive
from workbench.errors import WorkbenchError
from workbench.tables import POWER

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Curve:
    """One entity: its readings in order of time, and sums from the first of them on."""

    entity: str
    time_ns: Ints
    power_w: Floats
    energy_j: Floats  # up to each reading
    known_s: Floats  # up to each reading
    is_known: NDArray[np.bool_]  # of the segment that begins at each reading

    def at(self, when_ns: Ints) -> tuple[Floats, Floats]:
        """Give energy and known time up to some times."""
        last = len(self.time_ns) - 1
        row = np.clip(np.searchsorted(self.time_ns, when_ns, side="right") - 1, 0, max(last - 1, 0))
        after = np.minimum(row + 1, last)
        span = np.maximum(self.time_ns[after] - self.time_ns[row], 1)
        part = np.clip((when_ns - self.time_ns[row]) / span, 0.0, 1.0) * self.is_known[row]
        # Whole seconds would lose digits in a float of epoch nanoseconds; differences do not.
        seconds = part * span / SECOND
        slope = self.power_w[after] - self.power_w[row]
        energy = self.energy_j[row] + seconds * (self.power_w[row] + slope * part / 2)
        return energy, self.known_s[row] + seconds


@dataclass(frozen=True)
class Known:
    """Energy of some stretches: per stretch, summed over entities."""

    energy_j: Floats
    mean_w: Floats
    covered_share: Floats
    reading_count: Ints


class EnergyCurves:
    """The curves of all entities of a table.

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
        If there is nothing to sum, or something would be counted twice.
    """

    def __init__(
        self, power: pd.DataFrame, *, longest_gap_periods: float, clock_offset_s: float = 0.0
    ) -> None:
        POWER.check(power)
        longest = positive("longest_gap_periods", longest_gap_periods)
        shift = round(clock_offset_s * SECOND)
        parts = _by_entity(power)
        self.curves = [_curve(name, t - shift, watts, longest) for name, t, watts in parts]
        if not self.curves:
            msg = "there are no power readings; see .quality of the load"
            raise WorkbenchError(msg)
        _refuse_nested([curve.entity for curve in self.curves])

    def between(self, start_ns: ArrayLike, end_ns: ArrayLike) -> Known:
        """Sum stretches over entities; a stretch that nothing covers has energy 0, coverage 0."""
        starts, ends = np.asarray(start_ns, dtype=np.int64), np.asarray(end_ns, dtype=np.int64)
        length = np.maximum((ends - starts) / SECOND, 0.0)
        energy, mean, covered = (np.zeros(len(starts)) for _ in range(3))
        readings = np.zeros(len(starts), dtype=np.int64)
        for curve in self.curves:
            (e0, k0), (e1, k1) = curve.at(starts), curve.at(ends)
            known = np.maximum(k1 - k0, 0.0)
            energy += np.maximum(e1 - e0, 0.0)
            covered += known
            some = known > 0
            mean += np.divide(e1 - e0, known, out=np.full(len(starts), np.nan), where=some)
            inside = np.searchsorted(curve.time_ns, np.array([starts, ends]))
            readings += np.maximum(inside[1] - inside[0], 0)
        whole = length * len(self.curves)
        share = np.divide(covered, whole, out=np.zeros(len(starts)), where=whole > 0)
        return Known(energy, mean, np.clip(share, 0.0, 1.0), readings)

    def reach(self) -> tuple[int, int]:
        """Give the first and the last reading of all."""
        return (
            min(int(curve.time_ns[0]) for curve in self.curves),
            max(int(curve.time_ns[-1]) for curve in self.curves),
        )

    def period_s(self) -> float:
        """Give the median of the entities' median periods."""
        each = [period_of(curve.time_ns) for curve in self.curves]
        return float(np.median(each)) / SECOND


def period_of(time_ns: Ints) -> float:
    """Give the median time between readings that differ in time; 0 if there are none."""
    steps = np.diff(time_ns)
    steps = steps[steps > 0]
    return float(np.median(steps)) if len(steps) else 0.0


def _by_entity(power: pd.DataFrame) -> Iterator[tuple[str, Ints, Floats]]:
    """Give each entity with its known readings, in order of time."""
    known = power["power_w"].notna().to_numpy()
    codes = power["entity"].cat.codes.to_numpy()[known]
    time = power["time_ns"].to_numpy()[known]
    watts = power["power_w"].to_numpy(dtype=np.float64)[known]
    order = np.lexsort((time, codes))
    codes, time, watts = codes[order], time[order], watts[order]
    edges = np.flatnonzero(np.diff(codes, prepend=-1))
    names: list[Any] = power["entity"].cat.categories.tolist()
    for start, end in zip(edges, [*edges[1:], len(codes)], strict=True):
        yield str(names[codes[start]]), time[start:end], watts[start:end]


def _curve(entity: str, time_ns: Ints, power_w: Floats, longest_gap_periods: float) -> Curve:
    steps = np.diff(time_ns)
    known = steps <= longest_gap_periods * period_of(time_ns)
    seconds = np.where(known, steps / SECOND, 0.0)
    energy = np.cumsum((power_w[1:] + power_w[:-1]) / 2 * seconds)
    return Curve(
        entity, time_ns, power_w, np.r_[0.0, energy], np.r_[0.0, np.cumsum(seconds)],
        np.r_[known, False],
    )  # fmt: skip


def _refuse_nested(names: list[str]) -> None:
    """Refuse things that are part of others in the table: their energy would count twice."""
    whole = set(names)
    for name in names:
        parts = name.split("/")
        for count in range(1, len(parts)):
            if (outer := "/".join(parts[:count])) in whole:
                msg = (
                    f"{name!r} is part of {outer!r}, and both are in the table, so energy would be "
                    "counted twice; keep one scope, e.g. power[power['entity'].isin(entities.loc["
                    "entities['scope'] == 'node_ac', 'entity'])]"
                )
                raise WorkbenchError(msg)
