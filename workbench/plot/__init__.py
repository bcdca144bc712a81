"""Turn tables into plotly figures: one function per picture, nothing is computed here."""

from workbench.plot import style
from workbench.plot.breakdown import communication_overlap, step_times, time_breakdown
from workbench.plot.collectives import blame, collective_waits, collectives
from workbench.plot.diff import trace_diff
from workbench.plot.idle import idle_time
from workbench.plot.kernels import kernel_kinds, kernels, operators
from workbench.plot.launches import copy_bandwidth, launches, queue_length
from workbench.plot.load_imbalance import load_imbalance
from workbench.plot.row_sharding import row_sharding
from workbench.plot.table_sharding import table_sharding
from workbench.plot.timeline import timeline, timeline_live

__all__ = [
    "blame",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "copy_bandwidth",
    "idle_time",
    "kernel_kinds",
    "kernels",
    "launches",
    "load_imbalance",
    "operators",
    "queue_length",
    "row_sharding",
    "step_times",
    "style",
    "table_sharding",
    "time_breakdown",
    "timeline",
    "timeline_live",
    "trace_diff",
]
