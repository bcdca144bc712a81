"""The rows of ``nvidia-smi --query-gpu`` tables, read in blocks of bounded size."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from workbench.load._findings import Findings
from workbench.load._nvidia_cells import Numbers, active_value, mask_value, texts_of, whole_numbers
from workbench.load._nvidia_columns import Columns, columns_of
from workbench.load._nvidia_stamps import EXAMPLE, NOT_A_TIME, local_ns
from workbench.load._power_part import PowerGiven
from workbench.load._stream import Stream
from workbench.load._text_lines import NOT_UTF8

_BLOCK_BYTES = 16 << 20
_LONGEST_LINE_BYTES = 1 << 20
_IDENTITY = ("node", "index", "uuid", "bus", "serial", "model", "mig")
_NUMBERS = ("power", "limit", "clock", "busy", "temperature", "violation", "energy")
_ODD_ROWS = "lines with more or fewer cells than the header"
_NO_STAMP = f"lines whose first cells are no stamp like {EXAMPLE}"
_CUT = "the last line breaks off; it is left out"
_LONG = f"lines longer than {_LONGEST_LINE_BYTES >> 20} MiB"

Key = tuple[str, ...]


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

    columns: Columns
    headers: list[Columns] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    # Different identities of rows, by the code in ``Batch.keys``.
    keys: list[Key] = field(default_factory=list)
    is_stated: bool = False
    first_bad_stamp: str = ""


def blocks_of(stream: Stream, findings: Findings) -> Iterator[tuple[int, bytes]]:
    """Give blocks of whole lines with the number of the first, damage mended and counted.

    The last line is left out if the file breaks off inside it.
    """
    number, rest, mark, is_inside_long = 1, b"", BOM_UTF8, False
    while block := _filled(stream):
        block, mark = block.removeprefix(mark), b""
        if is_inside_long:
            end = block.find(b"\n")
            if end < 0:
                continue
            block, is_inside_long, number = block[end + 1 :], False, number + 1
        block = rest + block
        end = block.rfind(b"\n") + 1
        whole, rest = block[:end], block[end:]
        if whole:
            yield number, _tidy(whole, number, findings)
            number += whole.count(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            findings.add("left out", _LONG, 1, f"line {number:,}")
            rest, is_inside_long = b"", True
    if rest:
        yield number, _tidy(rest, number, findings)


def _filled(stream: Stream) -> bytes:
    pieces, size = [], 0
    while size < _BLOCK_BYTES and (piece := stream.read(_BLOCK_BYTES - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _tidy(block: bytes, number: int, findings: Findings) -> bytes:
    """Give a block with plain line ends, in UTF-8."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError as error:
        bad = number + block.count(b"\n", 0, error.start)
        text = block.decode(errors="replace")
        count = text.count("\ufffd") - block.count("\ufffd".encode())
        findings.add("repaired", NOT_UTF8, count, f"line {bad:,}")
        return text.encode()
    return block


