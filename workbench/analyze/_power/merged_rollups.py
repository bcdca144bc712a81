"""Longer cells of a roll-up, without going back to the readings."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._moments import Moments, together
from workbench.errors import WorkbenchError
from workbench.tables import POWER_ROLLUP

_SECOND = 1_000_000_000


def merged_rollups(rollup: pd.DataFrame, *, period_s: float) -> pd.DataFrame:
    """Make longer cells of shorter ones: 10 s to 1 min to 1 h.

    Nothing is lost on the way: the result is that of rolling up the readings themselves, since
    count, mean, extremes and squared deviations of the parts determine those of the whole.

    Parameters
    ----------
    rollup
        Table :data:`workbench.tables.POWER_ROLLUP`; several may be put below each other
        (``pandas.concat``), e.g. one per month.
    period_s
        Length of the new cells, in s: a multiple of that of the old ones.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_ROLLUP`.

    Raises
    ------
    WorkbenchError
        If ``period_s`` is no multiple of the length of the cells.

    Notes
    -----
    With parts *i* of a cell: ``count = sum n_i``, ``mean = sum n_i m_i / count`` and
    ``m2 = sum (m2_i + n_i (m_i - mean)^2)``.

    References
    ----------
    T. F. Chan, G. H. Golub, R. J. LeVeque, The American Statistician 37 (1983) 242.

    Examples
    --------
    >>> rollup = pd.DataFrame({"time_ns": [0, 10 * 10**9], "period_s": 10.0})
    >>> rollup["entity"] = pd.Categorical(["gpu0"] * 2)
    >>> for name, values in [("mean_w", [400.0, 600.0]), ("m2_w2", [0.0, 0.0])]:
    ...     rollup[name] = values
    >>> rollup = rollup.assign(reading_count=10, min_w=rollup["mean_w"], max_w=rollup["mean_w"])
    >>> merged = merged_rollups(rollup, period_s=60)
    >>> merged[["reading_count", "mean_w", "m2_w2"]].values.tolist()
    [[20.0, 500.0, 200000.0]]
    """
    POWER_ROLLUP.check(rollup)
    period_ns = round(period_s * _SECOND) if 0 < period_s < np.inf else 0
    old_ns = np.round(rollup["period_s"].to_numpy() * _SECOND).astype(np.int64)
    if period_ns < 1 or (period_ns % np.maximum(old_ns, 1)).any():
        lengths = sorted(set(rollup["period_s"]))[:4]
        msg = f"period_s is {period_s!r}, no multiple of the cells' own length of {lengths} s"
        raise WorkbenchError(msg)
    entity = rollup["entity"]
    cells = rollup["time_ns"].to_numpy() // period_ns
    first = int(cells.min()) if len(cells) else 0
    span = int(cells.max()) - first + 1 if len(cells) else 1
    parts = Moments(
        entity.cat.codes.to_numpy().astype(np.int64) * span + (cells - first),
        rollup["reading_count"].to_numpy(),
        rollup["mean_w"].to_numpy(),
        rollup["min_w"].to_numpy(),
        rollup["max_w"].to_numpy(),
        rollup["m2_w2"].to_numpy(),
    )
    merged = together(parts)
    codes, cells = np.divmod(merged.key, span)
    table = pd.DataFrame(
        {
            "time_ns": (cells + first) * period_ns,
            "entity": pd.Categorical.from_codes(codes, categories=entity.cat.categories),
            "period_s": period_ns / _SECOND,
            "reading_count": merged.count,
            "mean_w": merged.mean,
            "min_w": merged.low,
            "max_w": merged.high,
            "m2_w2": merged.squares,
        },
        columns=list(POWER_ROLLUP.columns),
    )
    return POWER_ROLLUP.check(table)
