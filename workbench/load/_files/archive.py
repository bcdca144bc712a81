"""Where files come from: single ones, lists, directories and archives; nothing is extracted."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Literal

from workbench.errors import LoadError
from workbench.load._files import stream as unpacking
from workbench.load._files.findings import Dropped, Remark, listed
from workbench.load._files.stream import GZIP_MAGIC, DamagedError, Feed, Health, Stream
from workbench.load._files.wanted import (
    ARCHIVE_SUFFIXES,
    GIVEN_BEFORE,
    HARMLESS_REASONS,
    REPLACED,
    TRACES,
    Wanted,
    identity,
    printable,
)

# Traces unpack to about 12 times their size; deflate reaches 1,032 times.
EXPANSION_LIMIT = 200.0
_HEAD_BYTES = 8192  # with the properties of eight GPUs before the events


@dataclass(frozen=True)
class Source:
    """One file, or one member of an archive, that a loader can open.

    A source is plain data: it can be sent to a worker process and opened there.
    """

    label: str
    path: Path
    member: str = ""
    size_bytes: int = 0
    expansion_limit: float | None = EXPANSION_LIMIT
    place: Place | None = field(default=None, repr=False)
    part: int | None = None  # the process of one rank, in a file with several
    # How a file of plain JSON begins, seen when it was listed; of others nothing.
    start: bytes = field(default=b"", repr=False, compare=False)

    def open(self) -> Stream:
        """Open the content, unpacked, from its beginning.

        After the end of the stream, ``truncated_at`` and ``notes`` report damage.
        """
        if self.place is not None and self.place.layer == "gzip":
            outer = unpacking.open_file(self.path, str(self.path), self.expansion_limit)
            outer.skip(self.place.start)
            return _checked(_inner(self, outer))
        return _checked(_stream(self))

    def head(self, size_bytes: int = _HEAD_BYTES) -> bytes:
        if size_bytes <= len(self.start):
            return self.start[:size_bytes]
        with self.open() as stream:
            return stream.read(size_bytes)


@dataclass(frozen=True)
class Survey:
    """Contents of a path: files that can be opened, and those that were skipped."""

    sources: list[Source] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    wanted: Wanted = TRACES

    def pass_over(self, label: str, reason: str) -> None:
        """Note what is not taken: skipped by design if it is not wanted, dropped if it may be."""
        finding: Literal["skipped by design", "dropped"] = (
            "skipped by design" if reason in HARMLESS_REASONS else "dropped"
        )
        self.remarks.append(Remark(label, finding, reason))


def sources(path: Paths, *, expansion_limit: float | None = EXPANSION_LIMIT) -> list[Source]:
    return survey(path, expansion_limit=expansion_limit).sources


def survey(
    path: Paths, *, expansion_limit: float | None = EXPANSION_LIMIT, wanted: Wanted = TRACES
) -> Survey:
    """List the files under a path that may be wanted, and those that were skipped and why.

    Archives (tar, packed or not, or zip) are recognised by content. A file may unpack to
    ``expansion_limit`` times its packed size (beyond 1 GiB) before it is refused as a decompression
    bomb; None lifts the limit. Files come in order of name, members in the order of the archive.
    """
    result, entries = Survey(wanted=wanted), given_paths(path)
    seen: set[str] = set()
    folders: dict[Path, str] = {}
    for entry in map(Path, entries):
        for file, is_named in _files(entry, result.remarks):
            # Links give one file several names; read twice, its rank would be there twice.
            if (real := _real(file, folders)) in seen:
                result.pass_over(shown(file), GIVEN_BEFORE)
                continue
            seen.add(real)
            _add(result, file, is_named=is_named, expansion_limit=expansion_limit)
    if not result.sources:
        why = listed([remark.row for remark in result.remarks])
        msg = f"{shown_all(entries)}: no {result.wanted.noun} found{why}"
        raise LoadError(msg)
    return result


def streams(
    wanted: Iterable[Source], dropped: Dropped | None = None
) -> Iterator[tuple[Source, Stream]]:
    """Open one source after the other; members of one tar.gz in a single pass.

    Opening the last member of a tar.gz by itself unpacks all that is before it. Each stream is
    closed when the next is requested. Sources that cannot be opened raise without ``dropped``.
    """
    walk = Walk()
    try:
        for source in wanted:
            with nullcontext() if dropped is None else dropped.trying(source.label):
                stream = walk.opened(source)
                try:
                    yield source, stream
                finally:
                    stream.close()
    finally:
        walk.close()


# Opening every member by itself would unpack all that is before it once per member.
class Walk:
    def __init__(self) -> None:
        self._outer: Stream | None = None
        self._path: Path | None = None

    def opened(self, source: Source) -> Stream:
        place = source.place
        if place is None or place.layer != "gzip":
            return source.open()
        outer = self._outer
        # A stream only goes forward: what lies before is reached by opening the archive again.
        if outer is None or self._path != source.path or outer.tell() > place.start:
            self.close()
            outer = unpacking.open_file(source.path, str(source.path), source.expansion_limit)
            self._outer, self._path = outer, source.path
        outer.skip(place.start - outer.tell())
        return _checked(_inner(source, outer, owns=False))

    def close(self) -> None:
        if self._outer is not None:
            self._outer.close()
        self._outer = None


def _stream(source: Source) -> Stream:
    """Open a file, or a member that is a range of the file's own bytes."""
    place = source.place
    if place is None:
        return unpacking.open_file(source.path, source.label, source.expansion_limit)
    health = Health()
    file = source.path.open("rb", buffering=0)
    blocks: Iterator[bytes] = unpacking.file_blocks(file, place.start, place.length, health)
    if place.layer == "deflate":
        blocks = unpacking.inflate(Feed(blocks), health)
    if place.crc is not None:
        blocks = unpacking.checked(blocks, health, place.crc)
    return _opened(source, blocks, health, file)


