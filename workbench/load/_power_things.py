"""Whose readings the rows of a table hold: columns of names as codes of entities."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.load._power_cells import is_text, plain
from workbench.load._power_layout import PowerColumn, PowerLayout

_GPU = re.compile(r"(.+)/gpu(\d+)|gpu(\d+)")
_FEW = 1 << 17
_NUMBER = re.compile(r"(?:gpu[ _-]?)?(\d+)(?:\.0)?", re.IGNORECASE)


class Things:
    """Gives the same code to the same names, throughout the files of one layout."""

    def __init__(self, layout: PowerLayout, node: str | None, stem: str) -> None:
        self._layout = layout
        self._node = node
        self._stem = stem
        self._codes: dict[tuple[str, ...], int] = {}
        self._by_name: dict[str, int] = {}
        self.names: list[str] = []
        self.facts: list[dict[str, Any]] = []

    def codes(self, identity: list[pa.Array], column: PowerColumn) -> np.ndarray | int:
        """Return the code of each row, or one for all; -1 where a name is missing."""
        if not identity:
            return self._code((column.part,), (), column)
        inside, who = grouped(identity)
        known = [self._code((column.part, *each), each, column) for each in who]
        if len(known) == 1:
            return known[0]
        return np.array(known, dtype=np.int32)[inside]

    def _code(self, key: tuple[str, ...], who: tuple[str, ...], column: PowerColumn) -> int:
        if (known := self._codes.get(key)) is not None:
            return known
        if "" in who:
            return -1
        name, facts = self._named(who, column)
        code = self._by_name.setdefault(name, len(self.names))
        if code == len(self.names):
            self.names.append(name)
            self.facts.append(facts)
        self._codes[key] = code
        return code

    def _named(self, who: tuple[str, ...], column: PowerColumn) -> tuple[str, dict[str, Any]]:
        layout = self._layout
        facts: dict[str, Any] = {"scope": column.scope, "method": column.method}
        facts |= {"unit": "W"} if column.factor is not None else {}
        if layout.entity is not None:
            name = f"{who[0]}/{column.part}" if column.part else who[0]
            return name, facts | _of_gpu(name, column.scope)
        values = dict(zip(layout.identity, who, strict=True))
        node = values.get(layout.node or "") or self._node
        device = values.get(layout.device or "")
        if device and not layout.is_uuid and (number := _NUMBER.fullmatch(device)):
            device = f"gpu{int(number[1])}"
        part = column.part if not device or not column.part else f"{device} {column.part}"
        last = part or device or ""
        if node is None and not last:
            return self._stem, facts | {"assumed": "entity named after the file"}
        if column.is_entity and "/" in last:
            return last, facts | _of_gpu(last, column.scope)
        name = "/".join(each for each in (node, last) if each)
        if column.is_entity and column.scope.startswith("node"):
            return last, facts | {"node": last}
        return name, facts | {"node": node, "device": last or None}


def _of_gpu(name: str, scope: str) -> dict[str, Any]:
    """Tell host and GPU by a name of this package's own form."""
    match = _GPU.fullmatch(name)
    if match is None or scope not in ("unknown", "gpu"):
        return {}
    return {"scope": "gpu", "node": match[1], "device": f"gpu{match[2] or match[3]}"}


def grouped(columns: list[pa.Array]) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """Return per row the number of its combination of texts, and the combinations."""
    if len(columns) == 1:
        codes, names = _factorized(columns[0])
        used = np.zeros(len(names), dtype=bool)
        used[codes] = True
        inside = (np.cumsum(used) - 1)[codes]
        return inside.astype(np.int32), [(names[each],) for each in np.flatnonzero(used)]
    numbers, texts, combined = [], [], np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        number, values = _factorized(column)
        combined = combined * (len(values) + 1) + number
        numbers.append(number)
        texts.append(values)
    starts = np.r_[0, np.flatnonzero(combined[1:] != combined[:-1]) + 1]
    if len(starts) * 4 < len(combined):
        _, first, inverse = np.unique(combined[starts], return_index=True, return_inverse=True)
        first, lengths = starts[first], np.diff(np.r_[starts, len(combined)])
        inside = np.repeat(inverse, lengths)
    else:
        _, first, inside = np.unique(combined, return_index=True, return_inverse=True)
    who = [tuple(v[n[row]] for n, v in zip(numbers, texts, strict=True)) for row in first]
    return inside.astype(np.int32), who


def _factorized(column: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return codes and texts of one column; a missing name is an empty text."""
    if isinstance(column, pa.DictionaryArray) and is_text(column.type.value_type):
        texts = [*map(_text, column.dictionary.to_pylist()), ""]
        codes = column.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
        return codes.astype(np.int64), texts
    column = plain(column)
    if pa.types.is_integer(column.type) and not column.null_count:
        values = column.to_numpy(zero_copy_only=False)
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if high - low < _FEW:
            place = values.astype(np.int64) - low
            is_there = np.zeros(high - low + 1, dtype=bool)
            is_there[place] = True
            unique = np.flatnonzero(is_there)
            return (np.cumsum(is_there) - 1)[place], [str(low + each) for each in unique.tolist()]
        codes, others = pd.factorize(values)
        return codes.astype(np.int64), [str(each) for each in others.tolist()]
    encoded = column.dictionary_encode()
    texts = [*map(_text, encoded.dictionary.to_pylist()), ""]
    codes = encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), texts


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()
