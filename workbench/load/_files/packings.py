"""Packings other than gzip, unpacked block by block: bzip2, xz, zstd and lz4."""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from workbench.errors import LoadError

# Archives that nothing here can open.
_FOREIGN = {b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!\x1a\x07": "rar"}
_BLOCK_BYTES = 1 << 20
# Endings of names that say that a file is packed; what it is, its first bytes say.
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".lz4")
# Bytes that are given to a decoder at once: those of one step are lost where it stumbles.
_STEP_BYTES = 1 << 12
# Headers may claim any size of dictionary; `xz -9` takes 65 MiB.
_MOST_MEMORY_BYTES = 1 << 28


class DamagedError(LoadError):
    """The bytes of a file are not those that were written, whatever they were meant to say."""


def plain_name(name: str) -> str:
    """Return the name of a file without the endings of its packings."""
    while name.lower().endswith(PACKED_SUFFIXES):
        name = name.rpartition(".")[0]
    return name


class Packed(Protocol):
    """Packed blocks that can be looked at ahead and partly put back."""

    def __next__(self) -> bytes: ...

    def head(self, size_bytes: int) -> bytes:
        """Return the next bytes without moving on."""

    def put_back(self, data: bytes) -> None:
        """Give ``data`` again."""


class Damage(Protocol):
    """Where damage is noted."""

    notes: list[str]

    def cut(self, note: str) -> None:
        """Record that the rest of the content is missing."""


Unpack = Callable[[Any, Any], Iterator[bytes]]


def _bzip2() -> Any:
    return bz2.BZ2Decompressor()


def _xz() -> Any:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MOST_MEMORY_BYTES)


def _of_the_standard_library(name: str, magic: bytes, make: Callable[[], Any]) -> Unpack:
    """Unpack one stream after the other with a decoder of the standard library."""

    def unpack(feed: Packed, health: Damage) -> Iterator[bytes]:
        while True:
            engine = make()
            try:
                yield from _one_stream(engine, feed)
            except (EOFError, OSError, lzma.LZMAError, MemoryError) as error:
                reason = str(error) or "the data end in the middle"
                health.cut(f"the {name} data are damaged or cut off ({reason})")
                return
            feed.put_back(engine.unused_data)
            rest = feed.head(1 << 16)
            if not rest.startswith(magic):
                if rest.strip(b"\0"):
                    health.notes.append(f"bytes after the end of the {name} data were ignored")
                return

    return unpack


def _one_stream(engine: Any, feed: Packed) -> Iterator[bytes]:
    while not engine.eof:
        data = b""
        if engine.needs_input:
            block = next(feed, b"")
            if not block:
                raise EOFError
            data, rest = block[:_STEP_BYTES], block[_STEP_BYTES:]
            if rest:
                feed.put_back(rest)
        if plain := engine.decompress(data, _BLOCK_BYTES):
            yield plain


class _Readable(io.RawIOBase):
    def __init__(self, feed: Packed) -> None:
        super().__init__()
        self._feed = feed

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        block = next(self._feed, b"")
        if size is None or size < 0 or len(block) <= size:
            return block
        self._feed.put_back(block[size:])
        return block[:size]


def _of_arrow(name: str) -> Unpack:
    """Unpack with Arrow, whose streams go on where one ends and another follows."""

    def unpack(feed: Packed, health: Damage) -> Iterator[bytes]:
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(_Readable(feed), "r"), name)
        try:
            while plain := stream.read(_STEP_BYTES):
                yield plain
        except (OSError, MemoryError, pa.ArrowException) as error:
            health.cut(f"the {name} data are damaged or cut off ({error})")

    return unpack


_XZ, _BZIP2 = b"\xfd7zXZ\x00", b"BZh"
_UNPACKERS: tuple[tuple[bytes, Unpack], ...] = (
    (_XZ, _of_the_standard_library("xz", _XZ, _xz)),
    (b"\x28\xb5\x2f\xfd", _of_arrow("zstd")),
    (b"\x04\x22\x4d\x18", _of_arrow("lz4")),
)
_BZIP2_UNPACK = _of_the_standard_library("bzip2", _BZIP2, _bzip2)
_BZIP2_BLOCKS = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")
HEAD_BYTES = 10


def unpacker_of(head: bytes) -> Unpack | None:
    """Return what unpacks data that begin with ``head``; None if they are in no such packing."""
    if head.startswith(_BZIP2) and head[3:4].isdigit():
        # A text may begin with these letters, but not with the mark of a block behind them.
        return _BZIP2_UNPACK if any(mark.startswith(head[4:10]) for mark in _BZIP2_BLOCKS) else None
    return next((unpack for magic, unpack in _UNPACKERS if head.startswith(magic)), None)


def foreign_packing(head: bytes) -> str:
    return next((name for magic, name in _FOREIGN.items() if head.startswith(magic)), "")
