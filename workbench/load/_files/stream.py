"""Bytes of one trace file as a stream: unpacked on the way, honest about damage."""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from workbench.errors import LoadError

GZIP_MAGIC = b"\x1f\x8b\x08"
BLOCK_BYTES = 1 << 20
# Enough to recognize a format: many files are opened for no more. The system has to clear the
# memory of larger pieces for each file, which takes longer than to read them.
_LOOK_BYTES = 1 << 16
# Up to here a bomb does no harm, and small files may be mostly padding.
_ALWAYS_ALLOWED_BYTES = 1 << 30
# Flags of RFC 1952, section 2.3.1.
_GZIP_HEADER_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16


# Archives that nothing here can open.
_FOREIGN = {b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!\x1a\x07": "rar"}
# Endings of names that say that a file is packed; what it is, its first bytes say.
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".lz4")
# Bytes that are given to a decoder at once: those of one step are lost where it stumbles.
_STEP_BYTES = 1 << 12
# Headers may claim any size of dictionary; `xz -9` takes 65 MiB.
_MOST_MEMORY_BYTES = 1 << 28
_HEAD_BYTES = 10  # the longest mark of a packing: bzip2 and its first block


class DamagedError(LoadError):
    """The bytes of a file are not those that were written, whatever they were meant to say."""


def plain_name(name: str) -> str:
    """Return the name of a file without the endings of its packings."""
    while name.lower().endswith(PACKED_SUFFIXES):
        name = name.rpartition(".")[0]
    return name


@dataclass
class Health:
    """Problems while bytes were read: filled in as the stream goes."""

    is_cut: bool = False
    is_wrong: bool = False
    notes: list[str] = field(default_factory=list)

    def cut(self, note: str) -> None:
        self.is_cut = True
        self.notes.append(note)

    def wrong(self, note: str) -> None:
        self.is_wrong = True
        self.notes.append(note)


