"""Usual time of a launch from its call to the work."""

from __future__ import annotations

import numpy as np

from workbench.analyze._lib.rows import Ints


def usual_latency(delay: Ints, *, fewest: int, longest_ns: int, default_ns: int) -> int:
    """Return the median of some delays, at most `longest_ns` [ns].

    Fewer than `fewest` tell nothing: then it is `default_ns`. A longer median is that of work which
    something else than its launch held up.
    """
    if len(delay) < max(fewest, 1):
        return default_ns
    return min(max(int(np.median(delay)), 0), longest_ns)
