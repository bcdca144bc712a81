"""Possible contents of a file, judged by name and first bytes before it is read."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from workbench.load._files.stream import PACKED_SUFFIXES, is_packed, plain_name

ARCHIVE_SUFFIXES = (
    *(".tar", ".tgz", ".tbz2", ".txz", ".tzst", ".zip"),
    *(f".tar{packing}" for packing in PACKED_SUFFIXES),
)
_TRACE_SUFFIXES = (
    *(".json", ".et", ".parquet", ".tmp", ".sqlite", ".xplane.pb", ".db", ".pftrace"),
    ".perfetto-trace",
)
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")
_NO_TRACE_SUFFIXES = (".ipynb", ".jsonl", ".comm_groups.json")
_NO_LOG_SUFFIXES = (".ipynb", ".py", ".md", ".html", ".png", ".svg", ".pdf", ".parquet")
# Pickles, arrays and weights beside results; nothing of them is opened.
_NO_RESULT_SUFFIXES = (
    *(".ipynb", ".py", ".md", ".html", ".png", ".svg", ".pdf", ".yml", ".yaml", ".log", ".sh"),
    *(".bin", ".pkl", ".pickle", ".npy", ".npz", ".pt", ".pth"),
)
_NO_DUMP_SUFFIXES = (
    *(".log", ".txt", ".md", ".csv", ".out", ".err", ".yaml", ".yml", ".py", ".ipynb", ".sh"),
)
# Tables that load.write stored: read as a set, never one by one.
STORED_SUFFIX = ".table.parquet"
_STORED = (
    "is one of the tables that 'workbench convert' stored; pass the folder that holds them, alone"
)
_NO_LOG_NAMES = (
    *("license", "licence", "copying", "readme", "readme.txt"),
    # Beside demo data and converted traces.
    *("truth.csv", "quality.csv"),
)
_TRACE_START = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*["}]|\[\s*[{\]])|PAR1|SQLite format 3')
# Write-ahead log, its index and rollback journal of SQLite.
_DATABASE_LOGS = ("-wal", "-shm", "-journal")
_DATABASE_LOG = re.compile(
    rb"\x37\x7f\x06[\x82\x83]|\x18\xe2\x2d\x00|\x00\x2d\xe2\x18|\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
)

_HIDDEN, _OTHER = "hidden file", "does not look like a trace"
_REPORT = (
    "report of Nsight Systems, which only nsys reads; export it: nsys export --type sqlite FILE"
)
_NO_LOG = "documentation or data, not a log"
_NO_RESULT = "code, documentation, a pickle or an array, not a table of results"
NO_DUMP = "not a flight-recorder dump"
_READ_WITH_DATABASE = "belongs to the SQLite database beside it, with which it is read"
GIVEN_BEFORE, REPLACED = "was given before", "is replaced by a later member of the same name"
# Reasons to pass a file over that need nobody's attention.
HARMLESS_REASONS = (
    *(_HIDDEN, _OTHER, _REPORT, _NO_LOG, _NO_RESULT, NO_DUMP, _READ_WITH_DATABASE),
    *(GIVEN_BEFORE, REPLACED),
)


@dataclass(frozen=True)
class Wanted:
    """Which files of a folder or archive a loader takes.

    ``refusal`` says by name (in lower case, without folders) and first bytes why a file is none of
    these; '' if it may be one.
    """

    noun: str
    refusal: Callable[[str, bytes], str]

    def refused(self, name: str, head: bytes) -> str:
        """Explain why a file of this name that begins like this is skipped; '' if it is not."""
        base = name.rsplit("/", 1)[-1].lower()
        if base.startswith(".") or name.startswith("__MACOSX/"):
            return _HIDDEN
        if not head:
            return "is empty; get the file again"
        if base.endswith(STORED_SUFFIX):
            return _STORED
        if base.endswith(_DATABASE_LOGS) and _DATABASE_LOG.match(head):
            return _READ_WITH_DATABASE
        if base.endswith(ARCHIVE_SUFFIXES):
            return "is an archive inside an archive; unpack the outer one first"
        return self.refusal(base, head)


def _no_trace(base: str, head: bytes) -> str:
    if (reason := export_advice(base)) or base.endswith(_NO_TRACE_SUFFIXES):
        return reason or _OTHER
    # ROCm Systems Profiler ends the names of its traces as schemas are.
    is_likely = plain_name(base).endswith(_TRACE_SUFFIXES) or base.startswith("perfetto-trace")
    return "" if is_likely or is_packed(head) or _TRACE_START.match(head) else _OTHER


def export_advice(name: str) -> str:
    """Describe how to export a file of a name that its own tool alone reads; '' for other names."""
    return _REPORT if name.lower().endswith(_REPORT_SUFFIXES) else ""


def _no_log(base: str, _head: bytes) -> str:
    return _NO_LOG if base in _NO_LOG_NAMES or base.endswith(_NO_LOG_SUFFIXES) else ""


def _no_result(base: str, _head: bytes) -> str:
    is_none = base in _NO_LOG_NAMES or base.endswith(_NO_RESULT_SUFFIXES)
    return _NO_RESULT if is_none else ""


def _no_dump(base: str, _head: bytes) -> str:
    return NO_DUMP if base.endswith(_NO_DUMP_SUFFIXES) else ""


def _no_log_and_no_table(base: str, head: bytes) -> str:
    return "" if base.endswith(".parquet") else _no_log(base, head)


def stored_files(path: object) -> list[Path]:
    """List the stored tables in a folder; none for all other paths."""
    if not isinstance(path, str | Path) or not (folder := Path(path).expanduser()).is_dir():
        return []
    return sorted(folder.glob(f"[!.]*{STORED_SUFFIX}"))


TRACES = Wanted("trace file", _no_trace)
FAILURE_LOGS = Wanted("failure log", _no_log)
INJECTIONS = Wanted("injection result", _no_result)
POWER_LOGS = Wanted("power log", _no_log_and_no_table)
DUMPS = Wanted("flight-recorder dump (nccl_trace_rank_0, _dump_0)", _no_dump)
JOB_LOGS = Wanted("job log", _no_log_and_no_table)
LOGS_AND_INJECTIONS = Wanted(
    "trace, log, dump or table of a known kind",
    lambda base, head: _no_log(base, head) and _no_result(base, head),
)

_SHOWN_CHARS = 60
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")


def is_utf16(head: bytes) -> bool:
    """Tell UTF-16 by its mark, or by every other byte being zero.

    Examples
    --------
    >>> is_utf16("kern :warn".encode("utf-16-le")), is_utf16(b"kern :warn")
    (True, False)
    """
    if head.startswith(_BYTE_ORDER_MARKS):
        return True
    # ASCII letters in UTF-16 have a zero as their upper byte, on one side or the other.
    half = len(head) // 2
    zeros = (head[0::2].count(0), head[1::2].count(0))
    return half > 1 and max(zeros) > 0.9 * half and min(zeros) < 0.1 * half


def appearance(head: bytes, name: str = "") -> str:
    r"""Describe what a file is and how to export it if that can be told, else how it begins.

    Examples
    --------
    >>> appearance(b"id,name\n1,a\n")
    "it begins with 'id,name'"
    >>> appearance(bytes([255, 2, 7, 4, 0, 1, 2, 3]))
    'binary data, it begins with the bytes ff 02 07 04 00 01 02 03'
    """
    if known := identity(head, name):
        return known
    text = head.lstrip()[:_JUDGED_BYTES].decode(errors="replace").lstrip()
    odd = sum(not (c.isprintable() or c.isspace()) or c == "\ufffd" for c in text)
    if 10 * odd > len(text):
        return f"binary data, it begins with the bytes {head[:8].hex(' ')}"
    first = text.splitlines()[0] if text else ""
    if not first:
        return "it contains only blanks"
    short = first if len(first) <= _SHOWN_CHARS else first[:_SHOWN_CHARS] + "…"
    return f"it begins with {short!r}"


def printable(name: str) -> str:
    """Return ``name`` with everything that a terminal or a page might obey written as code."""
    if name.isprintable():
        return name
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in name
    )


# Files of no kind that is read: by their first bytes and names, and how to export them.

_TABLE = Path(__file__).with_name("foreign_files.csv")
_SQLITE = b"SQLite format 3\0"
_CREATED = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?[\"'`\[]?([\w ./-]{1,40})", re.IGNORECASE)
_LISTED = 6
_LOOKED_AT_FIELDS, _LOOKED_AT_BYTES, _JUDGED_BYTES = 4, 64, 4096
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
