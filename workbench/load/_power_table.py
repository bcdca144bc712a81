"""Tables that tools print again and again: headers repeat, other lines stand between."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from workbench.load._findings import Findings
from workbench.load._power_stamps import Page, Stamps, stamp_line
from workbench.load._text_lines import whole_lines
from workbench.load.archive import Source

# Roles of columns, as a header names them; None for a line that is no header.
HeaderOf = Callable[[Sequence[str]], "Mapping[str, int] | None"]

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
_NO_NUMBER = "cells that are no number; they are missing"
_SHORT = "lines with more or fewer cells than their header"
_REPEATED = "headers that repeat"
_OTHER = "lines outside of a table"


class Row(NamedTuple):
    """One line of a table: where, its cells, what each column is, and the stamp before it."""

    line: int
    cells: list[str]
    roles: Mapping[str, int]
    page: Page

    def cell(self, role: str) -> str | None:
        """Return the cell of a role; None if the table has no such column."""
        at = self.roles.get(role)
        return None if at is None else self.cells[at]


def cells_of(text: str) -> list[str]:
    """Split a line of a table; quotes hold cells with commas together."""
    if '"' in text:
        try:
            return [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]
        except csv.Error:
            pass
    return [cell.strip() for cell in text.split(",")]


def rows_of(
    source: Source,
    header_of: HeaderOf,
    stamps: Stamps,
    findings: Findings,
    *,
    usual: tuple[Mapping[str, int], int] | None = None,
) -> Iterator[Row]:
    """Give the rows of all tables of a file; ``usual`` are roles and width without a header."""
    page = Page()
    roles, width = usual or ({}, 0)
    headers = 0
    for number, text in whole_lines(source, findings):
        if (stamp := stamp_line(text)) is not None:
            page.begin(stamps.ns(stamp, number))
            continue
        cells = cells_of(text)
        # No name of a column begins with a digit, and nearly every row has a cell that does.
        is_row = any(cell[:1].isdecimal() for cell in cells)
        found = None if is_row else header_of(cells)
        if found is not None:
            roles, width, headers = found, len(cells), headers + 1
        elif roles and len(cells) == width:
            yield Row(number, cells, roles, page)
        elif roles and len(cells) > 1:
            findings.add("left out", _SHORT, 1, f"line {number:,}: {text[:60]}")
        else:
            findings.add("set aside", _OTHER, int(bool(text.strip())), f"line {number:,}")
    findings.add("noted", _REPEATED, max(headers - 1, 0))


class Numbers:
    """Numbers of cells in W, J, MHz, shares or degrees, whatever unit the cells name."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        # Few numbers fill many cells.
        self._known: dict[tuple[object, str], float | None] = {}

    def read(self, cell: object, line: int, unit: str = "") -> float | None:
        """Return the number of a cell; None if it has none.

        ``unit`` is that of cells that name none. Cells that say that there is nothing are
        missing, others that are no number are counted besides.
        """
        if type(cell) is not str:
            return self._read(cell, line, unit)
        if (cell, unit) in self._known:
            return self._known[cell, unit]
        value = self._read(cell, line, unit)
        if value is not None or cell.strip().lower() in _ABSENT:
            self._known[cell, unit] = value
        return value

    def _read(self, cell: object, line: int, unit: str) -> float | None:
        is_known = isinstance(cell, str | int | float) and not isinstance(cell, bool)
        plain = str(cell).strip() if is_known else repr(cell)[:40]
        if plain.lower() in _ABSENT:
            return None
        match = _NUMBER.fullmatch(plain)
        factor = _FACTORS.get((match[2] or unit).lower()) if match else None
        if match is None or factor is None or abs(value := float(match[1]) * factor) == math.inf:
            self.findings.add("left out", _NO_NUMBER, 1, f"line {line:,}: {plain[:40]!r}")
            return None
        return value
