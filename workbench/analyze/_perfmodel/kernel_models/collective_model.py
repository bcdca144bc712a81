"""Times of collectives of any size, from those that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench import datasets
from workbench._shared.numbers import Floats
from workbench.analyze._lib.rows import bus_factor
from workbench.analyze._perfmodel.kernel_models.hardware import (
    gpu_row,
    predicted_times,
    refuse_coverage,
    refuse_fractions,
)
from workbench.errors import PerformanceModelError
from workbench.tables import COLLECTIVE_MODEL, COLLECTIVE_TIMES

KEY = ["gpu", "collective", "rank_count", "node_count"]
_OUTSIDE = "beyond the measured sizes: the outer line goes on"
_MODELLED = (
    "not measured on these ranks: NCCL's own latencies and the peak of the slowest link; the "
    "interval is half to twice, by convention"
)
_MODELLED_WIDTH = 2.0
Key = tuple[str, str, int, int]


@dataclass(frozen=True)
class _Fit:
    lines: Lines
    measured: pd.Series
    width_log: float
    widest_log: float


@dataclass(frozen=True)
class CollectiveModel:
    """Three lines by GPU, collective, ranks and nodes; made by :func:`collective_model`."""

    coverage_share: float
    _fits: Mapping[Key, _Fit]


def collective_model(times: pd.DataFrame, *, coverage_share: float = 0.9) -> CollectiveModel:
    """Fit the time of collectives by size: the lowest of three lines.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.COLLECTIVE_TIMES`. Each GPU, collective and number of
        ranks and nodes is fitted alone; element types are not told apart, since the time
        depends on bytes.
    coverage_share
        Share of new sizes that the interval should hold, above 0 and below 1.

    Returns
    -------
    CollectiveModel
        What :func:`predicted_collective_times` asks.

    Raises
    ------
    PerformanceModelError
        If there is nothing to fit, or fewer than seven sizes of a kind.

    Notes
    -----
    ``T = min over i of (a_i + S / b_i)``, one line for each of NCCL's protocols LL, LL128 and
    Simple; soft-L1 of the log ratio. The interval is the quantile of ``|log ratio|`` over sizes
    dropped one at a time. The size is that of nccl-tests.

    References
    ----------
    Hockney: The communication challenge for MPP, Parallel Computing 20, 1994 (one line).
    """
    COLLECTIVE_TIMES.check(times)
    refuse_coverage(coverage_share)
    if times.empty:
        msg = "no measured collectives to fit; load some with load.collective_times()"
        raise PerformanceModelError(msg)
    fits: dict[Key, _Fit] = {}
    for key, size, seconds in _kinds(times):
        error = np.abs(np.log(_left_out(size, seconds) / seconds))
        # n + 1: the new size is one more draw among the held-out ones.
        rank = min(np.ceil((len(error) + 1) * coverage_share) / len(error), 1.0)
        width = float(np.quantile(error, rank, method="higher"))
        measured = pd.Series(seconds, index=size.astype(np.int64))
        fits[key] = _Fit(fit_lines(size, seconds), measured, width, float(error.max()))
    return CollectiveModel(coverage_share, MappingProxyType(fits))


def predicted_collective_times(model: CollectiveModel, calls: pd.DataFrame) -> pd.DataFrame:
    """Predict the times of collectives, with interval and basis.

    Parameters
    ----------
    model
        What :func:`collective_model` returns.
    calls
        Frame with ``gpu``, ``collective``, ``rank_count``, ``node_count``, ``size_bytes``;
        other columns are kept.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PREDICTED_TIMES` beside the columns of ``calls``. Where
        the kind was not fitted, e.g. across nodes, basis is ``modelled`` and the time follows
        from NCCL's own latencies; ``analytic_ns`` is that of the lines or of that model.

    Raises
    ------
    PerformanceModelError
        If a column is missing, a number makes no sense, or the collective was neither measured
        nor is an all-reduce, all-gather or reduce-scatter.

    Notes
    -----
    Not measured: rings and trees with NCCL's latencies over the bandwidth of the link, or of
    the adapters of a node across nodes. NVLS, rails and congestion are not in it.

    References
    ----------
    NVIDIA/nccl, ``src/graph/tuning.cc``.
    """
    _check_calls(calls)
    return predicted_times(calls, KEY, partial(_predicted, model))


def collective_times(times: pd.DataFrame) -> pd.DataFrame:
    """Put the three fitted lines and the bus bandwidth beside every measured collective.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.COLLECTIVE_TIMES`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVE_MODEL`, one row per kind and size; repeats and
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


def bus_bandwidth(collective: str, *, rank_count: int, size_bytes: float, dur_ns: float) -> float:
    """Return the bus bandwidth of a collective: what its busiest link carries [10^9 bytes/s].

    Parameters
    ----------
    collective
        Name as in :data:`workbench.tables.COLLECTIVE_TIMES`, e.g. ``"all-reduce"``.
    rank_count
        Ranks that take part.
    size_bytes
        Size as nccl-tests counts it.
    dur_ns
        Time in nanoseconds.

    Returns
    -------
    float
        10^9 bytes per second.

    Raises
    ------
    PerformanceModelError
        If the collective has no agreed factor, or a number makes no sense.

    Examples
    --------
    >>> bus_bandwidth("all-reduce", rank_count=8, size_bytes=1e9, dur_ns=5e6)
    350.0
    """
    factor = bus_factor(collective, rank_count)
    if factor is None or rank_count < 2 or size_bytes < 0 or dur_ns <= 0:
        msg = f"no bus bandwidth of {collective!r} with {rank_count} ranks, {size_bytes} bytes and "
        msg += f"{dur_ns} ns; a known collective, 2 ranks and a time above 0 are needed"
        raise PerformanceModelError(msg)
    return size_bytes / dur_ns * factor


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


