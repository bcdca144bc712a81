"""Turn tables into tables: pure functions, no files, no figures."""

from workbench.analyze import intervals
from workbench.analyze.blame import blame, blame_by
from workbench.analyze.breakdown import time_breakdown
from workbench.analyze.clocks import clocks, on_one_clock
from workbench.analyze.collectives import collective_waits, collectives
from workbench.analyze.diff import trace_diff
from workbench.analyze.idle import idle_time
from workbench.analyze.kernels import kernel_kinds, kernels, unclassified_kernels
from workbench.analyze.late_arrivals import late_arrivals
from workbench.analyze.launches import launches
from workbench.analyze.memory import copy_bandwidth
from workbench.analyze.operators import operators
from workbench.analyze.overlap import communication_overlap, kind_overlaps
from workbench.analyze.queue import queue_length, queue_summary
from workbench.analyze.steps import step_times
from workbench.analyze.stragglers import job_slowdown, job_slowdown_by

__all__ = [
    "blame",
    "blame_by",
    "clocks",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "copy_bandwidth",
    "idle_time",
    "intervals",
    "job_slowdown",
    "job_slowdown_by",
    "kernel_kinds",
    "kernels",
    "kind_overlaps",
    "late_arrivals",
    "launches",
    "on_one_clock",
    "operators",
    "queue_length",
    "queue_summary",
    "step_times",
    "time_breakdown",
    "trace_diff",
    "unclassified_kernels",
]
