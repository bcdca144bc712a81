"""Zeros of a recorded job that were hardly measured: pages of a file that were lost read as 0."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# A worker may begin one or two operations at 0.
_STARTS_AT_0 = 2


def zero_runs(table: pd.DataFrame, rows: NDArray[np.int64], run_rows: int) -> list[str]:
    """Name the runs of exact zeros, of at least ``run_rows`` rows, in the order of the file.

    ``rows`` are the rows of the file that the table was made of.
    Of durations only those count whose operation usually takes time, of starts only those of
    workers that begin more operations of a step at 0 than can run at once.
    """
    usual = table.groupby("operation")["dur_ns"].transform("median").to_numpy()
    lasted = table["dur_ns"].to_numpy() == 0
    begun = table["start_ns"].to_numpy() == 0
    worker = [table[name] for name in ("step", "dp_rank", "stage")]
    together = pd.Series(begun).groupby(worker).transform("sum").to_numpy()
    return [
        *_runs(lasted, lasted & (usual > 0), ("durations", run_rows), rows),
        *_runs(begun, begun & (together > _STARTS_AT_0), ("starts", run_rows), rows),
    ]


def _runs(
    is_zero: NDArray[np.bool_],
    is_odd: NDArray[np.bool_],
    meant: tuple[str, int],
    rows: NDArray[np.int64],
) -> list[str]:
    """Describe the runs of zeros that hold so many odd ones."""
    what, run_rows = meant
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_zero.astype(np.int8), [0]])))
    first, last = edges[::2], edges[1::2]
    odd = np.concatenate([[0], np.cumsum(is_odd)])
    long = odd[last] - odd[first] >= run_rows
    if not long.any():
        return []
    first, last = first[long], last[long]
    count = int((last - first).sum())
    runs = "" if len(first) == 1 else f" in {len(first):,} runs, the first"
    return [
        f"{count:,} {what} are exactly 0{runs} in rows {rows[first[0]]:,} to "
        f"{rows[last[0] - 1]:,}: "
        "missing values, or a damaged file"
    ]
