"""How bfloat16 rounds: to nearest even, cut off, and as the library does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InjectionError
from workbench.inject._model import torch, whole_number
from workbench.tables import GRADIENT_UNDERFLOW, ROUNDING_ERRORS

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
        If ``count`` is not a whole number from 1.
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
    # The reference: the cast of PyTorch itself.
    cast = torch().from_numpy(values.copy()).to(torch().bfloat16)
    library = cast.view(torch().int16).numpy().view(np.uint16)
    ways = {
        "nearest even": nearest_even(bits),
        "nearest even, no branch for NaN": nearest_even(bits, is_nan_kept=False),
        "truncated": (bits >> 16).astype(np.uint16),
    }
    rows = [
        {"rounding": way, **_compared(values, rounded, library)} for way, rounded in ways.items()
    ]
    return ROUNDING_ERRORS.check(pd.DataFrame(rows)[list(ROUNDING_ERRORS.columns)])


def nearest_even(bits: Array, *, is_nan_kept: bool = True) -> Array:
    """Round float32 bits (uint32) to bfloat16 bits (uint16), ties to even."""
    # 64 bits, because adding to a NaN can carry out of 32.
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
    # The relative error of a subnormal number has no bound.
    is_normal = (np.abs(values) >= np.finfo(np.float32).tiny) & np.isfinite(values)
    is_normal &= np.isfinite(wide)
    exact = values[is_normal].astype(np.float64)
    error = np.abs(wide[is_normal].astype(np.float64) - exact) / np.abs(exact)
    # A NaN has all bits of its exponent set and a mantissa that is not 0; 0 is infinity.
    is_nan = ((rounded & _EXPONENT) == _EXPONENT) & ((rounded & _MANTISSA) != 0)
    return {
        "value_count": int((~was_nan).sum()),
        "differ_count": int((rounded != library)[~was_nan].sum()),
        "nan_count": int(was_nan.sum()),
        "nan_lost_count": int((was_nan & ~is_nan).sum()),
        "max_error_ratio": float(error.max()) if len(error) else float("nan"),
        "mean_error_ratio": float(error.mean()) if len(error) else float("nan"),
    }


_TYPES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8-e5m2": "float8_e5m2",
    "fp8-e4m3": "float8_e4m3fn",
}


def gradient_underflow(
    model: Any, inputs: tuple[Any, ...], labels: Any, *, scales: Sequence[float] = (1.0, 1e-4)
) -> pd.DataFrame:
    """Take the gradients of a classifier once, and count those that narrow types cannot hold.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` in float32 that gives logits [inputs x classes]; it is not changed.
    inputs
        Its arguments.
    labels
        The right class of each input.
    scales
        Factors on the gradients: what loss scaling makes larger, or a small loss smaller.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GRADIENT_UNDERFLOW`, one row per scale and type:
        ``dtype``, ``scale_ratio``, ``gradient_count``, ``lost_share`` and
        ``subnormal_share``.

    Raises
    ------
    InjectionError
        If no gradient differs from 0, or a scale is not positive.
    MissingExtraError
        If PyTorch is not installed.

    Notes
    -----
    Counted are gradients of parameters under the mean cross-entropy that are not 0 in float32:
    those that become 0, and those that stay but below the least normal number, where they
    lose digits.
    """
    if any(not scale > 0 for scale in scales):
        msg = f"scales={tuple(scales)}: every scale must be above 0"
        raise InjectionError(msg)
    gradients = _gradients(model, inputs, labels)
    if not len(gradients):
        msg = "no gradient of the model differs from 0; there is nothing to lose"
        raise InjectionError(msg)
    rows = []
    for scale in scales:
        for name, torch_name in _TYPES.items():
            narrow = getattr(torch(), torch_name)
            cast = (gradients * scale).to(narrow).float()
            least = torch().finfo(narrow).smallest_normal
            lost, faint = cast == 0, (cast != 0) & (cast.abs() < least)
            rows.append(
                {
                    "dtype": name,
                    "scale_ratio": float(scale),
                    "gradient_count": len(gradients),
                    "lost_share": float(lost.double().mean()),
                    "subnormal_share": float(faint.double().mean()),
                }
            )
    return GRADIENT_UNDERFLOW.check(pd.DataFrame(rows))


def _gradients(model: Any, inputs: tuple[Any, ...], labels: Any) -> Any:
    """Return all gradients that are not 0, without touching the model's own."""
    parameters = {
        name: gradient.detach().clone().requires_grad_(requires_grad=True)
        for name, gradient in model.named_parameters()
    }
    with torch().enable_grad():
        logits = torch().func.functional_call(model, parameters, inputs)
        loss = torch().nn.functional.cross_entropy(logits, labels)
        gradients = torch().autograd.grad(loss, list(parameters.values()), allow_unused=True)
    flat = torch().cat([gradient.flatten() for gradient in gradients if gradient is not None])
    # What is 0 already cannot be lost.
    return flat[flat != 0]
