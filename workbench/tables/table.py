"""What a table is: columns with dtypes and units, checked; and where its data come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

import pandas as pd

from workbench.errors import TableError

# What a table is: columns with dtype, unit, meaning and limits, and their check.


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
        # pandas 2 would turn a missing text into the text 'None' if requested 'str'.
        dtypes: dict[str, Any] = {name: column.dtype for name, column in self.columns.items()}
        text = pd.Series([""]).dtype
        return pd.DataFrame(
            {
                name: _as(frame[name], text if d == "str" else d)
                for name, d in dtypes.items()
                if name in frame or not self.columns[name].optional
            }
        )

    def joined(self, parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
        """Return the rows of all parts as one checked table.

        Raises
        ------
        TableError
            If they do not fit the table.
        """
        # pandas lets empty parts decide on dtypes.
        filled = [part for part in parts if len(part)]
        if not filled:
            return self.empty()
        return self.check(self.cast(pd.concat(filled, ignore_index=True)))

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


# Data sets by name.

DATASETS = Table(
    "datasets",
    "One row per data set that the workbench knows by name.",
    {
        "dataset": Column("str", "name to ask for"),
        "synthetic": Column("bool", "made by a generator, not measured"),
        "place": Column("str", "bundled, mirror, cache or not at hand"),
        "file_count": Column("int64", "files of the set", lower=0),
        "size_bytes": Column("int64", "their size together", lower=0),
        "licence": Column("str", "licence of the files"),
        "about": Column("str", "what it is"),
        "citation": Column("str", "whom to cite"),
        "origin": Column("str", "where it comes from: repository and commit, or the generator"),
    },
)

DATASET_FILES = Table(
    "dataset_files",
    "One row per file of a data set, compared with its checksum.",
    {
        "dataset": Column("str", "name of the set"),
        "file": Column("str", "name inside the set's folder"),
        "size_bytes": Column("int64", "size the file should have", lower=0),
        "sha256": Column("str", "checksum the file should have"),
        "path": Column("str", "where the file is, or would be"),
        "verdict": Column("str", "ok, missing or changed"),
    },
)

# Numbers printed elsewhere, recomputed.

FIDELITY = Table(
    "fidelity",
    "One row per number printed elsewhere and computed here.",
    {
        "noun": Column("str", "what the claim is about, e.g. traces"),
        "claim": Column("str", "name of the claim"),
        "what": Column("str", "which of its numbers this is; empty for the claim as a whole"),
        "source": Column("str", "paper, table, page or project that printed the number"),
        "printed": Column("float64", "number as printed, in `unit`", nullable=True),
        "here": Column("float64", "number computed here, in `unit`", nullable=True),
        "tolerance": Column(
            "float64", "largest difference allowed, in `unit`", lower=0, nullable=True
        ),
        "unit": Column("str", "unit of the three numbers; empty for a plain number"),
        "verdict": Column(
            "category",
            "pass, short (misses a limit, and is known to), FAIL, or absent (a data set or package "
            "is not at hand)",
        ),
        "note": Column("str", "why a claim failed or how to get its data set; else empty"),
    },
)

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
        made = super().__new__(cls, text)
        made.origin = origin
        return made

    def joined(self, *words: str) -> Source:
        """Add further words, all of the same origin."""
        return Source(" · ".join(filter(None, [self, *words])), self.origin)


def as_source(text: str) -> Source:
    """Take a text for the words of a source; one of unknown origin if it is plain."""
    return text if isinstance(text, Source) else Source(text)
