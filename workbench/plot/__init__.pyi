# Each name is imported when it is first used; this list is its only one.

# Findings of all domains
from ._fleet.comparison_page import (
    run_comparison_page as run_comparison_page,
    run_trend_page as run_trend_page,
)
from ._fleet.dashboard import dashboard as dashboard
from ._fleet.findings import FindingCards as FindingCards, Page as Page, findings as findings

# Traces
from ._traces.breakdown import (
    communication_overlap as communication_overlap,
    step_times as step_times,
    time_breakdown as time_breakdown,
)
from ._traces.breakdown import clocks as clocks
from ._traces.collectives import (
    straggler_attribution as straggler_attribution,
    collective_waits as collective_waits,
    collectives as collectives,
)
from ._traces.memory import memory_peak as memory_peak, memory_timeline as memory_timeline
from ._traces.inference import inference_iterations as inference_iterations
from ._traces.kernels import trace_diff as trace_diff
from ._traces.breakdown import idle_time as idle_time
from ._traces.kernels import kernel_kinds as kernel_kinds, kernels as kernels
from ._traces.collectives import late_arrivals as late_arrivals
from ._traces.modules import model_tree as model_tree, phases as phases
from ._traces.launches import copy_bandwidth as copy_bandwidth
from ._traces.timeline import timeline as timeline, timeline_live as timeline_live

# Workload imbalance
from ._imbalance.sharding import (
    context_chunks as context_chunks,
    context_sharding as context_sharding,
)
from ._imbalance.inference import (
    inference_capacity as inference_capacity,
    inference_node as inference_node,
)
from ._imbalance.pipeline import length_shares as length_shares
from ._imbalance.job_schedule import job_dispersion as job_dispersion
from ._imbalance.job_schedule import (
    job_micro_batches as job_micro_batches,
    job_schedule as job_schedule,
)
from ._imbalance.packing import (
    micro_batches as micro_batches,
    packing_balance as packing_balance,
    packing_queues as packing_queues,
)
from ._imbalance.pipeline import pipeline as pipeline
from ._imbalance.sharding import row_sharding as row_sharding
from ._imbalance.stragglers import (
    job_slowdown as job_slowdown,
    job_slowdown_by as job_slowdown_by,
    job_steps as job_steps,
)
from ._imbalance.sharding import table_sharding as table_sharding
from ._imbalance.pipeline import training_speed as training_speed

# Failures and goodput
from ._failures.incidents import cause_shares as cause_shares
from ._failures.goodput_changes import (
    checkpoint_curve as checkpoint_curve,
)
from ._failures.failure_rates import failure_rates as failure_rates
from ._failures.hang import flight_positions as flight_positions
from ._failures.hang import flight_suspects as flight_suspects
from ._failures.hang import flight_waits as flight_waits
from ._failures.goodput import goodput as goodput
from ._failures.goodput import goodput_at_scale as goodput_at_scale
from ._failures.goodput_changes import (
    goodput_ladder as goodput_ladder,
)
from ._failures.goodput import goodput_windows as goodput_windows
from ._failures.incidents import incident_counts as incident_counts, incidents as incidents
from ._failures.lemon_nodes import lemon_nodes as lemon_nodes, lemon_recall as lemon_recall
from ._failures.goodput_changes import spares as spares

# Fault injection
from ._pvf.estimates import pvf_by_bit as pvf_by_bit
from ._pvf.estimates import pvf as pvf
from ._pvf.exposure import pvf_exposure as pvf_exposure
from ._pvf.protection import pvf_mitigation as pvf_mitigation
from ._pvf.sampling import outcome_shares as outcome_shares
from ._pvf.protection import pvf_protection as pvf_protection
from ._pvf.sampling import pvf_running as pvf_running
from ._pvf.sampling import injection_sample_sizes as injection_sample_sizes

# Performance models
from ._perfmodel.critical_path import critical_path as critical_path
from ._perfmodel.roofline import roofline as roofline
from ._perfmodel.fast_matmul import (
    fast_matmul as fast_matmul,
    fast_matmul_crossover as fast_matmul_crossover,
)
from ._perfmodel.replay_fidelity import gpu_busy as gpu_busy
from ._perfmodel.replay_fidelity import held_out_steps as held_out_steps
from ._perfmodel.configurations import parallelism_plan as parallelism_plan
from ._perfmodel.configurations import training_runs as training_runs
from ._perfmodel.pipeline_schedule import (
    pipeline_schedule as pipeline_schedule,
    schedule_comparison as schedule_comparison,
)
from ._perfmodel.replay_fidelity import (
    graph_ablation as graph_ablation,
    replay_fidelity as replay_fidelity,
)
from ._perfmodel.trace_likeness import trace_likeness as trace_likeness
from ._perfmodel.critical_path import slack as slack
from ._perfmodel.critical_path import what_if as what_if

# Power and energy
from ._power.capping import capping_events as capping_events
from ._power.capping import capping_blame as capping_blame, capping_cost as capping_cost
from ._power.curve import power_curve as power_curve, power_knees as power_knees
from ._power.energy import energy as energy
from ._power.smoothing import grid_check as grid_check
from ._power.management import power_management as power_management
from ._power.management import demand_response as demand_response
from ._power.curve import provisioning as provisioning
from ._power.smoothing import power_smoothing as power_smoothing
from ._power.smoothing import smoothing_summary as smoothing_summary
from ._power.spectrum import power_spectrum as power_spectrum
from ._power.totals import power_totals as power_totals

# Communication at scale
from ._communication.compression import (
    compression as compression,
    compression_speedup as compression_speedup,
)
from ._communication.links import (
    collective_bandwidth as collective_bandwidth,
    slow_links as slow_links,
    place_bandwidth as place_bandwidth,
)
from ._communication.savings import (
    all_to_all_padding as all_to_all_padding,
    communication_speedup as communication_speedup,
)
from ._communication.scaling import (
    collective_scaling as collective_scaling,
    startup_goodput as startup_goodput,
)

# The fleet as a whole
from ._fleet.step_energy import energy_waste as energy_waste
from ._fleet.step_energy import incident_energy as incident_energy
from ._fleet.step_energy import kernel_energy as kernel_energy
from ._fleet.step_energy import phase_power as phase_power
from ._fleet.power_dips import power_dips as power_dips
from ._fleet.step_energy import step_energy as step_energy
from ._fleet.timeline import fleet_timeline as fleet_timeline

# Communication
from ._communication.local_training import (
    local_training as local_training,
    local_training_rate as local_training_rate,
    local_training_sweep as local_training_sweep,
    time_to_loss as time_to_loss,
)

# All domains
