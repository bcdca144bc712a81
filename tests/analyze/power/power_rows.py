"""The smallest tables of power telemetry, made by hand, and the readings of a real job."""

from functools import cache

import numpy as np
import pandas as pd

from workbench import load

SECOND = 10**9


def readings(value="power_w", **series):
    """Give readings from ``entity=[(time in s, value), ...]``, in order of entity and time."""
    rows = [
        (round(time_s * SECOND), entity, reading)
        for entity, pairs in series.items()
        for time_s, reading in pairs
    ]
    table = pd.DataFrame(rows, columns=["time_ns", "entity", value])
    return table.astype({"time_ns": "int64", "entity": "category", value: "float64"})


def every_s(values, start_s=0.0, step_s=1.0):
    """Give pairs of time and value at equal steps."""
    return [(start_s + at * step_s, value) for at, value in enumerate(values)]


def grid(**series):
    """Give a grid of cells of 1 s from ``entity=[power, ...]``; NaN is missing."""
    count = len(next(iter(series.values())))
    power = np.array(list(series.values()), dtype=float).ravel()
    return pd.DataFrame(
        {
            "time_ns": np.tile(np.arange(count, dtype=np.int64) * SECOND, len(series)),
            "entity": pd.Categorical.from_codes(
                np.repeat(np.arange(len(series)), count), categories=list(series)
            ),
            "power_w": power,
            "covered_share": (~np.isnan(power)).astype(float),
        }
    )


def entities(**scopes):
    """Give a table of entities from ``entity=scope``."""
    table = pd.DataFrame({"entity": list(scopes), "scope": list(scopes.values())})
    texts = {"method": "instant", "clock": "epoch", "assumed": "", "source": "a file"}
    missing = dict.fromkeys(("node", "device", "model"))
    table = table.assign(**texts, **missing, period_s=1.0, limit_w=float("nan"))
    table = table.assign(reading_count=1, missing_count=0, first_ns=0, last_ns=0)
    return table.astype({"first_ns": "Int64", "last_ns": "Int64"})


def topology(*rows):
    """Give a delivery tree from ``(entity, parent, level, nameplate_w, limit_w)``."""
    columns = ["entity", "parent", "level", "nameplate_w", "limit_w"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"nameplate_w": "float64", "limit_w": "float64"})


@cache
def mlperf_job(folder):
    """Give the power of the nodes of a real job, and the start and the end of its run in ns."""
    log = load.power(folder / "power", scope="node_ac", progress=False)
    nodes = log.entities.loc[log.entities["scope"] == "node_ac", "entity"]
    power = log.power[log.power["entity"].isin(nodes)]
    (result,) = folder.glob("result_*.txt")
    spans = load.job_log(result).spans.set_index("kind")
    return power, int(spans.loc["run", "start_ns"]), int(spans.loc["run", "end_ns"])
