"""Small event tables made by hand, and real ones."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

from workbench import load
from workbench.tables import (
    CAMPAIGN,
    EVENTS,
    EXHAUSTIVE,
    FAILURES,
    FAULTS,
    NODE_SPANS,
    OUTCOMES,
    PARAMETERS,
    QUALITY,
    TRIALS,
    ExhaustiveInjections,
    Injections,
)

# A slow or busy machine is not a failure.
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
        usual = {
            "category": "gpu",
            "severity": "fatal",
            "line": 1,
            "line_count": 1,
            "devices": "",
            "ranks": "",
            "rank_count": 0,
        }
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


CAMPAIGN_ROW = {
    "campaign_id": "c", "tool": "workbench", "model_name": "m", "dataset": "d", "input_count": 100,
    "is_synthetic": True, "dtype": "fp32", "criterion": "argmax", "nan_policy": "apart",
    "fault_model": "sbf", "flip_count": 1, "design": "uniform",
}  # fmt: skip
OUTCOME_ROW = {"sdc_count": 0, "due_count": 0}


def fitting(rows: list[dict], table) -> pd.DataFrame:
    """Make a table from rows that state only what matters."""
    columns = {}
    for name, column in table.columns.items():
        values = pd.Series([row.get(name) for row in rows], dtype=object)
        text = column.dtype == "str"
        columns[name] = values.astype(pd.Series([""]).dtype if text else column.dtype)
    more = {name: None for row in rows for name in row if name.startswith("detected_")}
    for name in more:
        columns[name] = pd.array([row.get(name) for row in rows], dtype="Int64")
    return table.check(pd.DataFrame(columns))


def injected(*rows: dict, parameters=(), trials=(), **campaign) -> Injections:
    """Make a campaign from experiments; ``flips`` lists the places of one with several."""
    head = CAMPAIGN_ROW | campaign
    name = head["campaign_id"]
    faults, outcomes = [], []
    for number, row in enumerate(rows):
        exp = {"campaign_id": name, "exp_id": row.get("exp_id", number)}
        places = row.get("flips", [row])
        faults += [{"flip": flip} | row | place | exp for flip, place in enumerate(places)]
        outcomes.append({"input_count": head["input_count"]} | OUTCOME_ROW | row | exp)
    return Injections(
        fitting([head], CAMPAIGN),
        fitting(faults, FAULTS),
        fitting(outcomes, OUTCOMES),
        fitting([{"campaign_id": name} | dict(row) for row in trials], TRIALS),
        fitting(
            [{"campaign_id": name, "kind": "weight"} | dict(row) for row in parameters], PARAMETERS
        ),
        QUALITY.empty(),
    )


@pytest.fixture(scope="session")
def make_injections() -> Callable[..., Injections]:
    return injected


def parameter_row(component: str, param: str, element_count: int, dtype: str = "fp32") -> dict:
    width = {"fp32": 32, "bf16": 16, "int8": 8}[dtype]
    return {
        "campaign_id": "t", "component": component, "layer": param.rsplit(".", 1)[0],
        "param": param, "kind": "weight", "dtype": dtype, "element_count": element_count,
        "bit_count": element_count * width,
    }  # fmt: skip


def skewed_truth(seed: int = 0, input_count: int = 1000) -> ExhaustiveInjections:
    """Make a truth like that of a DLRM: most faults do nothing, bit 30 ruins nearly all."""
    rng = np.random.default_rng(seed)
    parameters = [
        parameter_row("embeddings", "emb.0.weight", 8000),
        parameter_row("bottom", "bot.0.weight", 900),
        parameter_row("bottom", "bot.0.bias", 60),
        parameter_row("top", "top.0.weight", 2000),
        parameter_row("top", "top.2.weight", 500),
    ]
    chance = {"embeddings": (0.02, 0.002), "bottom": (0.9, 0.18), "top": (0.6, 0.24)}
    parts = []
    for row in parameters:
        size = row["element_count"]
        share, mean = chance[row["component"]]
        elem, bit = np.repeat(np.arange(size), 32), np.tile(np.arange(32), size)
        worth = np.zeros(len(bit))
        for place, part in ((30, 1.0), (25, 0.1), (29, 0.04)):
            here = np.flatnonzero((bit == place) & (rng.random(len(bit)) < share))
            centre = mean / share
            worth[here] = part * rng.beta(2 * centre, 2 * (1 - centre), len(here))
        count = np.round(worth * input_count).astype("int16")
        due = np.where((bit == 30) & (rng.random(len(bit)) < 0.1), count // 2, 0).astype("int16")
        parts.append(
            pd.DataFrame(
                {"param": row["param"], "elem": elem.astype("int32"), "bit": bit.astype("int8"),
                 "sdc_count": count - due, "due_count": due}
            )
        )  # fmt: skip
    sites = pd.concat(parts, ignore_index=True)
    sites["param"] = sites["param"].astype("category")
    head = CAMPAIGN_ROW | {"campaign_id": "t", "design": "exhaustive", "input_count": input_count}
    return ExhaustiveInjections(
        fitting([head], CAMPAIGN), fitting(parameters, PARAMETERS), EXHAUSTIVE.check(sites)
    )


@pytest.fixture(scope="session")
def truth() -> ExhaustiveInjections:
    return skewed_truth()
