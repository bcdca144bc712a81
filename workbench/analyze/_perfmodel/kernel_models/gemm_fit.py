"""The formula of a matrix product's time, and what trees learn of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._perfmodel.kernel_models.hardware import DTYPES, gpu_row, peak_of
from workbench.analyze._perfmodel.kernel_models.shape_hull import Hull

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
