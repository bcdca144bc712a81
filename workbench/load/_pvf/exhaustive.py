"""Every single-bit fault of a model: one Parquet file of millions of sites."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from workbench._shared.writing import write_whole
from workbench.errors import LoadError
from workbench.load._files.archive import shown
from workbench.load._files.findings import guarded
from workbench.load._files.tables import parquet_in
from workbench.load._pvf.columns import Cells, converted
from workbench.load._pvf.formats import own_tables as injection_tables
from workbench.load._pvf.formats.own_tables import EXHAUSTIVE_METADATA
from workbench.load._pvf.part import TABLES
from workbench.tables import (
    CAMPAIGN,
    EXHAUSTIVE,
    PARAMETERS,
    ExhaustiveInjections,
    Injections,
    Table,
)

VERSION = 1
_BLOCK_ROWS = 1 << 16
_BITS = 8  # of the number of a bit inside a key


def exhaustive_injections(path: str | Path) -> ExhaustiveInjections:
    """Load every single-bit fault of a model, as :func:`workbench.load.write` stored it.

    Parameters
    ----------
    path
        The Parquet file.

    Returns
    -------
    ExhaustiveInjections
        ``sites`` (:data:`workbench.tables.EXHAUSTIVE`, sorted by tensor, element and bit),
        ``campaign`` (:data:`workbench.tables.CAMPAIGN`) and ``parameters``
        (:data:`workbench.tables.PARAMETERS`).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file is no such Parquet file, is damaged or of a later version, holds a site
        twice, or counts more wrong outputs at a site than there are inputs.
    """
    with guarded(shown(path), "Parquet"):
        content = parquet_in(path)
        if content is None:
            msg = f"{shown(path)}: cannot be read as Parquet; get the file again"
            raise LoadError(msg)
        is_file = isinstance(content, Path)
        with pq.ParquetFile(content, memory_map=is_file, page_checksum_verification=True) as file:
            header = _header(file.schema_arrow, path)
            table = file.read(list(EXHAUSTIVE.columns))
        sites = _sites(table, header, path)
        campaign = _from_json(header["campaign"], CAMPAIGN, path)
        parameters = _from_json(header["parameters"], PARAMETERS, path)
        _check(sites, campaign, path)
    return ExhaustiveInjections(campaign=campaign, parameters=parameters, sites=sites)


def in_order(sites: pd.DataFrame, parameters: pd.DataFrame) -> pd.DataFrame:
    """Sort sites by tensor, in the order of the parameters, then by element and bit."""
    names = [name for name in parameters["param"] if name in set(sites["param"].cat.categories)]
    more = [name for name in sites["param"].cat.categories if name not in set(names)]
    index = pd.Index([*names, *more], dtype=pd.Series([""]).dtype)
    sites = sites.assign(param=sites["param"].cat.set_categories(index))
    keys = _joined(*_places(sites))
    # Files of this writer are in order already: no need to sort millions of sites.
    if (np.diff(keys) > 0).all():
        return sites.reset_index(drop=True)
    return sites.iloc[np.argsort(keys, kind="stable")].reset_index(drop=True)


def _places(sites: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    codes = sites["param"].cat.codes.to_numpy()
    return codes, sites["elem"].to_numpy(), sites["bit"].to_numpy()


def _joined(param: np.ndarray, elem: np.ndarray, bit: np.ndarray) -> np.ndarray:
    # An element is an int32 from 0 (31 bits) and a bit number takes _BITS: one int64 sorts sites.
    keys = param.astype(np.int64)
    keys <<= 31
    keys |= elem
    keys <<= _BITS
    keys |= bit
    return keys


def _header(schema: pa.Schema, path: str | Path) -> dict[str, Any]:
    raw = (schema.metadata or {}).get(EXHAUSTIVE_METADATA)
    missing = [name for name in EXHAUSTIVE.columns if name not in schema.names]
    if raw is None or missing:
        msg = (
            f"{path}: is Parquet, but holds no exhaustive injections of the workbench; write "
            "them with load.write, or load samples with load.injections"
        )
        raise LoadError(msg)
    try:
        header: dict[str, Any] = json.loads(raw)
        version = header["version"]
    except (ValueError, TypeError, KeyError):
        msg = f"{path}: its header is damaged; write the file again"
        raise LoadError(msg) from None
    if version != VERSION:
        msg = f"{path}: has layout version {version}, this reads {VERSION}; write it again"
        raise LoadError(msg)
    return header


def _sites(table: pa.Table, header: dict[str, Any], path: str | Path) -> pd.DataFrame:
    columns = {}
    for name, column in EXHAUSTIVE.columns.items():
        if column.dtype == "category":
            cells = Cells(str(path), name, table[name])
            columns[name] = converted(cells, column, header.get("params"))
            continue
        # Arrow lends its numbers read-only; a copy is the caller's own.
        values = table[name].to_numpy()
        columns[name] = np.array(values, copy=not values.flags.writeable)
    return EXHAUSTIVE.check(pd.DataFrame(columns, copy=False), str(path))


def _from_json(columns: dict[str, list[Any]], table: Table, path: str | Path) -> pd.DataFrame:
    rows = max((len(values) for values in columns.values()), default=0)
    frame_columns = {}
    for name, column in table.columns.items():
        cells_of_column = columns.get(name, [None] * rows)
        texts = [
            None if v is None else v if isinstance(v, str) else json.dumps(v)
            for v in cells_of_column
        ]
        cells = Cells(
            f"{path}, {table.name}", name, pa.chunked_array([pa.array(texts, pa.string())])
        )
        frame_columns[name] = converted(cells, column)
    return table.check(pd.DataFrame(frame_columns), f"{path}, {table.name}")


def _check(sites: pd.DataFrame, campaign: pd.DataFrame, path: str | Path) -> None:
    if len(campaign) != 1:
        msg = f"{path}: has {len(campaign)} campaigns; exhaustive injections have one"
        raise LoadError(msg)
    inputs = campaign["input_count"].iloc[0]
    limit = np.iinfo(np.int32).max if pd.isna(inputs) else int(inputs)
    # In blocks that stay in the processor's cache; whole columns would be copied many times.
    param, elem, bit = _places(sites)
    sdc, due = (sites[name].to_numpy() for name in ("sdc_count", "due_count"))
    for start in range(0, len(sites), _BLOCK_ROWS):
        block = slice(max(start - 1, 0), start + _BLOCK_ROWS)
        keys = _joined(param[block], elem[block], bit[block])
        bad = keys[1:] <= keys[:-1]
        if bad.any():
            row = max(start - 1, 0) + int(bad.argmax()) + 1
            problem = "is out of order or there twice; write it with load.write"
            _refuse(sites, row, problem, path)
        # Two counts of 16 bits may not fit into 16 bits.
        wrong = sdc[block].astype(np.int32) + due[block]
        if wrong.max() > limit:
            row = max(start - 1, 0) + int(wrong.argmax())
            _refuse(sites, row, f"has {wrong.max():,} wrong outputs of {limit:,} inputs", path)


def _refuse(sites: pd.DataFrame, row: int, problem: str, path: str | Path) -> NoReturn:
    site = sites.iloc[row]
    site_name = f"row {row + 1:,} ({site['param']}, element {site['elem']}, bit {site['bit']})"
    msg = f"{path}: {site_name} {problem}"
    raise LoadError(msg)


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
        The folder; created if missing. Its files appear complete or not at all, and replace
        those of an earlier campaign.
    format
        ``"parquet"`` (zstd) keeps everything. ``"csv"`` keeps values and types, and of the
        categories of a column those that occur.

    Returns
    -------
    pathlib.Path
        The folder, with ``campaign``, ``faults`` and ``outcomes``, and ``trials`` and
        ``parameters`` if they have rows. Quality is assessed again when the folder is loaded.

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
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
        inside = Path(staging) / "tables"
        inside.mkdir()
        for name, frame in wanted.items():
            write_whole(inside / f"{name}.{format}", _writer(name, frame, format))
        # One rename: a reader meets all tables or none.
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
    """Return the columns of a small frame as JSON can hold them; times in ISO 8601."""
    columns: dict[str, list[Any]] = {}
    for name, values in frame.items():
        is_time = isinstance(values.dtype, pd.DatetimeTZDtype)
        plain = [None if pd.isna(v) else v.isoformat() if is_time else v for v in values]
        columns[str(name)] = [v.item() if isinstance(v, np.generic) else v for v in plain]
    return columns


def _writer(name: str, frame: pd.DataFrame, format: Format) -> Any:  # noqa: A002
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if format == "csv":
        plain = pa.table({column: _decoded(table[column]) for column in table.column_names})
        return lambda file: pa_csv.write_csv(plain, file)
    categories = {
        str(column): [str(value) for value in values.cat.categories]
        for column, values in frame.items()
        if isinstance(values.dtype, pd.CategoricalDtype)
    }
    header = {"version": injection_tables.VERSION, "table": name, "categories": categories}
    table = pa.table({column: _typed(table[column]) for column in table.column_names})
    table = table.replace_schema_metadata({injection_tables.METADATA: json.dumps(header).encode()})
    return lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def _decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    values = _typed(values)
    is_dictionary = pa.types.is_dictionary(values.type)
    return values.cast(values.type.value_type) if is_dictionary else values


# Arrow calls a column null whose cells are all missing; readers expect text.
def _typed(values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = values.type
    is_null = pa.types.is_null(kind)
    if is_null or (pa.types.is_dictionary(kind) and pa.types.is_null(kind.value_type)):
        return pa.chunked_array([pa.nulls(len(values), pa.string())])
    return values


def _drop_others(folder: Path, kept: set[str]) -> None:
    for name in TABLES:
        for ending in (*get_args(Format), "json"):
            file = folder / f"{name}.{ending}"
            if file.name not in kept and file.is_file():
                file.unlink()
