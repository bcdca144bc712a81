"""The readings of one file as arrays, and the order they are brought into."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.load._files.findings import Findings, Row

SECOND = 1_000_000_000
_DIGITS = re.compile(r"(\d+)")
_BACK = "stamps that go back in time, by up to {:,.3g} s; the readings were put in order"
_SAME = "readings written twice for one stamp; taken once"
_OTHER = "readings that differ for one stamp; the first is kept"


@dataclass
class Rows:
    """Readings in the order of the file: code of the entity, time, value and line."""

    names: list[str]
    codes: np.ndarray
    time_ns: np.ndarray
    numbers: np.ndarray
    lines: np.ndarray

    def take(self, at: np.ndarray) -> Rows:
        return Rows(self.names, self.codes[at], self.time_ns[at], self.numbers[at], self.lines[at])

    def slices(self) -> Iterator[tuple[str, slice]]:
        edges = np.searchsorted(self.codes, np.arange(len(self.names) + 1)).tolist()
        for name, start, end in zip(self.names, edges[:-1], edges[1:], strict=True):
            if end > start:
                yield name, slice(start, end)


def by_entity(codes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the order of rows by entity and time; rows of one stamp stay as they are."""
    # Small numbers are sorted many times faster.
    narrow = codes.astype(np.int16) if codes.max(initial=0) < 1 << 15 else codes
    order = np.argsort(narrow, kind="stable")
    sorted_codes, sorted_times = codes[order], times[order]
    if ((sorted_codes[1:] == sorted_codes[:-1]) & (sorted_times[1:] < sorted_times[:-1])).any():
        order = np.lexsort((times, codes))
    return order


def natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts names as people do: gpu2 before gpu10.

    Examples
    --------
    >>> sorted(["gpu10", "gpu2"], key=natural)
    ['gpu2', 'gpu10']
    """
    pieces = _DIGITS.split(name)
    return [(len(p.lstrip("0")), p) if n % 2 else (0, p) for n, p in enumerate(pieces)]


def rows_of(frame: pd.DataFrame, value: str) -> Rows:
    """Make rows of a frame of a reader; entities are coded in their natural order."""
    entity = frame["entity"]
    as_category = entity if entity.dtype == "category" else entity.astype("category")
    categories = [str(name) for name in as_category.cat.categories]
    order = sorted(range(len(categories)), key=lambda code: natural(categories[code]))
    place_of = np.empty(len(categories), dtype=np.int32)
    place_of[order] = np.arange(len(categories), dtype=np.int32)
    return Rows(
        [categories[code] for code in order],
        place_of[as_category.cat.codes.to_numpy()],
        frame["time_ns"].to_numpy(dtype=np.int64, copy=True),
        frame[value].to_numpy(dtype=np.float64, copy=True, na_value=np.nan),
        frame["line"].to_numpy(dtype=np.int64),
    )


def place(rows: Rows, row: int) -> str:
    return f"line {int(rows.lines[row]):,}: {rows.names[rows.codes[row]]}"


def in_order(rows: Rows, findings: Findings) -> Rows:
    later = rows.time_ns[1:] > rows.time_ns[:-1]
    is_next = rows.codes[1:] > rows.codes[:-1]
    if (is_next | (later & (rows.codes[1:] == rows.codes[:-1]))).all():
        return rows
    ordered = rows.take(by_entity(rows.codes, rows.time_ns))
    same = ordered.codes[1:] == ordered.codes[:-1]
    # Sorting is stable: where the lines fall, the file goes back in time.
    if (same & (ordered.lines[1:] < ordered.lines[:-1])).any():
        _tell_of_back(rows, findings)
    if not (same & (ordered.time_ns[1:] == ordered.time_ns[:-1])).any():
        return ordered
    return _told(ordered, findings)


def _tell_of_back(rows: Rows, findings: Findings) -> None:
    written = rows.take(np.argsort(rows.codes, kind="stable"))
    step = np.diff(written.time_ns)
    back = (written.codes[1:] == written.codes[:-1]) & (step < 0)
    if back.any():
        first = 1 + int(np.flatnonzero(back)[written.lines[1:][back].argmin()])
        longest_s = float(-step[back].min()) / SECOND
        findings.add("suspicious", _BACK.format(longest_s), int(back.sum()), place(written, first))


def _told(rows: Rows, findings: Findings) -> Rows:
    rows, is_new = leaders(rows)
    for text, finding, which in repeats(rows, is_new):
        findings.add(finding, text, int(which.sum()), place(rows, int(which.argmax())))
    return rows.take(is_new)


def leaders(rows: Rows) -> tuple[Rows, np.ndarray]:
    """Return which row is kept of each entity and stamp: the first with a value, put in front."""
    if np.isnan(rows.numbers).any():
        rows = rows.take(np.lexsort((np.isnan(rows.numbers), rows.time_ns, rows.codes)))
    is_new = np.ones(len(rows.codes), dtype=bool)
    is_new[1:] = (np.diff(rows.codes) != 0) | (np.diff(rows.time_ns) != 0)
    return rows, is_new


def repeats(rows: Rows, is_new: np.ndarray) -> list[tuple[str, str, np.ndarray]]:
    """Return message, finding and mask of the rows that are not kept."""
    # The position of the first row of each stamp, carried on to its repeats.
    leader = np.maximum.accumulate(np.where(is_new, np.arange(len(is_new)), 0))
    is_equal = (rows.numbers == rows.numbers[leader]) | np.isnan(rows.numbers)
    result = [(_SAME, "noted", ~is_new & is_equal), (_OTHER, "dropped", ~is_new & ~is_equal)]
    return [entry for entry in result if entry[2].any()]


def joined(tables: Sequence[Rows], names: Sequence[Sequence[str]]) -> tuple[Rows, np.ndarray]:
    """Put the rows of several files together, under new names, in order of entity and time."""
    filled = [number for number, table in enumerate(tables) if len(table.codes)]
    if len(filled) == 1 and [*names[filled[0]]] == sorted(names[filled[0]], key=natural):
        only = tables[filled[0]]
        rows = Rows([*names[filled[0]]], only.codes, only.time_ns, only.numbers, only.lines)
        return rows, np.full(len(rows.codes), filled[0], dtype=np.int32)
    every = sorted({name for subset in names for name in subset}, key=natural)
    code_of = {name: code for code, name in enumerate(every)}
    codes = [
        np.array([code_of[name] for name in new] or [0], dtype=np.int32)[table.codes]
        for table, new in zip(tables, names, strict=True)
    ]
    origin = np.repeat(np.arange(len(tables), dtype=np.int32), [len(table_) for table_ in codes])
    rows = Rows(
        every,
        np.concatenate(codes or [np.empty(0, np.int32)]),
        np.concatenate([table_.time_ns for table_ in tables] or [np.empty(0, np.int64)]),
        np.concatenate([table_.numbers for table_ in tables] or [np.empty(0)]),
        np.concatenate([table_.lines for table_ in tables] or [np.empty(0, np.int64)]),
    )
    order = by_entity(rows.codes, rows.time_ns)
    return rows.take(order), origin[order]


# Powers that can be none: negative, absurd, not finite, or in another unit than they seem.

# What no single thing of a scope draws, in W: far above any product, far below a wrong unit.
_MOST_W = {
    **dict.fromkeys(("gpu", "cpu", "memory"), 5e3), "module": 2e4,
    **dict.fromkeys(("node_dc", "node_ac"), 2e5), "switch": 5e5, "rack": 2e6,
    **dict.fromkeys(("row", "pdu", "panel", "switchboard"), 1e8),
    **dict.fromkeys(("msb", "cooling"), 1e9),
}  # fmt: skip
_MOST_OF_ALL_W = 2e10


def most_w(scope: object) -> float:
    return _MOST_W.get(str(scope), _MOST_OF_ALL_W)


def clean_values(rows: Rows, entities: dict[str, Row], findings: Findings) -> None:
    """Make what can be no power missing, in place, and count it with the line of the first."""
    blank = _first(np.isnan(rows.numbers), rows)
    findings.add("noted", "readings without power in the file", *blank)
    odd = np.isinf(rows.numbers)
    _drop(rows, odd, "readings that are not finite; they are missing", findings)
    _read_as_mw(rows, entities, findings)
    _drop(rows, rows.numbers < 0, "negative powers; they are missing", findings)
    limits = np.array([most_w(entities[name].get("scope")) for name in rows.names])
    if not len(limits):
        return
    is_absurd = rows.numbers > limits[rows.codes]
    for limit in np.unique(limits[rows.codes[is_absurd]]):
        text = f"powers above {limit:,.0f} W, more than any such thing draws; they are missing"
        _drop(rows, is_absurd & (limits[rows.codes] == limit), text, findings)


def _drop(rows: Rows, bad: np.ndarray, text: str, findings: Findings) -> None:
    if bad.any():
        findings.add("dropped", text, *_first(bad, rows))
        rows.numbers[bad] = np.nan


def _first(bad: np.ndarray, rows: Rows) -> tuple[int, str | None]:
    count = int(bad.sum())
    return count, place(rows, int(bad.argmax())) if count else None


def _read_as_mw(rows: Rows, entities: dict[str, Row], findings: Findings) -> None:
    """Divide the readings of GPUs that are plainly milliwatts without a unit, and tell."""
    high = rows.numbers > _MOST_W["gpu"]
    for code in np.unique(rows.codes[high]):
        facts = entities[rows.names[code]]
        is_stated = facts.get("unit") or "unit=" in str(facts.get("assumed", ""))
        # Only of GPUs is the size known well enough to tell mW from W.
        if facts.get("scope") != "gpu" or is_stated:
            continue
        at = rows.codes == code
        values = rows.numbers[at]
        middle = float(np.median(values[np.isfinite(values)]))
        # 5 W to 5,000 W, said in milliwatts.
        if not _MOST_W["gpu"] < middle <= _MOST_W["gpu"] * 1e3:
            continue
        rows.numbers[at] = values / 1e3
        facts["assumed"] = ", ".join(filter(None, [facts.get("assumed", ""), "unit=mW"]))
        text = "GPUs whose powers name no unit and are assumed to be mW, by their size; pass unit="
        where = f"{rows.names[code]}: median {middle:,.0f}"
        findings.add("assumed", text, 1, where)
