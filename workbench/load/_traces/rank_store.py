"""A folder with one Parquet file per rank, which a run can leave and the next one resume."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from workbench._shared.cluster import missing_on_worker, on_cluster
from workbench._shared.progress import progress as progress_bar
from workbench._shared.writing import write_whole
from workbench.errors import LoadError, TableError, WorkbenchError
from workbench.load._files.findings import Dropped, quality_frame
from workbench.load._traces import parquet
from workbench.load._traces.kept_columns import LAYOUT
from workbench.load._traces.rank_files import RankFile, RankFiles
from workbench.tables import QUALITY

QUALITY_NAME = "quality.csv"


def write_ranks(
    files: RankFiles, folder: str | Path, *, client: Any = None, progress: bool = True
) -> pd.DataFrame:
    """Store each rank of a job as one Parquet file, and do only what is lacking or has changed.

    Each file is written whole and then renamed, so a run may be stopped at any moment; the next one
    goes on and ends with the same bytes. The folder loads with :func:`workbench.load.traces` and
    :func:`workbench.load.rank_files`, and any Parquet engine can query it.

    Parameters
    ----------
    files
        What :func:`workbench.load.rank_files` returned.
    folder
        Where ``rank00000.parquet``, ... and ``quality.csv`` are written, by one run at a time.
    client
        A ``distributed.Client``, whose workers see source and folder under the same paths.
    progress
        Whether to show a progress bar if it takes more than a second.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.QUALITY`, also in ``quality.csv``: ``source``, ``finding``
        (dropped, repaired, assumed, ...), ``what``, ``count`` and ``where``, of all ranks and of
        the files that cannot be read.

    Raises
    ------
    TableError
        If the files were listed with some of their columns.
    LoadError
        If the folder holds ranks that are not of this job, or no rank can be read.
    """
    folder = Path(folder)
    targets = _targets(files, folder)
    # A run that was killed leaves the file that it was writing under another name.
    for unfinished in (*folder.glob(".rank*.parquet-*"), *folder.glob(f".{QUALITY_NAME}-*")):
        unfinished.unlink(missing_ok=True)
    dropped, kept = Dropped(), {}
    for file in files:
        quality = _stored_quality(targets[file.rank], _state(file))
        if quality is not None:
            kept[file.rank] = quality
    lacking = replace(files, files=tuple(file for file in files if file.rank not in kept))
    total = sum(file.size_bytes for file in lacking)
    with progress_bar(total=total, unit="B", label="converting", enabled=progress) as bar:
        for file, stored in _stored(lacking, folder, client):
            if isinstance(stored, Exception):
                dropped.add(file.label, stored)
                targets[file.rank].unlink(missing_ok=True)
            else:
                kept[file.rank] = stored
            bar.update(file.size_bytes)
    if not kept:
        dropped.raise_if_all()
    rows = [kept[rank] for rank in sorted(kept)]
    quality = QUALITY.joined([*rows, files.quality, quality_frame(dropped.rows)])
    write_whole(folder / QUALITY_NAME, lambda out: quality.to_csv(out, index=False))
    return quality


def _stored(
    files: RankFiles, folder: Path, client: Any
) -> Iterator[tuple[RankFile, pd.DataFrame | Exception]]:
    """Store ranks; give the quality table of each, or the error."""
    if client is not None:
        yield from on_cluster(client, partial(_store, folder=folder.resolve()), files)
        return
    for file, trace in files.each():
        if isinstance(trace, Exception):
            yield file, trace
        else:
            parquet.write(trace, _target(file, folder), origin=_state(file))
            yield file, trace.quality
        del trace


def _store(file: RankFile, folder: Path) -> pd.DataFrame | Exception:
    try:
        trace = file.load()
        parquet.write(trace, _target(file, folder), origin=_state(file))
    except FileNotFoundError:
        return missing_on_worker(file.label)
    except (WorkbenchError, OSError) as error:
        return error
    return trace.quality


def _targets(files: RankFiles, folder: Path) -> dict[int, Path]:
    """Return where each rank is stored; refuse files and folders that do not go together."""
    if any(file.columns is not None for file in files):
        msg = "a stored rank holds all columns of its events: list the files without columns="
        raise TableError(msg)
    targets = {file.rank: _target(file, folder) for file in files}
    foreign = sorted(set(folder.glob("rank*.parquet")) - set(targets.values()))
    if foreign:
        msg = (
            f"{foreign[0]}: {len(foreign)} files of ranks that the source does not have; remove "
            "them, or convert into an empty folder"
        )
        raise LoadError(msg)
    return targets


def _target(file: RankFile, folder: Path) -> Path:
    return folder / f"rank{file.rank:05d}.parquet"


def _stored_quality(path: Path, state: str | None) -> pd.DataFrame | None:
    """Return the quality table of a stored rank; None if it is lacking or of another state."""
    try:
        origin, tables = parquet.header(path)
    except (OSError, KeyError, ValueError, pa.ArrowException, WorkbenchError):
        return None
    return tables["quality"] if state is not None and origin == state else None


def _state(file: RankFile) -> str | None:
    """Return what a stored rank depends on: file, its state, and the options it was read with."""
    try:
        of_file = file.source.path.stat()
    except OSError:
        return None
    rules = None if file.reader.rules is None else file.reader.rules.to_csv(index=False)
    parts = [file.label, of_file.st_size, of_file.st_mtime_ns, file.rank, file.rank_source]
    options = [sorted(file.reader.args), rules, parquet.VERSION, LAYOUT, file.steps]
    return hashlib.sha256(json.dumps([*parts, *options]).encode()).hexdigest()
