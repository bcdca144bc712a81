"""How often the rows of an embedding table are looked up."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import ROW_POPULARITY


def row_popularity(rows: int, exponent: float) -> pd.DataFrame:
    """Draw row popularities that fall off by Zipf's law.

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
