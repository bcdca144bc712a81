# Each name is imported when it is first used; this list is its only one.

from .communication import (
    collective_scaling as collective_scaling,
    compression_speedup as compression_speedup,
    local_training_rate as local_training_rate,
    place_bandwidth as place_bandwidth,
    startup_goodput as startup_goodput,
)
from .failures import (
    checkpoint_curve as checkpoint_curve,
    flight_suspects as flight_suspects,
    incidents as incidents,
    lemon_nodes as lemon_nodes,
    spares as spares,
)
from .faults import (
    injection_sample_sizes as injection_sample_sizes,
    pvf as pvf,
    pvf_by_bit as pvf_by_bit,
    pvf_protection as pvf_protection,
)
from ._goodput import (
    goodput as goodput,
    goodput_at_scale as goodput_at_scale,
    goodput_windows as goodput_windows,
)
from .imbalance import (
    context_sharding as context_sharding,
    inference_capacity as inference_capacity,
    inference_node as inference_node,
    length_shares as length_shares,
    packing_balance as packing_balance,
    row_sharding as row_sharding,
    table_sharding as table_sharding,
    training_speed as training_speed,
)
from .panel import Explorer as Explorer
from .perfmodel import (
    critical_path as critical_path,
    fast_matmul as fast_matmul,
    graph_ablation as graph_ablation,
    job_slowdown as job_slowdown,
    parallelism_plan as parallelism_plan,
    pipeline_schedule as pipeline_schedule,
    trace_like as trace_like,
    what_if as what_if,
)
from .power import (
    capping_events as capping_events,
    power_management as power_management,
    power_smoothing as power_smoothing,
    power_spectrum as power_spectrum,
    provisioning as provisioning,
)
from ._timeline import fleet_timeline as fleet_timeline, timeline as timeline
from .traces import (
    collective_waits as collective_waits,
    inference_iterations as inference_iterations,
    kernels as kernels,
    memory_peak as memory_peak,
    model_tree as model_tree,
    roofline as roofline,
    time_breakdown as time_breakdown,
)
