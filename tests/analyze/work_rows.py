"""Power, steps and spans by hand, and those of a real run read from its MLLOG lines."""

import json
from pathlib import Path

import pandas as pd

from workbench.tables import LOGGED_SPANS, LOGGED_STEPS, POWER

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
    made = [
        {
            "step": row[0], "start_ns": round(row[1] * SECOND), "end_ns": round(row[2] * SECOND),
            "attempt": row[3] if len(row) > 3 else 1, "token_count": 100, "sample_count": 4,
            "source": "steps", "line": n + 1,
        }
        for n, row in enumerate(rows)
    ]  # fmt: skip
    return table_of(LOGGED_STEPS, made)


def make_spans(*rows):
    """Make a table from ``(kind, start_s, end_s)`` or ``(kind, start_s, end_s, attempt)``."""
    made = [
        {
            "kind": row[0], "start_ns": round(row[1] * SECOND),
            "end_ns": None if row[2] is None else round(row[2] * SECOND),
            "attempt": row[3] if len(row) > 3 else 1, "source": "steps", "line": n + 1,
        }
        for n, row in enumerate(rows)
    ]  # fmt: skip
    return table_of(LOGGED_SPANS, made)


def _lines(path):
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        _, mark, rest = text.partition(":::MLLOG ")
        if mark:
            yield number, json.loads(rest)


def mlperf_power(folder):
    """Read the meters of the nodes of a run."""
    rows = []
    for path in sorted(Path(folder).glob("node_*.txt")):
        rows += [
            (entry["time_ms"] * 1_000_000, path.stem, float(entry["value"]))
            for _, entry in _lines(path)
            if entry["key"] == "power_reading"
        ]
    frame = pd.DataFrame(rows, columns=["time_ns", "entity", "power_w"])
    frame["entity"] = frame["entity"].astype("category")
    return POWER.check(frame.sort_values(["entity", "time_ns"], ignore_index=True))


def mlperf_job(path):
    """Read steps and spans of a result file."""
    steps, spans, begun = [], [], {}
    for number, entry in _lines(Path(path)):
        at, key = entry["time_ms"] * 1_000_000, entry["key"]
        took = entry["value"].get("train_step_timing in s") if key == "tracked_stats" else None
        where = {"attempt": 1, "source": Path(path).name, "line": number}
        if took:
            steps.append(
                where | {
                    "step": len(steps), "start_ns": at - round(took * SECOND), "end_ns": at,
                    "token_count": 4_194_304, "sample_count": 2_048,
                }
            )  # fmt: skip
        kind = {"eval": "evaluation", "run": "run"}.get(key.partition("_")[0])
        if kind and entry["event_type"] == "INTERVAL_START":
            begun[kind] = at
        elif kind and entry["event_type"] == "INTERVAL_END":
            spans.append(where | {"kind": kind, "start_ns": begun[kind], "end_ns": at})
    spans.sort(key=lambda span: span["start_ns"])
    return table_of(LOGGED_STEPS, steps), table_of(LOGGED_SPANS, spans)
