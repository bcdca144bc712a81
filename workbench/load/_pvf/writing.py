"""Writing the workbench's own results of fault injection."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from workbench._writing import write_whole
from workbench.load._pvf.exhaustive import VERSION, in_order
from workbench.load._pvf.formats import own_tables as injection_tables
from workbench.load._pvf.formats.own_tables import EXHAUSTIVE_METADATA
from workbench.load._pvf.part import TABLES
from workbench.tables import CAMPAIGN, EXHAUSTIVE, PARAMETERS, ExhaustiveInjections, Injections

Format = Literal["parquet", "csv"]
_ALWAYS = ("campaign", "faults", "outcomes")


def write_injections(
    injections: Injections,
    path: str | Path,
    *,
    format: Format = "parquet",  # noqa: A002 - as pandas
) -> Path:
    """Store results of fault injection as a folder of tables that :func:`injections` reads.

    Parameters
    ----------
    injections
        What to store.
    path
        The folder; made if need be. Its files appear complete or not at all, and replace
        those of an earlier campaign.
    format
        ``"parquet"`` (zstd) keeps everything. ``"csv"`` keeps values and types, and of the
        categories of a column those that occur.

    Returns
    -------
    pathlib.Path
        The folder, with ``campaign``, ``faults`` and ``outcomes``, and ``trials`` and
        ``parameters`` if they have rows. Quality is told anew when the folder is loaded.

    Raises
    ------
    TableError
        If a frame does not fit its table.
    ValueError
        If ``format`` is neither.

    Notes
    -----
    The columns are those of :data:`workbench.tables.CAMPAIGN`, ``FAULTS``, ``OUTCOMES``,
    ``TRIALS`` and ``PARAMETERS``; print ``CAMPAIGN.markdown()`` to read what they mean.
    """
    if format not in get_args(Format):
        msg = f"format must be one of {get_args(Format)}, not {format!r}"
        raise ValueError(msg)
    folder = Path(path)
    frames = {name: getattr(injections, name) for name in TABLES}
    for name, frame in frames.items():
        TABLES[name].check(frame, f"injections.{name}")
    wanted = {name: frame for name, frame in frames.items() if len(frame) or name in _ALWAYS}
    if folder.exists():
        for name, frame in wanted.items():
            write_whole(folder / f"{name}.{format}", _writer(name, frame, format))
        _drop_others(folder, {f"{name}.{format}" for name in wanted})
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as made:
        inside = Path(made) / "tables"
        inside.mkdir()
        for name, frame in wanted.items():
            write_whole(inside / f"{name}.{format}", _writer(name, frame, format))
        inside.replace(folder)
    return folder


def write_exhaustive(injections: ExhaustiveInjections, path: str | Path) -> Path:
    """Store every single-bit fault of a model as one Parquet file.

    Parameters
    ----------
    injections
        What to store.
    path
        The file; an existing one is replaced once the new one is complete.

    Returns
    -------
    pathlib.Path
        The file: table :data:`workbench.tables.EXHAUSTIVE`, sorted by tensor (in the order of
        the parameters), element and bit; campaign and parameters as JSON in its metadata.

    Raises
    ------
    TableError
        If a frame does not fit its table.
    """
    EXHAUSTIVE.check(injections.sites, "injections.sites")
    sites = in_order(injections.sites[list(EXHAUSTIVE.columns)], injections.parameters)
    header = {
        "version": VERSION,
        "params": list(sites["param"].cat.categories),
        "campaign": as_json(CAMPAIGN.check(injections.campaign, "injections.campaign")),
        "parameters": as_json(PARAMETERS.check(injections.parameters, "injections.parameters")),
    }
    table = pa.Table.from_pandas(sites, preserve_index=False)
    table = table.replace_schema_metadata({EXHAUSTIVE_METADATA: json.dumps(header).encode()})
    names = [name for name in table.column_names if name != "elem"]
    write_whole(
        Path(path),
        lambda file: pq.write_table(
            table,
            file,
            compression="zstd",
            use_dictionary=names,  # runs of equal numbers take a few bytes each
            column_encoding={"elem": "DELTA_BINARY_PACKED"},
            write_page_checksum=True,
        ),
    )
    return Path(path)


def as_json(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Give the columns of a small frame as JSON can hold them; times in ISO 8601."""
    columns: dict[str, list[Any]] = {}
    for name, values in frame.items():
        is_time = isinstance(values.dtype, pd.DatetimeTZDtype)
        plain = [None if pd.isna(v) else v.isoformat() if is_time else v for v in values]
        columns[str(name)] = [v.item() if isinstance(v, np.generic) else v for v in plain]
    return columns


def _writer(name: str, frame: pd.DataFrame, format: Format) -> Any:  # noqa: A002
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if format == "csv":
        plain = pa.table({each: _decoded(table[each]) for each in table.column_names})
        return lambda file: pa_csv.write_csv(plain, file)
    categories = {
        str(each): [str(value) for value in values.cat.categories]
        for each, values in frame.items()
        if isinstance(values.dtype, pd.CategoricalDtype)
    }
    header = {"version": injection_tables.VERSION, "table": name, "categories": categories}
    table = pa.table({each: _typed(table[each]) for each in table.column_names})
    table = table.replace_schema_metadata({injection_tables.METADATA: json.dumps(header).encode()})
    return lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def _decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    values = _typed(values)
    is_dictionary = pa.types.is_dictionary(values.type)
    return values.cast(values.type.value_type) if is_dictionary else values


def _typed(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give text to a column whose cells are all missing; Arrow would call it null."""
    kind = values.type
    is_null = pa.types.is_null(kind)
    if is_null or (pa.types.is_dictionary(kind) and pa.types.is_null(kind.value_type)):
        return pa.chunked_array([pa.nulls(len(values), pa.string())])
    return values


def _drop_others(folder: Path, kept: set[str]) -> None:
    """Take away the tables of an earlier campaign that this one does not have."""
    for name in TABLES:
        for ending in (*get_args(Format), "json"):
            file = folder / f"{name}.{ending}"
            if file.name not in kept and file.is_file():
                file.unlink()
