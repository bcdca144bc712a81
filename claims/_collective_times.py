"""Times of collectives of any size, from those that were measured."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from claims._tables import COLLECTIVE_MODEL, COLLECTIVE_TIMES
from workbench._shared.numbers import Floats
from workbench.analyze._lib.rows import bus_factor
from workbench.errors import PerformanceModelError

KEY = ["gpu", "collective", "rank_count", "node_count"]
Key = tuple[str, str, int, int]


def collective_times(times: pd.DataFrame) -> pd.DataFrame:
    """Put the three fitted lines and the bus bandwidth beside every measured collective.

    Parameters
    ----------
    times
        Table :data:`claims._tables.COLLECTIVE_TIMES`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.COLLECTIVE_MODEL`, one row per kind and size; repeats and
        element types count as their median.

    Raises
    ------
    PerformanceModelError
        If there are fewer than seven sizes of a kind.

    Notes
    -----
    ``held_out_ns`` comes from lines fitted to all other sizes, also for the smallest and the
    largest, which are extrapolated. Bus bandwidth is size / time, times 2 (n - 1) / n for
    all-reduce, (n - 1) / n for all-gather, reduce-scatter and all-to-all, 1 otherwise.

    References
    ----------
    NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``.
    """
    COLLECTIVE_TIMES.check(times)
    if times.empty:
        return COLLECTIVE_MODEL.empty()
    rows = [_beside(key, size, seconds) for key, size, seconds in _kinds(times)]
    return COLLECTIVE_MODEL.of(pd.concat(rows, ignore_index=True))


def _kinds(times: pd.DataFrame) -> list[tuple[Key, Floats, Floats]]:
    kinds: list[tuple[Key, Floats, Floats]] = []
    for values, rows in times.groupby(KEY, sort=True, observed=True):
        key = _key(values)
        # Element types of one size count as repeats: the time depends on bytes.
        median = rows.groupby("size_bytes")["dur_ns"].median()
        if len(median) < LEAST_SIZES:
            msg = f"{key[1]} of {key[2]} ranks on {key[0]}: {len(median)} sizes are too few for "
            raise PerformanceModelError(msg + f"three lines; {LEAST_SIZES} are needed")
        size = median.index.to_numpy(dtype=np.float64)
        kinds.append((key, size, median.to_numpy(dtype=np.float64) / 1e9))
    return kinds


def _key(values: Any) -> Key:
    gpu, name, ranks, nodes = values
    return str(gpu), str(name), int(ranks), int(nodes)


def _left_out(size: Floats, seconds: Floats) -> Floats:
    """Predict every size by lines fitted to the others."""
    predicted = np.empty_like(seconds)
    for out in range(len(size)):
        kept = np.arange(len(size)) != out
        predicted[out] = fit_lines(size[kept], seconds[kept]).seconds(size[out : out + 1])[0]
    return predicted


def _beside(key: Key, size: Floats, seconds: Floats) -> pd.DataFrame:
    lines = fit_lines(size, seconds)
    line = lines.line(size)
    factor = bus_factor(key[1], key[2]) or 1.0
    # Leaving one out must not leave fewer sizes than a fit takes.
    enough = len(size) > LEAST_SIZES
    return pd.DataFrame(
        {
            **dict(zip(KEY, key, strict=True)),
            "size_bytes": size,
            "dur_ns": np.rint(seconds * 1e9),
            "bus_gb_per_s": size / seconds * factor / 1e9,
            "modelled_ns": lines.seconds(size) * 1e9,
            "held_out_ns": _left_out(size, seconds) * 1e9 if enough else None,
            "line": line + 1,
            "latency_ns": lines.latency_s[line] * 1e9,
            "line_gb_per_s": lines.bytes_per_s[line] / 1e9,
        }
    )


# Time of a collective by size: the lowest of three straight lines.

COUNT = 3
# Where the sizes are first cut, as shares of their number; the best fit of these is kept.
_CUTS = ((0.4, 0.7), (0.5, 0.8), (0.6, 0.85))
LEAST_SIZES = 2 * COUNT + 1


@dataclass(frozen=True)
class Lines:
    """``min over i of (latency_i + size / speed_i)``, lowest latency first."""

    latency_s: Floats
    bytes_per_s: Floats

    def on_all_lines(self, size: Floats) -> Floats:
        return self.latency_s[:, None] + size[None] / self.bytes_per_s[:, None]

    def seconds(self, size: Floats) -> Floats:
        return np.asarray(self.on_all_lines(size).min(axis=0))

    def line(self, size: Floats) -> NDArray[np.int64]:
        return np.asarray(self.on_all_lines(size).argmin(axis=0))


def fit_lines(size: Floats, seconds: Floats) -> Lines:
    """Fit three lines by soft-L1 of the log ratio, so that every size counts the same."""
    from scipy.optimize import least_squares

    order = np.argsort(size, kind="stable")
    size, seconds = size[order], seconds[order]
    logs = np.log(seconds)

    def residual(parameters: Floats) -> Floats:
        # Where a line never matters, nothing would stop its parameters.
        latency, inverse = np.exp(np.clip(parameters, -60, 10)).reshape(2, COUNT)
        return np.log(Lines(latency, 1 / inverse).seconds(size)) - logs

    def slopes(parameters: Floats) -> Floats:
        latency, inverse = np.exp(np.clip(parameters, -60, 10)).reshape(2, COUNT)
        lines = Lines(latency, 1 / inverse)
        on = lines.line(size)[:, None] == np.arange(COUNT)
        shares = np.hstack([on * latency, on * size[:, None] * inverse])
        return np.asarray(shares / lines.seconds(size)[:, None])

    options: dict[str, Any] = {"loss": "soft_l1", "f_scale": 0.05, "x_scale": "jac", "jac": slopes}
    # The cost has local minima where a line serves no size, so several starts compete.
    starts = [_start(size, seconds, cuts) for cuts in _CUTS]
    fits = [least_squares(residual, start, **options) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    latency, inverse = np.exp(np.clip(best.x, -60, 10)).reshape(2, COUNT)
    by_latency = np.argsort(latency, kind="stable")
    return Lines(latency[by_latency], 1 / inverse[by_latency])


def _start(size: Floats, seconds: Floats, cuts: tuple[float, float]) -> Floats:
    """Fit each part of the sizes by one line of its own."""
    ends = [0, *(int(cut * len(size)) for cut in cuts), len(size)]
    latency, inverse = [], []
    for first, last in pairwise(ends):
        sizes, times = size[first:last], seconds[first:last]
        # Divided by the time, so that the residual is relative as it is in the fit itself.
        weighted = np.column_stack([1 / times, sizes / times])
        offset, slope = np.linalg.lstsq(weighted, np.ones(len(sizes)), rcond=None)[0]
        latency.append(max(offset, 0.5 * float(seconds.min())))
        inverse.append(max(slope, 1e-15))
    return np.log([*latency, *inverse])
