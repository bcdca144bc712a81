"""An error-bounded codec for blocks of float32: whole numbers of bins, then Zstandard."""

from __future__ import annotations

import functools
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# Values sent as they are, bytes of the others or 0. The smallest number of a type marks the former.
HEADER = struct.Struct("<Ib")
# Receivers have to know how much arrives: an int64 per block in a small exchange before.
SIZE_BYTES = 8
_PLAIN, _LEVEL = 0, 1
# Bins are narrower than 2 e: up to 2^15 of them, float32 is too coarse by 1 / 256 of e.
_NARROWER = 255 / 256
_TYPES: tuple[np.dtype[Any], ...] = (np.dtype(np.int8), np.dtype(np.int16))


class Quantized(NamedTuple):
    """Numbers of bins, the values that they cannot stand for, and what a receiver makes of both."""

    bins: NDArray[Any]
    escaped: Floats
    restored: Floats


def quantized(values: Floats, bound: float) -> Quantized:
    """Round to bins in the type that takes fewer bytes.

    The error is that of the restored float32, subtracted in float64. A value that misses the
    bound, because its bin is beyond the type or it is among the smallest of float32, is kept as it
    is; with a bound of 0 that is every value but 0.
    """
    width = 2.0 * bound * _NARROWER
    exact = values.astype(np.float64)
    with np.errstate(all="ignore"):
        bins = np.rint(exact / width) if width else np.zeros(values.shape)
        restored = (bins * width).astype(np.float32)
        # Written such that what is not a number misses the bound.
        is_kept = np.abs(exact - restored.astype(np.float64)) <= bound
    fits = [is_kept & (np.abs(bins) <= np.iinfo(dtype).max) for dtype in _TYPES]
    costs = [
        dtype.itemsize * values.size + 4 * np.count_nonzero(~fit)
        for dtype, fit in zip(_TYPES, fits, strict=True)
    ]
    narrow = int(np.argmin(costs))
    fit, dtype = fits[narrow], _TYPES[narrow]
    numbers = np.where(fit, bins, np.iinfo(dtype).min).astype(dtype)
    return Quantized(numbers, values[~fit], np.where(fit, restored, values))


def packed(block: Quantized) -> bytes:
    """Write what is sent for one block; plain float32 if the codec does not make it smaller.

    Header, escaped values, bins by Zstandard; shape and bound are known to both sides.
    """
    content: bytes = HEADER.pack(block.escaped.size, block.bins.itemsize)
    content += block.escaped.astype("<f4").tobytes()
    little = block.bins.astype(block.bins.dtype.newbyteorder("<"))
    content += _codec().compress(little.tobytes(), asbytes=True)
    if len(content) < HEADER.size + block.restored.nbytes:
        return content
    return HEADER.pack(0, _PLAIN) + block.restored.astype("<f4").tobytes()


@functools.cache
def _codec() -> Any:
    """Zstandard as Arrow brings it along; higher levels cost time that no link gives back."""
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=_LEVEL)
