"""Numbers seen as integers of the same width, where a fault is an exclusive or."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.simulate.injections._torch import torch

_NAMES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def as_integers(values: Any) -> Any:
    """Give the bits of values, without a copy."""
    return values.view(getattr(torch(), _NAMES[values.element_size()]))


def as_masks(masks: Any, like: Any) -> Any:
    """Give bit masks (int64) as integers of the width of a tensor's elements."""
    width = 8 * like.element_size()
    masks = np.asarray(masks, dtype=np.int64)
    if width < 64:
        masks = np.where(masks >= 1 << (width - 1), masks - (1 << width), masks)
    return torch().as_tensor(masks).to(getattr(torch(), _NAMES[like.element_size()]))


def with_flips(values: Any, masks: Any) -> Any:
    """Give values with the bits of ``masks`` flipped, entry by entry."""
    return (as_integers(values) ^ as_masks(masks, values)).view(values.dtype)
