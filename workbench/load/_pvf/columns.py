"""Columns of a file as columns of a table: converted whole, or refused by their first bad cell."""

from __future__ import annotations

import contextlib
import csv
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from pandas.arrays import BooleanArray, IntegerArray

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import MOST_COLUMNS, repeated
from workbench.load._files.text import repaired, tell_of_damage
from workbench.load._files.wanted import is_utf16
from workbench.tables import Column

_SHOWN_CHARS = 40
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_LIMITS: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@dataclass(frozen=True)
class Cells:
    """One column of a file, and where it stands, for messages."""

    label: str
    name: str
    column: pa.ChunkedArray

    def texts(self) -> pa.ChunkedArray:
        values = self.column
        if pa.types.is_dictionary(values.type):
            values = pc.cast(values, values.type.value_type)
        if not _is_text(values.type):
            values = pc.cast(values, pa.string())
        return pc.utf8_trim_whitespace(values)

    def refuse(self, bad: np.ndarray, expected: str) -> NoReturn:
        """Raise for the first bad cell, naming column and row."""
        row = int(np.flatnonzero(bad)[0])
        value = self.column[row].as_py()
        shown = "an empty cell" if value is None else repr(str(value)[:_SHOWN_CHARS])
        is_comma = "number" in expected and _DECIMAL_COMMA.fullmatch(str(value))
        msg = (
            f"{self.label}: column {self.name!r}: {int(bad.sum()):,} values are not {expected}, "
            f"the first is {shown} in row {row + 1:,}"
            + "; write decimals with a point"
            * bool(is_comma)
        )
        raise LoadError(msg)


def converted(cells: Cells, column: Column, categories: Sequence[str] | None = None) -> Any:
    """Convert cells to the dtype of a column of a table, within its limits."""
    kind = column.dtype.lower()
    if kind == "category":
        return category(cells, categories)
    if kind == "str":
        column_values: Any = text(cells)
    elif kind == "boolean":
        column_values = boolean(cells)
    elif kind == "float64":
        column_values = real(cells, lower=column.lower)
    elif kind.startswith("datetime"):
        column_values = time(cells)
    else:
        lower = None if column.lower is None else int(column.lower)
        bits = int(kind.removeprefix("int"))
        column_values = whole(cells, bits=bits, lower=lower, may_lack=column.nullable)
        return column_values if column.dtype[0] == "I" else column_values.to_numpy(_LIMITS[bits])
    if not column.nullable and (lacking := pd.isna(column_values)).any():
        cells.refuse(np.asarray(lacking), "there (empty cells)")
    return column_values


def text(cells: Cells) -> pd.Series:
    """Convert to text; empty cells are missing."""
    values = cells.column
    if not _is_text(values.type):
        values = cells.texts()
    return pd.Series(values.to_pandas().astype(pd.Series([""]).dtype))


def category(cells: Cells, categories: Sequence[str] | None = None) -> Any:
    """Convert to categories: those given, if they hold all values, or those that occur, sorted."""
    values = cells.column
    if not pa.types.is_dictionary(values.type):
        values = (values if _is_text(values.type) else cells.texts()).dictionary_encode()
    values = values.unify_dictionaries().combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # without a chunk there is nothing to combine
        values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    names = [str(name) for name in values.dictionary.to_pylist()]
    # Missing cells get the code behind the last name, which is mapped to -1 below.
    codes = values.indices.fill_null(len(names)) if values.null_count else values.indices
    codes = codes.to_numpy(zero_copy_only=False)
    is_used = np.zeros(len(names) + 1, np.bool_)
    is_used[codes] = True
    used = [name for name, is_one in zip(names, is_used, strict=False) if is_one]
    wanted = list(categories or ())
    if categories is None or not set(used) <= set(wanted):
        wanted = sorted(set(used))
    position = {name: number for number, name in enumerate(wanted)}
    # Codes of int8 hold 127 names and -1, in a quarter of the memory of int32.
    kind = np.int8 if len(wanted) < 128 else np.int32
    moved = np.array([*(position.get(name, -1) for name in names), -1], kind)
    index = pd.Index(wanted, dtype=pd.Series([""]).dtype)
    return pd.Categorical.from_codes(moved[codes], dtype=pd.CategoricalDtype(index), validate=False)


def whole(
    cells: Cells, *, bits: int = 64, lower: int | None = None, may_lack: bool = True
) -> IntegerArray:
    """Convert to whole numbers of so many bits."""
    values = cells.column
    expected = "whole numbers" + ("" if lower is None else f" from {lower:,}")
    expected += "" if bits == 64 else f" of {bits} bits"
    if not pa.types.is_signed_integer(values.type):
        values = _parsed(cells, pa.int64(), expected)
    lacking = np.asarray(values.is_null())
    if not may_lack and lacking.any():
        cells.refuse(lacking, expected)
    # By way of numpy without nulls: with them Arrow would give floats and round from 2**53 on.
    filled = values.fill_null(0) if values.null_count else values
    numbers = np.array(filled, np.int64 if bits == 64 else None)
    limit = np.iinfo(_LIMITS[bits])
    least = limit.min if lower is None else max(limit.min, lower)
    bad = (numbers > limit.max) | (numbers < least)
    if (bad & ~lacking).any():
        cells.refuse(bad & ~lacking, expected)
    return IntegerArray(numbers.astype(_LIMITS[bits], copy=False), lacking.copy())


