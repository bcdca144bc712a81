"""Tables in files: delimited text, JSON records, columns found by name, numbers checked."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import LoadError
from workbench.load._files.archive import Source, shown
from workbench.load._files.findings import DAMAGE, Findings, unreadable
from workbench.load._files.stream import is_packed
from workbench.load._files.text import CUT_LINE, REST, may_be_cut, tell_of_damage, text_lines
from workbench.load._files.wanted import is_utf16

_decoder = json.JSONDecoder()
# At the beginning of a line only: brackets inside a line of text begin no document.
_START = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
_SPACE = re.compile(r"\s*,?\s*")
# A file that is damaged this often is not a log; looking on would take very long, most of all
# where brackets are nested deeply: every line is then read again for every level.
_DAMAGED_LIMIT, _NESTED_COST = 1000, 50


def json_documents(source: Source, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Yield line (from 1) and value of every JSON document of a file.

    Text between documents is skipped by design. Where a document is damaged, reading goes on at the
    next line that begins one, so whole parts of a damaged document are found.
    """
    with source.open() as stream:
        raw = stream.read()
        tell_of_damage(stream, findings)
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    del raw
    yield from text_documents(text, findings)


def text_documents(text: str, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Yield line (from 1) and value of every JSON document of a text; as :func:`json_documents`."""
    at, line, damaged, refused = 0, 1, 0, False
    while (start := _next_document(text, at, findings, may_be_inside=not refused)) is not None:
        line += text.count("\n", at, start)
        try:
            value, end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            findings.add(*_damage(error, text), 1, f"line {line:,}")
            damaged += _NESTED_COST if isinstance(error, RecursionError) else 1
            line_end = text.find("\n", start)
            refused, end = True, len(text) if line_end < 0 else line_end + 1
        else:
            refused = False
            findings.add("read", "JSON documents")
            yield line, value
        if damaged >= _DAMAGED_LIMIT:
            findings.add("dropped", "the rest of the file, it is damaged too often")
            return
        line += text.count("\n", start, end)
        at = end


def _next_document(text: str, at: int, findings: Findings, *, may_be_inside: bool) -> int | None:
    if may_be_inside:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] in ("{", "["):
            return at
    match = _START.search(text, at)
    passed = text[at : match.start() if match else len(text)]
    count = sum(bool(line.strip()) for line in passed.splitlines())
    findings.add("skipped by design", "lines that are not JSON", count)
    return match.end() if match else None


def _damage(error: Exception, text: str) -> tuple[str, str]:
    if isinstance(error, RecursionError):
        return "dropped", "JSON that is nested too deeply"
    if isinstance(error, json.JSONDecodeError) and (
        error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
    ):
        return "truncated", "a JSON document that does not end"
    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return "dropped", f"damaged JSON ({reason[:80]})"


def records(
    line: int, value: Any, findings: Findings, *, key: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a document: itself with its line, or those of a list, numbered.

    The list is the document, or its list ``key``.
    """
    if key is not None and isinstance(value, dict) and isinstance(value.get(key), list):
        value = value[key]
    numbered = enumerate(value, start=1) if isinstance(value, list) else [(line, value)]
    for number, record in numbered:
        if isinstance(record, dict):
            yield number, record
        else:
            findings.add("skipped by design", "JSON that is not an object", 1, f"record {number:,}")


MOST_COLUMNS = 10_000
_EXACT = 1 << 53  # above this a float holds no odd numbers


def read(path: Path) -> pd.DataFrame:
    """Read a CSV file or a Parquet file, whatever its columns.

    What a CSV file holds stays text, so that a name such as 007 keeps its zeros.
    """
    frame = read_parquet(path)
    if frame is None:
        return headed(lines(path))
    # What pandas kept as an index is a column to everybody else.
    counts = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    return frame if counts else frame.reset_index(names=[n or "" for n in frame.index.names])


def is_csv(path: Path) -> bool:
    return parquet_in(path) is None


def lines(path: Path) -> pd.DataFrame:
    """Read a CSV file as text, the first line like any other; empty cells are missing."""
    # pandas would read NA, None and nan as missing, which may be names here.
    return read_csv(path, header=None, dtype=str, keep_default_na=False, na_values=[""])


def headed(lines: pd.DataFrame) -> pd.DataFrame:
    names = lines.iloc[0].fillna("").astype(str).str.strip().tolist()
    return lines.iloc[1:].set_axis(names, axis="columns").reset_index(drop=True)


def renamed(
    frame: pd.DataFrame,
    path: Path,
    *,
    names: Mapping[str, str],
    columns: Mapping[str, str] | None,
    optional: tuple[str, ...] = (),
    has_lines: bool = True,
) -> pd.DataFrame:
    """Pick the columns of a table by their names in the file.

    ``names`` are the usual names in the file by name in the table, ``columns`` those that differ in
    this file. Columns that are ``optional`` may be absent unless ``columns`` names them. A file of
    rows that are lines (``has_lines``) is refused if its last row may be cut.
    """
    if unknown := sorted(set(columns or {}) - set(names)):
        msg = f"columns= names {unknown}, which the table does not have; it has {list(names)}"
        raise LoadError(msg)
    refuse_repeated(frame, path)
    name_of = {**names, **(columns or {})}
    absent = {name: column for name, column in name_of.items() if column not in frame}
    needed = set(absent) - set(optional) | set(absent) & set(columns or {})
    if missing := [absent[name] for name in names if name in needed]:
        msg = (
            f"{path}: no column {missing}; it has {[str(name) for name in frame.columns][:20]}. "
            "Say which is which with columns={...}"
        )
        raise LoadError(msg)
    kept = {name: column for name, column in name_of.items() if name not in absent}
    if has_lines:
        refuse_cut_row(frame, path, kept.values())
    return frame[list(kept.values())].set_axis(list(kept), axis="columns")


def refuse_repeated(frame: pd.DataFrame, path: Path) -> None:
    """Raise if two columns have one name: which of them is meant cannot be known."""
    if twice := repeated(str(name) for name in frame.columns):
        msg = f"{path}: columns {twice} occur twice; rename one of each"
        raise LoadError(msg)


def refuse_cut_row(frame: pd.DataFrame, path: Path, used: Iterable[str]) -> None:
    """Raise if the last row of a CSV file has no line end, and a value in use may be cut or lost.

    Such tables are small, and every row of them matters. A number may be cut, and cells behind the
    last one may be lost; a text that is the last cell of a whole row is kept.
    """
    last = last_line(path)
    cells = _cells(last)
    if not last or not set(used) & set(frame.columns[len(cells) - 1 :]):
        return
    is_text = bool(cells[-1].strip()) and np.isnan(as_floats(pd.Series(cells[-1:]))[0])
    if len(cells) < frame.shape[1] or (may_be_cut(last) and not is_text):
        number = whole_file(path).getvalue().count(b"\n") + 1
        msg = f"{path}, line {number:,}: the last row has no line end, so it may be cut; {MEND}"
        raise LoadError(msg)


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode(errors="replace")]), [""])
    except csv.Error:  # a cell of more than 128 KiB
        return [""]


