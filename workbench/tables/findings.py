"""Findings about a job, the rules that make them, and all that was loaded of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import pandas as pd

from workbench.tables.failures import FailureLog, FlightRecording
from workbench.tables.power import JobLog, PowerLog
from workbench.tables.pvf import Injections
from workbench.tables.table import table
from workbench.tables.trace_analyses import MemoryRecording
from workbench.tables.traces import SAYS_SYNTHETIC, RankFiles, Trace

FINDINGS = table("""
    findings: One row per finding about a job, the most expensive first.

    domain: category - traces, communication, imbalance, failures, pvf, perfmodel, power or
        fleet
    rule: str - rule that found it
    finding: str - sentence in the words of the field
    where: str - host, rank, GPU, stage or steps; empty for the whole job
    cost: Float64? >=0 - cost, in `cost_unit`; missing if the rule gives none
    cost_unit: str - unit of the cost, e.g. ms per step; empty without a cost
    cost_basis: str - how the cost was computed
    time_share: Float64? 0..1 - the cost as a share of the GPU time observed; missing if it is none
        of GPU time
    confidence: category - high, medium or low
    doubt: str - why it may be wrong; empty if nothing speaks against it
    evidence: str - call that shows it
    next_step: str - first check or remedy
    threshold: str - thresholds of the rule, as used
""")

FINDING_RULES = table("""
    finding_rules: One row per rule: what it asks, of which data, and how it answered.

    domain: category - as in the findings
    rule: str - name of the rule
    about: str - trouble that it looks for
    needs: str - kinds of data that it needs
    state: category - found, nothing, no data, or refused (the analysis behind it raised)
    finding_count: int64 >=0 - findings
    note: str - kinds of data or columns that are missing, or the message of the refusal; else
        empty
    thresholds: str - names and values
    reference: str - publication or manual that gives the reason
""")

RUN_COMPARISON = table("""
    run_comparison: One row per quantity of two runs: the step time, resolved changes, then the
    rest, each by its share of the step.

    quantity: category - step time, time by kind, kernel, collective, energy of a step, failures, or
        interruptions; without steps times by kind, kernel, and module or range per second, kernel
        call, and whole trace
    name: str - which of them, e.g. exposed communication, or a kernel without its arguments
    a: float64 - mean of run A over its steps, or rate of A, in `unit`
    b: float64 - mean of run B, or its rate, in `unit`
    difference: float64 - B minus A, in `unit`
    low: Float64? - lower end of the interval of the difference, wide enough for all rows to hold
        together; missing with fewer than two steps in a run
    high: Float64? - upper end
    unit: str - ms per step, kJ per step, per 1,000 node-hours, or per 1,000 hours of the job;
        without steps ms per second, ms per call, or ms
    change_ratio: Float64? - B / A; missing if A is 0
    step_ratio: Float64? - difference as a share of the step of A; missing if it is not a time
    a_count: int64 >=0 - steps, windows of time or calls of A, or events counted in A
    b_count: int64 >=0 - steps of B, or events counted in B
    p_value_share: Float64? 0..1 - probability of such a difference by chance, corrected for the
        number of rows (Bonferroni)
    verdict: category - changed, or not resolvable
""")

RUN_TREND = table("""
    run_trend: One row per run: what it is, and what its steps took.

    run: str - name of the run
    start_ns: Int64? - its first step or event, ns since the Unix epoch; missing without a clock
    gpu: str - GPU models, comma-separated; empty if unknown
    rank_count: Int64? >=0 - ranks whose traces were loaded; missing without traces
    world_size: Int64? >=1 - ranks of the job
    step_count: int64 >=0 - steps behind the means, the first left out
    step_ms: Float64? >=0 - mean step time
    low_step_ms: Float64? - lower end of its interval over the steps of the run
    high_step_ms: Float64? - upper end
    exposed_communication_ms: Float64? >=0 - mean per step
    energy_j: Float64? >=0 - mean energy per step, J
    failure_count: Int64? >=0 - failures that count; missing without a failure log
    exposure_h: Float64? >=0 - node-hours, or hours of the job, over which they were counted
    exposure: str - which of the two; empty without
    is_synthetic: bool - files of the run say that they were made
    doubt: str - in what it is not like the first run; empty if nothing speaks against it
