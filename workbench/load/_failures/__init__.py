"""Load: failures and goodput."""

from workbench.load._failures.cause_counts import cause_counts
from workbench.load._failures.flight_dumps.reader import flight_recorder
from workbench.load._failures.formats.failure_table import failure_table
from workbench.load._failures.formats.slurm.records import slurm_records
from workbench.load._failures.lifetimes import lifetimes
from workbench.load._failures.reader import failures

__all__ = [
    "cause_counts",
    "failure_table",
    "failures",
    "flight_recorder",
    "lifetimes",
    "slurm_records",
]
