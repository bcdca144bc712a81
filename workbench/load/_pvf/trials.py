"""Counts per experiment, from outcomes of single inputs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from workbench._number_types import NUMBER_TYPES
from workbench.load._pvf.part import filled
from workbench.tables import OUTCOME_NAMES, OUTCOMES

MASKED, BENIGN, SDC, DUE = range(4)
UNKNOWN = -1


def counted(
    campaign_id: str,
    exp_ids: np.ndarray,
    codes: np.ndarray,
    *,
    known: Collection[str] = OUTCOME_NAMES,
    beneficial: np.ndarray | None = None,
) -> pd.DataFrame:
    """Count outcomes per experiment as table OUTCOMES.

    Parameters
    ----------
    campaign_id
        Campaign of all of them.
    exp_ids
        Experiment of each trial.
    codes
        Outcome of each trial, :data:`UNKNOWN` if not known.
    known
        Outcomes the tool can tell; the counts of the others are missing, not 0.
    beneficial
        Which trials were right only with the fault, if labels tell.
    """
    ids, place = _numbered(exp_ids)
    width = len(OUTCOME_NAMES) + 1
    flat = np.bincount(place * width + (codes.astype(np.int64) + 1), minlength=len(ids) * width)
    counts = flat.reshape(-1, width)
    columns: dict[str, Any] = {
        f"{name}_count": counts[:, number + 1]
        for number, name in enumerate(OUTCOME_NAMES)
        if name in known
    }
    if beneficial is not None:
        columns["beneficial_count"] = np.bincount(place[beneficial], minlength=len(ids))
    columns |= {"campaign_id": campaign_id, "exp_id": ids, "input_count": counts.sum(axis=1)}
    return filled(OUTCOMES, columns, len(ids))


def _numbered(exp_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the experiments that occur, and the place of each row among them."""
    if not len(exp_ids) or exp_ids.min() < 0 or exp_ids.max() > 2 * len(exp_ids):
        return np.unique(exp_ids, return_inverse=True)
    # Numbers without large gaps need no sorting, which takes long for millions of rows.
    is_there = np.bincount(exp_ids) > 0
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[exp_ids]


def common(values: pd.Series) -> Any:
    """Return the one value that all rows share; None if there are several or none."""
    found = values.dropna().unique()
    return found[0] if len(found) == 1 else None


def fp32_roles(bits: pd.Series) -> pd.Series:
    """Say what bits of a float32 are: sign, exponent or mantissa."""
    roles = NUMBER_TYPES["fp32"].roles(bits.fillna(0).to_numpy(np.int64))
    text = pd.Series(roles, index=bits.index, dtype=pd.Series([""]).dtype)
    return text.where(bits.notna()).astype("category")
