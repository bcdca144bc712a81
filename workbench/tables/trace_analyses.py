"""Tables that analyses of traces give."""

from __future__ import annotations

from workbench.tables.table import Column, Table

# How busy the GPU is, over time.

GPU_BUSY = Table(
    "gpu_busy",
    "One row per rank and bin of time: how much of it some work occupied the GPU.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "start_ns": Column("int64", "start of the bin, on the clock of the events"),
        "busy_share": Column("float64", "of the bin: time with GPU work", 0, 1),
    },
)

# What analyses make of traces.

RANK_COLUMN = Column("int32", "global rank", lower=0)
STEP_COLUMN = Column("Int32", "ProfilerStep; missing for work outside every step", nullable=True)
DEVICE_COLUMN = Column("Int32", "GPU index; missing if the trace names none", nullable=True)
STREAM_COLUMN = Column("Int64", "GPU stream; missing if the trace names none", nullable=True)

TIME_BREAKDOWN = Table(
    "time_breakdown",
    "One row per rank (and step): where the time of its GPUs went. compute + exposed "
    "communication + exposed memory + exposed other + idle = span, exactly.",
    {
        "rank": RANK_COLUMN,
        "step": Column(
            "Int32",
            "ProfilerStep; missing when the row stands for a whole rank, or for GPU work "
            "outside every step",
            nullable=True,
        ),
        "device_count": Column("int32", "GPUs with work; 0: nothing ran on a GPU", lower=0),
        "span_ns": Column(
            "Int64",
            "first start to last end of the GPU work; missing where no window exists: "
            "work outside every step, or no GPU work",
            lower=0,
            nullable=True,
        ),
        "compute_ns": Column("int64", "time with compute running", lower=0),
        "overlap_ns": Column("int64", "time with compute and communication running", lower=0),
        "communication_ns": Column("int64", "time with communication running", lower=0),
        "memory_ns": Column("int64", "time with copies or sets running", lower=0),
        "exposed_communication_ns": Column("int64", "communication without compute", lower=0),
        "exposed_memory_ns": Column(
            "int64", "copies or sets without compute and communication", lower=0
        ),
        "exposed_other_ns": Column("int64", "work of kind other while nothing else runs", lower=0),
        "busy_ns": Column("int64", "time with any GPU work running", lower=0),
        "idle_ns": Column("Int64", "span minus busy; missing where the span is", nullable=True),
    },
)

COMMUNICATION_OVERLAP = Table(
    "communication_overlap",
    "One row per rank (and step): how much of the communication hides behind compute.",
    {
        "rank": RANK_COLUMN,
        "step": STEP_COLUMN,
        "communication_ns": Column("int64", "time with communication running", lower=0),
        "overlap_ns": Column("int64", "of that, time with compute running too", lower=0),
        "exposed_ns": Column("int64", "of that, time without compute", lower=0),
        "overlap_share": Column(
            "Float64", "overlap / communication; missing without communication", 0, 1, nullable=True
        ),
    },
)

KIND_OVERLAPS = Table(
    "kind_overlaps",
    "One row per rank and set of kinds: how long exactly these kinds of work ran at once.",
    {
        "rank": RANK_COLUMN,
        "kinds": Column("str", "kinds that ran together, joined by ' + '"),
        "time_ns": Column("int64", "time with exactly these kinds running", lower=0),
        "time_share": Column("Float64", "of the time with any GPU work", 0, 1, nullable=True),
    },
)

IDLE_TIME = Table(
    "idle_time",
    "One row per rank, GPU (or stream) and cause: how long it had nothing to run, and why.",
    {
        "rank": RANK_COLUMN,
        "device": DEVICE_COLUMN,
        "stream": Column("Int64", "GPU stream; missing for a whole GPU", nullable=True),
        "cause": Column(
            "category",
            "host late, launch overhead, kernel gap, sync wait, dark, unknown (whole GPU); "
            "host wait, kernel wait, other, unknown (stream)",
        ),
        "detail": Column(
            "str",
            "what the cause is made of: what the launching thread did while it was late, what "
            "was waited for, why nothing is known, or that work of a CUDA graph is missing",
            nullable=True,
        ),
        "gap_count": Column("int64", "gaps that this cause has a part in", lower=0),
        "idle_ns": Column("int64", "idle time", lower=0),
        "idle_share": Column("Float64", "of the span of the GPU or stream", 0, 1, nullable=True),
    },
)