""")

RUN_CHANGES = table("""
    run_changes: One row per quantity of many runs: the run at which it changed, if it did.

    quantity: str - step time, exposed communication, energy of a step, or failure rate
    first_run: str - first run after the most likely change
    before: float64 - mean of the runs before it, in `unit`
    after: float64 - mean from that run on
    difference: float64 - after minus before
    low: Float64? - lower end of the interval of the difference, wide enough for all places of a
        change and all quantities; missing with too few runs
    high: Float64? - upper end
    unit: str - ms per step, J per step, per 1,000 node-hours, or per 1,000 hours of the job
    run_count: int64 >=0 - runs with this quantity
    after_count: int64 >=0 - of them from the change on
    spread_ratio: Float64? >=0 - standard deviation from run to run without the change, as a share
        of the mean before it
    correlation: Float64? - of neighbouring runs, without the change
    p_value_share: Float64? 0..1 - probability of such a change by chance anywhere in the series,
        corrected for the number of quantities (Bonferroni)
    verdict: category - changed, or not resolvable
    doubt: str - why it may be wrong; empty if nothing speaks against it
""")


_KINDS: Mapping[str, type] = {
    "trace": Trace,
    "rank_files": RankFiles,
    "power": PowerLog,
    "job": JobLog,
    "failures": FailureLog,
    "flight": FlightRecording,
    "memory": MemoryRecording,
    "injections": Injections,
}


@dataclass(frozen=True)
class Bundle:
    """All that is known about a job: what each loader returned, None where there was nothing.

    ``quality`` says what could not be read, ``files`` which kinds of data each file holds. Of a job
    of many ranks ``rank_files`` may list the traces in place of ``trace``;
    :func:`workbench.analyze.findings` then loads one rank after the other.
    """

    trace: Trace | None = None
    power: PowerLog | None = None
    job: JobLog | None = None
    failures: FailureLog | None = None
    flight: FlightRecording | None = None
    memory: MemoryRecording | None = None
    operations: pd.DataFrame | None = None
    document_lengths: pd.DataFrame | None = None
    injections: Injections | None = None
    quality: pd.DataFrame | None = None
    files: pd.DataFrame | None = None
    rank_files: RankFiles | None = None

    @classmethod
    def of(cls, loaded: object) -> Bundle:
        """Wrap what one loader returned; a bundle stays as it is.

        Raises
        ------
        TypeError
            If it is none of a bundle, a trace, power, job or failure logs, dumps or injections.
        """
        if isinstance(loaded, cls):
            return loaded
        for name, kind in _KINDS.items():
            if isinstance(loaded, kind):
                return cls(**{name: loaded})  # type: ignore[arg-type]
        msg = (
            f"a {type(loaded).__name__} has no findings; give what load.bundle, load.traces, "
            "load.rank_files, load.power, load.job_log, load.failures, load.flight_recorder, "
            "load.memory or "
            "load.injections returned, or a tables.Bundle of several"
        )
        raise TypeError(msg)

    @property
    def is_synthetic(self) -> bool:
        """Whether any data are marked as simulated; figures should say so, too."""
        loaded = [getattr(self, field.name) for field in fields(self)]
        # Plain tables have no list of findings; theirs is a mark.
        return any(
            part.attrs.get("synthetic", False)
            if isinstance(part, pd.DataFrame)
            else getattr(part, "is_synthetic", False)
            for part in loaded
        ) or bool(self.quality is not None and (self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Name the kinds of data."""
        held = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        return f"Bundle of {', '.join(held) or 'nothing'}"


@dataclass(frozen=True)
class Findings:
    """Findings, the answer of each rule, and the tables that they read.

    ``tables`` has what was computed on the way, by domain and name, e.g. ``traces.late``.
    """

    findings: pd.DataFrame
    rules: pd.DataFrame
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        """Count both."""
        applied = int(self.rules["state"].isin(["found", "nothing"]).sum())
        return f"{len(self.findings)} findings; {applied} of {len(self.rules)} rules applied"
