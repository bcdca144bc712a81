"""Repeated parts of a step, found by the autocorrelation of its order."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Fold: TypeAlias = tuple[int, pd.DataFrame]
_LONGEST_PERIOD = 2_000
# Saved operations below which a repetition is not worth a block of its own.
_LEAST_SAVED = 8
_DEEPEST = 6


def folds(step: pd.DataFrame, *, depth: int = 0) -> list[Fold]:
    """Divide the operations of a step into blocks and how often each is repeated.

    An operation matches another one if both have the same kind, stream, wait and communication, and
    durations within an octave; repeats of a block are averaged. Of all periods the one that saves
    most operations is taken, then what is before and after it is divided in the same way.
    """
    period, first, repeats = _best_period(step)
    if (repeats - 1) * period < _LEAST_SAVED or depth > _DEEPEST:
        return [(1, step.reset_index(drop=True))] if len(step) else []
    end = first + repeats * period
    block = step.iloc[first:end].reset_index(drop=True)
    mean = block.iloc[:period].copy()
    position = np.arange(len(block)) % period
    for name in ("dur", "gap", "size"):
        mean[name] = block[name].astype("float64").groupby(position).mean()
    return [
        *folds(step.iloc[:first], depth=depth + 1),
        (repeats, mean),
        *folds(step.iloc[end:], depth=depth + 1),
    ]


def _best_period(step: pd.DataFrame) -> tuple[int, int, int]:
    """Return period, first operation and number of repeats of the best repetition."""
    skeleton = step[["kind", "stream", "waits", "back", "operation", "group"]]
    code = skeleton.groupby(list(skeleton), sort=False).ngroup().to_numpy()
    # Below 1 ns a logarithm has no meaning.
    octave = np.log2(np.maximum(step["dur"].to_numpy(dtype=np.float64), 1))
    best = (1, 0, 1)
    for period in range(1, min(len(step) // 2, _LONGEST_PERIOD) + 1):
        same = (code[period:] == code[:-period]) & (np.abs(octave[period:] - octave[:-period]) < 1)
        # The autocorrelation alone bounds what the period can save.
        if int(same.sum()) < period or int(same.sum()) <= (best[2] - 1) * best[0]:
            continue
        first, length = _longest_run(same)
        repeats = length // period + 1
        if (repeats - 1) * period > (best[2] - 1) * best[0]:
            best = (period, first, repeats)
    return best


def _longest_run(flags: NDArray[np.bool_]) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    begin, end = edges[::2], edges[1::2]
    if not len(begin):
        return 0, 0
    at = int(np.argmax(end - begin))
    return int(begin[at]), int(end[at] - begin[at])
