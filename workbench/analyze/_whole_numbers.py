"""One check for arguments that count something."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from workbench.errors import WorkbenchError


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Return an argument as an int, or say that it is no whole number from ``least``."""
    counts = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not counts or value % 1 != 0:
        msg = f"{name} must be a whole number from {least}, not {value!r}"
        raise WorkbenchError(msg)
    if value < least:
        msg = f"{name} must be {least} or more, not {value}"
        raise WorkbenchError(msg)
    return int(value)
