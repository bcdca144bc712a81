# Each name is imported when it is first used; this list is its only one.

# Findings of all domains
from ._findings import finding_rules as finding_rules, findings as findings

from ._fleet.run_comparison import run_comparison as run_comparison
from ._fleet.run_samples import run_halves as run_halves
from ._fleet.run_trend import run_changes as run_changes, run_trend as run_trend

# Traces
from ._lib.scopes import across_ranks as across_ranks, per_rank as per_rank
from ._traces.by_rank import by_rank as by_rank
from ._traces.breakdown import time_breakdown as time_breakdown
from ._traces.clocks import align_clocks as align_clocks, clocks as clocks
from ._traces.collectives import (
    collective_waits as collective_waits,
    collectives as collectives,
    straggler_attribution as straggler_attribution,
)
from ._traces.diff import trace_diff as trace_diff
from ._traces.idle import idle_time as idle_time
from ._traces.inference import (
    inference_iterations as inference_iterations,
)
from ._traces.kernels import (
    kernel_kinds as kernel_kinds,
    kernels as kernels,
    unclassified_kernels as unclassified_kernels,
)
from ._traces.late_arrivals import late_arrivals as late_arrivals
from ._traces.launches import launches as launches
from ._traces.launches import copy_bandwidth as copy_bandwidth
from ._traces.breakdown import communication_overlap as communication_overlap
from ._traces.memory import (
    memory_fragmentation as memory_fragmentation,
    memory_peak as memory_peak,
    memory_timeline as memory_timeline,
)
from ._traces.modules import model_tree as model_tree, phases as phases
from ._traces.launches import queue_length as queue_length, queue_summary as queue_summary
from ._traces.breakdown import step_times as step_times
from ._traces.windows import telling_ranks as telling_ranks
from ._traces.windows import event_links as event_links, telling_windows as telling_windows

# Workload imbalance
from ._imbalance.context_sharding import (
    context_chunks as context_chunks,
    context_sharding as context_sharding,
)
from ._imbalance.workload import (
    length_shares as length_shares,
    sample_documents as sample_documents,
)
from ._imbalance.inference_capacity import (
    ServiceGoal as ServiceGoal,
    inference_capacity as inference_capacity,
)
from ._imbalance.inference_node import (
    InferenceCard as InferenceCard,
    InferenceNode as InferenceNode,
    RecommendationModel as RecommendationModel,
    inference_card as inference_card,
    inference_node as inference_node,
    recommendation_model as recommendation_model,
)
from ._imbalance.jobs.stragglers import complete_steps as complete_steps
from ._imbalance.jobs.schedule import job_dispersion as job_dispersion
from ._imbalance.jobs.traced import job_operations as job_operations
from ._imbalance.jobs.schedule import (
    job_micro_batches as job_micro_batches,
    job_schedule as job_schedule,
)
from ._imbalance.jobs.stragglers import (
    job_slowdown as job_slowdown,
    job_slowdown_by as job_slowdown_by,
    job_steps as job_steps,
)
from ._imbalance.workload import load_imbalance as load_imbalance
from ._imbalance.packing import (
    Packing as Packing,
    micro_batches as micro_batches,
    packing as packing,
)
from ._imbalance.packing_balance import packing_balance as packing_balance
from ._imbalance.packers import PackingPlan as PackingPlan, packing_plans as packing_plans
from ._imbalance.pipeline import (
    Parallelism as Parallelism,
    micro_batch_costs as micro_batch_costs,
    pipeline as pipeline,
    training_steps as training_steps,
)
from ._imbalance.row_sharding import row_cache as row_cache
from ._imbalance.row_sharding import row_popularity as row_popularity, row_sharding as row_sharding
from ._imbalance.table_sharding import ShardingAssumptions as ShardingAssumptions
from ._imbalance.table_sharding import (
    shard_balance as shard_balance,
    table_sharding as table_sharding,
)
from ._imbalance.pipeline import training_speed as training_speed
from ._imbalance.workload import crossover_from_flops as crossover_from_flops

