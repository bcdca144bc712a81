"""Generated clicks: dense features, looked-up rows and whether somebody clicked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

DENSE, TABLES, ROWS = 13, 26, 1000
_WORLD_SEED = 1234
_RANK = 4
_CROSSED = 6
_ZIPF = 1.2
_OFFSET = -1.2

Array = npt.NDArray[Any]


def clicks(count: int, seed: int) -> tuple[Array, Array, Array]:
    """Draw inputs and clicks of one fixed, invented world.

    Parameters
    ----------
    count
        Inputs.
    seed
        Of the inputs; the world itself is always the same.

    Returns
    -------
    tuple
        Dense features [count x 13] float32, row numbers [count x 26] int64, clicks [count]
        float32 of 0 and 1.

    Notes
    -----
    Dense features are log1p(lognormal(0, 1)); rows are min(zipf(1.2) - 1, 999). A click has
    the probability sigmoid(linear part + 0.6 x effect of every row + products of rank 4 of
    the first table with the next five - 1.2).
    """
    draws, world = np.random.default_rng(seed), np.random.default_rng(_WORLD_SEED)
    dense = np.log1p(draws.lognormal(0, 1, (count, DENSE)).astype(np.float32))
    sparse = np.stack(
        [np.minimum(draws.zipf(_ZIPF, count) - 1, ROWS - 1) for _ in range(TABLES)], 1
    )
    weights = world.normal(0, 0.35, DENSE)
    effects = [world.normal(0, 0.5, ROWS) for _ in range(TABLES)]
    factors = [world.normal(0, 0.6, (ROWS, _RANK)) for _ in range(TABLES)]
    logit = dense @ weights + _OFFSET
    logit = logit + sum(effects[k][sparse[:, k]] for k in range(TABLES)) * 0.6
    first = factors[0][sparse[:, 0]]
    for k in range(1, _CROSSED):
        logit += (first * factors[k][sparse[:, k]]).sum(1)
    clicked = draws.random(count) < 1 / (1 + np.exp(-logit))
    return dense, sparse.astype(np.int64), clicked.astype(np.float32)


def area_under_curve(scores: Array, labels: Array) -> float:
    """Give the probability that a clicked input scores above one that was not clicked."""
    from scipy.stats import rankdata

    rank = rankdata(scores)
    hits = int((labels == 1).sum())
    misses = len(labels) - hits
    return float((rank[labels == 1].sum() - hits * (hits + 1) / 2) / (hits * misses))
