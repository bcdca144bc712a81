"""The formula of a matrix product's time, and what trees learn of the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._perfmodel.kernel_models.hardware import DTYPES, gpu_row, peak_of
from workbench.errors import PerformanceModelError
from workbench.tables import SCALED_TIMES

Floats = NDArray[np.float64]
_TILE_M, _TILE_N = 128, 256
TREES, LEAF, FEATURE_SHARE = 200, 2, 0.5


@dataclass(frozen=True)
class Roof:
    """What bounds a matrix product: a peak, a bandwidth, and the bytes of its elements."""

    peak_flop_per_s: float
    bytes_per_s: float
    multiprocessors: int
    element_bytes: tuple[float, float, float]

    @staticmethod
    def of(gpu: str, dtype: str) -> Roof:
        """Look up a GPU."""
        row = gpu_row(gpu)
        peak = peak_of(gpu, dtype)
        units, bandwidth = int(row["multiprocessor_count"]), float(row["memory_bytes_per_s"])
        return Roof(peak, bandwidth, units, DTYPES[dtype][:3])

    def parts(self, shapes: Floats) -> tuple[Floats, Floats]:
        """Give FLOPs and bytes of each shape."""
        m, n, k = shapes.T
        left, right, out = self.element_bytes
        return 2 * m * n * k, left * m * k + right * k * n + out * m * n

    def seconds(self, shapes: Floats) -> Floats:
        """Give the time at both peaks, which nothing can be faster than."""
        flops, moved = self.parts(shapes)
        return np.maximum(flops / self.peak_flop_per_s, moved / self.bytes_per_s)


@dataclass(frozen=True)
class Formula:
    """``max(FLOPs / (peak e), bytes / (bandwidth b)) + l``."""

    roof: Roof
    compute_share: float
    memory_share: float
    launch_s: float

    def seconds(self, shapes: Floats) -> Floats:
        """Give the time of each shape."""
        flops, moved = self.roof.parts(shapes)
        compute = flops / (self.roof.peak_flop_per_s * self.compute_share)
        return np.maximum(compute, moved / (self.roof.bytes_per_s * self.memory_share)) + (
            self.launch_s
        )


def fit_formula(roof: Roof, shapes: Floats, seconds: Floats) -> Formula:
    """Fit e, b and l by soft-L1 of the log ratio."""
    from scipy.optimize import least_squares

    def residual(logs: Floats) -> Floats:
        return np.log(Formula(roof, *np.exp(logs)).seconds(shapes) / seconds)

    start = np.log([0.7, 0.7, min(3e-6, float(seconds.min()))])
    found = least_squares(residual, start, loss="soft_l1", f_scale=0.1)
    return Formula(roof, *(float(each) for each in np.exp(found.x)))


def features(roof: Roof, shapes: Floats) -> NDArray[np.float32]:
    """Give what the trees see of a shape."""
    m, n, _ = shapes.T
    flops, moved = roof.parts(shapes)
    waves = np.ceil(m / _TILE_M) * np.ceil(n / _TILE_N) / roof.multiprocessors
    columns = [
        *np.log(shapes.T),
        np.log(flops),
        np.log(moved),
        np.log(roof.seconds(shapes)),
        np.log(flops / moved),
        waves,
        waves - np.floor(waves),
        np.ceil(waves) / waves,
    ]
    return np.column_stack(columns).astype(np.float32)


def trees() -> Any:
    """Give scikit-learn's extra trees, or None where it is not installed."""
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError:
        return None
    return ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAF, max_features=FEATURE_SHARE, random_state=0, n_jobs=-1
    )


@dataclass(frozen=True)
class Hybrid:
    """The formula, and inside the fitted shapes trees for the log of what it misses."""

    formula: Formula
    forest: Any
    hull: Hull

    def seconds(self, shapes: Floats) -> Floats:
        """Give the time of each shape; trees repeat what they saw last, so not outside."""
        analytic = self.formula.seconds(shapes)
        inside = self.inside(shapes)
        if self.forest is None or not inside.any():
            return analytic
        rest = np.zeros(len(shapes))
        rest[inside] = self.forest.predict(features(self.formula.roof, shapes[inside]))
        return np.asarray(analytic * np.exp(rest))

    def inside(self, shapes: Floats) -> NDArray[np.bool_]:
        """Say which shapes lie among the fitted ones."""
        return self.hull.holds(np.log(shapes))


