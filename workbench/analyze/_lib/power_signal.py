"""The signal that readings of power stand for: energy and covered time up to any instant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.tables import POWER

EnergyMethod = Literal["trapezoid", "mlperf"]
Times = NDArray[np.int64]
Numbers = NDArray[np.float64]

_NS = 1e9
# Queries and readings that are worked on at once; more would only need more memory.
_QUERIES, _READINGS = 1_000_000, 4_000_000
# Stamps are rounded to ms or s, so a gap of exactly the longest may look longer by that much.
_SLACK = 1 + 1e-9


@dataclass(frozen=True)
class Signal:
    """Readings with a value, in order of entity and time.

    ``first[e]`` to ``first[e + 1]`` are the readings of entity ``names[e]``; ``joined[i]`` says
    that the time since reading ``i - 1`` is known: both are of one entity and near enough.
    ``period_s[e]`` is the median time between readings of an entity, NaN if there is none.
    """

    names: pd.Index
    first: NDArray[np.int64]
    time_ns: Times
    power_w: Numbers
    joined: NDArray[np.bool_]
    period_s: Numbers
    earliest_ns: int
    latest_ns: int

    def block(self, start: int, end: int) -> Signal:
        """Give the entities from one position up to another."""
        low, high = self.first[start], self.first[end]
        return Signal(
            self.names[start:end],
            self.first[start : end + 1] - low,
            self.time_ns[low:high],
            self.power_w[low:high],
            self.joined[low:high],
            self.period_s[start:end],
            self.earliest_ns,
            self.latest_ns,
        )


def signal(power: pd.DataFrame, *, longest_gap_periods: float) -> Signal:
    """Give readings of power, and which neighbours are near enough to know the time between.

    As :func:`readings_of`, of table :data:`workbench.tables.POWER`, which is checked.
    """
    POWER.check(power)
    return readings_of(power, value="power_w", longest_gap_periods=longest_gap_periods)


def readings_of(
    table: pd.DataFrame,
    *,
    value: str,
    longest_gap_periods: float,
    keep: Literal["all", "last"] = "all",
) -> Signal:
    """Sort what has a value, and find which neighbours are near enough.

    Parameters
    ----------
    table
        With columns ``time_ns``, ``entity`` (category) and ``value``.
    value
        Name of the column of values.
    longest_gap_periods
        Longest time between two readings that is known, in median periods of the entity.
    keep
        Which of several readings of one instant are kept.

    Returns
    -------
    Signal
        Its entities are those of ``table``, in the order of its categories.

    Raises
    ------
    ValueError
        If it has no rows, or ``longest_gap_periods`` is not a number of 1 or more.
    """
    if not longest_gap_periods >= 1 or np.isinf(longest_gap_periods):
        msg = f"longest_gap_periods must be 1 or more, and finite; got {longest_gap_periods!r}"
        raise ValueError(msg)
    if table.empty:
        msg = "the table has no readings; pass that of a load which found some"
        raise ValueError(msg)
    codes, categories = table["entity"].cat.codes.to_numpy(), table["entity"].cat.categories
    time, values = table["time_ns"].to_numpy(), table[value].to_numpy()
    codes, time, values = _in_order(codes.astype(np.int64), time, values)
    period_ns = _periods(codes, time, len(categories))
    known = ~np.isnan(values)
    if keep == "last":
        known[:-1] &= ~(known[1:] & (np.diff(codes) == 0) & (np.diff(time) == 0))
    present = np.unique(codes)
    codes_known, time_known = codes[known], time[known]
    joined = np.zeros(len(time_known), dtype=bool)
    longest = period_ns[codes_known[1:]] * longest_gap_periods * _SLACK
    joined[1:] = (np.diff(codes_known) == 0) & (np.diff(time_known) <= longest)
    return Signal(
        categories[present],
        np.r_[np.searchsorted(codes_known, present), len(codes_known)].astype(np.int64),
        time_known,
        values[known],
        joined,
        period_ns[present] / _NS,
        int(time.min()),
        int(time.max()),
    )


def owners(readings: Signal) -> NDArray[np.int64]:
    """Give the position of the entity of each reading."""
    return np.repeat(np.arange(len(readings.names)), np.diff(readings.first))


def _in_order(codes: Times, time: Times, value: Numbers) -> tuple[Times, Times, Numbers]:
    """Sort by entity and time, unless it is so already; equal stamps keep their order."""
    step = np.diff(codes)
    if ((step > 0) | ((step == 0) & (np.diff(time) >= 0))).all():
        return codes, time, value
    order = np.lexsort((time, codes))
    return codes[order], time[order], value[order]


def _periods(codes: Times, time: Times, entity_count: int) -> Numbers:
    """Give the median time between readings of each entity; NaN if there is none."""
    step = np.diff(time)
    own = (np.diff(codes) == 0) & (step > 0)
    median = pd.Series(step[own]).groupby(codes[1:][own]).median()
    return median.reindex(range(entity_count)).to_numpy(dtype=np.float64)


def known_up_to(
    readings: Signal, at_ns: Times, *, method: EnergyMethod = "trapezoid"
) -> Iterator[tuple[slice, Numbers, Times]]:
    """Give the energy and the covered time of every entity from its first reading to instants.

    Parameters
    ----------
    readings
        What :func:`signal` gives.
    at_ns
        Instants in increasing order, the same for all entities.
    method
        Whether power is a straight line between readings or what the later one says.

    Yields
    ------
    tuple
        Some entities (a slice of their positions), their energy in J and their covered time
        in ns, each of one row per entity and one column per instant. Only differences along a
        row have a meaning.
    """
    count = len(readings.names)
    per_entity = len(readings.time_ns) // count + 1
    at_once = max(min(_QUERIES // max(len(at_ns), 1), _READINGS // per_entity), 1)
    for start in range(0, count, at_once):
        part = readings.block(start, min(start + at_once, count))
        yield slice(start, start + len(part.names)), *_up_to(part, at_ns, method)


def _up_to(part: Signal, at_ns: Times, method: EnergyMethod) -> tuple[Numbers, Times]:
    """Work out the energy and the covered time of one block of entities."""
    if len(part.time_ns) == 0:
        nothing = np.zeros((len(part.names), len(at_ns)))
        return nothing, nothing.astype(np.int64)
    # Whole ns, so that a cell is covered or not, whatever was summed before it; a sum that
    # overflows still has right differences.
    step_ns = np.where(part.joined, np.diff(part.time_ns, prepend=part.time_ns[0]), 0)
    before = np.roll(part.power_w, 1)
    level = (before + part.power_w) / 2 if method == "trapezoid" else part.power_w
    # One leading zero, so that position 0 stands for the time before the first reading.
    energy = np.r_[0.0, np.cumsum(level * (step_ns / _NS))]
    covered = np.r_[0, np.cumsum(step_ns)]
    place = np.stack(
        [
            low + np.searchsorted(part.time_ns[low:high], at_ns, side="right")
            for low, high in zip(part.first[:-1], part.first[1:], strict=True)
        ]
    )
    # `place` is the reading after the instant; the energy up to the reading before it, and
    # then what has passed of the segment between both, if that is known.
    after = np.minimum(place, len(part.time_ns) - 1)
    inside = part.joined[after] & (place > part.first[:-1, None]) & (place < part.first[1:, None])
    passed_ns = np.where(inside, at_ns - part.time_ns[after - 1], 0)
    if method == "trapezoid":
        share = passed_ns / np.where(inside, step_ns[after], 1)
        drawn = before[after] + (part.power_w[after] - before[after]) * share / 2
    else:
        drawn = part.power_w[after]
    energy_j = energy[place] + np.where(inside, drawn * (passed_ns / _NS), 0.0)
    return energy_j, covered[place] + passed_ns
