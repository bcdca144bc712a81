"""One guard around whatever reads a file: damage is an error that names the file, or a finding."""

from __future__ import annotations

import csv
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from workbench.errors import LoadError, WorkbenchError
from workbench.load._files.findings import Finding, listed
from workbench.load._files.packings import DamagedError
from workbench.load._files.wanted import printable

# What libraries and plain code raise for content that nobody foresaw.
DAMAGE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError, OSError, csv.Error, lzma.LZMAError, pa.ArrowException, struct.error,
    tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_SHOWN_CHARS = 200
_ASKS = re.compile(r"\bpass \w+")


def unreadable(label: str, error: BaseException, kind: str = "") -> Exception:
    """Return what to raise for ``error``, met while ``label`` was read as ``kind``.

    Errors of the workbench, and of the system (no file, no right), say themselves what to do.
    """
    is_of_system = isinstance(error, FileNotFoundError) or (
        isinstance(error, OSError) and error.errno is not None
    )
    if isinstance(error, WorkbenchError) or is_of_system:
        return error if isinstance(error, Exception) else LoadError(str(error))
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
        if (told := unreadable(label, error, kind)) is error:
            raise
        raise told from error


def asks_for_argument(error: Exception) -> bool:
    """Say whether an error asks the caller for what the file does not carry, e.g. its zone.

    The file is whole, so leaving it out would be wrong.
    """
    return _ASKS.search(str(error)) is not None


class Dropped:
    """Files of a set that cannot be read: dropped and told, as long as others can be.

    A file whose reader asks for an argument is whole, so that is still raised.
    """

    def __init__(self) -> None:
        self._errors: list[tuple[str, Exception]] = []

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
            (label, "dropped", _without(label, str(error)), 1, None)
            for label, error in self._errors
        ]

    def raise_if_all(self) -> None:
        """Raise what was met, if anything was, because nothing else is left."""
        if len(self._errors) == 1:
            raise self._errors[0][1]
        if self._errors:
            msg = f"none of {len(self._errors):,} files can be read{listed(self.rows)}"
            raise LoadError(msg) from self._errors[0][1]


def _without(label: str, message: str) -> str:
    return message.removeprefix(label).lstrip(":, ")
