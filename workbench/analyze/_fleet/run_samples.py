"""Quantities of a run that can be compared: a value per step, or a count over a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._failures.failure_rows import LEFT_OUT, counted, reporters
from workbench.analyze._fleet.run_units import recorded_steps
from workbench.analyze._fleet.step_energy import step_energy
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.collectives import collectives
from workbench.analyze._traces.diff import short_name
from workbench.errors import WorkbenchError
from workbench.tables import Bundle, FailureLog, JobLog, Trace

_KINDS = {
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed communication",
    "exposed_memory_ns": "exposed copies",
    "idle_ns": "idle",
}
Key = tuple[str, str]
Samples = dict[Key, NDArray[np.float64]]
STEP: Key = ("step time", "step")
EXPOSED: Key = ("time by kind", "exposed communication")
KERNELS: Key = ("time by kind", "compute")  # there where kernels of steps were recorded
ENERGY: Key = ("energy of a step", "all meters")
# A number of nodes is known of a scheduler's or a job's log, else only the time of the job.
PER_NODE, PER_JOB = "per 1,000 node-hours", "per 1,000 hours of the job"


class Rate(NamedTuple):
    """Events of one kind, and the hours over which they were counted."""

    event_count: int
    exposure_h: float


def samples_of(run: Bundle) -> Samples:
    """Return the samples of every quantity, one per step: ms, or kJ of energy."""
    samples: Samples = {}
    if run.trace is not None and run.trace.events["kind"].notna().any():
        samples |= dict(_of_trace(run.trace))
    if run.job is not None and len(run.job.steps):
        steps = run.job.steps
        lengths = _after_first((steps["end_ns"] - steps["start_ns"]).to_numpy("float64") / 1e6)
        samples[("step time", "step of the job log") if STEP in samples else STEP] = lengths
    if run.power is not None and run.job is not None and len(run.job.steps):
        energy = step_energy(run.power.power, run.job.steps)["energy_j"].dropna()
        if len(energy):
            samples[ENERGY] = _after_first(energy.to_numpy("float64") / 1e3)
    return samples


def _of_trace(trace: Trace) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    events = trace.events
    times = step_times(events)
    per_step = times.groupby("step")["host_ns"].mean().dropna()
    if per_step.empty:
        per_step = times.groupby("step")["gpu_ns"].mean().dropna()
    if per_step.empty:
        return
    yield STEP, _after_first(per_step.to_numpy("float64") / 1e6)
    # A step that was not recorded is no step without kernels.
    per_step = per_step[per_step.index.isin(recorded_steps(events, times))]
    if per_step.empty:
        return
    parts = time_breakdown(events, by="step")
    parts = parts[parts["step"].isin(per_step.index)]
    for column, name in _KINDS.items():
        means = parts.groupby("step")[column].mean().astype("float64")
        yield ("time by kind", name), _after_first(means.to_numpy() / 1e6)
    work = events[events["kind"].notna() & events["step"].isin(per_step.index)]
    short = work["name"].astype(str).map({n: short_name(str(n)) for n in work["name"].unique()})
    ranks = work["rank"].nunique()
    yield from _per_step("kernel", work["dur_ns"], short, (work["step"], per_step.index, ranks))
    table = collectives(events, process_groups=trace.process_groups)
    table = table[table["step"].isin(per_step.index)]
    operation = table["operation"].astype(str)
    steps = (table["step"], per_step.index, ranks)
    yield from _per_step("collective", table["dur_ns"], operation, steps)
    waits = table[table["wait_ns"].notna()]
    steps = (waits["step"], per_step.index, ranks)
    waiting = operation[waits.index] + ", waiting for the last rank"
    yield from _per_step("collective", waits["wait_ns"].astype("int64"), waiting, steps)


def _per_step(
    quantity: str, dur_ns: pd.Series, name: pd.Series, steps: tuple[pd.Series, pd.Index, int]
) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    """Sum times by name and step, as the mean over ranks [ms]; a step without it has 0."""
    step, known, ranks = steps
    if dur_ns.empty:
        return
    sums = dur_ns.groupby([name.rename("name"), step], observed=True).sum()
    for label, rows in sums.groupby(level=0):
        series = rows.droplevel(0).reindex(known, fill_value=0)
        yield (quantity, str(label)), _after_first(series.to_numpy("float64") / ranks / 1e6)


def _after_first(values: NDArray[Any]) -> NDArray[np.float64]:
    return values[1:] if len(values) > 3 else values


def rates_of(run: Bundle, exposure: str, reporter: str | None) -> dict[Key, Rate]:
    """Count failures by category, and interruptions of the job, over one kind of exposure."""
    rates: dict[Key, Rate] = {}
    hours = exposures_h(run)
    if exposure not in hours:
        return rates
    if run.failures is not None:
        counts = counted_failures(run.failures, reporter)["category"].astype(str).value_counts()
        rates["failures", "all"] = Rate(int(counts.sum()), hours[exposure])
        rates |= {("failures", str(k)): Rate(int(n), hours[exposure]) for k, n in counts.items()}
    if run.job is not None and exposure == PER_JOB:
        stops = int((run.job.spans["kind"] == "restart").sum())
        rates["interruptions", "restarts in the job log"] = Rate(stops, hours[exposure])
    return rates


def reporter_of(*runs: Bundle) -> str | None:
    """Choose the reporter whose failures are counted: the same for all runs, the kernel if any."""
    tables = [run.failures.failures["kind"] for run in runs if run.failures is not None]
    kinds = (
        reporters(pd.concat([kind for kind in tables if len(kind)]))
        if any(map(len, tables))
        else pd.Series(dtype=str)
    )
    if kinds.empty:
        return None
    return "kernel" if (kinds == "kernel").any() else str(kinds.mode().iloc[0])


def counted_failures(log: FailureLog, reporter: str | None) -> pd.DataFrame:
    """Return what counts as a failure, as one reporter tells it: else one is counted thrice."""
    rows = counted(log.failures, LEFT_OUT)[0]
    return rows if reporter is None else rows[reporters(rows["kind"]) == reporter]


def exposures_h(run: Bundle) -> dict[str, float]:
    """Return the hours over which failures of a run were watched for, of nodes and of the job."""
    hours: dict[str, float] = {}
    job_h = 0.0
    if run.job is not None and len(run.job.steps):
        ends = [run.job.steps["end_ns"].max(), run.job.spans["end_ns"].max()]
        starts = [run.job.steps["start_ns"].min(), run.job.spans["start_ns"].min()]
        job_h = float(max(pd.Series(ends).dropna()) - min(pd.Series(starts).dropna())) / 3.6e12
    if run.failures is not None:
        log = run.failures
        is_running = (log.timeline["state"] == "running") & log.timeline["end_ns"].notna()
        running = log.timeline[is_running].drop_duplicates(["job", "start_ns", "end_ns"])
        length_h = (running["end_ns"] - running["start_ns"]).astype("Float64") / 3.6e12
        node_h = float((length_h * running["node_count"]).sum())
        if not node_h:
            watched = log.nodes["last_ns"] - log.nodes["first_ns"]
            node_h = float(watched.astype("Float64").fillna(0).sum()) / 3.6e12
        hours[PER_NODE] = node_h
        job_h = job_h or float(length_h.sum())
    hours[PER_JOB] = job_h
    return {kind: value for kind, value in hours.items() if value > 0}


def run_halves(run: Bundle) -> tuple[Bundle, Bundle]:
    """Cut a run into its earlier and its later half, to compare them with each other.

    Parameters
    ----------
    run
        From :func:`workbench.load.bundle`.

    Returns
    -------
    tuple of workbench.tables.Bundle
        Traces and job logs are cut by their steps, failure logs at the middle of their time;
        power telemetry is in both, as its steps are chosen by the job log.

    Raises
    ------
    WorkbenchError
        If the run has fewer than two steps, and no failure log.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> run = load.bundle(datasets.path("fleet-demo"), tz="UTC", progress=False)
    >>> early, late = run_halves(run)
    >>> len(early.job.steps), len(late.job.steps)
    (64, 64)
    """
    early, late = (_half(run, late=late) for late in (False, True))
    if not early and not late:
        msg = "the run has fewer than two steps and no failure log: it has no halves to compare"
        raise WorkbenchError(msg)
    return Bundle(**early), Bundle(**late)


def _half(run: Bundle, *, late: bool) -> dict[str, Any]:
    half: dict[str, Any] = {}
    if run.trace is not None:
        events = run.trace.events[run.trace.events["step"].notna()]
        steps = np.sort(events["step"].unique())
        if len(steps) > 1:
            is_late = (events["step"] >= steps[(len(steps) + 1) // 2]).astype(bool)
            # Row labels stay: launches name their events by them.
            part = events[is_late if late else ~is_late]
            half["trace"] = dataclasses.replace(run.trace, events=part)
    if run.job is not None and len(run.job.steps) > 1:
        middle = int(run.job.steps["start_ns"].iloc[len(run.job.steps) // 2])
        logged = _cut(run.job.steps, "start_ns", "start_ns", middle, late=late)
        spans = _cut(run.job.spans, "start_ns", "end_ns", middle, late=late)
        half |= {"job": JobLog(logged, spans, run.job.quality), "power": run.power}
    if run.failures is not None and len(run.failures.nodes):
        half["failures"] = _half_of_failures(run.failures, late=late)
    return half


def _cut(table: pd.DataFrame, begin: str, end: str, at_ns: int, *, late: bool) -> pd.DataFrame:
    """Keep what begins on one side of an instant; what spans it is shortened to that side."""
    # What has not ended yet reaches into the later half.
    reaches = (table[end] > at_ns).fillna(value=True)
    rows = table[reaches] if late else table[table[begin] < at_ns]
    if begin == end:
        rows = table[table[begin] >= at_ns] if late else table[table[begin] < at_ns]
        return rows.reset_index(drop=True)
    clipped = {begin: rows[begin].clip(lower=at_ns)} if late else {end: rows[end].clip(upper=at_ns)}
    return rows.assign(**clipped).reset_index(drop=True)


def _half_of_failures(log: FailureLog, *, late: bool) -> FailureLog:
    spans = log.nodes[log.nodes["last_ns"].notna()]
    if spans.empty or spans["clock"].nunique() > 1:
        msg = "failures on several clocks, or without times, have no halves"
        raise WorkbenchError(msg)
    first, last = int(spans["first_ns"].min()), int(spans["last_ns"].max())
    at_ns = first + (last - first) // 2
    return FailureLog(
        _cut(log.failures, "start_ns", "start_ns", at_ns, late=late),
        _cut(log.timeline, "start_ns", "end_ns", at_ns, late=late),
        _cut(spans, "first_ns", "last_ns", at_ns, late=late),
        log.quality,
    )
