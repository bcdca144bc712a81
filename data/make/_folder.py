"""The folder that a simulation writes into: new, the same bytes every time, with its truth."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.tables import Table

_TRUTH_FILE = "truth.csv"


def new_folder(out: str | Path) -> Path:
    """Return the folder to write into; it is made with its first file.

    Raises
    ------
    FileExistsError
        If it holds files already.
    """
    folder = Path(out)
    if folder.is_dir() and any(folder.iterdir()):
        msg = f"{folder} is not empty; name a new folder"
        raise FileExistsError(msg)
    return folder


def write(path: Path, content: str | bytes) -> None:
    """Write a file, compressed if its name ends in .gz; the same content gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(plain, 9, mtime=0) if path.suffix == ".gz" else plain)


def write_truth(folder: Path, truth: pd.DataFrame, *, float_format: str | None = None) -> None:
    """Write what was put into the files beside them."""
    text = truth.to_csv(index=False, lineterminator="\n", float_format=float_format)
    write(folder / _TRUTH_FILE, text)


def local(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%dT%H:%M:%S}"


def iso(time_ns: int) -> str:
    seconds, below_ns = divmod(time_ns, 1_000_000_000)
    return f"{local(seconds)}.{below_ns // 1000:06d}"


def event_lines(entries: Iterable[tuple[int, str, Mapping[str, Any]]]) -> str:
    """Write the log of a job: one JSON object per event."""
    return "".join(
        json.dumps({"time": f"{iso(at)}Z", "event": event, **more, "synthetic": True}) + "\n"
        for at, event, more in entries
    )


def read_truth(
    folder: str | Path, table: Table, *, writer: str, empty: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Read what was put into the files of a folder.

    Parameters
    ----------
    folder
        Folder that was given to the simulation.
    table
        The table that the truth is.
    writer
        Name of the simulation that writes such folders, for the message.
    empty
        What an empty cell of a column stands for where it is not a missing value.

    Raises
    ------
    LoadError
        If the folder has no truth.
    """
    path = Path(folder) / _TRUTH_FILE
    if not path.is_file():
        msg = f"{path} does not exist; pass a folder written by data.make.{writer}"
        raise LoadError(msg)
    dtypes = {name: column.dtype for name, column in table.columns.items()}
    read = pd.read_csv(path, dtype=dtypes)
    return table.check(read.fillna(dict(empty)) if empty else read, origin=str(path))
