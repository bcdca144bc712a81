"""Energy of segments of time, summed over meters, and how much of that time is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench._shared.metered_twice import Track, read_alike, sides_of_one
from workbench._shared.numbers import is_finite
from workbench.errors import WorkbenchError
from workbench.tables import POWER, POWER_ENTITIES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SECOND = 1_000_000_000


def offset_ns(clock_offset_s: float) -> int:
    """Return how far the clock of a meter is ahead in ns, or raise if that is not known."""
    if not is_finite(clock_offset_s):
        msg = (
            f"clock_offset_s must be a finite number of seconds, not {clock_offset_s!r}; where "
            "analyze.power_clock_offset has no offset, its doubt says why"
        )
        raise WorkbenchError(msg)
    return round(clock_offset_s * SECOND)


@dataclass(frozen=True)
class Known:
    """Energy of some segments: per segment, summed over entities."""

    energy_j: Floats
    mean_w: Floats  # missing where nothing is known
    covered_share: Floats
    reading_count: Ints


class EnergyCurves:
    """Readings of many meters as energy up to any moment, cut wherever the work is.

    Segments that follow each other share nothing and lose nothing, so their energies add up to that
    of the whole, however it is cut. Readings of an entity further apart than
    ``longest_gap_periods`` of its median periods leave a gap; ``clock_offset_s`` is how far the
    clock of the meter is ahead of that of the job log.
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
        """Sum segments over entities; a segment that nothing covers has energy 0, coverage 0."""
        starts, ends = np.asarray(start_ns, dtype=np.int64), np.asarray(end_ns, dtype=np.int64)
        at, position = np.unique(np.concatenate([starts, ends]), return_inverse=True)
        first, last = np.split(position, 2)
        # Whole ns stay exact in a float up to a hundred days of meters, and never overflow.
        energy, mean, covered = (np.zeros(len(starts)) for _ in range(3))
        blocks = known_up_to(self.signal, at) if self.signal is not None else ()
        for _, energy_j, covered_ns in blocks:
            drawn = np.maximum(energy_j[:, last] - energy_j[:, first], 0.0)
            known_ns = np.maximum(covered_ns[:, last] - covered_ns[:, first], 0)
            energy += drawn.sum(axis=0)
            covered += known_ns.sum(axis=0)
            mean += np.divide(
                drawn, known_ns / SECOND, out=np.zeros(known_ns.shape), where=known_ns > 0
            ).sum(axis=0)
        possible = np.maximum(ends - starts, 0) * float(len(self.names))
        share = np.divide(covered, possible, out=np.zeros(len(starts)), where=possible > 0)
        mean = np.where(covered > 0, mean, np.nan)
        return Known(energy, mean, np.clip(share, 0.0, 1.0), self._readings(starts, ends))

    def _readings(self, starts: Ints, ends: Ints) -> Ints:
        count = np.zeros(len(starts), dtype=np.int64)
        if self.signal is None:
            return count
        for low, high in zip(self.signal.first[:-1], self.signal.first[1:], strict=True):
            inside = np.searchsorted(self.signal.time_ns[low:high], np.stack([starts, ends]))
            count += np.maximum(inside[1] - inside[0], 0)
        return count

    def reach(self) -> tuple[int, int]:
        """Return the first and the last reading of all; 0 and 0 without readings."""
        return (self.signal.earliest_ns, self.signal.latest_ns) if self.signal else (0, 0)

    def period_s(self) -> float:
        """Return the median time between two readings that belong together; 0 without any."""
        if self.signal is None:
            return 0.0
        steps = np.diff(self.signal.time_ns)[self.signal.joined[1:]]
        steps = steps[steps > 0]
        return float(np.median(steps)) / SECOND if len(steps) else 0.0


# Scopes that lie beside each other, so that their sum counts nothing twice.
BESIDE = ({"gpu", "cpu", "memory"}, {"node_ac", "switch"}, {"node_dc", "switch"})
_TOTALS = ("total", "sum", "all", "system")


