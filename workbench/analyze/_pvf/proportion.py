"""Intervals for a share of independent trials."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from workbench._numbers import share_between, whole_number
from workbench.analyze._pvf.cluster_intervals import binomial_interval, wilson_interval
from workbench.errors import WorkbenchError
from workbench.tables import PROPORTION


def proportion(event_count: int, trial_count: int, *, level_share: float = 0.95) -> pd.DataFrame:
    """Give the interval of a share of independent trials, by every method in use.

    For one input per fault. Many inputs under one fault are not independent:
    :func:`pvf` counts the faults then.

    Parameters
    ----------
    event_count
        Trials that went wrong.
    trial_count
        All trials.
    level_share
        Confidence.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PROPORTION`, one row per method; ``rule_of_three``, the
        one-sided exact upper end, only where no trial went wrong.

    Raises
    ------
    WorkbenchError
        If a count or the confidence is out of range.

    Notes
    -----
    ``wald`` is share +- z sqrt(share (1 - share) / n): printed often, and too narrow for rare
    events. ``clopper_pearson`` covers at least the confidence, ``wilson`` about it.

    References
    ----------
    L. Brown, T. Cai, A. DasGupta, Statistical Science 16 (2001), 101.

    Examples
    --------
    >>> table = proportion(0, 1000).set_index("method")
    >>> round(float(table.loc["rule_of_three", "high"]), 6)
    0.002991
    """
    trials = whole_number("trial_count", trial_count, least=1)
    events = whole_number("event_count", event_count, least=0)
    if events > trials:
        msg = f"event_count={events} is more than trial_count={trials}"
        raise WorkbenchError(msg)
    share_between("level_share", level_share)
    share = events / trials
    half = float(stats.norm.isf((1 - level_share) / 2)) * np.sqrt(share * (1 - share) / trials)
    ends = {
        "wilson": wilson_interval(share, trials, level_share),
        "clopper_pearson": binomial_interval(events, trials, level_share),
        "wald": (max(share - half, 0.0), min(share + half, 1.0)),
    }
    if events == 0:
        ends["rule_of_three"] = (0.0, -np.expm1(np.log1p(-level_share) / trials))
    table = pd.DataFrame(
        [
            {"method": method, "low": float(low), "high": float(high)}
            for method, (low, high) in ends.items()
        ]
    ).assign(
        event_count=events, trial_count=trials, event_share=share, level_share=float(level_share)
    )
    return PROPORTION.check(PROPORTION.cast(table))
