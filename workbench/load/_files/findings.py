"""Findings of a loader (dropped, repaired, assumed), and one guard around every reader."""

from __future__ import annotations

import csv
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError, TableError, WorkbenchError
from workbench.load._files.stream import DamagedError
from workbench.load._files.wanted import printable
from workbench.tables import QUALITY

# A row of a table under construction, and an object as somebody else wrote it.
Row = dict[str, Any]
Record = Mapping[str, Any]
# Source, finding, what, count and where, as in the quality table.
Finding = tuple[str, str, str, int, str | None]
_LISTED = 8


@dataclass(frozen=True)
class Remark:
    """Something about the input that belongs into the quality table."""

    source: str
    finding: Literal["skipped by design", "dropped", "truncated"]
    what: str

    @property
    def row(self) -> Finding:
        return self.source, self.finding, self.what, 1, None


class Findings:
    """Collects findings of one source; equal ones are counted together."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: dict[tuple[str, str], tuple[int, str | None]] = {}

    def add(self, finding: str, what: str, count: int = 1, where: str | None = None) -> None:
        """Count ``what``; ``where`` of the first occurrence is kept."""
        if count:
            before, first = self._found.get((finding, what), (0, where))
            self._found[finding, what] = (before + count, first)

    def count(self, what: str) -> int:
        return sum(count for (_, text), (count, _) in self._found.items() if text == what)

    def rows(self) -> list[Finding]:
        return [
            (self.source, finding, what, count, where)
            for (finding, what), (count, where) in self._found.items()
        ]

    def frame(self) -> pd.DataFrame:
        return quality_frame(self.rows())


def quality_frame(rows: Sequence[Finding]) -> pd.DataFrame:
    if not rows:
        return QUALITY.empty()
    return QUALITY.check(QUALITY.cast(pd.DataFrame(rows, columns=list(QUALITY.columns))))


def listed(findings: Sequence[Finding]) -> str:
    """List what was skipped for a message, a line each, and say how many more there are."""
    lines = "".join(
        f"\n  - {source}: {what}" + (f" ({where})" if where else "")
        for source, _, what, _, where in findings[:_LISTED]
    )
    more = len(findings) - _LISTED
    return lines + (f"\n  - and {more} more" if more > 0 else "")


# What libraries and plain code raise for content that nobody foresaw.
DAMAGE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError, OSError, csv.Error, lzma.LZMAError, pa.ArrowException, struct.error,
    tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_SHOWN_CHARS = 200
# Errors that ask for an argument are worded so.
_ASKS = re.compile(r"\bpass \w+")


def unreadable(label: str, error: BaseException, kind: str = "") -> Exception:
    """Return what to raise for ``error``, met while ``label`` was read as ``kind``.

    Errors of the workbench, and of the system (no file, no right), say themselves what to do.
    """
    if isinstance(error, TableError) and label not in str(error):
        return LoadError(f"{label}: {error}; correct the file")
    has_number = isinstance(error, OSError) and error.errno is not None
    is_of_system = isinstance(error, FileNotFoundError) or has_number
    if isinstance(error, WorkbenchError) or is_of_system:
        return error if isinstance(error, Exception) else LoadError(str(error))
    # Libraries quote the content, which may be long and hold commands of a terminal.
    reason = printable(" ".join(str(error).split())[:_SHOWN_CHARS]) or "no reason given"
    form = f" as {kind}" if kind else ""
    return DamagedError(
        f"{label}: cannot be read{form} ({type(error).__name__}: {reason}); it is damaged or "
        "holds something else: get the file again"
    )


@contextmanager
def guarded(label: str, kind: str = "") -> Iterator[None]:
    """Turn whatever a library raises while ``label`` is read into a LoadError that names it."""
    try:
        yield
    except DAMAGE as error:
        if (raised := unreadable(label, error, kind)) is error:
            raise
        raise raised from error


def asks_for_argument(error: Exception) -> bool:
    """Return whether an error asks the caller for what the file does not carry, e.g. its zone.

    The file is whole, so leaving it out would be wrong.
    """
    return _ASKS.search(str(error)) is not None


class Dropped:
    """Files of a set that cannot be read: dropped and told, as long as others can be.

    A file whose reader asks for an argument is whole, so that is still raised.
    """

    def __init__(self, errors: list[tuple[str, Exception]] | None = None) -> None:
        self._errors = [] if errors is None else errors

    @contextmanager
    def trying(self, label: str) -> Iterator[None]:
        """Read one file inside: drop it if that fails, unless its reader asks for an argument."""
        try:
            with guarded(label):
                yield
        except (WorkbenchError, OSError) as error:
            if asks_for_argument(error):
                raise
            self.add(label, error)

    def add(self, label: str, error: Exception) -> None:
        self._errors.append((label, error))

    @property
    def rows(self) -> list[Finding]:
        return [
            (label, "dropped", str(error).removeprefix(label).lstrip(":, "), 1, None)
            for label, error in self._errors
        ]

    def raise_if_all(self) -> None:
        if len(self._errors) == 1:
            raise self._errors[0][1]
        if self._errors:
            msg = f"none of {len(self._errors):,} files can be read{listed(self.rows)}"
            raise LoadError(msg) from self._errors[0][1]
