"""Power, energy and time as figures of power print them."""

from __future__ import annotations

import pandas as pd

from workbench.plot._text import digits

_WATTS = ((1, "W"), (1e3, "kW"), (1e6, "MW"), (1e9, "GW"))
_JOULES = ((1, "J"), (3.6e3, "Wh"), (3.6e6, "kWh"), (3.6e9, "MWh"), (3.6e12, "GWh"))
_TIMES = ((1, "s"), (60, "min"), (3_600, "h"), (86_400, "days"))
# A figure of more than this many units of time takes the next larger one.
_LONG = 300
# Stamps before it count from a zero of their own.
_EPOCH_NS = 10**9 * 86_400 * 365 * 20


def power_unit(largest_w: float) -> tuple[float, str]:
    """Choose the unit in which the largest of some powers reads best."""
    return _fitting(_WATTS, largest_w)


def energy_unit(largest_j: float) -> tuple[float, str]:
    """Choose the unit in which the largest of some energies reads best."""
    return _fitting(_JOULES, largest_j)


def _fitting(ladder: tuple[tuple[float, str], ...], largest: float) -> tuple[float, str]:
    fitting = [step for step in ladder if abs(largest) >= step[0]]
    return fitting[-1] if fitting else ladder[0]


def watts(power_w: float) -> str:
    """Write a power with three significant digits and a fitting unit."""
    scale, unit = power_unit(power_w)
    return f"{digits(power_w / scale)} {unit}"


def joules(energy_j: float) -> str:
    """Write an energy with three significant digits and a fitting unit."""
    scale, unit = energy_unit(energy_j)
    return f"{digits(energy_j / scale)} {unit}"


def stretch(time_ns: float) -> str:
    """Write a stretch of time with three significant digits, in s, min, h or days."""
    seconds, unit = _time_unit(time_ns / 1e9)
    return f"{digits(time_ns / 1e9 / seconds)} {unit}"


def _time_unit(span_s: float) -> tuple[float, str]:
    return next((step for step in _TIMES if span_s <= _LONG * step[0]), _TIMES[-1])


def time_axis(first_ns: int, last_ns: int) -> tuple[float, str]:
    """Choose how times since the first are drawn.

    Returns
    -------
    tuple of float and str
        Nanoseconds in one unit, and the title of the axis, which tells the zero.
    """
    seconds, unit = _time_unit((last_ns - first_ns) / 1e9)
    if first_ns < _EPOCH_NS:
        return seconds * 1e9, f"time since the first cell [{unit}]"
    stamp = pd.Timestamp(first_ns, unit="ns").strftime("%Y-%m-%d %H:%M:%S")
    return seconds * 1e9, f"time since {stamp} UTC [{unit}]"
