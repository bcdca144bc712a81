"""Bytes that some parser takes for UTF-8 without looking, made so."""

from __future__ import annotations

import io

from workbench.load._files.findings import Findings
from workbench.load._files.stream import Stream
from workbench.load._files.text_lines import CUT_LINE, may_be_cut

_NOT_UTF8 = r"bytes that are not UTF-8, shown like \xfc"
_BLOCK_BYTES = 4 << 20
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

    A last line that may be cut is dropped and told.

    Parameters
    ----------
    stream
        What is read; whoever opened it closes it.
    findings
        Where such bytes are counted, with the line of the first.
    """

    def __init__(self, stream: Stream, findings: Findings) -> None:
        super().__init__()
        self._stream = stream
        self._findings = findings
        self._line = 1
        self._cut = b""
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True: streams are for reading."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, or everything left if it is negative or None."""
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK_BYTES), b""))
        if not self._rest:
            self._rest = memoryview(self._next())
        given, self._rest = self._rest[:size], self._rest[size:]
        return bytes(given)

    def _next(self) -> bytes:
        """Return the next whole lines."""
        lines = b""
        while not lines and (block := self._stream.read(_BLOCK_BYTES)):
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
