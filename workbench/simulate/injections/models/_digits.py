"""Handwritten digits of 8 x 8 pixels, enlarged to what LeNet reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 28
_DARKEST = 16

Array = npt.NDArray[Any]


def enlarged(digits: Array) -> Array:
    """Enlarge digits [inputs x 8 x 8] of 0 .. 16 to [inputs x 1 x 28 x 28] float32 of 0 .. 1.

    Bilinear, in single steps that round the same everywhere, so that the inputs have one
    checksum on all machines.
    """
    image = digits.astype(np.float32) / np.float32(_DARKEST)
    for axis in (1, 2):
        low, share = _places(image.shape[axis])
        shape = [1, 1, 1]
        shape[axis] = SIDE
        weight = share.reshape(shape)
        upper = np.minimum(low + 1, image.shape[axis] - 1)
        image = image.take(low, axis) * (1 - weight) + image.take(upper, axis) * weight
    return image[:, None]


def _places(side: int) -> tuple[Array, Array]:
    """Give for every new pixel its lower neighbour and the share of the upper one."""
    place = np.clip((np.arange(SIDE) + 0.5) * side / SIDE - 0.5, 0, side - 1)
    low = np.floor(place).astype(np.int64)
    return low, (place - low).astype(np.float32)
