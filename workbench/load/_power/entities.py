"""The table of what is metered: what the formats know, and what the readings tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.load._power.part import PowerPart
from workbench.load._power.rows import SECOND, Rows, natural
from workbench.tables import POWER_ENTITIES

_USUAL = {"clock": "epoch", "assumed": "", "scope": "unknown", "method": "unknown"}
_KNOWN = ("scope", "method", "node", "device", "model", "clock", "assumed", "limit_w")


def entity_table(
    parts: Sequence[PowerPart],
    names: Sequence[Mapping[str, str]],
    readings: Rows,
    methods: Mapping[str, str],
) -> pd.DataFrame:
    """Make table POWER_ENTITIES.

    Parameters
    ----------
    parts
        The files.
    names
        Per file the name in the load of each entity.
    readings
        All readings, in order of entity and time.
    methods
        Method of entities whose power was not read but worked out.
    """
    known: dict[str, dict[str, Any]] = {}
    for part, renamed in zip(parts, names, strict=True):
        for name, facts in part.entities.items():
            row = known.setdefault(renamed[name], {"source": part.findings.source})
            row.update({key: facts[key] for key in _KNOWN if row.get(key) is None and key in facts})
    for name, method in methods.items():
        known[name]["method"] = method
    told = {name: _told(readings, some) for name, some in readings.slices()}
    empty = {"reading_count": 0, "missing_count": 0}
    rows = [
        {"entity": name} | _USUAL | {k: v for k, v in known[name].items() if v is not None}
        | told.get(name, empty)
        for name in sorted(known, key=natural)
    ]  # fmt: skip
    columns = {name: [row.get(name) for row in rows] for name in POWER_ENTITIES.columns}
    frame = POWER_ENTITIES.cast(pd.DataFrame(columns, dtype=object))
    return POWER_ENTITIES.check(frame)


def _told(readings: Rows, some: slice) -> dict[str, Any]:
    times = readings.time_ns[some]
    missing = int(np.isnan(readings.numbers[some]).sum())
    period = float(np.median(np.diff(times))) / SECOND if len(times) > 1 else None
    return {
        "period_s": period,
        "reading_count": len(times) - missing,
        "missing_count": missing,
        "first_ns": int(times[0]),
        "last_ns": int(times[-1]),
    }
