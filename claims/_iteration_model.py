"""A model of iteration times that is fitted to many measured ones, with trees on what is left."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench._shared.numbers import share_between
from workbench.analyze._perfmodel.layouts.closed_form import Array, Columns, Constants, columns
from workbench.analyze._perfmodel.layouts.iteration_model import (
    Hull,
    IterationModel,
    constants_of,
    features,
    refuse_contradictions,
    seconds_of,
)
from workbench.analyze._perfmodel.layouts.model_shape import GpuType
from workbench.errors import MissingExtraError, PerformanceModelError
from workbench.tables import ITERATIONS

Residual = Literal["auto", "trees", "none"]
Mask = npt.NDArray[np.bool_]
_LEAST_ROWS = 12
_CALIBRATION_SHARE = 0.2


def iteration_model(
    measured: pd.DataFrame,
    *,
    residual: Residual = "auto",
    coverage_share: float = 0.9,
    groups: str | None = None,
    gpus: Mapping[str, GpuType] | None = None,
) -> IterationModel:
    """Fit a model of iteration times to measured ones.

    Physics first, learning on what it leaves: a closed form with twelve constants, then trees
    on the logarithm of measured over predicted.

    Parameters
    ----------
    measured
        Table :data:`workbench.tables.ITERATIONS`; at least 12 rows.
    residual
        ``"trees"`` needs scikit-learn (the extra ``train``), ``"none"`` is the closed form
        alone, ``"auto"`` takes trees where they are installed and says in ``doubt`` if not.
    coverage_share
        Share of new rows that the intervals shall hold.
    groups
        Column whose equal values stay together when rows are set apart for the intervals.
    gpus
        Kinds of GPUs by name that the package does not know, or knows otherwise.

    Returns
    -------
    IterationModel
        Has ``predict(configurations)``.

    Raises
    ------
    PerformanceModelError
        If there are too few rows, a row contradicts itself (its ``doubt`` names more than a
        repetition), or ``groups`` is not a column.
    MissingExtraError
        If ``residual="trees"`` and scikit-learn is not installed.

    Notes
    -----
    The closed form is that of :func:`workbench.analyze.assumed_model`. The logarithms of its
    twelve constants are fitted by soft-L1 least squares on the logarithm of the time, each drawn
    weakly towards what is assumed without data, no share beyond 1.

    The interval is split-conformal: a fifth of the rows, always the same, is predicted by a
    model of the others; their errors' quantile is its half-width. It holds for rows like the
    measured ones; outside them the largest of these errors is taken, without any promise.

    References
    ----------
    arXiv:1604.04173 (split conformal).
    """
    _check(measured, groups)
    share_between("coverage_share", coverage_share)
    grow = residual == "trees" or (residual == "auto" and has_trees())
    constants, learned = _fit(measured, gpus, grow=grow)
    # Split conformal: the interval comes from rows that its model has not seen.
    inner, outer = _split(measured, groups)
    scores, analytic = _scores(measured[inner], measured[outer], gpus, grow=grow)
    # The + 1 counts the new row itself: this is what makes the coverage exact.
    rank = math.ceil((len(scores) + 1) * coverage_share)
    enough = 0 < rank <= len(scores)
    doubts = [] if grow or residual == "none" else ["without scikit-learn: closed form only"]
    doubts += [] if enough else ["too few rows for an interval"]
    return IterationModel(
        constants,
        doubt="; ".join(doubts),
        coverage_share=coverage_share,
        _trees=learned,
        _hull=Hull.around(measured),
        _half_width=float(np.sort(scores)[rank - 1]) if enough else math.nan,
        _half_width_outside=float(max(scores.max(), analytic.max())) if enough else math.nan,
    )


def _check(measured: pd.DataFrame, groups: str | None) -> None:
    ITERATIONS.check(measured)
    if len(measured) < _LEAST_ROWS:
        msg = f"{len(measured)} measured rows are too few to fit twelve constants; at least "
        msg += f"{_LEAST_ROWS} are needed, or calibrated_to(assumed_model(), rows)"
        raise PerformanceModelError(msg)
    if groups is not None and groups not in measured:
        msg = f"groups={groups!r} is not a column of the table; it has {list(measured.columns)}"
        raise PerformanceModelError(msg)
    refuse_contradictions(measured)


def _fit(
    measured: pd.DataFrame, gpus: Mapping[str, GpuType] | None, *, grow: bool
) -> tuple[Constants, Any]:
    constants = constants_of(measured, gpus, start=Constants())
    if not grow:
        return constants, None
    c = columns(measured, gpus)
    logarithms = np.log(measured["dur_ns"].to_numpy(dtype=np.float64) / 1e9)
    return constants, trees(c, logarithms - np.log(seconds_of(c, constants)))


def _split(measured: pd.DataFrame, groups: str | None) -> tuple[Mask, Mask]:
    """Set a fifth apart, whole groups, the same for the same rows; give two masks."""
    labels = np.arange(len(measured)) if groups is None else pd.factorize(measured[groups])[0]
    # A fixed seed: the same rows give the same interval.
    order = np.random.default_rng(0).permutation(int(labels.max()) + 1)
    apart = np.isin(labels, order[: max(round(_CALIBRATION_SHARE * len(order)), 1)])
    return ~apart, apart


def _scores(
    inner: pd.DataFrame, outer: pd.DataFrame, gpus: Mapping[str, GpuType] | None, *, grow: bool
) -> tuple[Array, Array]:
    if inner.empty:
        return np.zeros(0), np.zeros(0)
    constants, learned = _fit(inner, gpus, grow=grow)
    c = columns(outer, gpus)
    left = np.log(outer["dur_ns"].to_numpy(dtype=np.float64) / 1e9 / seconds_of(c, constants))
    learned_log = learned.predict(features(c)) if learned is not None else 0.0
    return np.abs(left - learned_log), np.abs(left)


_TREES = 400


def has_trees() -> bool:
    return importlib.util.find_spec("sklearn") is not None


def trees(c: Columns, logarithms: npt.NDArray[np.float64]) -> Any:
    """Grow the trees; the same rows give the same trees."""
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError as error:
        msg = "scikit-learn is not installed: pip install 'ai-infra-workbench[train]', or choose "
        raise MissingExtraError(msg + "residual='none' for the closed form alone") from error
    return ExtraTreesRegressor(_TREES, random_state=0).fit(features(c), logarithms)
