"""Rows of ``nvidia-smi`` tables: cells to numbers, many at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from workbench.load._files.findings import Findings
from workbench.load._power.formats.nvidia.cells import (
    Numbers,
    active_value,
    mask_value,
    texts_of,
    whole_numbers,
)
from workbench.load._power.formats.nvidia.columns import Columns
from workbench.load._power.formats.nvidia.stamps import EXAMPLE, NOT_A_TIME, local_ns
from workbench.load._power.part import PowerGiven

_IDENTITY = ("node", "index", "uuid", "bus", "serial", "model", "mig")
_NUMBERS = ("power", "limit", "clock", "busy", "temperature", "violation", "energy")
_ODD_ROWS = "lines with more or fewer cells than the header"
_NO_STAMP = f"lines whose first cells are no stamp like {EXAMPLE}"
_CUT = "the last line breaks off; it is left out"

Key = tuple[str, ...]
Clock = Literal["local", "day", "none"]


@dataclass
class Batch:
    """Rows read from one block: what they hold by role, and the key of their device."""

    lines: np.ndarray
    local_ns: np.ndarray
    keys: np.ndarray
    numbers: dict[str, np.ndarray]
    reasons: np.ndarray | None


@dataclass
class Table:
    """All rows of a file, and the headers under which they stand."""

    headers: list[Columns] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    # Different identities of rows, by the code in ``Batch.keys``.
    keys: list[Key] = field(default_factory=list)
    is_stated: bool = False
    first_bad_stamp: str = ""
    # Local times of the host, times of an unknown day, or none at all.
    clock: Clock = "local"


class RowReader:
    """Reads the rows of the tables of one file."""

    def __init__(self, given: PowerGiven, findings: Findings) -> None:
        self.table = Table()
        self._given, self._findings = given, findings
        self._code_of: dict[Key, int] = {}
        self._columns: Columns | None = None
        self._numbers: dict[str, Numbers] = {}

    def use(self, columns: Columns) -> None:
        """Take the next rows for those of a table with these columns."""
        if columns == self._columns:
            return
        self._columns = columns
        self._numbers = {
            role: Numbers(role, columns.unit(role), self._factor(role))
            for role in _NUMBERS
            if role in columns.at
        }

    def skip(self) -> None:
        """Pass over the next rows."""
        self._columns = None

    def _factor(self, role: str) -> float | None:
        factors = {"W": 1.0, "mW": 1e-3, "kW": 1e3, "MW": 1e6}
        return factors[self._given.unit] if role == "power" and self._given.unit else None

    def read(self, number: int, block: bytes) -> None:
        """Read whole lines; ``number`` is that of the first."""
        columns = self._columns
        if columns is None:
            count = sum(map(bool, map(bytes.strip, block.split(b"\n"))))
            what = "lines outside of tables with power"
            self._findings.add("set aside", what, count, f"line {number:,}")
            return
        if (cut := _cut(block, columns)) is not None:
            line = number + block.count(b"\n")
            self._findings.add("truncated", _CUT, 1, f"line {line:,}")
            block = cut
        if not block.strip():
            return
        if columns not in self.table.headers:
            self.table.headers.append(columns)
        arrow, lines = _parsed(block, columns, number, self._findings)
        if arrow is not None and len(lines):
            self._keep(arrow, lines, columns)

    def _keep(self, arrow: pa.Table, lines: np.ndarray, columns: Columns) -> None:
        findings = self._findings
        times, is_bad = self._times(arrow, lines, columns)
        if is_bad.any():
            arrow, lines, times = arrow.filter(pa.array(~is_bad)), lines[~is_bad], times[~is_bad]
        if not len(lines):
            return
        reasons = _reasons(arrow, columns)
        batch = Batch(lines, times, self._keys(arrow, columns), {}, reasons)
        for role, numbers in self._numbers.items():
            cells = arrow.column(str(columns.at[role])).combine_chunks()
            batch.numbers[role], junk = numbers.read(cells)
            if junk.any():
                row = int(junk.argmax())
                what = f"cells of {columns.name(role)} that are no number; they are missing"
                where = f"line {int(lines[row]):,}: {cells[row].as_py()[:40]!r}"
                findings.add("left out", what, int(junk.sum()), where)
        self.table.is_stated |= self._numbers["power"].is_stated
        self.table.batches.append(batch)

    def _times(
        self, arrow: pa.Table, lines: np.ndarray, columns: Columns
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return local times, zeros if the table has none, and which rows are no readings."""
        if "time" not in columns.at:
            return np.zeros(len(lines), dtype=np.int64), _is_blank(arrow)
        stamps = arrow.column(str(columns.at["time"])).combine_chunks()
        times = local_ns(stamps)
        is_bad = times == NOT_A_TIME
        is_wrong = is_bad & ~_is_blank(arrow) if is_bad.any() else is_bad
        if is_wrong.any():
            row = int(is_wrong.argmax())
            text = stamps[row].as_py()[:40]
            self.table.first_bad_stamp = self.table.first_bad_stamp or text
            where = f"line {int(lines[row]):,}: {text!r}"
            self._findings.add("left out", _NO_STAMP, int(is_wrong.sum()), where)
        return times, is_bad

    def _keys(self, arrow: pa.Table, columns: Columns) -> np.ndarray:
        """Code what tells the devices apart."""
        combined = np.zeros(arrow.num_rows, dtype=np.int64)
        texts: list[list[str]] = []
        for role in _IDENTITY:
            if role not in columns.at:
                texts.append([""])
                continue
            cells = arrow.column(str(columns.at[role])).combine_chunks()
            known, codes = texts_of(cells)
            combined = combined * max(len(known), 1) + codes
            texts.append(known or [""])
        unique, inverse = np.unique(combined, return_inverse=True)
        sizes = [len(known) for known in texts]
        places = np.unravel_index(unique, sizes) if len(unique) else ()
        new = np.empty(len(unique), dtype=np.int64)
        for row in range(len(unique)):
            key = tuple(known[int(at[row])] for known, at in zip(texts, places, strict=True))
            if key not in self._code_of:
                self._code_of[key] = len(self.table.keys)
                self.table.keys.append(key)
            new[row] = self._code_of[key]
        return new[inverse].astype(np.int32)


