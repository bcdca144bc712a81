"""Embedding tables of a recommendation model, and how popular their rows are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import EMBEDDING_TABLES, ROW_POPULARITY

_ROWS = (1e3, 4e7)
_DIMS = {32: 0.10, 64: 0.35, 96: 0.20, 128: 0.30, 256: 0.05}
_POOLING_LOG_MEAN, _POOLING_LOG_SD, _POOLING = 1.3, 1.4, (1.0, 200.0)
_ELEMENT_BYTES = 4


def embedding_tables(count: int = 788, *, seed: int = 0) -> pd.DataFrame:
    """Draw the embedding tables of a large recommendation model.

    The sizes are invented, in the range that large models have; the default number of
    tables is that of a published batch of look-ups.

    Parameters
    ----------
    count
        Number of tables.
    seed
        Seed of the draw; the same seed gives the same tables.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EMBEDDING_TABLES`: ``table``, ``row_count``,
        ``dim_count``, ``pooling_ratio``, ``element_bytes``. ``attrs["synthetic"]`` is true
        and ``attrs["source"]`` names the distribution.

    Raises
    ------
    WorkbenchError
        If ``count`` is below 1.

    Notes
    -----
    Rows: log-uniform from 1,000 to 40 million. Dimension: 32, 64, 96, 128, 256 with
    probability 0.10, 0.35, 0.20, 0.30, 0.05. Look-ups per sample: log-normal with mean 1.3
    and standard deviation 1.4 of the logarithm, from 1 to 200. Elements: 4 bytes.

    References
    ----------
    Number of tables: facebookresearch/dlrm_datasets, embedding_bag/2022 (788 tables).

    Examples
    --------
    >>> tables = embedding_tables()
    >>> len(tables), int(tables["dim_count"].max())
    (788, 256)
    """
    if count < 1:
        msg = f"count must be 1 or more, not {count}"
        raise WorkbenchError(msg)
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.uniform(np.log(_ROWS[0]), np.log(_ROWS[1]), count)).astype(np.int64)
    dims = rng.choice(list(_DIMS), count, p=list(_DIMS.values())).astype(np.int64)
    pooling = rng.lognormal(_POOLING_LOG_MEAN, _POOLING_LOG_SD, count).clip(*_POOLING)
    width = max(len(str(count - 1)), 3)
    tables = pd.DataFrame(
        {
            "table": [f"table_{number:0{width}}" for number in range(count)],
            "row_count": rows,
            "dim_count": dims,
            "pooling_ratio": pooling,
            "element_bytes": np.full(count, _ELEMENT_BYTES, dtype=np.int64),
        }
    )
    tables.attrs["synthetic"] = True
    tables.attrs["source"] = f"simulate.embedding_tables, {count} tables, seed {seed}"
    return EMBEDDING_TABLES.check(tables)


def row_popularity(rows: int, exponent: float) -> pd.DataFrame:
    """Give the rows of a table popularities that fall off by Zipf's law.

    Parameters
    ----------
    rows
        Number of rows.
    exponent
        The s in i**-s for the i-th most popular row; 0 makes all rows equal.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ROW_POPULARITY`: ``row_count`` (1 each) and
        ``lookup_share``, most popular first. ``attrs["synthetic"]`` is true.

    Raises
    ------
    WorkbenchError
        If there is no row, or the exponent is negative or not finite.

    Notes
    -----
    Row i of N has the share i**-s / sum of j**-s over j = 1 .. N.

    Examples
    --------
    >>> row_popularity(3, 1.0)["lookup_share"].round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    if rows < 1:
        msg = f"rows must be 1 or more, not {rows}"
        raise WorkbenchError(msg)
    if not 0 <= exponent < np.inf:
        msg = f"exponent must be a finite number from 0, not {exponent}"
        raise WorkbenchError(msg)
    weight = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    table = pd.DataFrame(
        {"row_count": np.ones(rows, dtype=np.int64), "lookup_share": weight / weight.sum()}
    )
    table.attrs["synthetic"] = True
    table.attrs["source"] = f"Zipf's law, {rows:,} rows, exponent {exponent:g}"
    return ROW_POPULARITY.check(table)
