"""Tables of configurations, and of pipeline schedules."""

from __future__ import annotations

from workbench.tables.table import Column, Table, columns, table

_MODEL = columns("""
    model: str? - name of the model; missing if none was given
    layer_count: int64 >=1 - transformer layers
    hidden: int64 >=1 - width of the model
    ffn: int64 >=1 - inner width of a feed-forward block (of one expert)
    head_count: int64 >=1 - attention heads
    kv_head_count: int64 >=1 - heads of keys and values
    head_width: int64 >=1 - width of a head
    vocabulary_count: int64 >=1 - tokens of the vocabulary
    is_gated: bool - feed-forward blocks have three matrices instead of two
    is_tied: bool - input and output embedding are one matrix
    expert_count: int64 >=1 - experts per layer; 1 for a dense model
    routed_count: int64 >=1 - experts that each token visits
    shared_count: int64 >=0 - experts that every token visits besides
    moe_every: int64 >=1 - every how many layers one has experts
    dense_first_count: int64 >=0 - layers without experts before them
    dense_ffn: int64 >=0 - inner width of the feed-forward block of layers without experts; 0 for
        that of ffn
    window_tokens: int64 >=0 - tokens that attention looks back at; 0 for all
    full_attention_every: int64 >=0 - every how many layers one looks at all; 0 for none
    is_chunked: bool - the window is a chunk that begins again, it does not slide
    query_rank: int64 >=0 - width that queries are expanded from; 0 if they are not
    latent_rank: int64 >=0 - width that keys and values are expanded from; 0 if they are not
    rotary_width: int64 >=0 - rotary part of a query and key, on top of head_width
    value_width: int64 >=0 - width of a head's values; 0 for head_width
    next_token_count: int64 >=0 - layers that predict further tokens
""")
_LAYOUT = columns("""
    gpu: str - kind of GPU, e.g. A100
    gpu_count: int64 >=1 - GPUs
    tensor_parallel: int64 >=1 - ranks that share every matrix (TP)
    context_parallel: int64 >=1 - ranks that share every sequence (CP)
    pipeline_parallel: int64 >=1 - pipeline stages (PP)
    data_parallel: int64 >=1 - replicas (DP)
    expert_parallel: int64 >=1 - ranks that share the experts (EP), within DP
    chunk_count: int64 >=1 - parts of the model per stage (interleaving)
    micro_batch_count: int64 >=1 - sequences per micro-batch
    global_batch_count: int64 >=1 - sequences per iteration
    sequence_tokens: int64 >=1 - tokens per sequence
    recompute: str - activations computed again: none, selective or full
    sharding: str - what data-parallel ranks share: none, zero1, fsdp or hsdp
    has_sequence_parallel: bool - norms and dropouts are shared by TP ranks, too
    has_flash_attention: bool - attention skips what is masked and stores no scores
""")
_INTERVAL = columns("""
    dur_ns: int64 >=1 - predicted time of an iteration
    low_ns: Int64? >=0 - lower end of its interval; missing if none is known
    high_ns: Int64? >=0 - upper end; missing if none is known
""")
_PARTS = {
    "compute": "matrix products, attention and element-wise work, with what is recomputed",
    "bubble": "stages that wait for the pipeline to fill and drain",
    "tensor": "all-reduces of tensor parallelism",
    "context": "keys and values for context parallelism",
    "expert": "tokens to experts and back",
    "pipeline": "activations between stages",
    "data": "gradients and parameters between replicas",
    "optimizer": "update of the parameters",
    "other": "launches that the GPU waits for, and what is the same for every iteration",
}
_BASIS = "scaled (by constants fitted where it varied) or modelled (it was never measured)"

CONFIGURATIONS = Table(
    "configurations",
    "One row per configuration of a training job: model, GPUs, parallelism, batch.",
    {**_MODEL, **_LAYOUT},
)

ITERATIONS = Table(
    "iterations",
    "One row per configuration whose iteration time was measured.",
    {
        **CONFIGURATIONS.columns,
        **columns("""
            dur_ns: int64 >=1 - measured time of one iteration
            source: str - file and line, or publication
            doubt: str - why the row may be wrong; empty if nothing speaks against it
        """),
    },
)

