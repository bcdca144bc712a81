"""Lines of a console log: numbered, without colours, never longer than what matters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workbench.load._findings import Findings
from workbench.load._stream import BLOCK_BYTES, Stream
from workbench.load.archive import Source

_LONGEST_BYTES = 1 << 16
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TEXT_LENGTH = 300


def text_lines(source: Source, findings: Findings) -> Iterator[tuple[int, str]]:
    """Give number (from 1) and text of every line; of endless ones only the beginning."""
    with source.open() as stream:
        number = 0
        for number, raw in enumerate(_raw_lines(stream, findings), start=1):
            text = raw.decode("utf-8", "replace").rstrip("\r")
            yield number, COLOURS.sub("", text) if "\x1b" in text else text
        findings.add("read", "lines", number)
        tell_of_damage(stream, findings)


def tell_of_damage(stream: Stream, findings: Findings) -> None:
    """Note what was met while a stream was read to its end."""
    where = None if stream.truncated_at is None else f"byte {stream.truncated_at:,}"
    finding = "suspicious" if where is None else "truncated"
    for note in stream.notes:
        findings.add(finding, note, 1, where)


def shortened(text: str) -> str:
    """Return the beginning of a text, on one line, as column ``text`` shows it."""
    plain = " ".join(text[: 4 * _TEXT_LENGTH].split())
    return plain if len(plain) <= _TEXT_LENGTH else plain[: _TEXT_LENGTH - 1] + "…"


def _raw_lines(stream: Stream, findings: Findings) -> Iterator[bytes]:
    begun = b""
    is_skipping = False
    while block := stream.read(BLOCK_BYTES):
        first, *lines = block.split(b"\n")
        begun += b"" if is_skipping else first
        if lines:
            longer = sum(len(line) > _LONGEST_BYTES for line in (begun, *lines[:-1]))
            findings.add("left out", "the rest of lines longer than 64 KiB", longer)
            yield begun[:_LONGEST_BYTES]
            yield from (line[:_LONGEST_BYTES] for line in lines[:-1])
            begun, is_skipping = lines[-1], False
        # A file without line ends (binary noise) must not be gathered in memory.
        if len(begun) > _LONGEST_BYTES and not is_skipping:
            findings.add("left out", "the rest of lines longer than 64 KiB")
            begun, is_skipping = begun[:_LONGEST_BYTES], True
    if begun:
        yield begun
