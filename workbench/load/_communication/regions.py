"""Regions to train in: the bandwidth between them and the speed of their workers."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import tables as plain
from workbench.tables import LOCAL_TRAINING_LOSSES, REGION_LINKS, REGION_WORKERS, Regions

_NAME, _SPEEDS = "region", "speeds"
_FORM = "write a row per region: region, a column per region in Gbit/s, speeds ('1 0.9 0.4')"
_SHOWN = 8


def regions(path: str | Path) -> Regions:
    """Read a matrix of bandwidths between regions, and the workers in each.

    Parameters
    ----------
    path
        A CSV or Parquet file with a row per region: ``region`` (its name), a column per region
        with the bandwidth *to* it in Gbit/s (inside a region on the diagonal), and ``speeds``:
        a number per worker, separated by blanks, in any unit, larger is faster.

    Returns
    -------
    workbench.tables.Regions
        Tables :data:`workbench.tables.REGION_LINKS` and :data:`workbench.tables.REGION_WORKERS`
        in the order of the file; speeds relative to the fastest worker. It says when links
        differ by direction.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing or belongs to no region, a region occurs twice, or a bandwidth or
        speed is missing, zero, negative or no number; all of them are named.

    Examples
    --------
    >>> from workbench import datasets
    >>> regions(datasets.path("local-training") / "regions.csv")
    Regions: 4 regions, 16 workers, 0.117 to 0.935 Gbit/s between regions
    """
    path = Path(path)
    frame = plain.read(path).rename(columns=lambda name: str(name).strip())
    if missing := [name for name in (_NAME, _SPEEDS) if name not in frame]:
        msg = f"{path}: no column {missing}; found {list(frame.columns)[:20]}. {_FORM}"
        raise LoadError(msg)
    plain.refuse_repeated(frame, path)
    plain.refuse_cut_row(frame, path, list(frame.columns))
    names: list[Any] = plain.texts(frame[_NAME]).tolist()
    columns = [str(name) for name in frame if name not in (_NAME, _SPEEDS)]
    misfits = _of_names(names, columns)
    if misfits:
        msg = f"{path}: {'; '.join(misfits)}. {_FORM}"
        raise LoadError(msg)
    matrix = np.array([plain.as_floats(frame[name]) for name in names]).T
    speeds = [str(cell).split() for cell in plain.texts(frame[_SPEEDS]).fillna("")]
    misfits = _of_numbers(names, matrix, speeds)
    if misfits:
        more = f" and {len(misfits) - _SHOWN:,} more" if len(misfits) > _SHOWN else ""
        msg = f"{path}: {'; '.join(misfits[:_SHOWN])}{more}. Numbers above 0 are needed"
        raise LoadError(msg)
    senders, receivers = zip(*product(names, names), strict=True)
    links = pd.DataFrame({"from_region": senders, "to_region": receivers})
    pairs = zip(names, speeds, strict=True)
    rows = [(name, float(speed)) for name, cell in pairs for speed in cell]
    workers = pd.DataFrame(rows, columns=["region", "speed_ratio"]).assign(worker=range(len(rows)))
    workers["speed_ratio"] /= workers["speed_ratio"].max()
    return Regions(
        REGION_LINKS.check(REGION_LINKS.cast(links.assign(bandwidth_gbps=matrix.ravel()))),
        REGION_WORKERS.check(REGION_WORKERS.cast(workers)),
    )


def _of_names(names: list[str | None], columns: list[str]) -> list[str]:
    """Return which rows have no name, one twice, or no column, and which columns have no row."""
    misfits = [f"row {row}: the region has no name" for row, name in enumerate(names) if not name]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    misfits += [f"regions {twice} occur twice"] * bool(twice)
    absent = [name for name in names if name and name not in columns]
    misfits += [f"no column for regions {absent}"] * bool(absent)
    unknown = [name for name in columns if name not in names]
    misfits += [f"no row for columns {unknown[:_SHOWN]}"] * bool(unknown)
    return misfits + ["no regions"] * (not names)


def _of_numbers(names: list[str], matrix: np.ndarray, speeds: list[list[str]]) -> list[str]:
    """Name every bandwidth and speed that is missing, zero, negative or no number."""
    bad = ~(np.isfinite(matrix) & (matrix > 0))
    misfits = [f"bandwidth from {names[row]!r} to {names[to]!r}" for row, to in np.argwhere(bad)]
    for name, cell in zip(names, speeds, strict=True):
        values = plain.as_floats(pd.Series(cell, dtype=object))
        wrong = [text for text, value in zip(cell, values, strict=True) if not 0 < value < np.inf]
        misfits += [f"speed {text!r} in {name!r}" for text in wrong]
    return misfits + ["speeds of no worker at all"] * (not any(speeds))


def local_training_losses(path: str | Path) -> pd.DataFrame:
    """Read losses of training runs by local step.

    Parameters
    ----------
    path
        A CSV or Parquet file with the columns of the table, e.g. the bundled
        ``local-training/losses.parquet`` or another result of the script beside it.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LOCAL_TRAINING_LOSSES`: ``scheme``, ``seed``,
        ``step_count``, ``loss``, ``staleness_count``, ``model``.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing, or a value is not a number from 0.
    """
    path = Path(path)
    names = {name: name for name in LOCAL_TRAINING_LOSSES.columns}
    frame = plain.renamed(plain.read(path), path, names=names, columns=None)
    whole = {name: plain.whole(frame[name], path) for name in ("seed", "step_count")}
    numbers = {name: plain.numbers(frame[name], path) for name in ("loss", "staleness_count")}
    table = frame.assign(**whole, **numbers)
    return LOCAL_TRAINING_LOSSES.of(table, attrs={"left_out": plain.left_out(path)})
