"""Logs of ``nvidia-smi dmon``, with and without times."""

from __future__ import annotations

import re

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._power.formats.nvidia.part import part_of_file
from workbench.load._power.formats.nvidia.rows import Clock, Columns, RowReader, Table
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart

NAME = "nvidia-smi dmon"
_HEADER = re.compile(
    rb"^[ \t]*#[ \t]*(?:[\w/]+[ \t,]+){0,4}gpu\b[^\n]*", re.MULTILINE | re.IGNORECASE
)
_COMMENT = re.compile(rb"^[ \t]*#[^\n]*", re.MULTILINE)
_DATED = re.compile(rb"^[ \t]*(\d{8})[ \t,]+(\d\d:\d\d:\d\d)", re.MULTILINE)
_TIMED = re.compile(rb"^[ \t]*(\d\d:\d\d:\d\d)", re.MULTILINE)
# dmon --format csv separates the cells by commas.
_BLANKS = re.compile(rb"[ \t]*[ \t,][ \t]*")
_EDGES = re.compile(rb"^[ \t]+|[ \t]+$", re.MULTILINE)
_NAMES = {"gpu": "index", "pwr": "power", "gtemp": "temperature", "temp": "temperature"}
_NAMES |= {"sm": "busy", "pclk": "clock"}
# The day of times that have none; the part of it is not used.
_NO_DAY = rb"20000101T"
_ASK = "log with nvidia-smi dmon -s pucvmet -o DT"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise the header ``# gpu    pwr  gtemp ...``."""
    return any(b"pwr" in match[0].split() for match in _HEADER.finditer(head.replace(b",", b" ")))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the readings of one host, whole watts each.

    What a file without dates (``-o T``) or without any time gives is on a clock of its own.
    """
    return part_of_file(source, options, DmonReader)


class DmonReader:
    """Reads the lines of a file, or of a section of one; a header may come again and again."""

    def __init__(self, options: PowerOptions, findings: Findings) -> None:
        self._findings = findings
        self._rows = RowReader(options, findings)
        self._found: list[str] = []

    def read(self, number: int, block: bytes) -> None:
        start = 0
        for match in _HEADER.finditer(block):
            if match.start() > start:
                self._read(number, block[start : match.start()])
            number += block.count(b"\n", start, match.start())
            self._begin(match[0].decode(errors="replace"))
            start = match.start()
        self._read(number, block[start:])

    def finished(self) -> Table:
        """Return what was read; NoPowerError if no header names a power."""
        if not self._rows.table.headers:
            result = ", ".join(self._found) or "no header"
            msg = f"{self._findings.source}: has no column pwr with readings ({result}); {_ASK}"
            raise NoPowerError(msg)
        return self._rows.table

    def _begin(self, line: str) -> None:
        names = [name.lower() for name in line.replace("#", " ").replace(",", " ").split()]
        self._found = names
        clock: Clock = "local" if "date" in names else "day" if "time" in names else "none"
        if clock == "local":
            names.remove("date")
        at = {_NAMES[name]: position for position, name in enumerate(names) if name in _NAMES}
        if "time" in names:
            at["time"] = names.index("time")
        if "power" not in at:
            self._rows.skip()
            return
        self._rows.table.clock = clock
        units = tuple("W" if name == "pwr" else "" for name in names)
        self._rows.use(Columns(",", is_quoted=False, names=tuple(names), units=units, at=at))

    def _read(self, number: int, block: bytes) -> None:
        """Make commas of the blanks between the cells, and blank lines of comments."""
        plain = _COMMENT.sub(b"", block)
        clock = self._rows.table.clock
        if clock == "local":
            plain = _DATED.sub(rb"\1T\2", plain)
        elif clock == "day":
            plain = _TIMED.sub(_NO_DAY + rb"\1", plain)
        self._rows.read(number, _BLANKS.sub(b",", _EDGES.sub(b"", plain)))
