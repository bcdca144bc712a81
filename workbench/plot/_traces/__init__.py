"""Plot: profiler and execution traces."""

from workbench.plot._traces.breakdown import communication_overlap, step_times, time_breakdown
from workbench.plot._traces.clocks import clocks
from workbench.plot._traces.collectives import blame, collective_waits, collectives
from workbench.plot._traces.diff import trace_diff
from workbench.plot._traces.idle import idle_time
from workbench.plot._traces.kernels import kernel_kinds, kernels, operators
from workbench.plot._traces.late_arrivals import late_arrivals
from workbench.plot._traces.launches import copy_bandwidth, launches, queue_length
from workbench.plot._traces.timeline import timeline, timeline_live

__all__ = [
    "blame",
    "clocks",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "copy_bandwidth",
    "idle_time",
    "kernel_kinds",
    "kernels",
    "late_arrivals",
    "launches",
    "operators",
    "queue_length",
    "step_times",
    "time_breakdown",
    "timeline",
    "timeline_live",
    "trace_diff",
]
