"""What a job draws and how long it takes under one power limit after the other."""

from __future__ import annotations

from workbench.tables._table import Column, Table

POWER_SWEEPS = Table(
    "power_sweeps",
    "One row per job and power limit, all of one GPU: its mean power, and the time and energy of "
    "a piece of work that is the same under every limit of that job.",
    {
        "gpu": Column("str", "product, as the file or its name says", nullable=True),
        "job": Column("str", "what was run; limits are compared within one"),
        "dataset": Column("str", "what it was run on", nullable=True),
        "network": Column("str", "model that was run", nullable=True),
        "batch_count": Column("Int64", "samples of a batch", lower=1, nullable=True),
        "limit_w": Column("float64", "power limit of one GPU", lower=0, nullable=True),
        "power_w": Column("float64", "mean power of one GPU", lower=0, nullable=True),
        "time_s": Column(
            "float64", "time of the piece of work: an epoch, a window", lower=0, nullable=True
        ),
        "energy_j": Column("float64", "energy of one GPU in that time", lower=0, nullable=True),
        "gpu_count": Column("int64", "GPUs that the means are over", lower=1),
        "run_count": Column("int64", "measurements that the row is the mean of", lower=1),
        "variant": Column("str", "what differs between them: optimiser", nullable=True),
        "doubt": Column("str", "what is odd about the numbers; else empty"),
        "source": Column("str", "file, or archive and member"),
        "line": Column("int64", "line of the file, or record, of the first of them", lower=1),
    },
)
