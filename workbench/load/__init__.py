"""Read files into tables: one module per format behind a few front doors."""

from workbench.load._injection_writing import write_exhaustive, write_injections
from workbench.load._sfi_writing import write_sfi_fault_list, write_sfi_summary
from workbench.load.cause_counts import cause_counts
from workbench.load.chrome_trace import write_chrome_trace
from workbench.load.document_lengths import document_lengths
from workbench.load.embedding_tables import embedding_tables
from workbench.load.exhaustive_injections import exhaustive_injections
from workbench.load.expert_loads import expert_loads
from workbench.load.failures import failures
from workbench.load.flight_recorder import flight_recorder
from workbench.load.injection_records import injection_records
from workbench.load.injections import injections
from workbench.load.job_operations import job_operations
from workbench.load.parquet import write
from workbench.load.profiles import attention_profile, linear_profile
from workbench.load.quality import quality
from workbench.load.reuse_histogram import reuse_histogram
from workbench.load.slurm_records import slurm_records
from workbench.load.traces import traces

__all__ = [
    "attention_profile",
    "cause_counts",
    "document_lengths",
    "embedding_tables",
    "exhaustive_injections",
    "expert_loads",
    "failures",
    "flight_recorder",
    "injection_records",
    "injections",
    "job_operations",
    "linear_profile",
    "quality",
    "reuse_histogram",
    "slurm_records",
    "traces",
    "write",
    "write_chrome_trace",
    "write_exhaustive",
    "write_injections",
    "write_sfi_fault_list",
    "write_sfi_summary",
]
