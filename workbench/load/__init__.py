"""Read files into tables: one module per format behind a few front doors."""

from workbench.load.job_operations import job_operations
from workbench.load.parquet import write
from workbench.load.quality import quality
from workbench.load.traces import traces

__all__ = ["job_operations", "quality", "traces", "write"]