KERNELS = Table(
    "kernels",
    "One row per rank (and step) and name of GPU work: how often it ran and how long.",
    {
        "rank": RANK_COLUMN,
        "step": Column("Int32", "ProfilerStep; missing without by_step or outside", nullable=True),
        "name": Column("category", "kernel, copy or set, as the profiler wrote it"),
        "kind": Column("category", "compute, communication, memory or other"),
        "kernel_count": Column("int64", "times it ran", lower=1),
        "total_ns": Column("int64", "sum of durations", lower=0),
        "mean_ns": Column("float64", "mean duration", lower=0),
        "min_ns": Column("int64", "shortest", lower=0),
        "max_ns": Column("int64", "longest", lower=0),
        "std_ns": Column(
            "Float64", "sample standard deviation; missing for one run", lower=0, nullable=True
        ),
        "time_share": Column(
            "Float64", "of the summed durations of the rank (and step)", 0, 1, nullable=True
        ),
    },
)

KERNEL_KINDS = Table(
    "kernel_kinds",
    "One row per rank, kind and rule: what the GPU work is for, and who says so.",
    {
        "rank": RANK_COLUMN,
        "kind": Column("category", "compute, communication, memory or other"),
        "rule": Column(
            "str",
            "rule that decided; category: the profiler's own category did; loader: the trace was "
            "loaded with rules that are not known here; default: no rule matched",
        ),
        "is_unclassified": Column("bool", "no rule matched: the kind is a guess"),
        "name_count": Column("int64", "different names", lower=1),
        "kernel_count": Column("int64", "times such work ran", lower=1),
        "total_ns": Column("int64", "sum of durations", lower=0),
        "time_share": Column("Float64", "of the summed durations of the rank", 0, 1, nullable=True),
    },
)

UNCLASSIFIED_KERNELS = Table(
    "unclassified_kernels",
    "One row per kernel name that no rule knows, longest total first.",
    {
        "name": Column("str", "kernel name"),
        "kind": Column("category", "kind it was given by default"),
        "kernel_count": Column("int64", "times it ran, all ranks", lower=1),
        "total_ns": Column("int64", "sum of durations, all ranks", lower=0),
        "time_share": Column(
            "Float64", "of the summed durations of all GPU work", 0, 1, nullable=True
        ),
    },
)

OPERATORS = Table(
    "operators",
    "One row per rank and CPU operator: its own time and that of the GPU work it started. "
    "The row without a name holds the GPU work for which no operator was found.",
    {
        "rank": RANK_COLUMN,
        "name": Column("category", "operator, e.g. aten::mm", nullable=True),
        "op_count": Column("int64", "calls", lower=0),
        "total_ns": Column(
            "int64", "host time including operators inside; recursion counted once", lower=0
        ),
        "self_ns": Column("int64", "host time without the operators inside", lower=0),
        "kernel_count": Column("int64", "GPU work it started itself", lower=0),
        "gpu_self_ns": Column("int64", "summed durations of that work", lower=0),
        "gpu_ns": Column(
            "int64", "the same including operators inside; recursion counted once", lower=0
        ),
    },
)

