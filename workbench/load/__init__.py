"""Read files into tables: one module per format behind a few front doors."""

from workbench.load._chakra_writing import write_chakra
from workbench.load._injection_writing import write_exhaustive, write_injections
from workbench.load._sfi_writing import write_sfi_fault_list, write_sfi_summary
from workbench.load.cause_counts import cause_counts
from workbench.load.chrome_trace import write_chrome_trace
from workbench.load.document_lengths import document_lengths
from workbench.load.embedding_tables import embedding_tables
from workbench.load.exhaustive_injections import exhaustive_injections
from workbench.load.expert_loads import expert_loads
from workbench.load.failure_table import failure_table
from workbench.load.failures import failures
from workbench.load.fleet import fleet
from workbench.load.flight_recorder import flight_recorder
from workbench.load.injection_records import injection_records
from workbench.load.injections import injections
from workbench.load.iterations import iterations
from workbench.load.job_log import job_log
from workbench.load.job_operations import job_operations
from workbench.load.kernel_times import collective_times, gemm_times
from workbench.load.kinds import by_kind
from workbench.load.lifetimes import lifetimes
from workbench.load.operator_calls import operator_calls
from workbench.load.operator_script import operator_replay, write_operator_benchmark
from workbench.load.parquet import write
from workbench.load.power import power
from workbench.load.power_fleet_total import power_fleet_total
from workbench.load.power_rollup import power_rollup
from workbench.load.power_sweeps import power_sweeps
from workbench.load.power_topology import power_topology
from workbench.load.profiles import attention_profile, linear_profile
from workbench.load.quality import quality
from workbench.load.reuse_histogram import reuse_histogram
from workbench.load.slurm_records import slurm_records
from workbench.load.traces import traces

__all__ = [
    "attention_profile",
    "by_kind",
    "cause_counts",
    "collective_times",
    "document_lengths",
    "embedding_tables",
    "exhaustive_injections",
    "expert_loads",
    "failure_table",
    "failures",
    "fleet",
    "flight_recorder",
    "gemm_times",
    "injection_records",
    "injections",
    "iterations",
    "job_log",
    "job_operations",
    "lifetimes",
    "linear_profile",
    "operator_calls",
    "operator_replay",
    "power",
    "power_fleet_total",
    "power_rollup",
    "power_sweeps",
    "power_topology",
    "quality",
    "reuse_histogram",
    "slurm_records",
    "traces",
    "write",
    "write_chakra",
    "write_chrome_trace",
    "write_exhaustive",
    "write_injections",
    "write_operator_benchmark",
    "write_sfi_fault_list",
    "write_sfi_summary",
]