def real(cells: Cells, *, lower: float | None = None) -> np.ndarray:
    """Convert to numbers; infinities are kept, empty cells and NaN are missing."""
    expected = "numbers" + ("" if lower is None else f" from {lower:g}")
    values = cells.column
    if not pa.types.is_floating(values.type):
        values = _parsed(cells, pa.float64(), expected)
    numbers = np.array(pc.cast(values, pa.float64()).fill_null(np.nan), np.float64)
    if lower is not None and (bad := numbers < lower).any():
        cells.refuse(bad, expected)
    return numbers


def boolean(cells: Cells) -> BooleanArray:
    if pa.types.is_boolean(cells.column.type):
        lacking = np.array(cells.column.is_null(), np.bool_)
        return BooleanArray(np.array(cells.column.fill_null(fill_value=False)), lacking)
    texts = pd.Series(pc.utf8_lower(cells.texts()).to_pandas()).replace("", None)
    flags = texts.map(_BOOLEANS)
    if (bad := flags.isna() & texts.notna()).any():
        cells.refuse(bad.to_numpy(), "true or false")
    lacking = flags.isna().to_numpy()
    return BooleanArray(flags.eq(other=True).to_numpy(np.bool_), lacking)


def time(cells: Cells) -> pd.Series:
    """Convert to points in time; those without a zone are refused."""
    values = cells.column
    if pa.types.is_timestamp(values.type):
        times = values.to_pandas()
        if times.dt.tz is None and times.notna().any():
            cells.refuse(times.notna().to_numpy(), "times with a zone")
        zoned: pd.Series = pd.to_datetime(times, utc=True).dt.as_unit("ns")
        return zoned
    texts = pd.Series(cells.texts().to_pandas(), dtype=object).replace("", None)
    times = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601")
    # pandas takes a time without a zone for UTC, without a word.
    has_zone = texts.astype(str).str.contains(r"(?:Z|[+-]\d\d:?\d\d)$")
    bad = texts.notna() & (times.isna() | ~has_zone)
    if bad.any():
        cells.refuse(bad.to_numpy(), "times with a zone such as 2025-01-31T08:00:00Z")
    return times.dt.as_unit("ns")


def _parsed(cells: Cells, kind: pa.DataType, expected: str) -> pa.ChunkedArray:
    """Parse numbers; also whole ones that are written as 3.0."""
    values = cells.column
    if _is_text(values.type) or pa.types.is_dictionary(values.type):
        trimmed = cells.texts()
        values = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pc.cast(values, kind)
    raw = pd.Series(values.to_pandas(), dtype=object)
    numbers = pd.to_numeric(raw, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = np.isnan(numbers) & raw.notna().to_numpy()
    if kind == pa.float64():
        # NaN is a number that is missing.
        bad &= ~raw.astype(str).str.lower().str.strip("+-").eq("nan").to_numpy()
    else:
        # From 2**53 on doubles skip whole numbers: the text would be rounded without a word.
        bad |= (np.abs(numbers) >= 2.0**53) | (numbers != np.floor(numbers)) & ~np.isnan(numbers)
    if bad.any():
        cells.refuse(bad, expected)
    lacking = np.isnan(numbers)
    if kind == pa.float64():
        return pa.chunked_array([pa.array(numbers, mask=lacking)])
    whole_numbers = np.where(lacking, 0, numbers).astype(np.int64)
    return pa.chunked_array([pa.array(whole_numbers, mask=lacking)])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


BAD_ROWS = "rows with more or fewer cells than the header"
REPEATED_HEADERS = "repeated header lines"
REPEATED_ROWS = "rows that are there already, cell for cell: files of two runs put together"
_SEPARATORS = (",", ";", "\t")
# Spreadsheets tell their separator in a first line of its own.
_TOLD = re.compile(rb'\A"?sep=(.)"?(?:\r\n|\r|\n)')
_BLOCK_BYTES = 8 << 20
_LONGEST_CELL_BYTES = 1 << 20


def header_of(head: bytes, separator: str = "") -> list[str]:
    """Return the cells of the first line, without blanks around them; [] if it has none."""
    head, detected = _separated(head.removeprefix(BOM_UTF8))
    line = head.splitlines()[0] if head.strip() else b""
    return _cells(line, separator or detected)


def _cells(line: bytes, separator: str) -> list[str]:
    if b"\0" in line:
        return []
    text = line.decode(errors="replace")
    try:
        # Some tools write blanks behind their commas.
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator), [])]
    except csv.Error:
        return []


