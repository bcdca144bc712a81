"""Power folded by steps: what a usual step draws from its beginning to its end."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import in_range, whole_number
from workbench.analyze._lib.energy_curves import SECOND, Floats, Ints, offset_ns
from workbench.errors import WorkbenchError
from workbench.tables import LOGGED_STEPS, PHASE_POWER, POWER_TOTALS

IN_STEPS, OUTSIDE = "in steps", "outside of steps"


def phase_power(
    totals: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    phase_count: int = 10,
    sample_s: float = 0.5,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Lay all steps over each other and average the power of each part of them.

    A meter that reads every two seconds sees a step of ten seconds five times, but each step at
    other moments; laid over each other, hundreds of steps show what none shows alone. It takes
    that steps are alike and that meter and job log agree about the time.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`: one uniform series.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`.
    phase_count
        Parts of a step, from 1.
    sample_s
        Distance of the samples that are taken from the series, by straight lines between the
        middles of its cells, in s.
    clock_offset_s
        How far the clock of the meter is ahead of that of the job log, in s.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PHASE_POWER`. Samples between first and last step that are
        in no step are the last row. A sample beside a cell without power is counted as missing.

    Raises
    ------
    WorkbenchError
        If the series is not uniform, or an option is no positive number.

    Notes
    -----
    ``phase = (t - start) / (end - start)`` with the step that holds t; where attempts overlap, the
    later start counts.

    Examples
    --------
    >>> phase_power(POWER_TOTALS.empty(), LOGGED_STEPS.empty()).empty
    True
    """
    LOGGED_STEPS.check(steps)
    parts = whole_number("phase_count", phase_count, least=1)
    every_ns = in_range("sample_s", sample_s, least=1 / SECOND) * SECOND
    if steps.empty:
        return PHASE_POWER.empty()
    ordered = steps.sort_values("start_ns", kind="stable")
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    when = np.arange(starts[0], ends.max(), round(every_ns), dtype=np.int64)
    watts = sampled(totals, when + offset_ns(clock_offset_s))
    row = np.full(len(when), -1)
    bounds = np.searchsorted(when, starts), np.searchsorted(when, ends)
    for step, (first, after) in enumerate(zip(*bounds, strict=True)):
        row[first:after] = step
    phase = (when - starts[row]) / np.maximum(ends[row] - starts[row], 1)
    part = np.where(row >= 0, np.clip(phase * parts, 0, parts - 1), parts).astype(np.int64)
    rows = [_row(watts[part == each], each, parts) for each in range(parts + 1)]
    table = pd.DataFrame(rows, columns=list(PHASE_POWER.columns))
    return PHASE_POWER.check(PHASE_POWER.cast(table))


def _row(watts: Floats, part: int, parts: int) -> dict[str, object]:
    known = watts[~np.isnan(watts)]
    inside, some = part < parts, len(known) > 0
    return {
        "place": IN_STEPS if inside else OUTSIDE,
        "first_share": part / parts if inside else np.nan,
        "last_share": (part + 1) / parts if inside else np.nan,
        "power_w": known.mean() if some else np.nan,
        "deviation_w": known.std(ddof=1) if len(known) > 1 else np.nan,
        "low_w": np.quantile(known, 0.1) if some else np.nan,
        "high_w": np.quantile(known, 0.9) if some else np.nan,
        "sample_count": len(known),
        "missing_count": len(watts) - len(known),
    }


def sampled(totals: pd.DataFrame, when_ns: Ints) -> Floats:
    """Read a uniform series at some times, by straight lines between the middles of known cells."""
    middles, watts = middles_of(totals)
    if len(middles) < 2:
        return np.full(len(when_ns), np.nan)
    # Missing cells make every straight line that touches them missing.
    read: Floats = np.interp(when_ns - middles[0], middles - middles[0], watts, np.nan, np.nan)
    return read


def middles_of(totals: pd.DataFrame) -> tuple[Ints, Floats]:
    """Give the middle of each cell and its power; refuse a series that is not uniform."""
    POWER_TOTALS.check(totals)
    start = totals["time_ns"].to_numpy()
    steps = np.diff(start)
    if len(steps) and (steps.min() <= 0 or steps.max() - steps.min() > 1):
        row = int(np.argmax(np.abs(steps - np.median(steps)) > 1))
        msg = (
            f"the series of power is not uniform: after row {row} it goes on "
            f"{steps[row] / SECOND:g} s later, usually {np.median(steps) / SECOND:g} s; make one "
            "with analyze.power_totals(analyze.power_grid(power, period_s=...))"
        )
        raise WorkbenchError(msg)
    period = int(steps[0]) if len(steps) else 0
    return start + period // 2, totals["power_w"].to_numpy(dtype=np.float64)