# Failures and goodput
from ._failures.causes import cause_shares as cause_shares
from ._failures.failure_rates import (
    failure_rate as failure_rate,
    failure_rates as failure_rates,
    standby_nodes as standby_nodes,
)
from ._failures.failure_times import failure_times as failure_times, observed_span as observed_span
from ._failures.failure_rates import first_days as first_days
from ._failures.goodput_model.at_scale import (
    failure_interval_of as failure_interval_of,
    goodput_at_scale as goodput_at_scale,
)
from ._failures.goodput_model.at_scale import goodput_ladder as goodput_ladder
from ._failures.goodput_model.checkpoints import (
    checkpoint_curve as checkpoint_curve,
    checkpoint_optimum as checkpoint_optimum,
    expected_ettr as expected_ettr,
)
from ._failures.goodput_model.goodput import FaultTolerance as FaultTolerance
from ._failures.goodput_model.goodput import (
    Convention as Convention,
    goodput as goodput,
    productive_share as productive_share,
)
from ._failures.goodput_model.checkpoints import spares as spares, with_spares as with_spares
from ._failures.goodput_model.inputs import goodput_inputs as goodput_inputs
from ._failures.goodput_model.windows import (
    goodput_mean as goodput_mean,
    goodput_replay as goodput_replay,
    goodput_windows as goodput_windows,
)
from ._failures.goodput_model.startup import startup_goodput as startup_goodput
from ._failures.hang.suspects import flight_positions as flight_positions
from ._failures.hang.suspects import flight_suspects as flight_suspects
from ._failures.hang.waits import flight_waits as flight_waits
from ._failures.causes import incident_counts as incident_counts, incidents as incidents
from ._failures.job_failures import crash_loops as crash_loops, job_failures as job_failures
from ._failures.lemon_nodes import lemon_nodes as lemon_nodes
from ._failures.lemon_nodes import Lemons as Lemons, lemon_recall as lemon_recall
from ._failures.failure_times import mttf_by_size as mttf_by_size
from ._failures.failure_trend import failure_gaps as failure_gaps, failure_trend as failure_trend
from ._failures.causes import reported_by as reported_by
from ._failures.failure_rows import watched_throughout as watched_throughout

# Fault injection
from ._pvf.allocation import injection_allocation as injection_allocation, pooled as pooled
from ._pvf.running import detector_tolerance as detector_tolerance
from ._pvf.estimates import pvf as pvf
from ._pvf.views import pvf_exposure as pvf_exposure
from ._pvf.interval_funnel import interval_funnel as interval_funnel
from ._pvf.protection import pvf_mitigation as pvf_mitigation
from ._pvf.views import outcome_shares as outcome_shares
from ._pvf.protection import pvf_protection as pvf_protection
from ._pvf.running import pvf_running as pvf_running
from ._pvf.allocation import (
    injection_sample_sizes as injection_sample_sizes,
)
from ._pvf.views import pvf_by_bit as pvf_by_bit

# Performance models
from ._perfmodel.graph.execution_graph import (
    GRAPH_STEPS as GRAPH_STEPS,
    execution_graph as execution_graph,
)
from ._perfmodel.graph.rank_rows import GraphRules as GraphRules
from ._perfmodel.kernel_models.fast_matmul import (
    fast_algorithms as fast_algorithms,
    fast_matmul as fast_matmul,
    fast_matmul_crossover as fast_matmul_crossover,
)
from ._perfmodel.kernel_models.roofline import roofline as roofline
from ._perfmodel.kernel_models.matrix_products import (
    matrix_peaks as matrix_peaks,
    matrix_products as matrix_products,
)
from ._perfmodel.layouts.iteration_model import (
    IterationModel as IterationModel,
    assumed_model as assumed_model,
    calibrated_to as calibrated_to,
    public_iterations as public_iterations,
)
from ._perfmodel.layouts.layout import Layout as Layout, configurations as configurations
from ._perfmodel.layouts.model_shape import (
    GpuType as GpuType,
    ModelShape as ModelShape,
    gpu_type as gpu_type,
    model_shape as model_shape,
)
from ._perfmodel.layouts.parallelism_plan import parallelism_plan as parallelism_plan
from ._perfmodel.layouts.training_runs import training_runs as training_runs
from ._perfmodel.pipeline_schedule import pipeline_schedule as pipeline_schedule
from ._perfmodel.replays.change import Change as Change
from ._perfmodel.replays.what_if import (
    critical_path as critical_path,
    slack as slack,
    what_if as what_if,
)
from ._perfmodel.replays.fidelity import (
    gpu_busy as gpu_busy,
    graph_ablation as graph_ablation,
    held_out_steps as held_out_steps,
    replay_fidelity as replay_fidelity,
    usable_graph as usable_graph,
)
from ._perfmodel.schedule_times import (
    PassTimes as PassTimes,
    schedule_comparison as schedule_comparison,
    schedule_summary as schedule_summary,
    schedule_times as schedule_times,
)
from ._perfmodel.timing.replay import replay as replay, replayed_events as replayed_events
from ._perfmodel.twins.likeness import (
    LikenessLimits as LikenessLimits,
    trace_likeness as trace_likeness,
)
from ._perfmodel.twins.profile import trace_profile as trace_profile

