"""Analyze: execution graphs, replay and models of time."""

from workbench.analyze._perfmodel.graph.execution_graph import GRAPH_STEPS, execution_graph
from workbench.analyze._perfmodel.graph.rules import GraphRules
from workbench.analyze._perfmodel.graph.usable_graph import usable_graph
from workbench.analyze._perfmodel.kernel_models.collective_model import (
    CollectiveModel,
    bus_bandwidth,
    collective_model,
    collective_times,
    predicted_collective_times,
)
from workbench.analyze._perfmodel.kernel_models.gemm_errors import gemm_errors
from workbench.analyze._perfmodel.kernel_models.gemm_model import (
    GemmModel,
    gemm_model,
    predicted_gemm_times,
)
from workbench.analyze._perfmodel.kernel_models.hardware import (
    hardware,
    hardware_sources,
    kernel_time,
)
from workbench.analyze._perfmodel.kernel_models.operator_benchmark import (
    operator_benchmark,
    operator_coverage,
)
from workbench.analyze._perfmodel.kernel_models.scaled_times import scaled_kernel_times
from workbench.analyze._perfmodel.layouts.gpu_type import GpuType, gpu_type
from workbench.analyze._perfmodel.layouts.iteration_errors import cross_validated, iteration_errors
from workbench.analyze._perfmodel.layouts.iteration_model import (
    IterationModel,
    assumed_model,
    calibrated_to,
    iteration_model,
)
from workbench.analyze._perfmodel.layouts.layout import Layout, configurations
from workbench.analyze._perfmodel.layouts.layout_what_if import layout_what_if
from workbench.analyze._perfmodel.layouts.memory_need import memory_need
from workbench.analyze._perfmodel.layouts.model_flops import model_flops, utilization
from workbench.analyze._perfmodel.layouts.model_shape import ModelShape, model_shape
from workbench.analyze._perfmodel.layouts.parallelism_plan import parallelism_plan
from workbench.analyze._perfmodel.pipeline_schedule import pipeline_schedule
from workbench.analyze._perfmodel.replays.change import Change
from workbench.analyze._perfmodel.replays.critical_path import critical_path, slack
from workbench.analyze._perfmodel.replays.fidelity import graph_ablation, replay_fidelity
from workbench.analyze._perfmodel.replays.gpu_busy import gpu_busy
from workbench.analyze._perfmodel.replays.held_out_steps import held_out_steps
from workbench.analyze._perfmodel.replays.list_schedule import list_schedule
from workbench.analyze._perfmodel.replays.what_if import what_if
from workbench.analyze._perfmodel.schedule_times import (
    PassTimes,
    schedule_comparison,
    schedule_stages,
    schedule_summary,
    schedule_times,
)
from workbench.analyze._perfmodel.tasks.chakra_nodes import chakra_nodes
from workbench.analyze._perfmodel.tasks.et_graph import trace_tasks
from workbench.analyze._perfmodel.tasks.graph_tasks import graph_tasks, task_graph
from workbench.analyze._perfmodel.tasks.node_times import node_times
from workbench.analyze._perfmodel.timing.replay import replay, replayed_events

__all__ = [
    "GRAPH_STEPS",
    "Change",
    "CollectiveModel",
    "GemmModel",
    "GpuType",
    "GraphRules",
    "IterationModel",
    "Layout",
    "ModelShape",
    "PassTimes",
    "assumed_model",
    "bus_bandwidth",
    "calibrated_to",
    "chakra_nodes",
    "collective_model",
    "collective_times",
    "configurations",
    "critical_path",
    "cross_validated",
    "execution_graph",
    "gemm_errors",
    "gemm_model",
    "gpu_busy",
    "gpu_type",
    "graph_ablation",
    "graph_tasks",
    "hardware",
    "hardware_sources",
    "held_out_steps",
    "iteration_errors",
    "iteration_model",
    "kernel_time",
    "layout_what_if",
    "list_schedule",
    "memory_need",
    "model_flops",
    "model_shape",
    "node_times",
    "operator_benchmark",
    "operator_coverage",
    "parallelism_plan",
    "pipeline_schedule",
    "predicted_collective_times",
    "predicted_gemm_times",
    "replay",
    "replay_fidelity",
    "replayed_events",
    "scaled_kernel_times",
    "schedule_comparison",
    "schedule_stages",
    "schedule_summary",
    "schedule_times",
    "slack",
    "task_graph",
    "trace_tasks",
    "usable_graph",
    "utilization",
    "what_if",
]
