"""Tables that analyses of traces give, of inference, and of GPU memory."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import table
from workbench.tables.traces import Loaded, flagged_text

GPU_BUSY = table("""
    gpu_busy: One row per rank and bin of time: how much of it some work occupied the GPU.

    rank: int32 >=0 - global rank
    start_ns: int64 - start of the bin, on the clock of the events
    busy_share: float64 0..1 - of the bin: time with GPU work
""")

# The parts are disjoint and add up to the span, to the nanosecond: rounding would hide errors.
TIME_BREAKDOWN = table("""
    time_breakdown: One row per rank (and step): where the time of its GPUs went. compute + exposed
    communication + exposed memory + exposed other + idle = span, exactly.

    rank: int32 >=0 - global rank
    step: Int32? - ProfilerStep; missing when the row stands for a whole rank, or for GPU work
        outside every step
    device_count: int32 >=0 - GPUs with work; 0: nothing ran on a GPU
    span_ns: Int64? >=0 - first start to last end of the GPU work; missing where no window exists:
        work outside every step, or no GPU work
    compute_ns: int64 >=0 - time with compute running
    overlap_ns: int64 >=0 - time with compute and communication running
    communication_ns: int64 >=0 - time with communication running
    memory_ns: int64 >=0 - time with copies or sets running
    exposed_communication_ns: int64 >=0 - communication without compute
    exposed_memory_ns: int64 >=0 - copies or sets without compute and communication
    exposed_other_ns: int64 >=0 - work of kind other while nothing else runs
    busy_ns: int64 >=0 - time with any GPU work running
    idle_ns: Int64? - span minus busy; missing where the span is
""")

COMMUNICATION_OVERLAP = table("""
    communication_overlap: One row per rank (and step): how much of the communication hides behind
    compute.

    rank: int32 >=0 - global rank
    step: Int32? - ProfilerStep; missing for work outside every step
    communication_ns: int64 >=0 - time with communication running
    overlap_ns: int64 >=0 - of that, time with compute running too
    exposed_ns: int64 >=0 - of that, time without compute
    overlap_share: Float64? 0..1 - overlap / communication; missing without communication
""")

# One table for GPUs and for streams, whose causes differ; a missing stream says which it is.
IDLE_TIME = table("""
    idle_time: One row per rank, GPU (or stream) and cause: how long it had nothing to run, and
    why.

    rank: int32 >=0 - global rank
    device: Int32? - GPU index; missing if the trace names none
    stream: Int64? - GPU stream; missing for a whole GPU
    cause: category - host late, launch overhead, kernel gap, sync wait, dark, unknown (whole GPU);
        host wait, kernel wait, other, unknown (stream)
    detail: str? - what the cause is made of: what the launching thread did while it was late, what
        was waited for, why nothing is known, or that work of a CUDA graph is missing
    gap_count: int64 >=0 - gaps that this cause has a part in
    idle_ns: int64 >=0 - idle time
    idle_share: Float64? 0..1 - of the span of the GPU or stream
""")

KERNELS = table("""
    kernels: One row per rank (and step) and name of GPU work: how often it ran and how long.

    rank: int32 >=0 - global rank
    step: Int32? - ProfilerStep; missing without by_step or outside
    name: category - kernel, copy or set, as the profiler wrote it
    kind: category - compute, communication, memory or other
    kernel_count: int64 >=1 - times it ran
    total_ns: int64 >=0 - sum of durations
    mean_ns: float64 >=0 - mean duration
    min_ns: int64 >=0 - shortest
    max_ns: int64 >=0 - longest
    std_ns: Float64? >=0 - sample standard deviation; missing for one run
    time_share: Float64? 0..1 - of the summed durations of the rank (and step)
""")

KERNEL_KINDS = table("""
    kernel_kinds: One row per rank, kind and rule: what the GPU work is for, and who says so.

    rank: int32 >=0 - global rank
    kind: category - compute, communication, memory or other
    rule: str - rule that decided; category: the profiler's own category did; loader: the trace was
        loaded with rules that this installation lacks; default: no rule matched
    is_unclassified: bool - no rule matched: the kind is a guess
    name_count: int64 >=1 - different names
    kernel_count: int64 >=1 - times such work ran
    total_ns: int64 >=0 - sum of durations
    time_share: Float64? 0..1 - of the summed durations of the rank
