"""Runs of rows that name the same thing, and columns of names as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.load._files.findings import Findings
from workbench.load._power.formats.table.columns import is_text, plain
from workbench.load._power.rows import Rows, place

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


# Powers that can be none: negative, absurd, not finite, or in another unit than they seem.

# What no single thing of a scope draws, in W: far above any product, far below a wrong unit.
_MOST_W = {
    **dict.fromkeys(("gpu", "cpu", "memory"), 5e3),
    "module": 2e4,
    **dict.fromkeys(("node_dc", "node_ac"), 2e5),
    "switch": 5e5,
    "rack": 2e6,
    **dict.fromkeys(("row", "pdu", "panel", "switchboard"), 1e8),
    **dict.fromkeys(("msb", "cooling"), 1e9),
}
_MOST_OF_ALL_W = 2e10


def most_w(scope: object) -> float:
    """Return the power above which a reading of this scope is taken for an error."""
    return _MOST_W.get(str(scope), _MOST_OF_ALL_W)


def clean_values(rows: Rows, entities: dict[str, dict[str, Any]], findings: Findings) -> None:
    """Make what can be no power missing, in place, and count it with the line of the first."""
    findings.add(
        "noted", "readings without power in the file", *_first(np.isnan(rows.numbers), rows)
    )
    odd = np.isinf(rows.numbers)
    _drop(rows, odd, "readings that are not finite; they are missing", findings)
    _read_as_mw(rows, entities, findings)
    _drop(rows, rows.numbers < 0, "negative powers; they are missing", findings)
    limits = np.array([most_w(entities[name].get("scope")) for name in rows.names])
    if not len(limits):
        return
    is_absurd = rows.numbers > limits[rows.codes]
    for limit in np.unique(limits[rows.codes[is_absurd]]):
        what = f"powers above {limit:,.0f} W, more than any such thing draws; they are missing"
        _drop(rows, is_absurd & (limits[rows.codes] == limit), what, findings)


def _drop(rows: Rows, bad: np.ndarray, what: str, findings: Findings) -> None:
    if bad.any():
        findings.add("dropped", what, *_first(bad, rows))
        rows.numbers[bad] = np.nan


def _first(bad: np.ndarray, rows: Rows) -> tuple[int, str | None]:
    count = int(bad.sum())
    return count, place(rows, int(bad.argmax())) if count else None


def _read_as_mw(rows: Rows, entities: dict[str, dict[str, Any]], findings: Findings) -> None:
    """Divide the readings of GPUs that are plainly milliwatts without a unit, and tell."""
    high = rows.numbers > _MOST_W["gpu"]
    for code in np.unique(rows.codes[high]):
        known = entities[rows.names[code]]
        is_stated = known.get("unit") or "unit=" in str(known.get("assumed", ""))
        if known.get("scope") != "gpu" or is_stated:
            continue
        at = rows.codes == code
        values = rows.numbers[at]
        middle = float(np.median(values[np.isfinite(values)]))
        # 5 W to 5,000 W, said in milliwatts.
        if not _MOST_W["gpu"] < middle <= _MOST_W["gpu"] * 1e3:
            continue
        rows.numbers[at] = values / 1e3
        known["assumed"] = ", ".join(filter(None, [known.get("assumed", ""), "unit=mW"]))
        what = "GPUs whose powers name no unit and are taken for mW, by their size; pass unit="
        where = f"{rows.names[code]}: median {middle:,.0f}"
        findings.add("assumed", what, 1, where)
