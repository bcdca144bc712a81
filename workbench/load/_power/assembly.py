"""From the parts of several files to the tables of one load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.metered_twice import read_alike, sides_of_one
from workbench.load._files.findings import Finding, Findings, quality_frame
from workbench.load._power.joins import entity_table, final_names
from workbench.load._power.part import MLPERF, PTDAEMON, TASKS, PowerPart
from workbench.load._power.plausible import without_stuck, zeros_at_work
from workbench.load._power.rows import (
    SECOND,
    Rows,
    by_entity,
    clean_values,
    in_order,
    joined,
    leaders,
    most_w,
    place,
    repeats,
    rows_of,
)
from workbench.tables import POWER, POWER_COUNTERS, POWER_STATES, QUALITY, PowerLog

_ELSEWHERE = "readings that another file contains, too; counted once"
_CONFLICT = "readings of one stamp that differ from another file's; those of the other are kept"


def assembled(contents: Sequence[PowerPart], passed_over: Sequence[Finding] = ()) -> PowerLog:
    """Put the files of one load together: in order, each thing and each reading once."""
    of_readings = [_ordered(content) for content in contents]
    of_counters = [_ordered_counters(content) for content in contents]
    tracks = [_tracks(*pair) for pair in zip(of_readings, of_counters, strict=True)]
    names, findings = final_names(contents, tracks)
    sources = [content.findings.source for content in contents]
    readings, _ = _together(of_readings, names, sources, findings)
    counters, counted = _together(of_counters, names, sources, findings)
    counting = sources[int(counted[0])] if len(counted) else ""
    findings += without_slips(counters, counting)
    counters, stuck = without_stuck(counters, readings, counting)
    findings += [*stuck, *zeros_at_work(readings, contents, names)]
    derived, more = _derived(counters, readings, counting)
    methods = dict.fromkeys((derived.names[code] for code in np.unique(derived.codes)), "counter")
    findings += more
    readings, _ = joined([readings, derived], [readings.names, derived.names])
    entities = entity_table(contents, names, readings, methods)
    _clip(readings, entities, findings)
    findings += doubts(contents, names, of_readings, readings, entities)
    power = _frame(readings, "power_w", entities["entity"])
    quality = [content.findings.frame() for content in contents]
    quality.append(quality_frame([*passed_over, *findings]))
    counted_energy = POWER_COUNTERS.check(_frame(counters, "energy_j", entities["entity"]))
    states = joined_states(contents, names, entities["entity"])
    return PowerLog(POWER.check(power), entities, states, counted_energy, QUALITY.joined(quality))


def _ordered(content: PowerPart) -> Rows:
    # The frames of the reader are given up at once, so each reading is in memory once.
    content.findings.add("read", f"readings ({content.format_name})", len(content.readings))
    rows = rows_of(content.readings, "power_w")
    content.readings = content.readings.iloc[:0]
    clean_values(rows, content.entities, content.findings)
    rows = in_order(rows, content.findings)
    tell_of_rhythm(rows, content.findings)
    tell_of_cut(rows, content.findings)
    return rows


def _ordered_counters(content: PowerPart) -> Rows:
    if content.counters is None or not len(content.counters):
        number, none = np.empty(0, np.int64), np.empty(0)
        return Rows([], number.astype(np.int32), number, none, number)
    counters = rows_of(content.counters, "energy_j")
    content.counters = None
    bad = ~np.isfinite(counters.numbers) | (counters.numbers < 0)
    content.findings.add("noted", "energies that are missing or invalid", int(bad.sum()))
    counters.numbers[bad] = np.nan
    return in_order(counters, content.findings)


def _tracks(readings: Rows, counters: Rows) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    result = {}
    for rows in (counters, readings):
        result.update({n: (rows.time_ns[span], rows.numbers[span]) for n, span in rows.slices()})
    return result


def _together(
    tables: Sequence[Rows],
    names: Sequence[Mapping[str, str]],
    sources: Sequence[str],
    findings: list[Finding],
) -> tuple[Rows, np.ndarray]:
    new = [[facts[name] for name in t.names] for t, facts in zip(tables, names, strict=True)]
    rows, origin = joined(tables, new)
    if sum(len(table.codes) > 0 for table in tables) < 2:
        return rows, origin
    # Positions in place of line numbers, so that the file of each row can be found again.
    numbered = Rows(rows.names, rows.codes, rows.time_ns, rows.numbers, np.arange(len(origin)))
    numbered, is_new = leaders(numbered)
    for _, kind, which in repeats(numbered, is_new):
        text = _ELSEWHERE if kind == "noted" else _CONFLICT
        of = origin[numbered.lines[which]]
        for number in np.unique(of):
            first = rows.lines[numbered.lines[which][int((of == number).argmax())]]
            count = int((of == number).sum())
            findings.append((sources[number], kind, text, count, f"line {int(first):,}"))
    kept = numbered.lines[is_new]
    return rows.take(kept), origin[kept]


def _derived(counters: Rows, readings: Rows, source: str) -> tuple[Rows, list[Finding]]:
    has_power = {readings.names[code] for code in np.unique(readings.codes)}
    lacks = np.array([name not in has_power for name in counters.names], dtype=bool)
    wanted = counters.take(lacks[counters.codes]) if len(lacks) else counters
    return power_of_counters(wanted, source)


def _clip(readings: Rows, entities: pd.DataFrame, findings: list[Finding]) -> None:
    if not len(readings.codes):
        return
    scope = dict(zip(entities["entity"], entities["scope"], strict=True))
    limits = np.array([most_w(scope.get(name)) for name in readings.names])
    is_absurd = readings.numbers > limits[readings.codes]
    if is_absurd.any():
        readings.numbers[is_absurd] = np.nan
        name = readings.names[readings.codes[int(is_absurd.argmax())]]
        text = "powers from counters that jump, more than any such thing draws; they are missing"
        source = entities.set_index("entity").loc[name, "source"]
        findings.append((str(source), "dropped", text, int(is_absurd.sum()), name))


def _frame(rows: Rows, value: str, entities: pd.Series) -> pd.DataFrame:
    code_of = {name: code for code, name in enumerate(entities)}
    codes = np.array([code_of[name] for name in rows.names] or [0], dtype=np.int32)[rows.codes]
    categories = pd.Index(entities.to_numpy(), dtype=pd.Series([""]).dtype)
    entity = pd.Categorical.from_codes(codes, categories=categories)
    data = {"time_ns": rows.time_ns, "entity": entity, value: rows.numbers}
    return pd.DataFrame(data, copy=False)


# Power from counters of energy, where nothing else tells the power.

_RESET = "counters of energy that fell (a reset); no power across it"
_DERIVED = "powers between updates of counters of energy"
_LOW = "readings of counters of energy far below those around them"
_TOUCHING_NS = 1_000
_BLANK = "readings of counters of energy without a value"


def power_of_counters(counters: Rows, source: str) -> tuple[Rows, list[Finding]]:
    """Turn energies into the power between updates, at the time of the later one.

    A counter that stands still between updates is read where it moves. Where it falls, the
    reading is missing: nobody knows how far it had come.
    """
    is_blank = np.isnan(counters.numbers)
    rows = counters.take(~is_blank)
    same = np.zeros(len(rows.codes), dtype=bool)
    same[1:] = rows.codes[1:] == rows.codes[:-1]
    is_update = ~same
    is_update[1:] |= rows.numbers[1:] != rows.numbers[:-1]
    rows, same = rows.take(is_update), same[is_update]
    watts = np.full(len(rows.codes), np.nan)
    span_s = np.diff(rows.time_ns) / SECOND
    gained = np.diff(rows.numbers)
    with np.errstate(divide="ignore", invalid="ignore"):
        watts[1:] = np.where(same[1:] & (gained > 0), gained / span_s, np.nan)
    is_reset = np.zeros(len(same), dtype=bool)
    is_reset[1:] = same[1:] & (gained < 0)
    findings: list[Finding] = []
    if count := int((same & ~is_reset).sum()):
        findings.append((source, "read", _DERIVED, count, None))
    for text, bad, table in ((_RESET, is_reset, rows), (_BLANK, is_blank, counters)):
        if bad.any():
            name = table.names[table.codes[int(bad.argmax())]]
            findings.append((source, "noted", text, int(bad.sum()), name))
    result = Rows(rows.names, rows.codes, rows.time_ns, watts, rows.lines)
    return result.take(same), findings


def without_slips(counters: Rows, source: str) -> list[Finding]:
    """Make readings missing that are far below those around them; say how many."""
    read = np.flatnonzero(~np.isnan(counters.numbers))
    is_slip = np.zeros(len(counters.codes), dtype=bool)
    is_slip[read] = _outliers(counters.take(~np.isnan(counters.numbers)))
    if not is_slip.any():
        return []
    counters.numbers[is_slip] = np.nan
    name = counters.names[counters.codes[int(is_slip.argmax())]]
    return [(source, "dropped", _LOW, int(is_slip.sum()), name)]


def _outliers(rows: Rows) -> np.ndarray:
    """Return which readings are momentary glitches: the counter resumes from where it was before.

    After a reset it would have to be faster than usual to come back that soon.
    """
    result = np.zeros(len(rows.codes), dtype=bool)
    if len(result) < 3:
        return result
    before, low, after = rows.numbers[:-2], rows.numbers[1:-1], rows.numbers[2:]
    row = (rows.codes[:-2] == rows.codes[1:-1]) & (rows.codes[1:-1] == rows.codes[2:])
    # Windows that touch begin at zero right behind the end of the one before.
    is_apart = np.diff(rows.time_ns)[:-1] > _TOUCHING_NS
    candidate = row & (low < before) & (after > before) & is_apart
    if not candidate.any():
        return result
    seconds = rows.time_ns / SECOND
    usual: dict[int, float] = {}
    for at in np.flatnonzero(candidate):
        code = int(rows.codes[at])
        if code not in usual:
            own = rows.codes == code
            rates = np.diff(rows.numbers[own]) / (np.diff(rows.time_ns[own]) / SECOND)
            usual[code] = float(np.median(rates[rates > 0]))
        if_slip = (after[at] - before[at]) / (seconds[at + 2] - seconds[at])
        if_reset = (after[at] - low[at]) / (seconds[at + 2] - seconds[at + 1])
        result[at + 1] = abs(if_slip - usual[code]) < abs(if_reset - usual[code])
    return result


# What looks wrong only once all files of a load lie side by side.

_COPY = "readings equal to those of another file, counted again; is one a copy?"
_MIXED = "scopes that contain each other are loaded together ({}); sum one of them at a time"
_EARLY = "entities whose readings are before the year 2000: the clock was not set"
_OWN = "entities with unsynchronized clocks"
_APART = "entities whose readings are at another time than those of most; is their clock right?"
_STUCK = "entities that gave one value over and over while others moved; is the sensor stuck?"
# Scopes of which each one is a part of what the later ones meter.
_NESTED = (
    ("gpu", "cpu", "memory"), ("module",), ("node_dc",), ("node_ac", "switch"), ("rack",),
    ("row", "pdu", "panel"), ("switchboard",), ("msb",), ("utility", "facility"),
)  # fmt: skip
_TASKS = "tasks of a run that is loaded, too; their energy is in that of the run: sum one of them"
_TWICE = (
    "entities that bear one name and rise and fall together: the AC and the DC side of one host? "
    "their sum counts it twice"
)


_RUNS = (
    "folders of a benchmark with files of the same names at other times ({}): several runs, whose "
    "power and energy are not of one job; load one run at a time"
)
_BENCHMARKS = (MLPERF, PTDAEMON)
_STUCK_COUNT = 100
# An idle GPU repeats one value for hours; only above idle is that odd.
_IDLE_RATIO = 1.2


def doubts(
    contents: Sequence[PowerPart],
    names: Sequence[Mapping[str, str]],
    tables: Sequence[Rows],
    readings: Rows,
    entities: pd.DataFrame,
) -> list[Finding]:
    return [
        *_copies(contents, names, tables),
        *_benchmark_runs(contents, tables),
        *_mixed(entities),
        *_tasks_of_runs(entities),
        *_by_file(entities[entities["clock"].eq("own")], "noted", _OWN),
        *_odd_clocks(entities),
        *_stuck(readings, entities),
        *_twice(readings, entities),
    ]


def _twice(readings: Rows, entities: pd.DataFrame) -> Iterator[Finding]:
    """Flag hosts of which two meters read one feed."""
    tracks = {}
    for name, span in readings.slices():
        is_known = ~np.isnan(readings.numbers[span])
        tracks[name] = (readings.time_ns[span][is_known], readings.numbers[span][is_known])
    if pair := read_alike(tracks) or sides_of_one(tracks):
        source = entities.set_index("entity").loc[pair[1], "source"]
        yield str(source), "suspicious", _TWICE, 1, f"{pair[0]}, {pair[1]}"


def _benchmark_runs(contents: Sequence[PowerPart], tables: Sequence[Rows]) -> Iterator[Finding]:
    # A benchmark that ran again writes the same file names into another folder, at a later time.
    spans: dict[str, tuple[int, int]] = {}
    names: dict[str, set[str]] = {}
    for content, table in zip(contents, tables, strict=True):
        has_own_clock = any(facts.get("clock") == "own" for facts in content.entities.values())
        if content.format_name not in _BENCHMARKS or has_own_clock or not len(table.time_ns):
            continue
        folder, _, name = content.findings.source.replace("!", "/").rpartition("/")
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
    contents: Sequence[PowerPart], names: Sequence[Mapping[str, str]], tables: Sequence[Rows]
) -> Iterator[Finding]:
    """Flag files whose readings are those of another, under other names."""
    alike = Counter(map(_outline, tables))
    first: dict[bytes, int] = {}
    for number, rows in enumerate(tables):
        if not len(rows.codes) or alike[_outline(rows)] < 2:
            continue
        digest = blake2b(rows.codes.tobytes() + rows.time_ns.tobytes() + rows.numbers.tobytes())
        first_number = first.setdefault(digest.digest(), number)
        first_names = {*names[first_number].values()}
        if first_number != number and first_names.isdisjoint(names[number].values()):
            source, earlier = (contents[n].findings.source for n in (number, first_number))
            yield source, "suspicious", _COPY, len(rows.codes), earlier


def _outline(rows: Rows) -> tuple[int, ...]:
    span = rows.time_ns[:1].tolist() + rows.time_ns[-1:].tolist()
    return (len(rows.codes), *span)


def _mixed(entities: pd.DataFrame) -> Iterator[Finding]:
    result = {*entities["scope"]}
    levels = [[scope for scope in level if scope in result] for level in _NESTED]
    if sum(map(bool, levels)) > 1:
        listed = ", ".join(scope for level in levels for scope in level)
        last = entities[entities["scope"].eq(next(level for level in levels if level)[0])]
        source = str(last["source"].iloc[0])
        yield source, "noted", _MIXED.format(listed), len(entities), None


def _tasks_of_runs(entities: pd.DataFrame) -> Iterator[Finding]:
    """Flag programs of which the run and its tasks are loaded, as CodeCarbon writes both."""
    runs = entities["entity"].str.replace(TASKS, "/", regex=False)
    twice = entities[runs.ne(entities["entity"]) & runs.isin(entities["entity"])]
    yield from _by_file(twice, "suspicious", _TASKS)


def _odd_clocks(entities: pd.DataFrame) -> Iterator[Finding]:
    """Flag times that cannot be right, or are far from those of the others."""
    timed = entities[entities["clock"].eq("epoch") & entities["first_ns"].notna()]
    first = timed["first_ns"].astype("int64")
    last = timed["last_ns"].astype("int64")
    is_early = first < _EARLIEST_NS
    yield from _by_file(timed[is_early], "suspicious", _EARLY)
    if len(timed) < 3:
        return
    middle = float(((first + last) / 2).median())
    span = float((last - first).median())
    centre = (first + last) / 2
    # Logs of one job that begin together end together.
    is_together = (first - first.median()).abs() < 0.05 * span
    is_short = is_together & (last.median() - last > 0.1 * span) & ~is_early
    if is_together.mean() > 0.5 and 0 < is_short.sum() < len(timed) / 2:
        yield from _by_file(timed[is_short], "suspicious", _SHORT)
    is_apart = (first > middle + span + SECOND) | (last < middle - span - SECOND)
    is_apart &= (centre - middle).abs() > 600 * SECOND
    if 0 < is_apart.sum() < len(timed) / 2:
        yield from _by_file(timed[is_apart & ~is_early], "suspicious", _APART)


def _stuck(readings: Rows, entities: pd.DataFrame) -> Iterator[Finding]:
    """Flag entities that repeat one value above idle while others of their scope move."""
    tracks = dict(readings.slices())
    for _, span in entities.groupby("scope", sort=False):
        spans = {name: tracks[name] for name in span["entity"] if name in tracks}
        if len(spans) < 2:
            continue
        values = {name: readings.numbers[rows] for name, rows in spans.items()}
        lowest = min(float(np.nanmin(own, initial=np.inf)) for own in values.values())
        runs = {n: _longest_run(own, _IDLE_RATIO * lowest) for n, own in values.items()}
        typical = float(np.median(list(runs.values())))
        stuck = [n for n, run in runs.items() if run >= _STUCK_COUNT and run > 5 * typical]
        yield from _by_file(span[span["entity"].isin(stuck)], "suspicious", _STUCK)


def _longest_run(values: np.ndarray, idle: float) -> int:
    values = values[~np.isnan(values)]
    if not len(values):
        return 0
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    lengths = np.diff(np.append(starts, len(values)))
    is_busy = values[starts] > idle
    return int(lengths[is_busy].max()) if is_busy.any() else 0


def _by_file(span: pd.DataFrame, finding: str, text: str) -> list[Finding]:
    return [
        (str(source), finding, text, len(rows), str(rows["entity"].iloc[0]))
        for source, rows in span.groupby("source", sort=False)
    ]


# How evenly a file was written: periods, and pauses in between.

_LONG_PERIODS = 3.0
_FEWEST_STEPS = 5
_SLACK = 0.5
# Readings of one poll are this much of a period apart, at most.
_SAME_POLL = 0.1
_CUT_POLL = "things that the last poll lacks: the log was cut, or its writer stopped"
_SHORT = "entities whose readings end before those of most: was the log cut, or did the host stop?"
_IRREGULAR_SHARE = 0.1
_LOST_SHARE = 0.01
# A clock that was never set starts at 1970.
_EARLIEST_NS = 946_684_800 * SECOND  # 2000-01-01


def tell_of_cut(rows: Rows, findings: Findings) -> None:
    """Tell where things that are read together lack the last of their readings."""
    spans = [rows.time_ns[span] for _, span in rows.slices()]
    counts = np.array([len(own) for own in spans])
    if len(spans) < 2 or counts.max() < _FEWEST_STEPS or counts.max() - counts.min() != 1:
        return
    first, last = (np.array([own[at] for own in spans]) for at in (0, -1))
    period = float(np.median(np.diff(spans[int(counts.argmax())])))
    lag = last.max() - last
    is_behind = counts < counts.max()
    # Things of different phases end apart, too, but begin apart as well.
    together = (
        np.ptp(first) < _SAME_POLL * period and not (lag[~is_behind] > _SAME_POLL * period).any()
    )
    if together and (np.abs(lag[is_behind] - period) < _SAME_POLL * period).all():
        names = [name for name, _ in rows.slices()]
        findings.add("truncated", _CUT_POLL, int(is_behind.sum()), names[int(is_behind.argmax())])


def tell_of_rhythm(rows: Rows, findings: Findings) -> None:
    counts, gap_ns, span_ns, first_gap = 0, 0, 0, -1
    uneven: list[str] = []
    for name, span in rows.slices():
        step = np.diff(rows.time_ns[span])
        if len(step) < _FEWEST_STEPS:
            continue
        period = float(np.median(step))
        is_long = step > _LONG_PERIODS * period
        span_ns += int(step.sum())
        if is_long.any():
            counts += int(is_long.sum())
            gap_ns += int(step[is_long].sum())
            at = span.start + 1 + int(is_long.argmax())
            first_gap = at if first_gap < 0 else min(first_gap, at, key=lambda n: rows.lines[n])
        is_odd = (np.abs(step - period) > _SLACK * period) & ~is_long
        if is_odd.mean() > _IRREGULAR_SHARE:
            uneven.append(name)
    if counts:
        kind = "suspicious" if gap_ns > _LOST_SHARE * span_ns else "noted"
        text = f"pauses longer than 3 periods, {gap_ns / max(span_ns, 1):.2%} of the time in all"
        findings.add(kind, text, counts, place(rows, first_gap))
    if uneven:
        text = "entities read at uneven times (more than a tenth of the steps is half a period off)"
        findings.add("noted", text, len(uneven), uneven[0])


# What explains power, of several files, in order and once.


def joined_states(
    contents: Sequence[PowerPart], names: Sequence[Mapping[str, str]], entities: pd.Series
) -> pd.DataFrame:
    """Make table POWER_STATES of the files; of rows with one stamp the first is kept."""
    text = pd.Series([""]).dtype
    categories = pd.Index(entities.to_numpy(), dtype=text)
    code_of = {name: code for code, name in enumerate(entities)}
    frames = []
    for content, renamed in zip(contents, names, strict=True):
        if content.states is None or not len(content.states):
            continue
        old = content.states["entity"].astype("category").cat
        new = [code_of[renamed[str(name)]] for name in old.categories]
        position = np.array(new, dtype=np.int32)[old.codes.to_numpy()]
        entity = pd.Categorical.from_codes(position, categories=categories)
        columns = [name for name in POWER_STATES.columns if name in content.states]
        frames.append(content.states[columns].assign(entity=entity))
        content.states = None
    if not frames:
        empty = POWER_STATES.empty()
        return empty.assign(entity=pd.Categorical([], categories=categories))
    # Columns that no file has are filled in last: they would be sorted for nothing.
    states = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    codes, times = states["entity"].cat.codes.to_numpy(), states["time_ns"].to_numpy()
    order = by_entity(codes, times)
    codes, times = codes[order], times[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (np.diff(codes) != 0) | (np.diff(times) != 0)
    return POWER_STATES.check(_filled(states.take(order[is_new]).reset_index(drop=True)))


def _filled(frame: pd.DataFrame) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name, column in POWER_STATES.columns.items():
        dtype: Any = column.dtype
        if name in frame:
            columns[name] = frame[name].astype(dtype)
        elif dtype == "Int64":
            none = np.ones(len(frame), dtype=bool)
            columns[name] = pd.arrays.IntegerArray(np.zeros(len(frame), np.int64), none)
        else:
            columns[name] = np.full(len(frame), np.nan)
    return pd.DataFrame(columns, copy=False)