def _inner(source: Source, outer: Stream, *, owns: bool = True) -> Stream:
    """Open the member that begins where ``outer`` stands."""
    health = Health()
    blocks = unpacking.stream_blocks(outer, source.place.length if source.place else 0, health)
    return _opened(source, blocks, health, outer if owns else None)


def _opened(
    source: Source, blocks: Iterator[bytes], health: Health, file: io.IOBase | None
) -> Stream:
    packed, limit = source.place.length if source.place else 0, source.expansion_limit
    return unpacking.opened(
        blocks, health, label=source.label, file=file, packed_bytes=packed, expansion_limit=limit
    )


def _checked(stream: Stream) -> Stream:
    try:
        if stream.has_more():
            return stream
        notes = "".join(f"; {note}" for note in stream.notes)
        msg = f"{stream.name}: is empty or contains nothing readable{notes}; get the file again"
        raise DamagedError(msg)
    except BaseException:
        stream.close()
        raise


def _files(entry: Path, remarks: list[Remark]) -> Iterator[tuple[Path, bool]]:
    if not entry.is_dir():
        if not entry.exists():
            msg = f"{shown(entry)}: there is no such file or directory"
            raise FileNotFoundError(msg)
        yield entry, True
        return

    def unreadable(error: OSError) -> None:
        reason = f"cannot be read: {error.strerror}"
        remarks.append(Remark(shown(error.filename), "dropped", reason))

    for folder, subfolders, names in os.walk(entry, onerror=unreadable):
        # In place, because os.walk follows this list; ranks that nothing states go by this order.
        subfolders.sort()
        for name in sorted(names):
            yield Path(folder, name), False


def _real(file: Path, folders: dict[Path, str]) -> str:
    """Return the path of a file without links; ``folders`` keeps those of folders."""
    if file.is_symlink():
        return os.path.realpath(file)
    folder = file.parent
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], file.name)  # noqa: PTH118 - compared, not opened