# Power and energy
from ._power.capping import capped_share as capped_share, capping_events as capping_events
from ._power.capping import capping_blame as capping_blame
from ._power.capping import capping_cost as capping_cost
from ._power.curve import power_curve as power_curve
from ._power.energy import energy as energy
from ._power.energy import energy_from_counter as energy_from_counter
from ._power.curve import Extrapolation as Extrapolation, extended_curve as extended_curve
from ._power.grid import power_grid as power_grid, power_totals as power_totals
from ._power.grid_check import grid_check as grid_check
from ._power.grid_check import GridSpec as GridSpec, grid_spec as grid_spec
from ._power.curve import power_knees as power_knees
from ._power.grid import power_of_scope as power_of_scope
from ._power.energy import overhead_w_measured as overhead_w_measured
from ._power.provisioning import (
    overhead_w_implied as overhead_w_implied,
    provisioning as provisioning,
)
from ._power.curve import (
    provisioning_facts as provisioning_facts,
    published_curve as published_curve,
    published_gains as published_gains,
)
from ._power.loads import power_loads as power_loads, single_feed as single_feed
from ._power.management import FeedShortage as FeedShortage, PowerPolicy as PowerPolicy
from ._power.management import power_management as power_management
from ._power.provisioning import demand_response as demand_response
from ._power.smoothing import power_smoothing as power_smoothing
from ._power.smoothing import SmoothingPlan as SmoothingPlan
from ._power.smoothing import smoothing_summary as smoothing_summary
from ._power.spectrum import power_peaks as power_peaks, power_spectrum as power_spectrum
from ._power.spectrum import power_swings as power_swings
from ._power.grid import power_sum as power_sum

# Communication at scale
from ._communication.collective_bandwidth import (
    collective_bandwidth as collective_bandwidth,
    slow_links as slow_links,
)
from ._communication.collective_scaling import (
    COLLECTIVE_ALGORITHMS as COLLECTIVE_ALGORITHMS,
    collective_scaling as collective_scaling,
    network_levels as network_levels,
)
from ._communication.compression import (
    compression as compression,
    compression_speedup as compression_speedup,
    table_bounds as table_bounds,
)
from ._communication.places import (
    collective_scopes as collective_scopes,
    place_bandwidth as place_bandwidth,
    rank_places as rank_places,
)
from ._communication.savings import (
    all_to_all_padding as all_to_all_padding,
    communication_speedup as communication_speedup,
)
from ._communication.startup_time import startup_time as startup_time

# The fleet as a whole
from ._fleet.clock_offset import clock_correction_s as clock_correction_s
from ._fleet.clock_offset import power_clock_offset as power_clock_offset
from ._fleet.power_dips import dip_causes as dip_causes
from ._fleet.incident_energy import energy_waste as energy_waste
from ._fleet.incident_energy import incident_energy as incident_energy
from ._fleet.kernel_energy import kernel_energy as kernel_energy
from ._fleet.step_energy import phase_power as phase_power
from ._fleet.power_dips import power_dips as power_dips
from ._fleet.clock_offset import power_during as power_during
from ._fleet.step_energy import step_energy as step_energy
from ._fleet.timeline import fleet_timeline as fleet_timeline

# Communication
from ._communication.local_training import (
    LocalTrainingJob as LocalTrainingJob,
    Scheme as Scheme,
    local_training as local_training,
    local_training_rate as local_training_rate,
    local_training_sweep as local_training_sweep,
    scaled_regions as scaled_regions,
    time_to_loss as time_to_loss,
)

# All domains
from ._lib import intervals as intervals
from ._lib.pipelines import ScheduleKind as ScheduleKind
