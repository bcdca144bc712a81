"""Failure rates: failures per node-day, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
import scipy

from workbench._shared.numbers import positive, share_between, whole_number
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    NS_PER_H,
    counted,
    doubtful_counts,
    needed,
    observed,
    poisson_interval,
    refuse_twice,
    timed,
    with_value,
)
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_RATES, NODE_SPANS

_CONFIDENCE = 0.95
_COLUMNS = ("cause", "category", "severity", "kind")


def failure_rate(failure_count: int, *, node_count: int, days: float) -> pd.DataFrame:
    """Estimate how often nodes fail, from a count and the time they were observed.

    Parameters
    ----------
    failure_count
        Failures of all nodes together; 0 is an answer, too.
    node_count
        Nodes watched.
    days
        How long each of them was watched.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_RATES`, one row: the rate per 1,000 node-days and
        the mean time between failures of all nodes, with exact 95 % intervals.

    Raises
    ------
    WorkbenchError
        If an argument is out of range.

    Notes
    -----
    With n failures in T node-days the rate is n / T, between χ²(0.025; 2n) / 2T and
    χ²(0.975; 2n + 2) / 2T; its lower end is 0 where nothing failed. MTBF = days / n.

    References
    ----------
    F. Garwood, Biometrika 28 (1936), 437. Numbers of Llama 3: arXiv:2407.21783, section 3.3.4.

    Examples
    --------
    >>> rate = failure_rate(419, node_count=2048, days=54).iloc[0]
    >>> round(float(rate["per_1000_node_days"]), 2), round(float(rate["mtbf_h"]), 3)
    (3.79, 3.093)
    """
    count = whole_number("failure_count", failure_count, least=0)
    nodes = whole_number("node_count", node_count, least=1)
    watched = pd.Series({"all": positive("days", days) * nodes})
    table = _table(pd.Series({"all": count}), watched, pd.Series({"all": nodes}), _CONFIDENCE)
    table.attrs["confidence_level"] = _CONFIDENCE
    return table


def failure_rates(
    failures: pd.DataFrame,
    *,
    nodes: Nodes,
    days: float | None = None,
    by: str | Mapping[str, str] | None = None,
    leave_out: Sequence[str] = LEFT_OUT,
    confidence_level: float = _CONFIDENCE,
) -> pd.DataFrame:
    """Estimate how often nodes fail: overall, by cause, or by group of nodes.

    A rate needs what it is divided by: how many nodes were watched for how long. It is
    never guessed from the failures, because nodes that never failed leave no trace there.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`.
    nodes
        All nodes watched, failed or not: how many, their names, or table
        :data:`workbench.tables.NODE_SPANS`.
    days
        How long each was watched. May be dropped for a table of nodes, whose spans are taken then.
    by
        Column that tells failures apart (cause, category, severity, kind), each over all
        nodes; or the group of each node, e.g. its rack, each over its own nodes.
    leave_out
        Severities and categories that are not failures to count; ``attrs["left_out"]`` says
        how many.
    confidence_level
        Confidence of the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_RATES`, the highest rate first. ``attrs["doubts"]``
        lists what speaks against the exposure.

    Raises
    ------
    WorkbenchError
        If the exposure cannot be known, is not positive, or is shorter than the time that
        the failures span; if a failed node is not among ``nodes``, or has no group.

    Notes
    -----
    As for :func:`failure_rate`.
    """
    confidence = share_between("confidence_level", confidence_level)
    kept, left = counted(needed(failures, "node"), leave_out)
    watched, doubts = exposure_days(nodes, days)
    doubts = [*doubts, *doubtful_counts(kept)]
    _refuse_longer_than(days, kept)
    by_node = counts_by_node(kept[kept["node"].notna()], watched)
    # Groups of nodes divide the exposure; causes share all of it.
    if isinstance(by, Mapping):
        with_value(kept, "node", "no node", left)
        counts, watched, size = _by_group(by_node, watched, by)
    else:
        counts, watched, size = _by_column(kept, watched, by)
    table = _table(counts, watched, size, confidence).sort_values(
        "per_1000_node_days", ascending=False, kind="stable", ignore_index=True
    )
    table.attrs = {"left_out": left, "doubts": doubts, "confidence_level": confidence}
    return table


def _by_column(
    kept: pd.DataFrame, watched: pd.Series, by: str | None
) -> tuple[pd.Series, pd.Series, pd.Series]:
    if by is not None and by not in _COLUMNS:
        msg = f"by={by!r}: failures are told apart by {_COLUMNS}, or by a mapping of node to group"
        raise WorkbenchError(msg)
    if by is None:
        counts = pd.Series({"all": len(kept)})
    else:
        counts = needed(kept, by)[by].astype(str).value_counts().sort_index()
    total, size = float(watched.sum()), len(watched)
    return counts, pd.Series(total, index=counts.index), pd.Series(size, index=counts.index)


def _by_group(
    by_node: pd.Series, watched: pd.Series, groups: Mapping[str, str]
) -> tuple[pd.Series, pd.Series, pd.Series]:
    # counts_by_node has given unnamed nodes the names of those that failed; their days go along.
    days = watched.set_axis(by_node.index)
    group = pd.Series([groups.get(str(node)) for node in by_node.index], index=by_node.index)
    if group.isna().any():
        msg = (
            f"by= has no group for {int(group.isna().sum()):,} of {len(group):,} nodes, e.g. "
            f"{str(group.index[group.isna()][0])!r}"
        )
        raise WorkbenchError(msg)
    keys = group.astype(str).to_numpy()
    return by_node.groupby(keys).sum(), days.groupby(keys).sum(), days.groupby(keys).size()


def _refuse_longer_than(days: float | None, failures: pd.DataFrame) -> None:
    if days is None or not {"start_ns", "clock"} <= set(failures):
        return
    # Times since boot, or of a clock of its own, tell nothing about days of observation.
    times = failures.loc[failures["clock"] == "epoch", "start_ns"].dropna()
    span = float(times.max() - times.min()) / NS_PER_H / 24 if len(times) else 0.0
    if span > days:
        msg = f"the failures span {span:.4g} days, but days={days:g}; one of them is wrong"
        raise WorkbenchError(msg)


def _table(
    counts: pd.Series, node_days: pd.Series, nodes: pd.Series, confidence: float
) -> pd.DataFrame:
    """Work out rates; ``node_days`` and ``nodes`` are by group like the counts."""
    count = counts.to_numpy(dtype="int64")
    exposure = node_days.reindex(counts.index).to_numpy(dtype="float64")
    size = nodes.reindex(counts.index).to_numpy(dtype="int64")
    low, high = poisson_interval(count, confidence)
    # Exposure adds up nodes; an MTBF of all of them together counts hours of the calendar.
    hours = 24 * exposure / np.maximum(size, 1)
    # Without a failure only the lower end of the MTBF is known.
    failed = np.where(count > 0, count, np.nan)
    return FAILURE_RATES.of(
        {
            "group": counts.index.astype(str),
            "failure_count": count,
            "node_count": size,
            "exposure_node_days": exposure,
            "per_1000_node_days": 1000 * count / exposure,
            "low_per_1000_node_days": 1000 * low / exposure,
            "high_per_1000_node_days": 1000 * high / exposure,
            "mtbf_h": pd.array(hours / failed, dtype="Float64"),
            "low_mtbf_h": hours / high,
            "high_mtbf_h": pd.array(hours / np.where(low > 0, low, np.nan), dtype="Float64"),
        }
    )


def standby_nodes(node_count: int, fail_share: float, *, quantile_share: float = 0.99) -> int:
    """Compute how many standby nodes are enough for the failures of one period.

    Parameters
    ----------
    node_count
        Nodes at work.
    fail_share
        Probability that a node fails within the period it takes to replace one.
    quantile_share
        In what share of the periods the standby nodes are to be enough.

    Returns
    -------
    int
        The smallest number that is.

    Raises
    ------
    WorkbenchError
        If an argument is out of range.

    Notes
    -----
    Quantile of the binomial distribution; nodes fail independently. Failures of a switch or
    a rack take several nodes at once, and then it is not enough.

    References
    ----------
    ByteRobust, arXiv:2509.16293: 4 for 1,024.

    Examples
    --------
    >>> standby_nodes(1024, 0.001)
    4
    """
    nodes = whole_number("node_count", node_count, least=1)
    if not 0 <= fail_share <= 1:
        msg = f"fail_share must be from 0 to 1, not {fail_share!r}"
        raise WorkbenchError(msg)
    quantile = share_between("quantile_share", quantile_share)
    # Nodes fail independently of each other.
    return int(scipy.stats.binom.ppf(quantile, nodes, fail_share))


Nodes: TypeAlias = pd.DataFrame | Sequence[str] | int

_NS_PER_DAY = 24 * NS_PER_H
_ALL_FAILED = (
    "every node listed has failed: nodes seen only because they failed make all rates too high"
)


def exposure_days(nodes: Nodes, days: float | None) -> tuple[pd.Series, list[str]]:
    """Return the days that each node was watched, by its name, and what is doubtful about them."""
    if days is not None:
        days = positive("days", days)
    if isinstance(nodes, pd.DataFrame):
        return _of_spans(nodes, days)
    if isinstance(nodes, str):
        msg = f"nodes={nodes!r} is a text; pass a list of names, their number, or a table of nodes"
        raise WorkbenchError(msg)
    if days is None:
        msg = "the observation time of the nodes is unknown; pass days= or a table of nodes"
        raise WorkbenchError(msg)
    if isinstance(nodes, Sequence):
        return _once(pd.Series(days, index=pd.Index([str(node) for node in nodes]))), []
    count = whole_number("nodes", nodes, least=1)
    # Placeholders, which counts_by_node replaces with the names of nodes that failed.
    names = [f"(unnamed {number})" for number in range(1, count + 1)]
    return pd.Series(days, index=pd.Index(names)), []


def _of_spans(nodes: pd.DataFrame, days: float | None) -> tuple[pd.Series, list[str]]:
    NODE_SPANS.check(nodes)
    names = pd.Index(nodes["node"].astype(str))
    doubts = [_ALL_FAILED] if len(nodes) and (nodes["failure_count"] > 0).all() else []
    if days is not None:
        return _once(pd.Series(days, index=names)), doubts
    span = (nodes["last_ns"] - nodes["first_ns"]).astype("Float64")
    watched = (span.to_numpy(dtype="float64", na_value=np.nan)) / _NS_PER_DAY
    # Negated, so that a missing span counts as none.
    unwatched = names[~(watched > 0)]
    if len(unwatched):
        msg = (
            f"{len(unwatched):,} of {len(nodes):,} nodes have no time over which they were "
            f"watched, e.g. {unwatched[0]!r}; pass days=, the observation time of all"
        )
        raise WorkbenchError(msg)
    return _once(pd.Series(watched, index=names)), doubts


def _once(days: pd.Series) -> pd.Series:
    refuse_twice(days.index)
    return days


def counts_by_node(failures: pd.DataFrame, days: pd.Series) -> pd.Series:
    """Return the failures of every node watched, in the order of ``days``.

    Nodes that were only counted take the names of those that failed.
    """
    counts = failures["node"].astype(str).value_counts()
    strange = counts.index.difference(days.index)
    unnamed = [name for name in days.index if name.startswith("(unnamed ")]
    if len(strange) > len(unnamed) > 0:
        verb = "was" if len(days) == 1 else "were"
        msg = f"{len(strange):,} nodes have failed, and only {len(days):,} {verb} watched"
        raise WorkbenchError(msg)
    if len(strange) > len(unnamed):
        msg = (
            f"{len(strange):,} nodes have failed that are not among the {len(days):,} nodes "
            f"watched, e.g. {str(strange[0])!r}; pass nodes= with all of them"
        )
        raise WorkbenchError(msg)
    days_by_name = days.rename(dict(zip(unnamed, strange, strict=False)))
    return counts.reindex(days_by_name.index, fill_value=0)


def first_days(
    failures: pd.DataFrame, nodes: pd.DataFrame, *, days: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Keep the first days of an observation: the failures, and the spans of the nodes.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, with times.
    nodes
        Table :data:`workbench.tables.NODE_SPANS` with all nodes watched, failed or not.
    days
        How much to keep, from when the first node was watched.

    Returns
    -------
    tuple of pandas.DataFrame
        Failures and nodes, as given but for what came later. Failures without a time or a node
        are dropped.

    Raises
    ------
    WorkbenchError
        If no failure has a time, clocks cannot be compared, a failure lies outside the span
        of its node, or no node was watched so early.
    """
    kept = timed(needed(failures, "node"), {})
    kept = kept[kept["node"].notna()]
    spans = observed(kept, nodes)
    end = int(spans["first_ns"].min() + positive("days", days) * 24 * NS_PER_H)
    kept = kept[(kept["start_ns"] <= end).to_numpy(dtype=bool)].reset_index(drop=True)
    early = (nodes["first_ns"] < end).to_numpy(dtype=bool)
    if not early.any():
        msg = f"no node was observed within the first {days:g} days"
        raise WorkbenchError(msg)
    shorter = nodes[early].reset_index(drop=True)
    counts = kept["node"].astype(str).value_counts()
    counts = counts.reindex(pd.Index(shorter["node"].astype(str)), fill_value=0)
    # Failures of the first days must not be divided by the whole observation.
    shorter["last_ns"] = shorter["last_ns"].clip(upper=end)
    shorter["failure_count"] = counts.to_numpy(dtype="int64")
    return kept, NODE_SPANS.check(shorter)
