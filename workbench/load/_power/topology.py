"""The tree that delivers power: what feeds what, and how much it may draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import tables as plain
from workbench.load._files.stream import plain_name
from workbench.load._files.tables import whole_text
from workbench.tables import POWER_TOPOLOGY

_ROOTS = ("", "-", "none", "null", "nan", "n/a", "root", "<na>")
_PER_UNIT_W = {"w": 1.0, "kw": 1e3, "mw": 1e6}
_POWERS = ("nameplate", "limit")
_LOSS = "loss_share"
_MOST_W = 1e11
_SHOWN = 8


def power_topology(path: str | Path) -> pd.DataFrame:
    """Read what feeds what: GPUs, nodes, racks, panels, switchboards, up to the utility.

    Parameters
    ----------
    path
        A CSV file, a JSON file (a list of objects, or an object that holds one) or a Parquet
        file, with a row per thing: ``entity`` and ``parent`` (empty at a root), perhaps
        ``level``, ``nameplate_w``, ``limit_w`` and ``loss_share`` (of what it draws, lost before
        what it feeds). The powers may be in another unit, said by
        the name of the column: ``limit_kw``, ``limit_mw`` (megawatts). Other columns are
        ignored.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOPOLOGY`: ``entity``, ``parent``, ``level``,
        ``nameplate_w``, ``limit_w``, and ``loss_share`` if the file has it; parents before their
        children, otherwise in the order of the file.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing, a thing is listed twice, has two parents, an unknown one or is
        fed by itself over others, or a power or share is none. All rows of a kind are counted, and
        the first is named with its line.

    Notes
    -----
    Several roots (two utilities) are fine. A thing with two feeds is not a tree: list it under
    the feed that carries it, or once per feed under two names.

    Examples
    --------
    >>> from workbench import datasets
    >>> tree = power_topology(datasets.path("published") / "power_trees.csv")
    >>> tree.loc[tree["entity"].str.startswith("dynamo"), "level"].tolist()
    ['utility', 'msb', 'switchboard', 'panel', 'rack']
    """
    path = Path(path)
    is_json = plain_name(path.name).lower().endswith(".json")
    rows = _records(path) if is_json else plain.read(path)
    rows = rows.rename(columns=lambda name: str(name).strip())
    if not is_json:
        names = [str(name) for name in rows]
        read = [n for n in names if n in ("level", _LOSS) or n.lower().startswith(_POWERS)]
        plain.refuse_cut_row(rows, path, read)
    by_name = plain.renamed(
        rows, path, names={"entity": "entity", "parent": "parent"}, columns=None,
        has_lines=not is_json,
    )  # fmt: skip
    lines = np.arange(len(rows)) + (2 if plain.is_csv(path) else 1)
    position = "line" if plain.is_csv(path) else "row"
    entity, parent = _names(by_name["entity"]), _names(by_name["parent"])
    parent = parent.mask(parent.str.lower().isin(_ROOTS))
    check = _Check(path, lines, position)
    check.refuse(entity.eq("").to_numpy(), "name no entity", entity)
    _refuse_twice(check, entity, parent)
    unknown = (parent.notna() & ~parent.isin(entity)).to_numpy()
    check.refuse(unknown, "have a parent that is not an entity; add a row for it", parent)
    table = pd.DataFrame({"entity": entity, "parent": parent, "level": _levels(rows)})
    for name in _POWERS:
        table[f"{name}_w"] = _watts(rows, name, check)
    if _LOSS in rows:
        table[_LOSS] = _losses(rows[_LOSS], check)
    order = _parents_first(check, entity, parent)
    result = POWER_TOPOLOGY.cast(table.iloc[order].reset_index(drop=True))
    result.attrs["left_out"] = {} if is_json else plain.left_out(path)
    return POWER_TOPOLOGY.check(result, str(path))


class _Check:
    """Refuses rows of one file, naming how many and the first."""

    def __init__(self, path: Path, lines: np.ndarray, position: str) -> None:
        self._path, self._lines, self._place = path, lines, position

    def refuse(self, bad: np.ndarray, text: str, shown: pd.Series) -> None:
        if bad.any():
            row = int(bad.argmax())
            msg = (
                f"{self._path}, {self._place} {self._lines[row]:,}: {int(bad.sum()):,} rows "
                f"{text}; "
                f"the first is {str(shown.iloc[row])[:60]!r}"
            )
            raise LoadError(msg)

    def error(self, row: int, text: str) -> LoadError:
        return LoadError(f"{self._path}, {self._place} {self._lines[row]:,}: {text}")


def _records(path: Path) -> pd.DataFrame:
    text = whole_text(path)
    try:
        value: Any = json.loads(text)
        # A lone surrogate is valid JSON, and fails only when it is written.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start].encode("unicode_escape").decode()
        msg = f"{path}: holds {half}, which is half a character; write the other half beside it"
        raise LoadError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{path}: cannot be read as JSON ({str(error)[:100]})"
        raise LoadError(msg) from None
    # An export often wraps its one list in an object.
    if isinstance(value, dict):
        lists = [entry for entry in value.values() if isinstance(entry, list)]
        value = lists[0] if len(lists) == 1 else value
    if not (isinstance(value, list) and all(isinstance(entry, dict) for entry in value)):
        msg = f'{path}: holds no list of objects; write [{{"entity": ..., "parent": ...}}, ...]'
        raise LoadError(msg)
    return pd.DataFrame(value, dtype=object)


def _names(values: pd.Series) -> pd.Series:
    # Racks may be numbered; their numbers are names, too.
    if pd.api.types.is_float_dtype(values.dtype) and (values.dropna() % 1 == 0).all():
        values = values.astype("Int64")  # a missing parent made them floats
    text = pd.Series([""]).dtype
    return values.astype(object).where(values.notna(), "").astype(str).str.strip().astype(text)


def _levels(rows: pd.DataFrame) -> pd.Series:
    if "level" not in rows:
        return pd.Series("unknown", index=rows.index)
    return _names(rows["level"]).str.lower().replace("", "unknown")


def _refuse_twice(check: _Check, entity: pd.Series, parent: pd.Series) -> None:
    feeds = pd.DataFrame({"entity": entity, "parent": parent.fillna("")}).drop_duplicates()
    fed_twice = set(feeds.loc[feeds["entity"].duplicated(), "entity"])
    again = entity.duplicated()
    two = (again & entity.isin(fed_twice)).to_numpy()
    check.refuse(two, "give an entity a second parent; a tree has one feed for each", entity)
    check.refuse(again.to_numpy(), "list an entity again", entity)


def _watts(rows: pd.DataFrame, name: str, check: _Check) -> pd.Series:
    by_unit = {str(column).lower(): column for column in rows.columns}
    result = [unit for unit in _PER_UNIT_W if f"{name}_{unit}" in by_unit]
    if not result:
        if name in by_unit:
            msg = (
                f"column {by_unit[name]!r} names no unit; call it {name}_w, {name}_kw or {name}_mw"
            )
            raise check.error(0, msg) if len(rows) else LoadError(msg)
        return pd.Series(np.nan, index=rows.index)
    if len(result) > 1:
        msg = f"columns {[by_unit[f'{name}_{unit}'] for unit in result]} say the same; keep one"
        raise check.error(0, msg) if len(rows) else LoadError(msg)
    cells = rows[by_unit[f"{name}_{result[0]}"]]
    texts = _names(cells)
    empty = texts.str.lower().isin(_ROOTS).to_numpy()
    values = pd.to_numeric(texts.where(~empty), errors="coerce") * _PER_UNIT_W[result[0]]
    values = values.astype("float64")
    good = empty | ((values >= 0) & (values <= _MOST_W)).to_numpy(dtype=bool, na_value=False)
    check.refuse(~good, f"have a {name} that is not power from 0 to {_MOST_W:.0e} W", texts)
    return values


def _losses(cells: pd.Series, check: _Check) -> pd.Series:
    texts = _names(cells)
    is_empty = texts.str.lower().isin(_ROOTS)
    losses = pd.to_numeric(texts.mask(is_empty), errors="coerce").astype("float64")
    # What loses all would feed nothing.
    good = is_empty | (losses.ge(0) & losses.lt(1))
    check.refuse(~good.to_numpy(), f"have a {_LOSS} that is not a share from 0 to below 1", texts)
    return losses


def _parents_first(check: _Check, entity: pd.Series, parent: pd.Series) -> np.ndarray:
    """Order rows so that parents come first; raise if things feed each other in a ring."""
    row_of = pd.Series(np.arange(len(entity)), index=entity)
    up = np.full(len(entity), -1, dtype=np.int64)
    fed = parent.notna().to_numpy()
    up[fed] = row_of[parent[fed]].to_numpy()
    # Parents come first already.
    if (up < np.arange(len(up))).all():
        return np.arange(len(up))
    depth = np.where(fed, -1, 0)
    # One level of the tree after the other.
    while (remainder := np.flatnonzero(depth < 0)).size:
        valid = remainder[depth[up[remainder]] >= 0]
        if not valid.size:
            raise _ring(check, entity, up, int(remainder[0]))
        depth[valid] = depth[up[valid]] + 1
    return np.argsort(depth, kind="stable")


def _ring(check: _Check, entity: pd.Series, up: np.ndarray, row: int) -> LoadError:
    seen: list[int] = []
    while row not in seen:
        seen.append(row)
        row = int(up[row])
    ring: Sequence[int] = [*seen[seen.index(row) :], row]
    names = " <- ".join(entity.iloc[row_] for row_ in ring[:_SHOWN])
    return check.error(row, f"entities feed each other in a ring: {names}")
