"""Seed or model in, tables and files out: data whose truth is known."""

from workbench.simulate._failures import (
    HANG_FAULTS,
    FailureProcess,
    HangJob,
    failure_logs,
    failure_times,
    failure_truth,
    hang,
    slow_times,
)
from workbench.simulate._fleet import FAULTS, fleet, fleet_truth
from workbench.simulate._imbalance import (
    CAUSES,
    JobShape,
    PipelineJob,
    document_lengths,
    embedding_tables,
    imbalance,
    pipeline_job,
    row_popularity,
)

__all__ = [
    "CAUSES",
    "FAULTS",
    "HANG_FAULTS",
    "FailureProcess",
    "HangJob",
    "JobShape",
    "PipelineJob",
    "document_lengths",
    "embedding_tables",
    "failure_logs",
    "failure_times",
    "failure_truth",
    "fleet",
    "fleet_truth",
    "hang",
    "imbalance",
    "pipeline_job",
    "row_popularity",
    "slow_times",
]
