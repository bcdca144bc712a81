"""Text in files: bytes that are not UTF-8, and lines that may be cut."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Set
from functools import partial
from itertools import chain
from typing import NamedTuple

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stream import BLOCK_BYTES, Health, Stream

_NOT_UTF8 = r"bytes that are not UTF-8, shown like \xfc"
_BLOCK_BYTES = 4 << 20
# A file without line ends must not be gathered in memory.
_LONGEST_LINE_BYTES = 64 << 20


def _valid(raw: bytes, findings: Findings, number: int) -> bytes:
    """Return text with what is not UTF-8 written out; ``number`` is its first line.

    Names that differ in such bytes alone stay different.
    """
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        text = raw.decode(errors="backslashreplace").encode()
        line = number + raw.count(b"\n", 0, error.start)
        # One byte is written as four.
        findings.add("repaired", _NOT_UTF8, (len(text) - len(raw)) // 3, f"line {line:,}")
        return text
    return raw


class ValidUtf8(io.RawIOBase):
    """A stream of lines in which what is not UTF-8 is written out, and counted.

    A last line that may be cut is dropped and counted. Whoever opened the stream closes it.
    """

    def __init__(self, stream: Stream, findings: Findings) -> None:
        super().__init__()
        self._stream = stream
        self._findings = findings
        self._line = 1
        self._cut = b""
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK_BYTES), b""))
        if not self._rest:
            self._rest = memoryview(self._next())
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)

    def _next(self) -> bytes:
        lines = b""
        while not lines and (block := self._stream.read(_BLOCK_BYTES)):
            # Only whole lines are given on, so that no character of several bytes is cut in two.
            text = self._cut + block
            end = text.rfind(b"\n") + 1
            if not end and len(text) > _LONGEST_LINE_BYTES:
                end = len(text)
            lines, self._cut = text[:end], text[end:]
        if not lines:
            lines, self._cut = self._cut, b""
            if self._line > 1 and may_be_cut(lines):
                self._findings.add("truncated", CUT_LINE, 1, f"line {self._line:,}")
                return b""
        valid = _valid(lines, self._findings, self._line)
        self._line += lines.count(b"\n")
        return valid


NOT_UTF8 = "bytes that are not UTF-8, shown as \N{REPLACEMENT CHARACTER}"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CUT_LINE = (
    "a last line without a line end, which may be cut; it is dropped (if it is whole, add a line "
    "end)"
)
REST = "the rest, if there is one, of a file that ends without a line end"
NO_END = "last line without a line end, which may be cut"
_LONGEST_BYTES = 1 << 16
# No number and no word ends so: what follows could only be another cell.
_CLOSING = b"}])|\"'"
# What a line begins with that holds JSON, perhaps a list, or an object behind MLPerf's mark.
_JSON_BEGINS = (b"{", b"[{", b"[ {", b":::")


def may_be_cut(last: bytes) -> bool:
    """Return whether a last line without a line end may go on: 4096 may have become 4."""
    text = last.rstrip(b" \t\r\n")
    return bool(text) and not last.endswith(b"\n") and text[-1:] not in _CLOSING


def tell_of_no_end(last: bytes, stream: Stream, findings: Findings, where: str) -> None:
    """Note that the last line of a log, which is kept, has no line end, unless it closes JSON.

    A log that was copied while it was written, or a disk that was full, ends so: what came after is
    not in the file, and the line may say less than it did. Where a packing is cut, that is told.
    """
    text = last.strip(b" \t\r\n")
    is_balanced = text.startswith(_JSON_BEGINS) and text.count(b"{") == text.count(b"}")
    is_json = text.endswith((b"}", b"]")) and (is_balanced or not text.strip(b"]}, \t"))
    is_open = bool(text) and stream.truncated_at is None and not is_json
    findings.add("truncated", NO_END, int(is_open), where)


def text_lines(
    source: Source, findings: Findings, *, whole: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield number, from 1, and text of every line, and count what was damaged.

    A last line without an end is told; with ``whole`` one that may be cut is dropped, too.
    """
    unended: list[bytes] = []
    with source.open() as stream:
        number = 0
        lines = chain(chain.from_iterable(_lines(stream, unended=unended)), unended)
        for number, line in enumerate(lines, 1):
            if unended and whole and may_be_cut(line):
                findings.add("truncated", CUT_LINE, 1, f"line {number:,}")
                break
            raw = line.removesuffix(b"\r")
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = repaired(raw, findings, f"line {number:,}")
            yield number, text.lstrip("\ufeff") if number == 1 else text
        if unended and not whole:
            tell_of_no_end(unended[0], stream, findings, f"line {number:,}")
        tell_of_damage(stream, findings)


def repaired(raw: bytes, findings: Findings, where: str) -> str:
    text = raw.decode(errors="replace")
    bad = text.count("\ufffd") - raw.count("\ufffd".encode())
    findings.add("repaired", NOT_UTF8, bad, where)
    return text


