"""Tables that Nsight Systems exported: one SQLite file, or a folder with a Parquet file each."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stream import Stream
from workbench.load._files.text import tell_of_damage
from workbench.load._traces.kineto.blocks import MISSING
from workbench.load._traces.nsight.pages import Wanted, columns_of

IntArray = npt.NDArray[np.int64]

MAGIC = b"SQLite format 3\x00"
# Beside a database that a program has open, or that was killed with it.
COMPANIONS = ("-wal", "-journal")
# Behind the name of another journal, which stands where a change concerns several databases.
_JOURNAL_END = bytes.fromhex("d9d505f920a163d7")
# Few enough that the objects of a chunk stay in the cache of a core.
_CHUNK_ROWS = 512
_LONGEST_TEXT = 4096
_LONGEST_VALUE_BYTES = 64 << 20
# The fewest bytes that a row can take in a sound file.
_ROW_BYTES = 4
_COPIED_BYTES = 8 << 20
_TAKES_INT64 = 1 << 63


@dataclass(frozen=True)
class Read:
    """Some columns of one table; a number that is missing is :data:`MISSING`."""

    numbers: dict[str, IntArray]
    codes: dict[str, npt.NDArray[np.int32]]
    texts: dict[str, list[str | None]]

    def text(self, column: str) -> list[str | None]:
        """Return the text of each row."""
        return [self.texts[column][code] for code in self.codes[column]]


class Stored(Protocol):
    """The tables of an export, whatever holds them."""

    columns: dict[str, list[str]]

    def has_rows(self, table: str) -> bool:
        """Return whether a table holds anything."""

    def read(self, table: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> Read:
        """Read the columns that the table has; numbers that it lacks are missing in all rows."""


@contextmanager
def opened(source: Source, stream: Stream | None, findings: Findings) -> Iterator[Stored]:
    """Open an export: the database, or the folder around one Parquet file."""
    if source.path.suffix == ".parquet" and not source.member:
        yield ParquetTables(source.path.parent, findings)
        return
    with (
        _on_disk(source, stream, findings) as path,
        closing(_connected(path, source.label)) as database,
    ):
        yield SqliteTables(database, path, findings)


@contextmanager
def _on_disk(source: Source, stream: Stream | None, findings: Findings) -> Iterator[Path]:
    """Yield the path of the database, unpacked where it is packed: SQLite reads plain files."""
    with source.path.open("rb") as file:
        is_plain = not source.member and file.read(len(MAGIC)) == MAGIC
    logs = [Path(f"{source.path}{ending}") for ending in COMPANIONS] if is_plain else []
    logs = [log for log in logs if _may_complete(log, findings)]
    if is_plain and not logs:
        if stream is not None:
            stream.close()
        yield source.path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        with stream or source.open() as packed, copy.open("wb") as file:
            while block := packed.read(_COPIED_BYTES):
                file.write(block)
            tell_of_damage(packed, findings)
        if logs:
            for log in logs:
                shutil.copyfile(log, f"{copy}{log.name.removeprefix(source.path.name)}")
            _complete(copy)
            names = ", ".join(log.name for log in logs)
            words = "logs of changes that were not in the database yet; read with it"
            findings.add("noted", words, len(logs), names)
        elif _is_write_ahead(copy):
            findings.add("assumed", "nothing was left in the -wal file of a packed database")
        yield copy


def _may_complete(log: Path, findings: Findings) -> bool:
    if not log.is_file() or not log.stat().st_size:
        return False
    with log.open("rb") as file:
        file.seek(-min(len(_JOURNAL_END), log.stat().st_size), os.SEEK_END)
        names_another = file.read() == _JOURNAL_END
    if names_another:
        # SQLite follows the name of a file in it, wherever that lies, and may delete the file.
        words = "a journal of several databases, which is not followed; half of a change may be in"
        findings.add("suspicious", words, 1, log.name)
    return not names_another


def _is_write_ahead(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\x02\x02"


def _complete(copy: Path) -> None:
    """Bring changes from the logs beside a copy into it, as the next writer would.

    A program that still runs, or was killed, leaves rows in the write-ahead log, or half of a
    change in the database and what was there before in the journal.
    """
    # What SQLite cannot complete it tells again when the copy is opened.
    with suppress(sqlite3.Error), closing(sqlite3.connect(copy)) as database:
        database.execute("PRAGMA trusted_schema=OFF")
        database.execute("SELECT 1 FROM sqlite_master").fetchone()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _connected(path: Path, label: str) -> sqlite3.Connection:
    """Open a database that may be hostile: read-only, and nothing in it runs."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    database.text_factory = bytes
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
    try:
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON"):
            database.execute(f"PRAGMA {pragma}")
        database.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        database.close()
        msg = (
            f"{label}: is damaged, SQLite cannot open it ({error}); get it again: "
            "nsys export --type sqlite REPORT.nsys-rep, rocprofv3 --output-format rocpd, or a copy "
            "of the store of MLflow"
        )
        raise LoadError(msg) from error
    return database