class Stream(io.BufferedIOBase):
    """Unpacked bytes of one file or archive member, read from front to back.

    ``readinto`` fills the buffer unless the content ends. Damage never raises: what is readable is
    given, then the stream ends, and ``truncated_at`` and ``notes`` say where and why. More content
    than ``allowed_bytes`` is refused as a decompression bomb; None allows any amount.
    """

    def __init__(
        self,
        blocks: Iterator[bytes | memoryview],
        *,
        label: str,
        health: Health,
        file: io.IOBase | None = None,
        allowed_bytes: float | None = None,
    ) -> None:
        super().__init__()
        self.name = label
        self._blocks = blocks
        self._health = health
        self._file = file
        self._allowed_bytes = allowed_bytes
        self._rest = memoryview(b"")
        self._given_bytes = 0
        self._ended = False

    @property
    def truncated_at(self) -> int | None:
        """Number of readable bytes if the content is cut off, known once the end is reached."""
        return self._given_bytes if self._health.is_cut and self._ended else None

    @property
    def is_damaged(self) -> bool:
        return self._health.is_cut or self._health.is_wrong

    @property
    def notes(self) -> list[str]:
        return list(self._health.notes)

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._given_bytes

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` and return how many bytes were written; fewer only at the end."""
        target = memoryview(buffer).cast("B")
        done = 0
        while done < len(target) and self._has_rest():
            piece = self._take(len(target) - done)
            target[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, or everything left if it is negative or None."""
        pieces = []
        left = -1 if size is None else size
        while left != 0 and self._has_rest():
            piece = self._take(left if left > 0 else len(self._rest))
            pieces.append(bytes(piece))
            left -= len(piece) if left > 0 else 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        return bytes(self._take(size if size >= 0 else BLOCK_BYTES)) if self._has_rest() else b""

    def has_more(self) -> bool:
        """Return whether a byte is left, without moving on."""
        return self._has_rest()

    def skip(self, size_bytes: int) -> int:
        done = 0
        while done < size_bytes and self._has_rest():
            done += len(self._take(size_bytes - done))
        return done

    def close(self) -> None:
        self._rest = memoryview(b"")
        self._blocks = iter(())
        self._ended = True
        if self._file is not None:
            self._file.close()
        super().close()

    def _take(self, size: int) -> memoryview:
        piece, self._rest = self._rest[:size], self._rest[size:]
        self._given_bytes += len(piece)
        return piece

    def _has_rest(self) -> bool:
        while not self._rest and not self._ended:
            block = next(self._blocks, None)
            self._ended = block is None
            self._rest = memoryview(block or b"")
            self._guard()
        return bool(self._rest)

    def _guard(self) -> None:
        seen = self._given_bytes + len(self._rest)
        if self._allowed_bytes is not None and seen > self._allowed_bytes:
            msg = (
                f"{self.name}: unpacks to more than {self._allowed_bytes / 2**30:.1f} GiB, far "
                "more than a trace of its packed size. If you trust it, unpack it yourself, or "
                "list it with workbench.load._files.archive.sources(..., expansion_limit=None)"
            )
            raise DamagedError(msg)


def opened(
    blocks: Iterator[bytes],
    health: Health,
    *,
    label: str,
    file: io.IOBase | None,
    packed_bytes: int,
    expansion_limit: float | None,
) -> Stream:
    """Make a stream of blocks that may be packed; ``file`` is closed with it, or if that fails."""
    # How much content so many bytes may unpack to before they count as a bomb.
    limit = None
    if expansion_limit is not None:
        limit = max(_ALWAYS_ALLOWED_BYTES, packed_bytes * expansion_limit)
    try:
        content = unpacked(blocks, health, label=label)
        return Stream(content, label=label, health=health, file=file, allowed_bytes=limit)
    except BaseException:
        if file is not None:
            file.close()
        raise


def open_file(path: Path, label: str, expansion_limit: float | None) -> Stream:
    health, size = Health(), path.stat().st_size
    file = path.open("rb", buffering=0)
    blocks = file_blocks(file, 0, None, health)
    return opened(
        blocks, health, label=label, file=file, packed_bytes=size, expansion_limit=expansion_limit
    )


def file_blocks(file: BinaryIO, start: int, length: int | None, health: Health) -> Iterator[bytes]:
    file.seek(start)
    left = length
    while left is None or left > 0:
        block = file.read(_LOOK_BYTES if left is None else min(left, _LOOK_BYTES))
        if not block:
            if left:
                health.cut(f"the file ends {left:,} bytes too early")
            return
        left = None if left is None else left - len(block)
        yield block


def stream_blocks(stream: Stream, length: int, health: Health) -> Iterator[bytes]:
    left = length
    while left > 0:
        block = stream.read(min(left, BLOCK_BYTES))
        if not block:
            health.cut(f"the archive ends {left:,} bytes too early")
            return
        left -= len(block)
        yield block


class Feed:
    """Packed blocks that can be looked at ahead and partly put back."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held = b""
        self._at = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        held, self._held, self._at = self._held[self._at :], b"", 0
        return held or next(self._blocks)

    def put_back(self, data: bytes) -> None:
        self._held, self._at = data + self._held[self._at :], 0

    def head(self, size_bytes: int) -> bytes:
        """Return the next bytes, fewer only at the end, without moving on."""
        while len(self._held) - self._at < size_bytes and (block := next(self._blocks, b"")):
            self._held, self._at = self._held[self._at :] + block, 0
        return self._held[self._at : self._at + size_bytes]

    def drop(self, size_bytes: int) -> None:
        self._at += len(self.head(size_bytes))


def unpacked(blocks: Iterator[bytes], health: Health, *, label: str) -> Iterator[bytes]:
    """Unpack ``blocks`` if they start like a packing; pass them on as they are otherwise.

    Files that were packed twice exist (a download that packed again): two layers are taken off.
    """
    feed = Feed(blocks)
    for _layer in range(2):
        head = feed.head(_HEAD_BYTES)
        unpack = gunzip if head.startswith(GZIP_MAGIC) else unpacker_of(head)
        if unpack is None:
            break
        feed = Feed(unpack(feed, health))
    head = feed.head(_HEAD_BYTES)
    if packing := next((_FOREIGN[magic] for magic in _FOREIGN if head.startswith(magic)), ""):
        msg = f"{label}: packed with {packing}, which cannot be read; unpack it or use gzip"
        raise LoadError(msg)
    while feed.head(6) == 2 * BOM_UTF8:  # readers know one mark; some programs leave several
        feed.drop(3)
    return feed


def is_packed(head: bytes) -> bool:
    return head.startswith(GZIP_MAGIC) or unpacker_of(head) is not None


def gunzip(feed: Feed, health: Health) -> Iterator[bytes]:
    """Unpack gzip data of one or more members; NUL padding and a foreign tail are noted."""
    while True:
        try:
            _skip_gzip_header(feed)
        except EOFError:
            health.cut("the gzip data end inside a header")
            return
        summary = yield from inflate(feed, health)
        if health.is_cut:
            return
        trailer = feed.head(8)
        feed.drop(8)
        # RFC 1952 keeps the size modulo 2**32.
        if trailer != struct.pack("<II", summary.crc, summary.size_bytes & 0xFFFFFFFF):
            health.wrong("a gzip checksum does not match: the content may be damaged")
        if not _goes_on(feed, health):
            return


# Tape tools pad with NUL bytes; anything else behind the last gzip member is foreign.
def _goes_on(feed: Feed, health: Health) -> bool:
    padding = 0
    while (tail := feed.head(_LOOK_BYTES)).startswith(b"\0"):
        nuls = len(tail) - len(tail.lstrip(b"\0"))
        padding += nuls
        feed.drop(nuls)
    if padding:
        health.notes.append(f"{padding:,} NUL bytes of padding after gzip data were ignored")
    if not tail or tail.startswith(GZIP_MAGIC):
        return bool(tail)
    ignored = sum(len(block) for block in feed)
    health.notes.append(f"{ignored:,} bytes after the end of the gzip data were ignored")
    return False


# RFC 1952, section 2.3: optional fields follow the ten bytes that every header has.
def _skip_gzip_header(feed: Feed) -> None:
    flags = _need(feed, 10)[3]
    feed.drop(10)
    if flags & _GZIP_EXTRA:
        feed.drop(2 + int.from_bytes(_need(feed, 2), "little"))
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        while flags & flag:
            text = _need(feed, 1) and feed.head(_LOOK_BYTES)
            feed.drop(text.find(b"\0") + 1 or len(text))
            if b"\0" in text:
                break
    if flags & _GZIP_HEADER_CRC:
        feed.drop(2)


def _need(feed: Feed, size_bytes: int) -> bytes:
    if len(data := feed.head(size_bytes)) < size_bytes:
        raise EOFError
    return data


@dataclass(frozen=True)
class Summary:
    """Size and checksum of unpacked bytes, to compare with those that the file states."""

    crc: int
    size_bytes: int


def inflate(feed: Feed, health: Health) -> Generator[bytes, None, Summary]:
    """Unpack one raw deflate stream and leave ``feed`` behind its last byte."""
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    crc = size = packed = 0
    while not engine.eof:
        data = engine.unconsumed_tail or next(feed, b"")
        safe = engine.copy()
        try:
            # Bounded, because one block may unpack to a thousand times its size.
            plain = engine.decompress(data, BLOCK_BYTES) if data else engine.flush()
        except zlib.error as error:
            yield from _salvage(safe, data)
            health.cut(f"the packed data are damaged near packed byte {packed:,} ({error})")
            break
        packed += len(data) - len(engine.unconsumed_tail) - len(engine.unused_data)
        crc, size = zlib.crc32(plain, crc), size + len(plain)
        if plain:
            yield plain
        if not data and not engine.eof:
            health.cut(f"the packed data end in the middle, after {packed:,} packed bytes")
            break
    feed.put_back(engine.unused_data)
    return Summary(crc, size)


def checked(blocks: Iterator[bytes], health: Health, crc: int) -> Iterator[bytes]:
    """Pass on the content of a zip member and compare its checksum at the end."""
    seen = 0
    for block in blocks:
        seen = zlib.crc32(block, seen)
        yield block
    if not health.is_cut and seen != crc:
        health.wrong("the zip checksum does not match: the content may be damaged")


# Where some byte is wrong, halving the step finds the last good one before it.
def _salvage(engine: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    step = len(data)
    while data and step:
        safe = engine.copy()
        try:
            plain = engine.decompress(data[:step], BLOCK_BYTES)
        except zlib.error:
            engine = safe
            step //= 2
            continue
        data = engine.unconsumed_tail + data[step:]
        if plain:
            yield plain


# Packings other than gzip, unpacked block by block.


def _of_the_standard_library(name: str, magic: bytes, make: Callable[[], Any]) -> Unpack:
    def unpack(feed: Feed, health: Health) -> Iterator[bytes]:
        while True:
            # Parallel packers write bzip2 and xz files of several streams, one after the other.
            engine = make()
            try:
                yield from _one_stream(engine, feed)
            except (EOFError, OSError, lzma.LZMAError, MemoryError) as error:
                reason = str(error) or "the data end in the middle"
                health.cut(f"the {name} data are damaged or cut off ({reason})")
                return
            feed.put_back(engine.unused_data)
            tail = feed.head(1 << 16)
            if not tail.startswith(magic):
                if tail.strip(b"\0"):
                    health.notes.append(f"bytes after the end of the {name} data were ignored")
                return

    return unpack


def _one_stream(engine: Any, feed: Feed) -> Iterator[bytes]:
    while not engine.eof:
        data = b""
        if engine.needs_input:
            block = next(feed, b"")
            if not block:
                raise EOFError
            data, later = block[:_STEP_BYTES], block[_STEP_BYTES:]
            if later:
                feed.put_back(later)
        if plain := engine.decompress(data, BLOCK_BYTES):
            yield plain


class _Readable(io.RawIOBase):
    def __init__(self, feed: Feed) -> None:
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


# Arrow, because the standard library has neither; its streams go on where one ends.
def _of_arrow(name: str) -> Unpack:
    def unpack(feed: Feed, health: Health) -> Iterator[bytes]:
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(_Readable(feed), "r"), name)
        try:
            while plain := stream.read(_STEP_BYTES):
                yield plain
        except (OSError, MemoryError, pa.ArrowException) as error:
            health.cut(f"the {name} data are damaged or cut off ({error})")

    return unpack


_XZ, _BZIP2 = b"\xfd7zXZ\x00", b"BZh"
_XZ_ENGINE = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _MOST_MEMORY_BYTES)
Unpack = Callable[[Feed, Health], Iterator[bytes]]
_UNPACKERS: tuple[tuple[bytes, Unpack], ...] = (
    (_XZ, _of_the_standard_library("xz", _XZ, _XZ_ENGINE)),
    (b"\x28\xb5\x2f\xfd", _of_arrow("zstd")),
    (b"\x04\x22\x4d\x18", _of_arrow("lz4")),
)
_BZIP2_UNPACK = _of_the_standard_library("bzip2", _BZIP2, bz2.BZ2Decompressor)
_BZIP2_BLOCKS = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")


def unpacker_of(head: bytes) -> Unpack | None:
    """Return what unpacks data that begin with ``head``; None if they are in no such packing."""
    if head.startswith(_BZIP2) and head[3:4].isdigit():
        # A text may begin with these letters, but not with the mark of a block behind them.
        return _BZIP2_UNPACK if any(mark.startswith(head[4:10]) for mark in _BZIP2_BLOCKS) else None
    return next((unpack for magic, unpack in _UNPACKERS if head.startswith(magic)), None)
