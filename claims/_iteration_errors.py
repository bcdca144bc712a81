"""How far predicted iteration times lie from measured ones, on rows a model has not seen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from claims._closed_form import in_words
from claims._iteration_model import Residual, iteration_model
from claims._tables import ITERATION_ERRORS
from workbench._shared.numbers import whole_number
from workbench.analyze._perfmodel.layouts.model_shape import GpuType
from workbench.errors import PerformanceModelError
from workbench.tables import ITERATIONS, PREDICTED_ITERATIONS


def iteration_errors(
    measured: pd.DataFrame, predicted: pd.DataFrame, *, group: str = "all"
) -> pd.DataFrame:
    """Put predicted beside measured iteration times.

    Parameters
    ----------
    measured
        Table :data:`workbench.tables.ITERATIONS`.
    predicted
        Table :data:`workbench.tables.PREDICTED_ITERATIONS` of the same configurations, in
        the same order.
    group
        What the rows belong to.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.ITERATION_ERRORS`, in the same order.

    Raises
    ------
    PerformanceModelError
        If the tables differ in length or order.
    """
    ITERATIONS.check(measured)
    PREDICTED_ITERATIONS.check(predicted)
    same = ["gpu_count", "tensor_parallel", "pipeline_parallel", "hidden", "global_batch_count"]
    if (
        len(measured) != len(predicted)
        or (measured[same].to_numpy() != predicted[same].to_numpy()).any()
    ):
        msg = f"{len(measured)} measured and {len(predicted)} predicted rows are not the same "
        msg += "configurations in the same order; pass model.predict(measured)"
        raise PerformanceModelError(msg)
    if measured.empty:
        return ITERATION_ERRORS.empty()
    truth = measured["dur_ns"].to_numpy()
    table = predicted[["dur_ns", "low_ns", "high_ns", "analytic_ns", "doubt"]].assign(
        configuration=in_words(measured),
        group=group,
        measured_ns=truth,
        error_ratio=predicted["dur_ns"].to_numpy() / truth - 1,
        analytic_error_ratio=predicted["analytic_ns"].to_numpy() / truth - 1,
        is_inside=(predicted["low_ns"] <= truth) & (predicted["high_ns"] >= truth),
    )
    return ITERATION_ERRORS.check(table[list(ITERATION_ERRORS.columns)])


def cross_validated(
    measured: pd.DataFrame,
    *,
    folds: int | None = 5,
    by: str | None = None,
    held_out: object = None,
    residual: Residual = "auto",
    gpus: Mapping[str, GpuType] | None = None,
) -> pd.DataFrame:
    """Predict every row by a model that has not seen it.

    Parameters
    ----------
    measured
        Table :data:`workbench.tables.ITERATIONS`.
    folds
        Parts that the rows are cut into, at random but always the same; used without ``by``.
        The same configuration measured twice stays in one part.
    by
        Column whose equal values are held out together, e.g. ``"gpu_count"``: asks for what
        lies outside the rest.
    held_out
        Hold out this value of ``by`` only; all values in turn if None.
    residual, gpus
        As for :func:`iteration_model`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.ITERATION_ERRORS`, the held-out rows in their order;
        ``group`` names what was held out together.

    Raises
    ------
    PerformanceModelError
        If ``by`` is not a column, ``held_out`` is not a value of it, or too few rows are left.

    Notes
    -----
    Neighbours on a grid are nearly repetitions, so random parts of a grid flatter a model
    that learns; ``by`` does not.
    """
    ITERATIONS.check(measured)
    measured = measured.reset_index(drop=True)
    labels = _folds(measured, folds) if by is None else _values(measured, by, held_out)
    tables = []
    for label in labels.dropna().unique():
        mask = (labels == label).to_numpy(dtype=bool, na_value=False)
        model = iteration_model(measured[~mask], residual=residual, gpus=gpus)
        truth = measured[mask]
        errors = iteration_errors(truth, model.predict(truth, gpus=gpus), group=str(label))
        tables.append(errors.set_axis(truth.index, axis="index"))
    return ITERATION_ERRORS.check(pd.concat(tables).sort_index().reset_index(drop=True))


def _folds(measured: pd.DataFrame, folds: int | None) -> pd.Series:
    count = whole_number("folds", folds, least=2)
    # A configuration measured twice on both sides of a fold would give the answer away.
    same = measured.drop(columns=["dur_ns", "source", "doubt"])
    alike = same.groupby(list(same.columns), dropna=False, sort=False).ngroup().to_numpy()
    fold = np.random.default_rng(0).permutation(int(alike.max()) + 1) % count
    return pd.Series([f"part {number + 1} of {count}" for number in fold[alike]])


def _values(measured: pd.DataFrame, by: str, held_out: object) -> pd.Series:
    if by not in measured:
        msg = f"by={by!r} is not a column of the table; it has {list(measured.columns)}"
        raise PerformanceModelError(msg)
    values = measured[by]
    if held_out is not None and not (values == held_out).any():
        msg = f"held_out={held_out!r} is not a value of {by}; it has {sorted(values.unique())}"
        raise PerformanceModelError(msg)
    words = values.map(lambda value: f"{by} {value}")
    return words if held_out is None else words.where(values == held_out)
