"""Embedding tables of a recommendation model, as a CSV or Parquet file lists them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import tables as plain
from workbench.tables import EMBEDDING_TABLES

_NAMES = {name: name for name in EMBEDDING_TABLES.columns}


def embedding_tables(
    path: str | Path, *, columns: Mapping[str, str] | None = None, element_bytes: int | None = None
) -> pd.DataFrame:
    """Read the sizes of embedding tables.

    Parameters
    ----------
    path
        A CSV file (by its ending) or a Parquet file, one row per table.
    columns
        Names in the file, by name in the table, where they differ:
        ``{"row_count": "num_embeddings", "dim_count": "embedding_dim"}``.
    element_bytes
        Bytes per element (4 for float32), for files that do not say it.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EMBEDDING_TABLES`: ``table``, ``row_count``,
        ``dim_count``, ``pooling_ratio``, ``element_bytes``, in the order of the file.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file or a column cannot be read, a name is missing or occurs twice, or the
        bytes per element are not known, or known twice.
    """
    path = Path(path)
    frame = plain.renamed(
        plain.read(path), path, names=_NAMES, columns=columns, optional=("element_bytes",)
    )
    if ("element_bytes" in frame) == (element_bytes is not None):
        state = "has a column for" if "element_bytes" in frame else "does not say"
        remedy = "leave out" if "element_bytes" in frame else "pass"
        msg = f"{path}: the file {state} the bytes per element; {remedy} element_bytes=, e.g. 4"
        raise LoadError(msg)
    if element_bytes is not None:
        frame = frame.assign(element_bytes=element_bytes)
    counts = ("row_count", "dim_count", "element_bytes")
    table = pd.DataFrame({
        "table": _texts(frame["table"], path),
        "pooling_ratio": plain.numbers(frame["pooling_ratio"], path),
        **{name: plain.whole(frame[name], path, least=1) for name in counts},
    })  # fmt: skip
    table = EMBEDDING_TABLES.cast(table)
    table.attrs["left_out"] = plain.left_out(path)
    return EMBEDDING_TABLES.check(table, str(path))


def _texts(values: pd.Series, path: Path) -> pd.Series:
    for fault, bad in (("missing", values.isna()), ("there before", values.duplicated())):
        if bad.any():
            row = int(bad.to_numpy().argmax())
            (name,) = values.iloc[[row]].tolist()
            msg = f"{path}: the name of the table in row {row:,} is {fault} ({name!r})"
            raise LoadError(msg)
    return values.reset_index(drop=True).astype(str)
