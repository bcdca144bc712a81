"""Text in files: bytes that are not UTF-8, and lines that may be cut."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stream import BLOCK_BYTES, Stream

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
NO_END = "a last line without an end, which may be cut"
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


def console_lines(
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
