"""Numbers that callers give: checked in one place, refused in the same words everywhere."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from workbench.errors import WorkbenchError


def is_finite(value: object) -> bool:
    """Say whether a value is one finite number; truth values and texts are none."""
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]


def in_range(
    name: str, value: Any, *, least: float, most: float = math.inf, strictly: bool = False
) -> float:
    """Return an argument as a float, or say between which ends it must be.

    Raises
    ------
    WorkbenchError
        If it is no finite number, below ``least`` (or equal to it, if ``strictly``), or above
        ``most``.
    """
    inside = is_finite(value) and least <= value <= most
    if not inside or (strictly and value == least):
        words = f"above {least:g}" if strictly else f"{least:g} or more"
        words += f" and at most {most:g}" if math.isfinite(most) else " and finite"
        msg = f"{name} must be {words}, not {value!r}"
        raise WorkbenchError(msg)
    return float(value)


def positive(name: str, value: Any) -> float:
    """Return an argument that is a finite number above 0; see :func:`in_range`."""
    return in_range(name, value, least=0, strictly=True)


def not_negative(name: str, value: Any) -> float:
    """Return an argument that is a finite number from 0; see :func:`in_range`."""
    return in_range(name, value, least=0)


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Return an argument as an int, or say that it is no whole number from ``least``."""
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