def _predicted(model: CollectiveModel, values: Any, rows: pd.DataFrame) -> pd.DataFrame:
    key = _key(values)
    fit = model._fits.get(key)
    size = rows["size_bytes"].to_numpy(dtype=np.float64)
    if fit is None:
        seconds = _expected(key, size)
        return _framed(rows.index, seconds, seconds, _MODELLED_WIDTH, "modelled", _MODELLED)
    analytic = fit.lines.seconds(size)
    measured = fit.measured.reindex(size.astype(np.int64)).to_numpy(dtype=np.float64)
    is_measured = ~np.isnan(measured)
    inside = (size >= fit.measured.index.min()) & (size <= fit.measured.index.max())
    # Beyond the sizes the largest error held out counts, and at least half as much again.
    width = np.exp(np.where(inside, fit.width_log, max(fit.widest_log, np.log(1.5))))
    basis = np.where(is_measured, "measured", np.where(inside, "fitted", "extrapolated"))
    seconds = np.where(is_measured, measured, analytic)
    return _framed(rows.index, seconds, analytic, width, basis, np.where(inside, "", _OUTSIDE))


def _expected(key: Key, size: Floats) -> Floats:
    gpu, name, ranks, nodes = key
    if name not in MODELLED:
        msg = f"{name} of {ranks} ranks on {nodes} nodes of {gpu} was not measured, and only "
        msg += f"{list(MODELLED)} are modelled without; load times of it, or take the bound of "
        msg += "analyze.collective_scaling"
        raise PerformanceModelError(msg)
    return np.array(
        [expected_seconds(gpu, name, ranks, nodes, bytes_moved) for bytes_moved in size]
    )


def _framed(
    index: pd.Index, seconds: Floats, analytic: Floats, width: Any, basis: Any, doubt: Any
) -> pd.DataFrame:
    times = {"dur_ns": seconds, "low_ns": seconds / width, "high_ns": seconds * width}
    times["analytic_ns"] = analytic
    table = pd.DataFrame({name: np.rint(values * 1e9) for name, values in times.items()}, index)
    return table.clip(lower=1).astype(np.int64).assign(basis=basis, doubt=doubt)


def _check_calls(calls: pd.DataFrame) -> None:
    needed = [*KEY, "size_bytes"]
    if missing := [name for name in needed if name not in calls]:
        msg = f"calls lack {missing}; a collective needs {needed}"
        raise PerformanceModelError(msg)
    refuse_fractions(calls, {"rank_count": 2, "node_count": 1, "size_bytes": 1})
    if (calls["node_count"] > calls["rank_count"]).any():
        msg = "a call has more nodes than ranks; node_count counts nodes with a rank on them"
        raise PerformanceModelError(msg)


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


# What NCCL itself expects a collective to take: its published latencies and a bandwidth.

_US = 1e-6
_ALL_REDUCE = "all-reduce"
MODELLED = (_ALL_REDUCE, "all-gather", "reduce-scatter")


@cache
def _tuning() -> pd.Series:
    table = pd.read_csv(datasets.path("published") / "nccl_tuning.csv")
    return table.set_index(["quantity", "algorithm", "protocol"])["value"]


def expected_seconds(gpu: str, collective: str, ranks: int, nodes: int, size: float) -> float:
    """Return the time of the best algorithm and protocol by NCCL's own model.

    Rings have ``2 (n - 1)`` steps for an all-reduce and ``n - 1`` for the others; as many of
    them as there are nodes cross the network. A tree goes up and down once. The bandwidth of
    the bus is that of the link or, across nodes, of all adapters of a node, if that is less.
    """
    row = gpu_row(gpu)
    # The fullest node decides, so the division rounds up.
    per_node = -(-ranks // nodes)
    bus = float(row["link_bytes_per_s"])
    if nodes > 1:
        bus = min(bus, float(row["network_bytes_per_s"]) * per_node)
    rounds = 2 if collective == _ALL_REDUCE else 1
    steps = rounds * (ranks - 1)
    crossing = 0 if nodes == 1 else rounds * nodes if rounds == 2 else nodes - 1
    hops = {"ring": (steps - crossing, crossing)}
    # NCCL has trees for all-reduce only.
    if collective == _ALL_REDUCE and nodes > 1:
        hops["tree"] = (2 * (per_node - 1), 2 * np.ceil(np.log2(nodes)))
    tuning = _tuning()
    times = []
    for algorithm, (links, networks) in hops.items():
        for protocol in ("LL", "LL128", "Simple"):
            latency = tuning[("base latency", algorithm, protocol)]
            latency += links * tuning[("link latency", algorithm, protocol)]
            latency += networks * tuning[("network latency", algorithm, protocol)]
            share = tuning[("bandwidth share", algorithm, protocol)]
            times.append(float(latency * _US + size / bus / share * steps / ranks))
    return min(times)
