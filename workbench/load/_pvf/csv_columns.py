"""CSV files of any size as columns of text, damage counted."""

from __future__ import annotations

import contextlib
import csv
import re
from codecs import BOM_UTF8
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from workbench.errors import LoadError
from workbench.load._files.appearance import is_utf16
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text_lines import repaired, tell_of_damage
from workbench.load._pvf.columns import Cells

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
    head, found = _separated(head.removeprefix(BOM_UTF8))
    line = head.splitlines()[0] if head.strip() else b""
    return _cells(line, separator or found)


def _cells(line: bytes, separator: str) -> list[str]:
    if b"\0" in line:
        return []
    text = line.decode(errors="replace")
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator), [])]
    except csv.Error:
        return []


def _separated(raw: bytes) -> tuple[bytes, str]:
    """Return a text without a line that only tells its separator, and what separates its cells."""
    if told := _TOLD.match(raw[:16]):
        return raw[told.end() :], told[1].decode(errors="replace")
    line = raw[:_LONGEST_CELL_BYTES].splitlines()[0] if raw[:_LONGEST_CELL_BYTES].strip() else b""
    # A header has the more cells by what does separate them; of equals, the comma.
    return raw, max(_SEPARATORS, key=lambda each: len(_cells(line, each)))


def whole_text(source: Source, findings: Findings) -> bytes:
    """Read a text file to its end; bytes that are not UTF-8 are replaced and counted."""
    with source.open() as stream:
        raw = stream.read()
        tell_of_damage(stream, findings)
    if is_utf16(raw[:4096]):
        msg = f"{source.label}: is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
        raise LoadError(msg)
    raw = raw.removeprefix(BOM_UTF8)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return repaired(raw, findings, f"byte {error.start:,}").encode()
    return raw


def text_table(
    source: Source,
    findings: Findings,
    *,
    names: Sequence[str] | None = None,
    skip: int = 0,
    may_be_empty: bool = False,
    whole: Collection[str] = (),
) -> pa.Table:
    """Read a CSV file as columns of text; empty cells are missing.

    Parameters
    ----------
    source
        The file.
    findings
        Gets what is left out or mended.
    names
        Names of the columns where the file has no header.
    skip
        Lines before the header.
    may_be_empty
        Whether a header without rows is fine; it is noted then.
    whole
        Columns of whole numbers, parsed at once if they hold nothing else: a file may be large.

    Raises
    ------
    LoadError
        If the file has no rows and needs some, names a column twice or cannot be read.
    """
    raw = whole_text(source, findings)
    raw = b"\n".join(raw.split(b"\n", skip)[skip:]) if skip else raw
    separator = ","
    if names is None:
        raw, separator = _separated(raw)
        names = header_of(raw[:_LONGEST_CELL_BYTES], separator)
        raw = raw[_end_of_line(raw) :]
    raw = _without_cut_line(raw, separator, findings)
    if doubled := sorted({name for name in names if list(names).count(name) > 1}):
        msg = f"{source.label}: columns {doubled} are there twice; rename or drop one of each"
        raise LoadError(msg)
    table = _parsed((raw, separator), dict.fromkeys(names, pa.string()), source, findings, whole)
    table = _without_headers(table, findings)
    if not table.num_rows and not may_be_empty:
        msg = f"{source.label}: has a header and no rows; the run was stopped or the file is cut"
        raise LoadError(msg)
    findings.add("noted", "a header without rows", int(not table.num_rows))
    findings.add("read", "rows", table.num_rows)
    return table


def column(table: pa.Table, name: str, source: Source) -> Cells:
    """Return one column of a text table for conversion."""
    return Cells(source.label, name, table[name])


def without_repeats(table: pa.Table, findings: Findings) -> pa.Table:
    """Leave out rows that equal an earlier one in every cell."""
    again = table.to_pandas().duplicated().to_numpy()
    findings.add("repaired", REPEATED_ROWS, int(again.sum()))
    return table.filter(pa.array(~again)) if again.any() else table


def _without_cut_line(raw: bytes, separator: str, findings: Findings) -> bytes:
    """Leave out a last line that breaks off before its last cell; note one without a line end."""
    if not raw.strip() or raw[-1:] in b"\r\n":
        return raw
    start = max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
    shown = raw[start : start + 60].decode(errors="replace")
    if raw.rstrip(b" ").endswith(separator.encode()):
        findings.add("truncated", "a last line that breaks off", 1, shown)
        return raw[:start]
    what = "no line end after the last line: the file may be cut, and its last cell too short"
    findings.add("suspicious", what, 1, shown)
    return raw


def _parsed(
    text: tuple[bytes, str],
    types: dict[str, pa.DataType],
    source: Source,
    findings: Findings,
    whole: Collection[str],
) -> pa.Table:
    if not text[0].strip():
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    if whole:
        quick = {name: pa.int64() if name in whole else kind for name, kind in types.items()}
        with contextlib.suppress(pa.ArrowException):
            table, bad = _read(text, quick)
            _note_bad(bad, findings)
            return table
    try:
        table, bad = _read(text, types)
    except pa.ArrowException as error:
        msg = f"{source.label}: cannot be read as CSV ({str(error)[:200]})"
        raise LoadError(msg) from None
    _note_bad(bad, findings)
    return table


def _note_bad(bad: list[str], findings: Findings) -> None:
    # A quote that a cut leaves open takes the lines up to the next quote with it.
    lines = sum(len(text.splitlines()) for text in bad)
    findings.add("left out", BAD_ROWS, lines, bad[0][:60] if bad else None)


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
            quoted_strings_can_be_null=False,
        ),
    )
    return table, bad


def _without_headers(table: pa.Table, findings: Findings) -> pa.Table:
    """Leave out lines that repeat the header: runs append to the file of the run before."""
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
    """Return where the second line begins."""
    ends = [at + 1 for mark in (b"\n", b"\r") if (at := raw.find(mark)) >= 0]
    if not ends:
        return len(raw)
    first = min(ends)
    return first + (raw[first - 1 : first + 1] == b"\r\n")
