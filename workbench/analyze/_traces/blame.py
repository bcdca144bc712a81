"""Straggler attribution: the waiting in collectives, by the rank that arrived last."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import shares
from workbench.tables import BLAME, BLAME_BY, COLLECTIVE_WAITS

By: TypeAlias = Literal["step", "group", "both"]

_PAIR = ["blamed_rank", "rank"]


def blame(
    waits: pd.DataFrame, *, complete_only: bool = True, sure_only: bool = True
) -> pd.DataFrame:
    """Add up how long ranks waited, by the rank they waited for, most waiting first.

    Parameters
    ----------
    waits
        Table :data:`workbench.tables.COLLECTIVE_WAITS`.
    complete_only
        Leave out collectives of which a rank is known to be missing: that rank may have
        been the last.
    sure_only
        Leave out collectives in which it is not sure who was last.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.BLAME`: ``blamed_rank``, ``rank`` (that waited),
        ``wait_ns``, ``collective_count``, ``wait_share`` of all waiting. A rank appears
        with itself, without waiting, for every collective in which it was last.
        ``attrs["left_out"]`` gives the collectives left out, by reason, and
        ``attrs["kernels_left_out"]`` the kernels of which ``waits`` knows nothing.
    """
    waits, attrs = _trusted(waits, complete_only=complete_only, sure_only=sure_only)
    table = _summed(waits, _PAIR)
    total = np.full(len(table), table["wait_ns"].sum())
    table["wait_share"] = shares(table["wait_ns"], total)
    table = table.sort_values(["wait_ns", *_PAIR], ascending=[False, True, True], ignore_index=True)
    table.attrs |= attrs
    return BLAME.check(table)


def blame_by(
    waits: pd.DataFrame, by: By, *, complete_only: bool = True, sure_only: bool = True
) -> pd.DataFrame:
    """Add up how long ranks waited for which rank, by step, by process group, or by both.

    A rank that is slow for good is blamed in every step, one that was late once in one;
    a rank that is blamed in one group only is slow in what leads to that group's
    collectives.

    Parameters
    ----------
    waits
        Table :data:`workbench.tables.COLLECTIVE_WAITS`.
    by
        ``"step"``, ``"group"``, or ``"both"`` for every group of every step.
    complete_only, sure_only
        As for :func:`blame`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.BLAME_BY`, steps and groups in order, then most
        waiting first; ``wait_share`` is of all waiting of the step or group.
        ``attrs["left_out"]`` gives the collectives left out, by reason, and
        ``attrs["kernels_left_out"]`` the kernels of which ``waits`` knows nothing.

    Raises
    ------
    ValueError
        If ``by`` is not one of the three.
    """
    if by not in get_args(By):
        msg = f"by must be one of {get_args(By)}, not {by!r}"
        raise ValueError(msg)
    waits, attrs = _trusted(waits, complete_only=complete_only, sure_only=sure_only)
    keys = ["step", "group"] if by == "both" else [by]
    table = _summed(waits, [*keys, *_PAIR])
    total = table.groupby(keys, dropna=False, observed=True)["wait_ns"].transform("sum")
    table["wait_share"] = shares(table["wait_ns"], total)
    for absent in {"step", "group"} - set(keys):
        table[absent] = pd.NA
    order = [*keys, "wait_ns", *_PAIR]
    table = table.sort_values(
        order, ascending=[name != "wait_ns" for name in order], ignore_index=True
    )
    table = BLAME_BY.cast(table)
    table.attrs |= attrs
    return BLAME_BY.check(table)


def _trusted(
    waits: pd.DataFrame, *, complete_only: bool, sure_only: bool
) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    """Leave out what is doubtful, and count it by reason."""
    COLLECTIVE_WAITS.check(waits)
    unknown = dict(waits.attrs.get("left_out", {}))
    doubts = {
        "a rank is missing": ~waits["is_complete"].fillna(value=True).astype(bool) & complete_only,
        "it is not sure who was last": ~waits["is_sure"] & sure_only,
    }
    left_out = {}
    for reason, doubtful in doubts.items():
        rows = doubtful[waits.index]
        if rows.any():
            left_out[reason] = int(waits.loc[rows, "collective"].nunique())
        waits = waits[~rows]
    return waits, {"left_out": left_out, "kernels_left_out": unknown}


def _summed(waits: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return (
        waits.groupby(keys, dropna=False, observed=True)
        .agg(wait_ns=("wait_ns", "sum"), collective_count=("wait_ns", "size"))
        .reset_index()
        .astype({"blamed_rank": "int32", "rank": "int32"})
    )
