"""What was injected into simulated data."""

from __future__ import annotations

from workbench.tables._table import Column, Table

FLEET_TRUTH = Table(
    "fleet_truth",
    "What was injected into a simulated training job: one row per fault.",
    {
        "what": Column("str", "slow rank, late host, power cap, failing node or job restart"),
        "rank": Column("Int32", "global rank it hit", lower=0, nullable=True),
        "node": Column("str", "host it hit"),
        "first_step": Column("Int32", "first training step it hit", lower=0, nullable=True),
        "last_step": Column("Int32", "last training step it hit", lower=0, nullable=True),
        "start_ns": Column("int64", "start; ns since the Unix epoch"),
        "end_ns": Column("int64", "end; ns since the Unix epoch"),
        "size": Column("float64", "how much, in the unit named in the next column"),
        "unit": Column("str", "unit of the size, e.g. ms per step, W, x (times as long)"),
        "seen_in": Column("str", "files that show it"),
    },
)

HANG_TRUTH = Table(
    "hang_truth",
    "One row for the fault that was put into a simulated job that hangs; none without one.",
    {
        "fault": Column("str", "frozen host, failed GPU, mismatched operation or mismatched size"),
        "rank": Column("int32", "global rank it hit", lower=0),
        "group": Column("str", "process group of the collective it hit"),
        "description": Column("str", "what that group is for"),
        "seq": Column("int64", "sequence number of the collective in the group", lower=1),
        "operation": Column("str", "what was to be called there"),
    },
)
