"""Small event tables made by hand, and real ones."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import settings

from workbench import load
from workbench.tables import EVENTS, FAILURES, NODE_SPANS

# A slow or busy machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

DEFAULTS = {"rank": 0, "dur_ns": 0, "name": "row", "process": "1", "thread": "1"}
MEMORY = {"gpu_memcpy", "gpu_memset"}


def build(*rows: dict) -> pd.DataFrame:
    """Make an events table from rows that state only what matters.

    ``end_ns`` may stand for ``dur_ns``. A row with ``kind`` is a kernel unless it says
    otherwise. ``launch`` names the ``id`` of another row.
    """
    full = sorted(
        (_completed(row) for row in rows),
        key=lambda row: (row["rank"], row["start_ns"], -row["dur_ns"]),
    )
    label = {row["id"]: number for number, row in enumerate(full) if "id" in row}
    for row in full:
        row["launch"] = label.get(row.get("launch"))
    columns = {
        name: pd.Series([row.get(name) for row in full], dtype=_dtype(column.dtype))
        for name, column in EVENTS.columns.items()
    }
    for name, column in EVENTS.columns.items():
        if column.dtype == "category":
            columns[name] = columns[name].astype("category")
    return EVENTS.check(pd.DataFrame(columns))


def _completed(row: dict) -> dict:
    row = DEFAULTS | row
    if "end_ns" in row:
        row["dur_ns"] = row["end_ns"] - row["start_ns"]
    row.setdefault("category", "kernel" if "kind" in row else "cpu_op")
    if row["category"] in MEMORY:
        row.setdefault("kind", "memory")
    return {"device": 0, "stream": 7} | row if "kind" in row else row


def _dtype(dtype: str) -> str:
    return "object" if dtype == "category" else dtype


@pytest.fixture(scope="session")
def make_events() -> Callable[..., pd.DataFrame]:
    return build


@pytest.fixture(scope="session")
def real_events(real_data: Callable[[str], Path]) -> Callable[..., pd.DataFrame]:
    """Load the events of one file of a public data set."""

    @cache
    def events(dataset: str, file: str) -> pd.DataFrame:
        return load.traces(real_data(dataset) / file, progress=False).events

    return events


@pytest.fixture(scope="session")
def published() -> Callable[[str], pd.DataFrame]:
    """Read a table of numbers that were printed elsewhere."""
    folder = Path(__file__).resolve().parents[2] / "data" / "published"

    def table(name: str) -> pd.DataFrame:
        return pd.read_csv(folder / f"{name}.csv", dtype={"rank": "Int64"})

    return table


DAY_NS = 86_400_000_000_000


@pytest.fixture(scope="session")
def make_failures() -> Callable[..., pd.DataFrame]:
    """Make a table of failures from rows that state only what matters; ``day`` is its time."""

    def make(*rows: dict) -> pd.DataFrame:
        usual = {"category": "gpu", "severity": "fatal", "line": 1, "line_count": 1}
        usual |= dict.fromkeys(("kind", "cause", "other_codes", "text", "source", "assumed"), "")
        full = []
        for row in rows:
            time = {"clock": "none"}
            if row.get("day") is not None:
                time = {"clock": "epoch", "start_ns": round(row["day"] * DAY_NS)}
            full.append(usual | time | row)
        frame = pd.DataFrame(full, columns=list(FAILURES.columns))
        return FAILURES.check(FAILURES.cast(frame)) if full else FAILURES.empty()

    return make


@pytest.fixture(scope="session")
def make_spans() -> Callable[..., pd.DataFrame]:
    """Make a table of nodes watched from day 0, or from one day to another."""

    def make(**days: float | tuple[float, float]) -> pd.DataFrame:
        rows = []
        for name, each in days.items():
            first, last = each if isinstance(each, tuple) else (0, each)
            rows.append({"node": name, "first_ns": first * DAY_NS, "last_ns": last * DAY_NS})
        frame = pd.DataFrame(rows, columns=list(NODE_SPANS.columns))
        frame = frame.assign(clock="epoch", failure_count=0)
        frame[["first_ns", "last_ns"]] = frame[["first_ns", "last_ns"]].astype("float64").round()
        return NODE_SPANS.check(NODE_SPANS.cast(frame))

    return make
