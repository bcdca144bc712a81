# Each name is imported when it is first used; this list is its only one.

# Traces
from ._traces.breakdown import (
    communication_overlap as communication_overlap,
    step_times as step_times,
    time_breakdown as time_breakdown,
)
from ._traces.clocks import clocks as clocks
from ._traces.collectives import (
    blame as blame,
    collective_waits as collective_waits,
    collectives as collectives,
)
from ._traces.diff import trace_diff as trace_diff
from ._traces.idle import idle_time as idle_time
from ._traces.kernels import (
    kernel_kinds as kernel_kinds,
    kernels as kernels,
    operators as operators,
)
from ._traces.late_arrivals import late_arrivals as late_arrivals
from ._traces.launches import (
    copy_bandwidth as copy_bandwidth,
    launches as launches,
    queue_length as queue_length,
)
from ._traces.timeline import timeline as timeline, timeline_live as timeline_live

# Workload imbalance
from ._imbalance.context_sharding import (
    context_chunks as context_chunks,
    context_sharding as context_sharding,
)
from ._imbalance.document_lengths import length_shares as length_shares
from ._imbalance.job_dispersion import job_dispersion as job_dispersion
from ._imbalance.job_schedule import (
    job_micro_batches as job_micro_batches,
    job_schedule as job_schedule,
)
from ._imbalance.load_imbalance import load_imbalance as load_imbalance
from ._imbalance.packing import (
    micro_batches as micro_batches,
    packing_balance as packing_balance,
    packing_queues as packing_queues,
    packing_tuning as packing_tuning,
)
from ._imbalance.pipeline import pipeline as pipeline
from ._imbalance.row_sharding import row_sharding as row_sharding
from ._imbalance.stragglers import (
    job_slowdown as job_slowdown,
    job_slowdown_by as job_slowdown_by,
    job_steps as job_steps,
)
from ._imbalance.table_sharding import table_sharding as table_sharding
from ._imbalance.training_speed import training_speed as training_speed

# Failures and goodput
from ._failures.causes import cause_shares as cause_shares
from ._failures.checkpoints import (
    checkpoint_curve as checkpoint_curve,
    expected_ettr as expected_ettr,
)
from ._failures.failure_rates import failure_rates as failure_rates
from ._failures.flight_positions import flight_positions as flight_positions
from ._failures.flight_suspects import flight_suspects as flight_suspects
from ._failures.flight_waits import flight_waits as flight_waits
from ._failures.goodput import goodput as goodput
from ._failures.goodput_at_scale import goodput_at_scale as goodput_at_scale
from ._failures.goodput_changes import (
    goodput_ladder as goodput_ladder,
    goodput_sensitivity as goodput_sensitivity,
    goodput_sweep as goodput_sweep,
)
from ._failures.goodput_windows import goodput_windows as goodput_windows
from ._failures.incidents import incident_counts as incident_counts, incidents as incidents
from ._failures.lemon_nodes import lemon_nodes as lemon_nodes, lemon_recall as lemon_recall
from ._failures.mttf_by_size import mttf_by_size as mttf_by_size
from ._failures.recurrence import recurrence as recurrence
from ._failures.spares import spares as spares
from ._failures.survival import survival as survival

# Fault injection
from ._pvf.by_bit import pvf_by_bit as pvf_by_bit
from ._pvf.by_flips import pvf_by_flips as pvf_by_flips
from ._pvf.by_margin import pvf_by_margin as pvf_by_margin
from ._pvf.detector_tolerance import detector_tolerance as detector_tolerance
from ._pvf.estimates import pvf as pvf
from ._pvf.exposure import pvf_exposure as pvf_exposure
from ._pvf.interval_funnel import (
    interval_coverage as interval_coverage,
    interval_funnel as interval_funnel,
)
from ._pvf.mitigation import pvf_mitigation as pvf_mitigation
from ._pvf.outcome_shares import outcome_shares as outcome_shares
from ._pvf.protection import pvf_protection as pvf_protection
from ._pvf.running import pvf_running as pvf_running
from ._pvf.sample_sizes import injection_sample_sizes as injection_sample_sizes

# Performance models
from ._perfmodel.collective_times import collective_times as collective_times
from ._perfmodel.critical_path import critical_path as critical_path
from ._perfmodel.gemm_errors import gemm_errors as gemm_errors
from ._perfmodel.gpu_busy import gpu_busy as gpu_busy
from ._perfmodel.held_out_steps import held_out_steps as held_out_steps
from ._perfmodel.iteration_errors import iteration_errors as iteration_errors
from ._perfmodel.layout_what_if import layout_what_if as layout_what_if
from ._perfmodel.operator_benchmark import operator_benchmark as operator_benchmark
from ._perfmodel.parallelism_plan import parallelism_plan as parallelism_plan
from ._perfmodel.pipeline_schedule import (
    pipeline_schedule as pipeline_schedule,
    schedule_comparison as schedule_comparison,
)
from ._perfmodel.replay_fidelity import (
    graph_ablation as graph_ablation,
    replay_fidelity as replay_fidelity,
)
from ._perfmodel.slack import slack as slack
from ._perfmodel.what_if import what_if as what_if

# Power and energy
from ._power.band_shares import band_shares as band_shares
from ._power.capping import capping_events as capping_events
from ._power.capping_cost import capping_blame as capping_blame, capping_cost as capping_cost
from ._power.curve import power_curve as power_curve, power_knees as power_knees
from ._power.edges import power_edges as power_edges
from ._power.energy import energy as energy
from ._power.grid_check import grid_check as grid_check
from ._power.heatmap import power_heatmap as power_heatmap
from ._power.hierarchy import power_hierarchy as power_hierarchy
from ._power.provisioning import provisioning as provisioning
from ._power.pue import pue as pue
from ._power.ramps import power_ramps as power_ramps
from ._power.residual import power_residual as power_residual
from ._power.smoothing import power_smoothing as power_smoothing
from ._power.smoothing_summary import smoothing_summary as smoothing_summary
from ._power.spectrum import power_spectrum as power_spectrum
from ._power.swings import power_swings as power_swings
from ._power.totals import power_totals as power_totals

# The fleet as a whole
from ._fleet.energy_waste import energy_waste as energy_waste
from ._fleet.incident_energy import incident_energy as incident_energy
from ._fleet.phase_power import phase_power as phase_power
from ._fleet.power_dips import power_dips as power_dips
from ._fleet.step_energy import step_energy as step_energy
from ._fleet.timeline import fleet_timeline as fleet_timeline

# All domains
from ._style import style as style
