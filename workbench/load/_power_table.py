"""Tables that tools print again and again: headers repeat, other lines stand between."""

from __future__ import annotations

import csv
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
        found = header_of(cells) if text.strip() else None
        if found is not None:
            roles, width, headers = found, len(cells), headers + 1
        elif roles and len(cells) == width:
            yield Row(number, cells, roles, page)
        elif roles and len(cells) > 1:
            findings.add("left out", _SHORT, 1, f"line {number:,}: {text[:60]}")
        else:
            findings.add("set aside", _OTHER, int(bool(text.strip())), f"line {number:,}")
    findings.add("noted", _REPEATED, max(headers - 1, 0))


def number_in(text: object, findings: Findings, line: int, *, unit: str = "") -> float | None:
    """Return a number in W, J, MHz, share or degrees of a cell with its unit; None if it is none.

    ``unit`` is that of cells that name none. Cells that say that there is nothing are missing,
    others that are no number are counted besides.
    """
    if isinstance(text, bool):
        text = str(text)
    plain = str(text).strip() if isinstance(text, str | int | float) else repr(text)[:40]
    if plain.lower() in _ABSENT:
        return None
    match = _NUMBER.fullmatch(plain)
    factor = _FACTORS.get((match[2] or unit).lower()) if match else None
    if match is None or factor is None or abs(value := float(match[1]) * factor) == float("inf"):
        findings.add("left out", _NO_NUMBER, 1, f"line {line:,}: {plain[:40]!r}")
        return None
    return value
