"""Tables of the fleet: what happened, and the power and energy of work."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.failures import FailureLog
from workbench.tables.power import JobLog, PowerLog
from workbench.tables.table import Column, Table, columns, table
from workbench.tables.traces import flagged_text

# Everything one folder tells about a job: power, steps, failures and traces.


@dataclass(frozen=True, eq=False)
class Fleet:
    """Loaded data of one job, kind by kind; a plain bundle without methods.

    A kind of which nothing was found has empty tables, and a row in ``quality``. ``ranks`` is
    table ``ranks`` of the traces.
    """

    power: PowerLog
    job: JobLog
    failures: FailureLog
    ranks: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any file is marked as simulated; figures should say so, too."""
        return any(log.is_synthetic for log in (self.power, self.job, self.failures))

    def __repr__(self) -> str:
        """Describe what was loaded and what was not there."""
        counts = {
            "power": (len(self.power.power), "readings"),
            "job log": (len(self.job.steps), "steps"),
            "failures": (len(self.failures.failures), "incidents"),
            "traces": (len(self.ranks), "ranks"),
        }
        loaded = [f"{name}: {count:,} {noun}" for name, (count, noun) in counts.items() if count]
        absent = [name for name, (count, _) in counts.items() if not count]
        text = "; ".join(loaded) or "nothing"
        without = f"; not there: {', '.join(absent)}" if absent else ""
        return f"Fleet: {text}{without}; {flagged_text(self.quality)}"


# Power beside work: energy of steps, spans and incidents, dips and their causes.

_EPOCH = "ns since the Unix epoch, on the clock of the job log"
_COVERED = "of the time, over all entities, that readings cover"
# Where the energy of a run went, in the order in which figures stack it.
WASTE_STATES = (
    "useful steps",
    "lost steps",
    "unfinished step",
    "restart",
    "checkpoint",
    "evaluation",
    "initialisation",
    "between steps",
    "not told",
)

STEP_ENERGY = Table(
    "step_energy",
    "Energy of every logged step, in order of time.",
    {
        **columns("""
            step: int64 >=0 - number of the step
            attempt: int32 >=1 - run of the job, from 1
        """),
        "start_ns": Column("int64", f"start; {_EPOCH}"),
        "end_ns": Column("int64", f"end; {_EPOCH}"),
        **columns("""
            energy_j: float64? >=0 - energy of all entities; missing where too little is known
            mean_w: float64? >=0 - mean power of all entities over what is known
            token_count: Int64? >=0 - tokens of the step, all ranks
            sample_count: Int64? >=0 - samples of the step, all ranks
            energy_per_token_j: float64? >=0 - energy / tokens
            energy_per_sample_j: float64? >=0 - energy / samples
            covered_share: float64 0..1 - of the time, over all entities, that readings cover
            entity_count: int64 >=0 - entities that were summed
            reading_count: int64 >=0 - readings within the step, of all entities
        """),
    },
)

KERNEL_ENERGY = table("""
    kernel_energy: Energy by kind of kernel, operator or module, then idle, then what is not
    explained; the energies add up to what was measured.

    kind: str - kind of kernel, rule that recognizes it, operator, or path of the module; idle; not
        explained
    busy_s: float64 >=0 - time that it was running during the readings; idle lasts all the time
    power_w: float64? >=0 - power that it adds while it runs; missing for what is not explained
    low_w: float64? >=0 - lower end of the interval (95 %)
    high_w: float64? >=0 - its upper end
    energy_j: float64 - power times time; what is not explained may be negative
    low_j: float64? >=0 - lower end of the interval
    high_j: float64? >=0 - its upper end
    reading_count: int64 >=0 - readings in which it runs
    is_sure: bool - the interval is above 0, and it runs in at least 5 readings
""")

PHASE_POWER = table("""
    phase_power: Power by how far a step has got, all steps laid over each other; a last row holds
    the samples outside of steps.

    place: str - in steps, or outside of steps
    first_share: float64? 0..1 - start of the phase
    last_share: float64? 0..1 - end of the phase
    power_w: float64? >=0 - mean of the samples
    deviation_w: float64? - standard deviation of the samples
    low_w: float64? - 10 % of the samples are below
    high_w: float64? - 10 % of the samples are above
    sample_count: int64 >=0 - samples with power
    missing_count: int64 >=0 - samples without
""")

