"""An error-bounded codec for blocks of float32: whole numbers of bins, then Zstandard."""

from __future__ import annotations

import functools
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.errors import WorkbenchError

Floats = NDArray[np.float32]

# Values sent as they are, type of the others. The smallest number of a type marks the former.
HEADER = struct.Struct("<Ib")
# Receivers have to know how much arrives: an int64 per block in a small exchange before.
SIZE_BYTES = 8
_FLOAT, _LEVEL = 0, 1
# Bins are narrower than 2 e: up to 2^15 of them, float32 is too coarse by 1 / 256 of e.
_NARROWER = 255 / 256
_TYPES: tuple[np.dtype[Any], ...] = (np.dtype(np.int8), np.dtype(np.int16))


def bin_width(bound: float) -> float:
    """Give the width of a bin, such that rounding to float32 keeps the bound as well."""
    return 2.0 * bound * _NARROWER


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
    width = bin_width(bound)
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
    """Write what is sent for one block; plain float32 if the codec does not make it smaller."""
    content: bytes = HEADER.pack(block.escaped.size, block.bins.itemsize)
    content += block.escaped.astype("<f4").tobytes()
    little = block.bins.astype(block.bins.dtype.newbyteorder("<"))
    content += _codec().compress(little.tobytes(), asbytes=True)
    if len(content) < HEADER.size + block.restored.nbytes:
        return content
    return HEADER.pack(0, _FLOAT) + block.restored.astype("<f4").tobytes()


def unpacked(content: bytes, shape: tuple[int, int], bound: float) -> Floats:
    """Read what :func:`packed` wrote; shape and bound are known to both sides."""
    size = shape[0] * shape[1]
    if len(content) < HEADER.size:
        msg = f"a block of {len(content)} bytes has no header of {HEADER.size}; was it cut?"
        raise WorkbenchError(msg)
    escaped_count, width = HEADER.unpack_from(content)
    body = memoryview(content)[HEADER.size :]
    if width == _FLOAT and len(body) == 4 * size:
        return np.frombuffer(body, "<f4").reshape(shape).astype(np.float32)
    if width not in (1, 2) or escaped_count > size or len(body) < 4 * escaped_count:
        msg = f"a block of {len(content)} bytes is not one of {shape[0]} x {shape[1]} values"
        raise WorkbenchError(msg)
    escaped = np.frombuffer(body[: 4 * escaped_count], "<f4")
    try:
        numbers = _codec().decompress(body[4 * escaped_count :], width * size, asbytes=True)
    except OSError as error:
        msg = f"a block of {len(content)} bytes cannot be decompressed: {error}"
        raise WorkbenchError(msg) from error
    bins = np.frombuffer(numbers, f"<i{width}").reshape(shape)
    values = (bins.astype(np.float64) * bin_width(bound)).astype(np.float32)
    is_escaped = bins == np.iinfo(bins.dtype).min
    if np.count_nonzero(is_escaped) != escaped_count:
        msg = f"a block marks {np.count_nonzero(is_escaped)} values, and {escaped_count} follow"
        raise WorkbenchError(msg)
    values[is_escaped] = escaped
    return values


@functools.cache
def _codec() -> Any:
    """Zstandard as Arrow brings it along; higher levels cost time that no link gives back."""
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=_LEVEL)
