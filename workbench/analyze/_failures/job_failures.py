"""Failures on the nodes of a job around its end, and jobs that fail again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import positive, whole_number
from workbench.analyze._failures.failure_rows import NO_FAILURE, NS_PER_H, counted, needed, timed
from workbench.errors import WorkbenchError
from workbench.tables import CRASH_LOOPS, JOB_FAILURES, TIMELINE

_UNKNOWN = "unknown"
_NS_PER_MIN = NS_PER_H / 60
_FAILED = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")


def job_failures(
    failures: pd.DataFrame,
    timeline: pd.DataFrame,
    *,
    before_min: float = 10,
    after_min: float = 5,
    outcomes: Sequence[str] = _FAILED,
    leave_out: Sequence[str] = NO_FAILURE,
) -> pd.DataFrame:
    """Find what failed on the nodes of each failed run of a job around its end.

    Health checks run every few minutes, so a cause may be seen only after the job has died.
    Several causes at once are the rule for hardware: all are kept, and one leads. A run for
    which nothing was seen stays unknown.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`. What the scheduler itself reports (``kind``
        slurm) says that the job failed, not why, and is not a cause.
    timeline
        Table :data:`workbench.tables.TIMELINE`.
    before_min
        How long before the end of the run a failure is its cause.
    after_min
        How long after it.
    outcomes
        Outcomes (their first word) of runs that failed.
    leave_out
        Severities and categories that are not causes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_FAILURES`, by end. ``attrs["left_out"]`` counts the
        failures not counted and the failed runs whose end is not known.

    Raises
    ------
    WorkbenchError
        If failures and runs are not on one clock, or an argument is out of range.

    Notes
    -----
    An incident counts if its first to last line touch the window from ``before_min`` before to
    ``after_min`` after the end of the run, and it is of one of the run's nodes or names the job.
    The primary cause is the earliest fatal one, else the earliest.

    References
    ----------
    arXiv:2410.21680, section 3: 10 minutes before to 5 minutes after.
    """
    positive("before_min", before_min)
    positive("after_min", after_min)
    TIMELINE.check(timeline)
    kept, left = counted(needed(failures, "node", "job", "kind", "cause", "end_ns"), leave_out)
    # The record of a failed job cannot explain that job.
    kept = timed(kept[kept["kind"] != "slurm"], left)
    runs = _failed_runs(timeline, outcomes, left)
    _refuse_other_clock(kept, runs)
    pairs = _pairs(kept, runs)
    early = pairs["end_ns"] >= pairs["run_end_ns"] - before_min * _NS_PER_MIN
    late = pairs["start_ns"] <= pairs["run_end_ns"] + after_min * _NS_PER_MIN
    seen = pairs[early & late].assign(is_mild=lambda rows: rows["severity"] != "fatal")
    # One failure can be joined twice: by its node and by its job.
    seen = seen.drop_duplicates(["run", "cause", "start_ns", "severity"])
    # Causes are listed in the order in which they struck.
    by_time = seen.sort_values(["run", "start_ns"], kind="stable")
    causes = by_time.drop_duplicates(["run", "cause"]).groupby("run")["cause"]
    # The primary cause is the earliest fatal one, else the earliest.
    lead = seen.sort_values(["run", "is_mild", "start_ns"], kind="stable")
    table = runs.assign(
        primary_cause=lead.groupby("run")["cause"].first().reindex(runs.index).fillna(_UNKNOWN),
        causes=causes.agg(" + ".join).reindex(runs.index).fillna(""),
        cause_count=causes.size().reindex(runs.index).fillna(0).astype("int64"),
    )
    return JOB_FAILURES.of(table.reset_index(drop=True), {"left_out": left})


def crash_loops(
    job_failures: pd.DataFrame, *, least_count: int = 3, within_h: float = 2
) -> pd.DataFrame:
    """List the jobs that were requeued into the same failure again and again.

    A job that fails and starts over every few minutes takes GPUs from others each time; it
    should be held, not requeued.

    Parameters
    ----------
    job_failures
        Table :data:`workbench.tables.JOB_FAILURES`.
    least_count
        Failed runs in a row that make a loop.
    within_h
        The next run of a loop ends no later than this after the one before.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CRASH_LOOPS`: ``job``, ``run_count``, ``first_ns``,
        ``last_ns``, ``primary_cause``, the longest first.

    Raises
    ------
    WorkbenchError
        If an argument is out of range.
    """
    JOB_FAILURES.check(job_failures)
    least = whole_number("least_count", least_count, least=2)
    reach = positive("within_h", within_h) * NS_PER_H
    runs = job_failures[job_failures["job"].notna()].sort_values(["job", "end_ns"], kind="stable")
    if runs.empty:
        return CRASH_LOOPS.empty()
    gap = runs.groupby("job")["end_ns"].diff()
    # Negated, so that the first run of a job, whose gap is NaN, begins a series.
    series = (~(gap <= reach)).cumsum().to_numpy()
    groups = runs.assign(series=series).groupby("series")
    table = pd.DataFrame(
        {
            "job": groups["job"].first(),
            "run_count": groups.size(),
            "first_ns": groups["end_ns"].min(),
            "last_ns": groups["end_ns"].max(),
            "primary_cause": groups["primary_cause"].agg(lambda causes: causes.mode().iloc[0]),
        }
    )
    table = table[table["run_count"] >= least]
    table = table.sort_values("run_count", ascending=False, kind="stable", ignore_index=True)
    return CRASH_LOOPS.of(table)


def _failed_runs(
    timeline: pd.DataFrame, outcomes: Sequence[str], left: dict[str, int]
) -> pd.DataFrame:
    failed = timeline[_is_failed(timeline, outcomes)]
    has_end = (failed["end_ns"].notna() & (failed["clock"] != "none")).to_numpy(dtype=bool)
    if count := int((~has_end).sum()):
        left["failed runs without an end"] = count
    # The state in which a run ended may not repeat its nodes.
    last = timeline.groupby(["job", "attempt"], dropna=False)["nodes"].transform("last")
    nodes = failed["nodes"].where(failed["nodes"].notna() | failed["job"].isna(), last)
    failed = failed.assign(nodes=nodes)
    runs = failed[has_end].sort_values("end_ns", kind="stable")
    same = runs.duplicated(["job", "attempt"], keep="last") & runs["job"].notna()
    return runs[~same].astype({"end_ns": "int64"}).reset_index(drop=True)


def _is_failed(timeline: pd.DataFrame, outcomes: Sequence[str]) -> NDArray[np.bool_]:
    if isinstance(outcomes, str):
        msg = f"outcomes={outcomes!r} is a text; pass a tuple of outcomes"
        raise WorkbenchError(msg)
    word = timeline["outcome"].astype(object).where(timeline["outcome"].notna(), "")
    first = word.astype(str).str.split(" ").str[0]
    return first.isin(list(outcomes)).to_numpy(dtype=bool)


def _refuse_other_clock(failures: pd.DataFrame, runs: pd.DataFrame) -> None:
    clocks = set(failures["clock"]) | set(runs["clock"])
    sources = set(failures["source"]) | set(runs["source"])
    if len(clocks) > 1 or (clocks == {"own"} and len(sources) > 1):
        msg = (
            f"failures and runs are on clocks that cannot be compared ({', '.join(sorted(clocks))})"
            "; load the logs with their time zone or boot time"
        )
        raise WorkbenchError(msg)


def _pairs(failures: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Pair runs with the failures of their nodes, and with those that name the job."""
    # A failure without an end is taken for a moment.
    ends_ns = failures["end_ns"].fillna(failures["start_ns"]).astype("int64")
    failures = failures.assign(start_ns=failures["start_ns"].astype("int64"), end_ns=ends_ns)
    nodes = runs["nodes"].astype(object).where(runs["nodes"].notna(), "")
    ends = pd.DataFrame({"run": np.arange(len(runs)), "run_end_ns": runs["end_ns"].to_numpy()})
    hosts = pd.Series([str(names).split(",") for names in nodes], dtype=object)
    on_nodes = ends.assign(node=hosts).explode("node")
    on_nodes = on_nodes[on_nodes["node"].fillna("").astype(str) != ""].astype({"node": str})
    of_job = ends.assign(job=runs["job"].to_numpy())
    of_job = of_job[of_job["job"].notna()].astype({"job": str})
    columns = ["run", "run_end_ns", "cause", "severity", "start_ns", "end_ns"]
    pairs = []
    for key, side in (("node", on_nodes), ("job", of_job)):
        keyed = failures.loc[failures[key].notna(), [key, *columns[2:]]].astype({key: str})
        pairs.append(side.merge(keyed, on=key)[columns])
    # An empty frame has no dtypes worth keeping.
    filled = [rows for rows in pairs if len(rows)]
    return pd.concat(filled, ignore_index=True) if filled else pairs[0]
