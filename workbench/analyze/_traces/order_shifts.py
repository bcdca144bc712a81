"""Whether collectives that were matched by their order could be matched one further on.

A trace that begins a collective later shifts the order of its rank. If collectives come
as regularly as ends agree, that looks like a clock that is off by the time between two.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import Ints, grouped
from workbench.analyze._traces.clock_offsets import Moments, Offsets, joined, spread

_FEWEST = 3
_MOST = 1_000  # of each process group; more tell no more
# Two ranks share a difference between them, so each has half of it; and twice that for chance.
_CLEARLY = 4.0
_NORMAL = 1.4826


def best_matched(used: pd.DataFrame) -> pd.DataFrame:
    """Leave out what was matched by order, where sequence numbers join the same ranks."""
    sure = used["confidence"] == "high"
    if sure.all() or not sure.any():
        return used
    part = _parts(used)
    each = grouped(pd.factorize(used["collective"])[0].astype(np.int64))
    inside = (each.largest(part) == each.smallest(part))[each.number]
    kept: pd.DataFrame = used[sure.to_numpy() | ~inside]
    return kept


def could_be_shifted(
    used: pd.DataFrame, found: Offsets, rank: Ints, residual: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Say of each rank whether its offset could be a shift of the order instead.

    Parameters
    ----------
    used
        Collectives that end together, with ``collective``, ``group``, ``operation``,
        ``confidence``, ``start_ns`` and ``dur_ns``.
    found
        Their offsets.
    rank
        Number of the rank of each row of ``used``, from 0.
    residual
        Uncertainty of each rank's clock [ns], NaN if not known.

    Notes
    -----
    A rank is beyond doubt if a sequence number matched its collectives with those of the
    other ranks; if its offset is 0 as far as clocks agree, for a shift would have to be
    cancelled by a clock; or if, in one of its process groups, no shift by k collectives
    of the same operations fits: the time from one end to the k-th after it varies by more
    than 4 times the residual. Ranks that sequence numbers join stand for each other.
    """
    by_order = (used["confidence"] != "high").to_numpy()
    clock_of = found.clock[rank]
    doubtful = np.isin(found.clock, clock_of[by_order])
    typical = pd.Series(residual).groupby(found.clock).transform("median").fillna(0).to_numpy()
    agree = 2 * (np.nan_to_num(residual) + typical)
    fine = ~doubtful | (np.abs(found.offset) <= agree)
    part = np.zeros(len(fine), dtype=np.int64)
    part[rank] = _parts(used)
    if not _any_of(fine, part).all():
        fine[_refuted(used[by_order], found, rank[by_order], found.left[by_order])] = True
    return ~_any_of(fine, part)


def _parts(used: pd.DataFrame) -> Ints:
    """Give ranks that sequence numbers join the same number, one entry per row."""
    number, rank = np.unique(used["rank"].to_numpy(), return_inverse=True)
    sure = (used["confidence"] == "high").to_numpy()
    count = np.bincount(rank[sure], minlength=len(number))
    kept = sure & (count[rank] >= _FEWEST)
    part = np.arange(len(number)) + len(used)
    if kept.any():
        moment = pd.factorize(used["collective"][kept])[0].astype(np.int64)
        mine = rank[kept].astype(np.int64)
        shared = joined(Moments(moment, mine, np.zeros_like(mine)))
        part[np.unique(mine)] = shared[np.unique(mine)]
    return part[rank]


def _any_of(fine: NDArray[np.bool_], part: Ints) -> NDArray[np.bool_]:
    return pd.Series(fine).groupby(part).transform("any").to_numpy()


def _refuted(
    used: pd.DataFrame, found: Offsets, rank: Ints, left: NDArray[np.float64]
) -> NDArray[np.int64]:
    """List the ranks in one of whose process groups no shift fits."""
    end = (used["start_ns"] + used["dur_ns"]).to_numpy()
    rows = pd.DataFrame(
        {
            "group": used["group"].astype(str).to_numpy(),
            "collective": used["collective"].to_numpy("int64"),
            "operation": pd.factorize(used["operation"])[0],
            "rank": rank,
            "end": end,
            "corrected": end - found.offset[rank],
            "left": left,
        }
    )
    members = rows.groupby("collective")["rank"].agg(lambda ranks: str(sorted(ranks)))
    rows["members"] = rows["collective"].map(members)
    fine: list[int] = []
    for _, mine in rows.groupby(["group", "members"]):
        each = mine.groupby("collective")
        # Relative to the first, so that medians of times since 1970 stay exact.
        middle = (mine["corrected"] - mine["corrected"].min()).groupby(mine["collective"]).median()
        order = np.argsort(middle.to_numpy(), kind="stable")[:_MOST]
        least = _least_spread(middle.to_numpy()[order], each["operation"].first().to_numpy()[order])
        for number in np.unique(mine["rank"].to_numpy()).tolist():
            its = mine[mine["rank"] == number]
            if least > _CLEARLY * spread(its["left"].to_numpy(), its["end"].to_numpy()):
                fine.append(number)
    return np.unique(np.array(fine, dtype=np.int64))


def _least_spread(time: NDArray[np.float64], operation: Ints) -> float:
    """Return how much the time to the k-th next varies, for the k with which it varies least."""
    if len(time) < _FEWEST:
        return 0.0
    least = np.inf
    for k in range(1, max(len(time) - _FEWEST, 1) + 1):
        if (operation[k:] == operation[:-k]).all():
            gap = time[k:] - time[:-k]
            least = min(least, _NORMAL * float(np.median(np.abs(gap - np.median(gap)))))
    return least
