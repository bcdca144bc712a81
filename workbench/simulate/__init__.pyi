# Each name is imported when it is first used; this list is its only one.

# Traces
from ._traces.memory import (
    Frame as Frame,
    MemoryAllocator as MemoryAllocator,
    memory_snapshot as memory_snapshot,
)
from ._traces.serving import serving_trace as serving_trace
from ._traces.twin import TwinChange as TwinChange, traces_like as traces_like

# Workload imbalance
from ._imbalance.demo import imbalance as imbalance
from ._imbalance.demo import document_lengths as document_lengths
from ._imbalance.demo import (
    embedding_tables as embedding_tables,
    row_popularity as row_popularity,
)
from ._imbalance.pipeline_job import JobShape as JobShape
from ._imbalance.pipeline_job import (
    CAUSES as CAUSES,
    PipelineJob as PipelineJob,
    pipeline_job as pipeline_job,
)

# Failures and goodput
from ._failures.hang_engine import HANG_FAULTS as HANG_FAULTS
from ._failures.hang_engine import HangJob as HangJob
from ._failures.hung_job import hang as hang
from ._failures.logs import failure_logs as failure_logs, failure_truth as failure_truth
from ._failures.times import (
    FailureProcess as FailureProcess,
    failure_times as failure_times,
    slow_times as slow_times,
)

# The fleet as a whole
from ._fleet.troubled import TROUBLES as TROUBLES, TroubledJob as TroubledJob
from ._fleet.troubled import troubled_job as troubled_job
from ._fleet.job import fleet as fleet, fleet_truth as fleet_truth
from ._fleet.program import FAULTS as FAULTS

# Communication
from ._communication.embedding_outputs import embedding_outputs as embedding_outputs
from ._communication.local_training import local_training as local_training

# Power and energy
from ._power.kernels import kernel_power as kernel_power
from ._power.loads import power_loads as power_loads
