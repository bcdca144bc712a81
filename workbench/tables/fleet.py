"""Tables of the fleet: what happened, and the power and energy of work."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.failures import FailureLog
from workbench.tables.power import JobLog, PowerLog
from workbench.tables.table import Column, Table
from workbench.tables.traces import flagged_text

# Everything one folder tells about a job: power, steps, failures and traces.


@dataclass(frozen=True, eq=False)
class Fleet:
    """What was loaded of one job, kind by kind; a plain bundle without methods.

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
        """Whether any of the files says that it was simulated; figures should say so too."""
        return any(each.is_synthetic for each in (self.power, self.job, self.failures))

    def __repr__(self) -> str:
        """Say what was loaded and what was not there."""
        counts = {
            "power": (len(self.power.power), "readings"),
            "job log": (len(self.job.steps), "steps"),
            "failures": (len(self.failures.failures), "incidents"),
            "traces": (len(self.ranks), "ranks"),
        }
        said = [f"{name}: {count:,} {noun}" for name, (count, noun) in counts.items() if count]
        absent = [name for name, (count, _) in counts.items() if not count]
        told = "; ".join(said) or "nothing"
        without = f"; not there: {', '.join(absent)}" if absent else ""
        return f"Fleet: {told}{without}; {flagged_text(self.quality)}"


# Power beside work: energy of steps, spans and incidents, dips and their causes.

_EPOCH = "ns since the Unix epoch, on the clock of the job log"
_ENERGY = "energy of all entities; missing where too little is known"
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
        "step": Column("int64", "number of the step", lower=0),
        "attempt": Column("int32", "run of the job, from 1", lower=1),
        "start_ns": Column("int64", f"start; {_EPOCH}"),
        "end_ns": Column("int64", f"end; {_EPOCH}"),
        "energy_j": Column("float64", _ENERGY, lower=0, nullable=True),
        "mean_w": Column(
            "float64", "mean power of all entities over what is known", lower=0, nullable=True
        ),
        "token_count": Column("Int64", "tokens of the step, all ranks", lower=0, nullable=True),
        "sample_count": Column("Int64", "samples of the step, all ranks", lower=0, nullable=True),
        "energy_per_token_j": Column("float64", "energy / tokens", lower=0, nullable=True),
        "energy_per_sample_j": Column("float64", "energy / samples", lower=0, nullable=True),
        "covered_share": Column("float64", _COVERED, lower=0, upper=1),
        "entity_count": Column("int64", "entities that were summed", lower=0),
        "reading_count": Column("int64", "readings within the step, of all entities", lower=0),
    },
)

SPAN_ENERGY = Table(
    "span_energy",
    "Energy of every named stretch of a job, in order of time; they may nest.",
    {
        "kind": Column("str", "evaluation, checkpoint, restart, run, ... as the log names it"),
        "attempt": Column("int32", "run of the job, from 1", lower=1),
        "start_ns": Column("int64", f"start; {_EPOCH}"),
        "end_ns": Column("Int64", f"end; missing if the log ends before; {_EPOCH}", nullable=True),
        "step": Column("Int64", "step after which it began", lower=0, nullable=True),
        "energy_j": Column("float64", _ENERGY, lower=0, nullable=True),
        "mean_w": Column(
            "float64", "mean power of all entities over what is known", lower=0, nullable=True
        ),
        "covered_share": Column("float64", _COVERED, lower=0, upper=1),
        "entity_count": Column("int64", "entities that were summed", lower=0),
        "reading_count": Column("int64", "readings within the span, of all entities", lower=0),
    },
)

WORK_ENERGY = Table(
    "work_energy",
    "What a unit of work costs: one row per measure, over the steps whose energy is known.",
    {
        "measure": Column("str", "energy per step, power in steps, ..."),
        "unit": Column("str", "unit of the numbers in this row"),
        "count": Column("int64", "steps behind the numbers", lower=0),
        "median": Column("float64", "median over steps", nullable=True),
        "mean": Column("float64", "sum of energy / sum of work", nullable=True),
        "deviation": Column("float64", "standard deviation over steps", nullable=True),
        "low": Column("float64", "5 % of steps are below", nullable=True),
        "high": Column("float64", "5 % of steps are above", nullable=True),
        "covered_share": Column("float64", f"{_COVERED}, over all steps", lower=0, upper=1),
    },
)

PHASE_POWER = Table(
    "phase_power",
    "Power by how far a step has got, all steps laid over each other; a last row holds the "
    "samples outside of steps.",
    {
        "place": Column("str", "in steps, or outside of steps"),
        "first_share": Column("float64", "start of the phase", lower=0, upper=1, nullable=True),
        "last_share": Column("float64", "end of the phase", lower=0, upper=1, nullable=True),
        "power_w": Column("float64", "mean of the samples", lower=0, nullable=True),
        "deviation_w": Column("float64", "standard deviation of the samples", nullable=True),
        "low_w": Column("float64", "10 % of the samples are below", nullable=True),
        "high_w": Column("float64", "10 % of the samples are above", nullable=True),
        "sample_count": Column("int64", "samples with power", lower=0),
        "missing_count": Column("int64", "samples without", lower=0),
    },
)

