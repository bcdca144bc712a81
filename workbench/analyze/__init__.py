"""Turn tables into tables: pure functions, no files, no figures."""

from workbench.analyze import intervals
from workbench.analyze._fault_tolerance import FaultTolerance
from workbench.analyze._packing_plan import PackingPlan, packing_plans
from workbench.analyze._pipeline_order import ScheduleKind
from workbench.analyze._shard_costs import ShardingAssumptions
from workbench.analyze.band_shares import band_shares
from workbench.analyze.blame import blame, blame_by
from workbench.analyze.breakdown import time_breakdown
from workbench.analyze.capping import capped_share, capping_events
from workbench.analyze.capping_blame import capping_blame
from workbench.analyze.capping_cost import capping_cost
from workbench.analyze.causes import cause_shares
from workbench.analyze.checkpoints import checkpoint_curve, checkpoint_optimum, expected_ettr
from workbench.analyze.clock_correction_s import clock_correction_s
from workbench.analyze.clocks import clocks, on_one_clock
from workbench.analyze.collectives import collective_waits, collectives
from workbench.analyze.context_sharding import context_chunks, context_sharding
from workbench.analyze.detector_tolerance import detected_shares, detector_tolerance
from workbench.analyze.diff import trace_diff
from workbench.analyze.dip_causes import dip_causes
from workbench.analyze.document_lengths import length_shares, sample_documents
from workbench.analyze.energy import energy, energy_total
from workbench.analyze.energy_from_counter import energy_from_counter
from workbench.analyze.energy_waste import energy_waste
from workbench.analyze.extended_curve import Extrapolation, extended_curve
from workbench.analyze.failure_rates import failure_rate, failure_rates, standby_nodes
from workbench.analyze.failure_times import failure_times, observed_span
from workbench.analyze.first_days import first_days
from workbench.analyze.fleet_timeline import fleet_timeline
from workbench.analyze.flight_positions import flight_positions
from workbench.analyze.flight_suspects import flight_suspects
from workbench.analyze.flight_waits import flight_waits
from workbench.analyze.goodput import Convention, goodput, productive_share
from workbench.analyze.goodput_at_scale import failure_interval_of, goodput_at_scale
from workbench.analyze.goodput_changes import goodput_ladder, goodput_sensitivity, goodput_sweep
from workbench.analyze.goodput_replay import goodput_mean, goodput_replay, goodput_windows
from workbench.analyze.grid_check import grid_check
from workbench.analyze.grid_spec import GridSpec, grid_spec, grid_spec_names
from workbench.analyze.idle import idle_time
from workbench.analyze.incident_energy import incident_energy
from workbench.analyze.incidents import incident_counts, incidents
from workbench.analyze.injection_allocation import injection_allocation, pooled
from workbench.analyze.injection_sample_sizes import injection_sample_sizes, leveugle_count
from workbench.analyze.interval_coverage import interval_coverage, interval_funnel
from workbench.analyze.job_completeness import complete_steps
from workbench.analyze.job_dispersion import job_dispersion
from workbench.analyze.job_failures import crash_loops, job_failures, job_sizes
from workbench.analyze.job_prediction import JobChange, job_held_out, job_prediction
from workbench.analyze.job_schedule import job_micro_batches, job_schedule
from workbench.analyze.kernels import kernel_kinds, kernels, unclassified_kernels
from workbench.analyze.late_arrivals import late_arrivals
from workbench.analyze.launches import launches
from workbench.analyze.lemon_nodes import lemon_nodes
from workbench.analyze.lemon_recall import Lemons, lemon_recall
from workbench.analyze.lifetimes import failure_gaps, lifetimes
from workbench.analyze.load_imbalance import load_imbalance
from workbench.analyze.memory import copy_bandwidth
from workbench.analyze.merged_rollups import merged_rollups
from workbench.analyze.mttf_by_size import mttf_by_size
from workbench.analyze.operators import operators
from workbench.analyze.outcome_shares import outcome_shares
from workbench.analyze.overlap import communication_overlap, kind_overlaps
from workbench.analyze.packing import Packing, micro_batches, packing
from workbench.analyze.packing_balance import packing_balance
from workbench.analyze.packing_tuning import PackingTuning, packing_tuning
from workbench.analyze.perfmodel.chakra_nodes import chakra_nodes
from workbench.analyze.perfmodel.change import Change
from workbench.analyze.perfmodel.collective_model import (
    CollectiveModel,
    bus_bandwidth,
    collective_model,
    collective_times,
    predicted_collective_times,
)
from workbench.analyze.perfmodel.critical_path import critical_path, slack
from workbench.analyze.perfmodel.et_graph import trace_tasks
from workbench.analyze.perfmodel.execution_graph import GRAPH_STEPS, execution_graph
from workbench.analyze.perfmodel.gemm_errors import gemm_errors
from workbench.analyze.perfmodel.gemm_model import GemmModel, gemm_model, predicted_gemm_times
from workbench.analyze.perfmodel.gpu_busy import gpu_busy
from workbench.analyze.perfmodel.gpu_type import GpuType, gpu_type
from workbench.analyze.perfmodel.graph_rules import GraphRules
from workbench.analyze.perfmodel.graph_tasks import graph_tasks, task_graph
from workbench.analyze.perfmodel.hardware import hardware, hardware_sources, kernel_time
from workbench.analyze.perfmodel.held_out_steps import held_out_steps
from workbench.analyze.perfmodel.iteration_errors import cross_validated, iteration_errors
from workbench.analyze.perfmodel.iteration_model import (
    IterationModel,
    assumed_model,
    calibrated_to,
    iteration_model,
)
from workbench.analyze.perfmodel.layout import Layout, configurations
from workbench.analyze.perfmodel.layout_what_if import layout_what_if
from workbench.analyze.perfmodel.list_schedule import list_schedule
from workbench.analyze.perfmodel.memory_need import memory_need
from workbench.analyze.perfmodel.model_flops import model_flops, utilization
from workbench.analyze.perfmodel.model_shape import ModelShape, model_shape
from workbench.analyze.perfmodel.node_times import node_times
from workbench.analyze.perfmodel.operator_benchmark import operator_benchmark, operator_coverage
from workbench.analyze.perfmodel.parallelism_plan import parallelism_plan
from workbench.analyze.perfmodel.pipeline_schedule import pipeline_schedule
from workbench.analyze.perfmodel.replay import replay, replayed_events
from workbench.analyze.perfmodel.replay_fidelity import graph_ablation, replay_fidelity
from workbench.analyze.perfmodel.scaled_times import scaled_kernel_times
from workbench.analyze.perfmodel.schedule_times import (
    PassTimes,
    schedule_comparison,
    schedule_stages,
    schedule_summary,
    schedule_times,
)
from workbench.analyze.perfmodel.usable_graph import usable_graph
from workbench.analyze.perfmodel.what_if import what_if
from workbench.analyze.phase_power import phase_power
from workbench.analyze.pipeline import Parallelism, micro_batch_costs, pipeline, training_steps
from workbench.analyze.power_clock_offset import power_clock_offset
from workbench.analyze.power_curve import power_curve
from workbench.analyze.power_dips import power_dips
from workbench.analyze.power_during import power_during
from workbench.analyze.power_edges import power_edges
from workbench.analyze.power_grid import power_grid, power_totals
from workbench.analyze.power_heatmap import power_heatmap
from workbench.analyze.power_hierarchy import power_hierarchy
from workbench.analyze.power_knees import power_knees
from workbench.analyze.power_of_scope import power_of_scope
from workbench.analyze.power_ramps import power_ramps
from workbench.analyze.power_sampled import power_sampled
from workbench.analyze.power_smoothing import power_smoothing
from workbench.analyze.power_spectrum import power_peaks, power_spectrum
from workbench.analyze.power_sum import power_sum
from workbench.analyze.power_swings import power_swings
from workbench.analyze.power_tree import power_residual, power_tree
from workbench.analyze.proportion import proportion
from workbench.analyze.provisioning import overhead_w_implied, provisioning
from workbench.analyze.published_curve import provisioning_facts, published_curve, published_gains
from workbench.analyze.pue import pue
from workbench.analyze.pvf import pvf
from workbench.analyze.pvf_by_margin import pvf_by_margin
from workbench.analyze.pvf_exposure import pvf_exposure
from workbench.analyze.pvf_mitigation import pvf_mitigation
from workbench.analyze.pvf_protection import pvf_protection
from workbench.analyze.pvf_running import pvf_running
from workbench.analyze.pvf_views import pvf_by_bit, pvf_by_flips
from workbench.analyze.queue import queue_length, queue_summary
from workbench.analyze.recurrence import failure_trend, recurrence
from workbench.analyze.reported_by import reported_by
from workbench.analyze.row_sharding import row_popularity, row_sharding
from workbench.analyze.smoothing_plan import SmoothingPlan
from workbench.analyze.smoothing_plans import smoothing_plans
from workbench.analyze.smoothing_summary import smoothing_summary
from workbench.analyze.spares import spares, with_spares
from workbench.analyze.step_breakdown import step_breakdown
from workbench.analyze.step_energy import span_energy, step_energy
from workbench.analyze.steps import step_times
from workbench.analyze.stragglers import job_slowdown, job_slowdown_by, job_steps
from workbench.analyze.survival import survival, weibull
from workbench.analyze.table_sharding import shard_balance, table_sharding
from workbench.analyze.training_speed import training_speed
from workbench.analyze.truth_sample import truth_sample
from workbench.analyze.watched_throughout import watched_throughout
from workbench.analyze.work_energy import work_energy
from workbench.analyze.workload import crossover, crossover_from_flops, launch_loss, workload

