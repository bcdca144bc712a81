"""Numbers that callers give, checked in one place, and numbers as sentences hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from workbench.errors import WorkbenchError


def is_finite(value: object) -> bool:
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]


def in_range(
    name: str, value: Any, *, least: float, most: float = math.inf, strictly: bool = False
) -> float:
    """Return an argument as a float, or say between which ends it must be."""
    inside = is_finite(value) and least <= value <= most
    if not inside or (strictly and value == least):
        words = f"above {least:g}" if strictly else f"{least:g} or more"
        words += f" and at most {most:g}" if math.isfinite(most) else " and finite"
        msg = f"{name} must be {words}, not {value!r}"
        raise WorkbenchError(msg)
    return float(value)


def positive(name: str, value: Any) -> float:
    return in_range(name, value, least=0, strictly=True)


def not_negative(name: str, value: Any) -> float:
    return in_range(name, value, least=0)


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Return an argument as an int, or say that it is not a whole number from ``least``."""
    if not is_finite(value) or value % 1 != 0:
        msg = f"{name} must be a whole number from {least}, not {value!r}"
        raise WorkbenchError(msg)
    if value < least:
        msg = f"{name} must be {least} or more, not {value}"
        raise WorkbenchError(msg)
    return int(value)


def share_between(name: str, value: Any) -> float:
    """Return an argument that is a share strictly between 0 and 1, or say that it is none."""
    if not is_finite(value) or not 0 < value < 1:
        msg = f"{name} must be between 0 and 1 (95 % is 0.95), not {value!r}"
        raise WorkbenchError(msg)
    return float(value)


def wilson(share: Any, trials: Any, confidence_level: float) -> tuple[Floats, Floats]:
    """Return the interval of a share of trials (Wilson 1927); missing without trials."""
    share, trials = np.asarray(share, dtype=float), np.asarray(trials, dtype=float)
    # No trials give no interval, not one from 0 to 1.
    trials = np.where(trials > 0, trials, np.nan)
    z = -NormalDist().inv_cdf((1 - confidence_level) / 2)
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) * z / (1 + z**2 / trials)
    # Rounding would leave the end just beside 0 or 1.
    low = np.where(share <= 0, 0.0, np.maximum(centre - half, 0))
    high = np.where(share >= 1, 1.0, np.minimum(centre + half, 1))
    return np.minimum(low, share), np.maximum(high, share)


def significant(value: float, count: int = 3) -> str:
    """Write a number with so many significant digits, never as a power of ten."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    places = count - 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, places):,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Below a tenth a quantity is told in a smaller unit.
_SMALLER = {
    "GPU-hours": (3600, "GPU-seconds"), "node-hours": (3600, "node-seconds"), "kWh": (1000, "Wh"),
    "kW": (1000, "W"),
}  # fmt: skip


def quantity(value: float, unit: str) -> str:
    """Write a number with its unit; of ms no more than 1,000, which are a second."""
    if f"{unit} ".startswith("ms ") and value >= 1000:
        value, unit = value / 1000, unit[1:]
    if abs(value) < 0.1 and unit in _SMALLER:
        factor, unit = _SMALLER[unit]
        value *= factor
    if value == 1:
        unit = unit.replace("hours", "hour")
    return f"{significant(value)} {unit}"


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class NumberType:
    """Where sign, exponent and mantissa are in a type; bit 0 is the least significant."""

    name: str
    bit_count: int
    exponent_count: int = 0
    is_signed: bool = True

    @property
    def mantissa_count(self) -> int:
        """Bits below exponent and sign; of integers all but the sign."""
        return self.bit_count - self.exponent_count - self.is_signed

    def roles(self, bits: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.object_]:
        """Name what each bit is for: sign, exp, mant or int."""
        low, high = ("mant", "exp") if self.exponent_count else ("int", "int")
        names = np.where(bits < self.mantissa_count, low, high).astype(object)
        if self.is_signed:
            names[bits == self.bit_count - 1] = "sign"
        return names


_FLOATS = (("fp64", 64, 11), ("fp32", 32, 8), ("fp16", 16, 5), ("bf16", 16, 8))
NUMBER_TYPES = {name: NumberType(name, bits, exponent) for name, bits, exponent in _FLOATS}
NUMBER_TYPES |= {
    f"{sign}int{width}": NumberType(f"{sign}int{width}", width, is_signed=not sign)
    for sign in ("", "u")
    for width in (8, 16, 32, 64)
}
