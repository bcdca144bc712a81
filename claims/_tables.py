"""Tables of the claims, declared and checked like those of the workbench."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables import CONFIGURATIONS, INTERVAL_FUNNEL, ITERATIONS, PREDICTED_ITERATIONS
from workbench.tables.table import Column, Table, columns, table

RESULTS = table("""
    results: One row per number printed elsewhere and computed here.

    noun: str - what the claim is about, e.g. traces
    claim: str - name of the claim
    what: str - which of its numbers this is; empty for the claim as a whole
    source: str - paper, table, page or project that printed the number
    printed: float64? - number as printed, in `unit`
    here: float64? - number computed here, in `unit`
    tolerance: float64? >=0 - largest difference allowed, in `unit`
    unit: str - unit of the three numbers; empty for a plain number
    verdict: category - pass, short (misses a limit, and is known to), FAIL, or absent (a data set
        or package is not available)
    note: str - why a claim failed or how to get its data set; else empty
""")

FINDING_CASES = table("""
    finding_cases: One row per simulated job and trouble in it, and how the rule for it answered; a
    job without troubles has a row of its own.

    trouble: str - slow rank, checkpoints, power cap, ...; none
    rule: str - rule that should find it; of a job without troubles, the rules that found something
    seed: int64 - seed of the job
    others: str - other trouble of the job; else empty
    loss_share: float64 0..1 - true loss, as in the truth of the job
    is_found: bool - the rule found it, where it is
    elsewhere_count: int64 >=0 - findings of the rule that name another place
    cost: Float64? - cost as found, in the unit of the rule
    true_cost: Float64? >=0 - true cost, in the same unit
    false_count: int64 >=0 - findings in a job without troubles
""")

FINDING_QUALITY = table("""
    finding_quality: One row per trouble: how well its rule finds it in simulated jobs. The last
    row, of trouble none, counts what all rules find in jobs without trouble.

    trouble: str - slow rank, checkpoints, power cap, ...; none
    rule: str - rule that should find it
    from_share: Float64? 0..1 - true loss from which a case counts
    case_count: int64 >=0 - jobs with such a loss; of none, all jobs
    found_count: int64 >=0 - of them found, where the trouble is
    recall_share: Float64? 0..1 - found_count / case_count
    smallest_share: Float64? 0..1 - smallest loss from which on nine of ten jobs are found
    elsewhere_ratio: Float64? >=0 - findings of the rule that name another place, per job
    cost_error_ratio: Float64? >=0 - median of how far the found cost is off the true one
    false_ratio: Float64? >=0 - findings per job without trouble
    verdict: category - met, or MISSED: recall at least 95 %, cost within 20 %, and at most one
        false finding in ten jobs
