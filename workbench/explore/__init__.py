"""Widgets around one analysis and one figure each; the only code that knows ipywidgets."""

from workbench.explore._panel import Explorer, static_html
from workbench.explore.capping_events import capping_events
from workbench.explore.cause_shares import cause_shares
from workbench.explore.checkpoints import checkpoint_curve, expected_ettr
from workbench.explore.collective_times import collective_times
from workbench.explore.collective_waits import collective_waits
from workbench.explore.context_sharding import context_sharding
from workbench.explore.critical_path import critical_path
from workbench.explore.detector_tolerance import detector_tolerance
from workbench.explore.fleet_timeline import fleet_timeline
from workbench.explore.flight_suspects import flight_suspects
from workbench.explore.goodput import goodput, goodput_at_scale, goodput_sweep
from workbench.explore.goodput_windows import goodput_windows
from workbench.explore.graph_ablation import graph_ablation
from workbench.explore.incidents import incidents
from workbench.explore.injection_sample_sizes import injection_sample_sizes
from workbench.explore.interval_funnel import interval_funnel
from workbench.explore.job_slowdown import job_slowdown
from workbench.explore.kernels import kernels
from workbench.explore.lemon_nodes import lemon_nodes
from workbench.explore.length_shares import length_shares
from workbench.explore.packing_balance import packing_balance
from workbench.explore.parallelism_plan import parallelism_plan
from workbench.explore.pipeline import pipeline
from workbench.explore.pipeline_schedule import pipeline_schedule
from workbench.explore.power_smoothing import power_smoothing
from workbench.explore.power_spectrum import power_spectrum
from workbench.explore.provisioning import provisioning
from workbench.explore.pvf import pvf, pvf_by_bit, pvf_by_flips
from workbench.explore.pvf_protection import pvf_protection
from workbench.explore.pvf_running import pvf_running
from workbench.explore.row_sharding import row_sharding
from workbench.explore.spares import spares
from workbench.explore.table_sharding import table_sharding
from workbench.explore.time_breakdown import time_breakdown
from workbench.explore.timeline import timeline
from workbench.explore.training_speed import training_speed
from workbench.explore.what_if import what_if

__all__ = [
    "Explorer",
    "capping_events",
    "cause_shares",
    "checkpoint_curve",
    "collective_times",
    "collective_waits",
    "context_sharding",
    "critical_path",
    "detector_tolerance",
    "expected_ettr",
    "fleet_timeline",
    "flight_suspects",
    "goodput",
    "goodput_at_scale",
    "goodput_sweep",
    "goodput_windows",
    "graph_ablation",
    "incidents",
    "injection_sample_sizes",
    "interval_funnel",
    "job_slowdown",
    "kernels",
    "lemon_nodes",
    "length_shares",
    "packing_balance",
    "parallelism_plan",
    "pipeline",
    "pipeline_schedule",
    "power_smoothing",
    "power_spectrum",
    "provisioning",
    "pvf",
    "pvf_by_bit",
    "pvf_by_flips",
    "pvf_protection",
    "pvf_running",
    "row_sharding",
    "spares",
    "static_html",
    "table_sharding",
    "time_breakdown",
    "timeline",
    "training_speed",
    "what_if",
]
