"""Folders of tables: a Parquet file for each table that a loader returned, read back as one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench._shared.writing import write_whole
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, given_paths, shown
from workbench.load._files.wanted import STORED_SUFFIX, stored_files
from workbench.tables import (
    DOCUMENT_LENGTHS,
    FAILURES,
    FLIGHT_ENTRIES,
    FLIGHT_GROUPS,
    FLIGHT_RANKS,
    FLIGHT_STATUS,
    JOB_OPERATIONS,
    LOGGED_SPANS,
    LOGGED_STEPS,
    MEMORY,
    MEMORY_BLOCKS,
    NODE_SPANS,
    POWER,
    POWER_COUNTERS,
    POWER_ENTITIES,
    POWER_STATES,
    QUALITY,
    TIMELINE,
    FailureLog,
    FlightRecording,
    JobLog,
    MemoryRecording,
    PowerLog,
    Table,
)

_KEY, _VERSION = b"workbench-tables", 1
# Text is object in pandas 2, str in pandas 3.
_TEXT = pd.Series([""]).dtype
# Left to itself, pandas makes floats of integers of which some are missing, and loses digits.
_WHOLE = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
_AGAIN = "run 'workbench convert' again"

# By kind of data the class that its loader returns, and its tables in the order of the fields.
# A loader that returns one table has no class.
STORED: Mapping[str, tuple[type[Any], tuple[Table, ...]]] = {
    "power logs": (PowerLog, (POWER, POWER_ENTITIES, POWER_STATES, POWER_COUNTERS, QUALITY)),
    "job logs": (JobLog, (LOGGED_STEPS, LOGGED_SPANS, QUALITY)),
    "failure logs": (FailureLog, (FAILURES, TIMELINE, NODE_SPANS, QUALITY)),
    "flight-recorder dumps": (
        FlightRecording,
        (FLIGHT_RANKS, FLIGHT_GROUPS, FLIGHT_STATUS, FLIGHT_ENTRIES, QUALITY),
    ),
    "memory snapshots": (MemoryRecording, (MEMORY, MEMORY_BLOCKS, QUALITY)),
    "job operations": (pd.DataFrame, (JOB_OPERATIONS,)),
    "document lengths": (pd.DataFrame, (DOCUMENT_LENGTHS,)),
}


def kind_of(loaded: Any) -> str:
    """Return the kind of data that a loader returned, '' if its tables are not stored here."""
    for kind, (bundle, tables) in STORED.items():
        is_table = bundle is not pd.DataFrame or list(tables[0].columns) == list(loaded)
        if isinstance(loaded, bundle) and is_table:
            return kind
    return ""


def write_tables(loaded: Any, folder: Path) -> Path:
    """Store each table of what a loader returned as a Parquet file; see :func:`load.write`."""
    tables = _tables(kind := kind_of(loaded))
    files = {name: folder / f"{name}{STORED_SUFFIX}" for name in tables}
    foreign = [path for path in _entries(folder) if path not in files.values()]
    if foreign:
        msg = f"{shown(folder)}: holds other files, e.g. {foreign[0].name}; name a new folder"
        raise LoadError(msg)
    # A set without its last table is unfinished, so tables of two runs are never read as one.
    files[list(files)[-1]].unlink(missing_ok=True)
    for name, table in tables.items():
        frame = loaded if isinstance(loaded, pd.DataFrame) else getattr(loaded, name)
        table.check(frame, f"{type(loaded).__name__}.{name}")
        _write(frame, {"version": _VERSION, "kind": kind, "table": name}, files[name])
    return folder


def stored_kind(path: Paths) -> str:
    """Return the kind of data whose stored tables a folder holds; '' for all other paths."""
    files = stored_files(path)
    return str(_header(files[0])["kind"]) if files else ""


def stored_sets(path: Paths) -> dict[Path, str]:
    """Return every folder under a path, or that it is, that holds stored tables, and their kind.

    The kind is '' where the tables are damaged.
    """
    result: dict[Path, str] = {}
    for entry in map(Path, given_paths(path)):
        for file in sorted(entry.rglob(f"[!.]*{STORED_SUFFIX}") if entry.is_dir() else ()):
            try:
                result.setdefault(file.parent, stored_kind(file.parent))
            except LoadError:
                result[file.parent] = ""
    return result


def stored_tables(path: Paths, kind: str) -> Any:
    """Read a folder of stored tables back; None if it is no such folder, or of another kind.

    Raises LoadError if the set is incomplete or damaged, or if other files lie beside it, which
    would be left out silently.
    """
    if stored_kind(path) != kind:
        return None
    folder, tables = stored_files(path)[0].parent, _tables(kind)
    wanted = {f"{name}{STORED_SUFFIX}" for name in tables}
    found = {file.name for file in _entries(folder)}
    if lacking := sorted(wanted - found):
        msg = f"{shown(folder)}: lacks {', '.join(lacking)}; {_AGAIN}"
        raise LoadError(msg)
    if foreign := sorted(found - wanted):
        msg = (
            f"{shown(folder)}: holds {kind} as stored tables and other files, e.g. {foreign[0]}; "
            "keep the tables in a folder of their own"
        )
        raise LoadError(msg)
    frames = [_read(folder / f"{name}{STORED_SUFFIX}", kind, name) for name in tables]
    bundle = STORED[kind][0]
    return frames[0] if bundle is pd.DataFrame else bundle(*frames)


def stored_table(folder: Path, kind: str, name: str) -> pd.DataFrame:
    """Read one table of a set, and leave the others where they are."""
    return _read(folder / f"{name}{STORED_SUFFIX}", kind, name)


def _entries(folder: Path) -> list[Path]:
    """List a folder without hidden files, which a stopped run and the system leave behind."""
    return [path for path in folder.glob("*") if not path.name.startswith(".")]


def _tables(kind: str) -> dict[str, Table]:
    """Return the tables of a kind by the names of their files; that of the quality is last."""
    bundle, tables = STORED[kind]
    if bundle is pd.DataFrame:
        return {table.name: table for table in tables}
    return dict(zip(bundle.__dataclass_fields__, tables, strict=True))


def _write(frame: pd.DataFrame, header: Mapping[str, Any], path: Path) -> None:
    # Parquet keeps neither categories without rows nor the type of columns without values.
    categories = {
        str(name): list(values.cat.categories)
        for name, values in frame.items()
        if isinstance(values.dtype, pd.CategoricalDtype)
    }
    table = pa.Table.from_pandas(
        frame.astype(dict.fromkeys(categories, _TEXT)), preserve_index=False
    )
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field
              for field in table.schema]  # fmt: skip
    text = json.dumps({**header, "categories": categories, "attrs": frame.attrs})
    table = table.cast(pa.schema(fields)).replace_schema_metadata({_KEY: text.encode()})
    write_whole(
        path,
        lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True),
    )


def _header(path: Path) -> dict[str, Any]:
    try:
        raw = (pq.read_schema(path).metadata or {})[_KEY]
        header: dict[str, Any] = json.loads(raw)
        is_known = header["version"] == _VERSION and header["kind"] in STORED
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        msg = f"{shown(path)}: is damaged, or no table that the workbench stored; {_AGAIN}"
        raise LoadError(msg) from error
    if not is_known:
        msg = f"{shown(path)}: was stored by another version of the workbench; {_AGAIN}"
        raise LoadError(msg)
    return header


def _read(path: Path, kind: str, name: str) -> pd.DataFrame:
    header = _header(path)
    if (header["kind"], header.get("table")) != (kind, name):
        msg = f"{shown(path)}: holds another table than its name says; {_AGAIN}"
        raise LoadError(msg)
    table = _tables(kind)[name]
    try:
        with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
            frame = file.read().to_pandas(types_mapper=_WHOLE.get)
        for column, values in header["categories"].items():
            texts = pd.Index(values, dtype=_TEXT)
            frame[column] = frame[column].astype(pd.CategoricalDtype(texts))
        # Columns beyond those of the table are part of what was stored.
        cast = frame.assign(**table.cast(frame))[[*frame]]
        cast.attrs = header["attrs"]
    except (OSError, pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"{shown(path)}: is damaged ({type(error).__name__}); {_AGAIN}"
        raise LoadError(msg) from error
    return table.check(cast, shown(path))
