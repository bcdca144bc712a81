"""GPU memory: its course, what is held at the peak, how it is divided, and rules on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import quantity
from workbench.analyze._lib.finding_rules import Finding, rows_of, rule
from workbench.tables import (
    MEMORY,
    MEMORY_BLOCKS,
    MEMORY_FRAGMENTATION,
    MEMORY_PEAK,
    MEMORY_TIMELINE,
    Bundle,
    MemoryRecording,
)

_PLACE = ["rank", "device"]
_ROUND_BYTES = 512
_NEVER = np.iinfo(np.int64).max
_GROWTH = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_NOT_RECORDED = "no call stack recorded"
_NO_PHASE = "phase not known"
_BEFORE = "allocated before the recording"
CAUSES = ("fragmentation", "frees not completed", "too much allocated")


def memory_timeline(memory: pd.DataFrame, *, cell_count: int = 500) -> pd.DataFrame:
    """Return memory over time in equal cells that keep every extreme.

    Parameters
    ----------
    memory
        Table :data:`workbench.tables.MEMORY`.
    cell_count
        Cells per device; of time where it is recorded, else of actions.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MEMORY_TIMELINE`, one row per cell with an action.

    Raises
    ------
    ValueError
        If ``cell_count`` is not positive.
    """
    MEMORY.check(memory)
    if cell_count < 1:
        msg = f"cell_count={cell_count} must be at least 1"
        raise ValueError(msg)
    pieces = []
    for _, rows in memory.groupby(_PLACE, observed=True):
        axis = _axis(rows)
        width = max(1, -(-(int(axis[-1] - axis[0]) + 1) // cell_count))
        cells = rows.groupby((axis - axis[0]) // width)
        table = cells.agg(
            rank=("rank", "first"), device=("device", "first"), first_event=("event", "first"),
            start_ns=("time_ns", "min"), lowest_allocated_bytes=("allocated_bytes", "min"),
            highest_allocated_bytes=("allocated_bytes", "max"),
            highest_active_bytes=("active_bytes", "max"),
            highest_reserved_bytes=("reserved_bytes", "max"),
        )  # fmt: skip
        pieces.append(
            table.assign(step=rows["step"].groupby((axis - axis[0]) // width).nth(0).array)
        )
    return MEMORY_TIMELINE.joined(pieces)


def _axis(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Return positions that never fall: times where there are any, else numbers of rows."""
    times = rows["time_ns"]
    if times.isna().all():
        return rows["event"].to_numpy(dtype=np.int64)
    # Rows from before the recording have no time; they stand at its beginning.
    return times.bfill().ffill().cummax().to_numpy(dtype=np.int64)


def memory_peak(
    memory: pd.DataFrame, *, by: Literal["stack", "phase", "size"] = "stack"
) -> pd.DataFrame:
    """Return what was allocated when each device held most.

    Parameters
    ----------
    memory
        Table :data:`workbench.tables.MEMORY`.
    by
        What allocations are summed by: call stack, phase of training, or size.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MEMORY_PEAK`, largest first on each device.

    Raises
    ------
    ValueError
        If ``by`` is none of the three.

    Notes
    -----
    The peak is the first maximum of ``allocated_bytes``, which is the sum over allocations that
    began by then and were freed later. It is not where most was reserved: that comes later or
    never falls again.
    """
    MEMORY.check(memory)
    if by not in ("stack", "phase", "size"):
        msg = f"by={by!r} must be 'stack', 'phase' or 'size'"
        raise ValueError(msg)
    pieces = []
    for _, rows in memory.groupby(_PLACE, observed=True):
        peak = rows.iloc[int(rows["allocated_bytes"].argmax())]
        held = held_at(rows, int(peak["event"]))
        if held.empty:
            continue
        before = held["size_bytes"].where(held["is_before_trace"], 0)
        groups = held.assign(group=_group(held, by), before=before).groupby("group", observed=True)
        table = groups.agg(
            size_bytes=("size_bytes", "sum"), count=("size_bytes", "size"),
            before_trace_bytes=("before", "sum"),
        )  # fmt: skip
        table = table.sort_values("size_bytes", ascending=False, kind="stable").reset_index()
        share = table["size_bytes"] / max(1, int(peak["allocated_bytes"]))
        pieces.append(
            table.assign(
                rank=peak["rank"],
                device=peak["device"],
                size_share=share,
                peak_event=peak["event"],
                peak_ns=peak["time_ns"],
                step=peak["step"],
            )
        )
    return MEMORY_PEAK.joined(pieces)


def held_at(rows: pd.DataFrame, event: int, end: str = "freed_event") -> pd.DataFrame:
    """Return the allocations of one device that are held after an action."""
    ends = rows[end].fillna(_NEVER)
    return rows[(rows["action"] == "alloc") & (rows["event"] <= event) & (ends > event)]


def _group(held: pd.DataFrame, by: str) -> pd.Series:
    if by == "size":
        return held["size_bytes"].map("{:,} B each".format)
    unknown = np.where(
        held["is_before_trace"], _BEFORE, _NO_PHASE if by == "phase" else _NOT_RECORDED
    )
    named = held[by].astype(object)
    return named.where(named.notna(), unknown).astype(str)


def memory_fragmentation(recording: MemoryRecording) -> pd.DataFrame:
    """Return how memory was divided when an allocation failed, and at the end.

    Parameters
    ----------
    recording
        What :func:`workbench.load.memory` returns, of snapshots: profiles know no segments.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MEMORY_FRAGMENTATION`: a row per failure, and one per device
        for the snapshot.

    Notes
    -----
    The map of memory at an earlier action is that of the snapshot with the later segments taken
    back; from it the blocks in use are cut, rounded up to 512 B. Free ranges of the stream that
    asked decide on the cause: *fragmentation* if they would suffice together and none does alone,
    *frees not completed* if they would with what other streams still use, else *too much
    allocated*. Private pools of CUDA graphs are counted as free though they serve their graph only.

    References
    ----------
    PyTorch, ``c10/cuda/CUDACachingAllocator.cpp``; "Memory management",
    pytorch.org/docs/stable/notes/cuda.html.
    """
    MEMORY.check(recording.memory)
    MEMORY_BLOCKS.check(recording.blocks)
    blocks = recording.blocks
    places = pd.concat([recording.memory[_PLACE], blocks[_PLACE]]).drop_duplicates()
    rows = [
        row
        for rank, device in places.itertuples(index=False)
        if len(own := _of(blocks, rank, device)) or _has_segments(recording.memory)
        for row in _divisions(_of(recording.memory, rank, device), own)
    ]
    return MEMORY_FRAGMENTATION.of(pd.DataFrame(rows, columns=[*MEMORY_FRAGMENTATION.columns]))


def _has_segments(memory: pd.DataFrame) -> bool:
    return bool(memory["action"].isin([*_GROWTH]).any())


def _of(table: pd.DataFrame, rank: int, device: str) -> pd.DataFrame:
    return table[(table["rank"] == rank) & (table["device"] == device)]


def _divisions(memory: pd.DataFrame, blocks: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the division of one device at each failure and at the end."""
    for failure in memory[memory["action"] == "oom"].itertuples():
        yield _division(memory, blocks, failure)
    if len(memory):
        yield _division(memory, blocks, None)


def _division(memory: pd.DataFrame, blocks: pd.DataFrame, failure: Any) -> dict[str, Any]:
    last = memory.iloc[-1]
    event = int(last["event"] if failure is None else failure.event)
    in_use = held_at(memory, event, "released_event")
    in_use = in_use[in_use["address"].notna()]
    rounded = -(-in_use["size_bytes"] // _ROUND_BYTES) * _ROUND_BYTES
    # Of blocks that are still there the snapshot knows the size.
    sizes = blocks.drop_duplicates("address").set_index("address")["size_bytes"]
    exact = in_use["address"].map(sizes).where(in_use["released_event"].isna())
    rounded = exact.fillna(rounded).astype("int64")
    is_held = in_use["freed_event"].fillna(_NEVER) > event
    segments = _segments_at(memory, blocks, event)
    free = _free_ranges(
        segments, in_use["address"].to_numpy(np.int64), rounded.to_numpy(dtype=np.int64)
    )
    asked = None if failure is None else int(failure.size_bytes)
    if failure is not None and not pd.isna(failure.stream):
        usable = free[free["stream"] == failure.stream]
    else:
        usable = free
    pending = int(rounded[~is_held].sum())
    total, largest = (
        int(free["size_bytes"].sum()),
        int(usable["size_bytes"].max()) if len(usable) else 0,
    )
    own = int(usable["size_bytes"].sum())
    return {
        "rank": last["rank"], "device": last["device"],
        "moment": "snapshot" if failure is None else "out of memory", "event": event,
        "time_ns": last["time_ns"] if failure is None else failure.time_ns,
        "requested_bytes": asked,
        "reserved_bytes": int((segments["end"] - segments["start"]).sum()),
        "allocated_bytes": int(rounded[is_held].sum()), "pending_bytes": pending,
        "free_bytes": total, "largest_free_bytes": largest, "usable_free_bytes": own,
        "device_free_bytes": None if failure is None else failure.device_free_bytes,
        "stranded_share": 1 - largest / own if own else None,
        "cause": "" if asked is None else _cause(asked, own, pending),
        "is_expandable": bool(blocks["is_expandable"].any()),
    }  # fmt: skip


def _cause(asked_bytes: int, free_bytes: int, pending_bytes: int) -> str:
    if free_bytes >= asked_bytes:
        return CAUSES[0]
    return CAUSES[1] if pending_bytes and free_bytes + pending_bytes >= asked_bytes else CAUSES[2]


def _segments_at(memory: pd.DataFrame, blocks: pd.DataFrame, event: int) -> pd.DataFrame:
    """Return the ranges that the allocator held after an action, by stream.

    Each range of the snapshot counts +1, each later growth takes 1 back; what sums to more than
    0 was held. Neighbouring ranges stay apart unless segments can grow.
    """
    known = blocks.drop_duplicates("segment_address")
    later = memory[(memory["event"] > event) & memory["action"].isin([*_GROWTH])]
    ranges = pd.DataFrame({
        "start": [*known["segment_address"], *later["address"]],
        "size": [*known["segment_bytes"], *later["size_bytes"]],
        "stream": [*known["stream"], *later["stream"]],
        "weight": [1] * len(known) + [-_GROWTH[action] for action in later["action"]],
    }).fillna({"stream": 0})  # fmt: skip
    pieces = []
    for stream, rows in ranges.groupby("stream"):
        starts = rows["start"].to_numpy(np.int64)
        edges = np.r_[starts, starts + rows["size"].to_numpy(np.int64)]
        weights = np.r_[rows["weight"], -rows["weight"]]
        order = np.argsort(edges, kind="stable")
        edges, held = edges[order], weights[order].cumsum()
        keep = (held[:-1] > 0) & (edges[1:] > edges[:-1])
        pieces.append(
            pd.DataFrame({"start": edges[:-1][keep], "end": edges[1:][keep], "stream": stream})
        )
    if not pieces:
        return pd.DataFrame({"start": [], "end": [], "stream": []}, dtype="int64")
    table = pd.concat(pieces).sort_values("start", ignore_index=True)
    if not known["is_expandable"].any():
        return table
    touches = (table["start"] == table["end"].shift()) & (
        table["stream"] == table["stream"].shift()
    )
    whole = table.groupby((~touches).cumsum())
    return whole.agg(start=("start", "min"), end=("end", "max"), stream=("stream", "first"))


def _free_ranges(
    segments: pd.DataFrame, addresses: NDArray[Any], sizes: NDArray[Any]
) -> pd.DataFrame:
    """Cut the blocks in use out of the segments; return size and stream of what is left."""
    starts, ends = segments["start"].to_numpy(np.int64), segments["end"].to_numpy(np.int64)
    order = np.argsort(addresses)
    at, until = addresses[order], (addresses + sizes)[order]
    # Every free range begins with a segment or behind a block, and ends with either.
    begins = np.r_[starts, until]
    inner: NDArray[Any] = np.r_[starts, until - 1]
    of_segment = np.searchsorted(starts, inner, "right") - 1
    inside = of_segment >= 0
    begins, of_segment = begins[inside], of_segment[inside]
    following = np.searchsorted(at, begins)
    stops = np.minimum(ends[of_segment], np.array([*at, _NEVER]).take(following))
    table = pd.DataFrame(
        {"size_bytes": stops - begins, "stream": segments["stream"].to_numpy()[of_segment]}
    )
    return table[table["size_bytes"] > 0]


# Rules on memory snapshots: what asked when memory ran out, what held it, and why it was short.

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
