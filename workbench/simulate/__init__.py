"""Seed or model in, tables and files out: data whose truth is known."""

from workbench.simulate._fleet_plan import FAULTS
from workbench.simulate._hang_engine import HANG_FAULTS
from workbench.simulate._hang_program import HangJob
from workbench.simulate._pipeline_engine import JobShape
from workbench.simulate.document_lengths import document_lengths
from workbench.simulate.embedding_tables import embedding_tables, row_popularity
from workbench.simulate.failure_logs import failure_logs, failure_truth
from workbench.simulate.failure_times import FailureProcess, failure_times, slow_times
from workbench.simulate.fleet import fleet, fleet_truth
from workbench.simulate.hang import hang
from workbench.simulate.imbalance import imbalance
from workbench.simulate.pipeline_job import CAUSES, PipelineJob, pipeline_job

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
