"""How bfloat16 rounds: to nearest even, cut off, and as the library does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.simulate.injections._arguments import whole_number
from workbench.simulate.injections._torch import torch
from workbench.tables import ROUNDING_ERRORS

Array = npt.NDArray[Any]
_QUIET = 0x0040
_EXPONENT = 0x7F80
_MANTISSA = 0x007F


def rounding_errors(count: int = 4_000_000, *, seed: int = 0) -> pd.DataFrame:
    """Round random float32 bit patterns to bfloat16 in three ways, and compare with torch.

    Parameters
    ----------
    count
        Bit patterns, all equally likely: infinities, NaN and subnormals among them.
    seed
        Of the patterns.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ROUNDING_ERRORS`, one row per way of rounding.

    Raises
    ------
    InjectionError
        If ``count`` is no whole number from 1.
    MissingExtraError
        If PyTorch is not installed.

    Notes
    -----
    To nearest even: (u + 0x7fff + ((u >> 16) & 1)) >> 16 for the bits u. Added to a NaN this
    can carry into the sign, or clear the mantissa, so NaN needs its own branch. Relative errors
    are over values that are normal before and after.

    References
    ----------
    Kalamkar et al.: A Study of BFLOAT16 for Deep Learning Training. arXiv:1905.12322.
    """
    count = whole_number("count", count, least=1)
    bits = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    values = bits.view(np.float32)
    cast = torch().from_numpy(values.copy()).to(torch().bfloat16)
    library = cast.view(torch().int16).numpy().view(np.uint16)
    ways = {
        "nearest even": nearest_even(bits),
        "nearest even, no branch for NaN": nearest_even(bits, is_nan_kept=False),
        "truncated": (bits >> 16).astype(np.uint16),
    }
    rows = [{"rounding": way, **_compared(values, each, library)} for way, each in ways.items()]
    return ROUNDING_ERRORS.check(pd.DataFrame(rows)[list(ROUNDING_ERRORS.columns)])


def nearest_even(bits: Array, *, is_nan_kept: bool = True) -> Array:
    """Round float32 bits (uint32) to bfloat16 bits (uint16), ties to even."""
    wide = bits.astype(np.uint64)
    rounded = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    if not is_nan_kept:
        return rounded
    is_nan = np.isnan(bits.view(np.float32))
    return np.where(is_nan, (bits >> 16).astype(np.uint16) | _QUIET, rounded).astype(np.uint16)


def _compared(values: Array, rounded: Array, library: Array) -> dict[str, Any]:
    """Compare rounded bits with the library's and with the values themselves."""
    was_nan = np.isnan(values)
    wide = (rounded.astype(np.uint32) << 16).view(np.float32)
    is_normal = (np.abs(values) >= np.finfo(np.float32).tiny) & np.isfinite(values)
    is_normal &= np.isfinite(wide)
    exact = values[is_normal].astype(np.float64)
    error = np.abs(wide[is_normal].astype(np.float64) - exact) / np.abs(exact)
    is_nan = ((rounded & _EXPONENT) == _EXPONENT) & ((rounded & _MANTISSA) != 0)
    return {
        "value_count": int((~was_nan).sum()),
        "differ_count": int((rounded != library)[~was_nan].sum()),
        "nan_count": int(was_nan.sum()),
        "nan_lost_count": int((was_nan & ~is_nan).sum()),
        "max_error_ratio": float(error.max()) if len(error) else float("nan"),
        "mean_error_ratio": float(error.mean()) if len(error) else float("nan"),
    }