def _add(survey: Survey, file: Path, *, is_named: bool, expansion_limit: float | None) -> None:
    """Add one file, or the members of one archive; only what is named itself may raise."""
    label = shown(file)
    source = Source(label, file, expansion_limit=expansion_limit)
    try:
        packed_bytes, reason = _regular_size(file)
        head = b"" if reason else _raw_head(file, _HEAD_BYTES)
        reason = reason or ("" if is_named else _implausible(survey, source, head))
        if not reason:
            may_be_archive = is_named or file.name.lower().endswith(ARCHIVE_SUFFIXES)
            if may_be_archive and (kind := archive_kind(file, expansion_limit)):
                # Workbooks and checkpoints are archives, too.
                reason = identity(b"", file.name).removeprefix("it ")
                if not reason:
                    _add_members(survey, source, kind)
            else:
                start = head if head.startswith(_PLAIN_STARTS) else b""
                size = _unpacked_size(file, head, packed_bytes)
                survey.sources.append(
                    Source(label, file, "", size, expansion_limit, None, None, start)
                )
    except (LoadError, OSError) as error:
        if is_named:
            raise
        reason = str(error).removeprefix(f"{label}: ")
    if reason and is_named:
        msg = f"{label}: {reason}"
        raise LoadError(msg)
    if reason:
        survey.pass_over(label, reason)


def _add_members(survey: Survey, archive: Source, kind: Kind) -> None:
    # Of members with one name the last one counts, as it does for tar.
    latest: dict[str, Source] = {}
    for member in members(archive.path, kind, archive.expansion_limit):
        label = f"{archive.label}!{shown(member.name)}" if member.name else archive.label
        if member.is_cut:
            survey.remarks.append(Remark(label, "truncated", member.refusal))
            continue
        reason = member.refusal
        if member.place is not None:
            reason = survey.wanted.refused(member.name, member.head)
        if reason:
            survey.pass_over(label, reason)
        elif member.place is not None:
            if member.name in latest:
                survey.pass_over(label, REPLACED)
            growth = TYPICAL_EXPANSION if unpacking.is_packed(member.head) else 1
            size = member.size_bytes * growth
            latest[member.name] = replace(
                archive, label=label, member=member.name, size_bytes=size, place=member.place
            )
    survey.sources.extend(latest.values())


def _implausible(survey: Survey, source: Source, head: bytes) -> str:
    name = source.path.name
    if name.lower().endswith(ARCHIVE_SUFFIXES) and not name.startswith("."):
        return ""
    is_plain = head.startswith(_PLAIN_STARTS)
    return survey.wanted.refused(name, head if is_plain else source.head(HEAD_BYTES))


HEAD_BYTES = 512
# JSON that is not packed begins as the file does; anything else is opened to unpack it.
_PLAIN_STARTS = (b"{", b"[")
# Headers of tar files with long names take a few KiB.
_MAX_HEADER_BYTES = 1 << 20
TYPICAL_EXPANSION = 12
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_LOCAL_HEADER_BYTES = 30
# What the standard library raises on purpose or by accident for damaged headers.
_HEADER_ERRORS = (
    tarfile.TarError, zipfile.BadZipFile, struct.error, ArithmeticError, EOFError, LookupError,
    NotImplementedError,  # zipfile: a compression, encryption or version that it does not know
    RecursionError, ValueError,
)  # fmt: skip

Kind = Literal["tar", "tar.gz", "zip"]


@dataclass(frozen=True)
class Place:
    """Where the bytes of a member are.

    ``layer`` says what lies around them: the range counts bytes of the archive file itself (plain,
    or deflate if the member is packed by itself), or bytes of the unpacked archive (gzip).
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
    raw = _raw_head(path)
    if raw.startswith(_ZIP_MAGICS):
        return "zip"
    if not unpacking.is_packed(raw):
        return "tar" if _is_tar(raw) else None
    with unpacking.open_file(path, str(path), expansion_limit) as stream:
        return "tar.gz" if _is_tar(stream.read(HEAD_BYTES)) else None


def members(path: Path, kind: Kind, expansion_limit: float | None) -> Iterator[Member]:
    """List the members of an archive in the order they are stored.

    An entry with ``is_cut`` set is given if the archive breaks off.
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
        # The header is damaged, but this is a tar file: its damage deserves an error of its own.
        return head[257:262] == b"ustar"
    return True


