"""Turn tables into plotly figures: one function per picture, nothing is computed here."""

from workbench.plot import style
from workbench.plot.breakdown import communication_overlap, step_times, time_breakdown
from workbench.plot.collectives import blame, collective_waits, collectives
from workbench.plot.diff import trace_diff
from workbench.plot.idle import idle_time
from workbench.plot.job_dispersion import job_dispersion
from workbench.plot.job_schedule import job_micro_batches, job_schedule
from workbench.plot.kernels import kernel_kinds, kernels, operators
from workbench.plot.launches import copy_bandwidth, launches, queue_length
from workbench.plot.stragglers import job_slowdown, job_slowdown_by, job_steps
from workbench.plot.timeline import timeline, timeline_live

__all__ = [
    "blame",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "copy_bandwidth",
    "idle_time",
    "job_dispersion",
    "job_micro_batches",
    "job_schedule",
    "job_slowdown",
    "job_slowdown_by",
    "job_steps",
    "kernel_kinds",
    "kernels",
    "launches",
    "operators",
    "queue_length",
    "step_times",
    "style",
    "time_breakdown",
    "timeline",
    "timeline_live",
    "trace_diff",
]
