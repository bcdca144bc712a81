"""Find the few lines of a large log that matter, in blocks, without looking at the others."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from workbench.load._files.findings import Findings
from workbench.load._files.stream import Stream
from workbench.load._files.text_lines import tell_of_no_end

# Longer lines are no log's; what follows in them is passed over.
LONGEST_LINE_BYTES = 1 << 20


class Line(NamedTuple):
    """One line: its number from 1, its bytes, and whether it holds what was looked for."""

    number: int
    text: bytes
    is_hit: bool


class Lines:
    """Lines of a stream that hold one of some byte strings, and the counts of all.

    Besides the hits it gives the first line of every block, and the last line, as samples of
    the clock; they have ``is_hit`` unset.

    Parameters
    ----------
    stream
        Where to read.
    needles
        Byte strings; a line that holds one is a hit.
    in_any_case
        Byte strings in lower case; a line that holds one, in any case, is a hit, too.
    """

    def __init__(
        self, stream: Stream, needles: Sequence[bytes], in_any_case: Sequence[bytes] = ()
    ) -> None:
        self._stream, self._needles, self._in_any_case = stream, needles, in_any_case
        self.count = 0
        self.long_count = 0
        # The last line, if it has no end.
        self.rest = b""

    def __iter__(self) -> Iterator[Line]:
        """Walk through the stream, once."""
        last = b""
        for block in self._blocks():
            yield from self._found(block)
            # A block ends in a line end, save the last one.
            last = block[block.rfind(b"\n", 0, len(block) - 1) + 1 :]
        if last:
            yield Line(self.count, last, is_hit=False)

    def _found(self, block: bytes) -> Iterator[Line]:
        starts = {0}
        starts.update(_line_starts(block, self._needles))
        if self._in_any_case:
            starts.update(_line_starts(block.lower(), self._in_any_case))
        number, before = self.count + 1, 0
        for start in sorted(starts):
            number += block.count(b"\n", before, start)
            before = start
            end = block.find(b"\n", start)
            text = block[start : end if end >= 0 else len(block)]
            is_hit = start > 0 or self._holds(text)
            yield Line(number, text, is_hit)
        is_whole = block.endswith(b"\n")
        self.count = number - 1 + block.count(b"\n", before) + (not is_whole)

    def _holds(self, text: bytes) -> bool:
        if any(needle in text for needle in self._needles):
            return True
        lower = text.lower()
        return any(needle in lower for needle in self._in_any_case)

    def _blocks(self) -> Iterator[bytes]:
        """Give blocks of whole lines; of a line that is too long, its beginning only."""
        rest, is_inside_long, mark = b"", False, BOM_UTF8
        while block := self._stream.read1():
            block, mark = block.removeprefix(mark), b""
            if is_inside_long:
                end = block.find(b"\n")
                if end < 0:
                    continue
                block, is_inside_long = block[end + 1 :], False
            block = rest + block
            end = block.rfind(b"\n") + 1
            whole, rest = block[:end], block[end:]
            if len(rest) > LONGEST_LINE_BYTES:
                whole, rest, is_inside_long = whole + rest[:LONGEST_LINE_BYTES] + b"\n", b"", True
                self.long_count += 1
            if whole:
                yield whole
        if rest:
            self.rest = rest
            yield rest


def _line_starts(block: bytes, needles: Sequence[bytes]) -> Iterator[int]:
    """Give where lines begin that hold one of some byte strings."""
    for needle in needles:
        at = block.find(needle)
        while at >= 0:
            yield block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            at = block.find(needle, end) if end >= 0 else -1


def report_reading(
    findings: Findings, lines: Lines, stream: Stream, *, rows: int, unknown: int
) -> None:
    """Note how many lines were read, what they held, and what damage the stream met."""
    findings.add("read", "lines", lines.count)
    findings.add("read", "lines that report a failure", rows)
    findings.add("set aside", "lines that report none", lines.count - rows - unknown)
    what = f"lines longer than {LONGEST_LINE_BYTES:,} bytes; their rest"
    findings.add("left out", what, lines.long_count)
    tell_of_no_end(lines.rest, stream, findings, f"line {lines.count:,}")
    is_cut = stream.truncated_at is not None
    for number, note in enumerate(stream.notes):
        finding = "truncated" if is_cut and number == len(stream.notes) - 1 else "repaired"
        where = f"byte {stream.tell():,}, line {lines.count:,}" if finding == "truncated" else None
        findings.add(finding, note, 1, where)
