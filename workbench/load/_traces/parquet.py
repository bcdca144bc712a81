"""The workbench's own trace files: events as Parquet, the other tables inside its metadata."""

from __future__ import annotations

import base64
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.arrays import IntegerArray

from workbench import tables
from workbench._shared.kernel_kinds import KINDS
from workbench._shared.rank_sets import PART
from workbench._shared.writing import write_whole
from workbench.errors import LoadError, TableError
from workbench.load._files.archive import Source
from workbench.load._files.findings import guarded
from workbench.load._files.tables import parquet_schema
from workbench.load._traces.selection import (
    Columns,
    Kept,
    Steps,
    all_missing,
    chosen_columns,
    events_table,
    narrowed,
    rows_of,
    rows_within,
)
from workbench.tables import Table, Trace

# Raised when the layout changes; other versions are refused.
VERSION = 1
# Key in the metadata of the Parquet file under which the other tables are.
_KEY = b"workbench"
_MAGIC = b"PAR1"
NO_TRACE = "is Parquet, but no trace of the workbench; write one with 'workbench convert'"
_READERS, _ROWS_WORTH_A_THREAD = 2, 100_000
_TABLES = {field.name: getattr(tables, field.name.upper()) for field in fields(Trace)}


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - same shape for all formats
    return head.startswith(_MAGIC)


def is_trace(schema: pa.Schema) -> bool:
    """Return whether a Parquet file is one that :func:`write` stored, not just any table."""
    return _KEY in (schema.metadata or {})


def is_stored(source: Source) -> bool:
    """Return whether a Parquet file is a trace by its schema; LoadError if that is damaged."""
    with guarded(source.label, "Parquet"):
        return is_trace(parquet_schema(source))


def sources_of(path: Path) -> set[str]:
    """Return the names of the files that a stored trace was made from, without their folders."""
    ranks = header(path)[1]["ranks"]
    labels = {PART.sub("", str(label)) for label in ranks["source"].dropna()}
    return {re.split(r"[/\\!]", label)[-1] for label in labels}


def parquet(path: str | Path, steps: Steps = None, columns: Columns = None) -> Trace:
    try:
        kept = None if steps is None else _rows_within(path, steps)
        events, raw = read_events(path, _KEY, kept, columns)
    except FileNotFoundError:
        raise
    except KeyError:
        msg = f"{path}: {NO_TRACE}"
        raise LoadError(msg) from None
    except (pa.ArrowException, OSError) as error:
        msg = f"{path}: cannot be read as Parquet ({error}); convert the trace again"
        raise LoadError(msg) from None
    frames = _tables_in(raw, path)
    if kept is not None and "launch" in events:
        events = rows_of(events, events["launch"], kept)
    frames["events"] = events
    declared = _TABLES | {"events": events_table(columns)}
    trace = Trace(**{name: declared[name].check(frames[name], str(path)) for name in declared})
    if steps is None or kept is None:
        return trace
    return narrowed(trace, int(len(kept) - kept.sum()), steps, str(path))


def _rows_within(path: str | Path, steps: tuple[int, int]) -> Kept:
    with _open(path) as file:
        if not is_trace(file.schema_arrow):
            raise KeyError(_KEY)
        step = file.read(["step"], use_threads=False).to_pandas()["step"]
    return rows_within(step.astype("Int64"), steps, str(path))


def header(path: str | Path) -> tuple[str | None, dict[str, pd.DataFrame]]:
    """Return the origin of a stored trace set and all its tables but the events."""
    with _open(path) as file:
        raw = (file.schema_arrow.metadata or {})[_KEY]
    return json.loads(raw).get("origin"), _tables_in(raw, path)


def _tables_in(raw: bytes, path: str | Path) -> dict[str, pd.DataFrame]:
    stored = json.loads(raw)
    if stored.get("version") != VERSION:
        msg = (
            f"{path}: has layout version {stored.get('version')}, this is {VERSION}; convert again"
        )
        raise LoadError(msg)
    return {
        name: unpack_frame(stored["tables"][name], table_of)
        for name, table_of in _TABLES.items()
        if name != "events"
    }


