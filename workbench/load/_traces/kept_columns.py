"""Tables on disk just as they lie in memory, so that opening one reads next to nothing; the cache.

A file is a mark, the length and checksum of a header, the header (JSON) and the columns, each from
a multiple of 64 bytes on and not compressed: codes of categories, numbers, and a bit per value that
may be missing. It is mapped, so that columns take memory once somebody writes to them. Files are
only ever replaced whole, and a table keeps the file that it was read from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BufferedWriter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import SHIPPED_RULES
from workbench._shared.writing import write_whole
from workbench.load._files.archive import Source
from workbench.load._files.findings import Finding
from workbench.load._traces.kineto.gpus import Gpu
from workbench.load._traces.kineto.rank import RankTables
from workbench.load._traces.parquet import pack_frame, unpack_frame
from workbench.tables import EVENTS, STEPS

Array: TypeAlias = NDArray[Any]

_MARK = b"wbcolumn"
_START = struct.Struct("<8sQQ")
_ALIGNED_BYTES = 64
_BLOCK_BYTES = 1 << 16
_NUMBERS = frozenset({"int8", "int16", "int32", "int64", "float64", "uint8"})


def write_columns(frame: pd.DataFrame, more: Mapping[str, Any], path: Path) -> None:
    """Store the columns of a frame, whole or not at all, and what JSON can hold beside them."""
    columns, arrays = [], []
    for name, column in frame.items():
        described, of_column = _taken_apart(column)
        described["sums"] = [checksum(array) for array in of_column]
        columns.append({"name": str(name)} | described)
        arrays += of_column
    header = json.dumps({"rows": len(frame), "columns": columns, "more": more}).encode()

    def write_to(file: BufferedWriter) -> None:
        file.write(_START.pack(_MARK, len(header), zlib.crc32(header)) + header)
        for array in arrays:
            file.write(bytes(-file.tell() % _ALIGNED_BYTES))
            file.write(array.data)

    write_whole(path, write_to)


def read_columns(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a stored frame and what lies beside it; its arrays may be written to.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is damaged, cut or something else.
    """
    with path.open("rb") as file:
        # Whoever writes to such a map gets a page of his own; the file stays as it is.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    try:
        mark, length, crc = _START.unpack_from(mapped)
        end = _START.size + length
        if mark != _MARK or end > len(mapped) or zlib.crc32(mapped[_START.size : end]) != crc:
            _refuse()
        header = json.loads(mapped[_START.size : end])
        rows, reader = header["rows"], _Reader(mapped, end)
        # Every row has a time, so that a table without that many bytes is none.
        if not 0 <= rows <= len(mapped):
            _refuse()
        columns = {column["name"]: reader.column(column, rows) for column in header["columns"]}
        return pd.DataFrame(columns, copy=False), header["more"]
    except (KeyError, TypeError, RecursionError, struct.error) as error:
        raise ValueError(str(error)) from error


