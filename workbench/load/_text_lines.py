"""Lines of a log as text, with what had to be mended on the way."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.load._findings import Findings
from workbench.load._stream import BLOCK_BYTES, Stream
from workbench.load.archive import Source

NOT_UTF8 = "bytes that are not UTF-8, shown as \N{REPLACEMENT CHARACTER}"


def text_lines(source: Source, findings: Findings) -> Iterator[tuple[int, str]]:
    """Give number, from 1, and text of every line, and count what was damaged."""
    with source.open() as stream:
        for number, raw in enumerate(_raw_lines(stream), 1):
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = raw.decode(errors="replace")
                bad = text.count("\ufffd") - raw.count("\ufffd".encode())
                findings.add("repaired", NOT_UTF8, bad, f"line {number:,}")
            yield number, text.removeprefix("\ufeff") if number == 1 else text
        for note in stream.notes:
            finding = "suspicious" if stream.truncated_at is None else "truncated"
            findings.add(finding, note)


def _raw_lines(stream: Stream) -> Iterator[bytes]:
    """Split at newlines only: texts may hold other separators of lines."""
    begun: list[bytes] = []
    while block := stream.read(BLOCK_BYTES):
        first, *lines = block.split(b"\n")
        begun.append(first)
        if lines:
            yield b"".join(begun).removesuffix(b"\r")
            yield from (line.removesuffix(b"\r") for line in lines[:-1])
            begun = [lines[-1]]
    if rest := b"".join(begun):
        yield rest.removesuffix(b"\r")
