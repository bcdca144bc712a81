"""Power usage effectiveness: energy of a facility over that of its IT."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import POWER_TOTALS, PUE

_NS = 1e9


def pue(facility: pd.DataFrame, it: pd.DataFrame, *, window_s: float | None = None) -> pd.DataFrame:
    """Divide the energy of a facility by that of its IT, over the same cells of time.

    It is a ratio of sums: the mean of ratios would let idle hours count like busy ones. A cell
    that one of both lacks is left out of both.

    Parameters
    ----------
    facility, it
        Tables :data:`workbench.tables.POWER_TOTALS` with cells of one length that fit each
        other: all the site draws, and its servers, network and storage alone.
    window_s
        Length of windows one after the other, in s, cut down to whole cells; by default one
        window of all cells. The last one may be shorter.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PUE`, one row per window.

    Raises
    ------
    TableError
        If an input is not its table.
    ValueError
        If ``window_s`` is shorter than a cell, or infinite.
    WorkbenchError
        If there are too few cells, or those of both do not fit each other.

    References
    ----------
    ISO/IEC 30134-2: total energy over IT energy of the same time.

    Examples
    --------
    >>> import pandas as pd
    >>> cells = {"time_ns": [0, 10**9], "entity_count": 1, "expected_count": 1}
    >>> site = pd.DataFrame(cells | {"power_w": [150.0, 250.0], "covered_share": 1.0})
    >>> pue(site, site.assign(power_w=[100.0, 200.0]))["pue_ratio"].round(4).tolist()
    [1.3333]
    """
    period = _period(POWER_TOTALS.check(facility), POWER_TOTALS.check(it))
    whole = facility.set_index("time_ns")["power_w"].to_frame("facility")
    both = whole.join(it.set_index("time_ns")["power_w"].rename("it"), how="outer").sort_index()
    start = int(both.index[0])
    cell = (both.index.to_numpy() - start) // period
    cell_count = int(cell[-1]) + 1
    if window_s is not None and not period <= window_s * _NS < np.inf:
        msg = f"window_s is {window_s!r}, but one cell alone is {period / _NS:g} s long"
        raise ValueError(msg)
    per_window = cell_count if window_s is None else round(window_s * _NS) // period
    known = both.notna().all(axis=1).to_numpy()
    joules = both[known] * (period / _NS)
    windows = range(-(-cell_count // per_window))
    sums = joules.groupby(cell[known] // per_window).sum().reindex(windows)
    counts = np.bincount(cell[known] // per_window, minlength=len(windows))
    first = start + np.arange(len(windows), dtype=np.int64) * per_window * period
    last = np.minimum(first + per_window * period, start + cell_count * period)
    ratio = sums["facility"] / sums["it"].where(sums["it"] > 0)
    table = pd.DataFrame(
        {
            "start_ns": first,
            "end_ns": last,
            "facility_j": sums["facility"],
            "it_j": sums["it"],
            "pue_ratio": ratio,
            "covered_share": counts * period / (last - first),
            # Sums of the same watts differ by their rounding.
            "is_below_one": ratio < 1 - 1e-9,
        }
    )
    return PUE.check(PUE.cast(table.reset_index(drop=True)))


def _period(facility: pd.DataFrame, it: pd.DataFrame) -> int:
    """Give the length of the cells in ns, or raise if those of both do not fit each other."""
    steps = np.concatenate([np.diff(each["time_ns"].to_numpy()) for each in (facility, it)])
    if len(facility) < 1 or len(it) < 1 or len(steps) < 1:
        msg = "PUE needs totals of two cells or more; make them with analyze.power_totals"
        raise WorkbenchError(msg)
    apart = int(facility["time_ns"].iloc[0]) - int(it["time_ns"].iloc[0])
    period = int(steps.min())
    if period <= 0 or (steps % period != 0).any() or apart % period:
        msg = (
            "the cells of the facility and of its IT do not fit each other; make both with "
            "analyze.power_grid of one period_s and the same start_ns, or none"
        )
        raise WorkbenchError(msg)
    return period
