"""Declaration of tables: columns with dtypes and units, checked; and where their data come from."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from workbench.errors import TableError

_WHOLE = ("int32", "int64")


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
        """Describe the first problem of ``values``; empty if there is none."""
        if not self._same_dtype(values):
            return f"has dtype {values.dtype}, needs {self.dtype}"
        # NumPy integers are never missing; isna() would only fill a mask as long as the column.
        if not self.nullable and values.dtype not in _WHOLE and values.isna().any():
            return f"has {values.isna().sum()} missing values, none are allowed"
        for limit, words in ((self.lower, "below"), (self.upper, "above")):
            if limit is None or pd.isna(most := _extreme(values, words)):
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


def _extreme(values: pd.Series, words: str) -> Any:
    """Return the lowest or the highest value without a temporary column; most frames are fine."""
    if values.dtype.kind in "iuf" and isinstance(values.dtype, np.dtype) and len(values):
        # Of most columns, which are short, pandas would take 20 times as long.
        least, most = np.fmin.reduce, np.fmax.reduce
        return (least if words == "below" else most)(values.to_numpy())
    return values.min() if words == "below" else values.max()


_LINE = re.compile(
    r"(?P<name>\w+): (?P<dtype>\w+(?:\[.+?\])?)(?P<nullable>\??)(?P<optional> optional)?"
    r"(?: (?:>=(?P<least>\S+)|<=(?P<most>\S+)|(?P<lower>-?[\d.]*\d)\.\.(?P<upper>\S+)))?"
    r" - (?P<meaning>.+)"
)


def columns(text: str) -> dict[str, Column]:
    """Read columns from a text, one per line; a line that is indented further goes on.

    A line is ``name: dtype - meaning``. A question mark behind the dtype allows missing
    values, ``optional`` a frame without the column, and ``>=0``, ``<=1`` or ``0..1`` are the
    limits of its values.
    """
    described: dict[str, Column] = {}
    # Continuation lines are indented further than the names of columns.
    for line in re.sub(r"\n {4,}", " ", textwrap.dedent(text).strip()).split("\n"):
        field = _LINE.fullmatch(line)
        if field is None or field["name"] in described:
            msg = f"{line!r} is not a column like 'dur_ns: int64? >=0 - duration'"
            raise ValueError(msg)
        lower, upper = field["least"] or field["lower"], field["most"] or field["upper"]
        described[field["name"]] = Column(
            field["dtype"],
            field["meaning"],
            None if lower is None else float(lower),
            None if upper is None else float(upper),
            nullable=bool(field["nullable"]),
            optional=bool(field["optional"]),
        )
    return described


def _as(values: pd.Series, dtype: Any) -> pd.Series:
    r"""Convert a column; half characters, which no table can hold, are written like \ud800."""
    if values.dtype == dtype:
        return values
    limits = _LIMITS.get(str(dtype).lower())
    try:
        # NumPy wraps numbers around that do not fit: they would be others, without an error.
        if limits and values.dtype.kind in "iuf" and len(values):
            _refuse_outside(values, *limits)
        return values.astype(dtype)
    except UnicodeEncodeError:
        return values.map(_without_halves).astype(dtype)


_LIMITS = {"int32": (-(1 << 31), 1 << 31), "int64": (-(1 << 63), 1 << 63)}


def _refuse_outside(values: pd.Series, lower: int, upper: int) -> None:
    # Python's integers: as a float64, the largest int64 is the limit itself.
    for extreme in (values.min(), values.max()):
        if not pd.isna(extreme) and not lower <= extreme < upper:
            msg = f"{extreme} is not from {lower} to {upper - 1}"
            raise OverflowError(msg)


def _no_number(values: pd.Series, dtype: str) -> str:
    """Show the first value that a column of this type cannot hold, and its row."""
    for row, value in enumerate(values):
        try:
            _as(pd.Series([value], dtype=values.dtype), dtype)
        except (ArithmeticError, ValueError, TypeError):
            shown = repr(value)
            return f"{shown[:40]}{'...' * (len(shown) > 40)} in row {row:,}"
    return "a value"


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
            # Mostly it is what a loader returned, so the message names one of its tables.
            kind = type(frame).__name__
            msg = f"{origin} is a {kind}, not a '{self.name}' table; pass a pandas DataFrame"
            if is_dataclass(frame):
                names = list(vars(frame))
                field = self.name if self.name in names else names[0]
                msg = f"{origin} is a whole {kind}; pass one of its tables, e.g. "
                msg += f"{kind.lower()}.{field}"
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

    def part(self, names: Iterable[str]) -> Table:
        """Return the table of these columns alone; KeyError for a name that is none."""
        return Table(self.name, self.meaning, {name: self.columns[name] for name in names})

    def empty(self) -> pd.DataFrame:
        """Return a frame without rows that fits the table."""
        return self._empty.copy()

    @cached_property
    def _empty(self) -> pd.DataFrame:
        columns: dict[str, Any] = {}
        for name, column in self.columns.items():
            columns[name] = pd.array([], dtype=column.dtype)  # type: ignore[call-overload]
        return pd.DataFrame(columns)

    def cast(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the table's columns of ``frame`` in its dtypes; missing texts stay missing."""
        # pandas 2 would turn a missing text into the text 'None' if requested 'str'.
        dtypes: dict[str, Any] = {name: column.dtype for name, column in self.columns.items()}
        text = pd.Series([""]).dtype
        made: dict[str, Any] = {}
        for name, d in dtypes.items():
            if name not in frame and self.columns[name].optional:
                continue
            values = frame[name]
            try:
                # Of arrays, whose index is known: that of columns would be compared.
                made[name] = _as(values, text if d == "str" else d).array
            except (ArithmeticError, ValueError, TypeError) as error:
                bad = _no_number(values, d)
                msg = f"'{name}' of table '{self.name}' holds {bad}, which is no {d}"
                raise TableError(msg) from error
        return pd.DataFrame(made, index=frame.index)

    def of(self, rows: Any, attrs: Mapping[Any, Any] | None = None) -> pd.DataFrame:
        """Return the table made of a frame, of columns by name, or of rows, cast and checked.

        Rows that are tuples hold the columns in their order. ``attrs`` become those of the table.
        """
        if not isinstance(rows, pd.DataFrame):
            names = None if isinstance(rows, Mapping) else list(self.columns)
            rows = pd.DataFrame(rows, columns=names)
        made = self.cast(rows)
        made.attrs = dict(attrs or {})
        return self.check(made)

    def joined(self, frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
        """Return the rows of all frames as one checked table."""
        # pandas lets empty frames decide on dtypes.
        filled = [frame for frame in frames if len(frame)]
        if not filled:
            return self.empty()
        return self.of(pd.concat(filled, ignore_index=True))

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


def table(text: str) -> Table:
    """Make a table of a text: its name and meaning, an empty line, and its :func:`columns`."""
    head, _, lines = textwrap.dedent(text).strip().partition("\n\n")
    name, _, meaning = head.replace("\n", " ").partition(": ")
    return Table(name, meaning, columns(lines))


# Data sets by name.

DATASETS = table("""
    datasets: One row per data set that the workbench knows by name.

    dataset: str - name to ask for
    synthetic: bool - made by a generator, not measured
    place: str - bundled, mirror, cache or not available
    file_count: int64 >=0 - files of the set
    size_bytes: int64 >=0 - their size together
    licence: str - licence of the files
    about: str - what it is
    citation: str - whom to cite
    origin: str - where it comes from: repository and commit, or the generator
""")

DATASET_FILES = table("""
    dataset_files: One row per file of a data set, compared with its checksum.

    dataset: str - name of the set
    file: str - name inside the set's folder
    size_bytes: int64 >=0 - size the file should have
    sha256: str - checksum the file should have
    path: str - where the file is, or would be
    verdict: str - ok, missing or changed
""")

# Where the numbers of a figure come from: the words under it, and whose data they are.

Origin = Literal["", "own", "data set", "published", "model"]


class Source(str):
    """Words for the foot of a figure that also say whose data the figure shows.

    Goes wherever a plain text names a source. A plain text leaves open whose data it is, so
    a report on somebody's data never lists its figure among the findings.

    Parameters
    ----------
    text
        The words.
    origin
        ``"own"`` for files of whoever runs this, ``"data set"`` for a bundled or public set,
        ``"published"`` for numbers that were printed, ``"model"`` for a closed form or a
        simulation; empty if that is not known.

    Examples
    --------
    >>> Source("nightly run", "own").origin
    'own'
    """

    origin: Origin

    def __new__(cls, text: str = "", origin: Origin = "") -> Source:
        """Take the words, and where the data come from."""
        words = super().__new__(cls, text)
        words.origin = origin
        return words

    def joined(self, *words: str) -> Source:
        """Add further words, all of the same origin."""
        return Source(" · ".join(filter(None, [self, *words])), self.origin)


def as_source(text: str) -> Source:
    """Take a text for the words of a source; one of unknown origin if it is plain."""
    return text if isinstance(text, Source) else Source(text)