def _tar_members(path: Path, kind: Kind, expansion_limit: float | None) -> Iterator[Member]:
    layer: Literal["plain", "gzip"] = "plain" if kind == "tar" else "gzip"
    is_packed = kind == "tar.gz"
    opened = unpacking.open_file(path, str(path), expansion_limit) if is_packed else path.open("rb")
    with opened as raw:
        reader, count = _TarReader(raw), 0
        try:
            # "r:" keeps tarfile from unpacking by itself, past the guard of the stream.
            with tarfile.open(fileobj=reader, mode="r:") as archive:
                while (info := archive.next()) is not None:
                    count += 1
                    yield _tar_member(info, reader, layer)
            reason = reader.unfinished()
        except LoadError:
            raise
        except _HEADER_ERRORS as error:
            reason, why = "is damaged or cut off", f": {error}"
        else:
            why = ""
        if reason:
            after = f"after {count} member{'s' * (count != 1)}"
            yield Member("", refusal=f"the archive {reason} {after}{why}", is_cut=True)


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
    # tarfile stands behind the header now, so the content comes next.
    head = reader.read(min(info.size, HEAD_BYTES))
    if info.size and not head:
        return Member(name, refusal="nothing of it is left: the archive is cut off", is_cut=True)
    return Member(name, info.size, Place(info.offset_data, info.size, layer), head)


# Headers are hostile: reading goes forward only and in small pieces, whatever they claim.
class _TarReader(io.RawIOBase):
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
        """Explain why the last block that was read is not a proper end of an archive."""
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
    # Name and extra field lie between the local header and the content.
    start = info.header_offset + len(header) + sum(struct.unpack("<HH", header[26:30]))
    file.seek(start)
    # Far more than unpacking the first HEAD_BYTES takes, even of content that hardly shrinks.
    head = file.read(min(info.compress_size, HEAD_BYTES * 8))
    layer: Literal["plain", "deflate"] = "deflate" if info.compress_type else "plain"
    if layer == "deflate":
        head = next(unpacking.inflate(Feed(iter([head])), Health()), b"")
    place = Place(start, info.compress_size, layer, info.CRC)
    return Member(name, info.file_size, place, head[:HEAD_BYTES])


def _unreadable(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & 0x1:
        return "is encrypted; unpack the archive first"
    # The upper half holds the mode of Unix; 0xA is that of a link.
    if (info.external_attr >> 28) == 0xA:
        return "is a symbolic link, which is never followed"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"uses zip method {info.compress_type}, which cannot be read; unpack it first"
    return ""


# Members are never extracted, but their names are shown and decide ranks, so odd paths are refused.
def _unsafe(name: str) -> str:
    folders = name.replace("\\", "/").split("/")
    if folders[0] == "" or ":" in folders[0] or ".." in folders:
        return "has a path that leads out of the archive"
    return ""


def _regular_size(file: Path) -> tuple[int, str]:
    """Return the size of a file, and why it cannot be used, or nothing."""
    if not file.is_file():
        return 0, "is not a regular file"
    size = file.stat().st_size
    return size, "" if size else "is empty; get the file again"


def _raw_head(file: Path, size_bytes: int = HEAD_BYTES) -> bytes:
    with file.open("rb", buffering=0) as packed:
        return packed.read(size_bytes)


def _unpacked_size(file: Path, head: bytes, size: int) -> int:
    """Return the size of the content; for gzip the size it states, or an estimate.

    ``head`` is how the file of ``size`` bytes begins.
    """
    if not head.startswith(GZIP_MAGIC):
        return size * (TYPICAL_EXPANSION if unpacking.is_packed(head) else 1)
    with file.open("rb") as packed:
        packed.seek(-min(4, size), os.SEEK_END)
        stated = int.from_bytes(packed.read(4), "little")
    # The stated size counts modulo 2**32, and of the last gzip member only.
    return stated if size <= stated <= size * 1032 else size * TYPICAL_EXPANSION


Paths = str | Path | Iterable[str | Path]


def shown(path: str | Path) -> str:
    """Return a path as text that can be printed and stored: names may be any bytes.

    Line breaks and the commands of a terminal are written as code.
    """
    return printable(os.fsencode(path).decode(errors="replace"))


def shown_all(path: Paths) -> str:
    return ", ".join(shown(entry) for entry in given_paths(path)) or "an empty list"


def given_paths(path: object) -> list[str | Path]:
    if isinstance(path, str | Path):
        return [path]
    # bytes would pass as a list of numbers.
    if isinstance(path, bytes) or not isinstance(path, Iterable):
        msg = f"path must be a path, or a list of paths; got {path!r}"
        raise TypeError(msg)
    return [entry if isinstance(entry, str | Path) else given_paths(entry)[0] for entry in path]
