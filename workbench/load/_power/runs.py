"""Runs of rows that name the same thing, and columns of names as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.load._power.formats.table.cells import is_text, plain

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
        """The code of each row."""
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
    """Return the rows where one of the columns differs from the row before, and the first."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    is_new = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        is_new |= column[1:] != column[:-1]
    return np.concatenate([[0], np.flatnonzero(is_new) + 1]).astype(np.int64)


def grouped(columns: Sequence[Coded]) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """Return per row the number of its combination of texts, and the combinations."""
    combined = np.zeros(len(columns[0][0]), dtype=np.int64)
    places, values = [], []
    for numbers, texts in columns:
        place, unique = pd.factorize(numbers)
        told = unique.tolist()
        places.append(place)
        values.append([str(each) if texts is None else texts[each] for each in told])
        combined = combined * max(len(told), 1) + place
    _, first, inside = np.unique(combined, return_index=True, return_inverse=True)
    who = [tuple(v[p[row]] for p, v in zip(places, values, strict=True)) for row in first]
    return inside, who


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()
