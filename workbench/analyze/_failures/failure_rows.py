"""Which failures are counted, what is dropped, and the time at which they struck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.follow_ons import KERNEL_KINDS
from workbench._shared.incidents import at_once
from workbench.errors import WorkbenchError
from workbench.tables import FAILURES, NODE_SPANS

# What is no failure, and what stops no job either; the same for every count.
NO_FAILURE = ("info", "planned", "follow-on")
LEFT_OUT = ("info", "warning", "planned", "follow-on")
NS_PER_H = 3.6e12
_MOST_AT_ONCE, _AT_ONCE_S = 3, 10.0


class Clock(NamedTuple):
    name: str
    source: str
    """The file whose own clock it is; empty for wall time."""


def needed(failures: pd.DataFrame, *columns: str) -> pd.DataFrame:
    return FAILURES.part(columns).check(failures)


def counted(
    failures: pd.DataFrame, leave_out: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the failures that count, and how many were dropped by the first reason that fits."""
    needed(failures, "category", "severity")
    if isinstance(leave_out, str):
        msg = f"leave_out={leave_out!r} is a text; pass a tuple of categories or severities"
        raise WorkbenchError(msg)
    left: dict[str, int] = {}
    keep = np.ones(len(failures), dtype=bool)
    for reason in leave_out:
        hit = ((failures["category"] == reason) | (failures["severity"] == reason)).to_numpy(bool)
        if count := int((hit & keep).sum()):
            left[reason] = count
        # A row that fits two reasons is counted for the first.
        keep &= ~hit
    return failures[keep], left


def reporters(kinds: pd.Series) -> pd.Series:
    """Return who reported: the kinds of errors that a kernel logs come from one."""
    return kinds.where(~kinds.isin(KERNEL_KINDS), "kernel")


def several_reporters(failures: pd.DataFrame) -> list[str]:
    """Doubt counts of rows that the kernel, the scheduler and the job may all have reported."""
    if "kind" not in failures:
        return []
    kinds = reporters(failures["kind"]).value_counts()
    if len(kinds) < 2:
        return []
    counts = ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())
    return [
        f"reported by several ({counts}): one failure may be counted more than once; choose with "
        "analyze.reported_by"
    ]


def doubtful_counts(failures: pd.DataFrame) -> list[str]:
    """List reasons why the counted failures may be fewer than their rows."""
    return [*several_reporters(failures), *_many_at_once(failures)]


def _many_at_once(failures: pd.DataFrame) -> list[str]:
    if not {"kind", "clock", "start_ns", "category", "severity"} <= set(failures):
        return []
    count = int(at_once(failures, most=_MOST_AT_ONCE, within_s=_AT_ONCE_S).sum())
    if not count:
        return []
    return [
        f"{count:,} of {len(failures):,} begin within {_AT_ONCE_S:g} s of "
        f"{_MOST_AT_ONCE} or more others: one failure, e.g. of a switch or a power feed, may be "
        "counted more than once"
    ]


def refuse_twice(names: pd.Index) -> None:
    """Raise if there are no nodes, or one is listed twice."""
    if names.empty:
        msg = "there are no nodes; pass all that were watched, not only those that failed"
        raise WorkbenchError(msg)
    if names.has_duplicates:
        msg = f"node {names[names.duplicated()][0]!r} is listed twice; every node has one row"
        raise WorkbenchError(msg)


def with_value(
    failures: pd.DataFrame, column: str, reason: str, left: dict[str, int]
) -> pd.DataFrame:
    has_value = failures[column].notna().to_numpy()
    if count := int((~has_value).sum()):
        left[reason] = count
    return failures[has_value]


def timed(failures: pd.DataFrame, left: dict[str, int]) -> pd.DataFrame:
    """Keep the failures whose time is known, all on one clock; the others are counted."""
    needed(failures, "start_ns", "clock", "source")
    is_timed = (failures["start_ns"].notna() & (failures["clock"] != "none")).to_numpy(bool)
    if len(failures) and not is_timed.any():
        msg = (
            f"none of the {len(failures):,} failures has a time (clock is none), and this "
            "needs to know when they struck; load logs that record it"
        )
        raise WorkbenchError(msg)
    if count := int((~is_timed).sum()):
        left["no time"] = count
    clock_of(failures[is_timed])
    return failures[is_timed]


