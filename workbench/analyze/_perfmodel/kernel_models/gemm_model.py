"""Times of matrix products that were never measured, from those that were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._perfmodel.kernel_models.gemm_fit import (
    Floats,
    Hybrid,
    Roof,
    fit_hybrid,
    folds,
    groups,
)
from workbench.errors import PerformanceModelError
from workbench.tables import GEMM_TIMES, KERNEL_MODEL_ERRORS, PREDICTED_TIMES

SHAPE = ["m_count", "n_count", "k_count"]
_LEAST_ROWS, _LEAST_GROUPS = 8, 10
_NO_TREES = "scikit-learn is not installed, so the formula stands alone; pip install '.[kernels]'"
_FEW = "too few different (n, k) to hold some out; the interval is that of the fitted rows"
_OUTSIDE = "outside the measured shapes: the formula alone, with its largest error held out"


@dataclass(frozen=True)
class _Part:
    """The model of one GPU and element type."""

    hybrid: Hybrid
    measured: pd.Series
    inside_log: float
    outside_log: float
    doubt: str


@dataclass(frozen=True)
class GemmModel:
    """Models of matrix products by GPU and element type; made by :func:`gemm_model`.

    Attributes
    ----------
    coverage_share : float
        Share of shapes whose time the interval is meant to hold.
    """

    coverage_share: float
    _parts: Mapping[tuple[str, str], _Part]

    def parameters(self) -> dict[tuple[str, str], dict[str, float]]:
        """Give the fitted shares of both peaks and the launch time by GPU and type."""
        return {
            key: {
                "compute_share": part.hybrid.formula.compute_share,
                "memory_share": part.hybrid.formula.memory_share,
                "launch_ns": part.hybrid.formula.launch_s * 1e9,
            }
            for key, part in self._parts.items()
        }

    def predict(self, shapes: pd.DataFrame) -> pd.DataFrame:
        """Predict times; the same as :func:`predicted_gemm_times`."""
        return predicted_gemm_times(self, shapes)


def gemm_model(times: pd.DataFrame, *, coverage_share: float = 0.9) -> GemmModel:
    """Fit the time of matrix products: physics first, trees on what it misses.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.GEMM_TIMES`; each GPU and element type is fitted alone.
    coverage_share
        Share of new shapes that the interval should hold, above 0 and below 1.

    Returns
    -------
    GemmModel
        Its ``predict`` takes a frame with ``gpu``, ``dtype``, ``m_count``, ``n_count`` and
        ``k_count``.

    Raises
    ------
    PerformanceModelError
        If there are too few rows, or a GPU or type is not in the hardware table.

    Notes
    -----
    ``T = max(2mnk / (peak e), bytes / (bandwidth b)) + l``; e, b and l by soft-L1 of the log
    ratio. 200 extra trees (at least 2 rows per leaf) are fitted to the log of measured over T;
    they see log m, n, k, FLOPs, bytes, roofline, intensity and the waves of tiles of 128 x 256
    over the multiprocessors. Intervals are split conformal: a fifth of the different (n, k) is
    held out of the fit, and the quantile of ``|log measured / predicted|`` there is the half
    width. Outside the convex hull of log m, n, k the formula stands alone, since trees repeat
    what they saw last; its half width is the formula's largest error held out.

    Without scikit-learn only the formula is fitted, which ``doubt`` says.

    References
    ----------
    Lei et al.: Distribution-Free Predictive Inference for Regression, JASA 2018 (split
    conformal). Geurts et al.: Extremely randomized trees, Machine Learning 63, 2006.
    """
    GEMM_TIMES.check(times)
    if not 0 < coverage_share < 1:
        msg = f"coverage_share is {coverage_share}; it must be above 0 and below 1, e.g. 0.9"
        raise PerformanceModelError(msg)
    parts = {
        (str(gpu), str(dtype)): _part(str(gpu), str(dtype), rows, coverage_share)
        for (gpu, dtype), rows in times.groupby(["gpu", "dtype"], observed=True)
    }
    if not parts:
        msg = "no measured matrix products to fit; load some with load.gemm_times()"
        raise PerformanceModelError(msg)
    return GemmModel(coverage_share, MappingProxyType(parts))


def predicted_gemm_times(model: GemmModel, shapes: pd.DataFrame) -> pd.DataFrame:
    """Predict the times of matrix products, with interval and basis.

    Parameters
    ----------
    model
        What :func:`gemm_model` returns.
    shapes
        Frame with ``gpu``, ``dtype``, ``m_count``, ``n_count``, ``k_count``; other columns
        are kept.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PREDICTED_TIMES` beside the columns of ``shapes``. A
        shape that was measured keeps its measured median, with the interval of the model.

    Raises
    ------
    PerformanceModelError
        If a column is missing, a dimension is no whole number above 0, or the GPU or type was
        not fitted.
    """
    _check_shapes(shapes)
    result = shapes.drop(columns=[name for name in PREDICTED_TIMES.columns if name != "gpu"],
                         errors="ignore").reset_index(drop=True)  # fmt: skip
    found: list[pd.DataFrame] = []
    for (gpu, dtype), rows in result.groupby(["gpu", "dtype"], sort=False, observed=True):
        part = model._parts.get((str(gpu), str(dtype)))
        if part is None:
            msg = f"{dtype} on {gpu} was not fitted; the model knows {sorted(model._parts)}"
            raise PerformanceModelError(msg)
        found.append(_predicted(part, rows))
    if not found:
        return pd.concat([result.drop(columns="gpu"), PREDICTED_TIMES.empty()], axis=1)
    result = pd.concat([result, pd.concat(found).sort_index()], axis=1)
    return PREDICTED_TIMES.check(result)


def _part(gpu: str, dtype: str, rows: pd.DataFrame, coverage: float) -> _Part:
    roof = Roof.of(gpu, dtype)
    measured = rows.groupby(SHAPE)["dur_ns"].median()
    if len(measured) < _LEAST_ROWS:
        msg = f"{dtype} on {gpu}: {len(measured)} shapes are too few to fit; {_LEAST_ROWS} needed"
        raise PerformanceModelError(msg)
    shapes = np.array(measured.index.to_list(), dtype=np.float64)
    seconds = measured.to_numpy(dtype=np.float64) / 1e9
    held = folds(shapes, 5) == 0
    few = int(groups(shapes).max()) + 1 < _LEAST_GROUPS
    kept = np.ones_like(held) if few else ~held
    tried = kept if few else held
    hybrid = fit_hybrid(roof, shapes[kept], seconds[kept])
    error = np.abs(np.log(seconds[tried] / hybrid.seconds(shapes[tried])))
    formula = np.abs(np.log(seconds[tried] / hybrid.formula.seconds(shapes[tried])))
    rank = min(np.ceil((len(error) + 1) * coverage) / len(error), 1.0)
    doubts = [_FEW] if few else []
    doubts += [_NO_TREES] if hybrid.forest is None else []
    inside = float(np.quantile(error, rank, method="higher"))
    outside = max(float(formula.max()), inside)
    return _Part(hybrid, measured, inside, outside, "; ".join(doubts))


def _predicted(part: _Part, rows: pd.DataFrame) -> pd.DataFrame:
    shapes = rows[SHAPE].to_numpy(dtype=np.float64)
    analytic = part.hybrid.formula.seconds(shapes) * 1e9
    inside = part.hybrid.inside(shapes)
    modelled = part.hybrid.seconds(shapes) * 1e9
    keys = pd.MultiIndex.from_frame(rows[SHAPE].astype("int64"))
    known = part.measured.reindex(keys).to_numpy(dtype=np.float64)
    is_known = ~np.isnan(known)
    width = np.exp(np.where(inside | is_known, part.inside_log, part.outside_log))
    time = np.where(is_known, known, modelled)
    doubt = np.where(inside | is_known, part.doubt, "; ".join(filter(None, [_OUTSIDE, part.doubt])))
    return pd.DataFrame(
        {
            "dur_ns": _whole(time),
            "low_ns": _whole(np.floor(time / width)),
            "high_ns": _whole(np.ceil(time * width)),
            "analytic_ns": _whole(analytic),
            "basis": np.where(is_known, "measured", np.where(inside, "fitted", "extrapolated")),
            "doubt": doubt,
        },
        index=rows.index,
    )


def _whole(values: Floats) -> NDArray[np.int64]:
    return np.maximum(np.rint(values), 1).astype(np.int64)


def _check_shapes(shapes: Any) -> None:
    needed = ["gpu", "dtype", *SHAPE]
    if missing := [name for name in needed if name not in shapes]:
        msg = f"shapes lack {missing}; a matrix product is told by {needed}"
        raise PerformanceModelError(msg)
    for name in SHAPE:
        numbers = pd.to_numeric(shapes[name], errors="coerce").to_numpy(dtype=np.float64)
        bad = ~(np.isfinite(numbers) & (numbers >= 1) & (numbers == np.floor(numbers)))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            value = shapes[name].iloc[[row]].tolist()[0]
            msg = f"{name} is {value!r} in row {row}; it must be a whole number above 0"
            raise PerformanceModelError(msg)


# How wrong the models of matrix products are on what they were not fitted on.

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
        Table :data:`workbench.tables.GEMM_TIMES`.
    leave_out
        ``"n,k"``: every (n, k) is predicted from other (n, k) alone, in folds;
        ``"largest"``: the tenth with most FLOPs is predicted from the smaller ones.
    fold_count
        Folds of ``"n,k"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.KERNEL_MODEL_ERRORS`: per GPU, type, model (roofline,
        analytic, hybrid) and class of shapes (all, training, one per decade of FLOPs). Without
        scikit-learn there is no hybrid.

    Raises
    ------
    PerformanceModelError
        If there are too few shapes to hold some out, or the keyword is not known.

    Notes
    -----
    The error of a shape is ``|predicted / measured - 1|``; times measured more than once count
    as their median. As in :func:`gemm_model`, outside the shapes it was fitted on the hybrid is
    the formula. All shapes of an (n, k) are held out together: with m alone dropped its
    neighbours would tell the answer.
    """
    GEMM_TIMES.check(times)
    if leave_out not in ("n,k", "largest") or fold_count < 2:
        msg = f"leave_out={leave_out!r} must be 'n,k' or 'largest', fold_count={fold_count} >= 2"
        raise PerformanceModelError(msg)
    found: list[dict[str, object]] = []
    for (gpu, dtype), rows in times.groupby(["gpu", "dtype"], observed=True):
        measured = rows.groupby(SHAPE)["dur_ns"].median()
        shapes = np.array(measured.index.to_list(), dtype=np.float64)
        if int(groups(shapes).max()) + 1 < max(fold_count, 3):
            msg = f"{dtype} on {gpu}: too few different (n, k) to hold any out"
            raise PerformanceModelError(msg)
        seconds = measured.to_numpy(dtype=np.float64) / 1e9
        predicted, tried = _held_out(Roof.of(str(gpu), str(dtype)), shapes, seconds,
                                     leave_out=leave_out, fold_count=fold_count)  # fmt: skip
        said = (
            f"(n, k) in {fold_count} folds"
            if leave_out == "n,k"
            else f"largest {_LARGEST_SHARE:.0%} by FLOPs"
        )
        key = {"gpu": str(gpu), "dtype": str(dtype), "held_out": said}
        found.extend(_rows(key, shapes[tried], seconds[tried], predicted))
    if not found:
        return KERNEL_MODEL_ERRORS.empty()
    return KERNEL_MODEL_ERRORS.check(KERNEL_MODEL_ERRORS.cast(pd.DataFrame(found)))


