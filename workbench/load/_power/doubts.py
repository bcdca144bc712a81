"""What looks wrong only once all files of a load lie side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pandas as pd

from workbench._metered_twice import read_alike, sides_of_one
from workbench.load._files.findings import Finding
from workbench.load._power.formats import mlperf as mlperf_power
from workbench.load._power.formats import ptdaemon
from workbench.load._power.part import PowerPart
from workbench.load._power.rhythm import is_before_any_clock
from workbench.load._power.rows import SECOND, Rows

_COPY = "readings equal to those of another file, counted again; is one a copy?"
_MIXED = "scopes that hold each other are loaded together ({}); sum one of them at a time"
_EARLY = "entities whose readings are before the year 2000: the clock was not set"
_OWN = "entities on a clock of their own; their times are not those of the others"
_APART = "entities whose readings are at another time than those of most; is their clock right?"
_STUCK = "entities that gave one value over and over while others moved; is the sensor stuck?"
# Scopes of which each one is a part of what the later ones meter.
_NESTED = (
    ("gpu", "cpu", "memory"),
    ("module",),
    ("node_dc",),
    ("node_ac", "switch"),
    ("rack",),
    ("row", "pdu", "panel"),
    ("switchboard",),
    ("msb",),
    ("utility", "facility"),
)
_TWICE = (
    "entities that bear one name and rise and fall together: the AC and the DC side of one host? "
    "their sum counts it twice"
)


_RUNS = (
    "folders of a benchmark with files of the same names at other times ({}): several runs, whose "
    "power and energy are not of one job; load one run at a time"
)
_BENCHMARKS = (mlperf_power.NAME, ptdaemon.NAME)
_STUCK_COUNT = 100
_IDLE_RATIO = 1.2


def doubts(
    parts: Sequence[PowerPart],
    names: Sequence[Mapping[str, str]],
    tables: Sequence[Rows],
    readings: Rows,
    entities: pd.DataFrame,
) -> list[Finding]:
    """Return the findings about what was loaded as a whole.

    Parameters
    ----------
    parts, names, tables
        The files, their entities' names in the load, and their readings.
    readings
        All readings, in order of entity and time.
    entities
        Table POWER_ENTITIES.
    """
    return [
        *_copies(parts, names, tables),
        *_benchmark_runs(parts, tables),
        *_mixed(entities),
        *_by_file(entities[entities["clock"].eq("own")], "noted", _OWN),
        *_odd_clocks(entities),
        *_stuck(readings, entities),
        *_twice(readings, entities),
    ]


def _twice(readings: Rows, entities: pd.DataFrame) -> Iterator[Finding]:
    """Flag hosts of which two meters read one feed."""
    tracks = {}
    for name, some in readings.slices():
        known = ~np.isnan(readings.numbers[some])
        tracks[name] = (readings.time_ns[some][known], readings.numbers[some][known])
    if pair := read_alike(tracks) or sides_of_one(tracks):
        source = entities.set_index("entity").loc[pair[1], "source"]
        yield str(source), "suspicious", _TWICE, 1, f"{pair[0]}, {pair[1]}"


def _benchmark_runs(parts: Sequence[PowerPart], tables: Sequence[Rows]) -> Iterator[Finding]:
    """Find folders that hold the same meters one after another: a benchmark that ran again."""
    spans: dict[str, tuple[int, int]] = {}
    names: dict[str, set[str]] = {}
    for part, table in zip(parts, tables, strict=True):
        has_own_clock = any(known.get("clock") == "own" for known in part.entities.values())
        if part.format_name not in _BENCHMARKS or has_own_clock or not len(table.time_ns):
            continue
        folder, _, name = part.findings.source.replace("!", "/").rpartition("/")
        first, last = spans.get(folder, (int(table.time_ns.min()), int(table.time_ns.max())))
        spans[folder] = (min(first, int(table.time_ns.min())), max(last, int(table.time_ns.max())))
        names.setdefault(folder, set()).add(name)
    in_turn = sorted(spans, key=lambda folder: spans[folder])
    again = [
        later
        for earlier, later in pairwise(in_turn)
        if names[earlier] & names[later] and spans[earlier][1] < spans[later][0]
    ]
    if again:
        shared = min(names[again[0]] & names[in_turn[0]] or names[again[0]])
        yield again[0], "suspicious", _RUNS.format(shared), len(again) + 1, None


def _copies(
    parts: Sequence[PowerPart], names: Sequence[Mapping[str, str]], tables: Sequence[Rows]
) -> Iterator[Finding]:
    """Flag files whose readings are those of another, under other names."""
    alike = Counter(map(_outline, tables))
    first: dict[bytes, int] = {}
    for number, rows in enumerate(tables):
        if not len(rows.codes) or alike[_outline(rows)] < 2:
            continue
        digest = blake2b(rows.codes.tobytes() + rows.time_ns.tobytes() + rows.numbers.tobytes())
        known = first.setdefault(digest.digest(), number)
        if known != number and {*names[known].values()}.isdisjoint(names[number].values()):
            source = parts[number].findings.source
            yield source, "suspicious", _COPY, len(rows.codes), parts[known].findings.source


def _outline(rows: Rows) -> tuple[int, ...]:
    """Return what is quickly told of readings; of copies it is equal."""
    some = rows.time_ns[:1].tolist() + rows.time_ns[-1:].tolist()
    return (len(rows.codes), *some)


def _mixed(entities: pd.DataFrame) -> Iterator[Finding]:
    """Note scopes of which one is metered inside the other."""
    found = {*entities["scope"]}
    levels = [[scope for scope in level if scope in found] for level in _NESTED]
    if sum(map(bool, levels)) > 1:
        listed = ", ".join(scope for level in levels for scope in level)
        last = entities[entities["scope"].eq(next(level for level in levels if level)[0])]
        source = str(last["source"].iloc[0])
        yield source, "noted", _MIXED.format(listed), len(entities), None


def _odd_clocks(entities: pd.DataFrame) -> Iterator[Finding]:
    """Flag times that cannot be right, or are far from those of the others."""
    timed = entities[entities["clock"].eq("epoch") & entities["first_ns"].notna()]
    first = timed["first_ns"].astype("int64")
    last = timed["last_ns"].astype("int64")
    is_early = pd.Series([is_before_any_clock(each) for each in first], index=timed.index)
    yield from _by_file(timed[is_early.astype(bool)], "suspicious", _EARLY)
    if len(timed) < 3:
        return
    middle = float(((first + last) / 2).median())
    span = float((last - first).median())
    centre = (first + last) / 2
    is_apart = (first > middle + span + SECOND) | (last < middle - span - SECOND)
    is_apart &= (centre - middle).abs() > 600 * SECOND
    if 0 < is_apart.sum() < len(timed) / 2:
        yield from _by_file(timed[is_apart & ~is_early.astype(bool)], "suspicious", _APART)


def _stuck(readings: Rows, entities: pd.DataFrame) -> Iterator[Finding]:
    """Flag entities that repeat one value above idle while others of their scope move."""
    tracks = dict(readings.slices())
    for _, some in entities.groupby("scope", sort=False):
        known = {name: tracks[name] for name in some["entity"] if name in tracks}
        if len(known) < 2:
            continue
        lowest = min(
            float(readings.numbers[each].min(initial=np.inf, where=_is_given(readings, each)))
            for each in known.values()
        )
        runs = {
            n: _longest_run(readings.numbers[each], _IDLE_RATIO * lowest)
            for n, each in known.items()
        }
        typical = float(np.median(list(runs.values())))
        stuck = [n for n, run in runs.items() if run >= _STUCK_COUNT and run > 5 * typical]
        yield from _by_file(some[some["entity"].isin(stuck)], "suspicious", _STUCK)


def _is_given(readings: Rows, some: slice) -> np.ndarray:
    given: np.ndarray = ~np.isnan(readings.numbers[some])
    return given


def _longest_run(values: np.ndarray, idle: float) -> int:
    """Return how often one value above idle was repeated without another in between."""
    values = values[~np.isnan(values)]
    if not len(values):
        return 0
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    lengths = np.diff(np.append(starts, len(values)))
    is_busy = values[starts] > idle
    return int(lengths[is_busy].max()) if is_busy.any() else 0


def _by_file(some: pd.DataFrame, finding: str, what: str) -> list[Finding]:
    return [
        (str(source), finding, what, len(rows), str(rows["entity"].iloc[0]))
        for source, rows in some.groupby("source", sort=False)
    ]