LAUNCHES = Table(
    "launches",
    "One row per rank and name of the call that starts GPU work. The row without a name holds "
    "GPU work whose launch is not in the trace.",
    {
        "rank": RANK_COLUMN,
        "name": Column("category", "runtime or driver call", nullable=True),
        "call_count": Column("int64", "calls", lower=0),
        "childless_count": Column("int64", "calls without GPU work in the trace", lower=0),
        "kernel_count": Column("int64", "GPU work started; a graph starts many", lower=0),
        "host_ns": Column("int64", "summed durations of the calls", lower=0),
        "host_mean_ns": Column("Float64", "mean duration of a call", nullable=True),
        "host_max_ns": Column("Int64", "longest call", nullable=True),
        "latency_count": Column("int64", "GPU work whose stream was idle at launch", lower=0),
        "latency_mean_ns": Column(
            "Float64", "mean of its start minus launch start", lower=0, nullable=True
        ),
        "latency_median_ns": Column("Float64", "median of the same", lower=0, nullable=True),
        "latency_max_ns": Column("Int64", "largest of the same", lower=0, nullable=True),
        "queued_count": Column("int64", "GPU work whose stream was busy at launch", lower=0),
        "queue_mean_ns": Column(
            "Float64", "mean of its start minus launch start", lower=0, nullable=True
        ),
        "queue_median_ns": Column("Float64", "median of the same", lower=0, nullable=True),
        "queue_max_ns": Column("Int64", "largest of the same", lower=0, nullable=True),
        "early_count": Column(
            "int64", "GPU work that starts before its launch: clocks disagree", lower=0
        ),
    },
)

QUEUE_LENGTH = Table(
    "queue_length",
    "One row per change of a stream's queue: launches issued whose work has not begun.",
    {
        "rank": RANK_COLUMN,
        "device": DEVICE_COLUMN,
        "stream": STREAM_COLUMN,
        "time_ns": Column("int64", "when the length changed"),
        "queue_count": Column("int64", "launches waiting from then on", lower=0),
        "blocked_ns": Column(
            "int64",
            "duration of the launch call issued here if the queue was at its limit, else 0",
            lower=0,
        ),
    },
)

QUEUE_SUMMARY = Table(
    "queue_summary",
    "One row per stream: how long its queue was.",
    {
        "rank": RANK_COLUMN,
        "device": DEVICE_COLUMN,
        "stream": STREAM_COLUMN,
        "max_count": Column("int64", "longest queue", lower=0),
        "mean_count": Column(
            "Float64", "time-weighted mean length; missing for one instant", lower=0, nullable=True
        ),
        "blocked_count": Column("int64", "launch calls issued at the limit", lower=0),
        "blocked_ns": Column("int64", "summed durations of those calls", lower=0),
    },
)

COPY_BANDWIDTH = Table(
    "copy_bandwidth",
    "One row per rank, GPU and direction: how fast memory was copied or set.",
    {
        "rank": RANK_COLUMN,
        "device": DEVICE_COLUMN,
        "direction": Column("category", "HtoD, DtoH, DtoD, PtoP, HtoH, Memset or unknown"),
        "copy_count": Column("int64", "copies or sets", lower=1),
        "instant_count": Column("int64", "copies of 0 ns, taken as 1 µs", lower=0),
        "unsized_count": Column("int64", "copies without a size, dropped from the rates", lower=0),
        "size_bytes": Column("Int64", "bytes of all sized copies", lower=0, nullable=True),
        "busy_ns": Column("int64", "time with at least one sized copy running", lower=0),
        "mean_gb_per_s": Column(
            "Float64", "bytes / busy: rates of concurrent copies add up", lower=0, nullable=True
        ),
        "peak_gb_per_s": Column(
            "Float64", "largest sum of concurrent rates", lower=0, nullable=True
        ),
    },
)

