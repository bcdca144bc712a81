"""From a failure log to the times that a replay needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.numbers import not_negative, share_between, whole_number
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    counted,
    doubtful_counts,
    poisson_interval,
    reporters,
)
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_TIMES, FAILURES, MTTF_BY_SIZE, NODE_SPANS, RESTART_PHASES

_MINUTE_NS = 60_000_000_000


def observed_span(failures: pd.DataFrame, *tables: pd.DataFrame) -> tuple[int, int]:
    """Return from when to when logs watched, in ns, over their tables.

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
    # The first table that has a time decides, and the failures come first.
    by_table = (_clocks(table) for table in everything)
    clocks = _one_of(next(filter(None, by_table), set()))
    times = [
        table.loc[table["clock"].isin(clocks), name].dropna()
        for table in everything
        for name in table.columns
        if name.endswith("_ns")
    ]
    instants = pd.concat(times) if times else pd.Series(dtype="int64")
    if instants.empty:
        msg = "nothing in these tables has a time"
        raise WorkbenchError(msg)
    return int(instants.min()), int(instants.max())


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
        If the span is empty, several kinds of reporters are mixed and ``kinds`` does not say whom
        to believe, times are of different clocks, replicas are wanted but no nodes given, a node
        is named twice, or there are fewer nodes than replicas.

    Notes
    -----
    A failure without a known node stops all replicas: nothing says whom it spared. How many
    there are is in ``attrs["left_out"]`` too, as "have no known node: they stop all replicas".

    Examples
    --------
    >>> failure_times(FAILURES.empty(), span_ns=(0, 60_000_000_000)).attrs["horizon_min"]
    1.0
    """
    table = FAILURES.check(failures)
    first, last = (int(end) for end in span_ns)
    if last <= first:
        msg = f"span_ns must end after it begins, not {span_ns}"
        raise WorkbenchError(msg)
    whole_number("replicas", replicas, least=1)
    _one_of(_clocks(table))
    # One reason per row: a later one overwrites an earlier, so that the counts add up.
    reasons = pd.Series("", index=table.index)
    if not everything:
        is_left = ~table.index.isin(counted(table, LEFT_OUT)[0].index)
        reasons[is_left] = "do not stop a job (severity)"
        is_told = table["category"].isin(LEFT_OUT)
        reasons[is_left & is_told] = "planned, or follow another failure"
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
        counts["have no known node: they stop all replicas"] = unknown
    return FAILURE_TIMES.of(
        result,
        {
            "left_out": counts,
            "horizon_min": (last - first) / _MINUTE_NS,
            "doubts": doubtful_counts(kept),
        },
    )


def _refuse_mixed(kinds: pd.Series, chosen: Sequence[str] | None) -> None:
    counts = reporters(kinds).value_counts()
    if chosen is None and len(counts) > 1:
        tally = ", ".join(f"{kind} ({count:,})" for kind, count in counts.items())
        msg = (
            f"failures of several kinds: {tally}; one failure may be reported by each of them. "
            f"Pass analyze.reported_by(failures, {counts.index[0]!r}), or name kinds="
        )
        raise WorkbenchError(msg)


def _clocks(table: pd.DataFrame) -> set[str]:
    return set(map(str, table["clock"].unique())) - {"none"}


def _one_of(clocks: set[str]) -> set[str]:
    if len(clocks) > 1:
        msg = f"times of different clocks ({', '.join(sorted(clocks))}) do not fit together"
        raise WorkbenchError(msg)
    return clocks


def _replicas(
    names: pd.Series, replicas: int, nodes: Sequence[str] | pd.DataFrame | None
) -> pd.Series:
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
    # Contiguous blocks, whose sizes differ by one node at most.
    replica_of = {name: index * replicas // len(order) for index, name in enumerate(order)}
    return names.map(replica_of).astype("Int32")


def _recovery(
    recovery: float | Mapping[str, float] | pd.Series, rows: pd.Index
) -> dict[str, np.ndarray | float]:
    columns: dict[str, np.ndarray | float] = dict.fromkeys(RESTART_PHASES.values(), 0.0)
    if isinstance(recovery, pd.Series):
        minutes = pd.to_numeric(recovery.reindex(rows), errors="coerce").to_numpy(dtype=np.float64)
        if not (np.isfinite(minutes) & (minutes >= 0)).all():
            bad = int((~(np.isfinite(minutes) & (minutes >= 0))).sum())
            msg = f"recovery_min has no minutes (0 or more) for {bad} of {len(rows)} failures"
            raise WorkbenchError(msg)
        return {**columns, "other_min": minutes}
    phases = recovery if isinstance(recovery, Mapping) else {"recovery": recovery}
    for name, minutes_of in phases.items():
        if name not in RESTART_PHASES:
            msg = f"recovery_min has no phase {name!r}; there are {list(RESTART_PHASES)}"
            raise WorkbenchError(msg)
        columns[RESTART_PHASES[name]] = not_negative(f"recovery_min[{name!r}]", minutes_of)
    return columns


# How the time to failure of a job shrinks as the job grows.

_KINDS = ("measured", "projected")
_MOST_STEPS, _CLOSE = 100, 1e-10


def mttf_by_size(
    sizes: pd.DataFrame, *, gpus_per_node: int = 8, confidence_level: float = 0.95
) -> pd.DataFrame:
    """Set the time to failure of jobs of several sizes beside the 1/N law.

    If every GPU is as likely to fail, a job of twice the size fails twice as often: then
    ``per_1000_node_days`` is the same in every row, and ``slope_ratio`` is 1.

    Parameters
    ----------
    sizes
        One row per size: ``gpu_count``, and either ``failure_count`` and ``exposure_h`` (how
        long jobs of that size ran, added up), or ``mttf_h`` where only that is known, as in
        papers. ``kind`` is measured (the default) or projected. Other columns are ignored.
    gpus_per_node
        GPUs in one node.
    confidence_level
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MTTF_BY_SIZE`, by size. The slope needs measured rows of
        two sizes with counts, and a failure in them.

    Raises
    ------
    WorkbenchError
        If a column is missing, a size, time or count is not what it should be, or counts and
        mean time to failure contradict each other.

    Notes
    -----
    MTTF = exposure / failures, with the exact Poisson interval of the failures. The slope b
    is that of the Poisson regression ln E[failures] = ln exposure + a + b ln GPUs over the
    measured rows, found by Newton's method, with Wald's interval. Per 1,000 node-days:
    1000 · 24 · gpus_per_node / (gpu_count · MTTF).

    References
    ----------
    Published points: arXiv:2410.21680 (Meta RSC).

    Examples
    --------
    >>> points = pd.DataFrame({"gpu_count": [8, 1024], "mttf_h": [1144.8, 7.9]})
    >>> mttf_by_size(points)["per_1000_node_days"].round(1).tolist()
    [21.0, 23.7]
    """
    confidence = share_between("confidence_level", confidence_level)
    node = whole_number("gpus_per_node", gpus_per_node, least=1)
    table = _checked(sizes)
    counts, exposure = table["failure_count"], table["exposure_h"]
    failed = counts.mask(counts == 0)
    mttf = table["mttf_h"].astype("Float64").fillna(exposure / failed)
    low, high = poisson_interval(counts.to_numpy("float64", na_value=np.nan), confidence)
    low_count = pd.Series(low).astype("Float64").mask(counts.isna() | (counts == 0))
    slope = _slope(table[counts.notna() & (table["kind"] == "measured")], confidence)
    table = table.assign(
        mttf_h=mttf,
        low_mttf_h=exposure / pd.Series(high).astype("Float64"),
        high_mttf_h=exposure / low_count,
        per_1000_node_days=1000 * 24 * node / (table["gpu_count"] * mttf),
        slope_ratio=slope[0],
        low_slope_ratio=slope[1],
        high_slope_ratio=slope[2],
    ).sort_values(["gpu_count", "kind"], kind="stable", ignore_index=True)
    return MTTF_BY_SIZE.of(table, {**sizes.attrs, "confidence_level": confidence})


def _checked(sizes: pd.DataFrame) -> pd.DataFrame:
    has_counts = {"failure_count", "exposure_h"} <= set(sizes)
    if "gpu_count" not in sizes or not (has_counts or "mttf_h" in sizes):
        msg = (
            "sizes need the column gpu_count, and failure_count with exposure_h, or mttf_h; "
            f"there is {list(sizes.columns)}"
        )
        raise WorkbenchError(msg)
    table = pd.DataFrame(
        {
            name: pd.Series(
                pd.to_numeric(sizes[name], errors="coerce") if name in sizes else np.nan,
                index=sizes.index,
            ).astype("Float64")
            for name in ("gpu_count", "failure_count", "exposure_h", "mttf_h")
        }
    ).reset_index(drop=True)
    kinds = sizes["kind"].tolist() if "kind" in sizes else ["measured"] * len(sizes)
    table["kind"] = pd.Series(kinds, dtype=pd.Series(["text"]).dtype)
    counted = table["failure_count"].notna()
    is_double = counted & table["mttf_h"].notna()
    # 1 %: papers print mean times to two or three digits.
    off = (table["mttf_h"] * table["failure_count"] - table["exposure_h"]).abs()
    apart = (off > 0.01 * table["exposure_h"]).fillna(value=False)
    rules = {
        "gpu_count is not a whole number from 1": _whole(table["gpu_count"], 1),
        f"kind is not one of {_KINDS}": table["kind"].isin(_KINDS),
        "failure_count is not a whole number from 0": ~counted | _whole(table["failure_count"], 0),
        "exposure_h is not above 0": ~counted | (table["exposure_h"] > 0).fillna(value=False),
        "neither failure_count nor a mttf_h above 0 is given": counted
        | (table["mttf_h"] > 0).fillna(value=False),
        "mttf_h is not exposure_h / failure_count; leave it out": ~(is_double & apart),
    }
    for rule, good in rules.items():
        if not good.all():
            row = int((~good.to_numpy(dtype=bool)).argmax())
            msg = f"row {row} (of {int(table['gpu_count'].fillna(0)[row]):,} GPUs): {rule}"
            raise WorkbenchError(msg)
    return table.astype({"gpu_count": "Int64", "failure_count": "Int64"})


def _whole(values: pd.Series, least: int) -> pd.Series:
    return ((values >= least) & (values % 1 == 0)).fillna(value=False).astype(bool)


def _slope(rows: pd.DataFrame, confidence: float) -> tuple[float, float, float]:
    """Return the power with which failures grow with size, and its interval; else NaN."""
    unknown = (np.nan, np.nan, np.nan)
    if rows["gpu_count"].nunique() < 2 or not (rows["failure_count"] > 0).any():
        return unknown
    size = np.log(rows["gpu_count"].to_numpy(dtype="float64"))
    count = rows["failure_count"].to_numpy(dtype="float64")
    exposure = rows["exposure_h"].to_numpy(dtype="float64")
    # Centred sizes: else the columns of intercept and slope are nearly collinear.
    middle = float(np.average(size, weights=exposure))
    fitted = _newton(np.column_stack([np.ones(len(size)), size - middle]), count, exposure)
    if fitted is None:
        return unknown
    slope, error = fitted
    reach = float(scipy.stats.norm.ppf((1 + confidence) / 2)) * error
    return slope, slope - reach, slope + reach


def _newton(
    design: NDArray[np.float64], count: NDArray[np.float64], exposure: NDArray[np.float64]
) -> tuple[float, float] | None:
    """Fit the Poisson regression; None where the likelihood has no maximum."""
    beta = np.array([np.log(count.sum() / exposure.sum()), 0.0])
    for _ in range(_MOST_STEPS):
        mean = exposure * np.exp(design @ beta)
        information = (design.T * mean) @ design
        if not np.isfinite(information).all() or np.linalg.cond(information) > 1 / _CLOSE:
            return None
        step = np.linalg.solve(information, design.T @ (count - mean))
        # Half a unit at most: exp() of a whole step may overflow far from the maximum.
        beta = beta + step * min(1.0, 0.5 / max(float(np.abs(step).max()), 0.5))
        if np.abs(step).max() < _CLOSE:
            return float(beta[1]), float(np.sqrt(np.linalg.inv(information)[1, 1]))
    return None
