"""The offset of a meter's clock that is worth correcting for."""

from __future__ import annotations

import pandas as pd

from workbench._numbers import positive
from workbench.tables import POWER_CLOCK_OFFSET


def clock_correction_s(offset: pd.DataFrame, *, least_s: float = 2.0) -> float:
    """Give the offset to pass on as ``clock_offset_s``: the one found, if it is surely large.

    Sensors that average, and steps that begin with little power, delay power by a second or so
    on clocks that agree. An offset of half a minute is a clock that is wrong, and whatever is
    joined with the job log would be wrong with it.

    Parameters
    ----------
    offset
        Table :data:`workbench.tables.POWER_CLOCK_OFFSET`.
    least_s
        Offsets whose interval reaches below this, in s, are left alone.

    Returns
    -------
    float
        ``offset_s``, or 0 where it is missing, ambiguous or small.

    Raises
    ------
    WorkbenchError
        If ``least_s`` is no positive number.

    Examples
    --------
    >>> found = {"offset_s": 29.9, "low_s": 29.6, "high_s": 30.1, "correlation": 0.9}
    >>> found |= {"next_offset_s": 3.0, "next_correlation": 0.2, "is_ambiguous": False}
    >>> clock_correction_s(pd.DataFrame([found | {"doubt": "", "cell_count": 600}]))
    29.9
    """
    POWER_CLOCK_OFFSET.check(offset)
    least = positive("least_s", least_s)
    if offset.empty:
        return 0.0
    row = offset.iloc[0]
    if pd.isna(row["offset_s"]) or row["is_ambiguous"]:
        return 0.0
    is_large = row["low_s"] > least or row["high_s"] < -least
    return float(row["offset_s"]) if is_large else 0.0
