"""Widgets around one analysis and one figure each; the only code that knows ipywidgets."""

import workbench.explore._lab  # noqa: F401 - before the first import of widgets
from workbench.explore.communication import (
    collective_scaling,
    place_bandwidth,
    startup_goodput,
)
from workbench.explore.compression import compression_speedup
from workbench.explore.failures import (
    cause_shares,
    checkpoint_curve,
    expected_ettr,
    flight_suspects,
    incidents,
    lemon_nodes,
    spares,
)
from workbench.explore.faults import (
    detector_tolerance,
    injection_sample_sizes,
    interval_funnel,
    pvf,
    pvf_by_bit,
    pvf_by_flips,
    pvf_protection,
    pvf_running,
)
from workbench.explore.fleet_timeline import fleet_timeline
from workbench.explore.goodput import goodput, goodput_at_scale, goodput_sweep, goodput_windows
from workbench.explore.imbalance import (
    context_sharding,
    inference_capacity,
    inference_node,
    length_shares,
    packing_balance,
    pipeline,
    row_sharding,
    table_sharding,
    training_speed,
)
from workbench.explore.panel import Explorer, static_html
from workbench.explore.perfmodel import (
    collective_times,
    critical_path,
    fast_matmul,
    graph_ablation,
    job_slowdown,
    parallelism_plan,
    pipeline_schedule,
    trace_like,
    what_if,
)
from workbench.explore.power import capping_events, power_smoothing, power_spectrum, provisioning
from workbench.explore.power_management import power_management
from workbench.explore.regions import local_training_rate
from workbench.explore.timeline import timeline
from workbench.explore.traces import (
    collective_waits,
    inference_iterations,
    kernels,
    memory_peak,
    model_tree,
    roofline,
    time_breakdown,
)

__all__ = [
    "Explorer",
    "capping_events",
    "cause_shares",
    "checkpoint_curve",
    "collective_scaling",
    "collective_times",
    "collective_waits",
    "compression_speedup",
    "context_sharding",
    "critical_path",
    "detector_tolerance",
    "expected_ettr",
    "fast_matmul",
    "fleet_timeline",
    "flight_suspects",
    "goodput",
    "goodput_at_scale",
    "goodput_sweep",
    "goodput_windows",
    "graph_ablation",
    "incidents",
    "inference_capacity",
    "inference_iterations",
    "inference_node",
    "injection_sample_sizes",
    "interval_funnel",
    "job_slowdown",
    "kernels",
    "lemon_nodes",
    "length_shares",
    "local_training_rate",
    "memory_peak",
    "model_tree",
    "packing_balance",
    "parallelism_plan",
    "pipeline",
    "pipeline_schedule",
    "place_bandwidth",
    "power_management",
    "power_smoothing",
    "power_spectrum",
    "provisioning",
    "pvf",
    "pvf_by_bit",
    "pvf_by_flips",
    "pvf_protection",
    "pvf_running",
    "roofline",
    "row_sharding",
    "spares",
    "startup_goodput",
    "static_html",
    "table_sharding",
    "time_breakdown",
    "timeline",
    "trace_like",
    "training_speed",
    "what_if",
]
