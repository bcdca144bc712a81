"""Plot: loads that are unequal."""

from workbench.plot._imbalance.context_sharding import context_chunks, context_sharding
from workbench.plot._imbalance.document_lengths import length_shares
from workbench.plot._imbalance.job_dispersion import job_dispersion
from workbench.plot._imbalance.job_schedule import job_micro_batches, job_schedule
from workbench.plot._imbalance.load_imbalance import load_imbalance
from workbench.plot._imbalance.packing import (
    micro_batches,
    packing_balance,
    packing_queues,
    packing_tuning,
)
from workbench.plot._imbalance.pipeline import pipeline
from workbench.plot._imbalance.row_sharding import row_sharding
from workbench.plot._imbalance.stragglers import job_slowdown, job_slowdown_by, job_steps
from workbench.plot._imbalance.table_sharding import table_sharding
from workbench.plot._imbalance.training_speed import training_speed

__all__ = [
    "context_chunks",
    "context_sharding",
    "job_dispersion",
    "job_micro_batches",
    "job_schedule",
    "job_slowdown",
    "job_slowdown_by",
    "job_steps",
    "length_shares",
    "load_imbalance",
    "micro_batches",
    "packing_balance",
    "packing_queues",
    "packing_tuning",
    "pipeline",
    "row_sharding",
    "table_sharding",
    "training_speed",
]
