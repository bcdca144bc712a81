"""Damage within the structure of a file: tables, messages and trees that are whole but wrong.

Flipped bytes rarely reach what a reader makes of the content: SQLite and Parquet notice damaged
pages first. Here the container stays sound, as an export of another version or a hostile one is.
"""

import io
import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.load.fleet.test_job_scalars import records

_TOP = (1 << 63) - 1
_NUMBERS = (0, -1, 1, _TOP, -_TOP - 1, 1 << 62, 1 << 32, 10**19 - 1, 2**53 + 1)
_ODD: tuple[Any, ...] = (
    None, True, 1.5, 1e308, -1e308, float("nan"), float("inf"), "", "x", "NaN", "\ud800", "9" * 400,
    [], {}, [[]], {"a": []}, "a\x00b", -0.0, 1 << 70, *_NUMBERS,
)  # fmt: skip
_CELLS = (
    "NULL", "-1", "0", str(_TOP), str(-_TOP - 1), "9e307", "-9e999", "''", "'text'", "x'ff00ed'",
    "'12'", "' 1 '", "1.5", "zeroblob(70000)", "-{column}", "{column} * 1000000007",
    "{column} || 'x'", "CAST({column} AS REAL)",
)  # fmt: skip


def sqlite(rng: Random, data: bytes) -> bytes:
    """Change names, columns, rows or values of a database."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(data)
        for _ in range(rng.choice((1, 1, 2, 6))):
            # A change that a database does not take leaves it as it was.
            with suppress(sqlite3.Error):
                database.execute(_statement(rng, database))
                database.commit()
        database.commit()
        return database.serialize()


def _statement(rng: Random, database: sqlite3.Connection) -> str:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = [name for (name,) in database.execute(query)]
    table = rng.choice(tables)
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    column, other = (f'"{rng.choice(columns)}"' for _ in range(2))
    value = rng.choice(_CELLS).format(column=column)
    some = rng.choice(("1", "rowid % 2", "rowid = 1", "rowid > 1"))
    return rng.choice((
        f'ALTER TABLE "{table}" RENAME TO "{rng.choice(("other", "a b", "1"))}"',
        f'ALTER TABLE "{table}" RENAME TO "{rng.choice(tables)}_2"',
        f'DROP TABLE "{table}"',
        f'ALTER TABLE "{table}" RENAME COLUMN {column} TO "renamed"',
        f'ALTER TABLE "{table}" DROP COLUMN {column}',
        f'ALTER TABLE "{table}" ADD COLUMN "added" DEFAULT 1',
        f'DELETE FROM "{table}" WHERE {some}',
        f'INSERT INTO "{table}" SELECT * FROM "{table}"',
        *[f'UPDATE "{table}" SET {column} = {value} WHERE {some}'] * 6,
        *[f'UPDATE "{table}" SET {column} = {other} WHERE {some}'] * 2,
    ))  # fmt: skip


def parquet_folder(rng: Random, data: bytes) -> bytes:
    """Change one Parquet file of those in an archive: its columns, their types, its bytes."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice((1, 1, 3))):
        name = rng.choice(list(files))
        how = rng.random()
        if how < 0.1:
            del files[name]
        elif how < 0.25:
            made = bytearray(files[name])
            made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
            files[name] = bytes(made)
        else:
            # A file without columns, or whose values do not fit the other type, stays as it is.
            with suppress(pa.ArrowException, OSError, ValueError):
                files[name] = _stored(_changed(rng, pq.read_table(io.BytesIO(files[name]))))
        if not files:
            break
    return zipped(files)


