"""Savings from exact sizes and faster communication: bounds by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import PerformanceModelError
from workbench.tables import ALL_TO_ALL_PADDING, COMMUNICATION_SPEEDUP, EXPERT_LOADS


def all_to_all_padding(
    loads: pd.DataFrame, *, rank_count: int | None = None, slot_count: float | None = None
) -> pd.DataFrame:
    """Compare an all-to-all of expert parallelism padded to one size with the exact one.

    A captured graph cannot know the sizes, so every share is padded to the largest. Exact sizes
    save traffic, and time where ranks share a link. They save no time on the rank with the
    largest load: it receives as much as before, unless the slot is larger than that load.

    Parameters
    ----------
    loads
        Table :data:`workbench.tables.EXPERT_LOADS`.
    rank_count
        Ranks that share the experts, in blocks of their numbers; by default one per expert.
    slot_count
        Load that every rank is padded to; by default the largest of the layer. A captured graph
        has to take what the router allows at most.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ALL_TO_ALL_PADDING`, one row per layer with any load.
        Times follow from it only by way of a model: see
        :func:`workbench.analyze.collective_scaling`.

    Raises
    ------
    PerformanceModelError
        If the experts cannot be shared evenly, or a rank has a larger load than a slot.

    Notes
    -----
    With loads x_i of N ranks, I = max / mean and slot s: traffic saved is ``1 - sum x / (N s)``,
    which is ``1 - 1 / I`` for the smallest slot; the busiest rank saves ``1 - max x / s``.

    Examples
    --------
    >>> loads = pd.DataFrame({"layer": 0, "expert": range(4), "load_count": [5.0, 1, 1, 1]})
    >>> row = all_to_all_padding(EXPERT_LOADS.cast(loads)).iloc[0]
    >>> row[["imbalance_ratio", "saved_share", "busiest_saved_share"]].tolist()
    [2.5, 0.6, 0.0]
    """
    EXPERT_LOADS.check(loads, "loads")
    rows = []
    for layer, group in loads.groupby("layer", sort=True):
        x = _by_rank(group, rank_count)
        most, slot = float(x.max()), float(x.max() if slot_count is None else slot_count)
        if not np.isfinite(slot) or slot < most:
            msg = f"slot_count is {slot:g}, and a rank of layer {layer} has a load of {most:g}"
            raise PerformanceModelError(msg)
        if most > 0:
            padded = len(x) * slot
            shares = (1 - x.sum() / padded, 1 - most / slot)
            rows.append((layer, len(x), most / x.mean(), x.sum(), padded, *np.maximum(shares, 0)))
    table = pd.DataFrame(rows, columns=list(ALL_TO_ALL_PADDING.columns))
    table["imbalance_ratio"] = table["imbalance_ratio"].astype("float64").clip(lower=1)
    return ALL_TO_ALL_PADDING.check(ALL_TO_ALL_PADDING.cast(table))


def _by_rank(group: pd.DataFrame, rank_count: int | None) -> NDArray[np.float64]:
    loads = group.sort_values("expert")["load_count"].to_numpy(np.float64)
    ranks = len(loads) if rank_count is None else rank_count
    if ranks < 1 or len(loads) % ranks:
        msg = f"rank_count is {ranks}, which does not divide {len(loads)} experts"
        raise PerformanceModelError(msg)
    return np.asarray(loads.reshape(ranks, -1).sum(axis=1))


def communication_speedup(
    communication_shares: Sequence[float], *, saved_share: float = 0.12
) -> pd.DataFrame:
    """Compute how much faster communication must be to shorten a step by a given share.

    Parameters
    ----------
    communication_shares
        Shares of a step that are exposed communication, e.g. that of a trace
        (:func:`workbench.analyze.communication_overlap`) beside others.
    saved_share
        Share of the step that is to be saved; 0.12 is the most that was printed for NCCLX.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COMMUNICATION_SPEEDUP`: ``communication_share``,
        ``saved_share``, ``speedup_ratio`` (missing where no speed-up is enough).

    Raises
    ------
    PerformanceModelError
        If a share is not between 0 and 1.

    Notes
    -----
    ``x (1 - 1 / s) = d`` for the share x, the speed-up s and what is saved d, if nothing else
    changes and what is hidden stays hidden.

    References
    ----------
    NCCLX, arXiv:2510.20171, abstract.

    Examples
    --------
    >>> communication_speedup([0.3])["speedup_ratio"].round(2).tolist()
    [1.67]
    """
    shares = np.atleast_1d(np.asarray(communication_shares, dtype=np.float64))
    if not ((shares >= 0) & (shares <= 1)).all() or not 0 <= saved_share < 1:
        msg = f"shares must be between 0 and 1 (12 % is 0.12); got {shares.tolist()} of the step "
        raise PerformanceModelError(msg + f"and saved_share={saved_share}")
    is_enough = shares > saved_share
    ratio = 1 / (1 - saved_share / np.where(is_enough, shares, 1.0))
    table = pd.DataFrame({"communication_share": shares, "saved_share": saved_share})
    table["speedup_ratio"] = pd.Series(ratio).where(is_enough | (saved_share == 0))
    return COMMUNICATION_SPEEDUP.check(COMMUNICATION_SPEEDUP.cast(table))
