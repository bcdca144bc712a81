"""Result of a reader of injection results: tables, missing where the source has nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stream import plain_name
from workbench.tables import CAMPAIGN, FAULTS, OUTCOME_NAMES, OUTCOMES, PARAMETERS, TRIALS, Table

TABLES = {
    "campaign": CAMPAIGN, "faults": FAULTS, "outcomes": OUTCOMES, "trials": TRIALS,
    "parameters": PARAMETERS,
}  # fmt: skip
COUNTS = tuple(f"{name}_count" for name in OUTCOME_NAMES)
LEFT_OUT_COLUMNS = "columns that have no place in the tables"
_SHOWN_COLUMNS = 8


@dataclass
class InjectionPart:
    """Contents of one campaign, or of one set of files."""

    campaign: pd.DataFrame
    outcomes: pd.DataFrame
    faults: pd.DataFrame = field(default_factory=FAULTS.empty)
    trials: pd.DataFrame = field(default_factory=TRIALS.empty)
    parameters: pd.DataFrame = field(default_factory=PARAMETERS.empty)
    # The first one names the file of the part in messages.
    findings: list[Findings] = field(default_factory=list)
    # Whether the reader itself counted the outcomes from the trials,
    is_counted_here: bool = False
    # and whether it numbered the inputs itself, so that no trial is there twice.
    is_numbered_here: bool = False


@dataclass(frozen=True)
class InjectionFile:
    """A file whose format and role in that format are known by its content."""

    source: Source
    role: str


class InjectionFormat(Protocol):
    """A module that reads the results of one tool."""

    TOOL: str
    NAME: str

    def role(self, head: bytes, source: Source) -> str:
        """Describe what a file is in this format by its first bytes; '' if it is none of it."""

    def read(self, files: list[InjectionFile]) -> list[InjectionPart]:
        """Read the files of the format found together; they may complete each other."""


def filled(table: Table, columns: Mapping[str, Any], count: int) -> pd.DataFrame:
    """Make a frame of ``table``: given columns, or values for all rows; the rest is missing."""
    kinds = {name: column.dtype for name, column in table.columns.items()}
    declared = {name: _column(columns.get(name), kind, count) for name, kind in kinds.items()}
    extra = {name: values for name, values in columns.items() if name not in table.columns}
    # Not gathered into blocks: that would copy millions of rows once more.
    return table.check(pd.DataFrame({**declared, **extra}, index=pd.RangeIndex(count), copy=False))


def stacked(frames: Sequence[pd.DataFrame], table: Table) -> pd.DataFrame:
    """Put frames of ``table`` below each other; categories become those that occur, sorted."""
    if not frames:
        return table.empty()
    text: Any = pd.Series([""]).dtype
    extra = dict.fromkeys(n for f in frames for n in f.columns if n not in table.columns)
    columns: dict[str, Any] = {}
    for name in [*table.columns, *extra]:
        # Categories of two frames differ; as text they can be joined, and become categories again.
        is_category = name in table.columns and table.columns[name].dtype == "category"
        # Counts of detectors may lack in some of the frames.
        kind: Any = text if is_category else None if name in table.columns else "Int64"
        series = [f[name] if name in f else pd.Series(pd.NA, index=f.index) for f in frames]
        if kind is not None:
            series = [column.astype(kind) for column in series]
        joined = pd.concat(series, ignore_index=True)
        columns[name] = joined.astype("category") if is_category else joined
    return table.check(pd.DataFrame(columns))


def campaign(**values: Any) -> pd.DataFrame:
    return filled(CAMPAIGN, values, 1)


def outcome_categories(codes: np.ndarray) -> pd.Categorical:
    """Make the outcome of trials of codes in the order of the outcomes; -1 is missing."""
    return pd.Categorical.from_codes(codes.astype(np.int8), categories=_texts(OUTCOME_NAMES))


def note_columns(findings: Findings, names: Iterable[str], used: Collection[str] = ()) -> None:
    if names := [name for name in names if name not in used]:
        shown = ", ".join(names[:_SHOWN_COLUMNS]) + ", ..." * (len(names) > _SHOWN_COLUMNS)
        findings.add("skipped by design", LEFT_OUT_COLUMNS, len(names), shown)


def stem(source: Source) -> str:
    """Return the name of a file or member, without folders and endings."""
    name = plain_name(source.label.replace("!", "/").rsplit("/", 1)[-1])
    return name.rsplit(".", 1)[0] or name


def folder(source: Source) -> str:
    """Return the folder of a file, or the archive and folder of a member."""
    label = source.label.replace("!", "/")
    return label.rsplit("/", 1)[0] if "/" in label else "."


def _column(values: Any, dtype: str, count: int) -> Any:
    text = pd.Series([""]).dtype
    kind: Any = text if dtype == "str" else dtype
    is_one = values is None or isinstance(values, str) or np.ndim(values) == 0
    if not is_one:
        array = values if isinstance(values, pd.Categorical) else pd.Series(values).array
        return array if str(array.dtype) == dtype else pd.Series(array).astype(kind)
    # A column that a source does not state has the dtype of its table all the same.
    if values is None or pd.isna(values):
        if dtype == "category":
            return pd.Categorical.from_codes(np.full(count, -1), categories=_texts(()))
        return pd.Series(index=pd.RangeIndex(count), dtype=kind)
    if dtype == "category":
        return pd.Categorical.from_codes(np.zeros(count, np.int8), categories=_texts((values,)))
    if dtype == "str":  # by way of Arrow: there may be millions of rows
        return pd.Series(pa.repeat(str(values), count).to_pandas()).astype(kind)
    return pd.Series(values, index=pd.RangeIndex(count)).astype(kind)


def _texts(values: Sequence[str]) -> pd.Index[Any]:
    index: pd.Index[Any] = pd.Index(list(values), dtype=pd.Series([""]).dtype)
    return index