""")

UNCLASSIFIED_KERNELS = table("""
    unclassified_kernels: One row per kernel name that no rule knows, longest total first.

    name: str - kernel name
    kind: category - kind it was given by default
    kernel_count: int64 >=1 - times it ran, all ranks
    total_ns: int64 >=0 - sum of durations, all ranks
    time_share: Float64? 0..1 - of the summed durations of all GPU work
""")


ROOFLINE = table("""
    roofline: One row per rank, operator and the shapes and types of its inputs: work and time of
    the GPU work that it started itself. The row without a name holds the GPU work for which no
    operator was found.

    rank: int32 >=0 - global rank
    name: category? - operator, e.g. aten::mm
    family: category - matrix product, convolution, attention, normalisation, reduction, embedding,
        elementwise, communication, or unknown
    shapes: category? - sizes of its inputs as JSON; missing where not recorded
    types: category? - types of its inputs as JSON
    operators_around: str optional - operators that called it, outermost first
    dtype: str? - type whose peak holds, e.g. bfloat16, or tf32 where a kernel's name says so
    call_count: int64 >=0 - calls that started GPU work
    kernel_count: int64 >=0 - kernels, copies and sets that they started
    kernel_ns: int64 >=0 - summed durations of these
    time_share: Float64? 0..1 - of the summed durations of the rank
    flop_count: Float64? >=0 - floating-point operations of all calls; outside matrix products,
        convolutions and attention one per element, which is a lower bound
    moved_bytes: Float64? >=0 - bytes that must be read and written, each once
    flop_per_s: Float64? >=0 - operations / time
    bytes_per_s: Float64? >=0 - bytes / time
    intensity_flop_per_byte: Float64? >=0 - operations / bytes
    peak_flop_per_s: Float64? >=0 - peak of the type
    memory_bytes_per_s: Float64? >=0 - peak of the memory
    bound: category? - compute or memory: which of the two peaks takes longer
    roof_ns: Float64? >=0 - shortest time that the peaks allow
    roof_ratio: Float64? >=0 - shortest time / time; above 1 something is wrong, see the note
    gain_ns: Float64? >=0 - time above the shortest
    kernel: str - GPU work of the longest time
    is_sure: bool - not above the roof, as far as can be told
    note: str? - why a number is missing, or what is doubtful
""")

MODEL_TREE = table("""
    model_tree: One row per rank and node of the user's code. The nodes below add up: gpu_ns is
    gpu_self_ns and the gpu_ns of the children, and of a root all GPU work of the rank, streams that
    run at once each in full. forward + backward + recompute + other = gpu, exactly.

    rank: int32 >=0 - global rank
    node: int64 >=0 - number of the node, the same with other ranks and without them
    parent: Int64? >=0 - node around it; missing for the root
    depth: int32 >=0 - nodes above it
    kind: category - module (nn.Module), function (Python), range (record_function or NVTX),
        operator, backward (its module is not recorded), outside (no frame of the user's around the
        launch, or no launch recorded) or root
    name: str - name as the profiler wrote it, without the prefix of modules
    path: str - names from the root down
    call_count: int64 >=0 - times that the host entered it; runs again for the backward pass count
    cpu_ns: int64 >=0 - summed durations of these on the host
    kernel_count: int64 >=0 - GPU work of the node and of all below it
    gpu_self_ns: int64 >=0 - summed durations of GPU work that no node below it launched
    gpu_ns: int64 >=0 - the same with the nodes below it
    forward_ns: int64 >=0 - of gpu_ns, forward pass
    backward_ns: int64 >=0 - of gpu_ns, backward pass
    recompute_ns: int64 >=0 - of gpu_ns, forward pass run again for the backward pass
    other_ns: int64 >=0 - of gpu_ns, optimizer, communication and other phases
""")

PHASES = table("""
    phases: One row per rank (and step, or step and micro-batch) and phase of training.

    rank: int32 >=0 - global rank
    step: Int32? - ProfilerStep; missing for work outside every step, and for whole ranks
    micro_batch: Int64? >=0 - number that the ranges around the launch state
    phase: category - forward, backward, recompute (forward run again for the backward pass),
        optimizer, communication or other
    kernel_count: int64 >=1 - GPU work
    gpu_ns: int64 >=0 - summed durations
    gpu_share: Float64? 0..1 - of the summed durations of the rank (and step, and micro-batch);
        missing where all last 0 ns
