"""Small tables as text, with their lines: CSV with any usual separator, or JSON objects."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import json_documents, records
from workbench.load._files.text_lines import text_lines

_SEPARATORS = ",;\t|"
_TEXT = pd.Series([""]).dtype


def header_of(head: bytes) -> list[str]:
    """Return the names in the first line of a CSV file that is no comment; none for JSON."""
    for line in head.decode(errors="replace").removeprefix("\ufeff").split("\n"):
        text = line.strip()
        if text and not text.startswith("#"):
            return [] if text[0] in "{[" else _cells(text) or []
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

    Raises
    ------
    LoadError
        If the header is no CSV, or two columns have one name.
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
            what = "rows with more or fewer cells than the header"
            findings.add("dropped", what, 1, f"line {line:,}")
    frame = pd.DataFrame(rows, columns=names or None, index=lines, dtype=_TEXT)
    return frame.mask(frame.isin(["", "nan", "NaN", "None", "null"]))


def json_table(source: Source, findings: Findings, key: str | None = None) -> pd.DataFrame:
    """Read JSON objects, one per line or in a list, as text; the index are lines or records.

    The list may be the value of ``key`` in the document.
    """
    found = [
        (number, {name: _text(value) for name, value in record.items()})
        for line, document in json_documents(source, findings)
        for number, record in records(line, document, findings, key=key)
    ]
    lines = [number for number, _ in found]
    if len(set(lines)) < len(lines):  # records of several lists
        lines = list(range(1, len(lines) + 1))
    return pd.DataFrame([record for _, record in found], index=lines).astype(_TEXT)


def _rows(source: Source, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Give the line and the cells of every row that is neither blank nor a comment."""
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
        yield line, _cells(text.strip(), separator) or []


def _cells(text: str, separator: str | None = None) -> list[str] | None:
    """Split a line; None if it is no CSV, e.g. because its quotes do not end."""
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
        msg = f"{label}: the header is no CSV; mend it, or get the file again"
        raise LoadError(msg)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"{label}: columns {twice} occur twice; rename one of each"
        raise LoadError(msg)
    return names


def _text(value: Any) -> str | None:
    """Return a value as a cell; what is no single value is none."""
    if value is None or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else repr(value)
