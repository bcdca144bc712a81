"""Where files come from: single ones, lists, directories and archives.

Every loader opens its input through :func:`sources`, so that all of them take
the same kinds of path and treat damage and hostile archives alike. Nothing is
ever extracted to disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NoReturn

from workbench.errors import LoadError
from workbench.load._files.findings import Remark, listed
from workbench.load._files.guard import Dropped
from workbench.load._files.members import (
    HEAD_BYTES,
    TYPICAL_EXPANSION,
    Kind,
    Place,
    archive_kind,
    members,
    unpacked_size,
    unusable,
)
from workbench.load._files.packings import DamagedError
from workbench.load._files.paths import Paths, given_paths, shown, shown_all
from workbench.load._files.stream import (
    Feed,
    Health,
    Stream,
    allowed_bytes,
    checked,
    file_blocks,
    inflate,
    is_packed,
    open_file,
    stream_blocks,
    unpacked,
)
from workbench.load._files.wanted import (
    ARCHIVE_SUFFIXES,
    GIVEN_BEFORE,
    HARMLESS_REASONS,
    REPLACED,
    TRACES,
    Wanted,
)

EXPANSION_LIMIT = 200.0
_HEAD_BYTES = 4096


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

    def open(self) -> Stream:
        """Open the content, unpacked, from its beginning.

        Returns
        -------
        Stream
            A binary stream; use it in a ``with`` statement. After its end,
            ``truncated_at`` and ``notes`` tell of damage.

        Raises
        ------
        LoadError
            If the content is empty, or packed in a way that cannot be read, or
            (while reading) grows beyond what a trace would.
        """
        if self.place is not None and self.place.layer == "gzip":
            outer = _outer(self)
            outer.skip(self.place.start)
            return _checked(_inner(self, outer))
        return _checked(_stream(self))

    def head(self, size_bytes: int = _HEAD_BYTES) -> bytes:
        """Return the first unpacked bytes, by which formats are recognised."""
        with self.open() as stream:
            return stream.read(size_bytes)


@dataclass(frozen=True)
class Survey:
    """What was found under a path: what can be opened, and what was passed over."""

    sources: list[Source] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    wanted: Wanted = TRACES

    def pass_over(self, label: str, reason: str) -> None:
        """Note what is not taken: set aside if it is not wanted, left out if it may be."""
        finding: Literal["set aside", "left out"] = (
            "set aside" if reason in HARMLESS_REASONS else "left out"
        )
        self.remarks.append(Remark(label, finding, reason))


def sources(path: Paths, *, expansion_limit: float | None = EXPANSION_LIMIT) -> list[Source]:
    """List everything under ``path`` that may be a trace.

    See :func:`survey`, which also tells what was passed over.

    Parameters
    ----------
    path
        A file, a directory (searched to any depth), an archive (tar, packed or
        not, or zip, recognised by content) or several of these.
    expansion_limit
        How many times its packed size a file may unpack to (beyond 1 GiB)
        before it is refused as a decompression bomb; None lifts the limit.

    Returns
    -------
    list of Source
        Files in order of name, members in the order their archive stores
        them; never empty.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If there is nothing to open under ``path``.
    """
    return survey(path, expansion_limit=expansion_limit).sources


def survey(
    path: Paths,
    *,
    expansion_limit: float | None = EXPANSION_LIMIT,
    wanted: Wanted = TRACES,
) -> Survey:
    """List what under ``path`` may be a trace, and what was passed over and why.

    Parameters
    ----------
    path
        As for :func:`sources`.
    expansion_limit
        As for :func:`sources`.
    wanted
        What is looked for, if not traces.

    Returns
    -------
    Survey
        ``sources`` to open and ``remarks`` for the quality table.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    TypeError
        If ``path`` is no path.
    LoadError
        If there is nothing to open under ``path``, or an archive or a file
        named in ``path`` itself cannot be read.
    """
    found, given = Survey(wanted=wanted), given_paths(path)
    seen: set[Path] = set()
    for entry in map(Path, given):
        for file, is_named in _files(entry, found.remarks):
            if (real := Path(os.path.realpath(file))) in seen:
                found.pass_over(shown(file), GIVEN_BEFORE)
                continue
            seen.add(real)
            _add(found, file, is_named=is_named, expansion_limit=expansion_limit)
    if not found.sources:
        _raise_nothing_found(given, found)
    return found


def streams(
    wanted: Iterable[Source], dropped: Dropped | None = None
) -> Iterator[tuple[Source, Stream]]:
    """Open one source after the other; members of one tar.gz in a single pass.

    Opening the last member of a tar.gz by itself unpacks all that is before it.
    Whoever reads several members in order should take them from here.

    Parameters
    ----------
    wanted
        What to open. Each stream is closed when the next one is asked for.
    dropped
        Where sources are kept that cannot be opened; without it that is raised.

    Yields
    ------
    tuple of Source and Stream
        In the order given.
    """
    walk = _Walk()
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


class _Walk:
    """Opens sources in order, going through an archive that is packed as a whole only once."""

    def __init__(self) -> None:
        self._outer: Stream | None = None
        self._path: Path | None = None

    def opened(self, source: Source) -> Stream:
        place = source.place
        if place is None or place.layer != "gzip":
            return source.open()
        outer = self._outer
        if outer is None or self._path != source.path or outer.tell() > place.start:
            self.close()
            outer = self._outer = _outer(source)
            self._path = source.path
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
        return open_file(source.path, source.label, source.expansion_limit)
    health = Health()
    file = source.path.open("rb", buffering=0)
    try:
        blocks: Iterator[bytes] = file_blocks(file, place.start, place.length, health)
        if place.layer == "deflate":
            blocks = inflate(Feed(blocks), health)
        if place.crc is not None:
            blocks = checked(blocks, health, place.crc)
        return Stream(
            unpacked(blocks, health, label=source.label),
            label=source.label,
            health=health,
            file=file,
            allowed_bytes=allowed_bytes(place.length, source.expansion_limit),
        )
    except BaseException:
        file.close()
        raise


def _outer(source: Source) -> Stream:
    """Open the archive of a source as a whole."""
    return open_file(source.path, str(source.path), source.expansion_limit)


def _inner(source: Source, outer: Stream, *, owns: bool = True) -> Stream:
    """Open the member that begins where ``outer`` stands."""
    length = source.place.length if source.place else 0
    health = Health()
    try:
        return Stream(
            unpacked(stream_blocks(outer, length, health), health, label=source.label),
            label=source.label,
            health=health,
            file=outer if owns else None,
            allowed_bytes=allowed_bytes(length, source.expansion_limit),
        )
    except BaseException:
        if owns:
            outer.close()
        raise


def _checked(stream: Stream) -> Stream:
    """Return ``stream`` if it holds anything."""
    try:
        if stream.peek():
            return stream
        notes = "".join(f"; {note}" for note in stream.notes)
        msg = f"{stream.name}: is empty or holds nothing readable{notes}; get the file again"
        raise DamagedError(msg)
    except BaseException:
        stream.close()
        raise


def _files(entry: Path, remarks: list[Remark]) -> Iterator[tuple[Path, bool]]:
    """Give the files of a directory in order of name, or the file itself."""
    if not entry.is_dir():
        if not entry.exists():
            msg = f"{shown(entry)}: there is no such file or directory"
            raise FileNotFoundError(msg)
        yield entry, True
        return

    def unreadable(error: OSError) -> None:
        remarks.append(
            Remark(shown(error.filename), "left out", f"cannot be read: {error.strerror}")
        )

    for folder, subfolders, names in os.walk(entry, onerror=unreadable):
        subfolders.sort()
        for name in sorted(names):
            yield Path(folder, name), False


def _add(found: Survey, file: Path, *, is_named: bool, expansion_limit: float | None) -> None:
    """Add one file, or the members of one archive; only what is named itself may raise."""
    source = Source(shown(file), file, expansion_limit=expansion_limit)
    try:
        reason = unusable(file) or ("" if is_named else _implausible(found, source))
        if not reason:
            _add_usable(found, source, is_named=is_named)
    except (LoadError, OSError) as error:
        if is_named:
            raise
        reason = str(error).removeprefix(f"{shown(file)}: ")
    if reason and is_named:
        msg = f"{shown(file)}: {reason}"
        raise LoadError(msg)
    if reason:
        found.pass_over(shown(file), reason)


def _add_usable(found: Survey, source: Source, *, is_named: bool) -> None:
    may_be_archive = is_named or source.path.name.lower().endswith(ARCHIVE_SUFFIXES)
    if may_be_archive and (kind := archive_kind(source.path, source.expansion_limit)):
        _add_members(found, source, kind)
    else:
        found.sources.append(replace(source, size_bytes=unpacked_size(source.path)))


def _add_members(found: Survey, archive: Source, kind: Kind) -> None:
    """Add what an archive holds; of members with one name the last one counts."""
    latest: dict[str, Source] = {}
    for member in members(archive.path, kind, archive.expansion_limit):
        label = f"{archive.label}!{shown(member.name)}" if member.name else archive.label
        if member.is_cut:
            found.remarks.append(Remark(label, "truncated", member.refusal))
            continue
        reason = member.refusal
        if member.place is not None:
            reason = found.wanted.refused(member.name, member.head)
        if reason:
            found.pass_over(label, reason)
        elif member.place is not None:
            if member.name in latest:
                found.pass_over(label, REPLACED)
            growth = TYPICAL_EXPANSION if is_packed(member.head) else 1
            latest[member.name] = replace(
                archive,
                label=label,
                member=member.name,
                size_bytes=member.size_bytes * growth,
                place=member.place,
            )
    found.sources.extend(latest.values())


def _implausible(found: Survey, source: Source) -> str:
    """Say why a file met in a directory is not taken; '' if it may be."""
    name = source.path.name
    if name.lower().endswith(ARCHIVE_SUFFIXES) and not name.startswith("."):
        return ""
    return found.wanted.refused(name, source.head(HEAD_BYTES))


def _raise_nothing_found(given: list[str | Path], found: Survey) -> NoReturn:
    why = listed([each.row for each in found.remarks])
    msg = f"{shown_all(given)}: no {found.wanted.noun} found{why}"
    raise LoadError(msg)
