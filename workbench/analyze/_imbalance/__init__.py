"""Analyze: loads that are unequal."""

from workbench.analyze._imbalance.context_sharding import context_chunks, context_sharding
from workbench.analyze._imbalance.document_lengths import length_shares, sample_documents
from workbench.analyze._imbalance.jobs.completeness import complete_steps
from workbench.analyze._imbalance.jobs.dispersion import job_dispersion
from workbench.analyze._imbalance.jobs.prediction import JobChange, job_held_out, job_prediction
from workbench.analyze._imbalance.jobs.schedule import job_micro_batches, job_schedule
from workbench.analyze._imbalance.jobs.stragglers import job_slowdown, job_slowdown_by, job_steps
from workbench.analyze._imbalance.load_imbalance import load_imbalance
from workbench.analyze._imbalance.packing import Packing, micro_batches, packing
from workbench.analyze._imbalance.packing_balance import packing_balance
from workbench.analyze._imbalance.packing_plan import PackingPlan, packing_plans
from workbench.analyze._imbalance.packing_tuning import PackingTuning, packing_tuning
from workbench.analyze._imbalance.pipeline import (
    Parallelism,
    micro_batch_costs,
    pipeline,
    training_steps,
)
from workbench.analyze._imbalance.row_sharding import row_popularity, row_sharding
from workbench.analyze._imbalance.shard_costs import ShardingAssumptions
from workbench.analyze._imbalance.table_sharding import shard_balance, table_sharding
from workbench.analyze._imbalance.training_speed import training_speed
from workbench.analyze._imbalance.workload import (
    crossover,
    crossover_from_flops,
    launch_loss,
    workload,
)

__all__ = [
    "JobChange",
    "Packing",
    "PackingPlan",
    "PackingTuning",
    "Parallelism",
    "ShardingAssumptions",
    "complete_steps",
    "context_chunks",
    "context_sharding",
    "crossover",
    "crossover_from_flops",
    "job_dispersion",
    "job_held_out",
    "job_micro_batches",
    "job_prediction",
    "job_schedule",
    "job_slowdown",
    "job_slowdown_by",
    "job_steps",
    "launch_loss",
    "length_shares",
    "load_imbalance",
    "micro_batch_costs",
    "micro_batches",
    "packing",
    "packing_balance",
    "packing_plans",
    "packing_tuning",
    "pipeline",
    "row_popularity",
    "row_sharding",
    "sample_documents",
    "shard_balance",
    "table_sharding",
    "training_speed",
    "training_steps",
    "workload",
]
