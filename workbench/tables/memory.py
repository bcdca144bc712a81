"""Tables of GPU memory: what the allocator did, what it held, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import table
from workbench.tables.traces import SAYS_SYNTHETIC, flagged_text

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

MEMORY_STEPS = table("""
    memory_steps: Memory of each step on each device.

    rank: int32 >=0 - global rank
    device: category - GPU 0, CPU, ...
    step: int32 - number of the ProfilerStep
    peak_bytes: int64 >=0 - most that tensors held within the step
    peak_reserved_bytes: Int64? >=0 - most that the allocator held
    end_bytes: int64 >=0 - allocated after the last action of the step
    growth_bytes: Int64? - end minus the end of the step before; missing for the first
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
class MemoryRecording:
    """The tables of memory snapshots or of traces with memory; a plain bundle without methods."""

    memory: pd.DataFrame
    blocks: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any file is marked as simulated; figures should say so, too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
        ranks, failures = self.memory["rank"].nunique(), (self.memory["action"] == "oom").sum()
        return (
            f"MemoryRecording of {ranks:,} rank{'s' * (ranks != 1)}: {len(self.memory):,} actions, "
            f"{failures:,} out of memory, {len(self.blocks):,} blocks; {flagged_text(self.quality)}"
        )
