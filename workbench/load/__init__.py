"""Read files into tables: one module per format behind a few front doors."""

from workbench.load.document_lengths import document_lengths
from workbench.load.job_operations import job_operations
from workbench.load.parquet import write
from workbench.load.profiles import attention_profile, linear_profile
from workbench.load.quality import quality
from workbench.load.traces import traces

__all__ = [
    "attention_profile",
    "document_lengths",
    "job_operations",
    "linear_profile",
    "quality",
    "traces",
    "write",
]
