# Each name is imported when it is first used; this list is its only one.

# Traces
from ._traces.serving import serving_trace as serving_trace
from ._traces.twin import TwinChange as TwinChange, traces_like as traces_like

# Workload imbalance
from ._imbalance.popularity import row_popularity as row_popularity

# Failures and goodput
from ._failures.times import (
    FailureProcess as FailureProcess,
    failure_times as failure_times,
    slow_times as slow_times,
)

# Communication
from ._communication.local_training import local_training as local_training

# Power and energy
from ._power.kernels import kernel_power as kernel_power
from ._power.loads import power_loads as power_loads
