"""Power, energy and time as figures of power print them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.plot._style.text import digits, percent, safe

_Ladder = tuple[tuple[float, str], ...]
_SIGNS: _Ladder = ((1e-3, "m"), (1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"))
_JOULES: _Ladder = ((1, "J"), (3.6e3, "Wh"), (3.6e6, "kWh"), (3.6e9, "MWh"), (3.6e12, "GWh"))
_TIMES: _Ladder = ((1, "s"), (60, "min"), (3_600, "h"), (86_400, "days"))
# A text takes the next larger unit of time from so many on, an axis beyond so many.
_LONG_TEXT, _LONG_AXIS = 3, 300
# Stamps before it count from a zero of their own.
_EPOCH_NS = 10**9 * 86_400 * 365 * 20


def power_unit(largest: float, unit: str = "W") -> tuple[float, str]:
    """Choose the unit in which the largest of some powers reads best; of energies with ``J``."""
    scale, sign = _fitting(_SIGNS, largest)
    return scale, f"{sign}{unit}"


def energy_unit(largest_j: float) -> tuple[float, str]:
    """Choose the unit, from J to GWh, in which the largest of some energies reads best."""
    return _fitting(_JOULES, largest_j)


def _fitting(ladder: _Ladder, largest: float) -> tuple[float, str]:
    fitting = [step for step in ladder if np.isfinite(largest) and abs(largest) >= step[0]]
    return fitting[-1] if fitting else next(step for step in ladder if step[0] == 1)


def amount(value: float, unit: str = "W") -> str:
    """Write a power, or an energy of work, with three significant digits: ``4.70 MJ``."""
    scale, name = power_unit(value, unit)
    return f"{digits(value / scale)} {name}"


def joules(energy_j: float) -> str:
    """Write an energy as bills count it, with three significant digits: ``415 kWh``."""
    scale, unit = energy_unit(energy_j)
    return f"{digits(energy_j / scale)} {unit}"


def share_text(share: float) -> str:
    """Write a share as per cent, as texts of figures need it: ``< 0.1 %`` holds a sign of HTML."""
    return safe(percent(share))


def seconds(value: float) -> str:
    """Write a time given in seconds: ``57.0 s``, ``12.5 min``, ``3.20 h``."""
    scale, unit = next((step for step in _TIMES[:0:-1] if value >= _LONG_TEXT * step[0]), _TIMES[0])
    return f"{digits(value / scale)} {unit}"


def utc(time_ns: Any) -> NDArray[Any]:
    """Give times as a date axis has them, rounded to the microsecond that it shows."""
    whole = np.asarray(time_ns, dtype=np.int64) // 1_000
    dates: NDArray[Any] = pd.to_datetime(whole, unit="us").to_numpy()
    return dates


def clock_time(time_ns: int) -> str:
    """Write the time of day in UTC to the second."""
    return pd.Timestamp(int(time_ns), unit="ns").strftime("%H:%M:%S")


def time_axis(first_ns: int, last_ns: int) -> tuple[float, str]:
    """Choose how times since the first are drawn.

    Returns
    -------
    tuple of float and str
        Nanoseconds in one unit, and the title of the axis, which tells the zero.
    """
    span_s = (last_ns - first_ns) / 1e9
    scale, unit = next((step for step in _TIMES if span_s <= _LONG_AXIS * step[0]), _TIMES[-1])
    if first_ns < _EPOCH_NS:
        return scale * 1e9, f"time since the first cell [{unit}]"
    stamp = pd.Timestamp(first_ns, unit="ns").strftime("%Y-%m-%d %H:%M:%S")
    return scale * 1e9, f"time since {stamp} UTC [{unit}]"