def left_out(path: Path) -> dict[str, int]:
    """Return the entry of ``attrs["left_out"]`` for a file that may have been cut short."""
    return {REST: 1} if last_line(path) else {}


def numbers(values: pd.Series, path: Path, *, least: float = 0) -> pd.Series:
    """Return a column as finite floats from ``least``, or name the first that is none."""
    plain = as_floats(values)
    good = np.isfinite(plain) & (plain >= least)
    refuse_unless(values, good, path, f"a finite number from {least:g}")
    return pd.Series(plain)


def whole(values: pd.Series, path: Path, *, least: int = 0, most: int = _EXACT - 1) -> pd.Series:
    """Return a column as whole numbers from ``least``, or name the first that is none."""
    plain = as_floats(values)
    with np.errstate(invalid="ignore"):
        good = (plain >= least) & (plain == np.floor(plain)) & (plain <= most)
    to = "" if most == _EXACT - 1 else f" to {most:,}"
    refuse_unless(values, good, path, f"a whole number from {least}{to}")
    return pd.Series(plain.astype(np.int64))


def texts(values: pd.Series) -> pd.Series:
    """Return cells as text, None where they are empty; 79 that a lacking cell made 79.0 is 79."""
    plain = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
    cells = pd.Series([str(value).strip() for value in plain], dtype=object)
    return cells.where(values.notna().to_numpy() & (cells != "").to_numpy(), None)


