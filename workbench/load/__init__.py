"""Read files into tables: one module per format behind a few front doors."""

from workbench.load._failures import (
    cause_counts,
    failure_table,
    failures,
    flight_recorder,
    lifetimes,
    slurm_records,
)
from workbench.load._files.parquet import write
from workbench.load._fleet import fleet, job_log
from workbench.load._imbalance import (
    attention_profile,
    document_lengths,
    embedding_tables,
    expert_loads,
    job_operations,
    linear_profile,
    reuse_histogram,
)
from workbench.load._perfmodel import collective_times, gemm_times, iterations
from workbench.load._power import (
    power,
    power_fleet_total,
    power_rollup,
    power_sweeps,
    power_topology,
)
from workbench.load._pvf import (
    exhaustive_injections,
    injection_records,
    injections,
    write_exhaustive,
    write_injections,
    write_sfi_fault_list,
    write_sfi_summary,
)
from workbench.load._traces import (
    operator_calls,
    operator_replay,
    traces,
    write_chakra,
    write_chrome_trace,
    write_operator_benchmark,
)
from workbench.load.kinds import by_kind
from workbench.load.quality import quality

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
