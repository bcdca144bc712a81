"""Turn tables into tables: pure functions, no files, no figures."""

from workbench.analyze import intervals
from workbench.analyze.breakdown import time_breakdown
from workbench.analyze.collectives import blame, collective_waits, collectives
from workbench.analyze.diff import trace_diff
from workbench.analyze.idle import idle_time
from workbench.analyze.job_completeness import complete_steps
from workbench.analyze.job_dispersion import job_dispersion
from workbench.analyze.job_schedule import job_micro_batches, job_schedule
from workbench.analyze.kernels import kernel_kinds, kernels, unclassified_kernels
from workbench.analyze.launches import launches
from workbench.analyze.memory import copy_bandwidth
from workbench.analyze.operators import operators
from workbench.analyze.overlap import communication_overlap, kind_overlaps
from workbench.analyze.queue import queue_length, queue_summary
from workbench.analyze.steps import step_times
from workbench.analyze.stragglers import job_slowdown, job_slowdown_by, job_steps

__all__ = [
    "blame",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "complete_steps",
    "copy_bandwidth",
    "idle_time",
    "intervals",
    "job_dispersion",
    "job_micro_batches",
    "job_schedule",
    "job_slowdown",
    "job_slowdown_by",
    "job_steps",
    "kernel_kinds",
    "kernels",
    "kind_overlaps",
    "launches",
    "operators",
    "queue_length",
    "queue_summary",
    "step_times",
    "time_breakdown",
    "trace_diff",
    "unclassified_kernels",
]