""")

LAUNCHES = table("""
    launches: One row per rank and name of the call that starts GPU work. The row without a name
    holds GPU work whose launch is not in the trace.

    rank: int32 >=0 - global rank
    name: category? - runtime or driver call
    call_count: int64 >=0 - calls
    childless_count: int64 >=0 - calls without GPU work in the trace
    kernel_count: int64 >=0 - GPU work started; a graph starts many
    host_ns: int64 >=0 - summed durations of the calls
    host_mean_ns: Float64? - mean duration of a call
    host_max_ns: Int64? - longest call
    latency_count: int64 >=0 - GPU work whose stream was idle at launch
    latency_mean_ns: Float64? >=0 - mean of its start minus launch start
    latency_median_ns: Float64? >=0 - median of the same
    latency_max_ns: Int64? >=0 - largest of the same
    queued_count: int64 >=0 - GPU work whose stream was busy at launch
    queue_mean_ns: Float64? >=0 - mean of its start minus launch start
    queue_median_ns: Float64? >=0 - median of the same
    queue_max_ns: Int64? >=0 - largest of the same
    early_count: int64 >=0 - GPU work that starts before its launch: clocks disagree
""")

QUEUE_LENGTH = table("""
    queue_length: One row per change of a stream's queue: launches issued whose work has not begun.

    rank: int32 >=0 - global rank
    device: Int32? - GPU index; missing if the trace names none
    stream: Int64? - GPU stream; missing if the trace names none
    time_ns: int64 - when the length changed
    queue_count: int64 >=0 - launches waiting from then on
    blocked_ns: int64 >=0 - duration of the launch call issued here if the queue was at its limit,
        else 0
""")

QUEUE_SUMMARY = table("""
    queue_summary: One row per stream: how long its queue was.

    rank: int32 >=0 - global rank
    device: Int32? - GPU index; missing if the trace names none
    stream: Int64? - GPU stream; missing if the trace names none
    max_count: int64 >=0 - longest queue
    mean_count: Float64? >=0 - time-weighted mean length; missing for one instant
    blocked_count: int64 >=0 - launch calls issued at the limit
    blocked_ns: int64 >=0 - summed durations of those calls
""")

COPY_BANDWIDTH = table("""
    copy_bandwidth: One row per rank, GPU and direction: how fast memory was copied or set.

    rank: int32 >=0 - global rank
    device: Int32? - GPU index; missing if the trace names none
    direction: category - HtoD, DtoH, DtoD, PtoP, HtoH, Memset or unknown
    copy_count: int64 >=1 - copies or sets
    instant_count: int64 >=0 - copies of 0 ns, taken as 1 µs
    unsized_count: int64 >=0 - copies without a size, dropped from the rates
    size_bytes: Int64? >=0 - bytes of all sized copies
    busy_ns: int64 >=0 - time with at least one sized copy running
    mean_gb_per_s: Float64? >=0 - bytes / busy: rates of concurrent copies add up
    peak_gb_per_s: Float64? >=0 - largest sum of concurrent rates
""")

COLLECTIVES = table("""
    collectives: One row per collective kernel: which one it is across ranks, and how it went.

    collective: Int64? - number of the matched collective; missing if not matched
    rank: int32 >=0 - global rank
    event: int64 - row label in the events table
    operation: category - all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce,
        gather, scatter, send-receive, send, receive, barrier, wait, coalesced or unknown
    group: category - process group, or the stream if none is recorded
    group_size: Int32? >=0 - ranks in the process group
    rank_count: int32 >=1 - ranks of this collective that were found
    is_complete: boolean? - all ranks of the group were found; missing if unknown
    step: Int32? - ProfilerStep; missing for work outside every step
    start_ns: int64 - start on this rank
    dur_ns: int64 >=0 - duration on this rank
    wait_ns: Int64? >=0 - latest start of all ranks minus own start
    transfer_ns: Int64? >=0 - own end minus latest start of all ranks
    transfer_min_ns: Int64? >=0 - shortest duration of all ranks: the transfer itself
    blamed_rank: Int32? >=0 - rank that started last
    start_skew_ns: Int64? >=0 - latest minus earliest start
    end_skew_ns: Int64? >=0 - latest minus earliest end
    is_sure: boolean? - who was last: ranks end at most half as far apart as they start and, with
        clocks, the last starts later than clocks can mistake; missing without wait
    size_bytes: Int64? >=0 - size as nccl-tests counts it; missing if not recorded
    size_imbalance_ratio: Float64? >=1 - largest size of all ranks / mean size
    algorithm_gb_per_s: Float64? >=0 - mean size / shortest duration
    bus_gb_per_s: Float64? >=0 - the same times the factor of the operation
    confidence: category - of the match: high, medium, low; none if not matched
    note: str? - why not matched, or what is doubtful
