"""Load: loads that are unequal."""

from workbench.load._imbalance.document_lengths import document_lengths
from workbench.load._imbalance.embedding_tables import embedding_tables
from workbench.load._imbalance.expert_loads import expert_loads
from workbench.load._imbalance.job_operations import job_operations
from workbench.load._imbalance.profiles import attention_profile, linear_profile
from workbench.load._imbalance.reuse_histogram import reuse_histogram

__all__ = [
    "attention_profile",
    "document_lengths",
    "embedding_tables",
    "expert_loads",
    "job_operations",
    "linear_profile",
    "reuse_histogram",
]