def zipped(files: dict[str, bytes]) -> bytes:
    """Put files into an archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _stored(table: pa.Table) -> bytes:
    packed = io.BytesIO()
    pq.write_table(table, packed)
    return packed.getvalue()


def _changed(rng: Random, table: pa.Table) -> pa.Table:
    at = rng.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    changes: tuple[Callable[[], pa.Table], ...] = (
        lambda: table.drop_columns([name]),
        lambda: table.rename_columns([*table.column_names[:at], "x", *table.column_names[at + 1 :]]),
        lambda: table.append_column(name, column),
        lambda: table.slice(0, 0),
        lambda: _with(table, at, pa.nulls(len(table), pa.int64())),
        lambda: _with(table, at, pa.nulls(len(table))),
        lambda: _with(table, at, pc.cast(column, pa.string())),
        lambda: _with(table, at, pc.cast(column, pa.float64())),
        lambda: _with(table, at, pa.array([[1]] * len(table))),
        lambda: _with(table, at, pa.array([{"a": 1}] * len(table))),
        lambda: _with(table, at, pa.array([b"\xff\x00"] * len(table))),
        lambda: _with(table, at, pa.array([True] * len(table))),
        lambda: _with(table, at, pa.array([float("nan")] * len(table))),
        lambda: _with(table, at, pa.array([2**64 - 1] * len(table), pa.uint64())),
        lambda: _with(table, at, pa.array([0] * len(table), pa.timestamp("ns", "UTC"))),
        lambda: _with(table, at, pc.cast(column, pa.string()).dictionary_encode()),
        *[lambda: _with(table, at, pa.array([rng.choice(_NUMBERS[:7])] * len(table)))] * 4,
    )  # fmt: skip
    return rng.choice(changes)()


def _with(table: pa.Table, at: int, column: Any) -> pa.Table:
    return table.set_column(at, table.column_names[at], column)


def tree(rng: Random, root: Any) -> Any:
    """Change nodes of a tree of dictionaries and lists, in place; return the tree."""
    places = list(_places(root))
    for parent, key in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 8)))):
        with suppress(KeyError, IndexError, TypeError):
            _change(rng, parent, key, places)
    return root


def _places(root: Any) -> Iterator[tuple[Any, Any]]:
    left = [root]
    while left:
        parent = left.pop()
        items = parent.items() if isinstance(parent, dict) else enumerate(parent)
        for key, child in items:
            yield parent, key
            if isinstance(child, dict | list):
                left.append(child)


def _change(rng: Random, parent: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    how = rng.random()
    if how < 0.2:
        del parent[key]
    elif how < 0.3 and isinstance(parent, dict):
        parent[f"{key}_"] = parent.pop(key)
    elif how < 0.45:
        other, name = rng.choice(places)
        # A copy: a tree that holds itself cannot be written.
        parent[key] = json.loads(json.dumps(other[name], default=str))
    else:
        parent[key] = rng.choice(_ODD)


def json_document(rng: Random, data: bytes) -> bytes:
    """Change nodes of a document, or of one of several lines."""
    try:
        return json.dumps(tree(rng, json.loads(data))).encode()
    except ValueError:
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
        return b"".join(json.dumps(line).encode() + b"\n" for line in tree(rng, lines))


def pickled(rng: Random, data: bytes) -> bytes:
    """Change nodes of what was pickled, and write it as another version of Python might.

    Only for files that this package made: others would run.
    """
    content = pickle.loads(data)  # noqa: S301 - of this package
    return pickle.dumps(tree(rng, content), rng.choice((2, 4, 5)))


def protobuf(rng: Random, data: bytes) -> bytes:
    """Change fields of messages at any depth, and write the lengths around them anew."""
    for _ in range(rng.choice((1, 1, 3, 10))):
        data = _message(rng, data)
    return data


def event_file(rng: Random, data: bytes) -> bytes:
    """Change events of TensorBoard, each record with the checksum of its new content."""
    payloads, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        payloads.append(data[at + 12 : at + 12 + size])
        at += 16 + size
    for _ in range(rng.choice((1, 3, 10))):
        chosen = rng.randrange(len(payloads))
        payloads[chosen] = protobuf(rng, payloads[chosen])
    return records(*payloads)


def _message(rng: Random, data: bytes) -> bytes:
    fields = _fields(data)
    if not fields:
        return data
    at = rng.randrange(len(fields))
    number, kind, value = fields[at]
    if kind == 2 and rng.random() < 0.8 and _fields(value):
        fields[at] = (number, 2, _message(rng, value))
        return b"".join(map(_encoded, fields))
    how = rng.random()
    if how < 0.3:
        fields[at : at + 1] = [fields[at]] * rng.choice((0, 0, 2, 4))
    elif how < 0.4:
        fields[at] = (rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 100, (1 << 29) - 1)), kind, value)
    elif how < 0.5:
        fields.insert(0, fields.pop(at))
    elif how < 0.6:
        fields[at] = (number, 0, 1) if kind == 2 else (number, 2, b"text")
    else:
        fields[at] = _other_value(rng, number, kind, value)
    return b"".join(map(_encoded, fields))


def _other_value(rng: Random, number: int, kind: int, value: Any) -> tuple[int, int, Any]:
    if kind != 2:
        return (number, 0, rng.choice(_NUMBERS) & (1 << 64) - 1)
    others = (b"", b"\xff", b"x" * 5000, value[:-1], value + b"\0")
    return (number, 2, rng.choice(others))


def _fields(data: bytes) -> list[tuple[int, int, Any]]:
    """Split a message into its fields; none where it is no message."""
    fields, at = [], 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == 0:
                value, at = _varint(data, at)
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
                value, at = data[at : at + size], at + size
            else:
                size, at = _varint(data, at)
                value, at = data[at : at + size], at + size
            if kind not in (0, 1, 2, 5) or at > len(data) or not number:
                return []
            fields.append((number, kind, value))
    except IndexError:
        return []
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise IndexError


def _encoded(field: tuple[int, int, Any]) -> bytes:
    number, kind, value = field
    head = _as_varint(number << 3 | kind)
    if kind == 0:
        return head + _as_varint(value)
    return head + (_as_varint(len(value)) if kind == 2 else b"") + value


def _as_varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


STRUCTURES: dict[str, Callable[[Random, bytes], bytes]] = {
    ".sqlite": sqlite, ".db": sqlite, ".zip": parquet_folder, ".json": json_document,
    ".jsonl": json_document, ".pickle": pickled, ".pb": protobuf, ".pftrace": protobuf,
    ".gpu7": event_file,
}  # fmt: skip


def structured(rng: Random, name: str, data: bytes) -> tuple[str, bytes] | None:
    """Damage a made file within its structure; None where that is not known, or for bytes."""
    change = STRUCTURES.get(name[name.rfind(".") :]) if name.startswith("made/") else None
    # Bytes are damaged as often as what they mean; those of an archive stand for a folder.
    if change is None or (change is not parquet_folder and rng.random() < 0.5):
        return None
    return change.__name__, change(rng, data)