""")

ITERATION_ERRORS = Table(
    "iteration_errors",
    "One row per configuration: predicted beside measured time of an iteration.",
    {
        **columns("""
            configuration: str - the configuration in words
            group: str - what was held out together, or what the row belongs to
            measured_ns: int64 >=1 - measured time
        """),
        **{name: PREDICTED_ITERATIONS.columns[name] for name in ("dur_ns", "low_ns", "high_ns")},
        **columns("""
            analytic_ns: int64 >=1 - the closed form alone
            error_ratio: float64 >=-1 - predicted / measured - 1
            analytic_error_ratio: float64 >=-1 - closed form / measured - 1
            is_inside: boolean? - measured lies in the interval
            doubt: str - why the prediction may be wrong; empty if nothing is known
        """),
    },
)


MEMORY_FOOTPRINT = Table(
    "memory_footprint",
    "One row per configuration: memory of a GPU of the fullest pipeline stage.",
    {
        **CONFIGURATIONS.columns,
        **columns("""
            parameters_bytes: int64 >=0 - weights in 16 bits
            gradients_bytes: int64 >=0 - gradients in 32 bits
            optimizer_bytes: int64 >=0 - main weights and two moments in 32 bits
            activations_bytes: int64 >=0 - stored for the backward pass
            total_bytes: int64 >=0 - sum of these; no fragments, no libraries
            capacity_bytes: int64 >=1 - memory of the GPU
            fits: bool - total less than capacity
        """),
    },
)


MODEL_FLOPS = Table(
    "model_flops",
    "One row per configuration: floating-point operations of one iteration, all GPUs.",
    {
        **CONFIGURATIONS.columns,
        **columns("""
            model_flops_count: float64 >=0 - forward and backward, once
            hardware_flops_count: float64 >=0 - with what is recomputed
            six_n_d_flops_count: float64 >=0 - 6 x active parameters x tokens; knows no attention
        """),
    },
)


UTILIZATION = Table(
    "utilization",
    "One row per measured configuration: share of the peak that its iterations reach.",
    {
        **ITERATIONS.columns,
        **columns("""
            mfu_share: float64 0..1 - model FLOPs / (time x peak of all GPUs)
            hfu_share: float64 0..1 - the same with what is recomputed
        """),
    },
)


JOB_HELD_OUT = table("""
    job_held_out: One row per way to predict the mean step of a job from half of its steps: how far
    off.

    method: category - joint steps, joint steps with delays, mean durations; own step for the
        replay of each step by itself
    split_count: int64 >=1 - random halves; steps for the replay of own steps
    error_ratio: float64 - mean of predicted / recorded - 1
    absolute_error_ratio: float64 >=0 - mean of its absolute value
    largest_error_ratio: float64 >=0 - largest absolute value
""")


GEMM_TIMES = table("""
    gemm_times: One row per measured matrix product C[m, n] = A[m, k] B[k, n].

    gpu: str - GPU, as the hardware table calls it, e.g. H100
    dtype: str - element type of the operands, e.g. bfloat16
    m_count: int64 >=1 - rows of A and C
    n_count: int64 >=1 - columns of B and C
    k_count: int64 >=1 - columns of A, rows of B
    dur_ns: int64 >=1 - measured time
    source: str - where it was measured: package, file or project
""")


COLLECTIVE_TIMES = table("""
    collective_times: One row per measured collective. Sizes are as nccl-tests counts them: the
    larger of what a rank sends and receives.

    gpu: str - GPU, as the hardware table calls it, e.g. H100
    collective: str - all-reduce, all-gather, reduce-scatter, all-to-all, ...
    dtype: str - element type of the operands, e.g. bfloat16
    rank_count: int64 >=2 - ranks that take part
    node_count: int64 >=1 - nodes they are on
    size_bytes: int64 >=1 - size of the larger buffer of a rank
    dur_ns: int64 >=1 - measured time
    source: str - where it was measured: package, file or project
""")


KERNEL_MODEL_ERRORS = table("""
    kernel_model_errors: One row per model and class of shapes: error on what it was not fitted on.

    gpu: str - GPU, as the hardware table calls it, e.g. H100
    dtype: str - element type of the operands, e.g. bfloat16
    model: str - roofline (peaks alone), analytic (fitted formula) or hybrid
    shapes: str - all; training: m, n, k >= 1024; or a range of FLOPs
    held_out: str - what was held out when fitting
    row_count: int64 >=1 - measurements predicted
    flop_count: float64 >=0 - median FLOPs of them
    mean_ratio: float64 >=0 - mean of |predicted / measured - 1|
    median_ratio: float64 >=0 - its median
    max_ratio: float64 >=0 - its maximum
""")


COLLECTIVE_MODEL = table("""
    collective_model: One row per measured collective: what a model of three lines says, and the
    bandwidth.

    gpu: str - GPU, as the hardware table calls it, e.g. H100
    collective: str - all-reduce, all-gather, reduce-scatter, all-to-all, ...
    rank_count: int64 >=2 - ranks that take part
    node_count: int64 >=1 - nodes they are on
    size_bytes: int64 >=1 - size of the larger buffer of a rank
    dur_ns: int64 >=1 - measured time; median of repeats
    bus_gb_per_s: float64 >=0 - bus bandwidth of it [10^9 bytes/s]
    modelled_ns: float64 >=0 - by the three lines fitted to all sizes
    held_out_ns: Float64? >=0 - by the lines fitted without this size; missing where too few sizes
        are left
    line: int32 >=1 - which of the lines it is on; 1 has the lowest latency
    latency_ns: float64 >=0 - of that line: time of a message without bytes
    line_gb_per_s: float64 >=0 - of that line: size by time beyond
