"""Tables of configurations, and of pipeline schedules."""

from __future__ import annotations

from workbench.tables.table import Column, Table

# Configurations of training jobs, how long their iterations take, and what they need.

_MODEL = {
    "model": Column("str", "name of the model; missing if none was given", nullable=True),
    "layer_count": Column("int64", "transformer layers", lower=1),
    "hidden": Column("int64", "width of the model", lower=1),
    "ffn": Column("int64", "inner width of a feed-forward block (of one expert)", lower=1),
    "head_count": Column("int64", "attention heads", lower=1),
    "kv_head_count": Column("int64", "heads of keys and values", lower=1),
    "head_width": Column("int64", "width of a head", lower=1),
    "vocabulary_count": Column("int64", "tokens of the vocabulary", lower=1),
    "is_gated": Column("bool", "feed-forward blocks have three matrices instead of two"),
    "is_tied": Column("bool", "input and output embedding are one matrix"),
    "expert_count": Column("int64", "experts per layer; 1 for a dense model", lower=1),
    "routed_count": Column("int64", "experts that each token visits", lower=1),
}
_LAYOUT = {
    "gpu": Column("str", "kind of GPU, e.g. A100"),
    "gpu_count": Column("int64", "GPUs", lower=1),
    "tensor_parallel": Column("int64", "ranks that share every matrix (TP)", lower=1),
    "context_parallel": Column("int64", "ranks that share every sequence (CP)", lower=1),
    "pipeline_parallel": Column("int64", "pipeline stages (PP)", lower=1),
    "data_parallel": Column("int64", "replicas (DP)", lower=1),
    "expert_parallel": Column("int64", "ranks that share the experts (EP), within DP", lower=1),
    "chunk_count": Column("int64", "parts of the model per stage (interleaving)", lower=1),
    "micro_batch_count": Column("int64", "sequences per micro-batch", lower=1),
    "global_batch_count": Column("int64", "sequences per iteration", lower=1),
    "sequence_tokens": Column("int64", "tokens per sequence", lower=1),
    "recompute": Column("str", "activations computed again: none, selective or full"),
    "sharding": Column("str", "what data-parallel ranks share: none, zero1, fsdp or hsdp"),
    "has_sequence_parallel": Column("bool", "norms and dropouts are shared by TP ranks, too"),
    "has_flash_attention": Column("bool", "attention skips what is masked and stores no scores"),
}
_INTERVAL = {
    "dur_ns": Column("int64", "predicted time of an iteration", lower=1),
    "low_ns": Column("Int64", "lower end of its interval; missing if none is known", 0, None, True),
    "high_ns": Column("Int64", "upper end; missing if none is known", 0, None, True),
}
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
        "dur_ns": Column("int64", "measured time of one iteration", lower=1),
        "source": Column("str", "file and line, or publication"),
        "doubt": Column("str", "why the row may be wrong; empty if nothing speaks against it"),
    },
)

PREDICTED_ITERATIONS = Table(
    "predicted_iterations",
    "One row per configuration: how long an iteration would take, and of what that consists.",
    {
        **CONFIGURATIONS.columns,
        **_INTERVAL,
        "analytic_ns": Column("int64", "the closed form alone, without learned residual", lower=1),
        "mfu_share": Column("float64", "model FLOPs / (time x peak)", 0, 1),
        "hfu_share": Column("float64", "the same with what is recomputed", 0, 1),
        "memory_bytes": Column("int64", "memory per GPU, fullest stage", lower=0),
        "fits": Column("bool", "whether that is less than a GPU has"),
        "doubt": Column("str", "why the prediction may be wrong; empty if nothing is known"),
        "error_class": Column("str", "how far off such predictions were where the truth is known"),
        **{f"{part}_ns": Column("int64", meaning, lower=0) for part, meaning in _PARTS.items()},
        **{f"{part}_basis": Column("str", f"basis of {part}: {_BASIS}") for part in _PARTS},
    },
)

