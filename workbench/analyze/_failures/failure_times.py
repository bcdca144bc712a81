"""From a failure log to the times that a replay needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from workbench._numbers import not_negative, whole_number
from workbench.analyze._failures.failure_rows import doubtful_counts, reporters
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_TIMES, FAILURES, NODE_SPANS, RESTART_PHASES

_MINUTE_NS = 60_000_000_000
# Incidents that do not stop a job: told by severity, or because another row stands for them.
_NOT_STOPPING = ("info", "warning")
_SAID_BEFORE = ("follow-on", "planned")


def observed_span(failures: pd.DataFrame, *tables: pd.DataFrame) -> tuple[int, int]:
    """Give from when to when logs watched, in ns, over their tables.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`: the failures that will be counted.
    *tables
        Further tables of the same logs, :data:`workbench.tables.TIMELINE` and ``NODE_SPANS``.
        The more of a log is given, the less the span depends on when the first and the last
        failure happened. Rows on another clock than the failures tell nothing and are not used.

    Returns
    -------
    tuple of int
        First and last time.

    Raises
    ------
    WorkbenchError
        If no failure and no other row has a time, or the failures are on different clocks.

    Examples
    --------
    >>> observed_span(FAILURES.empty())
    Traceback (most recent call last):
    ...
    workbench.errors.WorkbenchError: nothing in these tables has a time
    """
    everything = [FAILURES.check(failures), *tables]
    clocks = next(
        (found for table in everything if (found := set(table["clock"].unique()) - {"none"})), set()
    )
    if len(clocks) > 1:
        msg = f"times of different clocks ({', '.join(sorted(clocks))}) do not fit together"
        raise WorkbenchError(msg)
    times = [
        table.loc[table["clock"].isin(clocks), name].dropna()
        for table in everything
        for name in table.columns
        if name.endswith("_ns")
    ]
    known = pd.concat(times) if times else pd.Series(dtype="int64")
    if known.empty:
        msg = "nothing in these tables has a time"
        raise WorkbenchError(msg)
    return int(known.min()), int(known.max())


def failure_times(  # noqa: PLR0913 - what a log does not say, by name
    failures: pd.DataFrame,
    *,
    span_ns: tuple[int, int],
    replicas: int = 1,
    nodes: Sequence[str] | pd.DataFrame | None = None,
    recovery_min: float | Mapping[str, float] | pd.Series = 10.0,
    kinds: Sequence[str] | None = None,
    everything: bool = False,
) -> pd.DataFrame:
    """Turn a failure log into one run of a replay.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`.
    span_ns
        From when to when the log watched; see :func:`observed_span`. It becomes minute 0 and
        the horizon.
    replicas
        Data-parallel replicas; 1 if every failure stops the whole job.
    nodes
        All nodes in the order they belong to replicas, as names or as table
        :data:`workbench.tables.NODE_SPANS` (in order of name); needed for more than one
        replica. Each replica gets an equal part of them.
    recovery_min
        How long each recovery takes: a number, minutes by phase, or a Series of minutes by
        row of ``failures``.
    kinds
        Reporters to believe, e.g. ``["xid"]``: the kernel, the scheduler and the job may each
        have reported the same failure. Needed if the log has several.
    everything
        Count warnings, planned and follow-on rows too; by default only what stops a job.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_TIMES`, run 0. ``attrs["left_out"]`` counts rows
        that were not taken, by reason; ``attrs["horizon_min"]`` is the length of the span;
        ``attrs["doubts"]`` lists why one failure may be replayed more than once.

    Raises
    ------
    WorkbenchError
        If the span is empty, several kinds of reporters are mixed and ``kinds`` does not say
        whom to believe, replicas are wanted but no nodes given, or there are fewer nodes than
        replicas.
        If the span is empty, times are of different clocks, replicas are wanted but no nodes
        given, a node is named twice, or there are fewer nodes than replicas.

    Notes
    -----
    A failure without a known node stops all replicas: nothing says whom it spared. How many
    there are is in ``attrs["left_out"]`` too, as "have no known node: they stop everybody".

    Examples
    --------
    >>> failure_times(FAILURES.empty(), span_ns=(0, 60_000_000_000)).attrs["horizon_min"]
    1.0
    """
    table = FAILURES.check(failures)
    first, last = (int(each) for each in span_ns)
    if last <= first:
        msg = f"span_ns must end after it begins, not {span_ns}"
        raise WorkbenchError(msg)
    whole_number("replicas", replicas, least=1)
    _one_clock(table)
    reasons = pd.Series("", index=table.index)
    if not everything:
        reasons[table["severity"].isin(_NOT_STOPPING)] = "do not stop a job (severity)"
        reasons[table["category"].isin(_SAID_BEFORE)] = "planned, or follow another failure"
    when = table["start_ns"]
    outside = (when < first) | (when >= last)
    reasons[outside.fillna(value=False).astype(bool)] = "outside the span"
    reasons[when.isna()] = "without a time"
    if kinds is not None:
        reasons[~table["kind"].isin(list(kinds)) & (reasons == "")] = "of other kinds"
    kept = table[reasons == ""]
    _refuse_mixed(kept["kind"], kinds)
    replica = _replicas(kept["node"], replicas, nodes)
    result = pd.DataFrame(
        {
            "run": np.zeros(len(kept), dtype=np.int32),
            "time_min": (kept["start_ns"].astype("int64") - first) / _MINUTE_NS,
            "node": pd.array([pd.NA] * len(kept), dtype="Int64"),
            "replica": replica,
            "wait_min": 0.0,
            **_recovery(recovery_min, kept.index),
            "repair_min": np.nan,
            "is_follow_on": False,
        },
        index=kept.index,
    ).sort_values("time_min", ignore_index=True)
    counts = reasons[reasons != ""].value_counts().to_dict()
    if replicas > 1 and (unknown := int(replica.isna().sum())):
        counts["have no known node: they stop everybody"] = unknown
    result = FAILURE_TIMES.cast(result)
    result.attrs = {
        "left_out": counts,
        "horizon_min": (last - first) / _MINUTE_NS,
        "doubts": doubtful_counts(kept),
    }
    return FAILURE_TIMES.check(result)


def _refuse_mixed(kinds: pd.Series, chosen: Sequence[str] | None) -> None:
    """Raise if several reporters may have told of the same failures."""
    counts = reporters(kinds).value_counts()
    if chosen is None and len(counts) > 1:
        found = ", ".join(f"{kind} ({count:,})" for kind, count in counts.items())
        msg = (
            f"failures of several kinds: {found}; one failure may be reported by each of them. "
            f"Pass analyze.reported_by(failures, {counts.index[0]!r}), or name kinds="
        )
        raise WorkbenchError(msg)


def _one_clock(*tables: pd.DataFrame) -> None:
    """Raise if times count from different zeros."""
    clocks = {str(each) for table in tables for each in table["clock"].unique()} - {"none"}
    if len(clocks) > 1:
        msg = f"times of different clocks ({', '.join(sorted(clocks))}) do not fit together"
        raise WorkbenchError(msg)


def _replicas(
    names: pd.Series, replicas: int, nodes: Sequence[str] | pd.DataFrame | None
) -> pd.Series:
    """Give the replica of every node name; missing where the name is unknown."""
    if replicas == 1:
        # All of them, however many a job has that these failures are replayed with.
        return pd.Series(pd.NA, index=names.index, dtype="Int32")
    if nodes is None:
        msg = f"{replicas} replicas need nodes=: all nodes, in the order they belong to replicas"
        raise WorkbenchError(msg)
    if isinstance(nodes, pd.DataFrame):
        nodes = sorted(NODE_SPANS.check(nodes)["node"])
    order = list(nodes)
    if twice := [name for name, count in Counter(order).items() if count > 1]:
        msg = f"nodes= names {twice[:5]} twice; each belongs to one replica"
        raise WorkbenchError(msg)
    if len(order) < replicas:
        msg = f"{len(order)} nodes cannot form {replicas} replicas"
        raise WorkbenchError(msg)
    place = {name: index * replicas // len(order) for index, name in enumerate(order)}
    return names.map(place).astype("Int32")


def _recovery(
    given: float | Mapping[str, float] | pd.Series, rows: pd.Index
) -> dict[str, np.ndarray | float]:
    """Give the columns of a recovery."""
    columns: dict[str, np.ndarray | float] = dict.fromkeys(RESTART_PHASES.values(), 0.0)
    if isinstance(given, pd.Series):
        minutes = pd.to_numeric(given.reindex(rows), errors="coerce").to_numpy(dtype=np.float64)
        if not (np.isfinite(minutes) & (minutes >= 0)).all():
            bad = int((~(np.isfinite(minutes) & (minutes >= 0))).sum())
            msg = f"recovery_min has no minutes (0 or more) for {bad} of {len(rows)} failures"
            raise WorkbenchError(msg)
        return {**columns, "other_min": minutes}
    phases = given if isinstance(given, Mapping) else {"recovery": given}
    for name, minutes_of in phases.items():
        if name not in RESTART_PHASES:
            msg = f"recovery_min has no phase {name!r}; there are {list(RESTART_PHASES)}"
            raise WorkbenchError(msg)
        columns[RESTART_PHASES[name]] = not_negative(f"recovery_min[{name!r}]", minutes_of)
    return columns