def _cut(block: bytes, columns: Columns) -> bytes | None:
    """Give the block without its last line if that one breaks off; None if it does not."""
    if block.endswith(b"\n"):
        return None
    last = block[block.rfind(b"\n") + 1 :].decode(errors="replace")
    cells = last.split(columns.separator)
    unit = columns.units[-1]
    is_whole = len(cells) == len(columns.names) and unit and last.rstrip(' "').endswith(unit)
    return None if is_whole else block[: block.rfind(b"\n") + 1]


def _reasons(arrow: pa.Table, columns: Columns) -> np.ndarray | None:
    at = columns.at
    if "reasons" in at:
        return whole_numbers(arrow.column(str(at["reasons"])).combine_chunks(), mask_value)
    bits = {role: place for role, place in at.items() if role.startswith("reason ")}
    if not bits:
        return None
    total = np.full(arrow.num_rows, -1, dtype=np.int64)
    for role, place in bits.items():
        active = whole_numbers(arrow.column(str(place)).combine_chunks(), active_value)
        known = active >= 0
        total = np.where(known & (total < 0), 0, total)
        total = np.where(known, total + active * int(role.split()[1]), total)
    return total


def _is_blank(arrow: pa.Table) -> np.ndarray:
    blank = np.ones(arrow.num_rows, dtype=bool)
    for column in arrow.columns:
        texts = pc.utf8_trim_whitespace(column)
        blank &= pc.equal(pc.binary_length(texts), 0).to_numpy()
    return blank


def _parsed(
    block: bytes, columns: Columns, number: int, findings: Findings
) -> tuple[pa.Table | None, np.ndarray]:
    """Split lines into cells; those with another number of cells are counted and left out."""
    bad: list[int] = []

    def passed_over(row: pa_csv.InvalidRow) -> str:
        bad.append(row.number)
        return "skip"

    wanted = [str(place) for place in sorted({*columns.at.values()})]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            read_options=pa_csv.ReadOptions(
                column_names=[str(place) for place in range(len(columns.names))],
                use_threads=False,
                block_size=len(block) + 1,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=columns.separator,
                quote_char='"' if columns.is_quoted else False,
                invalid_row_handler=passed_over,
                ignore_empty_lines=False,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in wanted},
                include_columns=wanted,
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid as error:
        what = f"lines that are no table ({str(error)[:80]})"
        findings.add("left out", what, block.count(b"\n"), f"line {number:,}")
        return None, np.empty(0, np.int64)
    if bad:
        findings.add("left out", _ODD_ROWS, len(bad), f"line {number + bad[0] - 1:,}")
    lines = np.arange(number, number + table.num_rows + len(bad), dtype=np.int64)
    return table, np.delete(lines, np.array(bad, dtype=np.int64) - 1)
