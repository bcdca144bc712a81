"""How long a communication library takes to start, through the published points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench import datasets
from workbench.errors import PerformanceModelError
from workbench.tables import STARTUP_TIME

Floats = NDArray[np.float64]


def startup_time(
    rank_counts: Sequence[int], *, libraries: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return the start-up time of communication libraries, with interval and basis.

    Parameters
    ----------
    rank_counts
        Numbers of ranks, from 2.
    libraries
        Some of those in the bundled ``published/startup_times.csv``; all by default. Two sources
        report on NCCL, a factor of 1.3 to 1.5 apart; both are given, and not averaged.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.STARTUP_TIME`, by library and number of ranks.

    Raises
    ------
    PerformanceModelError
        If a library is not in the file, or a number of ranks makes no sense.

    Notes
    -----
    The time is a power law between neighbouring points, and the outer ones go on beyond them. The
    other end of the interval is ``a + b N + c N^2`` with no negative term, fitted to the
    points by least squares: addresses gathered one by one, and a topology search over pairs.

    References
    ----------
    NCCLX, arXiv:2510.20171v4, figure 21; FT-HSDP, arXiv:2602.00277, figure 2.

    Examples
    --------
    >>> table = startup_time([98_304], libraries=["NCCL", "NCCLX"])
    >>> table["startup_s"].tolist()
    [265.0, 24.0]
    """
    points = pd.read_csv(datasets.path("published") / "startup_times.csv")
    known = list(dict.fromkeys(points["library"]))
    asked = known if libraries is None else list(libraries)
    ranks = np.atleast_1d(np.asarray(rank_counts, dtype=np.float64))
    if unknown := [name for name in asked if name not in known]:
        msg = f"no start-up time of {unknown} was printed; known: {known}"
        raise PerformanceModelError(msg)
    if not len(ranks) or not (np.isfinite(ranks) & (ranks >= 2) & (ranks % 1 == 0)).all():
        msg = f"rank_counts must hold whole numbers from 2, not {np.asarray(rank_counts).tolist()}"
        raise PerformanceModelError(msg)
    frames = [_of_library(points[points["library"] == name], ranks) for name in asked]
    table = pd.concat(frames, ignore_index=True) if frames else STARTUP_TIME.empty()
    return STARTUP_TIME.check(STARTUP_TIME.cast(table))


def _of_library(points: pd.DataFrame, ranks: Floats) -> pd.DataFrame:
    x, y = (points[name].to_numpy(np.float64) for name in ("rank_count", "startup_s"))
    power, curve = _power_law(x, y, ranks), np.stack([ranks**k for k in range(3)]).T @ terms(x, y)
    is_printed, inside = np.isin(ranks, x), (ranks >= x.min()) & (ranks <= x.max())
    # Where a time was printed, it counts, and not how far the fit misses it.
    curve = np.where(is_printed, power, curve)
    outside = f"beyond the published sizes; from {len(x)} published points"
    return pd.DataFrame(
        {
            "library": points["library"].iloc[0],
            "rank_count": ranks,
            "startup_s": power,
            "low_s": np.minimum(power, curve),
            "high_s": np.maximum(power, curve),
            "basis": np.where(
                is_printed, "published", np.where(inside, "interpolated", "extrapolated")
            ),
            "doubt": np.where(inside, "", outside),
            "source": points["source"].iloc[0],
        }
    )


def terms(ranks: Floats, seconds: Floats) -> Floats:
    """Fit a, b and c of a + b N + c N^2, none below 0."""
    from scipy.optimize import nnls

    # Scaled, since N^2 of a hundred thousand would leave no digits for a.
    scale = ranks.max() ** np.arange(3)
    found, _ = nnls(np.stack([ranks**k for k in range(3)]).T / scale, seconds)
    return np.asarray(found / scale)


def _power_law(x: Floats, y: Floats, at: Floats) -> Floats:
    part = np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2)
    slope = np.diff(np.log(y)) / np.diff(np.log(x))
    law = y[part] * (at / x[part]) ** slope[part]
    # A printed time comes back to the last digit.
    return np.where(np.isin(at, x), y[np.clip(np.searchsorted(x, at), 0, len(x) - 1)], law)
