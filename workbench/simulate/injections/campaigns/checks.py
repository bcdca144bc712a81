"""Checks that need no model: whether flips are undone, and how given outputs are judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.errors import InjectionError
from workbench.simulate.injections._judge import Judge
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import LAYOUTS, flipped, from_patterns, patterns
from workbench.tables import OUTCOME_NAMES

_ARGMAX = Judge()
_ALL_BITS = 16


def flips_not_undone(dtype: str, *, seed: int = 0) -> int:
    """Flip every bit of many values twice, and count the values where that went wrong.

    Parameters
    ----------
    dtype
        ``"fp64"``, ``"fp32"``, ``"fp16"``, ``"bf16"`` or ``"int8"``.
    seed
        Of the values; types of up to 16 bits are tried whole, NaN and infinities among them.

    Returns
    -------
    int
        Values that some bit, flipped once, left as they were, or that two flips changed; 0 if
        all is well.

    Raises
    ------
    InjectionError
        If there is no such type.
    """
    if dtype not in LAYOUTS:
        msg = f"dtype={dtype!r} is not one of {', '.join(LAYOUTS)}"
        raise InjectionError(msg)
    layout = LAYOUTS[dtype]
    if layout.bit_count <= _ALL_BITS:
        bits = np.arange(1 << layout.bit_count, dtype=np.int64)
    else:
        drawn = np.random.default_rng(seed).bytes((1 << _ALL_BITS) * layout.bit_count // 8)
        bits = np.frombuffer(drawn, dtype=f"<u{layout.bit_count // 8}").astype(np.int64)
        exponent = bits | (((1 << (layout.bit_count - 1 - layout.mantissa_count)) - 1)
                           << layout.mantissa_count)  # NaN, infinities  # fmt: skip
        bits = np.concatenate([bits, exponent])
    values = from_patterns(torch().from_numpy(bits.copy()), layout.dtype)
    before = patterns(values)
    changed = torch().zeros(len(bits), dtype=torch().bool)
    for bit in range(layout.bit_count):
        once = flipped(values, bit)
        changed |= patterns(once) == before
        changed |= patterns(flipped(once, bit)) != before
    return int(changed.sum())


def outcomes_of(outputs: Any, golden: Any, *, judge: Judge = _ARGMAX) -> npt.NDArray[np.object_]:
    """Judge outputs that are at hand already against those of the run without faults.

    Parameters
    ----------
    outputs
        Array or tensor, one row per input.
    golden
        The same without faults.
    judge
        When an output counts as wrong.

    Returns
    -------
    numpy.ndarray
        ``"masked"``, ``"benign"``, ``"sdc"`` or ``"due"`` per input. An output that is not
        finite is ``"due"``, whatever an argmax of it would be.

    Raises
    ------
    InjectionError
        If the criterion does not fit the outputs, or shapes differ.
    """
    faulty, clean = (torch().as_tensor(each) for each in (outputs, golden))
    measure = judge.golden(clean)
    if faulty.shape != clean.shape:
        msg = f"outputs: shape {tuple(faulty.shape)}, golden has {tuple(clean.shape)}"
        raise InjectionError(msg)
    codes = measure.outcomes(faulty, torch().arange(len(clean)))
    return np.array([OUTCOME_NAMES[code] for code in codes.tolist()], dtype=object)
