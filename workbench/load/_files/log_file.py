"""What a reader of failure logs gets and gives: a file, what the caller said, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.tables import FAILURES, TIMELINE, Table

SECOND = 1_000_000_000
_SHOWN_CHARS = 300
_PIECE_ROWS = 20_000


@dataclass(frozen=True)
class Given:
    """What the caller says that files do not carry; a reader asks for it, and never guesses.

    Attributes
    ----------
    tz
        Time zone of local stamps, e.g. ``"UTC"`` or ``"America/Los_Angeles"``.
    year
        Year of stamps that have none (of the first one: later ones may pass New Year).
    boot_time
        When the kernel whose stamps count seconds of uptime was booted, with zone.
    node
        Host of files that name none, as :func:`host_of` takes it from the argument.
    """

    tz: str | None = None
    year: int | None = None
    boot_time: pd.Timestamp | None = None
    node: str | None = None


@dataclass
class LogPart:
    """What one file holds. Rows of ``failures`` are single lines; folding comes later."""

    failures: pd.DataFrame
    timeline: pd.DataFrame
    findings: Findings
    # Hosts that the file names besides those of the two tables: node, gpu_count.
    nodes: Mapping[str, int | None] = field(default_factory=dict)
    # Over which time the file watched a host, failures or not: node, (first ns, last ns).
    watched: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Name of the format, set by the front door.
    format_name: str = ""


class LogFormat(Protocol):
    """A module that reads one format of failure logs."""

    NAME: str

    def looks_like(self, head: bytes, label: str) -> bool:
        """Recognise the format by the first bytes of a file, unpacked."""

    def read(self, source: Source, given: Given) -> LogPart:
        """Read a whole file."""


class ConsoleFormat(LogFormat, Protocol):
    """A module that reads what one program wrote into a log, among what others wrote."""

    @property
    def SIGNATURES(self) -> Sequence[bytes]:  # noqa: N802 - a constant of the module
        """Bytes of which a file holds one if the program wrote anything that matters."""


def failure_rows(rows: Iterable[Mapping[str, Any]], source: str) -> pd.DataFrame:
    """Make table FAILURES of dicts with some of its columns; the rest is missing or usual."""
    usual = {"clock": "epoch", "other_codes": "", "line_count": 1, "text": "", "assumed": ""}
    usual |= {"devices": "", "ranks": "", "rank_count": 0}  # known once lines are folded
    usual |= {"category": "unknown", "severity": "unknown", "source": source}
    return _table(FAILURES, rows, usual)


def timeline_rows(rows: Iterable[Mapping[str, Any]], source: str) -> pd.DataFrame:
    """Make table TIMELINE of dicts with some of its columns; the rest is missing or usual."""
    return _table(TIMELINE, rows, {"clock": "epoch", "source": source})


def _table(
    table: Table, rows: Iterable[Mapping[str, Any]], usual: Mapping[str, Any]
) -> pd.DataFrame:
    """Make a table in pieces: dicts take many times the memory of a frame."""
    names, walk, pieces = list(table.columns), iter(rows), []
    while piece := list(islice(walk, _PIECE_ROWS)):
        columns = {n: [row.get(n, usual.get(n)) for row in piece] for n in names}
        pieces.append(table.cast(pd.DataFrame(columns, dtype=object)))
    if not pieces:
        return table.empty()
    return table.check(pieces[0] if len(pieces) == 1 else pd.concat(pieces, ignore_index=True))


def needs(what: str, *, label: str, line: int, text: str, remedy: str) -> LoadError:
    """Make the error that asks the caller for what a file does not carry."""
    return LoadError(f"{label}, line {line:,}: {text[:80]!r} has no {what}; pass {remedy}")


def shortened(line: str) -> str:
    """Return the beginning of a line as it can be kept and shown: its spaces, and printable."""
    plain = line[: _SHOWN_CHARS + 1]
    if not plain.isprintable():
        plain = "".join(c if c.isprintable() else " " for c in plain)
    return _cut(plain)


def one_line(text: str) -> str:
    """Return the beginning of a text of any number of lines, on one, as column ``text`` has it."""
    return _cut(" ".join(text[: 4 * _SHOWN_CHARS].split()))


def _cut(plain: str) -> str:
    return plain if len(plain) <= _SHOWN_CHARS else plain[: _SHOWN_CHARS - 1] + "…"
