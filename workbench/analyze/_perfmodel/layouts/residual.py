"""What the closed form leaves: regression trees on the logarithm of measured over predicted."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.analyze._perfmodel.layouts.columns import Array, Columns
from workbench.errors import MissingExtraError

_TREES = 400


def has_trees() -> bool:
    """Say whether scikit-learn is at hand."""
    return importlib.util.find_spec("sklearn") is not None


def features(c: Columns) -> npt.NDArray[np.float64]:
    """Give the logarithms that the trees split on, one row per configuration."""
    each: list[Array] = [
        c.t, c.c, c.p, c.d, c.v, c.b, c.h, c.layers, c.s, c.n, c.gb, c.rounds,
        1 + (c.p - 1) / (c.v * c.rounds), c.h / c.t, c.tokens, c.layers / c.p,
    ]  # fmt: skip
    return np.log(np.column_stack(each))


def trees(c: Columns, logarithms: npt.NDArray[np.float64]) -> Any:
    """Grow the trees; the same rows give the same trees.

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError as error:
        msg = (
            "scikit-learn is not installed: pip install 'ai-infra-workbench[train]', or choose "
            "residual='none' for the closed form alone"
        )
        raise MissingExtraError(msg) from error
    return ExtraTreesRegressor(_TREES, random_state=0).fit(features(c), logarithms)
