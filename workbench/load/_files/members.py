"""What an archive holds, and where: read from its headers, never trusted, never extracted."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from workbench.errors import LoadError
from workbench.load._files.appearance import printable
from workbench.load._files.stream import (
    GZIP_MAGIC,
    Feed,
    Health,
    Stream,
    inflate,
    is_packed,
    open_file,
)

HEAD_BYTES = 512
_MAX_HEADER_BYTES = 1 << 20
TYPICAL_EXPANSION = 12
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_LOCAL_HEADER_BYTES = 30
# What the standard library raises on purpose or by accident for damaged headers.
_HEADER_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    struct.error,
    ArithmeticError,
    EOFError,
    LookupError,
    NotImplementedError,  # zipfile: a compression, encryption or version that it does not know
    RecursionError,
    ValueError,
)

Kind = Literal["tar", "tar.gz", "zip"]


@dataclass(frozen=True)
class Place:
    """Where the bytes of a member are.

    ``layer`` says what lies around them: the range counts bytes of the archive
    file itself (plain, or deflate if the member is packed by itself), or bytes
    of the unpacked archive (gzip).
    """

    start: int
    length: int
    layer: Literal["plain", "gzip", "deflate"]
    crc: int | None = None


@dataclass(frozen=True)
class Member:
    """One entry of an archive: its place and first bytes, or why it is refused."""

    name: str
    size_bytes: int = 0
    place: Place | None = None
    head: bytes = b""
    refusal: str = ""
    is_cut: bool = False


def archive_kind(path: Path, expansion_limit: float | None) -> Kind | None:
    """Recognise an archive by its first bytes; None if ``path`` is none."""
    with path.open("rb") as file:
        raw = file.read(HEAD_BYTES)
    if raw.startswith(_ZIP_MAGICS):
        return "zip"
    if not is_packed(raw):
        return "tar" if _is_tar(raw) else None
    with open_file(path, str(path), expansion_limit) as stream:
        return "tar.gz" if _is_tar(stream.read(HEAD_BYTES)) else None


def members(path: Path, kind: Kind, expansion_limit: float | None) -> Iterator[Member]:
    """List the members of an archive in the order they are stored.

    An entry with ``is_cut`` set is given if the archive breaks off.

    Raises
    ------
    LoadError
        If the archive cannot be read at all.
    """
    if kind == "zip":
        return _zip_members(path)
    return _tar_members(path, kind, expansion_limit)


def _is_tar(head: bytes) -> bool:
    if len(head) < tarfile.BLOCKSIZE:
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except _HEADER_ERRORS:
        return head[257:262] == b"ustar"
    return True


def _tar_members(path: Path, kind: Kind, expansion_limit: float | None) -> Iterator[Member]:
    layer: Literal["plain", "gzip"] = "plain" if kind == "tar" else "gzip"
    with (
        open_file(path, str(path), expansion_limit) if kind == "tar.gz" else path.open("rb") as raw
    ):
        reader = _TarReader(raw)
        count = 0

        try:
            with tarfile.open(fileobj=reader, mode="r:") as archive:
                while (info := archive.next()) is not None:
                    count += 1
                    yield _tar_member(info, reader, layer)
        except LoadError:
            raise
        except _HEADER_ERRORS as error:
            yield Member(
                "",
                refusal=f"the archive is damaged or cut off {_after(count)}: {error}",
                is_cut=True,
            )
            return
        if reason := reader.unfinished():
            yield Member("", refusal=f"the archive {reason} {_after(count)}", is_cut=True)


def _after(count: int) -> str:
    return f"after {count} member{'s' * (count != 1)}"


def _tar_member(
    info: tarfile.TarInfo, reader: _TarReader, layer: Literal["plain", "gzip"]
) -> Member:
    name = printable(info.name)
    if not info.isreg() or info.issparse():
        kind = {"1": "a hard link", "2": "a symbolic link", "5": ""}.get(
            info.type.decode("latin-1"), "a device, pipe or sparse file"
        )
        return Member(name, refusal=f"is {kind}, which is never followed" if kind else "")
    if reason := _unsafe(info.name):
        return Member(name, refusal=reason)
    head = reader.read(min(info.size, HEAD_BYTES))
    if info.size and not head:
        return Member(name, refusal="nothing of it is left: the archive is cut off", is_cut=True)
    return Member(name, info.size, Place(info.offset_data, info.size, layer), head)


class _TarReader(io.RawIOBase):
    """Reads forward only and in small pieces, whatever the headers claim."""

    def __init__(self, raw: BinaryIO | Stream) -> None:
        super().__init__()
        self._raw = raw
        self._last = b"\0"

    def tell(self) -> int:
        return self._raw.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        step = offset - self.tell()
        if whence or step < 0:
            msg = "a header points backwards"
            raise tarfile.ReadError(msg)
        if isinstance(self._raw, Stream):
            self._raw.skip(step)
        else:
            self._skip(step)
        return self.tell()

    def _skip(self, step: int) -> None:
        try:
            self._raw.seek(step, io.SEEK_CUR)
        except (OSError, OverflowError) as error:
            msg = f"a header claims {step:,} bytes"
            raise tarfile.ReadError(msg) from error

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _MAX_HEADER_BYTES:
            msg = f"a header claims {-1 if size is None else size:,} bytes"
            raise tarfile.ReadError(msg)
        self._last = self._raw.read(size)
        return self._last

    def unfinished(self) -> str:
        """Say why the last block that was read is no proper end of an archive."""
        if len(self._last) < tarfile.BLOCKSIZE:
            is_empty = not self._last and not (isinstance(self._raw, Stream) and self._raw.notes)
            return "" if is_empty else "is cut off"
        return "has a damaged header" if any(self._last) else ""


def _zip_members(path: Path) -> Iterator[Member]:
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for info in archive.infolist():
                yield _zip_member(info, file)
    except LoadError:
        raise
    except _HEADER_ERRORS as error:
        msg = (
            f"{path}: the zip archive has no readable directory at its end ({error}); it was "
            "probably cut off: copy it again, or repair it with 'zip -FF'"
        )
        raise LoadError(msg) from error


def _zip_member(info: zipfile.ZipInfo, file: BinaryIO) -> Member:
    name = printable(info.filename)
    if info.is_dir():
        return Member(name)
    if reason := _unsafe(info.filename) or _unreadable(info):
        return Member(name, refusal=reason)
    file.seek(info.header_offset)
    header = file.read(_ZIP_LOCAL_HEADER_BYTES)
    if len(header) < _ZIP_LOCAL_HEADER_BYTES or not header.startswith(_ZIP_MAGICS[0]):
        return Member(name, refusal="has a damaged header")
    start = info.header_offset + len(header) + sum(struct.unpack("<HH", header[26:30]))
    layer: Literal["plain", "deflate"] = "deflate" if info.compress_type else "plain"
    place = Place(start, info.compress_size, layer, info.CRC)
    return Member(name, info.file_size, place, _zip_head(place, file))


def _zip_head(place: Place, file: BinaryIO) -> bytes:
    file.seek(place.start)
    packed = file.read(min(place.length, HEAD_BYTES * 8))
    if place.layer == "plain":
        return packed[:HEAD_BYTES]
    return next(inflate(Feed(iter([packed])), Health()), b"")[:HEAD_BYTES]


def _unreadable(info: zipfile.ZipInfo) -> str:
    """Say why the standard tools could not unpack a zip member; '' if they could."""
    if info.flag_bits & 0x1:
        return "is encrypted; unpack the archive first"
    if (info.external_attr >> 28) == 0xA:
        return "is a symbolic link, which is never followed"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"uses zip method {info.compress_type}, which cannot be read; unpack it first"
    return ""


def _unsafe(name: str) -> str:
    """Say why a member's name is refused; '' if it is a plain relative path."""
    parts = name.replace("\\", "/").split("/")
    if parts[0] == "" or ":" in parts[0] or ".." in parts:
        return "has a path that leads out of the archive"
    return ""


def unusable(file: Path) -> str:
    """Say why a path cannot hold a trace at all; '' if it can."""
    if not file.is_file():
        return "is not a regular file"
    return "" if file.stat().st_size else "is empty; get the file again"


def unpacked_size(file: Path) -> int:
    """Return the size of the content; for gzip the size it states, or an estimate."""
    size = file.stat().st_size
    with file.open("rb") as packed:
        head = packed.read(HEAD_BYTES)
        if not head.startswith(GZIP_MAGIC):
            return size * (TYPICAL_EXPANSION if is_packed(head) else 1)
        packed.seek(-min(4, size), os.SEEK_END)
        stated = int.from_bytes(packed.read(4), "little")
    # The stated size counts modulo 2**32, and of the last gzip member only.
    return stated if size <= stated <= size * 1032 else size * TYPICAL_EXPANSION
