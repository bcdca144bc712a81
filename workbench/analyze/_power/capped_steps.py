"""Steps and the capping they overlap."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import positive, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import CAPPING_EVENTS, LOGGED_STEPS

CAPPED, UNCAPPED, UNSURE = "capped", "uncapped", "unsure"


def capped_steps(
    events: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    first_step_count: int,
    longest_step_ratio: float,
) -> pd.DataFrame:
    """Give the steps in order of time with their duration, state, and whether they are kept.

    Returns
    -------
    pandas.DataFrame
        ``attempt``, ``step``, ``start_ns``, ``end_ns``, ``dur_s``, ``state`` (capped, uncapped,
        or unsure: within the uncertainty of an event's end) and ``is_kept``.
    """
    whole_number("first_step_count", first_step_count, least=0)
    positive("longest_step_ratio", longest_step_ratio)
    rows = ordered_steps(events, steps)
    if rows.empty:
        return rows.assign(dur_s=pd.Series(dtype="float64"), state="", is_kept=False)
    blur = (events["uncertain_s"] * 1e9).astype("int64")
    near = _touched(rows, events["start_ns"] - blur, events["end_ns"] + blur)
    touched = _touched(rows, events["start_ns"], events["end_ns"])
    state = np.select([touched, near], [CAPPED, UNSURE], default=UNCAPPED)
    rows = rows.assign(dur_s=(rows["end_ns"] - rows["start_ns"]) / 1e9, state=state)
    usual = rows.groupby(["attempt", "state"])["dur_s"].transform("median")
    late = rows.groupby("attempt").cumcount() >= first_step_count
    return rows.assign(is_kept=late & (rows["dur_s"] <= longest_step_ratio * usual))


def ordered_steps(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Check both tables and give the steps in order of time; steps of two jobs are refused."""
    CAPPING_EVENTS.check(events, "events")
    LOGGED_STEPS.check(steps, "steps")
    rows = steps.sort_values(["start_ns", "end_ns"], ignore_index=True, kind="stable")
    # Stamps are rounded and late; only steps that run beside each other are of two jobs.
    shared = rows["end_ns"].shift() - rows["start_ns"]
    early = shared > (rows["end_ns"] - rows["start_ns"]) / 2
    if early.any():
        at = int(early.to_numpy().argmax())
        first, second = rows.iloc[at - 1], rows.iloc[at]
        msg = (
            f"step {second['step']} ({second['source']}, line {second['line']}) runs beside step "
            f"{first['step']} (line {first['line']}); pass the steps of one job on one clock"
        )
        raise WorkbenchError(msg)
    return rows[["attempt", "step", "start_ns", "end_ns"]]


def overlapped(rows: pd.DataFrame, start_ns: int, end_ns: int) -> slice:
    """Give the places of the steps that share time with an interval."""
    first = int(np.searchsorted(rows["end_ns"].to_numpy(), start_ns, side="right"))
    last = int(np.searchsorted(rows["start_ns"].to_numpy(), end_ns, side="left"))
    return slice(first, max(first, last))


def _touched(rows: pd.DataFrame, starts: pd.Series, ends: pd.Series) -> np.ndarray:
    """Say of each step whether it shares time with any of the intervals."""
    first = np.searchsorted(rows["end_ns"].to_numpy(), starts.to_numpy(), side="right")
    last = np.searchsorted(rows["start_ns"].to_numpy(), ends.to_numpy(), side="left")
    last = np.maximum(first, last)
    change = np.zeros(len(rows) + 1, dtype=np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, last, -1)
    touched: np.ndarray = np.cumsum(change)[:-1] > 0
    return touched
