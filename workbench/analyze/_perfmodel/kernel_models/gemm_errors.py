"""How wrong the models of matrix products are on what they were not fitted on."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._perfmodel.kernel_models.gemm_fit import (
    Floats,
    Roof,
    fit_hybrid,
    folds,
    groups,
)
from workbench.analyze._perfmodel.kernel_models.gemm_model import SHAPE
from workbench.errors import PerformanceModelError
from workbench.tables import GEMM_TIMES, KERNEL_MODEL_ERRORS

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
    the formula. All shapes of an (n, k) are held out together: with m alone left out its
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