# Terminals fold lines at their width; a log whose lines end there by chance has no rests of lines.
_HEAD_BYTES = 1 << 16
_WIDTHS = range(40, 401)
_LEAST_FOLDS = 2
# Stamps and the like, with which a line may begin and a rest of one does not.
_BEGINS = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:|\[rank\d|\[[EWIF]\d{3,4} \d\d:|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d|"
    r"\[ *\d+\.\d{6}\]|\[[A-Z][a-z]{2} |slurmstepd: |srun: |Traceback \(|<\d+>|\{\""
)
_DIGITS = re.compile(r"\d+")


class Fold(NamedTuple):
    """How a terminal folded the lines of a log: its width, and how whole lines begin."""

    width: int
    beginnings: frozenset[str]

    def is_rest(self, line: str) -> bool:
        return _is_rest(line, self.beginnings)


def _is_rest(line: str, beginnings: Set[str]) -> bool:
    return bool(line.strip()) and not _BEGINS.match(line) and _word(line) not in beginnings


def _word(line: str) -> str:
    return _DIGITS.sub("", line.partition(" ")[0])


def fold_of(head: bytes) -> Fold | None:
    r"""Find out whether a terminal folded the lines of a log, by its beginning.

    Examples
    --------
    >>> fold_of(b"[1] abcdefghijklmnopqrstuvwxyzabcdefghijkl\nmnopq\n" * 3).width
    42
    >>> fold_of(b"[1] abcdefghijklmnopqrstuvwxyzabcdefghijkl\n[2] mnopq\n" * 3) is None
    True
    """
    lines = [line.rstrip("\r") for line in head.decode("utf-8", "replace").split("\n")][:-1]
    width = max(map(len, lines), default=0)
    if width not in _WIDTHS:
        return None
    is_full = [len(line) == width and not line.endswith("  ") for line in lines]
    # A line that follows a shorter one is whole, and so is the first.
    starts = {_word(line) for line, full in zip(lines, [False, *is_full], strict=False) if not full}
    after = [line for line, full in zip(lines[1:], is_full, strict=False) if full]
    rests = sum(_is_rest(line, starts) for line in after)
    is_folded = rests >= _LEAST_FOLDS and 2 * rests > len(after)
    return Fold(width, frozenset(starts)) if is_folded else None


def _joined(
    lines: Iterator[tuple[int, str]], fold: Fold, findings: Findings
) -> Iterator[tuple[int, str]]:
    """Join what a terminal folded; each line has the number of its first part."""
    joined, first, count, is_open = "", 0, 0, False
    for number, text in lines:
        if is_open and fold.is_rest(text) and len(joined) < _LONGEST_BYTES:
            joined, count = joined + text, count + 1
        else:
            if first:
                yield first, joined.rstrip()
            joined, first = text, number
        is_open = len(text) == fold.width
    if first:
        yield first, joined.rstrip()
    findings.add("repaired", f"lines folded by a terminal at {fold.width} columns, joined", count)


def _head(source: Source) -> bytes:
    with source.open() as stream:
        return stream.read(_HEAD_BYTES)


def unfolded(source: Source, findings: Findings) -> Stream:
    """Open a log; of one that a terminal folded the lines are joined, and numbered as joined."""
    fold = fold_of(_head(source))
    if fold is None:
        return source.open()
    lines = _joined(_console_lines(source, Findings(source.label)), fold, findings)
    blocks = (f"{text}\n".encode() for _, text in lines)
    return Stream(blocks, label=source.label, health=Health())


def console_lines(
    source: Source, findings: Findings, *, whole: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield the lines of :func:`_console_lines`; what a terminal folded is joined."""
    lines = _console_lines(source, findings, whole=whole)
    # Tables of readings have lines of one width by design.
    fold = None if whole else fold_of(_head(source))
    yield from lines if fold is None else _joined(lines, fold, findings)


def _console_lines(
    source: Source, findings: Findings, *, whole: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield number, from 1, and text of every line without colours.

    Programs may have written binary noise to a console: of endless lines only the beginning is
    given, and what is not UTF-8 is not a finding. A last line without an end is given and counted;
    with ``whole`` it is dropped, for where it ends in a number a cut leaves another one.
    """
    unended: list[bytes] = []
    with source.open() as stream:
        number = 0
        blocks = _lines(stream, _LONGEST_BYTES, unended=unended)
        for lines in chain(blocks, [] if whole else [unended]):
            longer = sum(len(line) > _LONGEST_BYTES for line in lines)
            findings.add("dropped", "the rest of lines longer than 64 KiB", longer)
            for raw in lines:
                number += 1
                text = raw[:_LONGEST_BYTES].decode("utf-8", "replace").rstrip("\r")
                yield number, COLOURS.sub("", text) if "\x1b" in text else text
        findings.add("read", "lines", number)
        if not whole and unended and len(unended[0]) <= _LONGEST_BYTES:
            tell_of_no_end(unended[0], stream, findings, f"line {number:,}")
        tell_of_damage(stream, findings)
    if whole and unended:
        findings.add("truncated", CUT_LINE, 1, unended[0][:60].decode("utf-8", "replace"))


whole_lines = partial(console_lines, whole=True)


def tell_of_damage(stream: Stream, findings: Findings) -> None:
    where = None if stream.truncated_at is None else f"byte {stream.truncated_at:,}"
    finding = "suspicious" if where is None else "truncated"
    for note in stream.notes:
        findings.add(finding, note, 1, where)


def _lines(
    stream: Stream, longest: float = math.inf, *, unended: list[bytes]
) -> Iterator[list[bytes]]:
    """Yield the lines that end in each block; of longer ones the beginning, still too long.

    They are split at newlines only: texts may hold other separators of lines. A last line without
    an end goes to ``rest``.
    """
    begun: list[bytes] = []
    length = 0
    while block := stream.read(BLOCK_BYTES):
        first, *lines = block.split(b"\n")
        # A file without line ends must not be gathered in memory.
        if length <= longest:
            begun.append(first)
            length += len(first)
        if lines:
            yield [b"".join(begun), *lines[:-1]]
            begun, length = [lines[-1]], len(lines[-1])
    if length:
        unended.append(b"".join(begun))