def _held_out(
    roof: Roof, shapes: Floats, seconds: Floats, *, leave_out: LeaveOut, fold_count: int
) -> tuple[dict[str, Floats], NDArray[np.bool_]]:
    """Predict by each model what its fit did not see."""
    if leave_out == "n,k":
        fold, tried = folds(shapes, fold_count), np.ones(len(shapes), dtype=bool)
    else:
        flops = 2 * shapes.prod(axis=1)
        fold = np.where(flops >= np.quantile(flops, 1 - _LARGEST_SHARE), 0, -1)
        tried = fold == 0
    analytic, hybrid = np.full(len(shapes), np.nan), np.full(len(shapes), np.nan)
    for number in range(int(fold.max()) + 1):
        out = fold == number
        model = fit_hybrid(roof, shapes[~out], seconds[~out])
        analytic[out] = model.formula.seconds(shapes[out])
        if model.forest is not None:
            hybrid[out] = model.seconds(shapes[out])
    models = {"roofline": roof.seconds(shapes), "analytic": analytic, "hybrid": hybrid}
    found = {name: values[tried] for name, values in models.items()}
    return {name: values for name, values in found.items() if not np.isnan(values).any()}, tried


def _rows(
    key: dict[str, str], shapes: Floats, seconds: Floats, predicted: dict[str, Floats]
) -> list[dict[str, object]]:
    flops = 2 * shapes.prod(axis=1)
    decade = np.floor(np.log10(flops)).astype(int)
    classes: dict[str, NDArray[np.bool_]] = {"all": np.ones(len(shapes), dtype=np.bool_)}
    classes["training"] = np.asarray((shapes >= _TRAINING_LEAST).all(axis=1), dtype=np.bool_)
    for power in np.unique(decade):
        classes[f"1e{power} to 1e{power + 1} FLOPs"] = decade == power
    found: list[dict[str, object]] = []
    for model, values in predicted.items():
        error = np.abs(values / seconds - 1)
        for name, chosen in classes.items():
            if chosen.any():
                mine = error[chosen]
                found.append(
                    {
                        **key,
                        "model": model,
                        "shapes": name,
                        "row_count": len(mine),
                        "flop_count": float(np.median(flops[chosen])),
                        "mean_ratio": float(mine.mean()),
                        "median_ratio": float(np.median(mine)),
                        "max_ratio": float(mine.max()),
                    }
                )
    return found