def fit_hybrid(roof: Roof, shapes: Floats, seconds: Floats) -> Hybrid:
    """Fit the formula, then the trees on the log of measured over formula."""
    formula = fit_formula(roof, shapes, seconds)
    forest = trees()
    if forest is not None:
        rest = np.log(seconds / formula.seconds(shapes))
        forest = forest.fit(features(roof, shapes), rest)
    return Hybrid(formula, forest, Hull.of(np.log(shapes)))


def groups(shapes: Floats) -> NDArray[np.int64]:
    """Give each different (n, k) a number."""
    return pd.factorize(pd.MultiIndex.from_arrays([shapes[:, 1], shapes[:, 2]]))[0].astype(np.int64)


def folds(shapes: Floats, count: int) -> NDArray[np.int64]:
    """Put every shape into one of some folds; those of one (n, k) stay together."""
    group = groups(shapes)
    shuffled = np.random.default_rng(0).permutation(int(group.max()) + 1) % count
    return shuffled[group].astype(np.int64)


# What kernels measured on one GPU would take on another, by the ratio of what binds them.

# Kernels that move little for what they compute; all other compute moves more.
_COMPUTE_BOUND = re.compile(
    r"gemm|cutlass|cublas|matmul|wgmma|Cijk_|nvjet|xmma|flash|fmha|attention|conv|wgrad|dgrad",
    re.IGNORECASE,
)
_HOST_COPY = re.compile(r"HtoD|DtoH|Host|Pageable|Pinned", re.IGNORECASE)
_CHOSEN = "scaled by the ratio of peaks; the share of them that is achieved is taken as the same"
_GUESSED = "what binds it was told from its name; " + _CHOSEN
_KEPT = "not known what binds it, so kept as it is"
_HOST = "a copy to or from the host does not depend on these numbers, so kept as it is"
_SHAPE = ["m_count", "n_count", "k_count"]


def scaled_kernel_times(
    kernels: pd.DataFrame,
    from_gpu: str,
    to_gpu: str,
    *,
    dtype: str = "bfloat16",
    crosses_nodes: bool = False,
) -> pd.DataFrame:
    """Scale measured kernel times from one GPU to another.

    Parameters
    ----------
    kernels
        Kernels with ``name`` and ``kind``, e.g. :data:`workbench.tables.KERNELS`, or measured
        products or collectives (:data:`workbench.tables.GEMM_TIMES`,
        :data:`workbench.tables.COLLECTIVE_TIMES`); times are in ``dur_ns`` or ``total_ns``.
    from_gpu
        GPU they were measured on, as the hardware table calls it.
    to_gpu
        GPU that is asked about.
    dtype
        Element type of matrix products whose rows do not tell it.
    crosses_nodes
        Whether collectives that do not tell it are bound by the network between nodes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SCALED_TIMES`: ``gpu``, ``bound``, ``time_ratio``,
        ``scaled_ns``, ``basis``, ``doubt``, beside the columns of ``kernels``, in the same
        order.

    Raises
    ------
    PerformanceModelError
        If a GPU or type is not known, a needed column is missing, or rows are of another GPU.

    Notes
    -----
    Compute-bound (matrix products, attention, convolutions): ratio of dense peaks; a product
    with its shape by the ratio of its rooflines. Other compute and copies on the GPU: ratio of
    memory bandwidths. Communication: ratio of links, or of networks. What is none of these is
    kept. Latencies do not scale, so short kernels change less than this says.
    """
    here, there = gpu_row(from_gpu), gpu_row(to_gpu)
    time = next((name for name in ("dur_ns", "total_ns") if name in kernels), None)
    if time is None:
        msg = f"kernels lack a time, dur_ns or total_ns; they have {list(kernels)[:20]}"
        raise PerformanceModelError(msg)
    _refuse_others(kernels, from_gpu)
    bound, doubt = _bounds(kernels)
    ratio = np.ones(len(kernels))
    memory = float(here["memory_bytes_per_s"] / there["memory_bytes_per_s"])
    ratio[bound == "memory"] = memory
    computes = bound == "compute"
    if computes.any():
        if set(_SHAPE) <= set(kernels):
            ratio, bound = _by_roofline(kernels, from_gpu, to_gpu, dtype)
        else:
            ratio[computes] = peak_of(from_gpu, dtype) / peak_of(to_gpu, dtype)
    network = np.full(len(kernels), crosses_nodes)
    if "node_count" in kernels:
        network = kernels["node_count"].to_numpy() > 1
    for crosses, column in ((False, "link_bytes_per_s"), (True, "network_bytes_per_s")):
        ratio[(bound == "communication") & (network == crosses)] = float(
            here[column] / there[column]
        )
    added = pd.DataFrame(
        {
            "gpu": to_gpu,
            "bound": bound,
            "time_ratio": ratio,
            "scaled_ns": np.rint(kernels[time].to_numpy(dtype=np.float64) * ratio),
            "basis": "scaled",
            "doubt": doubt,
        }
    )
    added = SCALED_TIMES.cast(added)
    kept = kernels.drop(columns=list(added), errors="ignore").reset_index(drop=True)
    return SCALED_TIMES.check(pd.concat([kept, added], axis=1))


