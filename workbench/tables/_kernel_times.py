"""Measured times of kernels and collectives, what models predict, and the hardware they ran on."""

from __future__ import annotations

from workbench.tables._table import Column, Table

_GPU = Column("str", "GPU, as the hardware table calls it, e.g. H100")
_DTYPE = Column("str", "element type of the operands, e.g. bfloat16")
_SOURCE = Column("str", "where it was measured: package, file or project")
_LOW = "lower end of the interval"
_HIGH = "upper end of the interval"
_BASIS = (
    "measured: this very shape was; fitted: between measured ones; extrapolated: outside them; "
    "modelled: from published latencies and bandwidths; scaled: from another GPU"
)

GEMM_TIMES = Table(
    "gemm_times",
    "One row per measured matrix product C[m, n] = A[m, k] B[k, n].",
    {
        "gpu": _GPU,
        "dtype": _DTYPE,
        "m_count": Column("int64", "rows of A and C", lower=1),
        "n_count": Column("int64", "columns of B and C", lower=1),
        "k_count": Column("int64", "columns of A, rows of B", lower=1),
        "dur_ns": Column("int64", "measured time", lower=1),
        "source": _SOURCE,
    },
)

COLLECTIVE_TIMES = Table(
    "collective_times",
    "One row per measured collective. Sizes are as nccl-tests counts them: the larger of what "
    "a rank sends and receives.",
    {
        "gpu": _GPU,
        "collective": Column("str", "all-reduce, all-gather, reduce-scatter, all-to-all, ..."),
        "dtype": _DTYPE,
        "rank_count": Column("int64", "ranks that take part", lower=2),
        "node_count": Column("int64", "nodes they are on", lower=1),
        "size_bytes": Column("int64", "size of the larger buffer of a rank", lower=1),
        "dur_ns": Column("int64", "measured time", lower=1),
        "source": _SOURCE,
    },
)

PREDICTED_TIMES = Table(
    "predicted_times",
    "The rows asked for, each with its predicted time, the interval and how it was found.",
    {
        "gpu": _GPU,
        "dur_ns": Column("int64", "predicted time", lower=1),
        "low_ns": Column("int64", _LOW, lower=0),
        "high_ns": Column("int64", _HIGH, lower=1),
        "analytic_ns": Column("int64", "by the closed formula alone", lower=1),
        "basis": Column("str", _BASIS),
        "doubt": Column("str", "why the time may be wrong; empty if nothing speaks against it"),
    },
)

SCALED_TIMES = Table(
    "scaled_times",
    "The rows given, each with the ratio by which its time would change on another GPU.",
    {
        "gpu": Column("str", "GPU that is asked about"),
        "bound": Column("str", "what limits it: compute, memory, communication, or other"),
        "time_ratio": Column("float64", "time there / time here", lower=0),
        "scaled_ns": Column("int64", "time there", lower=0),
        "basis": Column("str", _BASIS),
        "doubt": Column("str", "why the time may be wrong; empty if nothing speaks against it"),
    },
)

HARDWARE = Table(
    "hardware",
    "One row per GPU: what its data sheet promises, without sparsity, and what was measured.",
    {
        "gpu": _GPU,
        "fp16_flop_per_s": Column("float64", "dense matrix peak in float16", lower=0),
        "bf16_flop_per_s": Column("float64", "dense matrix peak in bfloat16", lower=0),
        "fp8_flop_per_s": Column(
            "Float64", "dense matrix peak in 8-bit floats; missing without", lower=0, nullable=True
        ),
        "measured_flop_per_s": Column(
            "Float64", "best matrix product measured, bfloat16", lower=0, nullable=True
        ),
        "memory_bytes": Column("float64", "memory of the GPU", lower=0),
        "memory_bytes_per_s": Column("float64", "peak bandwidth of the memory", lower=0),
        "link_bytes_per_s": Column(
            "float64", "NVLink or xGMI to the GPUs of the node, one direction", lower=0
        ),
        "network_bytes_per_s": Column(
            "float64", "network between nodes per GPU, one direction", lower=0
        ),
        "multiprocessor_count": Column("int64", "SMs or CUs in use", lower=1),
        "node_gpu_count": Column("int64", "GPUs of a node", lower=1),
    },
)

HARDWARE_SOURCES = Table(
    "hardware_sources",
    "One row per GPU and number of the hardware table: where it was printed.",
    {
        "gpu": _GPU,
        "quantity": Column("str", "column of the hardware table"),
        "value": Column("float64", "as printed, in the unit beside", lower=0),
        "unit": Column("str", "unit of the value"),
        "source": Column("str", "who prints it, where"),
    },
)

KERNEL_MODEL_ERRORS = Table(
    "kernel_model_errors",
    "One row per model and class of shapes: error on what it was not fitted on.",
    {
        "gpu": _GPU,
        "dtype": _DTYPE,
        "model": Column("str", "roofline (peaks alone), analytic (fitted formula) or hybrid"),
        "shapes": Column("str", "all; training: m, n, k >= 1024; or a range of FLOPs"),
        "held_out": Column("str", "what was held out when fitting"),
        "row_count": Column("int64", "measurements predicted", lower=1),
        "flop_count": Column("float64", "median FLOPs of them", lower=0),
        "mean_ratio": Column("float64", "mean of |predicted / measured - 1|", lower=0),
        "median_ratio": Column("float64", "its median", lower=0),
        "max_ratio": Column("float64", "its maximum", lower=0),
    },
)

COLLECTIVE_MODEL = Table(
    "collective_model",
    "One row per measured collective: what a model of three lines says, and the bandwidth.",
    {
        "gpu": _GPU,
        "collective": Column("str", "all-reduce, all-gather, reduce-scatter, all-to-all, ..."),
        "rank_count": Column("int64", "ranks that take part", lower=2),
        "node_count": Column("int64", "nodes they are on", lower=1),
        "size_bytes": Column("int64", "size of the larger buffer of a rank", lower=1),
        "dur_ns": Column("int64", "measured time; median of repeats", lower=1),
        "bus_gb_per_s": Column("float64", "bus bandwidth of it [10^9 bytes/s]", lower=0),
        "modelled_ns": Column("float64", "by the three lines fitted to all sizes", lower=0),
        "held_out_ns": Column(
            "Float64",
            "by the lines fitted without this size; missing where too few sizes are left",
            lower=0,
            nullable=True,
        ),
        "line": Column("int32", "which of the lines it is on; 1 has the lowest latency", lower=1),
        "latency_ns": Column("float64", "of that line: time of a message without bytes", lower=0),
        "line_gb_per_s": Column("float64", "of that line: size by time beyond", lower=0),
    },
)
