"""Types of stored numbers: how many bits they have, and what each bit is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


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
