"""What a table of power holds beside power: limit, clock, utilisation, temperature."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.load._files.findings import Findings
from workbench.load._power.formats.table.columns import numbers, plain

# Names in lower case: column of table POWER_STATES, and what one of it is.
STATE_COLUMNS = {
    "power_limit_w": ("limit_w", 1.0),
    "limit_w": ("limit_w", 1.0),
    "enforced_limit_w": ("limit_w", 1.0),
    "enforced_limit_milli_watts": ("limit_w", 1e-3),
    "clock_mhz": ("clock_mhz", 1.0),
    "clock_sm_mhz": ("clock_mhz", 1.0),
    "sm_mhz": ("clock_mhz", 1.0),
    "busy_share": ("busy_share", 1.0),
    "utilization_gpu_pct": ("busy_share", 0.01),
    "util_sm_pct": ("busy_share", 0.01),
    "gpu_util": ("busy_share", 0.01),
    "sm_util": ("busy_share", 0.01),
    "temperature_c": ("temperature_c", 1.0),
    "temperature_gpu": ("temperature_c", 1.0),
    "temp_gpu_c": ("temperature_c", 1.0),
    "temp_c": ("temperature_c", 1.0),
    "throttle_mask": ("reasons", 1.0),
    "throttle_reasons": ("reasons", 1.0),
}


def states_of(
    columns: dict[str, pa.Array], lines: np.ndarray, findings: Findings
) -> pd.DataFrame | None:
    """Return the states of some rows; None if the table has none.

    A share outside 0 to 1, a negative limit or clock is missing.
    """
    found: dict[str, pd.Series] = {}
    for name, cells in columns.items():
        known = STATE_COLUMNS.get(name.strip().lower())
        if known is None or known[0] in found:
            continue
        values = numbers(plain(cells), name, lines, findings)[0] * known[1]
        found[known[0]] = pd.Series(_possible(known[0], values))
    return pd.DataFrame(found) if found else None


def _possible(name: str, values: np.ndarray) -> pd.Series:
    with np.errstate(invalid="ignore"):
        good = np.isfinite(values)
        if name != "temperature_c":
            good &= values >= 0
        if name == "busy_share":
            good &= values <= 1
    kept = pd.Series(np.where(good, values, np.nan))
    if name == "reasons":
        return kept.where(kept < 2**53).round().astype("Int64")
    return kept
