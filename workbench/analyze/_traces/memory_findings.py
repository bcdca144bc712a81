"""Rules on memory snapshots: what asked when memory ran out, what held it, and why it was short."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pandas as pd

from workbench._shared.numbers import quantity
from workbench.analyze._lib.finding_rules import Finding, rows_of, rule
from workbench.analyze._traces.memory import CAUSES, held_at, memory_fragmentation
from workbench.tables import Bundle, MemoryRecording

_NOTES = "PyTorch, Memory management, pytorch.org/docs/stable/notes/cuda.html"
_EXPAND = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_NEXT = {
    CAUSES[0]: _EXPAND + ", which lets free ranges be given out as one",
    CAUSES[1]: "record_stream keeps memory until the other stream is done: synchronize it earlier, "
    "or free on the stream that used it",
    CAUSES[2]: "allocate less (smaller micro-batch, activation checkpointing, sharded optimizer); "
    "fragmentation is not the cause, so expandable_segments would not help",
}
_GROWN = "segments can grow already: allocate less, or allocate the largest tensors first"
_NAMED_CHARS = 90


def _amount(number_of_bytes: float) -> str:
    large = number_of_bytes >= 1e9
    return quantity(number_of_bytes / (1e9 if large else 1e6), "GB" if large else "MB")


class Remembered:
    """The memory snapshots of a job."""

    domain = "traces"
    needs = ("memory snapshots",)

    def __init__(self, recording: MemoryRecording) -> None:
        self.recording = recording

    @classmethod
    def of(cls, bundle: Bundle) -> Remembered | None:
        """Take the snapshots of a bundle."""
        return None if bundle.memory is None else cls(bundle.memory)

    @cached_property
    def fragmentation(self) -> pd.DataFrame:
        """Division of memory at each failure and at the end."""
        return memory_fragmentation(self.recording)

    def can_grow(self, rank: int, device: str) -> bool:
        """Return whether segments of a device are expandable."""
        blocks = self.recording.blocks
        of_device = (blocks["rank"] == rank) & (blocks["device"] == device)
        return bool(blocks.loc[of_device, "is_expandable"].any())

    def holder(self, rank: int, device: str, event: int) -> str:
        """Name the largest group of what is held after an action."""
        rows = self.recording.memory
        rows = rows[(rows["rank"] == rank) & (rows["device"] == device)]
        held = held_at(rows, event)
        named = held["phase"].astype(object).fillna("allocations without a stack")
        sums = held.groupby(named)["size_bytes"].sum().sort_values(ascending=False)
        whole = max(1, int(sums.sum()))
        words = [f"{name} {size / whole:.0%}" for name, size in sums.head(3).items()]
        return ", ".join(words) or "nothing that was recorded"

    def caller(self, rank: int, device: str, event: int) -> str:
        """Name the call that an action was made by."""
        rows = self.recording.memory
        is_it = (rows["rank"] == rank) & (rows["device"] == device) & (rows["event"] == event)
        stack = rows.loc[is_it, "stack"].dropna()
        return str(stack.iloc[0])[:_NAMED_CHARS] if len(stack) else "a call without a stack"


@rule(Remembered, reference=_NOTES)
def out_of_memory(remembered: Remembered) -> Iterator[Finding]:
    """Memory runs out: what asked, what holds it, and whether enough was free."""
    table = remembered.fragmentation
    failures = table[table["moment"] == "out of memory"]
    # A job that catches the error and tries again fails many times for one reason.
    groups = failures.groupby(["rank", "device", "cause"], observed=True)
    for row in rows_of(failures.loc[sorted(groups.head(1).index)]):
        same = failures[
            (failures["rank"] == row.rank) & (failures["device"] == row.device)
            & (failures["cause"] == row.cause)
        ]  # fmt: skip
        is_grown = row.cause == CAUSES[0] and row.is_expandable
        again = f", {len(same)} times" if len(same) > 1 else ""
        yield Finding(
            f"Out of memory by {row.cause}: {_amount(row.requested_bytes)} requested, "
            f"{_amount(row.usable_free_bytes)} free in segments of its stream, "
            f"{_amount(row.largest_free_bytes)} of it in one range",
            where=f"rank {row.rank}, {row.device}{again}, in "
            f"{remembered.caller(row.rank, row.device, row.event)}; held by "
            f"{remembered.holder(row.rank, row.device, row.event)}",
            evidence="analyze.memory_fragmentation, plot.memory_peak (docs/traces.md)",
            next_step=_GROWN if is_grown else _NEXT[str(row.cause)],
            confidence="medium" if is_grown else "high",
        )


@rule(Remembered, reference=_NOTES)
def stranded_memory(
    remembered: Remembered, *, least_share: float = 0.1, least_bytes: float = 5e7
) -> Iterator[Finding]:
    """More is reserved than was ever in use at once: what fragmentation costs."""
    memory = remembered.recording.memory
    for (rank, device), rows in memory.groupby(["rank", "device"], observed=True):
        reserved, active = rows["reserved_bytes"].max(), int(rows["active_bytes"].max())
        if pd.isna(reserved) or reserved - active < max(least_bytes, least_share * reserved):
            continue
        is_grown = remembered.can_grow(int(rows["rank"].iloc[0]), str(device))
        is_late = bool(rows["is_before_trace"].any())
        yield Finding(
            f"Fragmentation costs {_amount(int(reserved) - active)}: the allocator reserves up to "
            f"{_amount(int(reserved))}, of which {_amount(active)} were in use at most",
            where=f"rank {rank}, {device}",
            confidence="low" if is_late else "medium",
            doubt="memory may have been in use before the recording began"
            if is_late
            else "it costs only where memory is short",
            evidence="analyze.memory_timeline, plot.memory_timeline (docs/traces.md)",
            next_step=_GROWN if is_grown else _EXPAND,
        )
