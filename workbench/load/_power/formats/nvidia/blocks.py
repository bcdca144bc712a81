"""Text files in blocks of whole lines, of bounded size."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator

from workbench.load._files.findings import Findings
from workbench.load._files.stream import Stream
from workbench.load._files.text import NOT_UTF8

_BLOCK_BYTES = 16 << 20
_LONGEST_LINE_BYTES = 1 << 20
_LONG = f"lines longer than {_LONGEST_LINE_BYTES >> 20} MiB"


def blocks_of(stream: Stream, findings: Findings) -> Iterator[tuple[int, bytes]]:
    """Give blocks of whole lines with the number of the first, damage mended and counted.

    Only the last block may end without a line end.
    """
    number, rest, mark, is_inside_long = 1, b"", BOM_UTF8, False
    while block := _filled(stream):
        block, mark = block.removeprefix(mark), b""
        if is_inside_long:
            end = block.find(b"\n")
            if end < 0:
                continue
            block, is_inside_long, number = block[end + 1 :], False, number + 1
        block = rest + block
        end = block.rfind(b"\n") + 1
        whole, rest = block[:end], block[end:]
        if whole:
            yield number, _tidy(whole, number, findings)
            number += whole.count(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            findings.add("dropped", _LONG, 1, f"line {number:,}")
            rest, is_inside_long = b"", True
    if rest:
        yield number, _tidy(rest, number, findings)


def _filled(stream: Stream) -> bytes:
    pieces, size = [], 0
    while size < _BLOCK_BYTES and (piece := stream.read(_BLOCK_BYTES - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _tidy(block: bytes, number: int, findings: Findings) -> bytes:
    """Give a block with plain line ends, in UTF-8."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError as error:
        bad = number + block.count(b"\n", 0, error.start)
        text = block.decode(errors="replace")
        count = text.count("\ufffd") - block.count("\ufffd".encode())
        findings.add("repaired", NOT_UTF8, count, f"line {bad:,}")
        return text.encode()
    return block