def _separated(raw: bytes) -> tuple[bytes, str]:
    if match := _TOLD.match(raw[:16]):
        return raw[match.end() :], match[1].decode(errors="replace")
    line = raw[:_LONGEST_CELL_BYTES].splitlines()[0] if raw[:_LONGEST_CELL_BYTES].strip() else b""
    # A header has the most cells by the separator it uses; of equals, the comma.
    return raw, max(_SEPARATORS, key=lambda mark: len(_cells(line, mark)))


def whole_text(source: Source, findings: Findings) -> bytes:
    """Read a text file to its end; bytes that are not UTF-8 are replaced and counted."""
    with source.open() as stream:
        raw = stream.read()
        tell_of_damage(stream, findings)
    if is_utf16(raw[:4096]):
        msg = f"{source.label}: is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
        raise LoadError(msg)
    # Spreadsheets put this mark first; it would become part of the first name.
    raw = raw.removeprefix(BOM_UTF8)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return repaired(raw, findings, f"byte {error.start:,}").encode()
    return raw


def text_table(source: Source, findings: Findings, *, may_be_empty: bool = False) -> pa.Table:
    """Read a CSV file as columns of text; empty cells are missing."""
    raw, separator = _separated(whole_text(source, findings))
    names = header_of(raw[:_LONGEST_CELL_BYTES], separator)
    raw = _without_cut_line(raw[_end_of_line(raw) :], separator, findings)
    if not names or len(names) > MOST_COLUMNS:
        msg = (
            f"{source.label}: the first line has {len(names):,} names of columns; a table has from "
            f"1 to {MOST_COLUMNS:,}, in its first line"
        )
        raise LoadError(msg)
    if doubled := repeated(names):
        msg = f"{source.label}: columns {doubled} are there twice; rename or drop one of each"
        raise LoadError(msg)
    types = dict.fromkeys(names, pa.string())
    table = _csv_columns_parsed((raw, separator), types, source, findings)
    table = _without_headers(table, findings)
    if not table.num_rows and not may_be_empty:
        msg = f"{source.label}: has a header and no rows; the run was stopped or the file is cut"
        raise LoadError(msg)
    findings.add("noted", "a header without rows", int(not table.num_rows))
    findings.add("read", "rows", table.num_rows)
    return table


def column(table: pa.Table, name: str, source: Source) -> Cells:
    return Cells(source.label, name, table[name])


def numbers(table: pa.Table, name: str, source: Source) -> np.ndarray:
    """Return one column of a text table, without an empty cell, as int64."""
    return np.asarray(whole(column(table, name, source), may_lack=False), np.int64)


def _without_cut_line(raw: bytes, separator: str, findings: Findings) -> bytes:
    """Leave out a last line that breaks off before its last cell; note one without a line end."""
    if not raw.strip() or raw[-1:] in b"\r\n":
        return raw
    start = max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
    shown = raw[start : start + 60].decode(errors="replace")
    if raw.rstrip(b" ").endswith(separator.encode()):
        findings.add("truncated", "a last line that breaks off", 1, shown)
        return raw[:start]
    remark = "no line end after the last line: the file may be cut, and its last cell too short"
    findings.add("suspicious", remark, 1, shown)
    return raw


def _csv_columns_parsed(
    text: tuple[bytes, str],
    types: dict[str, pa.DataType],
    source: Source,
    findings: Findings,
) -> pa.Table:
    if not text[0].strip():
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    try:
        table, bad = _read(text, types)
    except pa.ArrowException as error:
        msg = f"{source.label}: cannot be read as CSV ({str(error)[:200]})"
        raise LoadError(msg) from None
    # A quote that a cut leaves open takes the lines up to the next quote with it.
    lines = sum(len(text.splitlines()) for text in bad)
    findings.add("dropped", BAD_ROWS, lines, bad[0][:60] if bad else None)
    return table


def _read(text: tuple[bytes, str], types: dict[str, pa.DataType]) -> tuple[pa.Table, list[str]]:
    bad: list[str] = []

    def skip(row: pa_csv.InvalidRow) -> str:
        if row.text.strip():
            bad.append(row.text)
        return "skip"

    table = pa_csv.read_csv(
        pa.BufferReader(text[0]),
        read_options=pa_csv.ReadOptions(column_names=list(types), block_size=_BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(
            delimiter=text[1], invalid_row_handler=skip, newlines_in_values=True
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            # A quoted empty cell is an empty text, not a missing one.
            quoted_strings_can_be_null=False,
        ),
    )
    return table, bad


# Tools append to the file of the run before, header included.
def _without_headers(table: pa.Table, findings: Findings) -> pa.Table:
    name = table.column_names[0]
    if not table.num_rows or not name or not pa.types.is_string(table[name].type):
        return table
    is_header = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(table[name]), name), fill_value=False)
    count = pc.sum(is_header).as_py()
    if count:
        findings.add("repaired", REPEATED_HEADERS, count)
        table = table.filter(pc.invert(is_header))
    return table


def _end_of_line(raw: bytes) -> int:
    ends = [at + 1 for mark in (b"\n", b"\r") if (at := raw.find(mark)) >= 0]
    if not ends:
        return len(raw)
    first = min(ends)
    return first + (raw[first - 1 : first + 1] == b"\r\n")
