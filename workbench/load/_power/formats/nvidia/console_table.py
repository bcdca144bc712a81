"""Logs of ``nvidia-smi`` without options: the table for people, printed again and again."""

from __future__ import annotations

import re

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.text import text_lines
from workbench.load._power.formats.nvidia.part import part_of, stamp_ns, table_of
from workbench.load._power.formats.nvidia.rows import NOT_A_TIME, Table
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart

NAME = "nvidia-smi table"
_MARK = b"Pwr:Usage/Cap"
_BEGIN = "| NVIDIA-SMI "
_BOARD = re.compile(
    r"\|\s+(?P<index>\d+)\s+(?P<model>\S.*?)\s+\S+\s*\|"
    r"\s*(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s.*"
)
_POWER = re.compile(
    r"\|\s*\S+\s+(?P<temperature>\S+)\s+\S+\s+(?P<power>\[?N/A\]?|[^|/]*?)\s*/\s*(?P<limit>[^|]*?)\s*\|"
    r"[^|]*\|\s*(?P<busy>\d+%|\S+).*"
)
_CUT = "GPUs of a table that breaks off before their power"
_NO_HEAD = "powers of GPUs whose line with name and address is missing or damaged"
_WHOLE = "powers in whole watts, as the table prints them; --query-gpu tells hundredths"
# A script may print one table before what it is there for.
_MOSTLY = 0.9


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise the head of the table, in a file of little else."""
    if _MARK not in head:
        return False
    lines = [line for line in head.split(b"\n")[:-1] or [head] if line.strip()]
    texts = (line.decode(errors="replace") for line in lines)
    framed = [text for text in texts if text[:1] in "|+" or stamp_ns(text) != NOT_A_TIME]
    return len(framed) >= _MOSTLY * len(lines)


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the tables of one host: of each GPU its whole board, not what MIG makes of it."""
    findings = Findings(source.label)
    if options.reading or options.scope == "module":
        msg = (
            f"{source.label}: this table shows power.draw of GPUs only; log nvidia-smi --query-gpu "
            "for other readings"
        )
        raise NoPowerError(msg)
    boards = _Boards()
    for number, line in text_lines(source, findings, whole=True):
        boards.see(number, line)
    boards.close()
    findings.add("dropped", _CUT, boards.cut_count, boards.cut_where)
    findings.add("dropped", _NO_HEAD, boards.lone_count, boards.lone_where)
    return part_of(boards.table(source.label, findings), options, findings)


class _Boards:
    """Gathers the GPUs of all tables, line by line."""

    def __init__(self) -> None:
        self.cut_count, self.cut_where = 0, ""
        self.lone_count, self.lone_where = 0, ""
        self._rows: list[Row] = []
        self._stamp = NOT_A_TIME
        self._is_used = False
        self._begun: Row | None = None

    def see(self, number: int, line: str) -> None:
        if not line.startswith("|"):
            stamp = stamp_ns(line)
            if stamp != NOT_A_TIME:
                self.close()
                self._stamp, self._is_used = stamp, False
        elif line.startswith(_BEGIN):
            self.close()
            # A stamp is that of one table; it may be missing above the next.
            self._stamp = NOT_A_TIME if self._is_used else self._stamp
            self._is_used = True
        elif match := _BOARD.fullmatch(line.rstrip()):
            self.close()
            self._begun = match.groupdict() | {"line": number, "reasons": -1}
        elif match := _POWER.fullmatch(line.rstrip()):
            if self._begun is None:
                self.lone_count += match["power"][:1].isdigit()
                self.lone_where = self.lone_where or f"line {number:,}: {line[:40]!r}"
                return
            cells = {name: text.strip() for name, text in match.groupdict().items()}
            self._rows.append(self._begun | cells | {"time": self._stamp})
            self._begun = None

    def close(self) -> None:
        """End a table: a GPU without a second line was cut."""
        if self._begun is not None:
            self.cut_count += 1
            self.cut_where = self.cut_where or f"line {self._begun['line']:,}"
            self._begun = None

    def table(self, label: str, findings: Findings) -> Table:
        """Return all rows; those without a stamp only if there is none at all."""
        stamped = [row for row in self._rows if row["time"] != NOT_A_TIME]
        if stamped and len(stamped) < len(self._rows):
            first = next(row["line"] for row in self._rows if row["time"] == NOT_A_TIME)
            text = "GPUs of tables without a time above them"
            count = len(self._rows) - len(stamped)
            findings.add("dropped", text, count, f"line {first:,}")
        rows = stamped or self._rows
        if not rows:
            msg = f"{label}: holds a table of nvidia-smi that shows no GPU"
            raise NoPowerError(msg)
        findings.add("noted", _WHOLE, 1)
        table = table_of(rows, "power.draw")
        if not stamped:
            table.clock = "none"
        return table
