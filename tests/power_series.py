"""Uniform series of power: by hand, and the sum of 64 real meters at whole instants."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.tables import POWER_TOTALS

MARK = ":::MLLOG "
RESULT = "result_5848-240517221859825376616_2"


def cells(power_w, *, period_s=1.0, start_ns=0):
    """Make totals of one meter; None is missing."""
    power = pd.Series(power_w, dtype="float64")
    time = start_ns + np.arange(len(power)) * round(period_s * 1e9)
    known = power.notna().astype("int64")
    frame = pd.DataFrame(
        {
            "time_ns": time.astype("int64"), "power_w": power, "entity_count": known,
            "expected_count": 1, "covered_share": known.astype("float64"),
        }
    )  # fmt: skip
    return POWER_TOTALS.check(POWER_TOTALS.cast(frame))


def _events(path: Path, *keys: str) -> list[tuple[str, int, float]]:
    lines = (line.partition(MARK)[2] for line in path.read_text().splitlines() if MARK in line)
    records = (json.loads(line) for line in lines)
    return [(r["key"], r["time_ms"], r["value"]) for r in records if r["key"] in keys]


@cache
def mlperf_totals(folder: Path) -> pd.DataFrame:
    """Sum 64 nodes at instants 2 s apart, from 2 s after the start of the run to 2 s before its end.

    Each meter is read by linear interpolation at the instant, as the published numbers were.
    """
    run = {key: time for key, time, _ in _events(folder / f"{RESULT}.txt", "run_start", "run_stop")}
    at_ms = np.arange(run["run_start"] + 2_000, run["run_stop"] - 2_000 + 1, 2_000)
    total = np.zeros(len(at_ms))
    meters = sorted((folder / "power" / RESULT).glob("node_*.txt"))
    for path in meters:
        readings = _events(path, "power_reading")
        total += np.interp(at_ms, [ms for _, ms, _ in readings], [w for _, _, w in readings])
    return cells(total, period_s=2, start_ns=int(at_ms[0]) * 1_000_000)
