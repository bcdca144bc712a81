"""How many faults of each stratum to inject."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# A stratum without events in the pilot may have some.
LEAST_SPREAD = 1e-4
LEAST_SITES = 2


def neyman(weight: Any, spread: Any, site_count: int) -> NDArray[np.int64]:
    """Share out sites by stratum weight times spread; strata along the last axis.

    Every stratum gets two; what rounding leaves goes to the largest remainders, so that the
    numbers add up.
    """
    worth = np.asarray(weight, dtype=float) * (np.asarray(spread, dtype=float) + LEAST_SPREAD)
    rest = site_count - LEAST_SITES * worth.shape[-1]
    exact = max(rest, 0) * worth / worth.sum(axis=-1, keepdims=True)
    whole = np.floor(exact)
    missing = max(rest, 0) - whole.sum(axis=-1, keepdims=True)
    turn = np.argsort(np.argsort(whole - exact, axis=-1, kind="stable"), axis=-1, kind="stable")
    return np.asarray(whole + (turn < missing) + LEAST_SITES, dtype=np.int64)