ITERATION_ERRORS = Table(
    "iteration_errors",
    "One row per configuration: predicted beside measured time of an iteration.",
    {
        "configuration": Column("str", "the configuration in words"),
        "group": Column("str", "what was held out together, or what the row belongs to"),
        "measured_ns": Column("int64", "measured time", lower=1),
        **_INTERVAL,
        "analytic_ns": Column("int64", "the closed form alone", lower=1),
        "error_ratio": Column("float64", "predicted / measured - 1", lower=-1),
        "analytic_error_ratio": Column("float64", "closed form / measured - 1", lower=-1),
        "is_inside": Column("boolean", "measured lies in the interval", nullable=True),
        "doubt": Column("str", "why the prediction may be wrong; empty if nothing is known"),
    },
)

MEMORY_NEED = Table(
    "memory_need",
    "One row per configuration: memory of a GPU of the fullest pipeline stage.",
    {
        **CONFIGURATIONS.columns,
        "parameters_bytes": Column("int64", "weights in 16 bits", lower=0),
        "gradients_bytes": Column("int64", "gradients in 32 bits", lower=0),
        "optimizer_bytes": Column("int64", "main weights and two moments in 32 bits", lower=0),
        "activations_bytes": Column("int64", "stored for the backward pass", lower=0),
        "total_bytes": Column("int64", "sum of these; no fragments, no libraries", lower=0),
        "capacity_bytes": Column("int64", "memory of the GPU", lower=1),
        "fits": Column("bool", "total less than capacity"),
    },
)

MODEL_FLOPS = Table(
    "model_flops",
    "One row per configuration: floating-point operations of one iteration, all GPUs.",
    {
        **CONFIGURATIONS.columns,
        "model_flops_count": Column("float64", "forward and backward, once", lower=0),
        "hardware_flops_count": Column("float64", "with what is recomputed", lower=0),
        "six_n_d_flops_count": Column(
            "float64", "6 x active parameters x tokens; knows no attention", lower=0
        ),
    },
)

UTILIZATION = Table(
    "utilization",
    "One row per measured configuration: share of the peak that its iterations reach.",
    {
        **ITERATIONS.columns,
        "mfu_share": Column("float64", "model FLOPs / (time x peak of all GPUs)", 0, 1),
        "hfu_share": Column("float64", "the same with what is recomputed", 0, 1),
    },
)

PLAN = Table(
    "plan",
    "One row per way to spread a model over GPUs, fastest that fits first.",
    {**PREDICTED_ITERATIONS.columns, "is_best": Column("bool", "fastest that fits, of all rows")},
)

# Pipeline schedules: what every stage runs in which order, when, and what it costs.

_SCHEDULE = Column("category", "gpipe, 1f1b, interleaved, zero_bubble, zbv, dualpipe_v, or a name")
_STAGE = Column("int32", "pipeline stage", lower=0)
_ACTION = Column(
    "category",
    "F forward, B whole backward, or its two parts: I gradient of the inputs, W of the weights",
)
_MICRO_BATCH = Column("int32", "micro-batch of the step", lower=0)
_CHUNK = Column("int32", "part of the model, counted along it", lower=0)

PIPELINE_SCHEDULE = Table(
    "pipeline_schedule",
    "One row per pass of a training step: the order in which each stage runs its passes.",
    {
        "schedule": _SCHEDULE,
        "stage": _STAGE,
        "position": Column("int32", "place among the passes of its stage", lower=0),
        "action": _ACTION,
        "micro_batch": _MICRO_BATCH,
        "chunk": _CHUNK,
        "overlapped_with": Column(
            "Int32",
            "position of the pass that runs at the same time; missing if none does",
            lower=0,
            nullable=True,
        ),
    },
)

SCHEDULE_TIMES = Table(
    "schedule_times",
    "One row per pass of a training step: when it runs. Stage by stage, in their order.",
    {
        "schedule": _SCHEDULE,
        "stage": _STAGE,
        "action": _ACTION,
        "micro_batch": _MICRO_BATCH,
        "chunk": _CHUNK,
        "start_ns": Column("float64", "start, from the beginning of the step", lower=0),
        "dur_ns": Column("float64", "duration; of two that overlap, that of the pair", lower=0),
        "is_overlapped": Column("bool", "whether another pass of its stage runs meanwhile"),
        "is_critical": Column(
            "bool", "whether it is on a longest chain of passes, which a longer pass lengthens"
        ),
    },
)