def refuse_double_counting(names: pd.Series | pd.Index, entities: pd.DataFrame | None) -> pd.Index:
    """Return the names to sum, each once, or raise if one of them is known to hold another.

    Refused are scopes that may hold each other, a name that is a part of another, as
    ``node001/gpu0`` is of ``node001`` and of ``node001/total``, and the AC and the DC side of one
    entity. ``entities`` are the rows of table :data:`workbench.tables.POWER_ENTITIES` to sum; None
    for all ``names``.
    """
    if entities is None:
        expected = pd.Index(pd.unique(pd.Series(names, dtype=object)))
    else:
        expected = pd.Index(pd.unique(_of_one_scope(entities).astype(object)))
    summed = set(expected)
    for name in expected:
        if holder := next((above for above in _wholes(str(name)) if above in summed), ""):
            msg = (
                f"{name!r} is a part of {holder!r}, and their sum would count twice; keep entities "
                'of one scope, e.g. entities=entities[entities["scope"] == "node_ac"]'
            )
            raise WorkbenchError(msg)
    if pair := sides_of_one(map(str, expected)):
        raise WorkbenchError(_twice(*pair))
    return expected


def tracks_of(readings: Signal) -> dict[str, Track]:
    bounds = zip(readings.first[:-1], readings.first[1:], strict=True)
    spans = [slice(low, high) for low, high in bounds]
    powers = [(readings.time_ns[span], readings.power_w[span]) for span in spans]
    return dict(zip(map(str, readings.names), powers, strict=True))


def refuse_metered_twice(tracks: Mapping[str, Track]) -> None:
    """Raise if two entities bear one name and read one feed: their sum would count it twice."""
    if pair := read_alike(tracks):
        raise WorkbenchError(_twice(*pair))


def _twice(first: str, second: str) -> str:
    # Names that only their files tell apart may be of two hosts, which would say so.
    hosts = "; if they are of two hosts, load them with node=" if first.endswith(")") else ""
    return (
        f"{first!r} and {second!r} meter one load, e.g. the AC and the DC side of a supply, and "
        "their sum would count it twice; keep the meters of one side, e.g. power[~power['entity']"
        f".isin([{second!r}, ...])], or load their files alone{hosts}"
    )


def _of_one_scope(entities: pd.DataFrame) -> pd.Series:
    POWER_ENTITIES.check(entities)
    scopes = set(entities["scope"])
    if len(scopes) > 1 and not any(scopes <= beside for beside in BESIDE):
        msg = (
            f"entities of scopes {sorted(scopes)} may hold each other, and their sum would "
            'count twice; pass those of one scope, e.g. entities[entities["scope"] == '
            f"{min(scopes)!r}]"
        )
        raise WorkbenchError(msg)
    return entities["entity"]


# Names are paths: a/b/c is a part of a/b and of a, and of a/total, which sums what is in a.
def _wholes(name: str) -> list[str]:
    levels = name.split("/")
    above = ["/".join(levels[:end]) for end in range(len(levels) - 1, 0, -1)]
    totals = [f"{above[0]}/{word}" for word in _TOTALS] if above else []
    return [*above, *(total for total in totals if total != name)]


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
    """Return readings of power, and which neighbours are near enough to know the time between.

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
    """Sort the readings that have a value, and find which neighbours are near enough.

    The longest time between two readings that is known is ``longest_gap_periods`` median periods of
    the entity. Of several readings of one instant ``keep`` says which count. Entities are those of
    ``table``, in the order of its categories.
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
    step = np.diff(time)
    is_own = (np.diff(codes) == 0) & (step > 0)
    median = pd.Series(step[is_own]).groupby(codes[1:][is_own]).median()
    period_ns = median.reindex(range(len(categories))).to_numpy(dtype=np.float64)
    has_value = ~np.isnan(values)
    if keep == "last":
        has_value[:-1] &= ~(has_value[1:] & (np.diff(codes) == 0) & (np.diff(time) == 0))
    present = np.unique(codes)
    codes_known, time_known = codes[has_value], time[has_value]
    joined = np.zeros(len(time_known), dtype=bool)
    longest = period_ns[codes_known[1:]] * longest_gap_periods * _SLACK
    joined[1:] = (np.diff(codes_known) == 0) & (np.diff(time_known) <= longest)
    return Signal(
        categories[present],
        np.r_[np.searchsorted(codes_known, present), len(codes_known)].astype(np.int64),
        time_known,
        values[has_value],
        joined,
        period_ns[present] / _NS,
        int(time.min()),
        int(time.max()),
    )


