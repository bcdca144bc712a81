"""Turn tables into tables: pure functions, no files, no figures."""

from workbench.analyze import intervals
from workbench.analyze._shard_costs import ShardingAssumptions
from workbench.analyze.breakdown import time_breakdown
from workbench.analyze.collectives import blame, collective_waits, collectives
from workbench.analyze.diff import trace_diff
from workbench.analyze.idle import idle_time
from workbench.analyze.kernels import kernel_kinds, kernels, unclassified_kernels
from workbench.analyze.launches import launches
from workbench.analyze.load_imbalance import load_imbalance
from workbench.analyze.memory import copy_bandwidth
from workbench.analyze.operators import operators
from workbench.analyze.overlap import communication_overlap, kind_overlaps
from workbench.analyze.queue import queue_length, queue_summary
from workbench.analyze.row_sharding import row_popularity, row_sharding
from workbench.analyze.steps import step_times
from workbench.analyze.stragglers import job_slowdown, job_slowdown_by
from workbench.analyze.table_sharding import shard_balance, table_sharding

__all__ = [
    "ShardingAssumptions",
    "blame",
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
    "launches",
    "load_imbalance",
    "operators",
    "queue_length",
    "queue_summary",
    "row_popularity",
    "row_sharding",
    "shard_balance",
    "step_times",
    "table_sharding",
    "time_breakdown",
    "trace_diff",
    "unclassified_kernels",
]
