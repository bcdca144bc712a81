"""Columns of integers and texts from the pages of a database, without an object for each value.

The driver of SQLite makes a Python object of every value. Here the leaf pages of a table are
decoded as arrays. Whatever is not plain (values beyond a page, other types, damage) is None for
the whole table, which SQL then reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.load._traces.kineto.blocks import MISSING

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_HEADER_BYTES = 100
_BATCH_BYTES = 4 << 20
_DEEPEST = 20
_INTERIOR, _LEAF = 5, 13
# A leaf is 8 bytes of header, then a pointer per cell; an interior page has 12.
_LEAF_HEADER, _INTERIOR_HEADER = 8, 12
# Longer texts are cut by SQL, which counts characters.
_LONGEST_TEXT = 4096
_UTF_8 = 1
# Bytes of a value by its serial type: null, integers of 1 to 8 bytes, float, 0, 1.
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)
_FLOAT, _ZERO, _ONE, _FIRST_TEXT = 7, 8, 9, 13


class _NotPlainError(Exception):
    """The table holds what only SQL reads."""


@dataclass(frozen=True)
class Wanted:
    """The places of columns in the records of a table, and what numbers a text."""

    numbers: Sequence[int]
    texts: dict[int, Callable[[bytes | None], int]]


def columns_of(path: Path, root: int, wanted: Wanted) -> dict[int, npt.NDArray[Any]] | None:
    """Return the columns at some places, or None where SQL has to read them.

    Numbers that are missing are :data:`MISSING`; texts are what ``wanted.texts`` numbers.

    References
    ----------
    SQLite, Database File Format, sqlite.org/fileformat2.html, sections 1.6 and 2.1.
    """
    try:
        with path.open("rb") as file:
            pages = _Pages(file)
            batches = [_batch(*pages.cells(leaves), wanted) for leaves in pages.leaves(root)]
    except _NotPlainError:
        return None
    places = (*wanted.numbers, *wanted.texts)
    return {at: np.concatenate([batch[at] for batch in batches]) for at in places}


class _Pages:
    """The pages of a table."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        head = file.read(_HEADER_BYTES)
        _must(len(head) == _HEADER_BYTES and head[56:60] == _UTF_8.to_bytes(4, "big"))
        size = int.from_bytes(head[16:18], "big")
        self._size = 65536 if size == 1 else size
        # A power of two from 512 on; the rest of a page may be reserved for extensions.
        _must(self._size >= 512 and self._size & (self._size - 1) == 0)
        self._usable = self._size - head[20]
        self._count = file.seek(0, 2) // self._size

    def _read(self, numbers: IntArray) -> Bytes:
        """Return pages as rows; those that lie behind each other are read at once."""
        _must(bool(((numbers > 1) & (numbers <= self._count)).all()))
        pages = np.empty((len(numbers), self._size), np.uint8)
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        for first, last in zip(
            [0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True
        ):
            self._file.seek((int(numbers[first]) - 1) * self._size)
            _must(self._file.readinto(pages[first:last].data) == (last - first) * self._size)
        return pages

    def leaves(self, root: int) -> Iterator[IntArray]:
        """Yield the numbers of the leaf pages in order, some at a time."""
        level = np.array([root], np.int64)
        for _ in range(_DEEPEST):
            # A tree is balanced: the first page states its level, and every page is asked again.
            if self._read(level[:1])[0, 0] == _LEAF:
                some = max(1, _BATCH_BYTES // self._size)
                yield from (level[at : at + some] for at in range(0, len(level), some))
                return
            level = np.concatenate([self._children(page) for page in self._read(level)])
            # Every page has one parent; a circle would not end.
            _must(len(level) <= self._count and len(np.unique(level)) == len(level))
        raise _NotPlainError

    def _children(self, page: Bytes) -> IntArray:
        _must(page[0] == _INTERIOR)
        count = int(page[3]) << 8 | int(page[4])
        end = _INTERIOR_HEADER + 2 * count
        _must(end <= self._usable)
        at = page[_INTERIOR_HEADER:end].view(">u2").astype(np.int64)
        _must(bool((at + 4 <= self._usable).all()))
        first = [int.from_bytes(page[place : place + 4].tobytes(), "big") for place in at.tolist()]
        return np.array([*first, int.from_bytes(page[8:12].tobytes(), "big")], np.int64)

    def cells(self, leaves: IntArray) -> tuple[Bytes, IntArray, IntArray]:
        """Return bytes, and in them where each record begins and ends."""
        pages = self._read(leaves)
        _must(bool((pages[:, 0] == _LEAF).all()))
        counts = pages[:, 3].astype(np.int64) << 8 | pages[:, 4]
        _must(bool((_LEAF_HEADER + 2 * counts <= self._usable).all()))
        page = np.repeat(np.arange(len(leaves)), counts)
        nth = np.arange(len(page)) - np.repeat(np.cumsum(counts) - counts, counts)
        data = pages.reshape(-1)
        pointer = page * self._size + _LEAF_HEADER + 2 * nth
        at = data[pointer].astype(np.int64) << 8 | data[pointer + 1]
        # Header and pointers come first; a varint of a cell has up to nine bytes, so two have 18.
        _must(bool((at >= _LEAF_HEADER).all() and (at + 4 <= self._usable).all()))
        begin = page * self._size + at
        limit = (page + 1) * self._size - (self._size - self._usable)
        size, begin = _varints(data, begin, limit)
        _, begin = _varints(data, begin, limit, most=9)
        # A larger record goes on in other pages.
        _must(bool((size <= self._usable - 35).all() and (begin + size <= limit).all()))
        return data, begin, begin + size


def _batch(
    data: Bytes, begin: IntArray, end: IntArray, wanted: Wanted
) -> dict[int, npt.NDArray[Any]]:
    columns: dict[int, npt.NDArray[Any]] = {}
    header, at = _varints(data, begin, end)
    value, header_end = begin + header, begin + header
    _must(bool((header_end <= end).all()))
    for place in range(max((*wanted.numbers, *wanted.texts), default=-1) + 1):
        kind, at = _varints(data, at, header_end)
        size = np.where(kind < len(_SIZES), _SIZES[np.minimum(kind, 11)], (kind - 12) >> 1)
        if place in wanted.texts or place in wanted.numbers:
            _must(bool((value + size <= end).all()))
        if place in wanted.texts:
            columns[place] = _texts(data, kind, value, size, wanted.texts[place])
        elif place in wanted.numbers:
            columns[place] = _integers(data, kind, value, size)
        value = value + size
    return columns


def _integers(data: Bytes, kind: IntArray, at: IntArray, size: IntArray) -> IntArray:
    _must(bool(((kind <= _ONE) & (kind != _FLOAT)).all()))
    # The eight bytes that end with a value, of which its own remain. A value never begins a page.
    windows: npt.NDArray[Any] = np.ndarray((len(data) - 7,), ">i8", data.data, strides=(1,))
    spare = (8 - size) * 8
    read: IntArray = windows[at + size - 8].astype(np.int64)
    # Shifting by 64 is undefined, so values without bytes are set behind.
    spare[size == 0] = 0
    read = (read << spare) >> spare
    read[kind == 0] = MISSING
    read[kind == _ZERO] = 0
    read[kind == _ONE] = 1
    return read


def _texts(
    data: Bytes, kind: IntArray, at: IntArray, size: IntArray,
    number: Callable[[bytes | None], int],
) -> npt.NDArray[np.int32]:  # fmt: skip
    is_text = (kind >= _FIRST_TEXT) & (kind & 1 == 1) & (size <= _LONGEST_TEXT)
    _must(bool((is_text | (kind == 0)).all()))
    raw = data.tobytes()
    spans = zip(at.tolist(), (at + size).tolist(), is_text.tolist(), strict=True)
    texts = [raw[begin:end] if told else None for begin, end, told in spans]
    # SQL ends a text at its first zero.
    _must(not any(text and 0 in text for text in set(texts)))
    return np.fromiter(map(number, texts), np.int32, len(texts))


def _varints(data: Bytes, at: IntArray, end: IntArray, most: int = 3) -> tuple[IntArray, IntArray]:
    """Decode numbers of up to ``most`` bytes, and the place behind each."""
    _must(bool((at < end).all()))
    byte = data[at]
    value, behind = byte.astype(np.int64), at + 1
    rows = np.flatnonzero(byte & 0x80)
    value[rows] &= 0x7F
    for nth in range(1, most):
        if not len(rows):
            return value, behind
        place = behind[rows]
        _must(bool((place < end[rows]).all()))
        byte = data[place]
        behind[rows] = place + 1
        value[rows] = value[rows] << 7 | (byte & 0x7F)
        # The ninth byte is whole.
        rows = rows[byte & 0x80 != 0] if nth < 8 else rows[:0]
    _must(not len(rows))
    return value, behind


def _must(is_plain: bool) -> None:
    if not is_plain:
        raise _NotPlainError
