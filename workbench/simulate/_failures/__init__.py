"""Simulate: failures and goodput."""

from workbench.simulate._failures.hang_engine import HANG_FAULTS
from workbench.simulate._failures.hang_program import HangJob
from workbench.simulate._failures.hung_job import hang
from workbench.simulate._failures.logs import failure_logs, failure_truth
from workbench.simulate._failures.times import FailureProcess, failure_times, slow_times

__all__ = [
    "HANG_FAULTS",
    "FailureProcess",
    "HangJob",
    "failure_logs",
    "failure_times",
    "failure_truth",
    "hang",
    "slow_times",
]
