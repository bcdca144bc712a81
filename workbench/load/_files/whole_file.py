"""One named file as a whole, for readers that need all of it and keep no findings."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from workbench.errors import LoadError
from workbench.load._files.archive import Source, shown
from workbench.load._files.guard import DAMAGE, unreadable
from workbench.load._files.stream import is_packed
from workbench.load._files.text import CUT_LINE, REST, may_be_cut
from workbench.load._files.wanted import is_utf16

_PARQUET_MAGIC = b"PAR1"
_TABLE = "Parquet or CSV"
_MARK = b"\xef\xbb\xbf"
_TAIL_BYTES = 1 << 16
MEND = "get the file again, or add a line end if the row is whole"


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
        msg = f"{shown(path)}: line {line:,} is no UTF-8 text ({error.reason}); save it as UTF-8"
        raise LoadError(msg) from None


def parquet_in(path: str | Path) -> Path | io.BytesIO | None:
    """Return what Arrow opens of a Parquet file, packed or not; None if it is something else."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == _PARQUET_MAGIC:
                return path
        if Source(shown(path), path).head(4) != _PARQUET_MAGIC:
            return None
    return whole_file(path)


def read_parquet(path: str | Path) -> pd.DataFrame | None:
    """Return the table that a Parquet file holds; None if the file is something else."""
    if (content := parquet_in(path)) is None:
        return None
    try:
        with pq.ParquetFile(
            content, memory_map=isinstance(content, Path), page_checksum_verification=True
        ) as file:
            frame: pd.DataFrame = file.read().to_pandas()
    except DAMAGE as error:
        raise unreadable(shown(path), error, _TABLE) from error
    return frame


def read_csv(path: str | Path, *, separator: str = ",", **options: Any) -> pd.DataFrame:
    """Return the table that a CSV file holds; ``options`` are those of pandas."""
    text = whole_text(path)
    try:
        if options.get("header", 0) == 0:
            refuse_longer_rows(text, Path(path), separator=separator)
        frame: pd.DataFrame = pd.read_csv(
            io.StringIO(text), sep=separator, skipinitialspace=True, **options
        )
    except DAMAGE as error:
        raise unreadable(shown(path), error, _TABLE) from error
    return frame


def without_cut_row(
    frame: pd.DataFrame, path: Path, used: Collection[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Leave out the last row of a text file if a value in use may be cut, and say so.

    A line without a line end may be cut in its last cell; cells before it are whole. That more
    may have followed is said in any case.
    """
    last = last_line(path)
    if not last:
        return frame, {}
    told = frame.iloc[-1].notna().to_numpy() if len(frame) else np.zeros(1)
    cell = int(np.flatnonzero(told).max(initial=0))
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
        if head.startswith(_PARQUET_MAGIC):
            return b""  # no lines, and it cannot be read without its end
        if not is_packed(head):
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return file.read()
    return whole_file(path).getvalue()[-_TAIL_BYTES:]


def refuse_longer_rows(text: str, path: Path, *, separator: str = ",") -> None:
    """Raise if the first row has more fields than the header.

    pandas would take the first field of every row for a label, and shift the others by one
    column. A later row that is longer makes pandas raise by itself.
    """
    rows = (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row)
    header, first = next(rows, []), next(rows, [])
    if len(first) > len(header):
        msg = (
            f"{path}: rows have more fields than the header {header[:8]}, e.g. {first[:8]}; "
            "numbers with thousands separators need quotes, and a separator at the end a name"
        )
        raise LoadError(msg)
