"""Parsed files kept on disk, by content, so that the second load is quick."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa

from workbench._writing import write_whole
from workbench.kernel_kinds import SHIPPED_RULES
from workbench.load._files.archive import Source
from workbench.load._files.findings import quality_frame
from workbench.load._files.parquet import pack_frame, read_events, unpack_frame, write_events
from workbench.load._traces.kineto.rank import RankTables, quality_of
from workbench.tables import EVENTS, QUALITY, STEPS

# Part of every key: raise it whenever the same bytes would give other tables.
LAYOUT = 3
_HEADER = b"workbench-rank"


def key(source: Source, args: Sequence[str], rules: pd.DataFrame | None, directory: Path) -> str:
    """Return the name under which the tables of ``source`` are kept.

    It depends on the bytes of the file and on every option that changes the tables, not
    on the file's name, place or age.
    """
    options = json.dumps(
        [
            LAYOUT,
            source.member,
            sorted(set(args)),
            _digest(SHIPPED_RULES.read_bytes()),
            None if rules is None else _digest(rules.to_csv(index=False).encode()),
        ]
    )
    content = _content_digest(source.path, directory)
    return hashlib.sha256(f"{content}\n{options}".encode()).hexdigest()[:40]


def get_or_store(
    directory: Path,
    source: Source,
    options: tuple[Sequence[str], pd.DataFrame | None],
    parse: Callable[[], RankTables],
) -> RankTables:
    """Return the kept tables of ``source``, or parse it and keep them.

    A kept file that is damaged, or was made by something else, is replaced. Where
    nothing can be kept, the tables say so in their quality.
    """
    try:
        file = directory / f"{key(source, *options, directory)}.parquet"
    except OSError as error:
        return _not_kept(parse(), error)
    if (kept := _load(file, source.label)) is not None:
        return kept
    part = parse()
    try:
        _store(part, file)
    except OSError as error:
        return _not_kept(part, error)
    return part


def _not_kept(part: RankTables, error: OSError) -> RankTables:
    what = f"the cache cannot be used: {error.strerror or error}"
    note = quality_frame([(part.label, "noted", what, 1, None)])
    return replace(part, quality=quality_of([part.quality, note]))


def _content_digest(path: Path, directory: Path) -> str:
    """Return the SHA-256 of a file; remembered as long as size, time and inode stay."""
    state = path.stat()
    seen = f"{path.resolve()}|{state.st_size}|{state.st_mtime_ns}|{state.st_ino}"
    memo = directory / "seen" / hashlib.sha256(seen.encode()).hexdigest()[:40]
    with contextlib.suppress(OSError):
        known = memo.read_text(encoding="ascii")
        if len(known) == 64:
            return known
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    write_whole(memo, lambda file: file.write(digest.encode("ascii")))
    return digest


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _load(file: Path, label: str) -> RankTables | None:
    try:
        table, raw = read_events(file, _HEADER)
        header = json.loads(raw)
        quality = unpack_frame(header["quality"], QUALITY)
        steps = unpack_frame(header["steps"], STEPS)
        events = EVENTS.check(table, str(file))
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None
    quality["source"] = pd.Series(label, index=quality.index, dtype=quality["source"].dtype)
    return RankTables(label, events, steps, quality, header["metadata"], header["clock"])


def _store(part: RankTables, file: Path) -> None:
    header = {
        "metadata": part.metadata,
        "clock": part.clock,
        "quality": pack_frame(part.quality),
        "steps": pack_frame(part.steps),
    }
    write_events(part.events, {_HEADER: json.dumps(header).encode()}, file)
