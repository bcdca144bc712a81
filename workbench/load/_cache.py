"""Parsed files kept on disk, by content, so that the second load is quick."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.kernel_kinds import shipped_rules
from workbench.load._kineto_rank import RankTables
from workbench.load.archive import Source
from workbench.load.parquet import events_of, pack_frame, unpack_frame, write_events, write_whole
from workbench.tables import QUALITY, STEPS

# Part of every key: raise it whenever the same bytes would give other tables.
LAYOUT = 1
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
            _digest_rules(shipped_rules()),
            None if rules is None else _digest_rules(rules),
        ]
    )
    content = _content_digest(source.path, directory)
    return hashlib.sha256(f"{content}\n{options}".encode()).hexdigest()[:40]


def get_or_store(
    directory: Path, name: str, label: str, parse: Callable[[], RankTables]
) -> RankTables:
    """Return what is kept under ``name``, or parse and keep it.

    A file that is damaged, or was made by something else, is replaced.
    """
    file = directory / f"{name}.parquet"
    if (kept := _load(file, label)) is not None:
        return kept
    part = parse()
    _store(part, file)
    return part


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


def _digest_rules(rules: pd.DataFrame) -> str:
    return hashlib.sha256(rules.to_csv(index=False).encode()).hexdigest()


def _load(file: Path, label: str) -> RankTables | None:
    try:
        table = pq.read_table(file, memory_map=True)
        header = json.loads((table.schema.metadata or {})[_HEADER])
        quality = unpack_frame(header["quality"], QUALITY)
        steps = unpack_frame(header["steps"], STEPS)
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None
    quality["source"] = pd.Series(label, index=quality.index, dtype=quality["source"].dtype)
    return RankTables(label, events_of(table), steps, quality, header["metadata"], header["clock"])


def _store(part: RankTables, file: Path) -> None:
    header = {
        "metadata": part.metadata,
        "clock": part.clock,
        "quality": pack_frame(part.quality),
        "steps": pack_frame(part.steps),
    }
    write_events(part.events, {_HEADER: json.dumps(header).encode()}, file)
