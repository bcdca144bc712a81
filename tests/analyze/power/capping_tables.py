"""Small tables of readings and steps; rows state only what matters."""

import pandas as pd

from workbench.tables import LOGGED_STEPS, POWER, POWER_STATES

SECOND = 1_000_000_000
START = 1_768_204_800 * SECOND


def table_of(rows, table):
    """Make a table from rows, one per entity and second; what they leave out is missing."""
    usual = dict.fromkeys(table.columns)
    made = [
        usual | {"entity": "a"} | row | {"time_ns": START + round(row["at"] * SECOND)}
        for row in rows
    ]
    frame = pd.DataFrame(made, columns=list(table.columns)) if made else table.empty()
    for name, column in table.columns.items():
        frame[name] = frame[name].astype(column.dtype)
    return table.check(frame.sort_values(["entity", "time_ns"], ignore_index=True))


def telemetry(*rows):
    """Give power and states of rows with ``at`` [s], ``power_w`` and whatever explains it."""
    power = table_of([row for row in rows if "power_w" in row], POWER)
    return power, table_of(list(rows), POWER_STATES)


def run(seconds, **same):
    """Give one reading per second."""
    return [{"at": at, **same} for at in seconds]


def made_steps(durations, *, attempt=1, start_s=0.0):
    """Make steps that follow each other without a pause."""
    rows, now = [], START + round(start_s * SECOND)
    for number, seconds in enumerate(durations):
        end = now + round(seconds * SECOND)
        rows.append(
            {"step": number, "attempt": attempt, "start_ns": now, "end_ns": end,
             "token_count": None, "sample_count": None, "source": "job.log", "line": number + 1}
        )  # fmt: skip
        now = end
    return LOGGED_STEPS.check(LOGGED_STEPS.cast(pd.DataFrame(rows)))
