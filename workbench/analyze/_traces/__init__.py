"""Analyze: profiler and execution traces."""

from workbench.analyze._traces.blame import blame, blame_by
from workbench.analyze._traces.breakdown import time_breakdown
from workbench.analyze._traces.clocks import clocks, on_one_clock
from workbench.analyze._traces.collectives import collective_waits, collectives
from workbench.analyze._traces.diff import trace_diff
from workbench.analyze._traces.idle import idle_time
from workbench.analyze._traces.kernels import kernel_kinds, kernels, unclassified_kernels
from workbench.analyze._traces.late_arrivals import late_arrivals
from workbench.analyze._traces.launches import launches
from workbench.analyze._traces.memory import copy_bandwidth
from workbench.analyze._traces.operators import operators
from workbench.analyze._traces.overlap import communication_overlap, kind_overlaps
from workbench.analyze._traces.queue import queue_length, queue_summary
from workbench.analyze._traces.step_breakdown import step_breakdown
from workbench.analyze._traces.steps import step_times

__all__ = [
    "blame",
    "blame_by",
    "clocks",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "copy_bandwidth",
    "idle_time",
    "kernel_kinds",
    "kernels",
    "kind_overlaps",
    "late_arrivals",
    "launches",
    "on_one_clock",
    "operators",
    "queue_length",
    "queue_summary",
    "step_breakdown",
    "step_times",
    "time_breakdown",
    "trace_diff",
    "unclassified_kernels",
]
