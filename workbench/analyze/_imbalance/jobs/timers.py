"""Ranks beside the others of their stage, by what Megatron-LM timed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import MEGATRON_TIMERS, TIMER_RANKS


def timer_ranks(timers: pd.DataFrame, *, stages: Mapping[int, int] | None = None) -> pd.DataFrame:
    """Compare the ranks of each pipeline stage by what their timers show.

    A rank whose ``forward-compute`` or ``backward-compute`` is longer than that of its stage is
    slow. Timers of receives and collectives hold waiting: there the slow rank is the short one.

    Parameters
    ----------
    timers
        Table :data:`workbench.tables.MEGATRON_TIMERS` with times by rank, from
        :func:`workbench.load.megatron_timers`.
    stages
        Pipeline stage by rank; without it all ranks are one stage, which is right only for jobs
        without a pipeline: stages differ in their work.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TIMER_RANKS`: ``timer``, ``stage``, ``rank``,
        ``block_count``, ``dur_ns``, ``peer_count``, ``slowdown_ratio``; by timer, the largest
        ratio first.

    Raises
    ------
    WorkbenchError
        If the timers have no times by rank, or ``stages`` lacks a rank.

    Notes
    -----
    The time of a rank is its median over the printed blocks, so that single long iterations do not
    make a rank slow; ``slowdown_ratio`` is that time over the median of the *other* ranks of the
    stage.
    """
    MEGATRON_TIMERS.check(timers)
    rows = timers[timers["statistic"] == "rank"]
    if rows.empty:
        msg = (
            "the timers have no times by rank, only extremes over ranks, which do not say who is "
            "slow; log with --timing-log-option all"
        )
        raise WorkbenchError(msg)
    if stages is not None and (lacking := sorted(set(rows["rank"].tolist()) - set(stages))):
        msg = f"stages= does not say the stage of ranks {lacking[:8]}"
        raise WorkbenchError(msg)
    usual = rows.groupby(["timer", "rank"], observed=True)["dur_ns"].agg(["median", "size"])
    usual = usual.reset_index().rename(columns={"median": "dur_ns", "size": "block_count"})
    usual["stage"] = 0 if stages is None else usual["rank"].map(dict(stages))
    groups = usual.groupby(["timer", "stage"], observed=True, sort=False)["dur_ns"]
    usual["peer_count"] = groups.transform("size") - 1
    usual["slowdown_ratio"] = usual["dur_ns"] / groups.transform(_median_of_others)
    usual = usual.sort_values(
        ["timer", "slowdown_ratio", "rank"], ascending=[True, False, True], ignore_index=True
    )
    return TIMER_RANKS.of(usual[list(TIMER_RANKS.columns)])


def _median_of_others(values: pd.Series) -> pd.Series:
    """Return for each value the median of the others; missing where there are none or it is 0."""
    times = values.to_numpy(dtype=np.float64)
    if len(times) < 2:
        return pd.Series(np.nan, index=values.index)
    order = np.argsort(times, kind="stable")
    ranked = times[order]
    # Without its k-th value a sorted list has its middle at one of two places.
    places = np.empty(len(times), dtype=np.int64)
    places[order] = np.arange(len(times))
    low, high = (len(times) - 2) // 2, (len(times) - 1) // 2
    middle = (ranked[low + (places <= low)] + ranked[high + (places <= high)]) / 2
    return pd.Series(np.where(middle > 0, middle, np.nan), index=values.index)
