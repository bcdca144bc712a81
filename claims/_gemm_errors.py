"""Times of matrix products that were never measured, from those that were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from claims._tables import GEMM_TIMES, KERNEL_MODEL_ERRORS
from workbench._shared.numbers import Floats
from workbench.analyze._perfmodel.kernel_models.hardware import (
    DTYPES,
    gpu_row,
    peak_of,
)
from workbench.errors import PerformanceModelError

SHAPE = ["m_count", "n_count", "k_count"]


_TRAINING_LEAST = 1024
_LARGEST_SHARE = 0.1
LeaveOut = Literal["n,k", "largest"]


def gemm_errors(
    times: pd.DataFrame, *, leave_out: LeaveOut = "n,k", fold_count: int = 4
) -> pd.DataFrame:
    """Predict matrix products that were held out, and compare with the roofline alone.

    Parameters
    ----------
    times
        Table :data:`claims._tables.GEMM_TIMES`.
    leave_out
        ``"n,k"``: every (n, k) is predicted from other (n, k) alone, in folds;
        ``"largest"``: the tenth with most FLOPs is predicted from the smaller ones.
    fold_count
        Folds of ``"n,k"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.KERNEL_MODEL_ERRORS`: per GPU, type, model (roofline,
        analytic, hybrid) and class of shapes (all, training, one per decade of FLOPs). Without
        scikit-learn there is no hybrid.

    Raises
    ------
    PerformanceModelError
        If there are too few shapes to hold some out, or the keyword is not known.

    Notes
    -----
    The error of a shape is ``|predicted / measured - 1|``; times measured more than once count
    as their median. All shapes of an (n, k) are held out together: with m alone dropped its
    neighbours would tell the answer.
    """
    GEMM_TIMES.check(times)
    if leave_out not in ("n,k", "largest") or fold_count < 2:
        msg = f"leave_out={leave_out!r} must be 'n,k' or 'largest', fold_count={fold_count} >= 2"
        raise PerformanceModelError(msg)
    errors: list[dict[str, object]] = []
    for (gpu, dtype), rows in times.groupby(["gpu", "dtype"], observed=True):
        measured = rows.groupby(SHAPE)["dur_ns"].median()
        shapes = np.array(measured.index.to_list(), dtype=np.float64)
        if int(groups(shapes).max()) + 1 < max(fold_count, 3):
            msg = f"{dtype} on {gpu}: too few different (n, k) to hold any out"
            raise PerformanceModelError(msg)
        seconds = measured.to_numpy(dtype=np.float64) / 1e9
        if leave_out == "n,k":
            fold, words = folds(shapes, fold_count), f"(n, k) in {fold_count} folds"
        else:
            flops = 2 * shapes.prod(axis=1)
            fold = np.where(flops >= np.quantile(flops, 1 - _LARGEST_SHARE), 0, -1)
            words = f"largest {_LARGEST_SHARE:.0%} by FLOPs"
        predicted = _held_out(Roof.of(str(gpu), str(dtype)), shapes, seconds, fold)
        key = {"gpu": str(gpu), "dtype": str(dtype), "held_out": words}
        errors.extend(_error_rows(key, shapes[fold >= 0], seconds[fold >= 0], predicted))
    return KERNEL_MODEL_ERRORS.of(errors)


def _held_out(
    roof: Roof, shapes: Floats, seconds: Floats, fold: NDArray[np.int64]
) -> dict[str, Floats]:
    """Predict each fold by every model fitted to the others; fold -1 is only fitted."""
    analytic, hybrid = np.full(len(shapes), np.nan), np.full(len(shapes), np.nan)
    for number in range(int(fold.max()) + 1):
        out = fold == number
        model = fit_hybrid(roof, shapes[~out], seconds[~out])
        analytic[out] = model.formula.seconds(shapes[out])
        if model.forest is not None:
            hybrid[out] = model.seconds(shapes[out])
    models = {"roofline": roof.seconds(shapes), "analytic": analytic, "hybrid": hybrid}
    judged = {name: values[fold >= 0] for name, values in models.items()}
    return {name: values for name, values in judged.items() if not np.isnan(values).any()}


def _error_rows(
    key: dict[str, str], shapes: Floats, seconds: Floats, predicted: dict[str, Floats]
) -> list[dict[str, object]]:
    flops = 2 * shapes.prod(axis=1)
    # Errors by work: small products are bound by launches, large ones by the peak.
    decade = np.floor(np.log10(flops)).astype(int)
    classes = {
        "all": np.ones(len(shapes), dtype=np.bool_),
        "training": np.asarray((shapes >= _TRAINING_LEAST).all(axis=1), dtype=np.bool_),
    }
    for power in np.unique(decade):
        classes[f"1e{power} to 1e{power + 1} FLOPs"] = decade == power
    errors = {model: np.abs(values / seconds - 1) for model, values in predicted.items()}
    return [
        {
            **key,
            "model": model,
            "shapes": name,
            "row_count": int(chosen.sum()),
            "flop_count": float(np.median(flops[chosen])),
            "mean_ratio": float(error[chosen].mean()),
            "median_ratio": float(np.median(error[chosen])),
            "max_ratio": float(error[chosen].max()),
        }
        for model, error in errors.items()
        for name, chosen in classes.items()
        if chosen.any()
    ]


# The formula of a time, the trees on what it misses, and the hull of what was fitted.

_TILE_M, _TILE_N = 128, 256
_TREES, _LEAF, _FEATURE_SHARE = 100, 2, 0.5
_SLACK = 1e-9


@dataclass(frozen=True)
class Roof:
    """Bounds of a matrix product: a peak, a bandwidth, and the bytes of its elements."""

    peak_flop_per_s: float
    bytes_per_s: float
    multiprocessors: int
    element_bytes: tuple[float, float, float]

    @staticmethod
    def of(gpu: str, dtype: str) -> Roof:
        row, peak = gpu_row(gpu), peak_of(gpu, dtype)
        units, bandwidth = int(row["multiprocessor_count"]), float(row["memory_bytes_per_s"])
        return Roof(peak, bandwidth, units, DTYPES[dtype][:3])

    def parts(self, shapes: Floats) -> tuple[Floats, Floats]:
        m, n, k = shapes.T
        left, right, out = self.element_bytes
        return 2 * m * n * k, left * m * k + right * k * n + out * m * n

    def seconds(self, shapes: Floats) -> Floats:
        """Return the time at both peaks, which nothing can be faster than."""
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
        """Return the time of each shape."""
        flops, moved = self.roof.parts(shapes)
        compute = flops / (self.roof.peak_flop_per_s * self.compute_share)
        memory = moved / (self.roof.bytes_per_s * self.memory_share)
        return np.maximum(compute, memory) + self.launch_s


def fit_formula(roof: Roof, shapes: Floats, seconds: Floats) -> Formula:
    """Fit e, b and l by soft-L1 of the log ratio."""
    from scipy.optimize import least_squares

    def residual(logs: Floats) -> Floats:
        return np.log(Formula(roof, *np.exp(logs)).seconds(shapes) / seconds)

    # A launch takes about 3 µs; starting above the shortest time would leave no room to descend.
    start = np.log([0.7, 0.7, min(3e-6, float(seconds.min()))])
    fit = least_squares(residual, start, loss="soft_l1", f_scale=0.1)
    return Formula(roof, *np.exp(fit.x).tolist())


def features(roof: Roof, shapes: Floats) -> NDArray[np.float32]:
    m, n, _ = shapes.T
    flops, moved = roof.parts(shapes)
    waves = np.ceil(m / _TILE_M) * np.ceil(n / _TILE_N) / roof.multiprocessors
    # The last wave of tiles rarely fills the GPU, which no roofline knows.
    return np.column_stack(
        [
            np.log(shapes),
            np.log([flops, moved, roof.seconds(shapes), flops / moved]).T,
            np.array([waves, waves - np.floor(waves), np.ceil(waves) / waves]).T,
        ]
    ).astype(np.float32)


@dataclass(frozen=True)
class Hybrid:
    """The formula, and inside the fitted shapes trees for the log of what it misses."""

    formula: Formula
    forest: Any
    hull: Hull

    def seconds(self, shapes: Floats) -> Floats:
        """Return the time of each shape; trees repeat what they saw last, so not outside."""
        analytic = self.formula.seconds(shapes)
        inside = self.inside(shapes)
        if self.forest is None or not inside.any():
            return analytic
        learned = np.zeros(len(shapes))
        learned[inside] = self.forest.predict(features(self.formula.roof, shapes[inside]))
        return np.asarray(analytic * np.exp(learned))

    def inside(self, shapes: Floats) -> NDArray[np.bool_]:
        return self.hull.holds(np.log(shapes))


def fit_hybrid(roof: Roof, shapes: Floats, seconds: Floats) -> Hybrid:
    """Fit the formula, then the trees, where installed, on the log of measured over formula."""
    formula, hull = fit_formula(roof, shapes, seconds), Hull.of(np.log(shapes))
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError:
        return Hybrid(formula, None, hull)
    forest = ExtraTreesRegressor(
        _TREES, min_samples_leaf=_LEAF, max_features=_FEATURE_SHARE, random_state=0, n_jobs=-1
    )
    missed = np.log(seconds / formula.seconds(shapes))
    return Hybrid(formula, forest.fit(features(roof, shapes), missed), hull)


def groups(shapes: Floats) -> NDArray[np.int64]:
    return pd.factorize(pd.MultiIndex.from_arrays([shapes[:, 1], shapes[:, 2]]))[0].astype(np.int64)


def folds(shapes: Floats, count: int) -> NDArray[np.int64]:
    """Put every shape into one of some folds; those of one (n, k) stay together."""
    group = groups(shapes)
    # Whole (n, k) at a time: with m alone held out, its neighbours would tell the answer.
    shuffled = np.random.default_rng(0).permutation(int(group.max()) + 1) % count
    return shuffled[group].astype(np.int64)


@dataclass(frozen=True)
class Hull:
    """Half spaces whose intersection holds all points: the convex hull, or the box around it."""

    normals: NDArray[np.float64]
    offsets: NDArray[np.float64]

    @staticmethod
    def of(points: NDArray[np.float64]) -> Hull:
        from scipy.spatial import ConvexHull, QhullError

        unit = np.eye(points.shape[1])
        normals = np.vstack([unit, -unit])
        offsets = -np.concatenate([points.max(axis=0), -points.min(axis=0)])
        try:
            equations = ConvexHull(points).equations
        # Too few shapes, or all in one plane, have no hull.
        except (QhullError, ValueError):
            return Hull(normals, offsets)
        return Hull(
            np.vstack([normals, equations[:, :-1]]), np.concatenate([offsets, equations[:, -1]])
        )

    def holds(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        beyond = points @ self.normals.T + self.offsets > _SLACK
        return np.asarray(~beyond.any(axis=1), dtype=np.bool_)