_DIP = {
    "start_ns": Column("int64", "start of its first cell, on the clock of the meter"),
    "end_ns": Column("int64", "end of its last cell, on the clock of the meter"),
    "dur_s": Column("float64", "how long it lasts", lower=0),
    "usual_w": Column("float64", "power expected meanwhile", lower=0),
    "mean_w": Column("float64", "mean of the cells that are known", lower=0),
    "lowest_w": Column("float64", "lowest cell", lower=0),
    "depth_share": Column("float64", "1 - mean / usual", lower=0, upper=1),
    "shortfall_j": Column("float64", "energy not drawn, over the known cells", lower=0),
    "covered_share": Column("float64", "cells that are known", lower=0, upper=1),
    "is_cut": Column("bool", "it begins or ends where the readings do"),
}

POWER_DIPS = Table(
    "power_dips", "One row per time that power fell below what is usual, in order of time.", _DIP
)

DIP_CAUSES = Table(
    "dip_causes",
    "One row per dip and what happened at that time; the times stay those of the meter.",
    {
        **_DIP,
        "cause": Column(
            "str",
            "failure, restart, checkpoint, evaluation, initialisation, before the job, after the "
            "job, another kind of span, or not explained",
        ),
        "evidence": Column("str", "the event, in words"),
        "lag_s": Column("float64", "from the event to the start of the dip", nullable=True),
        "overlap_share": Column(
            "float64", "of the dip that the event lasts", lower=0, upper=1, nullable=True
        ),
        "also": Column("str", "other events of that time"),
    },
)

POWER_CLOCK_OFFSET = Table(
    "power_clock_offset",
    "How far the clock of the meter is ahead of that of the job log: one row.",
    {
        "offset_s": Column(
            "float64",
            "to subtract from the times of the meter; missing where it cannot be told",
            nullable=True,
        ),
        "low_s": Column("float64", "lower end of its 95 % interval", nullable=True),
        "high_s": Column("float64", "upper end of its 95 % interval", nullable=True),
        "correlation": Column(
            "float64", "between power and work at that offset", lower=-1, upper=1, nullable=True
        ),
        "next_offset_s": Column("float64", "the next best offset elsewhere", nullable=True),
        "next_correlation": Column(
            "float64", "between power and work at that", lower=-1, upper=1, nullable=True
        ),
        "is_ambiguous": Column("bool", "the next best is about as good, or nothing is"),
        "doubt": Column("str", "why it is ambiguous or missing, in words; else empty"),
        "cell_count": Column("int64", "cells of power that were compared", lower=0),
    },
)

ENERGY_WASTE = Table(
    "energy_waste",
    "Where the energy of a run went: one row per state; the rows sum to the whole.",
    {
        "state": Column("str", ", ".join(WASTE_STATES)),
        "time_s": Column("float64", "time spent in it", lower=0),
        "time_share": Column("float64", "of the run", lower=0, upper=1, nullable=True),
        "step_count": Column("int64", "steps, useful or lost", lower=0),
        "energy_j": Column("float64", "energy of all entities over what is known", lower=0),
        "energy_share": Column("float64", "of what is known", lower=0, upper=1, nullable=True),
        "mean_w": Column(
            "float64", "mean power of all entities over what is known", lower=0, nullable=True
        ),
        "covered_share": Column("float64", _COVERED, lower=0, upper=1),
    },
)

INCIDENT_ENERGY = Table(
    "incident_energy",
    "What every interruption of a job cost, in order of time; failures that interrupted nothing "
    "follow, without a cost.",
    {
        "start_ns": Column("Int64", f"interruption, or failure; {_EPOCH}", nullable=True),
        "end_ns": Column("Int64", f"next step begins; {_EPOCH}", nullable=True),
        "attempt": Column("Int32", "run of the job that it ended", lower=1, nullable=True),
        "node": Column("str", "host that the failure log names", nullable=True),
        "cause": Column("str", "what failed, in words; 'not told' if no failure fits"),
        "failure_lag_s": Column(
            "float64", "from the interruption to the failure's first line", nullable=True
        ),
        "also": Column("str", "other failures of that time"),
        "lost_step_count": Column("Int64", "steps that had to be repeated", nullable=True),
        "lost_work_s": Column(
            "float64",
            "time those steps took, and the step that the interruption cut",
            nullable=True,
        ),
        "restart_s": Column("float64", "time until the next step", nullable=True),
        "lost_work_j": Column("float64", "energy of that time", lower=0, nullable=True),
        "restart_j": Column(
            "float64", "energy until the next step, idle power included", lower=0, nullable=True
        ),
        "energy_j": Column("float64", "both together", lower=0, nullable=True),
        "energy_share": Column("float64", "of what the run drew", lower=0, upper=1, nullable=True),
        "covered_share": Column("float64", _COVERED, lower=0, upper=1, nullable=True),
    },
)

FLEET_TIMELINE = Table(
    "fleet_timeline",
    "Power, steps, spans, failures and traces on one axis of time, in order of panel, lane and "
    "time.",
    {
        "panel": Column("str", "power, step time, job, failures or traces"),
        "lane": Column("str", "entity ('all entities' is their sum), kind of span, node, rank"),
        "start_ns": Column("int64", "start; ns since the Unix epoch"),
        "end_ns": Column("int64", "end; as the start where it has no length"),
        "power_w": Column("float64", "power at the start", lower=0, nullable=True),
        "dur_s": Column("float64", "duration of a step", lower=0, nullable=True),
        "node": Column("str", "host", nullable=True),
        "text": Column("str", "what it is, in words"),
    },
)
