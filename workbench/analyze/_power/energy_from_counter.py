"""Energy from counters of energy: differences, with resets as new beginnings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from workbench.analyze._lib.power_signal import Numbers, Signal, owners, readings_of
from workbench.analyze._power.energy import Known, energy_rows, integrated, window
from workbench.tables import POWER_COUNTERS

_NS = 1e9


def energy_from_counter(
    counters: pd.DataFrame,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    longest_gap_periods: float = 3.0,
) -> pd.DataFrame:
    """Work out energy as differences of a counter; a fall of the counter is a reset.

    A counter goes on counting while nobody reads it, so its differences are right across
    gaps, which an integral of power is not. What was counted between the last reading before
    a reset and the first one after it is lost, and that time is unknown.

    Parameters
    ----------
    counters
        Table :data:`workbench.tables.POWER_COUNTERS`.
    start_ns, end_ns
        The window, ns on the clock of the readings; by default from the first reading of any
        entity to the last of any, the same for all. A difference that an edge cuts counts in
        proportion to time.
    longest_gap_periods
        A difference over more median periods than this is not divided: where an edge of the
        window cuts it, its time is unknown.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ENERGY`, one row per entity, with ``method`` counter and
        the resets in ``reset_count``. ``highest_j`` is missing where time is unknown.

    Raises
    ------
    TableError
        If ``counters`` is not that table.
    ValueError
        If the table or the window is empty, or an option is out of its range.

    Notes
    -----
    ``sum (E[i] - E[i-1])`` over differences of 0 or more. A counter that was reset and has
    passed its old value before it is read again looks like one that was not.

    Examples
    --------
    >>> import pandas as pd
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9, 2 * 10**9], "entity": ["gpu0"] * 3, "energy_j": [900, 990, 40.0]}
    ... ).astype({"entity": "category"})
    >>> energy_from_counter(readings)[["energy_j", "covered_share", "reset_count"]].values.tolist()
    [[90.0, 0.5, 1.0]]
    """
    POWER_COUNTERS.check(counters)
    readings = readings_of(
        counters, value="energy_j", longest_gap_periods=longest_gap_periods, keep="last"
    )
    start, end = window(readings.earliest_ns, readings.latest_ns, start_ns, end_ns)
    rising, is_reset = _as_rate(readings, np.array([start, end]))
    resets = is_reset & (readings.time_ns > start) & (readings.time_ns <= end)
    energy_j, covered_s = integrated(rising, (start, end), "mlperf")
    return energy_rows(
        readings,
        method="counter",
        window_ns=(start, end),
        # A counter counts across gaps; what a reset lost, nobody knows.
        known=Known(
            energy_j,
            covered_s,
            np.zeros(len(readings.names)),
            np.full(len(readings.names), np.nan),
        ),
        reset_count=np.bincount(owners(readings)[resets], minlength=len(readings.names)),
    )


def _as_rate(readings: Signal, edges_ns: np.ndarray) -> tuple[Signal, np.ndarray]:
    """Turn a counter into the mean power before each of its readings; tell its resets."""
    owner = owners(readings)
    own = np.r_[False, np.diff(owner) == 0] if len(owner) else np.zeros(0, dtype=bool)
    rise: Numbers = np.diff(readings.power_w, prepend=0.0)
    step_ns = np.diff(readings.time_ns, prepend=0)
    earlier_ns = readings.time_ns - step_ns
    cut = np.zeros(len(owner), dtype=bool)
    for edge in edges_ns:
        cut |= (earlier_ns < edge) & (edge < readings.time_ns)
    known = own & (rise >= 0) & (step_ns > 0) & (readings.joined | ~cut)
    rate = np.where(known, rise, 0) / np.where(known, step_ns / _NS, 1)
    return replace(readings, power_w=rate, joined=known), own & (rise < 0)
