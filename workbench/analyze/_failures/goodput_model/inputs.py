"""Inputs of the goodput models from a failure log: intervals, recoveries, sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.numbers import share_between
from workbench.analyze._failures.causes import reported_by
from workbench.analyze._failures.failure_rows import doubtful_counts, poisson_interval
from workbench.analyze._failures.failure_times import failure_times, observed_span
from workbench.errors import WorkbenchError
from workbench.tables import GOODPUT_INPUTS, TIMELINE, FailureLog

_MINUTE_NS = 6e10
_UP = ("running", "checkpoint")
_DOWN = ("down", "detecting", "terminating")
# Endings that a person or the scheduler chose; the next start is not a recovery from a failure.
_CHOSEN = ("COMPLETED", "CANCELLED", "TIMEOUT", "PREEMPTED", "REQUEUED", "DEADLINE", "SUSPENDED")
_FEW = 5


def goodput_inputs(
    log: FailureLog, *, job: str | None = None, confidence_level: float = 0.95
) -> pd.DataFrame:
    """Measure in a failure log what the models of goodput take as inputs.

    The interruptions of one job are counted, not the lines about failures: the kernel, the
    scheduler and the job report the same failure, and many failures stop nothing. A failure that
    strikes during a recovery prolongs it and is no further interruption. Only a log that tells
    no interrupted job falls back on counting failures.

    Parameters
    ----------
    log
        What :func:`workbench.load.failures` or :func:`workbench.load.failure_table` returned.
    job
        Job to measure, as the scheduler numbers it; by default the interrupted one that ran for
        the most node-hours, of those with more than one run if there are any.
    confidence_level
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_INPUTS`, one row per input that the log tells:
        ``failure_interval_min``, ``time_to_failure_min``, ``recovery_min``, ``node_count``,
        ``gpu_count``, ``replicas``, ``checkpoint_interval_min``, ``checkpoint_write_min``. An
        input that it does not state has no row. ``attrs["job"]`` is the job, None without one.

    Raises
    ------
    WorkbenchError
        If the log has no such job, or neither an interruption nor a failure with a time.

    Notes
    -----
    For one job over the span *T* from its first start to its last end, with *n* interruptions
    and the time *U* in which it ran: ``failure_interval_min`` is T/n, for the convention
    ``"interval"``, and ``time_to_failure_min`` U/n, the estimate of the mean of an exponential law
    from censored times, for ``"poisson"`` and ``"renewal"``. Both have the exact Poisson
    interval of n. ``recovery_min`` is the mean from the end of a run that failed to the start of
    the next, queueing included and work done again not, with Student's interval: too narrow for
    few or very skewed recoveries. So ``1 - recovery_min / failure_interval_min`` is the share of
    time in which the job ran, U/T, where every interruption was recovered from.

    References
    ----------
    W. Nelson, Applied Life Data Analysis, Wiley 1982, chapter 8 (censored exponential times).

    Examples
    --------
    >>> from workbench import datasets, load
    >>> log = load.failures(datasets.path("failures-demo"), tz="UTC", progress=False)
    >>> inputs = goodput_inputs(log).set_index("quantity")
    >>> inputs.loc[["recovery_min", "node_count"], "value"].round(1).tolist()
    [13.6, 128.0]
    """
    confidence = share_between("confidence_level", confidence_level)
    measured = _measured_job(TIMELINE.check(log.timeline), job)
    if measured is None and job is not None:
        names = sorted(log.timeline["job"].dropna().astype(str).unique())
        msg = f"the log records no interruption of job {job!r}; it names {names[:5] or 'no job'}"
        raise WorkbenchError(msg)
    rows = _of_failures(log, confidence) if measured is None else _of_job(measured, confidence)
    return GOODPUT_INPUTS.of(rows, {"job": None if measured is None else measured.job})


class _Job(NamedTuple):
    """One job as one source tells it, in minutes."""

    job: str
    states: pd.DataFrame
    interruptions: int
    span_min: float
    up_min: float
    recoveries_min: NDArray[np.float64]
    replicas: int


def _measured_job(timeline: pd.DataFrame, job: str | None) -> _Job | None:
    """Return the job that ran for the most node-hours, restarted ones before those that ended."""
    rows = timeline[timeline["job"].notna() & timeline["start_ns"].notna()]
    rows = rows[rows["clock"] != "none"]
    if job is not None:
        rows = rows[rows["job"] == job]
    ups = rows[rows["state"].isin(_UP)]
    size = ((ups["end_ns"] - ups["start_ns"]) * ups["node_count"].fillna(1)).groupby(ups["job"])
    # A scheduler lists a hundred thousand jobs; one that ran once and completed is not measured.
    runs = ups.groupby("job").size()
    is_failed = _fails(ups["outcome"]).groupby(ups["job"]).any()
    order = pd.DataFrame({"again": runs > 1, "failed": is_failed, "size": size.sum()})
    order = order[order["again"] | order["failed"]].sort_values(
        ["again", "size"], ascending=False, kind="stable"
    )
    for name in order.index:
        of_job = rows[rows["job"] == name]
        # The scheduler and the job itself both report its runs; whoever names more states sees
        # detection and re-join, which the scheduler counts as running.
        sources = of_job.groupby("source")["state"].nunique()
        if measured := _job(str(name), of_job[of_job["source"] == sources.idxmax()]):
            return measured
    return None


def _fails(outcome: pd.Series) -> pd.Series:
    """Return whether an outcome is a failure, not an end that a person or the scheduler chose."""
    word = outcome.astype(object).where(outcome.notna(), "").astype(str).str.split(" ").str[0]
    return (word != "") & ~word.str.upper().isin(_CHOSEN)


def _job(name: str, states: pd.DataFrame) -> _Job | None:
    """Measure one job; None if it was never interrupted."""
    last_ns = states[["start_ns", "end_ns"]].max().max()
    # The last run of a log may not have ended: it ran at least until the last line.
    states = states.assign(end_ns=states["end_ns"].fillna(last_ns)).astype(
        {"start_ns": "int64", "end_ns": "int64"}
    )
    states = states.sort_values(["start_ns", "end_ns"], kind="stable")
    ups = states[states["state"].isin(_UP)]
    replicas = states.groupby(states["replica"].fillna(-1), sort=True)
    measured = [
        _interruptions(rows) for _, rows in replicas if rows["state"].isin(_UP).to_numpy().any()
    ]
    count = sum(stopped for stopped, _, _ in measured)
    if not count:
        return None
    span_min = float(ups["end_ns"].max() - ups["start_ns"].min()) / _MINUTE_NS
    up_min = float(np.mean([up for _, up, _ in measured]))
    recoveries = np.concatenate([gaps for _, _, gaps in measured])
    return _Job(name, states, count, span_min, up_min, recoveries, len(measured))


def _interruptions(states: pd.DataFrame) -> tuple[int, float, NDArray[np.float64]]:
    """Count the interruptions of one replica; return its time up and its recoveries, in min."""
    ups = states[states["state"].isin(_UP)]
    start, end = ups["start_ns"].to_numpy(), ups["end_ns"].to_numpy()
    reached = np.maximum.accumulate(end)
    # Runs that overlap are told twice; only what lies past the latest end so far is further time.
    up_ns = np.maximum(end - np.maximum(start, np.append(start[:1], reached[:-1])), 0).sum()
    failed = _fails(ups["outcome"]).to_numpy(dtype=bool)
    chosen = ups["outcome"].notna().to_numpy(dtype=bool) & ~failed
    gap = np.append(start[1:], reached[-1]) - reached
    attempt = ups["attempt"].astype("Float64").to_numpy("float64", na_value=np.nan)
    has_next = np.arange(len(ups)) < len(ups) - 1
    again = np.append(np.diff(attempt), 0.0) > 0
    downs = np.sort(states.loc[states["state"].isin(_DOWN), "start_ns"].to_numpy())
    is_down = np.searchsorted(downs, reached + gap) > np.searchsorted(downs, reached)
    stopped = failed | ((again | is_down) & ~chosen & (gap > 0))
    recoveries = gap[stopped & has_next & (gap >= 0)] / _MINUTE_NS
    return int(stopped.sum()), float(up_ns) / _MINUTE_NS, recoveries


def _of_job(measured: _Job, confidence: float) -> list[dict[str, object]]:
    count, states = measured.interruptions, measured.states
    low, high = (float(end[0]) for end in poisson_interval(np.array([count]), confidence))
    named = f"job {measured.job}"
    few = "few interruptions" if count < _FEW else ""
    rows = [
        _row(name, minutes / count, (minutes / high, minutes / low), count, basis, few)
        for name, minutes, basis in (
            ("failure_interval_min", measured.span_min, f"first start to last end of {named}"),
            ("time_to_failure_min", measured.up_min, f"time in which {named} ran"),
        )
    ]
    if len(measured.recoveries_min):
        rows.append(_recovery(measured, confidence))
    for name in ("node_count", "gpu_count"):
        sizes = states[name].dropna()
        if len(sizes[sizes > 0]):
            doubt = "it changed its size; this is the largest" if sizes.nunique() > 1 else ""
            rows.append(_row(name, sizes.max(), None, len(sizes), named, doubt))
    if measured.replicas > 1:
        rows.append(_row("replicas", measured.replicas, None, 1, named, ""))
    return rows + _checkpoints(states, confidence)


def _recovery(measured: _Job, confidence: float) -> dict[str, object]:
    minutes = measured.recoveries_min
    mean, middle = float(minutes.mean()), float(np.median(minutes))
    doubts = []
    if missing := measured.interruptions - len(minutes):
        doubts.append(f"{missing} interruptions without a next run are not in it")
    if mean > 2 * middle:
        doubts.append(f"a few long ones: the median is {middle:.3g} min")
    if len(minutes) < _FEW:
        doubts.append("few recoveries")
    basis = "end of a run that failed to the start of the next, mean"
    ends = _mean_interval(minutes, confidence)
    return _row("recovery_min", mean, ends, len(minutes), basis, "; ".join(doubts))


def _mean_interval(values: NDArray[np.float64], confidence: float) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    reach = float(
        scipy.stats.t.ppf((1 + confidence) / 2, len(values) - 1) * scipy.stats.sem(values)
    )
    return max(float(values.mean()) - reach, 0.0), float(values.mean()) + reach


def _checkpoints(states: pd.DataFrame, confidence: float) -> list[dict[str, object]]:
    """Measure how often the job saves, and for how long that stops it."""
    written = states[states["state"] == "checkpoint"].sort_values("start_ns")
    writes = (written["end_ns"] - written["start_ns"]).to_numpy("float64") / _MINUTE_NS
    if not len(writes):
        return []
    # The useful time between two checkpoints of one attempt; a restart lies between others.
    same = written.groupby(["attempt", written["replica"].fillna(-1)], dropna=False)
    work = ((written["start_ns"] - same["end_ns"].shift()) / _MINUTE_NS).dropna()
    rows = [
        _row("checkpoint_write_min", writes.mean(), _mean_interval(writes, confidence),
             len(writes), "state checkpoint, mean", "")
    ]  # fmt: skip
    if len(work):
        rows.insert(0, _row("checkpoint_interval_min", work.median(), None, len(work),
                            "between two checkpoints of one attempt, median", ""))  # fmt: skip
    return rows


def _of_failures(log: FailureLog, confidence: float) -> list[dict[str, object]]:
    """Fall back on the failures of one reporter, all nodes of the log taken as one job."""
    try:
        rows = reported_by(log.failures, "kernel")
    except WorkbenchError:
        rows = reported_by(log.failures)
    rows = rows[rows["clock"] == rows["clock"].mode().iloc[0]] if len(rows) else rows
    span = observed_span(rows, log.timeline, log.nodes)
    # The span is half open; the failure that ends it counts.
    times = failure_times(rows, span_ns=(span[0], span[1] + 1))
    count = len(times)
    if not count or span[1] == span[0]:
        msg = "the log has no failure that stops a job, or only one instant; nothing to measure"
        raise WorkbenchError(msg)
    minutes = (span[1] - span[0]) / _MINUTE_NS
    low, high = (float(end[0]) for end in poisson_interval(np.array([count]), confidence))
    doubts = ["every failure is taken to stop one job on all nodes", *doubtful_counts(rows)]
    if count < _FEW:
        doubts.append("few failures")
    basis = f"span of the log / failures that {rows['kind'].mode().iloc[0]} reports"
    ends = (minutes / high, minutes / low)
    inputs = [
        _row(name, minutes / count, ends, count, basis, "; ".join(doubts))
        for name in ("failure_interval_min", "time_to_failure_min")
    ]
    if len(log.nodes):
        inputs.append(_row("node_count", len(log.nodes), None, len(log.nodes), "nodes named", ""))
    return inputs


def _row(
    quantity: str,
    value: float,
    ends: tuple[float, float] | None,
    count: int,
    basis: str,
    doubt: str,
) -> dict[str, object]:
    low, high = ends or (pd.NA, pd.NA)
    return {"quantity": quantity, "value": float(value), "low": low, "high": high,
            "sample_count": count, "basis": basis, "doubt": doubt}  # fmt: skip
