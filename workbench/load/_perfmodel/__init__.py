"""Load: execution graphs, replay and models of time."""

from workbench.load._perfmodel.iterations import iterations
from workbench.load._perfmodel.kernel_times import collective_times, gemm_times

__all__ = [
    "collective_times",
    "gemm_times",
    "iterations",
]
