"""Read files into tables: one module per format behind a few front doors."""

from workbench.load.embedding_tables import embedding_tables
from workbench.load.expert_loads import expert_loads
from workbench.load.job_operations import job_operations
from workbench.load.parquet import write
from workbench.load.quality import quality
from workbench.load.reuse_histogram import reuse_histogram
from workbench.load.traces import traces

__all__ = [
    "embedding_tables",
    "expert_loads",
    "job_operations",
    "quality",
    "reuse_histogram",
    "traces",
    "write",
]
