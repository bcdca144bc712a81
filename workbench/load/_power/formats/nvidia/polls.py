"""Logs of ``nvidia-smi --query-gpu=... --format=csv``, however they were asked and kept."""

from __future__ import annotations

import re
from collections import Counter

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._power.formats.nvidia.part import part_of_file
from workbench.load._power.formats.nvidia.rows import (
    SEPARATORS,
    Columns,
    RowReader,
    Table,
    columns_of,
    is_missing,
)
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart

NAME = "nvidia-smi --query-gpu CSV"
_MARK = b"power.draw"
# With nounits the header still states the unit: power.draw [W].
_HEADER = re.compile(
    rb'^[^\n]*\bpower\.draw[\w.]*\s*(?:\[\w*\])?\s*"?\s*(?:[,;\t\r\n]|\Z)', re.MULTILINE
)
_ASK = "log with --query-gpu=timestamp,index,power.draw,enforced.power.limit --format=csv"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise a header that names ``power.draw`` among other columns, or rows without one."""
    if b"nvidia_gpu_exporter GPU capture" in head[:1000]:
        return False  # it prints the names of all columns long before its tables
    match = _HEADER.search(head)
    # A comment or JSON that names the field is not a header.
    if match is None or match[0].lstrip().startswith((b"#", b"{")):
        return lacks_header(head)
    return True


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the log of one host; a header inside the file starts a table again.

    ``method`` follows from the column (``power.draw.instant``, ``power.draw.average``); of plain
    ``power.draw`` only the name of the product tells it: the mean of the last second from
    Ampere on, the instant before.
    """
    return part_of_file(source, options, QueryReader)


class QueryReader:
    """Reads the lines of a file, or of a section of one, under the headers that stand in it."""

    def __init__(self, options: PowerOptions, findings: Findings) -> None:
        self._options, self._findings = options, findings
        self._rows = RowReader(options, findings)
        self._is_begun = False
        self._refusal = "holds no header of nvidia-smi that names power.draw"

    def read(self, number: int, block: bytes) -> None:
        if not self._is_begun and _MARK not in block:
            self._begin_without_header(block)
        start = 0
        while start < len(block):
            at = block.find(_MARK, start)
            # A header may come again in the middle, where logs were joined.
            line_start = len(block) if at < 0 else max(block.rfind(b"\n", start, at) + 1, start)
            if line_start > start:
                self._rows.read(number, block[start:line_start])
                number += block.count(b"\n", start, line_start)
            if at < 0:
                return
            end = block.find(b"\n", at) + 1 or len(block)
            self._begin(block[line_start:end].decode(errors="replace"), number)
            start, number = end, number + 1

    def finished(self) -> Table:
        if not self._is_begun:
            msg = f"{self._findings.source}: {self._refusal}; {_ASK}"
            raise NoPowerError(msg)
        return self._rows.table

    def _begin(self, line: str, number: int) -> None:
        columns = columns_of(line, self._options)
        refusal = _refusal(columns, self._options)
        if columns is None or refusal:
            self._refusal = refusal if not self._is_begun else self._refusal
            text = "headers whose table is not read"
            self._findings.add("dropped", text, 1, f"line {number:,}: {refusal}")
            self._rows.skip()
            return
        self._is_begun = True
        if "time" not in columns.at:
            self._rows.table.clock = "none"
        self._rows.use(columns)

    def _begin_without_header(self, block: bytes) -> None:
        header = guessed_header(block)
        columns = columns_of(header, self._options) if header else None
        if columns is None or "power" not in columns.at:
            self._refusal = (
                "has no header, and its cells do not show which column is power.draw; write the "
                "line that nvidia-smi --query-gpu prints without noheader at its beginning"
            )
            return
        self._is_begun = True
        text = "columns of a table without header, told by their cells"
        self._findings.add("assumed", text, len(columns.names), header.replace('"', ""))
        self._rows.use(columns)


def _refusal(columns: Columns | None, options: PowerOptions) -> str:
    if columns is None:
        return "holds no table of nvidia-smi with a column power.draw"
    if "power" not in columns.at:
        result = ", ".join(columns.other_powers)
        kind = "module " if options.scope == "module" else ""
        return f"has no {kind}column for reading={options.reading!r}, only {result}"
    if "time" not in columns.at and not {"index", "uuid", "bus", "serial"} & {*columns.at}:
        return f"tells neither time nor GPU, only {', '.join(columns.names[:8])}"
    return ""


# The header of an ``nvidia-smi`` table where there is none, told by its cells.

_STAMP = re.compile(r"\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d\.\d{3}")
_KINDS = {
    "timestamp": _STAMP,
    "power.draw [W]": re.compile(r"[+-]?\d+(?:\.\d+)? W"),
    "uuid": re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}"),
    "pci.bus_id": re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"),
}
_LOOKED_AT = 200
_FIRST_LINE = re.compile(rb'\A[\s"]*\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d\.\d{3}"?\s*[,;\t]')
_PLAIN = re.compile(r"\d+")


def lacks_header(head: bytes) -> bool:
    """Return whether a file begins with a stamp of ``nvidia-smi`` and names a power in W.

    Examples
    --------
    >>> lacks_header(b"2025/01/31 08:00:00.000, 73.94 W, 0 %")
    True
    """
    first = head.lstrip()[:1000].split(b"\n")[0]
    return bool(_FIRST_LINE.match(first)) and bool(re.search(rb"\d W\b", first))


def guessed_header(block: bytes) -> str:
    """Write the header that a table lacks; '' if its cells do not show which column is what.

    Only the one column in W can be the power; of two, one is the limit, and nobody guesses.
    """
    lines = [line for line in block.decode(errors="replace").split("\n") if line.strip()]
    first = lines[0] if lines else ""
    separator = max(SEPARATORS, key=first.count)
    rows = [[c.strip(' "\t') for c in line.split(separator)] for line in lines[:_LOOKED_AT]]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    # A line cut off in writing has fewer cells.
    rows = [row for row in rows if len(row) == width]
    names = [_kind([row[position] for row in rows]) for position in range(width)]
    if names.count("timestamp") != 1 or names.count("power.draw [W]") != 1:
        return ""
    names = [name or f"column {position + 1}" for position, name in enumerate(names)]
    return separator.join(f'"{name}"' if '"' in first else name for name in names)


def _kind(cells: list[str]) -> str:
    """Describe what all cells of a column are, as a header names it; '' if that is not clear."""
    subset = [cell for cell in cells if not is_missing(cell)]
    for name, pattern in _KINDS.items():
        if subset and all(pattern.fullmatch(cell) for cell in subset):
            return name
    return "index" if _counts_up(cells) else ""


def _counts_up(cells: list[str]) -> bool:
    # 0, 1, 2, ... over and over is the number of the GPU.
    if not all(_PLAIN.fullmatch(cell) for cell in cells):
        return False
    size = len(set(cells))
    return size > 1 and len(cells) > size and cells == [str(n % size) for n in range(len(cells))]
