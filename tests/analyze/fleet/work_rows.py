"""Power, steps and spans by hand: only what a test is about is spelled out."""

import pandas as pd

from workbench.tables import LOGGED_SPANS, LOGGED_STEPS, POWER, POWER_TOTALS

SECOND = 1_000_000_000


def table_of(table, rows):
    """Make a table from dictionaries; what they leave out is missing."""
    if not rows:
        return table.empty()
    frame = pd.DataFrame(rows, columns=list(table.columns))
    for name, column in table.columns.items():
        if column.dtype == "str":
            frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
            if not column.nullable:
                frame[name] = frame[name].fillna("")
    return table.check(table.cast(frame))


def make_power(**readings):
    """Make a table from ``node1=[(seconds, watts), ...]``; None is a reading without power."""
    rows = [
        (round(at * SECOND), name.replace("__", "/"), watts)
        for name, pairs in readings.items()
        for at, watts in pairs
    ]
    frame = pd.DataFrame(rows, columns=["time_ns", "entity", "power_w"])
    frame = frame.astype({"time_ns": "int64", "power_w": "float64"})
    frame["entity"] = frame["entity"].astype("category")
    return POWER.check(frame)


def make_steps(*rows):
    """Make a table from ``(step, start_s, end_s)`` or ``(step, start_s, end_s, attempt)``."""
    rows_ = [
        {
            "step": row[0], "start_ns": round(row[1] * SECOND), "end_ns": round(row[2] * SECOND),
            "attempt": row[3] if len(row) > 3 else 1, "token_count": 100, "sample_count": 4,
            "source": "steps", "line": n + 1,
        }
        for n, row in enumerate(rows)
    ]  # fmt: skip
    return table_of(LOGGED_STEPS, rows_)


def make_spans(*rows):
    """Make a table from ``(kind, start_s, end_s)`` or ``(kind, start_s, end_s, attempt)``."""
    rows_ = [
        {
            "kind": row[0], "start_ns": round(row[1] * SECOND),
            "end_ns": None if row[2] is None else round(row[2] * SECOND),
            "attempt": row[3] if len(row) > 3 else 1, "source": "steps", "line": n + 1,
        }
        for n, row in enumerate(rows)
    ]  # fmt: skip
    return table_of(LOGGED_SPANS, rows_)


def make_totals(watts, *, period_s=1.0, start_s=0.0):
    """Make a uniform series from its cells; None is a cell without power."""
    start = round(start_s * SECOND)
    frame = pd.DataFrame(
        {
            "time_ns": [start + round(at * period_s * SECOND) for at in range(len(watts))],
            "power_w": pd.Series(watts, dtype="float64"),
        }
    )
    frame = frame.assign(entity_count=1, expected_count=1, covered_share=1.0)
    return POWER_TOTALS.check(frame.astype({"time_ns": "int64"}))


def constant(watts, *, until_s, every_s=1.0):
    """Give readings of one power from 0 to a time."""
    return [(at * every_s, watts) for at in range(round(until_s / every_s) + 1)]
