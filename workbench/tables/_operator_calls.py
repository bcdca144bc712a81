"""Operators of an execution trace, replayed alone, beside what they took in the job."""

from __future__ import annotations

from workbench.tables._table import Column, Table

OPERATOR_CALLS = Table(
    "operator_calls",
    "One row per highest-level operator call of a PyTorch execution trace, in the order of "
    "the trace; what such a call calls itself is part of it and has no row.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "node": Column("int64", "id of the node inside its rank"),
        "name": Column("category", "name of the operator"),
        "op_schema": Column("category", "schema as recorded", nullable=True),
        "parent": Column("Int64", "node that called it", nullable=True),
        "thread": Column("category", "thread as numbered in the trace", nullable=True),
        "device": Column("category", "where its tensors are: cpu, cuda, ...", nullable=True),
        "stream": Column("category", "GPU stream, if the arguments name one", nullable=True),
        "record_function": Column(
            "Int64", "id that joins the call to a profiler event (rf_id)", nullable=True
        ),
        "dur_ns": Column("Int64", "duration, if recorded", lower=0, nullable=True),
        "arguments": Column(
            "str", "inputs as JSON: kind, and value or shape, dtype and stride of each"
        ),
        "outputs": Column("str", "outputs as JSON, like the arguments"),
        "input_bytes": Column("int64", "bytes of all tensors that are read", lower=0),
        "assumed_stride_count": Column(
            "int32", "tensors whose strides are not known; taken as contiguous", lower=0
        ),
        "collective": Column("category", "collective, of calls that communicate", nullable=True),
        "group": Column("category", "process group of the collective", nullable=True),
        "size_bytes": Column("Int64", "bytes this rank sends", lower=0, nullable=True),
        "is_replayed": Column("bool", "a generated benchmark can call it"),
        "reason": Column("category", "why not, in words", nullable=True),
    },
)

OPERATOR_REPLAY = Table(
    "operator_replay",
    "One row per operator call that a generated benchmark tried to run.",
    {
        "rank": Column("int32", "global rank of the call in the trace", lower=0),
        "node": Column("int64", "id of the node of the call"),
        "name": Column("category", "name of the operator"),
        "device": Column("category", "where it ran: cpu or cuda"),
        "run_count": Column("int32", "timed runs", lower=0),
        "host_ns": Column("Float64", "median time of the call on the CPU", lower=0, nullable=True),
        "gpu_ns": Column("Float64", "median time on the GPU", lower=0, nullable=True),
        "reason": Column("category", "why it has no time, in words", nullable=True),
    },
)

NODE_TIMES = Table(
    "node_times",
    "One row per node of an execution trace: what a profiler trace of the same job says it took.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "node": Column("int64", "id of the node inside its rank"),
        "event": Column("Int64", "row label of the first event joined to it", nullable=True),
        "event_count": Column("int32", "events of which the times are the mean", lower=0),
        "start_ns": Column("Int64", "start of the first event", nullable=True),
        "host_ns": Column("Float64", "time of the call on the CPU", lower=0, nullable=True),
        "gpu_ns": Column(
            "Float64", "GPU work that it, or what it called, launched", lower=0, nullable=True
        ),
        "joined_by": Column(
            "category",
            "id (the same id and the same name), order (as many calls of that name on both "
            "sides), repeats (a whole multiple of them, in order) or none",
        ),
    },
)

OPERATOR_BENCHMARK = Table(
    "operator_benchmark",
    "One row per operator: what its calls took in the job, and what they take when replayed.",
    {
        "name": Column("category", "name of the operator"),
        "call_count": Column("int64", "calls in the trace", lower=0),
        "replayed_count": Column("int64", "of those, calls with a time of the replay", lower=0),
        "original_count": Column("int64", "of those, calls with a time in the job", lower=0),
        "compared_count": Column("int64", "calls with both times, which are compared", lower=0),
        "original_ns": Column("Float64", "time in the job of all calls", lower=0, nullable=True),
        "original_compared_ns": Column(
            "Float64", "time in the job of the calls compared", lower=0, nullable=True
        ),
        "replayed_ns": Column(
            "Float64", "time of the replay of all calls that ran", lower=0, nullable=True
        ),
        "replayed_compared_ns": Column(
            "Float64", "time of the replay of the calls compared", lower=0, nullable=True
        ),
        "replay_ratio": Column(
            "Float64", "replayed to original, of the calls compared", lower=0, nullable=True
        ),
        "device": Column("category", "where it ran in the job and in the replay"),
        "is_comparable": Column("bool", "both ran on the same kind of device"),
        "note": Column("str", "what is doubtful, or why there is no ratio"),
    },
)

OPERATOR_COVERAGE = Table(
    "operator_coverage",
    "One row per outcome of the calls of a trace; the shares of all rows add up to 1.",
    {
        "outcome": Column("category", "replayed, or why not"),
        "call_count": Column("int64", "calls", lower=0),
        "call_share": Column("float64", "of all calls", lower=0, upper=1),
        "original_ns": Column("Float64", "time in the job, if known", lower=0, nullable=True),
        "original_share": Column(
            "Float64", "of the time in the job of all calls", lower=0, upper=1, nullable=True
        ),
        "compared_count": Column("int64", "calls with comparable times on both sides", lower=0),
        "replay_ratio": Column(
            "Float64", "replayed to original, of the calls compared", lower=0, nullable=True
        ),
    },
)