class Reader:
    """Reads the tables of one file, block by block; a new header starts a new table."""

    def __init__(self, columns: Columns, given: PowerGiven, findings: Findings) -> None:
        self.table = Table(columns)
        self._given, self._findings = given, findings
        self._code_of: dict[Key, int] = {}
        self._numbers: dict[str, Numbers] = {}
        self._use(columns)

    def read(self, number: int, block: bytes, *, is_header_known: bool) -> None:
        """Read whole lines; ``number`` is that of the first."""
        start, is_in_table = 0, is_header_known
        while start < len(block):
            at = block.find(b"power.draw", start)
            line_start = block.rfind(b"\n", start, at) + 1 if at >= 0 else len(block)
            line_start = max(line_start, start)
            if line_start > start:
                self._rows(number, block[start:line_start], is_in_table=is_in_table)
                number += block.count(b"\n", start, line_start)
            if at < 0:
                break
            end = block.find(b"\n", at) + 1 or len(block)
            line = block[line_start:end].decode(errors="replace")
            found = columns_of(line, self._given)
            if found is None or "power" not in found.at or "time" not in found.at:
                self._findings.add("left out", _ODD_ROWS, 1, f"line {number:,}")
            else:
                is_in_table = True
                if found != self.table.columns or not self.table.headers:
                    self._use(found)
            start, number = end, number + 1

    def _use(self, columns: Columns) -> None:
        self.table.columns = columns
        self._numbers = {
            role: Numbers(role, columns.unit(role), self._factor(role))
            for role in _NUMBERS
            if role in columns.at
        }

    def _factor(self, role: str) -> float | None:
        factors = {"W": 1.0, "mW": 1e-3, "kW": 1e3, "MW": 1e6}
        return factors[self._given.unit] if role == "power" and self._given.unit else None

    def _rows(self, number: int, block: bytes, *, is_in_table: bool) -> None:
        if not is_in_table:
            count = sum(map(bool, map(bytes.strip, block.split(b"\n"))))
            what = "lines before the header"
            self._findings.add("set aside", what, count, f"line {number:,}")
            return
        if (cut := self._cut(block)) is not None:
            line = number + block.count(b"\n")
            self._findings.add("truncated", _CUT, 1, f"line {line:,}")
            block = cut
        if not block.strip():
            return
        columns = self.table.columns
        if columns not in self.table.headers:
            self.table.headers.append(columns)
        arrow, lines = _parsed(block, columns, number, self._findings)
        if arrow is not None and len(lines):
            self._keep(arrow, lines)

    def _cut(self, block: bytes) -> bytes | None:
        """Give the block without its last line if that one breaks off; None if it does not."""
        if block.endswith(b"\n"):
            return None
        columns = self.table.columns
        last = block[block.rfind(b"\n") + 1 :].decode(errors="replace")
        cells = last.split(columns.separator)
        unit = columns.units[-1]
        is_whole = len(cells) == len(columns.names) and unit and last.rstrip(' "').endswith(unit)
        return None if is_whole else block[: block.rfind(b"\n") + 1]

    def _keep(self, arrow: pa.Table, lines: np.ndarray) -> None:
        columns, findings = self.table.columns, self._findings
        stamps = arrow.column(str(columns.at["time"])).combine_chunks()
        times = local_ns(stamps)
        is_bad = times == NOT_A_TIME
        if is_bad.any():
            row = int(is_bad.argmax())
            text = stamps[row].as_py()
            self.table.first_bad_stamp = self.table.first_bad_stamp or text[:40]
            blank = is_bad & _is_blank(arrow)
            where = f"line {int(lines[row]):,}: {text[:40]!r}"
            findings.add("left out", _NO_STAMP, int((is_bad & ~blank).sum()), where)
            arrow, lines, times = arrow.filter(pa.array(~is_bad)), lines[~is_bad], times[~is_bad]
        batch = Batch(lines, times, self._keys(arrow), {}, self._reasons(arrow))
        for role, numbers in self._numbers.items():
            cells = arrow.column(str(columns.at[role])).combine_chunks()
            batch.numbers[role], junk = numbers.read(cells)
            if junk.any():
                row = int(junk.argmax())
                what = f"cells of {columns.name(role)} that are no number; they are missing"
                where = f"line {int(lines[row]):,}: {cells[row].as_py()[:40]!r}"
                findings.add("left out", what, int(junk.sum()), where)
        power = self._numbers["power"]
        self.table.is_stated |= power.is_stated
        self.table.batches.append(batch)

    def _keys(self, arrow: pa.Table) -> np.ndarray:
        """Code what tells the devices apart."""
        combined = np.zeros(arrow.num_rows, dtype=np.int64)
        texts: list[list[str]] = []
        for role in _IDENTITY:
            if role not in self.table.columns.at:
                texts.append([""])
                continue
            cells = arrow.column(str(self.table.columns.at[role])).combine_chunks()
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
        return new[inverse]

    def _reasons(self, arrow: pa.Table) -> np.ndarray | None:
        at = self.table.columns.at
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
        blank &= np.array([not text.strip() for text in column.to_pylist()], dtype=bool)
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
