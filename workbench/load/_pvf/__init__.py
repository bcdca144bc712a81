"""Load: fault injection and vulnerability factors."""

from workbench.load._pvf.exhaustive import exhaustive_injections
from workbench.load._pvf.formats.sfi_writing import write_sfi_fault_list, write_sfi_summary
from workbench.load._pvf.reader import injections
from workbench.load._pvf.records import injection_records
from workbench.load._pvf.writing import write_exhaustive, write_injections

__all__ = [
    "exhaustive_injections",
    "injection_records",
    "injections",
    "write_exhaustive",
    "write_injections",
    "write_sfi_fault_list",
    "write_sfi_summary",
]
