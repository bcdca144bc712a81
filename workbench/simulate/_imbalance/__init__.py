"""Simulate: loads that are unequal."""

from workbench.simulate._imbalance.demo import imbalance
from workbench.simulate._imbalance.document_lengths import document_lengths
from workbench.simulate._imbalance.embedding_tables import embedding_tables, row_popularity
from workbench.simulate._imbalance.pipeline_engine import JobShape
from workbench.simulate._imbalance.pipeline_job import CAUSES, PipelineJob, pipeline_job

__all__ = [
    "CAUSES",
    "JobShape",
    "PipelineJob",
    "document_lengths",
    "embedding_tables",
    "imbalance",
    "pipeline_job",
    "row_popularity",
]