def clock_of(failures: pd.DataFrame) -> Clock | None:
    """Return the one clock of the failures, None for none; refuse clocks that do not compare."""
    # Each file without epoch times has a clock of its own.
    own = failures["clock"] == "own"
    sources = sorted(failures.loc[own, "source"].astype(str).unique())
    clocks = [Clock("own", name) for name in sources]
    clocks += [Clock("epoch", "")] if (~own).any() else []
    if len(clocks) > 1:
        msg = (
            f"the failures are on {len(clocks)} clocks that cannot be compared: "
            f"{', '.join(f'{c.name} {c.source}'.strip() for c in clocks[:4])}. Load the logs with "
            "their time zone or boot time, or pass the failures of one clock"
        )
        raise WorkbenchError(msg)
    return clocks[0] if clocks else None


def poisson_interval(
    count: NDArray[Any], confidence_level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the exact interval of Poisson means; from 0 where nothing was counted."""
    from scipy.special import gammaincinv

    # Garwood 1936: quantiles of gamma, half those of chi-squared, are those of Poisson counts.
    tail = (1 - confidence_level) / 2
    low = np.where(count > 0, gammaincinv(np.maximum(count, 1), tail), 0.0)
    return low, gammaincinv(count + 1, 1 - tail)


def observed(failures: pd.DataFrame, nodes: pd.DataFrame) -> pd.DataFrame:
    """Return first and last instant of every node, in ns; refuse what does not fit the failures."""
    NODE_SPANS.check(nodes)
    spans = nodes.set_index(nodes["node"].astype(str))[["first_ns", "last_ns"]]
    refuse_twice(spans.index)
    _refuse(spans.isna().any(axis=1), "have no observation time")
    spans = spans.astype("int64")
    _refuse(spans["last_ns"] <= spans["first_ns"], "were last seen no later than first")
    clock = clock_of(failures)
    is_other = (nodes["clock"] != (clock.name if clock else nodes["clock"].iloc[0])).to_numpy()
    _refuse(pd.Series(is_other, index=spans.index), "are on another clock than the failures")
    _refuse_strangers(failures, spans)
    return spans


def _refuse(bad: pd.Series, why: str) -> None:
    if bad.any():
        first = str(bad.index[bad.to_numpy()][0])
        msg = (
            f"{int(bad.sum()):,} of {len(bad):,} nodes {why}, e.g. {first!r}; say from when to "
            "when each was watched in first_ns and last_ns"
        )
        raise WorkbenchError(msg)


def _refuse_strangers(failures: pd.DataFrame, spans: pd.DataFrame) -> None:
    node = failures["node"].astype(str)
    if strange := sorted(set(node) - set(spans.index)):
        msg = (
            f"{len(strange):,} nodes have failed that are not among the {len(spans):,} nodes "
            f"watched, e.g. {strange[0]!r}; pass all nodes"
        )
        raise WorkbenchError(msg)
    at = failures["start_ns"].to_numpy(dtype="int64")
    first, last = spans.loc[pd.Index(node)].to_numpy().T
    outside = (at < first) | (at > last)
    if outside.any():
        row = int(outside.argmax())
        msg = (
            f"{int(outside.sum()):,} failures lie outside the observation time of their node, "
            f"e.g. of {node.iloc[row]!r} {(at[row] - first[row]) / NS_PER_H:,.3g} h after its "
            "first_ns"
        )
        raise WorkbenchError(msg)


def watched_throughout(nodes: pd.DataFrame, *, span_ns: tuple[int, int]) -> pd.DataFrame:
    """Assume that every node was observed over the whole span of a log.

    A log mentions a node when something happens to it, not from when to when it was watched;
    a node that is mentioned once would have no time at all. If the log is that of a cluster
    whose nodes did not change, all of them were watched all the time.

    Parameters
    ----------
    nodes
        Table :data:`workbench.tables.NODE_SPANS`.
    span_ns
        From when to when the log watched; see :func:`observed_span`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.NODE_SPANS`: ``node``, ``first_ns`` and ``last_ns`` (the
        span), ``clock``, ``gpu_count``, ``failure_count``. Nodes without a clock get that of
        the others.

    Raises
    ------
    WorkbenchError
        If the span is empty, or the nodes are on different clocks.

    Examples
    --------
    >>> len(watched_throughout(NODE_SPANS.empty(), span_ns=(0, 1)))
    0
    """
    NODE_SPANS.check(nodes)
    first, last = map(int, span_ns)
    if last <= first:
        msg = f"span_ns must end after it begins, not {span_ns}"
        raise WorkbenchError(msg)
    clocks = sorted(set(nodes["clock"]) - {"none"})
    if len(clocks) > 1:
        msg = f"nodes are on different clocks ({', '.join(clocks)}); pass those of one"
        raise WorkbenchError(msg)
    table = nodes.assign(first_ns=first, last_ns=last, clock=clocks[0] if clocks else "none")
    return NODE_SPANS.of(table)
