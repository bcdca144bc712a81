"""Store what a loader returned as Parquet, in the form that its loader reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.errors import LoadError
from workbench.load._files.stored import kind_of, write_tables
from workbench.load._pvf.exhaustive import write_exhaustive, write_injections
from workbench.load._traces import parquet
from workbench.tables import ExhaustiveInjections, Injections, Trace


def write(loaded: Any, path: str | Path) -> Path:
    """Store what a loader returned as Parquet, whole or not at all.

    Traces, and every single-bit fault of a model, become one file; all else becomes a folder with
    one file per table. The loader that returned the data reads it back as it was; DuckDB, Polars
    and pandas read the files.

    Parameters
    ----------
    loaded
        What a function of :mod:`workbench.load` returned.
    path
        A file that ends in ``.parquet``, or a folder that is new, empty or holds the same tables,
        which are replaced.

    Returns
    -------
    pathlib.Path
        The file or folder.

    Raises
    ------
    TypeError
        If ``loaded`` is nothing that a loader returns.
    LoadError
        If ``path`` is a folder where a file is needed or the reverse, or a folder with other files.
    TableError
        If a frame does not fit its table.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from workbench import datasets, load
    >>> log = load.job_log(datasets.path("fleet-demo") / "steps.jsonl")
    >>> with TemporaryDirectory() as folder:
    ...     again = load.job_log(write(log, folder + "/steps"))
    >>> again.steps.equals(log.steps)
    True
    """
    path = Path(path)
    if isinstance(loaded, Trace | ExhaustiveInjections):
        if path.is_dir():
            msg = f"{path}: is a folder; a {type(loaded).__name__} becomes one file, name it"
            raise LoadError(msg)
        if isinstance(loaded, Trace):
            return parquet.write(loaded, path)
        return write_exhaustive(loaded, path)
    if not isinstance(loaded, Injections) and not kind_of(loaded):
        msg = f"a {type(loaded).__name__} cannot be stored; pass what a function of load returned"
        raise TypeError(msg)
    if path.suffix == ".parquet" or path.is_file():
        msg = f"{path}: this kind of data is stored as a folder of tables; name a folder"
        raise LoadError(msg)
    return (write_injections if isinstance(loaded, Injections) else write_tables)(loaded, path)
