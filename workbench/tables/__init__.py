"""The tables that loaders return and analyses exchange.

Every frame that crosses a module boundary is one of the tables below. A table
is plain data: column names, dtypes, units, meaning and limits. It checks frames
(:meth:`Table.check`), makes empty ones (:meth:`Table.empty`) and writes its own
documentation (:meth:`Table.markdown`).

Four rules keep the tables readable:

* the unit is the last part of the column name (``start_ns``, ``power_w``);
* shares are fractions between 0 and 1 and end in ``_share``, never per cent;
* time stamps are UTC, durations are plain numbers with a unit suffix;
* missing is missing: columns that can lack a value have a nullable dtype
  (``Int64``, not ``int64`` with -1).
"""

from workbench.tables._clocks import BLAME_BY, CLOCKS, LATE_ARRIVALS
from workbench.tables._configurations import (
    CONFIGURATIONS,
    ITERATION_ERRORS,
    ITERATIONS,
    MEMORY_NEED,
    MODEL_FLOPS,
    PLAN,
    PREDICTED_ITERATIONS,
    UTILIZATION,
)
from workbench.tables._data_sets import DATASET_FILES, DATASETS
from workbench.tables._execution_graph import (
    CRITICAL_PATH,
    EDGE_KINDS,
    GRAPH_ABLATION,
    GRAPH_BUILD,
    GRAPH_EDGES,
    GRAPH_POINTS,
    HELD_OUT_STEPS,
    POINT_KINDS,
    REPLAY_FIDELITY,
    SLACK,
    WHAT_IF,
    ExecutionGraph,
)
from workbench.tables._failures import (
    FAILURES,
    INCIDENT_COUNTS,
    NODE_SPANS,
    SLURM_RECORDS,
    TIMELINE,
    FailureLog,
)
from workbench.tables._fidelity import FIDELITY
from workbench.tables._fleet import Fleet
from workbench.tables._flight_recorder import (
    FLIGHT_ENTRIES,
    FLIGHT_GROUPS,
    FLIGHT_POSITIONS,
    FLIGHT_RANKS,
    FLIGHT_STATUS,
    FLIGHT_SUSPECTS,
    FLIGHT_WAITS,
    FlightRecording,
)
from workbench.tables._goodput import (
    CHECKPOINT_CURVE,
    CHECKPOINT_OPTIMUM,
    EXPECTED_ETTR,
    FAILURE_TIMES,
    GOODPUT,
    GOODPUT_AT_SCALE,
    GOODPUT_LADDER,
    GOODPUT_RUNS,
    GOODPUT_SENSITIVITY,
    GOODPUT_SWEEP,
    GOODPUT_WINDOWS,
    RESTART_PHASES,
    SLOW_TIMES,
    SPARES,
)
from workbench.tables._gpu_busy import GPU_BUSY
from workbench.tables._injections import (
    CAMPAIGN,
    EXHAUSTIVE,
    FAULTS,
    OUTCOME_NAMES,
    OUTCOMES,
    PARAMETERS,
    TRIALS,
    ExhaustiveInjections,
    Injections,
)
from workbench.tables._jobs import (
    JOB_DISPERSION,
    JOB_MICRO_BATCHES,
    JOB_OPERATIONS,
    JOB_SCHEDULE,
    JOB_SLOWDOWN,
    JOB_SLOWDOWN_BY,
    JOB_STEPS,
    JOB_TRUTH,
    TRACE_DIFF,
)
from workbench.tables._kernel_times import (
    COLLECTIVE_MODEL,
    COLLECTIVE_TIMES,
    GEMM_TIMES,
    HARDWARE,
    HARDWARE_SOURCES,
    KERNEL_MODEL_ERRORS,
    PREDICTED_TIMES,
    SCALED_TIMES,
)
from workbench.tables._layout_changes import LAYOUT_WHAT_IF, STEP_BREAKDOWN
from workbench.tables._operator_calls import (
    NODE_TIMES,
    OPERATOR_BENCHMARK,
    OPERATOR_CALLS,
    OPERATOR_COVERAGE,
    OPERATOR_REPLAY,
)
from workbench.tables._packing import (
    ATTENTION_PROFILE,
    CONTEXT_CHUNKS,
    CONTEXT_SHARDING,
    CROSSOVER,
    DOCUMENT_LENGTHS,
    LAUNCH_LOSS,
    LENGTH_SHARES,
    LINEAR_PROFILE,
    MICRO_BATCH_COSTS,
    MICRO_BATCHES,
    PACKED_DOCUMENTS,
    PACKING_BALANCE,
    PACKING_QUEUES,
    PIPELINE,
    TRAINING_SPEED,
    TRAINING_STEPS,
    TUNED_PACKING,
)
from workbench.tables._pipeline_schedules import (
    JOB_HELD_OUT,
    JOB_PREDICTION,
    PIPELINE_SCHEDULE,
    SCHEDULE_COMPARISON,
    SCHEDULE_STAGES,
    SCHEDULE_TIMES,
)
from workbench.tables._power import (
    LOGGED_SPANS,
    LOGGED_STEPS,
    METHODS,
    POWER,
    POWER_COUNTERS,
    POWER_ENTITIES,
    POWER_GRID,
    POWER_STATES,
    POWER_TOPOLOGY,
    POWER_TOTALS,
    SCOPES,
    JobLog,
    PowerLog,
)
from workbench.tables._power_capping import (
    CAPPED_SHARE,
    CAPPING_BLAME,
    CAPPING_COST,
    CAPPING_EVENTS,
)
from workbench.tables._power_energy import ENERGY, ENERGY_TOTAL
from workbench.tables._power_hierarchy import POWER_HIERARCHY, POWER_RESIDUAL, POWER_TREE, PUE
from workbench.tables._power_limits import (
    POWER_CURVE,
    POWER_KNEES,
    PROVISIONING,
    PROVISIONING_FACTS,
    PUBLISHED_GAINS,
)
from workbench.tables._power_scale import POWER_HEATMAP, POWER_ROLLUP, POWER_SAMPLED
from workbench.tables._power_sweeps import POWER_SWEEPS
from workbench.tables._power_swings import (
    BAND_SHARES,
    GRID_CHECK,
    POWER_EDGES,
    POWER_PEAKS,
    POWER_RAMPS,
    POWER_SMOOTHING,
    POWER_SPECTRUM,
    POWER_SWINGS,
    SMOOTHING_PLANS,
    SMOOTHING_SUMMARY,
)
from workbench.tables._power_work import (
    DIP_CAUSES,
    ENERGY_WASTE,
    FLEET_TIMELINE,
    INCIDENT_ENERGY,
    PHASE_POWER,
    POWER_CLOCK_OFFSET,
    POWER_DIPS,
    SPAN_ENERGY,
    STEP_ENERGY,
    WASTE_STATES,
    WORK_ENERGY,
)
from workbench.tables._pvf import (
    DETECTED_SHARES,
    DETECTOR_TOLERANCE,
    DETECTOR_TRIALS,
    GRADIENT_UNDERFLOW,
    INJECTION_ALLOCATION,
    INJECTION_SAMPLE_SIZES,
    INTERVAL_COVERAGE,
    INTERVAL_FUNNEL,
    OUTCOME_SHARES,
    PROPORTION,
    PVF,
    PVF_BY_MARGIN,
    PVF_EXPOSURE,
    PVF_MITIGATION,
    PVF_PROTECTION,
    PVF_RUNNING,
    ROUNDING_ERRORS,
)
from workbench.tables._reliability import (
    CAUSE_COUNTS,
    CAUSE_SHARES,
    CRASH_LOOPS,
    FAILURE_GAPS,
    FAILURE_RATES,
    FAILURE_TREND,
    JOB_FAILURES,
    JOB_SIZES,
    LEMON_NODES,
    LEMON_RECALL,
    LIFETIMES,
    MTTF_BY_SIZE,
    RECURRENCE,
    SURVIVAL,
    WEIBULL,
)
from workbench.tables._sharding import (
    EMBEDDING_TABLES,
    EXPERT_LOADS,
    LOAD_IMBALANCE,
    REUSE_HISTOGRAM,
    ROW_POPULARITY,
    ROW_SHARDING,
    SHARD_BALANCE,
    TABLE_SHARDING,
)
from workbench.tables._simulation import FAILURE_TRUTH, FLEET_TRUTH, HANG_TRUTH
from workbench.tables._source import Origin, Source, as_source
from workbench.tables._table import Column, Table
from workbench.tables._tasks import TASK_EDGES, TASKS, TaskGraph
from workbench.tables._trace_analyses import (
    BLAME,
    COLLECTIVE_WAITS,
    COLLECTIVES,
    COMMUNICATION_OVERLAP,
    COPY_BANDWIDTH,
    IDLE_TIME,
    KERNEL_KINDS,
    KERNELS,
    KIND_OVERLAPS,
    LAUNCHES,
    OPERATORS,
    QUEUE_LENGTH,
    QUEUE_SUMMARY,
    STEP_TIMES,
    TIME_BREAKDOWN,
    UNCLASSIFIED_KERNELS,
)
from workbench.tables._traces import (
    DEPENDENCIES,
    DEVICES,
    EVENTS,
    HARMLESS,
    NODES,
    PROCESS_GROUPS,
    QUALITY,
    RANKS,
    SAYS_SYNTHETIC,
    STEPS,
    Trace,
    folded_findings,
)