def write(trace: Trace, path: str | Path, *, origin: str | None = None) -> Path:
    """Store a trace set as one Parquet file, whole or not at all.

    Parameters
    ----------
    trace
        What to store.
    path
        The file; an existing one is replaced once the new one is complete.
    origin
        A text to store with it that tells this state of its source from others.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    TableError
        If the trace was loaded with some of its columns.
    """
    described = _TABLES["events"].columns
    required = [name for name in described if not described[name].optional]
    if lacking := [name for name in required if name not in trace.events]:
        msg = f"{path}: events without {', '.join(lacking)} are not stored; load all columns"
        raise TableError(msg)
    frames = {name: pack_frame(getattr(trace, name)) for name in _TABLES if name != "events"}
    stored = {"version": VERSION, "tables": frames} | ({"origin": origin} if origin else {})
    write_events(trace.events, {_KEY: json.dumps(stored).encode()}, Path(path))
    return Path(path)


def write_events(events: pd.DataFrame, metadata: dict[bytes, bytes], path: Path) -> None:
    """Store an events table with further ``metadata``, whole or not at all."""
    table = _with_typed_categories(pa.Table.from_pandas(events, preserve_index=False))
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})
    texts = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    write_whole(
        path,
        lambda file: pq.write_table(
            table,
            file,
            compression="lz4",
            use_dictionary=texts,  # of numbers it costs more time than it saves
            row_group_size=max(1, len(table)),  # several would be copied together when read
            write_statistics=[name for name in table.column_names if name not in texts],
            write_page_checksum=True,
        ),
    )


# pandas 2 would read categories without a type as objects.
def _with_typed_categories(table: pa.Table) -> pa.Table:
    for position, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_null(field.type.value_type):
            codes = pa.nulls(table.num_rows, pa.int8())
            column = pa.DictionaryArray.from_arrays(codes, pa.array([], pa.string()))
            table = table.set_column(position, field.name, column)
    return table


def read_events(
    path: str | Path, key: bytes, kept: Kept | None = None, columns: Columns = None
) -> tuple[pd.DataFrame, bytes]:
    """Read the events, or some columns of them, or the rows that are ``kept``."""
    with _open(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        header = (schema.metadata or {})[key]
        count = rows if kept is None else int(kept.sum())
        wanted = chosen_columns(schema.names, columns, str(path))
        values: dict[str, Any] = {
            name: all_missing(count, f"Int{schema.field(name).type.bit_width}")
            for name in _without_values(file)
            if name in wanted
        }

    def read_some(chosen: list[str]) -> dict[str, Any]:
        # One by one: all at once would take twice the memory, which costs time.
        with _open(path) as file:
            read = ((name, _column(file, name)) for name in chosen)
            return {name: column if kept is None else column[kept] for name, column in read}

    names = [name for name in wanted if name not in values]
    threads = _READERS if rows >= _ROWS_WORTH_A_THREAD else 1
    if threads == 1:
        values |= read_some(names)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for read in pool.map(read_some, (names[n::threads] for n in range(threads))):
                values |= read
    return pd.DataFrame({name: values[name] for name in wanted}, copy=False), header


def _open(path: str | Path) -> pq.ParquetFile:
    # Unless the reader maps the file, a large one would stand in memory twice.
    return pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)


def _column(file: pq.ParquetFile, name: str) -> Any:
    table = file.read([name], use_threads=False)
    array = table.to_pandas(split_blocks=True, self_destruct=True)[name].array
    if isinstance(array, IntegerArray):
        return array
    array = array.copy()  # Arrow lends numbers and codes read-only
    if isinstance(array, pd.Categorical) and not len(array.categories):
        # Arrow keeps no type for the categories of a column that has none.
        return array.set_categories(pd.Index(KINDS if name == "kind" else (), dtype="str"))
    return array


# The file itself states how many values are missing, so such columns need not be read.
def _without_values(file: pq.ParquetFile) -> list[str]:
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    names = []
    for position, field in enumerate(file.schema_arrow):
        if not pa.types.is_signed_integer(field.type):
            continue
        statistics = [(group.column(position).statistics, group.num_rows) for group in groups]
        if statistics and all(of and of.null_count == rows for of, rows in statistics):
            names.append(field.name)
    return names


def pack_frame(frame: pd.DataFrame) -> str:
    if frame.empty:
        return ""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return base64.b64encode(buffer.getvalue()).decode()


def unpack_frame(text: str, table: Table) -> pd.DataFrame:
    if not text:
        return table.empty()
    with pq.ParquetFile(io.BytesIO(base64.b64decode(text))) as file:
        return table.cast(file.read().to_pandas())
