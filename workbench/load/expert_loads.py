"""How much was routed to each expert of a mixture-of-experts model, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load import _plain_table as plain
from workbench.tables import EXPERT_LOADS

_NAMES = {name: name for name in EXPERT_LOADS.columns}


def expert_loads(
    path: str | Path, *, columns: Mapping[str, str] | None = None, header: bool | None = None
) -> pd.DataFrame:
    """Read expert loads, as a matrix or one row per layer and expert.

    Parameters
    ----------
    path
        A CSV file (by its ending) or a Parquet file. Either with columns for layer, expert
        and load, or a matrix with one row per layer and one column per expert, which may
        have a first column named ``layer``.
    columns
        Names in the file of columns for layer, expert and load, by name in the table:
        ``{"load_count": "tokens"}``.
    header
        Whether the first line of a matrix in CSV names its columns. Found out from the
        file, unless that line is 0, 1, 2, ...: then it could be either.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EXPERT_LOADS`: ``layer``, ``expert``, ``load_count``, by
        layer and expert. Hand it to ``analyze.load_imbalance`` with ``by="layer"``.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file or a number cannot be read, an expert occurs twice in a layer, or it
        cannot be told whether the first line is a header.
    """
    path = Path(path)
    frame = plain.read(path)
    names = {**_NAMES, **(columns or {})}
    if columns or {names["expert"], names["load_count"]} <= set(frame.columns):
        table = _long(plain.renamed(frame, path, names=_NAMES, columns=columns), path)
    else:
        is_named = not plain.is_csv(path) or _has_header(frame, path, header)
        table = _unrolled(frame if is_named else plain.lines(path), path)
    table = EXPERT_LOADS.cast(table).sort_values(["layer", "expert"], ignore_index=True)
    return EXPERT_LOADS.check(table, str(path))


def _long(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "layer": plain.whole(frame["layer"], path),
            "expert": plain.whole(frame["expert"], path),
            "load_count": plain.numbers(frame["load_count"], path),
        }
    )
    twice = table.duplicated(["layer", "expert"])
    if twice.any():
        row = int(twice.to_numpy().argmax())
        layer, expert = table.loc[row, ["layer", "expert"]].astype(int)
        msg = f"{path}: expert {expert} of layer {layer} occurs again in row {row:,}"
        raise LoadError(msg)
    return table


def _has_header(named: pd.DataFrame, path: Path, header: bool | None) -> bool:
    """Say whether the first line of a matrix holds names; refuse what could be either."""
    if header is not None:
        return header
    first = pd.to_numeric(pd.Series(list(named.columns)), errors="coerce")
    if first.tolist() == list(range(len(first))) and len(first) > 1:
        msg = (
            f"{path}: the first line is 0, 1, 2, ...: names of columns, or loads? "
            "Say header=True or header=False"
        )
        raise LoadError(msg)
    return bool(first.isna().any())


def _unrolled(matrix: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Turn one row per layer and one column per expert into one row per both."""
    layers = np.arange(len(matrix))
    if matrix.columns.size and str(matrix.columns[0]).lower() == "layer":
        layers = plain.whole(matrix.iloc[:, 0], path).to_numpy()
        matrix = matrix.iloc[:, 1:]
        if len(np.unique(layers)) < len(layers):
            msg = f"{path}: a layer occurs twice; a matrix has one row per layer"
            raise LoadError(msg)
    columns = [matrix.iloc[:, at] for at in range(matrix.shape[1])]
    loads = [plain.numbers(values, path).to_numpy() for values in columns]
    if not loads or not len(layers):
        msg = f"{path}: a matrix of {matrix.shape[0]} layers and {matrix.shape[1]} experts is empty"
        raise LoadError(msg)
    return pd.DataFrame(
        {
            "layer": np.tile(layers, len(loads)),
            "expert": np.repeat(np.arange(len(loads)), len(layers)),
            "load_count": np.concatenate(loads),
        }
    )
