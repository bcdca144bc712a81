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

FAILURE_TRUTH = Table(
    "failure_truth",
    "What was injected into simulated failure logs: one row per incident, in order of time.",
    {
        "start_ns": Column("int64", "when it struck: its first line; ns since the Unix epoch"),
        "end_ns": Column("int64", "its last line; ns since the Unix epoch"),
        "node": Column("str", "host; missing where no host is at fault", nullable=True),
        "device": Column("str", "PCI address of the GPU: 0000:9b:00", nullable=True),
        "code": Column("str", "Xid; missing where the kernel says nothing", nullable=True),
        "other_codes": Column("str", "further Xids of the same incident: 63, 45"),
        "cause": Column("str", "what failed, in words"),
        "line_count": Column("int64", "kernel log lines that report it", lower=0),
        "is_fatal": Column("bool", "whether what runs on that device cannot go on"),
        "is_job_stopped": Column("bool", "whether it stopped the job: not on an idle spare"),
        "is_lemon": Column("bool", "whether the host fails far more often than others"),
        "attempt": Column("Int32", "attempt of the job that it stopped", lower=1, nullable=True),
        "detected_ns": Column("Int64", "when it was noticed; ns since the epoch", nullable=True),
        "ready_ns": Column("Int64", "when the job had its nodes again", nullable=True),
        "resumed_ns": Column("Int64", "when the job trained again", nullable=True),
        "lost_step_count": Column("Int64", "steps computed again", lower=0, nullable=True),
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