COLLECTIVES = Table(
    "collectives",
    "One row per collective kernel: which one it is across ranks, and how it went.",
    {
        "collective": Column(
            "Int64", "number of the matched collective; missing if not matched", nullable=True
        ),
        "rank": RANK_COLUMN,
        "event": Column("int64", "row label in the events table"),
        "operation": Column(
            "category",
            "all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce, gather, "
            "scatter, send-receive, send, receive, barrier, wait, coalesced or unknown",
        ),
        "group": Column("category", "process group, or the stream if none is recorded"),
        "group_size": Column("Int32", "ranks in the process group", lower=0, nullable=True),
        "rank_count": Column("int32", "ranks of this collective that were found", lower=1),
        "is_complete": Column(
            "boolean", "all ranks of the group were found; missing if unknown", nullable=True
        ),
        "step": STEP_COLUMN,
        "start_ns": Column("int64", "start on this rank"),
        "dur_ns": Column("int64", "duration on this rank", lower=0),
        "wait_ns": Column(
            "Int64", "latest start of all ranks minus own start", lower=0, nullable=True
        ),
        "transfer_ns": Column(
            "Int64", "own end minus latest start of all ranks", lower=0, nullable=True
        ),
        "transfer_min_ns": Column(
            "Int64", "shortest duration of all ranks: the transfer itself", lower=0, nullable=True
        ),
        "blamed_rank": Column("Int32", "rank that started last", lower=0, nullable=True),
        "start_skew_ns": Column("Int64", "latest minus earliest start", lower=0, nullable=True),
        "end_skew_ns": Column("Int64", "latest minus earliest end", lower=0, nullable=True),
        "is_sure": Column(
            "boolean",
            "who was last: ranks end at most half as far apart as they start and, with clocks, the "
            "last starts later than clocks can mistake; missing without wait",
            nullable=True,
        ),
        "size_bytes": Column(
            "Int64", "size as nccl-tests counts it; missing if not recorded", 0, nullable=True
        ),
        "size_imbalance_ratio": Column(
            "Float64", "largest size of all ranks / mean size", lower=1, nullable=True
        ),
        "algorithm_gb_per_s": Column(
            "Float64", "mean size / shortest duration", lower=0, nullable=True
        ),
        "bus_gb_per_s": Column(
            "Float64", "the same times the factor of the operation", lower=0, nullable=True
        ),
        "confidence": Column("category", "of the match: high, medium, low; none if not matched"),
        "note": Column("str", "why not matched, or what is doubtful", nullable=True),
    },
)

COLLECTIVE_WAITS = Table(
    "collective_waits",
    "One row per matched collective and rank: waiting for the last rank, then moving data.",
    {
        "collective": Column("int64", "number of the matched collective", lower=0),
        "rank": RANK_COLUMN,
        "step": STEP_COLUMN,
        "operation": Column("category", "e.g. all-reduce"),
        "group": Column("category", "process group, or the stream if none is recorded"),
        "start_ns": Column("int64", "start on this rank"),
        "wait_ns": Column("int64", "latest start minus own start", lower=0),
        "transfer_ns": Column("int64", "own end minus latest start", lower=0),
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "is_complete": Column(
            "boolean", "all ranks of the group were found; missing if unknown", nullable=True
        ),
        "is_sure": Column(
            "bool",
            "who was last: ranks end at most half as far apart as they start and, with clocks, the "
            "last starts later than clocks can mistake",
        ),
        "confidence": Column("category", "of the match: high, medium or low"),
    },
)

BLAME = Table(
    "blame",
    "One row per rank that was waited for and rank that waited.",
    {
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "rank": Column("int32", "rank that waited", lower=0),
        "wait_ns": Column("int64", "summed waiting", lower=0),
        "collective_count": Column("int64", "collectives in which this happened", lower=1),
        "wait_share": Column(
            "Float64", "of all waiting; missing if there is none", 0, 1, nullable=True
        ),
    },
)

STEP_TIMES = Table(
    "step_times",
    "One row per rank and step: how long it took on the host and on the GPU.",
    {
        "rank": RANK_COLUMN,
        "step": Column("int32", "step number as the profiler counts"),
        "start_ns": Column("Int64", "start of the ProfilerStep on the host", nullable=True),
        "host_ns": Column("Int64", "its duration on the host", lower=0, nullable=True),
        "gpu_start_ns": Column("Int64", "start of its first GPU work", nullable=True),
        "gpu_ns": Column("Int64", "first start to last end of its GPU work", 0, nullable=True),
        "busy_ns": Column("Int64", "time with GPU work of the step", lower=0, nullable=True),
    },
)
