"""The smallest power telemetry, made by hand."""

import numpy as np
import pandas as pd

from workbench import load
from workbench.load._files.findings import Findings
from workbench.load._power.assembly import assembled
from workbench.load._power.part import PowerPart
from workbench.tables import HARMLESS

SECOND = 1_000_000_000
START_S = 1_700_000_000
HEADER = "timestamp, index, power.draw [W]"


def stamp(seconds, *, day="2025/01/31", hour=8):
    """Write a stamp of nvidia-smi, seconds after the full hour."""
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    return f"{day} {hour + minutes // 60:02}:{minutes % 60:02}:{rest / 1000:06.3f}"


def query_rows(powers, *, gpus=1, period_s=1.0, start_s=0.0):
    """Write rows of ``timestamp, index, power.draw``, one GPU after the other in each poll."""
    return [
        f"{stamp(start_s + n // gpus * period_s + n % gpus * 0.003)}, {n % gpus}, {power:.2f} W"
        for n, power in enumerate(powers)
    ]


def loaded(path, **given):
    """Load without a bar, in UTC."""
    return load.power(path, **{"tz": "UTC", "progress": False} | given)


def part(source="a.csv", *, times=(0, 1, 2), powers=(100, 110, 120), lines=None, **facts):
    """Make the part of one file with one entity; times in s after ``START_S``."""
    start_s = facts.pop("start_s", START_S)
    name = facts.pop("entity", "gpu0")
    readings = pd.DataFrame(
        {
            "time_ns": (np.array(times, dtype=float) * SECOND).astype("int64") + start_s * SECOND,
            "entity": pd.Series([name] * len(times), dtype="category"),
            "power_w": np.array(powers, dtype=float),
            "line": np.arange(len(times)) + 2 if lines is None else np.array(lines),
        }
    )
    known = {"scope": "gpu", "method": "unknown", "unit": "W"} | facts
    return PowerPart(readings, {name: known}, Findings(source), format_name="test")


def counter_part(energies, times=None, **facts):
    """Make a part with a counter and no power; times in s."""
    made = part(times=range(len(energies)) if times is None else times, powers=energies, **facts)
    made.counters = made.readings.rename(columns={"power_w": "energy_j"})
    made.readings = made.readings.iloc[:0]
    return made


def together(*parts):
    """Put parts together as the entry point does."""
    return assembled(parts)


def flagged(log):
    """Give the findings that need a look, as text."""
    rows = log.quality[~log.quality["finding"].isin(HARMLESS)]
    return [f"{row.finding}: {row.what}" for row in rows.itertuples()]


def found(log, words):
    """Give the one finding whose text holds these words."""
    rows = log.quality[log.quality["what"].str.contains(words, regex=False)]
    assert len(rows) == 1, log.quality.to_string()
    return rows.iloc[0]
