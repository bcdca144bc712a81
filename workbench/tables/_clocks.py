"""Clocks of ranks, and who came late."""

from __future__ import annotations

from workbench.tables._table import Column, Table
from workbench.tables._trace_analyses import RANK_COLUMN, STEP_COLUMN

CLOCKS = Table(
    "clocks",
    "One row per rank: how far its clock is from that of the others, and how well that is known.",
    {
        "rank": RANK_COLUMN,
        "clock": Column(
            "str",
            "ranks that can be put on one clock with this one, e.g. 0-7; missing if none can",
            nullable=True,
        ),
        "offset_ns": Column(
            "Int64", "to subtract from the rank's times; 0 for the median rank", nullable=True
        ),
        "residual_ns": Column(
            "Int64",
            "uncertainty: robust standard deviation of the differences of ends that are left; "
            "missing with too few collectives",
            lower=0,
            nullable=True,
        ),
        "drift_ratio": Column(
            "Float64",
            "how much faster the clock runs than the others'; missing if it cannot be told from 0",
            nullable=True,
        ),
        "reference_ns": Column(
            "Int64", "time on the rank's clock at which the offset holds", nullable=True
        ),
        "collective_count": Column("int64", "collectives that the offset is taken from", lower=0),
        "is_sure": Column("bool", "offset and uncertainty are known"),
        "note": Column("str", "what is doubtful", nullable=True),
    },
)

BLAME_BY = Table(
    "blame_by",
    "One row per step or process group (or both), rank that was waited for and rank that waited.",
    {
        "step": Column(
            "Int32",
            "ProfilerStep of the rank that waited; missing outside every step, or if not asked for",
            nullable=True,
        ),
        "group": Column("category", "process group; missing if not asked for", nullable=True),
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "rank": Column("int32", "rank that waited", lower=0),
        "wait_ns": Column("int64", "summed waiting", lower=0),
        "collective_count": Column("int64", "collectives in which this happened", lower=1),
        "wait_share": Column(
            "Float64",
            "of all waiting of the step or group; missing if there is none",
            0,
            1,
            nullable=True,
        ),
    },
)

LATE_ARRIVALS = Table(
    "late_arrivals",
    "One row per collective: what the rank that came last did since the collective before it. "
    "compute + communication + memory + other + idle = window, exactly.",
    {
        "collective": Column("int64", "number of the matched collective", lower=0),
        "operation": Column("category", "e.g. all-reduce"),
        "group": Column("category", "process group, or the stream if none is recorded"),
        "step": STEP_COLUMN,
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "wait_ns": Column("int64", "summed waiting of the others", lower=0),
        "late_ns": Column(
            "Int64", "start minus the median start of the others", lower=0, nullable=True
        ),
        "window_ns": Column(
            "int64",
            "end of the group's collective before, or first event of the step, to the start",
            lower=0,
        ),
        "compute_ns": Column("int64", "of the window, time with compute running", lower=0),
        "communication_ns": Column("int64", "communication without compute", lower=0),
        "memory_ns": Column("int64", "copies or sets without compute and communication", lower=0),
        "other_ns": Column("int64", "work of kind other while nothing else runs", lower=0),
        "idle_ns": Column("int64", "time without GPU work", lower=0),
        "began_late_ns": Column(
            "Int64", "start of the window minus the median of the others' windows", nullable=True
        ),
        "excess_kind": Column(
            "category",
            "what it spent most time on beyond the median of the others: compute, communication, "
            "memory, other, idle, or began late (its window began later)",
            nullable=True,
        ),
        "excess_ns": Column("Int64", "that time beyond the median", lower=0, nullable=True),
        "compute_ratio": Column(
            "Float64",
            "compute launched since the collective before / median of the others; missing if "
            "nothing can be compared",
            lower=0,
            nullable=True,
        ),
        "longest_kernel": Column("str", "GPU work that ran longest in the window", nullable=True),
        "longest_kernel_ns": Column("Int64", "its time in the window", lower=0, nullable=True),
        "longest_idle_ns": Column("Int64", "longest time without GPU work", lower=0, nullable=True),
        "host_operator": Column(
            "str",
            "outermost operator, annotation or call of the host in most of that time; missing if "
            "none was traced",
            nullable=True,
        ),
        "host_operator_ns": Column("Int64", "how much of it", lower=0, nullable=True),
        "is_sure": Column("bool", "who was last is sure, and no rank is missing"),
        "note": Column("str", "what is doubtful, or not in the trace", nullable=True),
    },
)