def checksum(array: Array) -> int:
    """Sum up an array so that what disks and copies do to files changes the sum.

    Words of 8 bytes are added per block, which is as quick as memory is; blocks have weights of
    their own, odd and so without loss, that swapped ones are seen.
    """
    raw = array.view(np.uint8)
    whole = len(raw) // _BLOCK_BYTES * _BLOCK_BYTES
    blocks = raw[:whole].view(np.uint64).reshape(-1, _BLOCK_BYTES // 8).sum(axis=1)
    weights = 2 * np.arange(len(blocks), dtype=np.uint64) + np.uint64(1)
    return (int((blocks * weights).sum()) + zlib.crc32(raw[whole:].data)) % (1 << 64)


def _taken_apart(column: pd.Series) -> tuple[dict[str, Any], list[Array]]:
    array: Any = column.array
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = [str(name) for name in array.categories]
        codes = np.ascontiguousarray(array.codes)
        return {"dtype": "category", "codes": str(codes.dtype), "categories": names}, [codes]
    dtype = str(column.dtype)
    if dtype == dtype.lower():
        return {"dtype": dtype}, [np.ascontiguousarray(column.to_numpy())]
    is_missing = np.asarray(column.isna())
    if is_missing.all():
        return {"dtype": dtype}, []
    values = array.to_numpy(dtype=dtype.lower(), na_value=0)
    return {"dtype": dtype}, [values, np.packbits(is_missing)]


class _Reader:
    """Gives the arrays of a mapped file, one after the other, none beyond its end."""

    def __init__(self, mapped: mmap.mmap, end: int) -> None:
        self._mapped, self._end = mapped, end

    def column(self, described: Mapping[str, Any], rows: int) -> Any:
        dtype, sums = described["dtype"], iter(described["sums"])
        if dtype == "category":
            codes = self._array(described["codes"], rows, sums)
            names = pd.Index(described["categories"], dtype="str")
            return pd.Categorical.from_codes(codes, categories=names)
        if dtype == dtype.lower():
            return self._array(dtype, rows, sums)
        if not described["sums"]:
            # Zeros take no memory until they are written to.
            values, is_missing = np.zeros(rows, _number(dtype.lower())), np.ones(rows, bool)
        else:
            values = self._array(dtype.lower(), rows, sums)
            bits = self._array("uint8", -(-rows // 8), sums)
            is_missing = np.unpackbits(bits, count=rows).view(bool)
        array_type: Any = pd.Series([], dtype=dtype).array
        return type(array_type)(values, is_missing)

    def _array(self, dtype: str, count: int, sums: Iterator[int]) -> Array:
        number = _number(dtype)
        start = -(-self._end // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self._end = start + count * number.itemsize
        if self._end > len(self._mapped):
            _refuse()
        array = np.frombuffer(self._mapped, number, count, start)
        if checksum(array) != next(sums, None):
            _refuse()
        return array


def _number(dtype: str) -> np.dtype[Any]:
    if dtype not in _NUMBERS:
        _refuse()
    return np.dtype(dtype)


def _refuse() -> None:
    msg = "is damaged, cut or no stored table"
    raise ValueError(msg)


# Parsed files kept on disk, by content, so that the second load is quick.

# Part of every key: raise it whenever the same bytes would give other tables.
LAYOUT = 8
# A file that changed a moment ago may change again and keep its time: clocks of disks are coarse.
_SETTLED_NS = 2_000_000_000


def key(source: Source, args: Sequence[str], rules: pd.DataFrame | None, directory: Path) -> str:
    """Return the name under which the tables of ``source`` are kept.

    It depends on the bytes of the file and on every option that changes the tables, not on the
    file's name, place or age.
    """
    shipped = _digest(SHIPPED_RULES.read_bytes())
    own = None if rules is None else _digest(rules.to_csv(index=False).encode())
    options = json.dumps([LAYOUT, source.member, sorted(set(args)), shipped, own])
    content = _content_digest(source.path, directory)
    return hashlib.sha256(f"{content}\n{options}".encode()).hexdigest()[:40]


def get_or_store(
    directory: Path,
    source: Source,
    options: tuple[Sequence[str], pd.DataFrame | None],
    parse: Callable[[], list[RankTables]],
) -> list[RankTables]:
    """Return the kept tables of ``source``, or parse it and keep them if it holds one rank.

    A kept file that is damaged, or was made by something else, is replaced. Where nothing can be
    kept, the tables say so in their quality.
    """
    try:
        file = directory / f"{key(source, *options, directory)}.columns"
    except OSError as error:
        return _not_kept(parse(), error)
    if (kept := _load(file, source.label)) is not None:
        return [kept]
    ranks = parse()
    if len(ranks) == 1:
        try:
            _store(ranks[0], file)
        except OSError as error:
            return _not_kept(ranks, error)
    return ranks


def _not_kept(ranks: Sequence[RankTables], error: OSError) -> list[RankTables]:
    finding = f"the cache cannot be used: {error.strerror or error}"
    return [
        replace(tables, findings=(*tables.findings, (tables.label, "noted", finding, 1, None)))
        for tables in ranks
    ]


# Hashing reads the whole file, so the digest is remembered while size, times and inode stay.
def _content_digest(path: Path, directory: Path) -> str:
    seen = _state(path)
    memo = directory / "seen" / hashlib.sha256(seen.encode()).hexdigest()[:40]
    with contextlib.suppress(OSError):
        digest_before = memo.read_text(encoding="ascii")
        if len(digest_before) == 64:
            return digest_before
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    changed_ns = max(path.stat().st_ctime_ns, path.stat().st_mtime_ns)
    if _state(path) == seen and time.time_ns() - changed_ns > _SETTLED_NS:
        write_whole(memo, lambda file: file.write(digest.encode("ascii")))
    return digest


# The time of the last change (ctime) moves even where someone sets that of the content back.
def _state(path: Path) -> str:
    now = path.stat()
    times = f"{now.st_mtime_ns}|{now.st_ctime_ns}"
    return f"{path.resolve()}|{now.st_size}|{times}|{now.st_dev}|{now.st_ino}"


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _load(file: Path, label: str) -> RankTables | None:
    try:
        table, header = read_columns(file)
        findings = tuple(_finding(label + part, *row) for part, *row in header["findings"])
        gpus = [Gpu(*gpu) for gpu in header["gpus"]]
        steps = unpack_frame(header["steps"], STEPS)
        events = EVENTS.check(table, str(file))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
    return RankTables(label, events, steps, findings, header["metadata"], header["clock"], gpus)


def _finding(label: str, finding: str, what: str, count: int, where: str | None) -> Finding:
    texts = (finding, what, where or "")
    if not all(isinstance(text, str) for text in texts) or not isinstance(count, int):
        msg = "a finding is kept as (finding, what, count, where)"
        raise TypeError(msg)
    return label, finding, what, count, where


def _store(tables: RankTables, file: Path) -> None:
    more = {
        "metadata": tables.metadata, "clock": tables.clock,
        "findings": [(row[0].removeprefix(tables.label), *row[1:]) for row in tables.findings],
        "steps": pack_frame(tables.steps), "gpus": tables.gpus,
    }  # fmt: skip
    write_columns(tables.events, more, file)
