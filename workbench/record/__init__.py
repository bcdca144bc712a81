"""Sample power and clocks while a command runs, and keep how they were sampled."""

from workbench.record.fast_products import fast_matmul_times
from workbench.record.recording import Recording, record

__all__ = ["Recording", "fast_matmul_times", "record"]