def owners(readings: Signal) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(readings.names)), np.diff(readings.first))


def _in_order(codes: Times, time: Times, value: Numbers) -> tuple[Times, Times, Numbers]:
    step = np.diff(codes)
    if ((step > 0) | ((step == 0) & (np.diff(time) >= 0))).all():
        return codes, time, value
    order = np.lexsort((time, codes))
    return codes[order], time[order], value[order]


def known_up_to(
    readings: Signal, at_ns: Times, *, method: EnergyMethod = "trapezoid"
) -> Iterator[tuple[slice, Numbers, Times]]:
    """Yield the energy and the covered time of every entity from its first reading to instants.

    ``at_ns`` are in increasing order. Power is a straight line between readings ("trapezoid") or
    what the later one says ("mlperf"). Yields a slice of entities, their energy [J] and their
    covered time [ns], one row per entity and one column per instant. Only differences along a row
    have a meaning.
    """
    count = len(readings.names)
    per_entity = len(readings.time_ns) // count + 1
    at_once = max(min(_QUERIES // max(len(at_ns), 1), _READINGS // per_entity), 1)
    for start in range(0, count, at_once):
        block = readings.block(start, min(start + at_once, count))
        yield slice(start, start + len(block.names)), *_up_to(block, at_ns, method)


def _up_to(block: Signal, at_ns: Times, method: EnergyMethod) -> tuple[Numbers, Times]:
    if len(block.time_ns) == 0:
        nothing = np.zeros((len(block.names), len(at_ns)))
        return nothing, nothing.astype(np.int64)
    # Whole ns, so that a cell is covered or not, whatever was summed before it; a sum that
    # overflows still has right differences.
    step_ns = np.where(block.joined, np.diff(block.time_ns, prepend=block.time_ns[0]), 0)
    before = np.roll(block.power_w, 1)
    level = (before + block.power_w) / 2 if method == "trapezoid" else block.power_w
    # One leading zero, so that position 0 stands for the time before the first reading.
    energy = np.r_[0.0, np.cumsum(level * (step_ns / _NS))]
    covered = np.r_[0, np.cumsum(step_ns)]
    position = np.stack(
        [
            low + np.searchsorted(block.time_ns[low:high], at_ns, side="right")
            for low, high in zip(block.first[:-1], block.first[1:], strict=True)
        ]
    )
    # `position` is the reading after the instant; the energy up to the reading before it, and
    # then what has passed of the segment between both, if that is known.
    after = np.minimum(position, len(block.time_ns) - 1)
    inside = (
        block.joined[after]
        & (position > block.first[:-1, None])
        & (position < block.first[1:, None])
    )
    passed_ns = np.where(inside, at_ns - block.time_ns[after - 1], 0)
    if method == "trapezoid":
        share = passed_ns / np.where(inside, step_ns[after], 1)
        drawn = before[after] + (block.power_w[after] - before[after]) * share / 2
    else:
        drawn = block.power_w[after]
    energy_j = energy[position] + np.where(inside, drawn * (passed_ns / _NS), 0.0)
    return energy_j, covered[position] + passed_ns