""")

COLLECTIVE_WAITS = table("""
    collective_waits: One row per matched collective and rank: waiting for the last rank, then
    moving data.

    collective: int64 >=0 - number of the matched collective
    rank: int32 >=0 - global rank
    step: Int32? - ProfilerStep; missing for work outside every step
    operation: category - e.g. all-reduce
    group: category - process group, or the stream if none is recorded
    start_ns: int64 - start on this rank
    wait_ns: int64 >=0 - latest start minus own start
    transfer_ns: int64 >=0 - own end minus latest start
    blamed_rank: int32 >=0 - rank that started last
    is_complete: boolean? - all ranks of the group were found; missing if unknown
    is_sure: bool - who was last: ranks end at most half as far apart as they start and, with
        clocks, the last starts later than clocks can mistake
    confidence: category - of the match: high, medium or low
""")

BLAME = table("""
    blame: One row per rank that was waited for and rank that waited.

    blamed_rank: int32 >=0 - rank that started last
    rank: int32 >=0 - rank that waited
    wait_ns: int64 >=0 - summed waiting
    collective_count: int64 >=1 - collectives in which this happened
    wait_share: Float64? 0..1 - of all waiting; missing if there is none
""")

STEP_TIMES = table("""
    step_times: One row per rank and step: how long it took on the host and on the GPU.

    rank: int32 >=0 - global rank
    step: int32 - step number as the profiler counts
    start_ns: Int64? - start of the ProfilerStep on the host
    host_ns: Int64? >=0 - its duration on the host
    gpu_start_ns: Int64? - start of its first GPU work
    gpu_ns: Int64? >=0 - first start to last end of its GPU work
    busy_ns: Int64? >=0 - time with GPU work of the step
""")


# Tables of inference: iterations of a serving engine, and their phases.

INFERENCE_ITERATIONS = table("""
    inference_iterations: One row per rank and iteration of an inference engine, in order of its GPU
    work.

    rank: int32 >=0 - global rank
    iteration: int64 >=0 - number on its rank
    name: category - annotation, or call that replays the graph
    engine: category - vLLM, SGLang, TensorRT-LLM or xDiT; graph replay where nothing is annotated
    phase: category - prefill, decode, mixed, or unknown: the annotation does not say
    start_ns: int64 - start of its first GPU work
    dur_ns: int64 >=0 - until the end of its last GPU work
    busy_ns: int64 >=0 - of that, time in which its GPU work runs
    period_ns: int64 >=0 - until the first work of the next iteration; for the last until its end
    idle_ns: int64 >=0 - of the period, time without any GPU work before the end of its last
    gap_ns: int64 >=0 - of the period, time without any GPU work after that
    kernel_count: int64 >=1 - pieces of GPU work
    context_request_count: Int64? >=0 - requests in prefill; missing where not told, as all counts
    context_token_count: Int64? >=0 - their tokens
    generation_request_count: Int64? >=0 - requests in decode
    generation_token_count: Int64? >=0 - their tokens: one a request unless the annotation says more
    launch: category - eager, graph, or eager and graph
    graph: Int64? >=0 - number of the graph with most work; missing without one
    doubt: str - why it may be no iteration
""")


# Tables of GPU memory: what the allocator did, what it held, and what that cost.

MEMORY = table("""
    memory: One row per action of the memory allocator, in order of rank, device and time. Memory
    that was allocated before the recording began comes first.

    rank: int32 >=0 - global rank
    device: category - GPU 0, CPU, ...
    event: int64 >=0 - number of the row on its device, from 0
    time_ns: Int64? - ns since the Unix epoch, or on the clock of the trace; missing where
        snapshots of PyTorch 2.0 record no time
    action: category - alloc, free_requested (a tensor is gone), free_completed (no stream uses its
        memory any more), segment_alloc, segment_free, segment_map, segment_unmap, oom, snapshot
    address: Int64? - address of the memory; missing for oom and for what is only known as a sum
    size_bytes: int64 >=0 - size as requested; the allocator rounds it up, to 512 B mostly
    stream: Int64? - GPU stream
    allocated_bytes: int64 >=0 - held by tensors after the action
    active_bytes: int64 >=0 - that, and what is freed but still used by another stream
    reserved_bytes: Int64? >=0 - held by the allocator; missing where it is not recorded
    freed_event: Int64? >=0 - of alloc rows the row that frees it; missing if none does
    released_event: Int64? >=0 - of alloc rows the row from which its memory can be used again
    step: Int32? - number of the ProfilerStep
    phase: category? - what allocated it: parameters, forward, recompute, backward, optimizer,
        communication, or the category that was recorded; missing if unknown
    stack: category? - call stack, innermost first; missing if none was recorded
    device_free_bytes: Int64? >=0 - of oom rows what the device had left outside the allocator
    is_before_trace: bool - allocated or freed before the recording began, its time is not known