""")


_PARTS = {
    "compute": "kernels that compute, the update of the parameters with them",
    "communication": "communication that nothing hides",
    "bubble": "stages that wait for the pipeline to fill and drain",
    "other": "copies and other GPU work while nothing else runs",
    "idle": "time without GPU work: the host",
}


_LAYOUT_CHANGES_BASIS = (
    "measured (as in the trace), scaled (by the closed form's ratio) or modelled (the trace "
    "has none, the closed form gives it)"
)


LAYOUT_WHAT_IF = Table(
    "layout_what_if",
    "One row per configuration requested: what the steps of a trace of another one would take.",
    {
        **CONFIGURATIONS.columns,
        **columns("""
            change: str - what differs from the configuration of the trace, in words
            measured_ns: int64 >=1 - median time of a measured step
            dur_ns: int64 >=1 - the same in this configuration
            low_ns: Int64? >=0 - lower end of the interval over steps
            high_ns: Int64? >=0 - upper end
            step_count: int64 >=1 - measured steps
            throughput_ratio: float64 >=0 - tokens per second, of those in the trace
        """),
        **{
            f"{part}_ns": Column("int64", f"of the median step: {meaning}", lower=0)
            for part, meaning in _PARTS.items()
        },
        **columns("""
            overlap_ns: int64 >=0 - of compute: hides communication
            mfu_share: float64 0..1 - model FLOPs / (time x peak)
            hfu_share: float64 0..1 - the same with what is recomputed
            memory_bytes: int64 >=0 - memory per GPU, fullest stage
            fits: bool - whether that is less than a GPU has
        """),
        **{
            f"{part}_basis": Column("str", f"basis of {part}: {_LAYOUT_CHANGES_BASIS}")
            for part in _PARTS
        },
        **columns("doubt: str - why it may be wrong; empty if nothing is known"),
    },
)


TASKS = table("""
    tasks: One row per piece of work of an execution graph.

    task: int64 >=0 - number of the task
    rank: int32 >=0 - global rank
    event: Int64? - where it comes from: row label in the events table, or id of the node of an
        execution trace
    name: category - name as recorded
    category: category - profiler category, or type of the node
    start_ns: Int64? - start, if recorded
    dur_ns: Int64? >=0 - time of its own, without what it called
    stream: Int64? - GPU stream, of GPU work
    thread: category? - thread, of work on a CPU
""")


TASK_EDGES = table("""
    task_edges: One row per dependency between tasks: the source ends before the target starts.

    src: int64 >=0 - task that comes first
    dst: int64 >=0 - task that waits
    kind: category - why it waits: data, control, thread order, launch, ...
    is_inferred: bool - guessed from order or times, not read from the trace
