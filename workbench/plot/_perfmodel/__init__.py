"""Plot: execution graphs, replay and models of time."""

from workbench.plot._perfmodel.collective_times import collective_times
from workbench.plot._perfmodel.critical_path import critical_path
from workbench.plot._perfmodel.gemm_errors import gemm_errors
from workbench.plot._perfmodel.gpu_busy import gpu_busy
from workbench.plot._perfmodel.held_out_steps import held_out_steps
from workbench.plot._perfmodel.iteration_errors import iteration_errors
from workbench.plot._perfmodel.layout_what_if import layout_what_if
from workbench.plot._perfmodel.operator_benchmark import operator_benchmark
from workbench.plot._perfmodel.parallelism_plan import parallelism_plan
from workbench.plot._perfmodel.pipeline_schedule import pipeline_schedule, schedule_comparison
from workbench.plot._perfmodel.replay_fidelity import graph_ablation, replay_fidelity
from workbench.plot._perfmodel.slack import slack
from workbench.plot._perfmodel.what_if import what_if

__all__ = [
    "collective_times",
    "critical_path",
    "gemm_errors",
    "gpu_busy",
    "graph_ablation",
    "held_out_steps",
    "iteration_errors",
    "layout_what_if",
    "operator_benchmark",
    "parallelism_plan",
    "pipeline_schedule",
    "replay_fidelity",
    "schedule_comparison",
    "slack",
    "what_if",
]