SCHEDULE_STAGES = Table(
    "schedule_stages",
    "One row per stage of a schedule: how long it computes, waits, and what it keeps.",
    {
        "schedule": _SCHEDULE,
        "stage": _STAGE,
        "chunk_count": Column(
            "int32", "parts of the model the stage holds, all parts being equal", lower=1
        ),
        "busy_ns": Column("float64", "time with a pass running", lower=0),
        "idle_ns": Column("float64", "the rest of the step: its bubble", lower=0),
        "idle_share": Column("float64", "of the step", lower=0, upper=1),
        "peak_activations_count": Column(
            "int64",
            "most micro-batches kept at once, counted in each chunk: from the forward to the end "
            "of the backward",
            lower=0,
        ),
    },
)

SCHEDULE_COMPARISON = Table(
    "schedule_comparison",
    "One row per pipeline schedule: what a step takes, loses and keeps.",
    {
        "schedule": _SCHEDULE,
        "stage_count": Column("int32", "pipeline stages", lower=1),
        "micro_batch_count": Column("int32", "micro-batches of the step", lower=1),
        "chunk_count": Column("int32", "parts of the model on a stage", lower=1),
        "step_ns": Column("float64", "from the first pass to the end of the last", lower=0),
        "bubble_ns": Column("float64", "idle time of the stage that is idle longest", lower=0),
        "bubble_share": Column("float64", "idle time of all stages, of their step", 0, 1),
        "bubble_ratio": Column(
            "Float64", "idle / busy time of all stages; missing if none is busy", 0, nullable=True
        ),
        "critical_transfer_ns": Column(
            "float64", "of the longest chain of passes, spent between stages", lower=0
        ),
        "peak_activations_count": Column(
            "int64", "activations of a chunk that the fullest stage keeps at once", lower=0
        ),
        "peak_activations_ratio": Column(
            "float64", "the same in activations of a whole stage: divided by its chunks", lower=0
        ),
        "basis": Column("category", "modelled: an exact order, with durations as given"),
        "doubt": Column("str", "what may not hold; missing if nothing is known", nullable=True),
    },
)

JOB_PREDICTION = Table(
    "job_prediction",
    "One row per change to a recorded job: how long its steps would take.",
    {
        "change": Column("str", "what is asked"),
        "basis": Column(
            "category",
            "measured (as recorded), scaled (recorded durations times a factor), modelled (in "
            "another order, or with other micro-batches)",
        ),
        "step_count": Column("int64", "recorded steps drawn from", lower=1),
        "step_ns": Column("float64", "mean step, with launch delays as recorded", lower=0),
        "step_low_ns": Column("float64", "lower end of the interval of the mean", lower=0),
        "step_high_ns": Column("float64", "upper end of the interval of the mean", lower=0),
        "step_p5_ns": Column("float64", "1 of 20 steps is shorter", lower=0),
        "step_p95_ns": Column("float64", "1 of 20 steps is longer", lower=0),
        "change_ratio": Column("float64", "mean step / mean step as recorded - 1", lower=-1),
        "change_low_ratio": Column("float64", "lower end of its interval"),
        "change_high_ratio": Column("float64", "upper end of its interval"),
        "doubt": Column("str", "what may not hold; missing if nothing is known", nullable=True),
    },
)

JOB_HELD_OUT = Table(
    "job_held_out",
    "One row per way to predict the mean step of a job from half of its steps: how far off.",
    {
        "method": Column(
            "category",
            "joint steps, joint steps with delays, mean durations; own step for the replay of "
            "each step by itself",
        ),
        "split_count": Column("int64", "random halves; steps for the replay of own steps", lower=1),
        "error_ratio": Column("float64", "mean of predicted / recorded - 1"),
        "absolute_error_ratio": Column("float64", "mean of its absolute value", lower=0),
        "largest_error_ratio": Column("float64", "largest absolute value", lower=0),
    },
)
