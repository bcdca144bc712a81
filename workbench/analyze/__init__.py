"""Turn tables into tables: pure functions, no files, no figures."""

from workbench.analyze import intervals
from workbench.analyze._packing_plan import PackingPlan, packing_plans
from workbench.analyze._shard_costs import ShardingAssumptions
from workbench.analyze.blame import blame, blame_by
from workbench.analyze.breakdown import time_breakdown
from workbench.analyze.clocks import clocks, on_one_clock
from workbench.analyze.collectives import collective_waits, collectives
from workbench.analyze.context_sharding import context_chunks, context_sharding
from workbench.analyze.diff import trace_diff
from workbench.analyze.document_lengths import length_shares, sample_documents
from workbench.analyze.flight_positions import flight_positions
from workbench.analyze.flight_suspects import flight_suspects
from workbench.analyze.flight_waits import flight_waits
from workbench.analyze.idle import idle_time
from workbench.analyze.job_completeness import complete_steps
from workbench.analyze.job_dispersion import job_dispersion
from workbench.analyze.job_schedule import job_micro_batches, job_schedule
from workbench.analyze.kernels import kernel_kinds, kernels, unclassified_kernels
from workbench.analyze.late_arrivals import late_arrivals
from workbench.analyze.launches import launches
from workbench.analyze.load_imbalance import load_imbalance
from workbench.analyze.memory import copy_bandwidth
from workbench.analyze.operators import operators
from workbench.analyze.overlap import communication_overlap, kind_overlaps
from workbench.analyze.packing import Packing, micro_batches, packing
from workbench.analyze.packing_balance import packing_balance
from workbench.analyze.packing_tuning import PackingTuning, packing_tuning
from workbench.analyze.pipeline import Parallelism, micro_batch_costs, pipeline, training_steps
from workbench.analyze.queue import queue_length, queue_summary
from workbench.analyze.row_sharding import row_popularity, row_sharding
from workbench.analyze.steps import step_times
from workbench.analyze.stragglers import job_slowdown, job_slowdown_by, job_steps
from workbench.analyze.table_sharding import shard_balance, table_sharding
from workbench.analyze.training_speed import training_speed
from workbench.analyze.workload import crossover, crossover_from_flops, launch_loss, workload

__all__ = [
    "Packing",
    "PackingPlan",
    "PackingTuning",
    "Parallelism",
    "ShardingAssumptions",
    "blame",
    "blame_by",
    "clocks",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "complete_steps",
    "context_chunks",
    "context_sharding",
    "copy_bandwidth",
    "crossover",
    "crossover_from_flops",
    "flight_positions",
    "flight_suspects",
    "flight_waits",
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
    "late_arrivals",
    "launch_loss",
    "launches",
    "length_shares",
    "load_imbalance",
    "micro_batch_costs",
    "micro_batches",
    "on_one_clock",
    "operators",
    "packing",
    "packing_balance",
    "packing_plans",
    "packing_tuning",
    "pipeline",
    "queue_length",
    "queue_summary",
    "row_popularity",
    "row_sharding",
    "sample_documents",
    "shard_balance",
    "step_times",
    "table_sharding",
    "time_breakdown",
    "trace_diff",
    "training_speed",
    "training_steps",
    "unclassified_kernels",
    "workload",
]
