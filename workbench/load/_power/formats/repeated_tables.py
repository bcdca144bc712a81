"""Tables that tools print again and again: headers repeat, other lines stand between."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text import whole_lines
from workbench.load._power.part import NO_TIME, Floats, Integers, possible
from workbench.load._power.stamps import Stamps, stamp_line

# Roles of columns, as a header names them; None for a line that is not a header.
HeaderOf = Callable[[Sequence[str]], "Mapping[str, int] | None"]

Objects = npt.NDArray[np.object_]

# Bounds the memory for rows that wait to become arrays.
_CHUNK_ROWS = 1 << 16
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d*)?(?:e[-+]?\d{1,3})?) *([a-zµ%°/]*)", re.IGNORECASE)
_ABSENT = frozenset(
    {"", "-", "n/a", "[n/a]", "none", "null", "nan", "unknown", "unsupported", "not supported",
     "[not supported]"}
)  # fmt: skip
_FACTORS = {
    "": 1.0, "w": 1.0, "mw": 1e-3, "kw": 1e3, "uw": 1e-6, "µw": 1e-6,
    "j": 1.0, "mj": 1e-3, "kj": 1e3, "uj": 1e-6, "µj": 1e-6, "kwh": 3.6e6,
    "mhz": 1.0, "ghz": 1e3, "khz": 1e-3, "hz": 1e-6, "%": 0.01, "c": 1.0, "°c": 1.0,
}  # fmt: skip
_NO_NUMBER = "cells that are not numbers; they are missing"
_SHORT = "lines with more or fewer cells than their header"
_REPEATED = "headers that repeat"
_OTHER = "lines outside of a table"


@dataclass
class Chunk:
    """Rows of one table: their lines, the cells of each role, and the stamp before them."""

    lines: Integers
    cells: dict[str, Objects]
    page: Integers
    page_ns: Integers

    def numbers(self, role: str, numbers: Numbers, unit: str = "") -> Floats:
        """Return a role as numbers, missing if the table has no such column."""
        if role not in self.cells:
            return np.full(len(self.lines), np.nan)
        codes, texts = pd.factorize(self.cells[role], use_na_sentinel=False)
        values = [numbers.read(text, unit) for text in texts]
        for code, (text, value) in enumerate(zip(texts, values, strict=True)):
            if value is None and not is_absent(text):
                rows = codes == code
                numbers.tell(text, int(self.lines[rows][0]), int(rows.sum()))
        plain = np.array([np.nan if value is None else value for value in values], np.float64)
        return plain[codes]

    def states(self, numbers: Numbers) -> list[Floats]:
        """Return the columns of STATE_COLUMNS; what can be no limit, clock or load is missing."""
        empty = np.full(len(self.lines), np.nan)
        limit, clock = (possible(self.numbers(role, numbers)) for role in ("limit", "clock"))
        busy = possible(self.numbers("busy", numbers, "%"), most=1)
        return [limit, clock, busy, self.numbers("temperature", numbers), empty, empty]

    def times(self, stamps: Stamps, names: Objects) -> Integers:
        if "time" not in self.cells:
            # The stamp before a snapshot holds for one reading of each thing.
            again = pd.DataFrame({"page": self.page, "name": names}).duplicated().to_numpy()
            return np.where(again, NO_TIME, self.page_ns)
        # Equal texts that follow each other are one stamp; an hour that comes twice repeats them.
        cells = np.asarray(self.cells["time"], dtype=object)
        begins = np.append(True, cells[1:] != cells[:-1])[: len(cells)]
        codes, texts, first = np.cumsum(begins) - 1, cells[begins], self.lines[begins]
        instants = [stamps.ns(text, int(line)) for text, line in zip(texts, first, strict=True)]
        filled = [NO_TIME if instant is None else instant for instant in instants]
        plain: Integers = np.array(filled, np.int64)[codes]
        return plain

    def take(self, kept: npt.NDArray[np.bool_]) -> Chunk:
        cells = {role: texts[kept] for role, texts in self.cells.items()}
        return Chunk(self.lines[kept], cells, self.page[kept], self.page_ns[kept])


def cells_of(text: str) -> list[str]:
    """Split a line of a table; quotes hold cells with commas together."""
    if '"' in text:
        try:
            return [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]
        except csv.Error:
            pass
    return [cell.strip() for cell in text.split(",")]


def chunks_of(
    source: Source,
    header_of: HeaderOf,
    stamps: Stamps,
    findings: Findings,
    *,
    usual: tuple[Mapping[str, int], int] | None = None,
) -> Iterator[Chunk]:
    """Yield the rows of all tables of a file; ``usual`` are roles and width without a header."""
    roles, width = usual or ({}, 0)
    page, page_ns, headers = 0, NO_TIME, 0
    rows: list[tuple[Any, ...]] = []
    for number, text in whole_lines(source, findings):
        if (stamp := stamp_line(text)) is not None:
            page, page_ns = page + 1, stamps.ns(stamp, number) or NO_TIME
            continue
        cells = cells_of(text)
        # No name of a column begins with a digit, and nearly every row has a cell that does.
        is_row = any(cell[:1].isdecimal() for cell in cells)
        result = None if is_row else header_of(cells)
        if result is not None or len(rows) >= _CHUNK_ROWS:
            yield from _chunk(rows, roles)
            rows = []
        if result is not None:
            roles, width, headers = result, len(cells), headers + 1
        elif roles and len(cells) == width:
            rows.append((number, page, page_ns, *(cells[at] for at in roles.values())))
        elif roles and len(cells) > 1:
            findings.add("dropped", _SHORT, 1, f"line {number:,}: {text[:60]}")
        else:
            findings.add("skipped by design", _OTHER, int(bool(text.strip())), f"line {number:,}")
    yield from _chunk(rows, roles)
    findings.add("noted", _REPEATED, max(headers - 1, 0))


def _chunk(rows: Sequence[tuple[Any, ...]], roles: Mapping[str, int]) -> Iterator[Chunk]:
    if rows:
        lines, page, page_ns, *columns = zip(*rows, strict=True)
        total = (np.array(item, np.int64) for item in (lines, page, page_ns))
        cells = [np.array(column, dtype=object) for column in columns]
        line_array, page_array, page_ns_array = total
        by_name = dict(zip(roles, cells, strict=True))
        yield Chunk(line_array, by_name, page_array, page_ns_array)


def is_absent(cell: object) -> bool:
    return isinstance(cell, str) and cell.strip().lower() in _ABSENT


class Numbers:
    """Numbers of cells in W, J, MHz, shares or degrees, whatever unit the cells name."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def read(self, cell: object, unit: str = "") -> float | None:
        """Return the number of a cell, None if it has none; ``unit`` is that of bare numbers."""
        if not isinstance(cell, str | int | float) or isinstance(cell, bool):
            return None
        match = _NUMBER.fullmatch(str(cell).strip())
        factor = _FACTORS.get((match[2] or unit).lower()) if match else None
        if match is None or factor is None:
            return None
        value = float(match[1]) * factor
        return value if abs(value) < math.inf else None

    def tell(self, cell: object, line: int, count: int = 1) -> None:
        self.findings.add("dropped", _NO_NUMBER, count, f"line {line:,}: {str(cell)[:40]!r}")
