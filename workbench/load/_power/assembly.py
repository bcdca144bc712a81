"""From the parts of several files to the tables of one load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.load._files.findings import Finding, quality_frame
from workbench.load._power.counters import power_of_counters, without_slips
from workbench.load._power.doubts import doubts
from workbench.load._power.entities import entity_table
from workbench.load._power.joins import final_names
from workbench.load._power.part import PowerPart
from workbench.load._power.rhythm import tell_of_rhythm
from workbench.load._power.rows import Rows, in_order, joined, leaders, repeats, rows_of
from workbench.load._power.states import joined_states
from workbench.load._power.values import clean_values, most_w
from workbench.tables import POWER, POWER_COUNTERS, QUALITY, PowerLog

_ELSEWHERE = "readings that another file holds as well; taken once"
_CONFLICT = "readings of one stamp that differ from another file's; those of the other are kept"


@dataclass(frozen=True)
class _File:
    """One file, put in order."""

    part: PowerPart
    readings: Rows
    counters: Rows | None


def assembled(parts: Sequence[PowerPart], passed_over: Sequence[Finding] = ()) -> PowerLog:
    """Put the files of one load together: in order, each thing and each reading once."""
    files = [_ordered(part) for part in parts]
    names, findings = final_names(parts, [_tracks(file) for file in files])
    sources = [part.findings.source for part in parts]
    readings, _ = _together([f.readings for f in files], names, sources, findings)
    of_counters = [f.counters if f.counters is not None else _no_rows() for f in files]
    counters, counted = _together(of_counters, names, sources, findings)
    counting = sources[int(counted[0])] if len(counted) else ""
    findings += without_slips(counters, counting)
    derived, more = _derived(counters, readings, counting)
    methods = dict.fromkeys((derived.names[code] for code in np.unique(derived.codes)), "counter")
    findings += more
    readings, _ = joined([readings, derived], [readings.names, derived.names])
    entities = entity_table(parts, names, readings, methods)
    _clip(readings, entities, findings)
    findings += doubts(parts, names, [file.readings for file in files], readings, entities)
    power = _frame(readings, "power_w", entities["entity"])
    quality = [part.findings.frame() for part in parts]
    quality.append(quality_frame([*passed_over, *findings]))
    return PowerLog(
        power=POWER.check(power),
        entities=entities,
        states=joined_states(parts, names, entities["entity"]),
        counters=POWER_COUNTERS.check(_frame(counters, "energy_j", entities["entity"])),
        quality=_stacked(quality),
    )


def _ordered(part: PowerPart) -> _File:
    """Check and sort what one file holds; rows of the reader are given up to save memory."""
    part.findings.add("read", f"readings ({part.format_name})", len(part.readings))
    rows = rows_of(part.readings, "power_w")
    part.readings = part.readings.iloc[:0]
    clean_values(rows, part.entities, part.findings)
    rows = in_order(rows, part.findings)
    tell_of_rhythm(rows, part.findings)
    if part.counters is None or not len(part.counters):
        return _File(part, rows, None)
    counters = rows_of(part.counters, "energy_j")
    part.counters = None
    bad = ~np.isfinite(counters.numbers) | (counters.numbers < 0)
    part.findings.add("noted", "energies that are missing or none", int(bad.sum()))
    counters.numbers[bad] = np.nan
    return _File(part, rows, in_order(counters, part.findings))


def _tracks(file: _File) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {}
    for rows in filter(None, (file.counters, file.readings)):
        found.update({n: (rows.time_ns[some], rows.numbers[some]) for n, some in rows.slices()})
    return found


def _together(
    tables: Sequence[Rows],
    names: Sequence[Mapping[str, str]],
    sources: Sequence[str],
    findings: list[Finding],
) -> tuple[Rows, np.ndarray]:
    """Join the rows of all files, and take those that several hold once."""
    new = [[known[name] for name in t.names] for t, known in zip(tables, names, strict=True)]
    rows, origin = joined(tables, new)
    if sum(len(table.codes) > 0 for table in tables) < 2:
        return rows, origin
    numbered = Rows(rows.names, rows.codes, rows.time_ns, rows.numbers, np.arange(len(origin)))
    numbered, is_new = leaders(numbered)
    for _, kind, which in repeats(numbered, is_new):
        what = _ELSEWHERE if kind == "noted" else _CONFLICT
        of = origin[numbered.lines[which]]
        for number in np.unique(of):
            first = rows.lines[numbered.lines[which][int((of == number).argmax())]]
            count = int((of == number).sum())
            findings.append((sources[number], kind, what, count, f"line {int(first):,}"))
    kept = numbered.lines[is_new]
    return rows.take(kept), origin[kept]


def _derived(counters: Rows, readings: Rows, source: str) -> tuple[Rows, list[Finding]]:
    """Give the power of what has a counter and nothing else."""
    has_power = {readings.names[code] for code in np.unique(readings.codes)}
    lacks = np.array([name not in has_power for name in counters.names], dtype=bool)
    wanted = counters.take(lacks[counters.codes]) if len(lacks) else counters
    return power_of_counters(wanted, source)


def _clip(readings: Rows, entities: pd.DataFrame, findings: list[Finding]) -> None:
    """Make powers missing that a counter gives where it jumps."""
    if not len(readings.codes):
        return
    scope = dict(zip(entities["entity"], entities["scope"], strict=True))
    limits = np.array([most_w(scope.get(name)) for name in readings.names])
    is_absurd = readings.numbers > limits[readings.codes]
    if is_absurd.any():
        readings.numbers[is_absurd] = np.nan
        name = readings.names[readings.codes[int(is_absurd.argmax())]]
        what = "powers from counters that jump, more than any such thing draws; they are missing"
        source = entities.set_index("entity").loc[name, "source"]
        findings.append((str(source), "left out", what, int(is_absurd.sum()), name))


def _frame(rows: Rows, value: str, entities: pd.Series) -> pd.DataFrame:
    """Make a frame of rows in order of entity; its categories are all entities of the load."""
    code_of = {name: code for code, name in enumerate(entities)}
    codes = np.array([code_of[name] for name in rows.names] or [0], dtype=np.int32)[rows.codes]
    categories = pd.Index(entities.to_numpy(), dtype=pd.Series([""]).dtype)
    return pd.DataFrame(
        {
            "time_ns": rows.time_ns,
            "entity": pd.Categorical.from_codes(codes, categories=categories),
            value: rows.numbers,
        },
        copy=False,
    )


def _no_rows() -> Rows:
    number, none = np.empty(0, np.int64), np.empty(0)
    return Rows([], number.astype(np.int32), number, none, number)


def _stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return QUALITY.empty()
    return QUALITY.check(QUALITY.cast(pd.concat(filled, ignore_index=True)))
