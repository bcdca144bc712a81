"""From one failure of a node to its next, and whether failures come in bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from workbench._numbers import share_between
from workbench.analyze._failures import weibull as _weibull
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    NS_PER_H,
    counted,
    needed,
    several_reporters,
    timed,
    with_value,
)
from workbench.analyze._failures.observed import observed
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_GAPS, LIFETIMES

First: TypeAlias = Literal["from the start", "left out"]


def lifetimes(
    failures: pd.DataFrame,
    nodes: pd.DataFrame,
    *,
    first: First = "from the start",
    groups: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = LEFT_OUT,
) -> pd.DataFrame:
    """Cut the time that nodes were watched at their failures.

    Every stretch from one failure of a node to its next is a lifetime. The last one, up to
    the end of the observation, ended without a failure, and so did the only one of a node
    that never failed.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, with times.
    nodes
        Table :data:`workbench.tables.NODE_SPANS` with all nodes watched, failed or not.
    first
        What becomes of the stretch before a node's first failure. It is known only since the
        observation began, not since the failure before. ``"from the start"`` takes it as if the
        node had been new then: exact if nodes fail by chance, and the only way to keep nodes
        that never failed. ``"left out"`` drops it, and with it every node without a failure, so
        that lives look shorter than they are.
    groups
        Group of each node, e.g. its model or rack; all nodes are one group by default.
    leave_out
        Severities and categories that are no failures to count.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LIFETIMES`: ``node``, ``group``, ``lifetime_h``,
        ``is_failure``, by node and time. Failures of a node at the same instant are one.
        ``attrs["left_out"]`` counts what was not counted.

    Raises
    ------
    WorkbenchError
        If no failure has a time, clocks cannot be compared, a node has no span, or a failure
        lies outside the span of its node.

    Notes
    -----
    The time a node was down is part of its next life: logs of failures do not say when it
    came back.
    """
    if first not in ("from the start", "left out"):
        msg = f"first={first!r} is neither 'from the start' nor 'left out'"
        raise WorkbenchError(msg)
    kept, left = counted(needed(failures, "node"), leave_out)
    kept = timed(with_value(kept, "node", "no node", left), left)
    spans = observed(kept, nodes)
    events = pd.DataFrame(
        {"node": kept["node"].astype(str), "at": kept["start_ns"].astype("int64")}
    )
    together = int(events.duplicated().sum())
    if together:
        left["at the same instant as another of the node"] = together
    events = events.drop_duplicates().assign(is_failure=True)
    ends = pd.DataFrame({"node": spans.index, "at": spans["last_ns"], "is_failure": False})
    # At the same instant the failure comes first: the end of the observation censors no life.
    both = pd.concat([events, ends]).sort_values(
        ["node", "at", "is_failure"], ascending=[True, True, False], ignore_index=True
    )
    since = both.groupby("node")["at"].shift()
    start = both["node"].map(spans["first_ns"])
    both["lifetime_h"] = (both["at"] - since.fillna(start)).to_numpy(dtype="float64") / NS_PER_H
    keep = both["is_failure"] | (both["lifetime_h"] > 0)
    keep &= since.notna() if first == "left out" else True
    table = both[keep].assign(group=_group(both.loc[keep, "node"], groups))
    table = LIFETIMES.cast(table.reset_index(drop=True))
    table.attrs["left_out"] = left
    table.attrs["doubts"] = several_reporters(counted(failures, leave_out)[0])
    return LIFETIMES.check(table)


def _group(nodes: pd.Series, groups: Mapping[str, str] | None) -> pd.Series | str:
    if groups is None:
        return "all"
    if missing := sorted(set(nodes) - set(groups)):
        msg = f"groups= has no group for {len(missing):,} nodes, e.g. {missing[0]!r}"
        raise WorkbenchError(msg)
    return nodes.map(dict(groups))


def failure_gaps(
    failures: pd.DataFrame,
    *,
    leave_out: Sequence[str] = LEFT_OUT,
    confidence_share: float = 0.95,
) -> pd.DataFrame:
    """Say whether the failures of all nodes together come in bursts.

    Models of goodput let failures come by chance, one independent of the next. In a log
    with bursts the recoveries overlap, and the same number of failures costs less.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, with times.
    leave_out
        Severities and categories that are no failures to count.
    confidence_share
        Confidence of the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_GAPS`, one row. ``attrs["left_out"]`` counts what
        was not counted.

    Raises
    ------
    WorkbenchError
        If no failure has a time, or clocks cannot be compared.

    Notes
    -----
    The shape k of the Weibull law fitted to the gaps above 0, with its likelihood ratio
    against k = 1; k < 1 means bursts. A rate that changes over weeks gives k < 1, too: look
    at :func:`failure_trend` first.
    """
    confidence = share_between("confidence_share", confidence_share)
    kept, left = counted(failures, leave_out)
    kept = timed(kept, left)
    gaps = np.diff(np.sort(kept["start_ns"].to_numpy(dtype="int64"))) / NS_PER_H
    apart = gaps[gaps > 0]
    law = _weibull.fit(apart, np.ones(len(apart), dtype=bool), confidence)
    mean = float(gaps.mean()) if len(gaps) else np.nan
    row = {
        "gap_count": len(gaps),
        "together_count": len(gaps) - len(apart),
        "mean_h": mean,
        "variation_ratio": float(gaps.std()) / mean if len(gaps) > 1 and mean > 0 else np.nan,
        "shape_ratio": law.shape if law else np.nan,
        "low_shape_ratio": law.shape_low if law else np.nan,
        "high_shape_ratio": law.shape_high if law else np.nan,
        "p_value_share": law.p_value if law else np.nan,
    }
    table = FAILURE_GAPS.cast(pd.DataFrame([row]))
    table.attrs["left_out"] = left
    table.attrs["doubts"] = several_reporters(counted(failures, leave_out)[0])
    return FAILURE_GAPS.check(table)