__all__ = [
    "ATTENTION_PROFILE", "BAND_SHARES", "BLAME", "BLAME_BY", "CAMPAIGN", "CAPPED_SHARE",
    "CAPPING_BLAME", "CAPPING_COST", "CAPPING_EVENTS", "CAUSE_COUNTS", "CAUSE_SHARES",
    "CHECKPOINT_CURVE", "CHECKPOINT_OPTIMUM", "CLOCKS", "COLLECTIVES", "COLLECTIVE_MODEL",
    "COLLECTIVE_TIMES", "COLLECTIVE_WAITS", "COMMUNICATION_OVERLAP", "CONFIGURATIONS",
    "CONTEXT_CHUNKS", "CONTEXT_SHARDING", "COPY_BANDWIDTH", "CRASH_LOOPS", "CRITICAL_PATH",
    "CROSSOVER", "DATASETS", "DATASET_FILES", "DEPENDENCIES", "DETECTED_SHARES",
    "DETECTOR_TOLERANCE", "DETECTOR_TRIALS", "DEVICES", "DIP_CAUSES", "DOCUMENT_LENGTHS",
    "EDGE_KINDS", "EMBEDDING_TABLES", "ENERGY", "ENERGY_TOTAL", "ENERGY_WASTE", "EVENTS",
    "EXHAUSTIVE", "EXPECTED_ETTR", "EXPERT_LOADS", "FAILURES", "FAILURE_GAPS", "FAILURE_RATES",
    "FAILURE_TIMES", "FAILURE_TREND", "FAILURE_TRUTH", "FAULTS", "FIDELITY", "FLEET_TIMELINE",
    "FLEET_TRUTH", "FLIGHT_ENTRIES", "FLIGHT_GROUPS", "FLIGHT_POSITIONS", "FLIGHT_RANKS",
    "FLIGHT_STATUS", "FLIGHT_SUSPECTS", "FLIGHT_WAITS", "GEMM_TIMES", "GOODPUT", "GOODPUT_AT_SCALE",
    "GOODPUT_LADDER", "GOODPUT_RUNS", "GOODPUT_SENSITIVITY", "GOODPUT_SWEEP", "GOODPUT_WINDOWS",
    "GPU_BUSY", "GRADIENT_UNDERFLOW", "GRAPH_ABLATION", "GRAPH_BUILD", "GRAPH_EDGES",
    "GRAPH_POINTS", "GRID_CHECK", "HANG_TRUTH", "HARDWARE", "HARDWARE_SOURCES", "HARMLESS",
    "HELD_OUT_STEPS", "IDLE_TIME", "INCIDENT_COUNTS", "INCIDENT_ENERGY", "INJECTION_ALLOCATION",
    "INJECTION_SAMPLE_SIZES", "INTERVAL_COVERAGE", "INTERVAL_FUNNEL", "ITERATIONS",
    "ITERATION_ERRORS", "JOB_DISPERSION", "JOB_FAILURES", "JOB_HELD_OUT", "JOB_MICRO_BATCHES",
    "JOB_OPERATIONS", "JOB_PREDICTION", "JOB_SCHEDULE", "JOB_SIZES", "JOB_SLOWDOWN",
    "JOB_SLOWDOWN_BY", "JOB_STEPS", "JOB_TRUTH", "KERNELS", "KERNEL_KINDS", "KERNEL_MODEL_ERRORS",
    "KIND_OVERLAPS", "LATE_ARRIVALS", "LAUNCHES", "LAUNCH_LOSS", "LAYOUT_WHAT_IF", "LEMON_NODES",
    "LEMON_RECALL", "LENGTH_SHARES", "LIFETIMES", "LINEAR_PROFILE", "LOAD_IMBALANCE",
    "LOGGED_SPANS", "LOGGED_STEPS", "MEMORY_NEED", "METHODS", "MICRO_BATCHES", "MICRO_BATCH_COSTS",
    "MODEL_FLOPS", "MTTF_BY_SIZE", "NODES", "NODE_SPANS", "NODE_TIMES", "OPERATORS",
    "OPERATOR_BENCHMARK", "OPERATOR_CALLS", "OPERATOR_COVERAGE", "OPERATOR_REPLAY", "OUTCOMES",
    "OUTCOME_NAMES", "OUTCOME_SHARES", "PACKED_DOCUMENTS", "PACKING_BALANCE", "PACKING_QUEUES",
    "PARAMETERS", "PHASE_POWER", "PIPELINE", "PIPELINE_SCHEDULE", "PLAN", "POINT_KINDS", "POWER",
    "POWER_CLOCK_OFFSET", "POWER_COUNTERS", "POWER_CURVE", "POWER_DIPS", "POWER_EDGES",
    "POWER_ENTITIES", "POWER_GRID", "POWER_HEATMAP", "POWER_HIERARCHY", "POWER_KNEES",
    "POWER_PEAKS", "POWER_RAMPS", "POWER_RESIDUAL", "POWER_ROLLUP", "POWER_SAMPLED",
    "POWER_SMOOTHING", "POWER_SPECTRUM", "POWER_STATES", "POWER_SWEEPS", "POWER_SWINGS",
    "POWER_TOPOLOGY", "POWER_TOTALS", "POWER_TREE", "PREDICTED_ITERATIONS", "PREDICTED_TIMES",
    "PROCESS_GROUPS", "PROPORTION", "PROVISIONING", "PROVISIONING_FACTS", "PUBLISHED_GAINS", "PUE",
    "PVF", "PVF_BY_MARGIN", "PVF_EXPOSURE", "PVF_MITIGATION", "PVF_PROTECTION", "PVF_RUNNING",
    "QUALITY", "QUEUE_LENGTH", "QUEUE_SUMMARY", "RANKS", "RECURRENCE", "REPLAY_FIDELITY",
    "RESTART_PHASES", "REUSE_HISTOGRAM", "ROUNDING_ERRORS", "ROW_POPULARITY", "ROW_SHARDING",
    "SAYS_SYNTHETIC", "SCALED_TIMES", "SCHEDULE_COMPARISON", "SCHEDULE_STAGES", "SCHEDULE_TIMES",
    "SCOPES", "SHARD_BALANCE", "SLACK", "SLOW_TIMES", "SLURM_RECORDS", "SMOOTHING_PLANS",
    "SMOOTHING_SUMMARY", "SPAN_ENERGY", "SPARES", "STEPS", "STEP_BREAKDOWN", "STEP_ENERGY",
    "STEP_TIMES", "SURVIVAL", "TABLE_SHARDING", "TASKS", "TASK_EDGES", "TIMELINE", "TIME_BREAKDOWN",
    "TRACE_DIFF", "TRAINING_SPEED", "TRAINING_STEPS", "TRIALS", "TUNED_PACKING",
    "UNCLASSIFIED_KERNELS", "UTILIZATION", "WASTE_STATES", "WEIBULL", "WHAT_IF", "WORK_ENERGY",
    "Column", "ExecutionGraph", "ExhaustiveInjections", "FailureLog", "Fleet", "FlightRecording",
    "Injections", "JobLog", "Origin", "PowerLog", "Source", "Table", "TaskGraph", "Trace",
    "as_source", "folded_findings",
]  # fmt: skip
