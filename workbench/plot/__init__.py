"""Turn tables into plotly figures: one function per picture, nothing is computed here."""

from workbench.plot import style
from workbench.plot.breakdown import communication_overlap, step_times, time_breakdown
from workbench.plot.causes import cause_shares
from workbench.plot.checkpoints import checkpoint_curve, expected_ettr
from workbench.plot.clocks import clocks
from workbench.plot.collective_times import collective_times
from workbench.plot.collectives import blame, collective_waits, collectives
from workbench.plot.context_sharding import context_chunks, context_sharding
from workbench.plot.critical_path import critical_path
from workbench.plot.detector_tolerance import detector_tolerance
from workbench.plot.diff import trace_diff
from workbench.plot.document_lengths import length_shares
from workbench.plot.energy import energy
from workbench.plot.energy_waste import energy_waste
from workbench.plot.failure_rates import failure_rates
from workbench.plot.fleet_timeline import fleet_timeline
from workbench.plot.flight_positions import flight_positions
from workbench.plot.flight_suspects import flight_suspects
from workbench.plot.flight_waits import flight_waits
from workbench.plot.gemm_errors import gemm_errors
from workbench.plot.goodput import goodput
from workbench.plot.goodput_at_scale import goodput_at_scale
from workbench.plot.goodput_changes import goodput_ladder, goodput_sensitivity, goodput_sweep
from workbench.plot.goodput_windows import goodput_windows
from workbench.plot.gpu_busy import gpu_busy
from workbench.plot.held_out_steps import held_out_steps
from workbench.plot.idle import idle_time
from workbench.plot.incident_energy import incident_energy
from workbench.plot.incidents import incident_counts, incidents
from workbench.plot.injection_sample_sizes import injection_sample_sizes
from workbench.plot.interval_funnel import interval_coverage, interval_funnel
from workbench.plot.iteration_errors import iteration_errors
from workbench.plot.job_dispersion import job_dispersion
from workbench.plot.job_schedule import job_micro_batches, job_schedule
from workbench.plot.kernels import kernel_kinds, kernels, operators
from workbench.plot.late_arrivals import late_arrivals
from workbench.plot.launches import copy_bandwidth, launches, queue_length
from workbench.plot.layout_what_if import layout_what_if
from workbench.plot.lemon_nodes import lemon_nodes, lemon_recall
from workbench.plot.load_imbalance import load_imbalance
from workbench.plot.mttf_by_size import mttf_by_size
from workbench.plot.operator_benchmark import operator_benchmark
from workbench.plot.outcome_shares import outcome_shares
from workbench.plot.packing import micro_batches, packing_balance, packing_queues, packing_tuning
from workbench.plot.parallelism_plan import parallelism_plan
from workbench.plot.phase_power import phase_power
from workbench.plot.pipeline import pipeline
from workbench.plot.pipeline_schedule import pipeline_schedule, schedule_comparison
from workbench.plot.power_dips import power_dips
from workbench.plot.power_hierarchy import power_hierarchy
from workbench.plot.power_residual import power_residual
from workbench.plot.power_totals import power_totals
from workbench.plot.pue import pue
from workbench.plot.pvf import pvf
from workbench.plot.pvf_by_bit import pvf_by_bit
from workbench.plot.pvf_by_flips import pvf_by_flips
from workbench.plot.pvf_by_margin import pvf_by_margin
from workbench.plot.pvf_exposure import pvf_exposure
from workbench.plot.pvf_mitigation import pvf_mitigation
from workbench.plot.pvf_protection import pvf_protection
from workbench.plot.pvf_running import pvf_running
from workbench.plot.recurrence import recurrence
from workbench.plot.replay_fidelity import graph_ablation, replay_fidelity
from workbench.plot.row_sharding import row_sharding
from workbench.plot.slack import slack
from workbench.plot.spares import spares
from workbench.plot.step_energy import step_energy
from workbench.plot.stragglers import job_slowdown, job_slowdown_by, job_steps
from workbench.plot.survival import survival
from workbench.plot.table_sharding import table_sharding
from workbench.plot.timeline import timeline, timeline_live
from workbench.plot.training_speed import training_speed
from workbench.plot.what_if import what_if

__all__ = [
    "blame",
    "cause_shares",
    "checkpoint_curve",
    "clocks",
    "collective_times",
    "collective_waits",
    "collectives",
    "communication_overlap",
    "context_chunks",
    "context_sharding",
    "copy_bandwidth",
    "critical_path",
    "detector_tolerance",
    "energy",
    "energy_waste",
    "expected_ettr",
    "failure_rates",
    "fleet_timeline",
    "flight_positions",
    "flight_suspects",
    "flight_waits",
    "gemm_errors",
    "goodput",
    "goodput_at_scale",
    "goodput_ladder",
    "goodput_sensitivity",
    "goodput_sweep",
    "goodput_windows",
    "gpu_busy",
    "graph_ablation",
    "held_out_steps",
    "idle_time",
    "incident_counts",
    "incident_energy",
    "incidents",
    "injection_sample_sizes",
    "interval_coverage",
    "interval_funnel",
    "iteration_errors",
    "job_dispersion",
    "job_micro_batches",
    "job_schedule",
    "job_slowdown",
    "job_slowdown_by",
    "job_steps",
    "kernel_kinds",
    "kernels",
    "late_arrivals",
    "launches",
    "layout_what_if",
    "lemon_nodes",
    "lemon_recall",
    "length_shares",
    "load_imbalance",
    "micro_batches",
    "mttf_by_size",
    "operator_benchmark",
    "operators",
    "outcome_shares",
    "packing_balance",
    "packing_queues",
    "packing_tuning",
    "parallelism_plan",
    "phase_power",
    "pipeline",
    "pipeline_schedule",
    "power_dips",
    "power_hierarchy",
    "power_residual",
    "power_totals",
    "pue",
    "pvf",
    "pvf_by_bit",
    "pvf_by_flips",
    "pvf_by_margin",
    "pvf_exposure",
    "pvf_mitigation",
    "pvf_protection",
    "pvf_running",
    "queue_length",
    "recurrence",
    "replay_fidelity",
    "row_sharding",
    "schedule_comparison",
    "slack",
    "spares",
    "step_energy",
    "step_times",
    "style",
    "survival",
    "table_sharding",
    "time_breakdown",
    "timeline",
    "timeline_live",
    "trace_diff",
    "training_speed",
    "what_if",
]
