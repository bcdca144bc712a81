"""Whose readings the rows of a table hold: columns of names as codes of entities."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.load._files.findings import Row
from workbench.load._files.wanted import printable
from workbench.load._power.formats.table.columns import PowerColumn, PowerLayout, is_text, plain

# Numbers of one column, and the text of each; None if the numbers are their own texts.
Coded = tuple[np.ndarray, list[str] | None]


@dataclass(frozen=True)
class Runs:
    """Codes of rows: of each run, and where it begins; of each row if ``starts`` is missing."""

    starts: np.ndarray | None
    codes: np.ndarray
    row_count: int

    @property
    def per_row(self) -> np.ndarray:
        if self.starts is None:
            return self.codes
        return np.repeat(self.codes, np.diff(self.starts, append=self.row_count))


def coded(column: pa.Array) -> Coded:
    """Return the values of a column as numbers; a missing one has an empty text."""
    if pa.types.is_dictionary(column.type) and not is_text(column.type.value_type):
        column = plain(column)
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = [*map(_text, column.dictionary.to_pylist()), ""]
    indices = column.indices.fill_null(len(texts) - 1) if column.null_count else column.indices
    return indices.to_numpy(zero_copy_only=False), texts


def changes(columns: Sequence[np.ndarray]) -> np.ndarray:
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    is_new = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        is_new |= column[1:] != column[:-1]
    return np.concatenate([[0], np.flatnonzero(is_new) + 1]).astype(np.int64)


def grouped(columns: Sequence[Coded]) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    combined = np.zeros(len(columns[0][0]), dtype=np.int64)
    positions, values = [], []
    for numbers, texts in columns:
        position, unique = pd.factorize(numbers)
        labels = unique.tolist()
        positions.append(position)
        values.append([str(label) if texts is None else texts[label] for label in labels])
        combined = combined * max(len(labels), 1) + position
    _, first, inside = np.unique(combined, return_index=True, return_inverse=True)
    who = [tuple(v[p[row]] for p, v in zip(positions, values, strict=True)) for row in first]
    return inside, who


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


_GPU = re.compile(r"(.+)/gpu(\d+)|gpu(\d+)")
_FEW = 1 << 17
_NAME_CHARS = 300
# Rows per run from which it pays to look at runs instead of rows.
_LONG_RUN = 8
_UNKNOWN = -2
_NO_CODES = np.zeros(0, dtype=np.int32)
_NUMBER = re.compile(r"(?:gpu[ _-]?)?(\d+)(?:\.0)?", re.IGNORECASE)


def _wider(first: int, table: np.ndarray, low: int, high: int) -> tuple[int, np.ndarray]:
    """Return codes of numbers from ``low`` to ``high``, and of those before if all are few."""
    start, end = min(first, low), max(first + len(table) - 1, high)
    if not len(table) or end - start >= _FEW:
        return low, np.full(high - low + 1, _UNKNOWN, dtype=np.int32)
    wider = np.full(end - start + 1, _UNKNOWN, dtype=np.int32)
    wider[first - start : first - start + len(table)] = table
    return start, wider


class Things:
    """Gives the same code to the same names, throughout the files of one layout.

    Several threads may ask at once.
    """

    def __init__(self, layout: PowerLayout, node: str | None = None) -> None:
        self._layout = layout
        self._node = node
        self._lock = threading.Lock()
        self._codes: dict[tuple[str, ...], int] = {}
        self._by_name: dict[str, int] = {}
        self._tables: dict[str, tuple[int, np.ndarray]] = {}
        self.names: list[str] = []
        self.facts: list[Row] = []

    def codes(self, identity: list[pa.Array], column: PowerColumn, stem: str, rows: int) -> Runs:
        """Return the codes of rows; -1 where a name is missing.

        ``stem`` is the name of the file, for rows that name nothing.
        """
        if not identity:
            code = self._code((stem, column.part), (), column, stem)
            return Runs(np.zeros(min(rows, 1), np.int64), np.full(min(rows, 1), code), rows)
        raw = [coded(item) for item in identity]
        begins = changes([numbers for numbers, _ in raw])
        starts = begins if len(begins) * _LONG_RUN <= rows else None
        if len(raw) == 1 and raw[0][1] is None:
            numbers = raw[0][0] if starts is None else raw[0][0][starts]
            return Runs(starts, self._by_table(numbers, column), rows)
        subset = [(item if starts is None else item[starts], texts) for item, texts in raw]
        inside, who = grouped(subset)
        codes_of = [self._code((column.part, *item), item, column, stem) for item in who]
        return Runs(starts, np.array(codes_of, dtype=np.int32)[inside], rows)

    def _by_table(self, numbers: np.ndarray, column: PowerColumn) -> np.ndarray:
        """Return the codes of whole numbers, without looking at any twice."""
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
        if high - low >= _FEW:
            inside, names = grouped([(numbers, None)])
            codes_of = [self._code((column.part, *name), name, column, "") for name in names]
            spread: np.ndarray = np.array(codes_of, dtype=np.int32)[inside]
            return spread
        first, table = self._tables.get(column.name, (0, _NO_CODES))
        if low < first or high >= first + len(table):
            first, table = _wider(first, table, low, high)
        codes: np.ndarray = table[numbers - first]
        if len(codes) and codes.min() == _UNKNOWN:
            table = table.copy()
            for number in np.unique(numbers[codes == _UNKNOWN]).tolist():
                who = (str(number),)
                table[number - first] = self._code((column.part, *who), who, column, "")
            codes = table[numbers - first]
            self._tables[column.name] = (first, table)
        return codes

    def _code(
        self, key: tuple[str, ...], who: tuple[str, ...], column: PowerColumn, stem: str
    ) -> int:
        if (codes_of := self._codes.get(key)) is not None:
            return codes_of
        if "" in who:
            return -1
        name, facts = self._named(who, column, stem)
        name = _kept(name)
        facts = {key: _kept(fact) if isinstance(fact, str) else fact for key, fact in facts.items()}
        with self._lock:
            code = self._by_name.setdefault(name, len(self.names))
            if code == len(self.names):
                self.names.append(name)
                self.facts.append(facts)
            self._codes[key] = code
        return code

    def _named(self, who: tuple[str, ...], column: PowerColumn, stem: str) -> tuple[str, Row]:
        layout = self._layout
        facts: Row = {"scope": column.scope, "method": column.method}
        facts |= {"unit": "W"} if column.factor is not None else {}
        if layout.entity is not None:
            name = f"{who[0]}/{column.part}" if column.part else who[0]
            return name, facts | _of_gpu(name, column.scope)
        values = dict(zip(layout.identity, who, strict=True))
        node = values.get(layout.node or "") or self._node
        device = values.get(layout.device or "")
        if device and not layout.is_uuid and (number := _NUMBER.fullmatch(device)):
            device = f"gpu{int(number[1])}"
        sensor = column.part if not device or not column.part else f"{device} {column.part}"
        last = sensor or device or ""
        if node is None and not last:
            return stem, facts | {"assumed": "entity named after the file"}
        if column.is_entity and "/" in last:
            return last, facts | _of_gpu(last, column.scope)
        name = "/".join(item for item in (node, last) if item)
        if column.is_entity and column.scope.startswith("node"):
            return last, facts | {"node": last}
        return name, facts | {"node": node, "device": last or None}


def _of_gpu(name: str, scope: str) -> Row:
    match = _GPU.fullmatch(name)
    if match is None or scope not in ("unknown", "gpu"):
        return {}
    return {"scope": "gpu", "node": match[1], "device": f"gpu{match[2] or match[3]}"}


def _kept(name: str) -> str:
    # Names reach terminals and HTML: printable and bounded; the digest keeps long ones apart.
    name = printable(name)
    if len(name) <= _NAME_CHARS:
        return name
    return f"{name[: _NAME_CHARS // 2]}… {hashlib.sha256(name.encode()).hexdigest()[:12]}"
