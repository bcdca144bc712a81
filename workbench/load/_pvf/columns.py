"""Columns of a file as columns of a table: converted whole, or refused by their first bad cell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.arrays import BooleanArray, IntegerArray

from workbench.errors import LoadError
from workbench.tables import Column

_SHOWN_CHARS = 40
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_LIMITS: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@dataclass(frozen=True)
class Cells:
    """One column of a file, and where it stands, for messages."""

    label: str
    name: str
    column: pa.ChunkedArray

    def texts(self) -> pa.ChunkedArray:
        """Return the cells as text without blanks around it."""
        values = self.column
        if pa.types.is_dictionary(values.type):
            values = pc.cast(values, values.type.value_type)
        if not _is_text(values.type):
            values = pc.cast(values, pa.string())
        return pc.utf8_trim_whitespace(values)

    def refuse(self, bad: np.ndarray, expected: str) -> NoReturn:
        """Raise for the first bad cell, naming column and row."""
        row = int(np.flatnonzero(bad)[0])
        found = self.column[row].as_py()
        shown = "an empty cell" if found is None else repr(str(found)[:_SHOWN_CHARS])
        is_comma = "number" in expected and _DECIMAL_COMMA.fullmatch(str(found))
        msg = (
            f"{self.label}: column {self.name!r}: {int(bad.sum()):,} values are not {expected}, "
            f"the first is {shown} in row {row + 1:,}"
            + "; write decimals with a point"
            * bool(is_comma)
        )
        raise LoadError(msg)


def converted(cells: Cells, column: Column, categories: Sequence[str] | None = None) -> Any:
    """Convert cells to the dtype of a column of a table, within its limits."""
    kind = column.dtype.lower()
    if kind == "category":
        return category(cells, categories)
    if kind == "str":
        made: Any = text(cells)
    elif kind == "boolean":
        made = boolean(cells)
    elif kind == "float64":
        made = real(cells, lower=column.lower)
    elif kind.startswith("datetime"):
        made = time(cells)
    else:
        lower = None if column.lower is None else int(column.lower)
        bits = int(kind.removeprefix("int"))
        made = whole(cells, bits=bits, lower=lower, may_lack=column.nullable)
        return made if column.dtype[0] == "I" else made.to_numpy(_LIMITS[bits])
    if not column.nullable and (lacking := pd.isna(made)).any():
        cells.refuse(np.asarray(lacking), "there (empty cells)")
    return made


def text(cells: Cells) -> pd.Series:
    """Convert to text; empty cells are missing."""
    values = cells.column
    if not _is_text(values.type):
        values = cells.texts()
    return pd.Series(values.to_pandas().astype(pd.Series([""]).dtype))


def category(cells: Cells, categories: Sequence[str] | None = None) -> Any:
    """Convert to categories: those given, if they hold all values, or those that occur, sorted."""
    values = cells.column
    if not pa.types.is_dictionary(values.type):
        values = (values if _is_text(values.type) else cells.texts()).dictionary_encode()
    values = values.unify_dictionaries().combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # without a chunk there is nothing to combine
        values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    found = [str(each) for each in values.dictionary.to_pylist()]
    codes = values.indices.fill_null(len(found)) if values.null_count else values.indices
    codes = codes.to_numpy(zero_copy_only=False)
    is_used = np.zeros(len(found) + 1, np.bool_)
    is_used[codes] = True
    used = [name for name, is_one in zip(found, is_used, strict=False) if is_one]
    wanted = list(categories or ())
    if categories is None or not set(used) <= set(wanted):
        wanted = sorted(set(used))
    place = {name: number for number, name in enumerate(wanted)}
    kind = np.int8 if len(wanted) < 128 else np.int32
    moved = np.array([*(place.get(name, -1) for name in found), -1], kind)
    index = pd.Index(wanted, dtype=pd.Series([""]).dtype)
    return pd.Categorical.from_codes(moved[codes], dtype=pd.CategoricalDtype(index), validate=False)


def whole(
    cells: Cells, *, bits: int = 64, lower: int | None = None, may_lack: bool = True
) -> IntegerArray:
    """Convert to whole numbers of so many bits."""
    values = cells.column
    expected = "whole numbers" + ("" if lower is None else f" from {lower:,}")
    expected += "" if bits == 64 else f" of {bits} bits"
    if not pa.types.is_signed_integer(values.type):
        values = _parsed(cells, pa.int64(), expected)
    lacking = np.asarray(values.is_null())
    if not may_lack and lacking.any():
        cells.refuse(lacking, expected)
    filled = values.fill_null(0) if values.null_count else values
    numbers = np.array(filled, np.int64 if bits == 64 else None)
    limit = np.iinfo(_LIMITS[bits])
    least = limit.min if lower is None else max(limit.min, lower)
    bad = (numbers > limit.max) | (numbers < least)
    if (bad & ~lacking).any():
        cells.refuse(bad & ~lacking, expected)
    return IntegerArray(numbers.astype(_LIMITS[bits], copy=False), lacking.copy())


def real(cells: Cells, *, lower: float | None = None) -> np.ndarray:
    """Convert to numbers; infinities are kept, empty cells and NaN are missing."""
    expected = "numbers" + ("" if lower is None else f" from {lower:g}")
    values = cells.column
    if not pa.types.is_floating(values.type):
        values = _parsed(cells, pa.float64(), expected)
    numbers = np.array(pc.cast(values, pa.float64()).fill_null(np.nan), np.float64)
    if lower is not None and (bad := numbers < lower).any():
        cells.refuse(bad, expected)
    return numbers


def boolean(cells: Cells) -> BooleanArray:
    """Convert to true and false."""
    if pa.types.is_boolean(cells.column.type):
        lacking = np.array(cells.column.is_null(), np.bool_)
        return BooleanArray(np.array(cells.column.fill_null(fill_value=False)), lacking)
    texts = pd.Series(pc.utf8_lower(cells.texts()).to_pandas()).replace("", None)
    made = texts.map(_BOOLEANS)
    if (bad := made.isna() & texts.notna()).any():
        cells.refuse(bad.to_numpy(), "true or false")
    lacking = made.isna().to_numpy()
    return BooleanArray(made.eq(other=True).to_numpy(np.bool_), lacking)


def time(cells: Cells) -> pd.Series:
    """Convert to points in time; what has no zone is refused."""
    values = cells.column
    if pa.types.is_timestamp(values.type):
        made = values.to_pandas()
        if made.dt.tz is None and made.notna().any():
            cells.refuse(made.notna().to_numpy(), "times with a zone")
        zoned: pd.Series = pd.to_datetime(made, utc=True).dt.as_unit("ns")
        return zoned
    texts = pd.Series(cells.texts().to_pandas(), dtype=object).replace("", None)
    made = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601")
    has_zone = texts.astype(str).str.contains(r"(?:Z|[+-]\d\d:?\d\d)$")
    bad = texts.notna() & (made.isna() | ~has_zone)
    if bad.any():
        cells.refuse(bad.to_numpy(), "times with a zone such as 2025-01-31T08:00:00Z")
    return made.dt.as_unit("ns")


def _parsed(cells: Cells, kind: pa.DataType, expected: str) -> pa.ChunkedArray:
    """Parse numbers; also whole ones that are written as 3.0."""
    values = cells.column
    if _is_text(values.type) or pa.types.is_dictionary(values.type):
        trimmed = cells.texts()
        values = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pc.cast(values, kind)
    given = pd.Series(values.to_pandas(), dtype=object)
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = np.isnan(numbers) & given.notna().to_numpy()
    if kind == pa.float64():
        # NaN is a number that is missing.
        bad &= ~given.astype(str).str.lower().str.strip("+-").eq("nan").to_numpy()
    else:
        bad |= (np.abs(numbers) >= 2.0**53) | (numbers != np.floor(numbers)) & ~np.isnan(numbers)
    if bad.any():
        cells.refuse(bad, expected)
    lacking = np.isnan(numbers)
    if kind == pa.float64():
        return pa.chunked_array([pa.array(numbers, mask=lacking)])
    return pa.chunked_array(
        [pa.array(np.where(lacking, 0, numbers).astype(np.int64), mask=lacking)]
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
