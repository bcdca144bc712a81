"""Files of no kind that is read: by their first bytes and names, and how to export them."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

_TABLE = Path(__file__).with_name("foreign_files.csv")
_SQLITE = b"SQLite format 3\0"
_CREATED = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?[\"'`\[]?([\w ./-]{1,40})", re.IGNORECASE)
_LISTED = 6
_LOOKED_AT_FIELDS, _LOOKED_AT_BYTES = 4, 64
# Text holds nothing below a tab.
_LEAST_OF_TEXT = 9
_LONGEST_VARINT = 10


class _Foreign(NamedTuple):
    mark: re.Pattern[bytes] | None
    ending: re.Pattern[str] | None
    told: str


def identity(head: bytes, name: str = "") -> str:
    r"""Describe a file that begins like this, and how to get a readable one; '' if unknown.

    Names count only where they end as files of one tool do, since anybody may choose them.

    Examples
    --------
    >>> identity(b"%PDF-1.7 ")
    'it is a PDF document; save the numbers behind it as CSV'
    >>> identity(b"\x0a\x03abc\x10\x07\x1a\x01x\x20\x05")
    'it is protobuf of an unknown schema; export it as JSON or CSV with the program that made it'
    """
    if head.startswith(_SQLITE):
        return _database(head, name)
    for foreign in _known():
        by_name = foreign.ending is not None and foreign.ending.search(name.lower()) is not None
        if by_name or (foreign.mark is not None and foreign.mark.match(head)):
            return foreign.told
    if _is_protobuf(head):
        return (
            "it is protobuf of an unknown schema; export it as JSON or CSV with the program that "
            "made it"
        )
    return ""


@cache
def _known() -> Sequence[_Foreign]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        _Foreign(
            re.compile(row["mark"].encode()) if row["mark"] else None,
            re.compile(f"{row['ending']}$") if row["ending"] else None,
            f"it is {row['is']}; {row['advice']}",
        )
        for row in rows
    ]


def _database(head: bytes, name: str) -> str:
    """Name the tables of a database, which its first page lists, without opening it."""
    for foreign in _known():
        if foreign.ending is not None and foreign.ending.search(name.lower()):
            return foreign.told
    tables = [table.decode("ascii", "replace").strip() for table in _CREATED.findall(head)]
    tables = sorted({table for table in tables if not table.startswith("sqlite_")})
    more = f" and {len(tables) - _LISTED} more" if len(tables) > _LISTED else ""
    listed = f" with the tables {', '.join(tables[:_LISTED])}{more}" if tables else ""
    return (
        f"it is an SQLite database{listed}; export a table as CSV: sqlite3 -header -csv FILE "
        "'SELECT * FROM TABLE' > TABLE.csv"
    )


def _is_protobuf(head: bytes) -> bool:
    """Return whether bytes that are not text begin with whole fields."""
    at, wires = 0, set()
    for _ in range(_LOOKED_AT_FIELDS):
        key, at = _varint(head, at)
        number, wire = key >> 3, key & 7
        if number == 0 or wire not in (0, 1, 2, 5):
            return False
        length, behind = _varint(head, at)
        at = {0: behind, 1: at + 8, 2: behind + length, 5: at + 4}[wire]
        wires.add(wire)
        if at > len(head):
            return False
    return 2 in wires and any(byte < _LEAST_OF_TEXT for byte in head[:_LOOKED_AT_BYTES])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, at + shift + 1
    return 0, len(data) + 1
