"""The receiver of a compressed exchange, written from the format alone."""

import struct

import numpy as np
import pyarrow as pa


def unpacked(content, shape, bound):
    """Read a block: header, values as they are, bins by Zstandard; or plain float32."""
    count, width = struct.unpack("<Ib", content[:5])
    if width == 0:
        return np.frombuffer(content[5:], "<f4").reshape(shape)
    escaped = np.frombuffer(content[5 : 5 + 4 * count], "<f4")
    size = width * shape[0] * shape[1]
    numbers = pa.decompress(content[5 + 4 * count :], size, codec="zstd", asbytes=True)
    bins = np.frombuffer(numbers, f"<i{width}").reshape(shape)
    values = (bins.astype(np.float64) * (2 * bound * 255 / 256)).astype(np.float32)
    values[bins == -(2 ** (8 * width - 1))] = escaped
    return values
