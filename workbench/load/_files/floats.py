"""Numbers of a column as floats, whatever stands in its cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def as_floats(values: pd.Series) -> np.ndarray:
    """Return the numbers of a column; what is none is missing, and too large ones infinite.

    A number of hundreds of digits, which pandas keeps as an integer, fits no float.
    """
    numbers: Any = pd.to_numeric(values, errors="coerce")
    try:
        return np.asarray(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
    except OverflowError:
        return np.array([_float(value) for value in numbers], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