class SqliteTables:
    """The tables of a database; views, virtual tables and generated columns are none."""

    def __init__(self, database: sqlite3.Connection, path: Path, findings: Findings) -> None:
        self._database, self._path, self._findings = database, path, findings
        self._most_rows = path.stat().st_size // _ROW_BYTES
        # A root page is what views and virtual tables lack.
        query = "SELECT name, rootpage FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        self.columns: dict[str, list[str]] = {}
        self._roots: dict[str, int] = {}
        for name, root in self._rows(query, "the list of tables"):
            table = _decoded(name)
            if table is not None:
                query = f"PRAGMA table_xinfo({_quoted(table)})"
                rows = [*self._rows(query, table)]
                self.columns[table] = [_decoded(row[1]) or "" for row in rows if not row[6]]
                # Keys stand apart from the record, and what is generated may not stand in it.
                if isinstance(root, int) and not any(row[5] or row[6] for row in rows):
                    self._roots[table] = root

    def _rows(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
        for rows in self._chunks(query, table):
            yield from rows

    def _chunks(self, query: str, table: str) -> Iterator[list[tuple[Any, ...]]]:
        count, reason = 0, ""
        try:
            cursor = self._database.execute(query)
            while not reason and (rows := cursor.fetchmany(_CHUNK_ROWS)):
                count += len(rows)
                yield rows
                # Pages that point to each other in a circle would never end.
                reason = "more rows than the file can hold" if count > self._most_rows else ""
        except sqlite3.Error as error:
            reason = " ".join(str(error).split())
        if reason:
            self._findings.add("truncated", f"{table}: rows behind a damaged page ({reason})")

    def cells(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Read rows of a small table as they are, text as bytes."""
        names = ", ".join(map(_quoted, columns))
        return self._rows(f"SELECT {names} FROM {_quoted(table)}", table)

    def has_rows(self, table: str) -> bool:
        """Return whether a table holds anything."""
        return any(True for _ in self._rows(f"SELECT 1 FROM {_quoted(table)} LIMIT 1", table))

    def read(self, table: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> Read:
        """Read columns chunk by chunk."""
        there = self.columns.get(table, [])
        numbers_there = [name for name in numbers if name in there]
        texts_there = [name for name in texts if name in there]
        lookups = {name: _numbering() for name in texts_there}
        columns = self._of_pages(table, numbers_there, lookups)
        if columns is None:
            for lookup in lookups.values():
                lookup.clear()
            columns = self._of_sql(table, numbers_there, lookups)
        rows_count = len(next(iter(columns.values()))) if columns else 0
        absent = np.full(rows_count, MISSING, np.int64)
        return Read(
            {name: columns.get(name, absent) for name in numbers},
            {name: columns[name] for name in texts_there},
            {name: [_decoded(value) for value in lookups[name]] for name in texts_there},
        )

    def _of_pages(
        self, table: str, numbers: Sequence[str], lookups: Mapping[str, defaultdict[Any, int]]
    ) -> dict[str, Any] | None:
        if table not in self._roots or not (numbers or lookups):
            return None
        at = {name: self.columns[table].index(name) for name in (*numbers, *lookups)}
        texts = {at[name]: lookup.__getitem__ for name, lookup in lookups.items()}
        wanted = Wanted([at[name] for name in numbers], texts)
        read = columns_of(self._path, self._roots[table], wanted)
        return None if read is None else {name: read[place] for name, place in at.items()}

    def _of_sql(
        self, table: str, numbers: Sequence[str], lookups: Mapping[str, defaultdict[Any, int]]
    ) -> dict[str, Any]:
        chunks: dict[str, list[Any]] = {name: [] for name in (*numbers, *lookups)}
        # The length of a text is bounded where it is read.
        wanted = [f"ifnull({_quoted(name)}, {MISSING})" for name in numbers]
        wanted += [f"substr({_quoted(name)}, 1, {_LONGEST_TEXT})" for name in lookups]
        query = f"SELECT {', '.join(wanted)} FROM {_quoted(table)}"
        for rows in self._chunks(query, table) if wanted else ():
            for name, column in zip(chunks, zip(*rows, strict=True), strict=True):
                if name in lookups:
                    codes = map(lookups[name].__getitem__, column)
                    chunks[name].append(np.fromiter(codes, np.int32, len(rows)))
                else:
                    chunks[name].append(self._integers(column, f"{table}.{name}"))
        kinds = dict.fromkeys(numbers, np.int64) | dict.fromkeys(lookups, np.int32)
        return {
            name: np.concatenate(parts) if parts else np.zeros(0, kinds[name])
            for name, parts in chunks.items()
        }

    def _integers(self, column: Sequence[Any], name: str) -> IntArray:
        try:
            return np.fromiter(column, np.int64, len(column))
        except (TypeError, ValueError, OverflowError):
            values = [_integer(value) for value in column]
            lost = sum(
                number == MISSING and value is not None
                for number, value in zip(values, column, strict=True)
            )
            self._findings.add("dropped", f"values of {name} that are not numbers", lost)
            return np.array(values, np.int64)


def _numbering() -> defaultdict[Any, int]:
    lookup: defaultdict[Any, int] = defaultdict()
    lookup.default_factory = lookup.__len__
    return lookup


def _integer(value: object) -> int:
    is_number = isinstance(value, int | float) and abs(value) < _TAKES_INT64
    return int(value) if is_number else MISSING  # type: ignore[call-overload]


def _decoded(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class ParquetTables:
    """The tables of a folder that ``nsys export --type parquetdir`` wrote."""

    def __init__(self, folder: Path, findings: Findings) -> None:
        self._folder, self._findings = folder, findings
        self.columns: dict[str, list[str]] = {}
        for path in sorted(folder.glob("*.parquet")):
            try:
                names = list(pq.read_schema(path).names)
                if len(set(names)) == len(names):
                    self.columns[path.stem] = names
                else:
                    findings.add("dropped", f"{path.name}: has several columns of one name")
            except (pa.ArrowException, OSError) as error:
                reason = " ".join(str(error).split())[:80]
                findings.add("dropped", f"{path.name}: is damaged ({reason})")

    def has_rows(self, table: str) -> bool:
        """Return whether a table holds anything."""
        return bool(pq.read_metadata(self._folder / f"{table}.parquet").num_rows)

    def read(self, table: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> Read:
        """Read columns at once."""
        there = self.columns.get(table, [])
        wanted = [name for name in (*numbers, *texts) if name in there]
        stored = pa.table({})
        if wanted:
            path = self._folder / f"{table}.parquet"
            stored = pq.ParquetFile(path, page_checksum_verification=True).read(columns=wanted)
        columns = {name: stored.column(name).combine_chunks() for name in wanted}
        absent = np.full(stored.num_rows if wanted else 0, MISSING, np.int64)
        texts_there = [name for name in texts if name in there]
        encoded = {name: _encoded(columns[name]) for name in texts_there}
        return Read(
            {
                name: self._integers(columns[name], f"{table}.{name}") if name in there else absent
                for name in numbers
            },
            {name: codes for name, (codes, _) in encoded.items()},
            {name: values for name, (_, values) in encoded.items()},
        )

    def _integers(self, column: Any, name: str) -> IntArray:
        try:
            cast = pc.cast(column, pa.int64(), safe=False)
        except pa.ArrowException:
            self._findings.add("dropped", f"values of {name} that are not numbers", len(column))
            return np.full(len(column), MISSING, np.int64)
        numbers: IntArray = pc.fill_null(cast, MISSING).to_numpy(zero_copy_only=False)
        return numbers


def _encoded(column: Any) -> tuple[npt.NDArray[np.int32], list[str | None]]:
    plain = column.cast(pa.string()) if not pa.types.is_dictionary(column.type) else column
    coded = plain if pa.types.is_dictionary(plain.type) else plain.dictionary_encode()
    texts = [
        None if text is None else str(text)[:_LONGEST_TEXT] for text in coded.dictionary.to_pylist()
    ]
    codes = pc.fill_null(coded.indices.cast(pa.int32()), len(texts))
    return codes.to_numpy(zero_copy_only=False), [*texts, None]