PREDICTED_ITERATIONS = Table(
    "predicted_iterations",
    "One row per configuration: how long an iteration would take, and of what that consists.",
    {
        **CONFIGURATIONS.columns,
        **_INTERVAL,
        **columns("""
            analytic_ns: int64 >=1 - the closed form alone, without learned residual
            mfu_share: float64 0..1 - model FLOPs / (time x peak)
            hfu_share: float64 0..1 - the same with what is recomputed
            memory_bytes: int64 >=0 - memory per GPU, fullest stage
            fits: bool - whether that is less than a GPU has
            doubt: str - why the prediction may be wrong; empty if nothing is known
            error_class: str - how far off such predictions were where the truth is known
        """),
        **{f"{part}_ns": Column("int64", meaning, lower=0) for part, meaning in _PARTS.items()},
        **{f"{part}_basis": Column("str", f"basis of {part}: {_BASIS}") for part in _PARTS},
    },
)

PLAN = Table(
    "plan",
    "One row per way to spread a model over GPUs, fastest that fits first.",
    {**PREDICTED_ITERATIONS.columns, **columns("is_best: bool - fastest that fits, of all rows")},
)

PIPELINE_SCHEDULE = table("""
    pipeline_schedule: One row per pass of a training step: the order in which each stage runs its
    passes.

    schedule: category - gpipe, 1f1b, interleaved, zero_bubble, zbv, dualpipe_v, or a name
    stage: int32 >=0 - pipeline stage
    position: int32 >=0 - place among the passes of its stage
    action: category - F forward, B whole backward, or its two parts: I gradient of the inputs, W
        of the weights
    micro_batch: int32 >=0 - micro-batch of the step
    chunk: int32 >=0 - part of the model, counted along it
    overlapped_with: Int32? >=0 - position of the pass that runs at the same time; missing if none
        does
""")

SCHEDULE_TIMES = table("""
    schedule_times: One row per pass of a training step: when it runs. Stage by stage, in their
    order.

    schedule: category - gpipe, 1f1b, interleaved, zero_bubble, zbv, dualpipe_v, or a name
    stage: int32 >=0 - pipeline stage
    action: category - F forward, B whole backward, or its two parts: I gradient of the inputs, W
        of the weights
    micro_batch: int32 >=0 - micro-batch of the step
    chunk: int32 >=0 - part of the model, counted along it
    start_ns: float64 >=0 - start, from the beginning of the step
    dur_ns: float64 >=0 - duration; of two that overlap, that of the pair
    is_overlapped: bool - whether another pass of its stage runs meanwhile
    is_critical: bool - whether it is on a longest chain of passes, which a longer pass lengthens
""")

SCHEDULE_COMPARISON = table("""
    schedule_comparison: One row per pipeline schedule: what a step takes, loses and keeps.

    schedule: category - gpipe, 1f1b, interleaved, zero_bubble, zbv, dualpipe_v, or a name
    stage_count: int32 >=1 - pipeline stages
    micro_batch_count: int32 >=1 - micro-batches of the step
    chunk_count: int32 >=1 - parts of the model on a stage
    step_ns: float64 >=0 - from the first pass to the end of the last
    bubble_ns: float64 >=0 - idle time of the stage that is idle longest
    bubble_share: float64 0..1 - idle time of all stages, of their step
    bubble_ratio: Float64? >=0 - idle / busy time of all stages; missing if none is busy
    critical_transfer_ns: float64 >=0 - of the longest chain of passes, spent between stages
    peak_activations_count: int64 >=0 - activations of a chunk that the fullest stage keeps at once
    peak_activations_ratio: float64 >=0 - the same in activations of a whole stage: divided by its
        chunks
    basis: category - modelled: an exact order, with durations as given
    doubt: str? - what may not hold; missing if nothing is known
""")


TRAINING_RUNS = table("""
    training_runs: One row per published training run: what its GPU-hours come to.

    model: str - name of the model, as analyze.model_shape knows it
    gpu: str - kind of GPU
    token_count: int64 >=1 - tokens trained on
    gpu_time_h: float64 >=0 - GPU-hours, restarts and waiting with them
    parameter_count: int64 >=1 - parameters
    active_parameter_count: int64 >=1 - parameters that a token meets
    flops_count: float64 >=0 - 6 x active parameters x tokens
    tflops_per_gpu: float64 >=0 - FLOPs / GPU-hours [10^12 FLOP/s]
    peak_share: float64 0..1 - of the dense 16-bit peak
    remark: str - what to know before it is compared; may be empty
    source: str - where tokens and GPU-hours are printed
""")