__all__ = [
    "GRAPH_STEPS", "Change", "CollectiveModel", "Convention", "Extrapolation", "FaultTolerance",
    "GemmModel", "GpuType", "GraphRules", "GridSpec", "IterationModel", "JobChange", "Layout",
    "Lemons", "ModelShape", "Packing", "PackingPlan", "PackingTuning", "Parallelism", "PassTimes",
    "ScheduleKind", "ShardingAssumptions", "SmoothingPlan", "assumed_model", "band_shares", "blame",
    "blame_by", "bus_bandwidth", "calibrated_to", "capped_share", "capping_blame", "capping_cost",
    "capping_events", "cause_shares", "chakra_nodes", "checkpoint_curve", "checkpoint_optimum",
    "clock_correction_s", "clocks", "collective_model", "collective_times", "collective_waits",
    "collectives", "communication_overlap", "complete_steps", "configurations", "context_chunks",
    "context_sharding", "copy_bandwidth", "crash_loops", "critical_path", "cross_validated",
    "crossover", "crossover_from_flops", "detected_shares", "detector_tolerance", "dip_causes",
    "energy", "energy_from_counter", "energy_total", "energy_waste", "execution_graph",
    "expected_ettr", "extended_curve", "failure_gaps", "failure_interval_of", "failure_rate",
    "failure_rates", "failure_times", "failure_trend", "first_days", "fleet_timeline",
    "flight_positions", "flight_suspects", "flight_waits", "gemm_errors", "gemm_model", "goodput",
    "goodput_at_scale", "goodput_ladder", "goodput_mean", "goodput_replay", "goodput_sensitivity",
    "goodput_sweep", "goodput_windows", "gpu_busy", "gpu_type", "graph_ablation", "graph_tasks",
    "grid_check", "grid_spec", "grid_spec_names", "hardware", "hardware_sources", "held_out_steps",
    "idle_time", "incident_counts", "incident_energy", "incidents", "injection_allocation",
    "injection_sample_sizes", "interval_coverage", "interval_funnel", "intervals",
    "iteration_errors", "iteration_model", "job_dispersion", "job_failures", "job_held_out",
    "job_micro_batches", "job_prediction", "job_schedule", "job_sizes", "job_slowdown",
    "job_slowdown_by", "job_steps", "kernel_kinds", "kernel_time", "kernels", "kind_overlaps",
    "late_arrivals", "launch_loss", "launches", "layout_what_if", "lemon_nodes", "lemon_recall",
    "length_shares", "leveugle_count", "lifetimes", "list_schedule", "load_imbalance",
    "memory_need", "merged_rollups", "micro_batch_costs", "micro_batches", "model_flops",
    "model_shape", "mttf_by_size", "node_times", "observed_span", "on_one_clock",
    "operator_benchmark", "operator_coverage", "operators", "outcome_shares", "overhead_w_implied",
    "packing", "packing_balance", "packing_plans", "packing_tuning", "parallelism_plan",
    "phase_power", "pipeline", "pipeline_schedule", "pooled", "power_clock_offset", "power_curve",
    "power_dips", "power_during", "power_edges", "power_grid", "power_heatmap", "power_hierarchy",
    "power_knees", "power_of_scope", "power_peaks", "power_ramps", "power_residual",
    "power_sampled", "power_smoothing", "power_spectrum", "power_sum", "power_swings",
    "power_totals", "power_tree", "predicted_collective_times", "predicted_gemm_times",
    "productive_share", "proportion", "provisioning", "provisioning_facts", "published_curve",
    "published_gains", "pue", "pvf", "pvf_by_bit", "pvf_by_flips", "pvf_by_margin", "pvf_exposure",
    "pvf_mitigation", "pvf_protection", "pvf_running", "queue_length", "queue_summary",
    "recurrence", "replay", "replay_fidelity", "replayed_events", "reported_by", "row_popularity",
    "row_sharding", "sample_documents", "scaled_kernel_times", "schedule_comparison",
    "schedule_stages", "schedule_summary", "schedule_times", "shard_balance", "slack",
    "smoothing_plans", "smoothing_summary", "span_energy", "spares", "standby_nodes",
    "step_breakdown", "step_energy", "step_times", "survival", "table_sharding", "task_graph",
    "time_breakdown", "trace_diff", "trace_tasks", "training_speed", "training_steps",
    "truth_sample", "unclassified_kernels", "usable_graph", "utilization", "watched_throughout",
    "weibull", "what_if", "with_spares", "work_energy", "workload",
]  # fmt: skip
