"""What the steps of a trace consist of, and what other layouts would make of them."""

from __future__ import annotations

from workbench.tables._configurations import CONFIGURATIONS
from workbench.tables._table import Column, Table

STEP_BREAKDOWN = Table(
    "step_breakdown",
    "One row per rank and step: what its GPUs did from the start of the step to that of the "
    "next. compute + exposed communication + exposed memory + exposed other + idle = dur, exactly.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "step": Column(
            "Int32", "ProfilerStep; missing where the row is a whole trace", nullable=True
        ),
        "dur_ns": Column("int64", "from the start of the step to that of the next", lower=1),
        "compute_ns": Column("int64", "time with compute running", lower=0),
        "overlap_ns": Column("int64", "of that, time with communication running, too", lower=0),
        "exposed_communication_ns": Column("int64", "communication without compute", lower=0),
        "exposed_memory_ns": Column(
            "int64", "copies or sets without compute and communication", lower=0
        ),
        "exposed_other_ns": Column("int64", "work of kind other while nothing else runs", lower=0),
        "idle_ns": Column("int64", "time without GPU work", lower=0),
    },
)

_PARTS = {
    "compute": "kernels that compute, the update of the parameters with them",
    "communication": "communication that nothing hides",
    "bubble": "stages that wait for the pipeline to fill and drain",
    "other": "copies and other GPU work while nothing else runs",
    "idle": "time without GPU work: the host",
}
_BASIS = (
    "measured (as in the trace), scaled (by the closed form's ratio) or modelled (the trace "
    "has none, the closed form gives it)"
)
LAYOUT_WHAT_IF = Table(
    "layout_what_if",
    "One row per configuration asked for: what the steps of a trace of another one would take.",
    {
        **CONFIGURATIONS.columns,
        "change": Column("str", "what differs from the configuration of the trace, in words"),
        "measured_ns": Column("int64", "median time of a measured step", lower=1),
        "dur_ns": Column("int64", "the same in this configuration", lower=1),
        "low_ns": Column("Int64", "lower end of the interval over steps", 0, nullable=True),
        "high_ns": Column("Int64", "upper end", lower=0, nullable=True),
        "step_count": Column("int64", "measured steps", lower=1),
        "throughput_ratio": Column("float64", "tokens per second, of those in the trace", lower=0),
        **{
            f"{part}_ns": Column("int64", f"of the median step: {meaning}", lower=0)
            for part, meaning in _PARTS.items()
        },
        "overlap_ns": Column("int64", "of compute: hides communication", lower=0),
        "mfu_share": Column("float64", "model FLOPs / (time x peak)", 0, 1),
        "hfu_share": Column("float64", "the same with what is recomputed", 0, 1),
        "memory_bytes": Column("int64", "memory per GPU, fullest stage", lower=0),
        "fits": Column("bool", "whether that is less than a GPU has"),
        **{f"{part}_basis": Column("str", f"basis of {part}: {_BASIS}") for part in _PARTS},
        "doubt": Column("str", "why it may be wrong; empty if nothing is known"),
    },
)