_DIP = columns("""
    start_ns: int64 - start of its first cell, on the clock of the meter
    end_ns: int64 - end of its last cell, on the clock of the meter
    dur_s: float64 >=0 - how long it lasts
    usual_w: float64 >=0 - power expected meanwhile
    mean_w: float64 >=0 - mean of the cells that are known
    lowest_w: float64 >=0 - lowest cell
    depth_share: float64 0..1 - 1 - mean / usual
    shortfall_j: float64 >=0 - energy not drawn, over the known cells
    covered_share: float64 0..1 - cells that are known
    is_cut: bool - it begins or ends where the readings do
""")

POWER_DIPS = Table(
    "power_dips", "One row per time that power fell below what is usual, in order of time.", _DIP
)

DIP_CAUSES = Table(
    "dip_causes",
    "One row per dip and what happened at that time; the times stay those of the meter.",
    {
        **_DIP,
        **columns("""
            cause: str - failure, restart, checkpoint, evaluation, initialisation, before the job,
                after the job, another kind of span, or not explained
            evidence: str - the event, in words
            lag_s: float64? - from the event to the start of the dip
            overlap_share: float64? 0..1 - of the dip that the event lasts
            also: str - other events of that time
        """),
    },
)

POWER_CLOCK_OFFSET = table("""
    power_clock_offset: How far the clock of the meter is ahead of that of the job log: one row.

    offset_s: float64? - to subtract from the times of the meter; missing where it cannot be told
    low_s: float64? - lower end of its 95 % interval
    high_s: float64? - upper end of its 95 % interval
    correlation: float64? -1..1 - between power and work at that offset
    next_offset_s: float64? - the next best offset elsewhere
    next_correlation: float64? -1..1 - between power and work at that
    is_ambiguous: bool - the next best is about as good, or nothing is
    doubt: str - why it is ambiguous or missing, in words; else empty
    cell_count: int64 >=0 - cells of power that were compared
""")

ENERGY_WASTE = table("""
    energy_waste: Where the energy of a run went: one row per state; the rows sum to the whole.

    state: str - useful steps, lost steps, unfinished step, restart, checkpoint, evaluation,
        initialisation, between steps, not told
    time_s: float64 >=0 - time spent in it
    time_share: float64? 0..1 - of the run
    step_count: int64 >=0 - steps, useful or lost
    energy_j: float64 >=0 - energy of all entities over what is known
    energy_share: float64? 0..1 - of what is known
    mean_w: float64? >=0 - mean power of all entities over what is known
    covered_share: float64 0..1 - of the time, over all entities, that readings cover
""")

INCIDENT_ENERGY = Table(
    "incident_energy",
    "What every interruption of a job cost, in order of time; failures that interrupted nothing "
    "follow, without a cost.",
    {
        "start_ns": Column("Int64", f"interruption, or failure; {_EPOCH}", nullable=True),
        "end_ns": Column("Int64", f"next step begins; {_EPOCH}", nullable=True),
        **columns("""
            attempt: Int32? >=1 - run of the job that it ended
            node: str? - host that the failure log names
            cause: str - what failed, in words; 'not told' if no failure fits
            failure_lag_s: float64? - from the interruption to the failure's first line
            also: str - other failures of that time
            lost_step_count: Int64? - steps that had to be repeated
            lost_work_s: float64? - time those steps took, and the step that the interruption cut
            restart_s: float64? - time until the next step
            lost_work_j: float64? >=0 - energy of that time
            restart_j: float64? >=0 - energy until the next step, idle power included
            energy_j: float64? >=0 - both together
            energy_share: float64? 0..1 - of what the run drew
            covered_share: float64? 0..1 - of the time, over all entities, that readings cover
        """),
    },
)

FLEET_TIMELINE = table("""
    fleet_timeline: Power, steps, spans, failures and traces on one axis of time, in order of
    panel, lane and time.

    panel: str - power, step time, job, failures or traces
    lane: str - entity ('all entities' is their sum), kind of span, node, rank
    start_ns: int64 - start; ns since the Unix epoch
    end_ns: int64 - end; as the start where it has no length
    power_w: float64? >=0 - power at the start
    dur_s: float64? >=0 - duration of a step
    node: str? - host
    text: str - what it is, in words
""")
