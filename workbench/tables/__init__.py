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
from workbench.tables._data_sets import DATASET_FILES, DATASETS
from workbench.tables._failures import FAILURES, NODE_SPANS, TIMELINE, FailureLog
from workbench.tables._fidelity import FIDELITY
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
from workbench.tables._simulation import FLEET_TRUTH
from workbench.tables._table import Column, Table
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
)

__all__ = [
    "ATTENTION_PROFILE",
    "BLAME",
    "BLAME_BY",
    "CLOCKS",
    "COLLECTIVES",
    "COLLECTIVE_WAITS",
    "COMMUNICATION_OVERLAP",
    "CONTEXT_CHUNKS",
    "CONTEXT_SHARDING",
    "COPY_BANDWIDTH",
    "CROSSOVER",
    "DATASETS",
    "DATASET_FILES",
    "DEPENDENCIES",
    "DEVICES",
    "DOCUMENT_LENGTHS",
    "EMBEDDING_TABLES",
    "EVENTS",
    "EXPERT_LOADS",
    "FAILURES",
    "FIDELITY",
    "FLEET_TRUTH",
    "FLIGHT_ENTRIES",
    "FLIGHT_GROUPS",
    "FLIGHT_POSITIONS",
    "FLIGHT_RANKS",
    "FLIGHT_STATUS",
    "FLIGHT_SUSPECTS",
    "FLIGHT_WAITS",
    "HARMLESS",
    "IDLE_TIME",
    "JOB_DISPERSION",
    "JOB_MICRO_BATCHES",
    "JOB_OPERATIONS",
    "JOB_SCHEDULE",
    "JOB_SLOWDOWN",
    "JOB_SLOWDOWN_BY",
    "JOB_STEPS",
    "JOB_TRUTH",
    "KERNELS",
    "KERNEL_KINDS",
    "KIND_OVERLAPS",
    "LATE_ARRIVALS",
    "LAUNCHES",
    "LAUNCH_LOSS",
    "LENGTH_SHARES",
    "LINEAR_PROFILE",
    "LOAD_IMBALANCE",
    "MICRO_BATCHES",
    "MICRO_BATCH_COSTS",
    "NODES",
    "NODE_SPANS",
    "OPERATORS",
    "PACKED_DOCUMENTS",
    "PACKING_BALANCE",
    "PACKING_QUEUES",
    "PIPELINE",
    "PROCESS_GROUPS",
    "QUALITY",
    "QUEUE_LENGTH",
    "QUEUE_SUMMARY",
    "RANKS",
    "REUSE_HISTOGRAM",
    "ROW_POPULARITY",
    "ROW_SHARDING",
    "SAYS_SYNTHETIC",
    "SHARD_BALANCE",
    "STEPS",
    "STEP_TIMES",
    "TABLE_SHARDING",
    "TIMELINE",
    "TIME_BREAKDOWN",
    "TRACE_DIFF",
    "TRAINING_SPEED",
    "TRAINING_STEPS",
    "TUNED_PACKING",
    "UNCLASSIFIED_KERNELS",
    "Column",
    "FailureLog",
    "FlightRecording",
    "Table",
    "Trace",
]
