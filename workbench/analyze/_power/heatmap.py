"""The power of many things over time as a picture of whole watts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import is_finite
from workbench.tables import POWER_GRID, POWER_HEATMAP

_MOST_W = (1 << 31) - 1


def power_heatmap(grid: pd.DataFrame, *, column_count: int = 600) -> pd.DataFrame:
    """Shorten a grid of many entities to the columns of a picture, by mean and by maximum.

    The mean of a column shows how much is drawn; the maximum keeps a spike of a single cell,
    which the mean would dilute.

    Parameters
    ----------
    grid
        Table :data:`workbench.tables.POWER_GRID`, all entities on one grid.
    column_count
        Number of columns at most; each holds equally many cells of the grid.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_HEATMAP`: ``time_ns``, ``entity``, ``mean_w``,
        ``max_w``, ``covered_share``. Every entity has every column.

    Raises
    ------
    ValueError
        If ``column_count`` is no whole number from 1.

    Notes
    -----
    ``mean_w`` is the mean of ``power_w`` over the cells of the column that are known, every
    cell weighing the same, and ``max_w`` the highest of them; both are rounded to whole watts.
    ``covered_share`` is the mean of the cells' own ``covered_share``, 0 for unknown ones.

    Examples
    --------
    >>> grid = pd.DataFrame({"time_ns": [0, 1, 2, 3], "power_w": [400.0, 800.0, None, None]})
    >>> grid = grid.assign(entity=pd.Categorical(["gpu0"] * 4), covered_share=[1.0, 1.0, 0, 0])
    >>> shown = power_heatmap(grid, column_count=2)
    >>> shown[["mean_w", "max_w", "covered_share"]].values.tolist()
    [[600, 800, 1.0], [<NA>, <NA>, 0.0]]
    """
    POWER_GRID.check(grid)
    if not is_finite(column_count) or column_count % 1 or column_count < 1:
        msg = f"column_count is {column_count!r}; a picture needs at least one column"
        raise ValueError(msg)
    column_count = int(column_count)
    if grid.empty:
        return POWER_HEATMAP.empty()
    times = np.unique(grid["time_ns"].to_numpy())
    width = -(-len(times) // column_count)
    columns = -(-len(times) // width)
    entity = grid["entity"].cat.remove_unused_categories()
    rows = len(entity.cat.categories)
    column = np.searchsorted(times, grid["time_ns"].to_numpy()) // width
    key = entity.cat.codes.to_numpy().astype(np.int64) * columns + column
    power = grid["power_w"].to_numpy()
    known = ~np.isnan(power)
    count = np.bincount(key[known], minlength=rows * columns)
    total = np.bincount(key[known], weights=power[known], minlength=rows * columns)
    highest = _highest(key[known], power[known], rows * columns)
    share = np.where(known, grid["covered_share"].to_numpy(), 0.0)
    cells = np.minimum(np.arange(1, columns + 1) * width, len(times)) - np.arange(columns) * width
    covered = np.bincount(key, weights=share, minlength=rows * columns) / np.tile(cells, rows)
    empty = count == 0
    table = pd.DataFrame(
        {
            "time_ns": np.tile(times[::width], rows),
            "entity": pd.Categorical.from_codes(
                np.repeat(np.arange(rows), columns), categories=entity.cat.categories
            ),
            "mean_w": _whole(total / np.maximum(count, 1), empty),
            "max_w": _whole(highest, empty),
            "covered_share": np.clip(covered, 0, 1),
        }
    )
    return POWER_HEATMAP.check(table)


def _highest(key: np.ndarray, power: np.ndarray, count: int) -> np.ndarray:
    highest = np.zeros(count)
    if len(key):
        starts = np.r_[0, np.flatnonzero(key[1:] != key[:-1]) + 1]
        # In an ordered table every key is one run, and there is little left to compare.
        np.maximum.at(highest, key[starts], np.maximum.reduceat(power, starts))
    return highest


def _whole(values: np.ndarray, empty: np.ndarray) -> pd.Series:
    rounded = np.minimum(np.round(values), _MOST_W).astype(np.int32)
    return pd.Series(pd.arrays.IntegerArray(rounded, empty))