""")

MEMORY_BLOCKS = table("""
    blocks: One row per block of memory that the allocator held when the snapshot was taken, used or
    free.

    rank: int32 >=0 - global rank
    device: category - GPU 0, ...
    segment_address: Int64 - address of its segment
    segment_bytes: int64 >=0 - size of its segment
    segment_type: category - small, large or empty if not recorded
    pool: category - memory pool; 0,0 is the default, others belong to CUDA graphs or the user
    stream: Int64? - GPU stream
    is_expandable: bool - the segment can grow (expandable_segments:True)
    address: Int64 - address of the block
    size_bytes: int64 >=0 - size of the block
    requested_bytes: int64 >=0 - size as requested; 0 for free blocks
    state: category - active_allocated, active_pending_free or inactive
    phase: category? - what allocated it, as in `memory`
    stack: category? - call stack, innermost first
""")

MEMORY_TIMELINE = table("""
    memory_timeline: Memory over time in equal cells, each with its lowest and highest value, so
    that no peak is lost.

    rank: int32 >=0 - global rank
    device: category - GPU 0, CPU, ...
    first_event: int64 >=0 - first row of `memory` in the cell
    start_ns: Int64? - its time; missing where none is recorded
    lowest_allocated_bytes: int64 >=0 - least that tensors held
    highest_allocated_bytes: int64 >=0 - most that tensors held
    highest_active_bytes: int64 >=0 - most that tensors held or other streams still used
    highest_reserved_bytes: Int64? >=0 - most that the allocator held
    step: Int32? - ProfilerStep at its first row
""")

MEMORY_PEAK = table("""
    memory_peak: What was allocated at the peak of each device, largest first; the rows of a device
    sum to its peak.

    rank: int32 >=0 - global rank
    device: category - GPU 0, CPU, ...
    group: str - call stack, phase or size, as asked
    size_bytes: int64 >=0 - allocated at the peak
    size_share: float64 0..1 - of the peak
    count: int64 >=1 - allocations
    before_trace_bytes: int64 >=0 - of it, allocated before the recording began
    peak_event: int64 >=0 - row of `memory` that made the peak
    peak_ns: Int64? - its time
    step: Int32? - ProfilerStep of the peak
""")


MEMORY_FRAGMENTATION = table("""
    memory_fragmentation: How the memory of each device was divided, when an allocation failed and
    at the end of the recording.

    rank: int32 >=0 - global rank
    device: category - GPU 0, ...
    moment: category - out of memory, or snapshot
    event: int64 >=0 - row of `memory`, of the snapshot the last one
    time_ns: Int64? - its time
    requested_bytes: Int64? >=0 - allocation that failed; missing for the snapshot
    reserved_bytes: int64 >=0 - held by the allocator
    allocated_bytes: int64 >=0 - blocks of tensors, rounded up as the allocator does
    pending_bytes: int64 >=0 - freed, but still used by another stream
    free_bytes: int64 >=0 - reserved, and neither allocated nor pending
    largest_free_bytes: int64 >=0 - largest range of it that could be given out as one
    usable_free_bytes: int64 >=0 - of the stream that asked; all streams for the snapshot
    device_free_bytes: Int64? >=0 - left on the device outside the allocator
    stranded_share: float64? 0..1 - 1 - largest free / free; missing if nothing is free
    cause: category - of a failure: fragmentation, frees not completed, or too much allocated; else
        empty
    is_expandable: bool - segments of the device can already grow
""")


@dataclass(frozen=True, eq=False)
class MemoryRecording(Loaded):
    """The tables of memory snapshots or of traces with memory; a plain bundle without methods."""

    memory: pd.DataFrame
    blocks: pd.DataFrame
    quality: pd.DataFrame

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
        ranks, failures = self.memory["rank"].nunique(), (self.memory["action"] == "oom").sum()
        return (
            f"MemoryRecording of {ranks:,} rank{'s' * (ranks != 1)}: {len(self.memory):,} actions, "
            f"{failures:,} out of memory, {len(self.blocks):,} blocks; {flagged_text(self.quality)}"
        )
