"""Records of ``sacct --parsable2``: texts, put together where a field holds line breaks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text import text_lines

TOO_FEW = "records with too few fields"
TOO_MANY = "records with too many fields: a text holds the separator"
NO_JOB = "records without a job number where JobID should be"
NOT_A_RECORD = "lines that are no part of a record"
JOINED = "records put together from several lines"
HEADER_AGAIN = "headers repeated"
_NEEDED = frozenset({"JobID", "State"})
_FIRST_LINES = 20
_MOST_TEXTS = 100_000
_HEADER = re.compile(r"\w+(\t|[^\w\s]+)\w")
_JOB = re.compile(r"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?(?:\.\S+)?")
_WIDE = re.compile(r"^ *\w+( +\w+)* *\n(-+ )+", re.MULTILINE)
# Columns that users and administrators write, and that may hold line breaks.
_FREE = {"AdminComment", "Comment", "Constraints", "Extra", "JobName", "Reason", "StdErr"}
_FREE |= {"StdIn", "StdOut", "SubmitLine", "SystemComment", "WorkDir"}


@dataclass(frozen=True)
class Header:
    names: list[str]
    separator: str


@dataclass
class Records:
    names: list[str]
    rows: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def header_of(text: str) -> Header | None:
    if (match := _HEADER.match(text)) is None:
        return None
    names = text.split(match[1])
    plain = names[:-1] if names[-1] == "" else names  # --parsable ends lines with a separator
    is_one = all(re.fullmatch(r"\w+", name) for name in plain) and set(plain) >= _NEEDED
    return Header(names, match[1]) if is_one else None


def header_in(head: bytes) -> Header | None:
    lines = head.decode(errors="replace").removeprefix("\ufeff").split("\n")[:_FIRST_LINES]
    return next((header for line in lines if (header := header_of(line.rstrip("\r")))), None)


def is_wide(head: bytes) -> bool:
    """Whether a file is sacct's table for people, which cuts long fields off."""
    match = _WIDE.search(head.decode(errors="replace"))
    return match is not None and set(match[0].split()) >= _NEEDED


def read_records(
    source: Source, findings: Findings, *, keep: Collection[str] | None = None
) -> Records:
    """Read a file; what is no whole record is dropped, and counted by kind with its line."""
    lines = text_lines(source, findings)
    header = _first_header(lines, source, findings)
    # sacct prints a column twice if it is asked for twice.
    names = _distinct(header.names)
    columns = [i for i, name in enumerate(names) if name and (keep is None or name in keep)]
    job = names.index("JobID")
    records = Records([names[i] for i in columns])
    texts: dict[str, str] = {}
    for line, fields in _joined(lines, header, findings):
        if fields == header.names:
            findings.add("skipped by design", HEADER_AGAIN, 1, f"line {line:,}")
        elif _JOB.fullmatch(fields[job]):
            # Most texts are repeated: states, dates, hosts. Each is kept once.
            records.rows.append([texts.setdefault(fields[i], fields[i]) for i in columns])
            if len(texts) > _MOST_TEXTS:
                texts.clear()
            records.lines.append(line)
        else:
            if header_of(header.separator.join(fields)) is not None:
                raise _other_header(source.label, line)
            where = f"line {line:,}: {fields[job][:40]!r}"
            findings.add("dropped", NO_JOB, 1, where)
    return records


def _first_header(lines: Iterator[tuple[int, str]], source: Source, findings: Findings) -> Header:
    for number, text in lines:
        if (header := header_of(text)) is not None:
            return header
        if text.strip():
            findings.add("skipped by design", "lines before the header", 1, f"line {number:,}")
        if number == _FIRST_LINES:
            break
    msg = (
        f"{source.label}: no header with JobID and State; write it with "
        "sacct --parsable2 --duplicates --format=ALL (and without --noheader)"
    )
    raise LoadError(msg)


def _other_header(label: str, line: int) -> LoadError:
    msg = f"{label}, line {line:,}: another header with other columns; split the file there"
    return LoadError(msg)


def _distinct(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        distinct.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return distinct


def _joined(
    lines: Iterator[tuple[int, str]], header: Header, findings: Findings
) -> Iterator[tuple[int, list[str]]]:
    """Give line and fields of whole records; a text with line breaks is put together."""
    joiner = _Joiner(header, findings)
    for number, text in lines:
        yield from joiner.add(number, text)
    yield from joiner.end()


class _Joiner:
    """Takes lines and gives records, one line late: the last text of a record may go on."""

    def __init__(self, header: Header, findings: Findings) -> None:
        self._wanted = len(header.names)
        self._separator = header.separator
        self._may_go_on = header.names[-1] in _FREE
        self._may_begin = header.names[0] in _FREE
        self._findings = findings
        self._held: tuple[int, list[str]] | None = None
        self._begun: list[str] = []
        self._begun_at = self._begun_count = 0

    def add(self, number: int, text: str) -> Iterator[tuple[int, list[str]]]:
        count = text.count(self._separator) + 1
        # A line break within a text: the line goes on with the record begun.
        if self._begun and count < self._wanted and self._begun_count + count - 1 <= self._wanted:
            return self._continue(text, count)
        self._give_up()
        # Without any separator it is part of a text, or no part of the table.
        if count == 1 < self._wanted and not (self._may_begin and text.strip()):
            self._alone(number, text)
            return iter(())
        return self._begin(number, text, count)

    def end(self) -> Iterator[tuple[int, list[str]]]:
        self._give_up()
        return self._release(None)

    def _begin(self, number: int, text: str, count: int) -> Iterator[tuple[int, list[str]]]:
        if count == self._wanted:
            return self._release((number, text.split(self._separator)))
        if count > self._wanted:
            if header_of(text) is not None:
                raise _other_header(self._findings.source, number)
            self._findings.add("dropped", TOO_MANY, 1, f"line {number:,}")
        else:
            self._begun, self._begun_at, self._begun_count = [text], number, count
        return self._release(None)

    def _continue(self, text: str, count: int) -> Iterator[tuple[int, list[str]]]:
        self._begun.append(text)
        self._begun_count += count - 1
        if self._begun_count < self._wanted:
            return iter(())
        self._findings.add("repaired", JOINED, 1, f"line {self._begun_at:,}")
        record = (self._begun_at, "\n".join(self._begun).split(self._separator))
        self._begun = []
        return self._release(record)

    def _alone(self, number: int, text: str) -> None:
        """Add a line without separators to the last text before it, if it may be that."""
        if self._held is not None and self._may_go_on and not text.startswith("sacct: "):
            self._held[1][-1] += f"\n{text}"
            if text.strip():
                self._findings.add("repaired", JOINED, 1, f"line {self._held[0]:,}")
        elif text.strip():
            where = f"line {number:,}: {text[:40]}"
            self._findings.add("dropped", NOT_A_RECORD, 1, where)

    def _give_up(self) -> None:
        """Leave out a record that was begun and never became whole."""
        if self._begun:
            self._findings.add("dropped", TOO_FEW, 1, f"line {self._begun_at:,}")
            self._begun = []

    def _release(self, record: tuple[int, list[str]] | None) -> Iterator[tuple[int, list[str]]]:
        # A record is given once the next one begins, as its last text may go on.
        finished, self._held = self._held, record
        return iter(() if finished is None else (finished,))