def refuse_unless(values: pd.Series, good: np.ndarray, path: str | Path, expected: str) -> None:
    """Raise for the first value of a column that is not as expected, naming column and row."""
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        msg = (
            f"{path}: column for {str(values.name)!r}: {int((~good).sum()):,} values are not "
            f"{expected}, the first is {values.iloc[[row]].tolist()[0]!r} in row {row:,}"
        )
        raise LoadError(msg)


def as_floats(values: pd.Series) -> np.ndarray:
    """Return the numbers of a column; what is none is missing, and too large ones infinite.

    A number of hundreds of digits, which pandas keeps as an integer, fits no float.
    """
    try:
        numbers: Any = pd.to_numeric(values, errors="coerce")
        return np.asarray(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
    except OverflowError:
        return np.array([_float(value) for value in values], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
    except (ValueError, TypeError):
        return float("nan")


_SEPARATORS = ",;\t|"
_TEXT = pd.Series([""]).dtype


def header_of(head: bytes) -> list[str]:
    """Return the names in the first line of a CSV file that is not a comment; none for JSON."""
    for line in head.decode(errors="replace").removeprefix("\ufeff").split("\n"):
        text = line.strip()
        if text and not text.startswith(("#", "sep=", '"sep=')):
            return [] if text[0] in "{[" else _text_tables_cells(text) or []
    return []


def keys_of(head: bytes) -> list[str]:
    """Return the names in the first JSON object of a file; none if it does not begin so."""
    text = head.decode(errors="replace").removeprefix("\ufeff").lstrip().removeprefix("[").lstrip()
    if not text.startswith("{"):
        return []
    try:
        record, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return []
    return [str(name) for name in record]


def csv_table(source: Source, findings: Findings) -> pd.DataFrame:
    """Read a CSV file as text, empty cells missing; its index are the lines of the file.

    Rows with more or fewer cells than the header are dropped and counted.
    """
    names: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, cells in _rows(source, findings):
        if not names:
            names = _checked(cells, f"{source.label}, line {line:,}")
        elif cells == names:
            findings.add("skipped by design", "headers written again", 1, f"line {line:,}")
        elif len(cells) == len(names):
            rows.append(cells)
            lines.append(line)
        else:
            finding = "rows with more or fewer cells than the header"
            findings.add("dropped", finding, 1, f"line {line:,}")
    frame = pd.DataFrame(rows, columns=names or None, index=lines, dtype=_TEXT)
    return frame.mask(frame.isin(["", "nan", "NaN", "None", "null"]))


def json_table(source: Source, findings: Findings, key: str | None = None) -> pd.DataFrame:
    """Read JSON objects, one per line or in a list, as text; the index are lines or records.

    The list may be the value of ``key`` in the document.
    """
    rows = [
        (number, {name: _text(value) for name, value in record.items()})
        for line, document in json_documents(source, findings)
        for number, record in records(line, document, findings, key=key)
    ]
    lines = [number for number, _ in rows]
    if len(set(lines)) < len(lines):  # records of several lists
        lines = list(range(1, len(lines) + 1))
    return pd.DataFrame([record for _, record in rows], index=lines).astype(_TEXT)


def _rows(source: Source, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    separator = ","
    is_first = True
    for line, text in text_lines(source, findings, whole=True):
        if not text.strip():
            continue
        if text.lstrip().startswith("#"):
            findings.add("skipped by design", "lines that are comments", 1, f"line {line:,}")
            continue
        if is_first:
            separator, is_first = _separator(text), False
        yield line, _text_tables_cells(text.strip(), separator) or []


def _text_tables_cells(text: str, separator: str | None = None) -> list[str] | None:
    """Split a line; None if it is not CSV, e.g. because its quotes do not end."""
    wanted = separator or _separator(text)
    if '"' not in text and "\r" not in text:
        return [cell.strip() for cell in text.split(wanted)]
    try:
        row = next(csv.reader([text], delimiter=wanted, skipinitialspace=True, strict=True), [])
    except csv.Error:
        return None
    return [cell.strip() for cell in row]


def _separator(text: str) -> str:
    return max(_SEPARATORS, key=text.count)


def _checked(names: list[str], label: str) -> list[str]:
    if not names:
        msg = f"{label}: the header is not CSV; correct it, or get the file again"
        raise LoadError(msg)
    if twice := repeated(names):
        msg = f"{label}: columns {twice} occur twice; rename one of each"
        raise LoadError(msg)
    return names


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in order."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else repr(value)


PARQUET_MAGIC = b"PAR1"
_NO_TEXT = "columns of Parquet that hold lists, objects or bytes"
# In the metadata of a Parquet file, as in those of traces and dumps.
_SYNTHETIC = (b"synthetic", b"true")
_TABLE = "Parquet or CSV"
_MARK = b"\xef\xbb\xbf"
# The last line of a table is shorter than this.
_TAIL_BYTES = _HEAD_BYTES = 1 << 16
MEND = "get the file again, or add a line end if the row is complete"


def whole_file(path: str | Path) -> io.BytesIO:
    path = Path(path)
    if not path.exists():
        msg = f"{shown(path)}: there is no such file"
        raise FileNotFoundError(msg)
    if path.is_dir():
        msg = f"{shown(path)}: is a folder; name the file in it"
        raise LoadError(msg)
    with Source(shown(path), path).open() as stream:
        content = stream.read()
        if stream.is_damaged:
            notes = "; ".join(stream.notes)
            msg = f"{shown(path)}: is damaged or cut off, {notes}; get the file again"
            raise LoadError(msg)
    if is_utf16(content[:4096]):
        msg = f"{shown(path)}: is UTF-16 text; save it as UTF-8: iconv -f UTF-16 -t UTF-8"
        raise LoadError(msg)
    return io.BytesIO(content)


def whole_text(path: str | Path) -> str:
    """Return the text of one file, unpacked and without byte order marks; as :func:`whole_file`."""
    content = whole_file(path).getvalue()
    while content.startswith(_MARK):
        content = content.removeprefix(_MARK)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        msg = f"{shown(path)}: line {line:,} is not UTF-8 text ({error.reason}); save it as UTF-8"
        raise LoadError(msg) from None


def parquet_in(path: str | Path) -> Path | io.BytesIO | None:
    """Return what Arrow opens of a Parquet file, packed or not; None if it is something else."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == PARQUET_MAGIC:
                return path
        if Source(shown(path), path).head(4) != PARQUET_MAGIC:
            return None
    return whole_file(path)


def random_access(source: Source) -> Path | io.BytesIO:
    """Return the file itself, or its content if it is packed."""
    if source.place is None:
        with source.path.open("rb") as file:
            if not is_packed(file.read(_HEAD_BYTES)):
                return source.path
    with source.open() as stream:
        return io.BytesIO(stream.read())


def parquet_schema(source: Source) -> pa.Schema:
    """Return the columns of a Parquet file, and what is noted beside them, wherever it lies."""
    with opened_parquet(source) as file:
        return file.schema_arrow


def opened_parquet(source: Source) -> pq.ParquetFile:
    content = random_access(source)
    # Mapped, a file is not copied to memory as a whole; a packed one has to be.
    # Without the check of pages a flipped byte comes back as another number.
    is_mapped = isinstance(content, Path)
    return pq.ParquetFile(content, memory_map=is_mapped, page_checksum_verification=True)


def parquet_texts(source: Source, findings: Findings) -> pd.DataFrame:
    """Read a Parquet file as text, as a CSV file is read; its index are rows from 1.

    Columns that hold lists, objects or bytes are left out, and counted.
    """
    texts = {}
    try:
        with opened_parquet(source) as file:
            table = file.read()
        for field, column in zip(table.schema, table.columns, strict=True):
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                findings.add("skipped by design", _NO_TEXT, 1, field.name)
            else:
                texts[field.name] = column.cast(pa.string()).to_numpy()
    except DAMAGE as error:
        raise unreadable(source.label, error, "Parquet") from error
    return pd.DataFrame(texts, index=pd.RangeIndex(1, table.num_rows + 1)).astype(_TEXT)


def read_parquet(path: str | Path) -> pd.DataFrame | None:
    """Return the table that a Parquet file holds; None if the file is something else."""
    if (content := parquet_in(path)) is None:
        return None
    try:
        # Without the check of pages a flipped byte comes back as another number.
        with pq.ParquetFile(
            content, memory_map=isinstance(content, Path), page_checksum_verification=True
        ) as file:
            frame: pd.DataFrame = file.read().to_pandas()
    except DAMAGE as error:
        raise unreadable(shown(path), error, _TABLE) from error
    return frame


def says_synthetic(path: str | Path) -> bool:
    """Return whether a Parquet file has a mark in its metadata that it was simulated."""
    if (content := parquet_in(path)) is None:
        return False
    name, value = _SYNTHETIC
    return bool((pq.read_schema(content).metadata or {}).get(name) == value)


def read_csv(path: str | Path, *, separator: str = ",", **options: Any) -> pd.DataFrame:
    """Return the table that a CSV file holds; ``options`` are those of pandas."""
    text = whole_text(path)
    try:
        has_header = options.get("header", 0) == 0
        header = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])
        # Libraries number repeated names one by one, in time that grows with the square of them,
        # and without a header make as many columns as the widest line has fields.
        lines_in = () if has_header else text.splitlines()
        count = max([len(header), *(line.count(separator) + 1 for line in lines_in)])
        if count > MOST_COLUMNS:
            msg = (
                f"{shown(path)}: {'the first' if has_header else 'a'} line has {count:,} fields, "
                "more than the "
                f"{MOST_COLUMNS:,} columns of any table; pass a file with one row per line"
            )
            raise LoadError(msg)
        # Without a header no row can be longer than it.
        if has_header:
            refuse_longer_rows(text, Path(path), separator=separator)
        text_file = io.StringIO(text)
        frame: pd.DataFrame = pd.read_csv(
            text_file, sep=separator, skipinitialspace=True, **options
        )
    except DAMAGE as error:
        raise unreadable(shown(path), error, _TABLE) from error
    return frame


def without_cut_row(
    frame: pd.DataFrame, path: Path, used: Collection[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Leave out the last row of a text file if a value in use may be cut, and say so.

    A line without a line end may be cut in its last cell; cells before it are whole. That more may
    have followed is said in any case.
    """
    last = last_line(path)
    if not last:
        return frame, {}
    is_present = frame.iloc[-1].notna().to_numpy() if len(frame) else np.zeros(1)
    cell = int(np.flatnonzero(is_present).max(initial=0))
    is_used = set(used) & {str(name).strip() for name in frame.columns[cell:]}
    if not len(frame) or not is_used or not may_be_cut(last):
        return frame, {REST: 1}
    if len(frame) == 1:
        msg = f"{path}: its only row has no line end, so it may be cut; {MEND}"
        raise LoadError(msg)
    return frame.iloc[:-1], {CUT_LINE: 1}


def last_line(path: Path) -> bytes:
    """Return the last line of a text file if it has no line end; empty if it has one."""
    tail = _tail(path)
    # Line ends of old Macs are carriage returns alone.
    ends = b"\n" if b"\n" in tail else (b"\n", b"\r")
    is_open = bool(tail.strip()) and not tail.endswith(ends)
    return tail.rsplit(b"\n", 1)[-1].strip() if is_open else b""


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        head = file.read(16)
        if head.startswith(PARQUET_MAGIC):
            return b""  # no lines, and it cannot be read without its end
        if not is_packed(head):
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return file.read()
    return whole_file(path).getvalue()[-_TAIL_BYTES:]


def refuse_longer_rows(text: str, path: Path, *, separator: str = ",") -> None:
    """Raise if the first row has more fields than the header.

    pandas would take the first field of every row for a label, and shift the others by one column.
    A later row that is longer makes pandas raise by itself.
    """
    rows = (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row)
    header, first = next(rows, []), next(rows, [])
    if len(first) > len(header):
        msg = (
            f"{path}: rows have more fields than the header {header[:8]}, e.g. {first[:8]}; "
            "numbers with thousands separators need quotes, and a separator at the end a name"
        )
        raise LoadError(msg)
