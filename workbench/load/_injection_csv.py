"""CSV files of any size as columns of text, damage counted."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from workbench.errors import LoadError
from workbench.load._appearance import is_utf16
from workbench.load._findings import Findings
from workbench.load._injection_columns import Cells
from workbench.load._text_lines import NOT_UTF8
from workbench.load.archive import Source

BAD_ROWS = "rows with more or fewer cells than the header"
REPEATED_HEADERS = "repeated header lines"
_BLOCK_BYTES = 8 << 20
_LONGEST_CELL_BYTES = 1 << 20


def header_of(head: bytes, separator: str = ",") -> list[str]:
    """Return the cells of the first line, without blanks around them; [] if it has none."""
    line = head.removeprefix(b"\xef\xbb\xbf").splitlines()[0] if head.strip() else b""
    if b"\0" in line:
        return []
    text = line.decode(errors="replace")
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator), [])]
    except csv.Error:
        return []


def whole_text(source: Source, findings: Findings) -> bytes:
    """Read a text file to its end; bytes that are not UTF-8 are replaced and counted."""
    with source.open() as stream:
        raw = stream.read()
        for note in stream.notes:
            findings.add("suspicious" if stream.truncated_at is None else "truncated", note)
    if is_utf16(raw[:4096]):
        msg = f"{source.label}: is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
        raise LoadError(msg)
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        text = raw.decode(errors="replace")
        bad = text.count("\ufffd") - raw.count("\ufffd".encode())
        findings.add("repaired", NOT_UTF8, bad, f"byte {error.start:,}")
        return text.encode()
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
    if names is None:
        names = header_of(raw[:_LONGEST_CELL_BYTES])
        raw = raw[_end_of_line(raw) :]
    if doubled := sorted({name for name in names if list(names).count(name) > 1}):
        msg = f"{source.label}: columns {doubled} are there twice; rename or drop one of each"
        raise LoadError(msg)
    table = _parsed(raw, dict.fromkeys(names, pa.string()), source, findings, whole)
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


def _parsed(
    raw: bytes,
    types: dict[str, pa.DataType],
    source: Source,
    findings: Findings,
    whole: Collection[str],
) -> pa.Table:
    if not raw.strip():
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    if whole:
        quick = {name: pa.int64() if name in whole else kind for name, kind in types.items()}
        with contextlib.suppress(pa.ArrowException):
            table, bad = _read(raw, quick)
            findings.add("left out", BAD_ROWS, len(bad), bad[0] if bad else None)
            return table
    try:
        table, bad = _read(raw, types)
    except pa.ArrowException as error:
        msg = f"{source.label}: cannot be read as CSV ({str(error)[:200]})"
        raise LoadError(msg) from None
    findings.add("left out", BAD_ROWS, len(bad), bad[0] if bad else None)
    return table


def _read(raw: bytes, types: dict[str, pa.DataType]) -> tuple[pa.Table, list[str]]:
    bad: list[str] = []

    def skip(row: pa_csv.InvalidRow) -> str:
        if row.text.strip():
            bad.append(row.text[:60])
        return "skip"

    table = pa_csv.read_csv(
        pa.BufferReader(raw),
        read_options=pa_csv.ReadOptions(column_names=list(types), block_size=_BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(invalid_row_handler=skip, newlines_in_values=True),
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