""")


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """An execution graph as tables TASKS and TASK_EDGES, and what makes it doubtful."""

    tasks: pd.DataFrame
    edges: pd.DataFrame
    doubts: tuple[str, ...] = ()  # what a replay of it would get wrong, in words


_EPOCH = "ns since the Unix epoch, on the clock of the job log"
SPAN_ENERGY = Table(
    "span_energy",
    "Energy of every named segment of a job, in order of time; they may nest.",
    {
        **columns("""
            kind: str - evaluation, checkpoint, restart, run, ... as the log names it
            attempt: int32 >=1 - run of the job, from 1
        """),
        "start_ns": Column("int64", f"start; {_EPOCH}"),
        "end_ns": Column("Int64", f"end; missing if the log ends before; {_EPOCH}", nullable=True),
        **columns("""
            step: Int64? >=0 - step after which it began
            energy_j: float64? >=0 - energy of all entities; missing where too little is known
            mean_w: float64? >=0 - mean power of all entities over what is known
            covered_share: float64 0..1 - of the time, over all entities, that readings cover
            entity_count: int64 >=0 - entities that were summed
            reading_count: int64 >=0 - readings within the span, of all entities
        """),
    },
)


WORK_ENERGY = Table(
    "work_energy",
    "What a unit of work costs: one row per measure, over the steps whose energy is known.",
    {
        **columns("""
            measure: str - energy per step, power in steps, ...
            unit: str - unit of the numbers in this row
            count: int64 >=0 - steps behind the numbers
            median: float64? - median over steps
            mean: float64? - sum of energy / sum of work
            deviation: float64? - standard deviation over steps
            low: float64? - 5 % of steps are below
            high: float64? - 5 % of steps are above
        """),
        "covered_share": Column(
            "float64",
            "of the time, over all entities, that readings cover, over all steps",
            lower=0,
            upper=1,
        ),
    },
)


ENERGY_TOTAL = table("""
    energy_total: One row: the energy of many entities in one window, and how much of it is known.

    method: str - trapezoid (straight lines between readings), mlperf (each reading holds since the
        one before) or counter (differences of an energy counter)
    start_ns: int64 - start of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    end_ns: int64 - end of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    energy_j: float64? >=0 - energy of what is covered, the least it can be; missing if nothing is
    bridged_j: float64? >=0 - estimate to add for gaps between readings, as if power had gone
        straight across them; the time before the first and after the last reading is not in it
    highest_j: float64? >=0 - the most it can be, as of each entity; missing if an expected one
        never read
    mean_w: float64? >=0 - mean power of all entities together while any of them was metered: means
        of entities that were metered at one time add up, those of runs one after the other do not
    covered_share: float64 0..1 - covered time of all expected entities over their time
    unknown_s: float64 >=0 - entity-seconds that nothing covers
    entity_count: int64 >=0 - entities with an energy
    expected_count: int64 >=0 - entities there are
""")


POWER_RAMPS = table("""
    power_ramps: One row per window and direction: the fastest change of power over that window.

    window_s: float64 >=0 - window that was requested
    measured_s: float64? - whole cells it was measured over; missing if it cannot be
    direction: str - up or down
    ramp_w_per_s: float64? >=0 - largest change / window, without its sign
    p99_w_per_s: float64? >=0 - what 99 % of all changes, both ways, stay below
    change_w: float64? - the largest change, with its sign
    start_ns: Int64? - when it began; ns, on the clock of the totals
    end_ns: Int64? - when it ended; ns, on the clock of the totals
    covered_share: float64 0..1 - windows with both ends known
    note: str - why there is no number, or what to mind
""")


BAND_SHARES = table("""
    band_shares: One row per band of frequencies: its share of the AC component of power that can
    be seen.

    low_hz: float64 >=0 - lower end, not part of the band
    high_hz: float64 >=0 - upper end, part of the band
    energy_share: float64? 0..1 - of all energy at 0 < f <= Nyquist; missing if the band is above
    rms_w: float64? >=0 - root mean square of the band
    visible_share: float64 0..1 - of the band's width below Nyquist
    nyquist_hz: float64 >=0 - half of the sampling frequency: nothing above it can be seen
    covered_share: float64 0..1 - cells used / cells there are
""")

INTERVAL_COVERAGE = Table(
    "interval_coverage",
    "One row per group, design and kind of interval: how often it covers the true value.",
    {
        **columns("""
            group: str - component
            design: str - uniform, stratified or two-phase
            interval: str - clustered or independent
            site_count: int64 >=1 - sites per repeat
            input_count: int64 >=1 - inputs per site
            repeat_count: int64 >=1 - repeats
            truth: float64 0..1 - the exhaustive factor
            covered_share: float64 0..1 - repeats whose interval holds it
            relative_width_ratio: float64? >=0 - mean half width over the truth; missing if that is
                0
            relative_rmse_ratio: float64? >=0 - error of the estimate over the truth
            confidence_level: float64 0..1 - confidence that the intervals claim
        """),
        **{
            name: INTERVAL_FUNNEL.columns[name]
            for name in ("average", "nan_policy", "criterion", "fault_model")
        },
    },
)