def _bounds(kernels: pd.DataFrame) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Say what binds each kernel, and how sure that is."""
    size = len(kernels)
    if set(_SHAPE) <= set(kernels):
        return np.full(size, "compute", dtype=object), np.full(size, _CHOSEN, dtype=object)
    if "collective" in kernels and "size_bytes" in kernels:
        return np.full(size, "communication", dtype=object), np.full(size, _CHOSEN, dtype=object)
    if missing := [name for name in ("name", "kind") if name not in kernels]:
        msg = f"kernels lack {missing}; pass a table of kernels, products or collectives"
        raise PerformanceModelError(msg)
    kind = kernels["kind"].astype(object).to_numpy()
    names = kernels["name"].astype(str)
    heavy = names.str.contains(_COMPUTE_BOUND).to_numpy(dtype=bool)
    host = (kind == "memory") & names.str.contains(_HOST_COPY).to_numpy(dtype=bool)
    choices = [
        (kind == "compute") & heavy,
        ((kind == "compute") & ~heavy) | ((kind == "memory") & ~host),
        kind == "communication",
    ]
    bound = np.select(choices, ["compute", "memory", "communication"], "other").astype(object)
    doubt = np.where(host, _HOST, np.where(bound == "other", _KEPT, _GUESSED)).astype(object)
    return bound, doubt


def _by_roofline(
    kernels: pd.DataFrame, from_gpu: str, to_gpu: str, dtype: str
) -> tuple[NDArray[np.float64], NDArray[np.object_]]:
    ratio = np.ones(len(kernels))
    bound = np.full(len(kernels), "compute", dtype=object)
    types = kernels["dtype"].astype(str) if "dtype" in kernels else None
    names = pd.Series(dtype, index=kernels.index) if types is None else types
    for name in names.unique():
        mine = (names == name).to_numpy()
        shapes = kernels.loc[mine, _SHAPE].to_numpy(dtype=np.float64)
        here, there = Roof.of(from_gpu, str(name)), Roof.of(to_gpu, str(name))
        ratio[mine] = there.seconds(shapes) / here.seconds(shapes)
        flops, moved = there.parts(shapes)
        memory = moved / there.bytes_per_s > flops / there.peak_flop_per_s
        bound[mine] = np.where(memory, "memory", "compute")
    return ratio, bound


def _refuse_others(kernels: pd.DataFrame, from_gpu: str) -> None:
    if "gpu" in kernels and (odd := sorted(set(kernels["gpu"].astype(str)) - {from_gpu})):
        msg = f"rows were measured on {odd}, not on {from_gpu!r}; choose those of one GPU first"
        raise PerformanceModelError(msg)


# Whether a point lies among those that a model was fitted on.

_SLACK = 1e-9


@dataclass(frozen=True)
class Hull:
    """Half spaces whose intersection holds all points: the convex hull, or the box around it."""

    normals: NDArray[np.float64]
    offsets: NDArray[np.float64]

    @staticmethod
    def of(points: NDArray[np.float64]) -> Hull:
        """Make the hull of some points; where they lie in a plane, the box around them."""
        from scipy.spatial import ConvexHull, QhullError

        unit = np.eye(points.shape[1])
        normals = np.vstack([unit, -unit])
        offsets = -np.concatenate([points.max(axis=0), -points.min(axis=0)])
        try:
            equations = ConvexHull(points).equations
        except (QhullError, ValueError):
            return Hull(normals, offsets)
        return Hull(
            np.vstack([normals, equations[:, :-1]]), np.concatenate([offsets, equations[:, -1]])
        )

    def holds(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Say for each point whether it is inside."""
        beyond = points @ self.normals.T + self.offsets > _SLACK
        return np.asarray(~beyond.any(axis=1), dtype=np.bool_)
