"""Configurations of training jobs, how long their iterations take, and what they need."""

from __future__ import annotations

from workbench.tables._table import Column, Table

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
