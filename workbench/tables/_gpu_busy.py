"""How busy the GPU is, over time."""

from __future__ import annotations

from workbench.tables._table import Column, Table

GPU_BUSY = Table(
    "gpu_busy",
    "One row per rank and bin of time: how much of it some work occupied the GPU.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "start_ns": Column("int64", "start of the bin, on the clock of the events"),
        "busy_share": Column("float64", "of the bin: time with GPU work", 0, 1),
    },
)
