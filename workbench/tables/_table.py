"""What a table is: columns with dtype, unit, meaning and limits, and their check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import pandas as pd

from workbench.errors import TableError


@dataclass(frozen=True)
class Column:
    """One column: what it holds and which values are allowed."""

    dtype: str
    meaning: str
    lower: float | None = None
    upper: float | None = None
    nullable: bool = False
    # A frame may lack the column; where it has one, it must fit.
    optional: bool = False

    def misfit(self, values: pd.Series) -> str:
        """Say what is wrong with ``values``; an empty text means nothing is."""
        if not self._same_dtype(values):
            return f"has dtype {values.dtype}, needs {self.dtype}"
        if not self.nullable and values.isna().any():
            return f"has {values.isna().sum()} missing values, none are allowed"
        for limit, extreme, words in (
            (self.lower, values.min, "below"),
            (self.upper, values.max, "above"),
        ):
            # The extreme is found without a temporary column; most frames are fine.
            if limit is None or pd.isna(most := extreme()):
                continue
            if most < limit if words == "below" else most > limit:
                outside = values < limit if words == "below" else values > limit
                outside = outside.fillna(value=False)
                return f"has {outside.sum()} values {words} {limit}, e.g. row {outside.idxmax()}"
        return ""

    def _same_dtype(self, values: pd.Series) -> bool:
        # pandas 2 holds text as object, pandas 3 as str; both are text to us.
        if self.dtype == "str":
            return bool(pd.api.types.is_string_dtype(values.dtype)) or (
                values.dtype == object and values.empty
            )
        # Integers without a missing value are often plain: nothing is lost where they may lack.
        plain = self.dtype.lower() if self.dtype.startswith("Int") else self.dtype
        return str(values.dtype) in (self.dtype, plain)


def _as(values: pd.Series, dtype: Any) -> pd.Series:
    r"""Convert a column; half characters, which no table can hold, are written like \ud800."""
    try:
        return values.astype(dtype)
    except UnicodeEncodeError:
        return values.map(_without_halves).astype(dtype)


def _without_halves(value: object) -> object:
    is_text = isinstance(value, str)
    return value.encode("utf-8", "backslashreplace").decode() if is_text else value  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Table:
    """A named set of columns, in the order they are shown."""

    name: str
    meaning: str
    columns: Mapping[str, Column]

    def check(self, frame: object, origin: str = "the frame") -> pd.DataFrame:
        """Return ``frame`` unchanged, or raise one error that lists every misfit.

        Columns beyond those of the table are allowed and left alone.
        """
        if not isinstance(frame, pd.DataFrame):
            kind = type(frame).__name__
            msg = f"{origin} is a {kind}, not a '{self.name}' table; pass a pandas DataFrame"
            if is_dataclass(frame):
                names = list(vars(frame))
                part = self.name if self.name in names else names[0]
                msg = f"{origin} is a whole {kind}; pass one of its tables, e.g. "
                msg += f"{kind.lower()}.{part}"
            raise TableError(msg)
        misfits = [
            f"'{name}' is missing"
            for name, column in self.columns.items()
            if name not in frame and not column.optional
        ]
        for name, column in self.columns.items():
            if name in frame and (misfit := column.misfit(frame[name])):
                misfits.append(f"'{name}' {misfit}")
        if misfits:
            msg = f"{origin} is not a valid '{self.name}' table:\n  - " + "\n  - ".join(misfits)
            raise TableError(msg)
        return frame

    def empty(self) -> pd.DataFrame:
        """Return a frame without rows that fits the table."""
        columns: dict[str, Any] = {}
        for name, column in self.columns.items():
            columns[name] = pd.array([], dtype=column.dtype)  # type: ignore[call-overload]
        return pd.DataFrame(columns)

    def cast(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the table's columns of ``frame`` in its dtypes; missing texts stay missing."""
        # pandas 2 would turn a missing text into the text 'None' if asked for 'str'.
        dtypes: dict[str, Any] = {name: column.dtype for name, column in self.columns.items()}
        text = pd.Series([""]).dtype
        return pd.DataFrame(
            {
                name: _as(frame[name], text if d == "str" else d)
                for name, d in dtypes.items()
                if name in frame or not self.columns[name].optional
            }
        )

    def markdown(self) -> str:
        """Render the table as Markdown, for docs and notebooks."""
        rows = [f"| `{n}` | {c.dtype} | {c.meaning} |" for n, c in self.columns.items()]
        return "\n".join(
            [
                f"**{self.name}** - {self.meaning}",
                "",
                "| column | dtype | meaning |",
                "|---|---|---|",
                *rows,
            ]
        )
