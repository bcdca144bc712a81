"""Power and energy as figures print them: one unit that fits, and time in UTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.plot._text import digits, percent, safe

_LADDER = ((1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"))
_SPANS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def power_unit(most: float, unit: str = "W") -> tuple[float, str]:
    """Choose the unit in which the largest of some powers, or energies, reads best."""
    size = abs(most) if np.isfinite(most) else 0.0
    fitting = [(factor, f"{sign}{unit}") for factor, sign in _LADDER if size >= factor]
    return fitting[-1] if fitting else (1.0, unit)


def amount(value: float, unit: str = "W") -> str:
    """Write a power or an energy with three digits and a fitting unit."""
    factor, sign = power_unit(value, unit)
    return f"{digits(value / factor)} {sign}"


def share_text(share: float) -> str:
    """Write a share as per cent, as texts of figures need it: ``< 0.1 %`` holds a sign of HTML."""
    return safe(percent(share))


def seconds(value: float) -> str:
    """Write a time given in seconds: ``57.0 s``, ``12.5 min``, ``3.2 h``."""
    for factor, sign in _SPANS:
        if value >= 3 * factor:
            return f"{digits(value / factor)} {sign}"
    return f"{digits(value)} s"


def utc(time_ns: Any) -> NDArray[Any]:
    """Give times as a date axis has them, rounded to the microsecond that it shows."""
    whole = np.asarray(time_ns, dtype=np.int64) // 1_000
    dates: NDArray[Any] = pd.to_datetime(whole, unit="us").to_numpy()
    return dates


def clock_time(time_ns: int) -> str:
    """Write the time of day in UTC to the second."""
    return pd.Timestamp(int(time_ns), unit="ns").strftime("%H:%M:%S")
