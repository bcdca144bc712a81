"""The part of a power series that falls into a named span of a job."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.tables import LOGGED_SPANS, POWER_TOTALS


def power_during(totals: pd.DataFrame, spans: pd.DataFrame, *, kind: str = "run") -> pd.DataFrame:
    """Keep the cells from the first start to the last end of one kind of span.

    Meters run before a job and after it. What lies outside of the run belongs to its mean, its
    spectrum and its swings as little as another job does.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`.
    kind
        Kind of span. Without a span of this kind that has an end, all cells are kept.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOTALS`: ``time_ns``, ``power_w``, ``entity_count``,
        ``expected_count``, ``covered_share``, ``meter_period_s``. Only whole cells are kept;
        those before the first and after the last that has power are left out as well, because
        the meters did not run.

    Examples
    --------
    >>> power_during(POWER_TOTALS.empty(), LOGGED_SPANS.empty()).empty
    True
    """
    POWER_TOTALS.check(totals)
    LOGGED_SPANS.check(spans)
    known = spans[(spans["kind"] == kind) & spans["end_ns"].notna()]
    if known.empty or len(totals) < 2:
        return totals
    cell_ns = int(totals["time_ns"].iloc[1] - totals["time_ns"].iloc[0])
    starts = totals["time_ns"].to_numpy()
    inside = (starts >= known["start_ns"].min()) & (starts + cell_ns <= known["end_ns"].max())
    measured = np.flatnonzero(inside & totals["power_w"].notna().to_numpy())
    if len(measured):
        inside[: measured[0]] = inside[measured[-1] + 1 :] = False
    return POWER_TOTALS.check(totals.loc[inside].reset_index(drop=True))
