"""Lifetimes that people keep in a table of their own, by the names its columns have there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import tables as plain
from workbench.load._files.stored import stored_tables
from workbench.load._files.tables import without_cut_row
from workbench.tables import LIFETIMES

LifeUnit: TypeAlias = Literal["s", "min", "h", "d"]
_HOURS = {"s": 1 / 3600, "min": 1 / 60, "h": 1.0, "d": 24.0}
_UNIT_IN_NAME = re.compile(
    r".*[_ \[(](s|sec|seconds|min|minutes|h|hours|d|days)[\])]?", re.IGNORECASE
)
_UNITS = {"sec": "s", "seconds": "s", "minutes": "min", "hours": "h", "days": "d"}
_ANSWERS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def lifetimes(
    path: str | Path, *, columns: Mapping[str, str] | None = None, time_unit: LifeUnit | None = None
) -> pd.DataFrame:
    """Load lifetimes from a CSV or Parquet file whose columns you name.

    Parameters
    ----------
    path
        A Parquet file, or a CSV file (by its ending; gzip is fine).
    columns
        Names in the file, by name in the table, where they differ: ``{"lifetime_h": "age_days",
        "is_failure": "died", "node": "serial", "group": "model"}``. ``lifetime_h`` and
        ``is_failure`` are needed.
    time_unit
        Unit of the lifetimes, ``"s"``, ``"min"``, ``"h"`` or ``"d"``, where the name of their
        column does not end in one. Time spans (timedelta64) know theirs.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LIFETIMES`, in the order of the file: ``node``, ``group``
        (``all`` without a column), ``lifetime_h`` and ``is_failure``. ``attrs["left_out"]``
        counts a last line without a line end, which may be cut.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file or a column cannot be read, or the unit is not told or told twice; names the
        column and the first bad row.
    """
    stored: pd.DataFrame | None = stored_tables(path, "lifetimes")
    if stored is not None:
        return stored
    source = Path(path)
    names = {name: name for name in LIFETIMES.columns}
    column_of = {**names, **(columns or {})}
    file, cut = without_cut_row(plain.read(source), source, column_of.values())
    frame = plain.renamed(
        file, source, names=names, columns=columns, optional=("node", "group"), has_lines=False
    )
    if frame.empty:
        msg = f"{path}: has no rows"
        raise LoadError(msg)
    column, answered = column_of["lifetime_h"], column_of["is_failure"]
    table = pd.DataFrame({
        "node": _texts(frame, "node", None), "group": _texts(frame, "group", "all"),
        "lifetime_h": _hours(frame["lifetime_h"], column, source, time_unit),
        "is_failure": _answers(frame["is_failure"], answered, source),
    })  # fmt: skip
    lives = LIFETIMES.cast(table)
    lives.attrs["left_out"] = cut or plain.left_out(source)
    return LIFETIMES.check(lives, str(path))


def names_lifetimes(names: Iterable[str]) -> bool:
    return {"lifetime_h", "is_failure"} <= set(names)


def _texts(frame: pd.DataFrame, name: str, missing: str | None) -> pd.Series:
    if name not in frame:
        return pd.Series([missing] * len(frame), dtype=object)
    texts = plain.texts(frame[name])
    return texts.where(texts.notna(), missing)


def _hours(values: pd.Series, name: str, path: Path, time_unit: LifeUnit | None) -> pd.Series:
    if time_unit is not None and time_unit not in get_args(LifeUnit):
        msg = f"time_unit must be one of {list(get_args(LifeUnit))}, not {time_unit!r}"
        raise LoadError(msg)
    # Durations (of Parquet, say) carry their unit.
    if values.dtype.kind == "m":
        return plain.numbers(values.dt.total_seconds().rename(values.name) / 3600, path)
    match = _UNIT_IN_NAME.fullmatch(str(name))
    own_unit = _UNITS.get(match[1].lower(), match[1].lower()) if match else None
    if own_unit and time_unit and own_unit != time_unit:
        msg = f"{path}: column {name!r} is named after {own_unit}, and {time_unit=} differs"
        raise LoadError(msg)
    unit = own_unit or time_unit
    if unit is None:
        units = list(get_args(LifeUnit))
        msg = f"{path}: column {name!r} does not state its unit; pass time_unit=, one of {units}"
        raise LoadError(msg)
    return plain.numbers(values, path) * _HOURS[unit]


def _answers(values: pd.Series, name: str, path: Path) -> pd.Series:
    # A column with gaps is read as numbers: 1 comes as 1.0.
    words = values.astype(object).map(lambda value: re.sub(r"\.0$", "", str(value)).strip().lower())
    answers = words.map(_ANSWERS)
    if (bad := answers.isna().to_numpy()).any():
        row = int(np.flatnonzero(bad)[0])
        msg = (
            f"{path}: column {name!r}: {int(bad.sum()):,} values do not say whether it failed "
            f"(true or false, 1 or 0), the first is {values.iloc[[row]].tolist()[0]!r} in row "
            f"{row:,}"
        )
        raise LoadError(msg)
    return answers.astype(bool).reset_index(drop=True)
