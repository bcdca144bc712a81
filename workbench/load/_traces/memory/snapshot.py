"""PyTorch memory snapshots: pickles of plain values, read without running anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import OVERFLOWED
from workbench._shared.profiler_steps import step_number
from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.rank_names import rank_in_name
from workbench.load._files.safe_pickle import PickleError, plain_values
from workbench.load._files.text import tell_of_damage
from workbench.load._traces.memory.replay import PENDING, Held, replayed
from workbench.load._traces.memory.stacks import StackTexts
from workbench.tables import SAYS_SYNTHETIC

# A million actions are about this much; more do not fit a page of the viewer either.
_LARGEST_BYTES, _MOST_OPCODES = 1 << 30, 250_000_000
_STARTS = (b"\x80", b"(", b"}", b"]")
_NAMES = (
    *(b"segments", b"device_traces", b"total_size", b"allocated_size", b"active_size", b"blocks"),
    *(b"segment_type", b"allocator_settings", b"segment_pool_id"),
)
# Twice the memory of any device; what is larger is damage, and sums stay within 64 bits.
_LARGEST_SIZE = 1 << 44
_LARGEST_NUMBER = (1 << 63) - 1
_ACTIONS = frozenset(
    (
        *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
        *("segment_map", "segment_unmap", "oom", "snapshot"),
    )
)
_IN_USE = ("active_allocated", *PENDING)
_FLAG = "trace_alloc_overflowed"
_HOW = "record again with max_entries=100000, or look at the first device alone"


@dataclass
class RankMemory:
    """Contents of one snapshot: rows of MEMORY and MEMORY_BLOCKS without a rank."""

    label: str
    memory: pd.DataFrame
    blocks: pd.DataFrame
    findings: Findings
    first_ns: int | None = None
    last_ns: int | None = None
    stated_rank: int | None = None
    world_size: int | None = None

    @property
    def name_rank(self) -> int | None:
        return rank_in_name(self.label)


def looks_like(head: bytes) -> bool:
    """Recognise a pickle that names what a snapshot begins with."""
    return head.startswith(_STARTS) and sum(name in head for name in _NAMES) > 2


def snapshot(source: Source) -> RankMemory:
    """Read one snapshot; :func:`workbench.load.memory` is the entry point."""
    findings = Findings(source.label)
    with source.open() as stream:
        raw = stream.read(_LARGEST_BYTES + 1)
        tell_of_damage(stream, findings)
    try:
        content = plain_values(raw, largest_bytes=_LARGEST_BYTES, most_opcodes=_MOST_OPCODES)
    except PickleError as error:
        msg = f"{source.label}: the snapshot {error}; get the file again, or {_HOW}"
        raise LoadError(msg) from error
    del raw
    if not isinstance(content, dict) or not isinstance(content.get("segments"), list):
        msg = f"{source.label}: is not a memory snapshot: it has no list of segments"
        raise LoadError(msg)
    return _Snapshot(content, findings).read()


class _Snapshot:
    """Turns the content of a snapshot into rows; what is malformed is dropped and counted."""

    def __init__(self, content: Mapping[Any, Any], findings: Findings) -> None:
        self.content, self.findings, self.stacks = content, findings, StackTexts()

    def read(self) -> RankMemory:
        traces = self.content.get("device_traces")
        traces = traces if isinstance(traces, list) else []
        blocks = pd.DataFrame([*self._blocks()], columns=_BLOCK_COLUMNS)
        devices = {number for number, acts in enumerate(traces) if acts}
        pieces = [
            self._device(number, traces[number] if number < len(traces) else [], blocks)
            for number in sorted(devices | set(blocks["device"]))
        ]
        if not pieces:
            msg = (
                f"{self.findings.source}: the snapshot holds no segment and no action; call "
                "torch.cuda.memory._record_memory_history() before the first allocation"
            )
            raise LoadError(msg)
        memory = pd.concat(pieces, ignore_index=True)
        recorded = int((~memory["is_before_trace"]).sum())
        self.findings.add("read", "actions of the allocator", recorded)
        self.findings.add("read", "blocks of memory", len(blocks))
        if not recorded:
            words = "no history of actions: only what is held at the end is known; call "
            words += "torch.cuda.memory._record_memory_history() before training"
            self.findings.add("suspicious", words)
        self._note_overflow()
        before = int((memory["is_before_trace"] & (memory["action"] == "alloc")).sum())
        words = "allocations from before the recording, known by their free or the snapshot"
        self.findings.add("noted", words, before)
        is_made = self.content.get("synthetic") == SAYS_SYNTHETIC
        self.findings.add("noted", SAYS_SYNTHETIC, int(is_made))
        times = memory["time_ns"].dropna()
        first = int(times.min()) if len(times) else None
        blocks["device"] = "GPU " + blocks["device"].astype(str)
        return RankMemory(self.findings.source, memory, blocks, self.findings, first)

    def _note_overflow(self) -> None:
        """Tell of devices whose history begins late: the recorder keeps the last actions only."""
        settings = self.content.get("allocator_settings")
        # By device in some versions; in others of all, among the settings.
        places = (self.content, settings if isinstance(settings, dict) else {})
        told = next((at[_FLAG] for at in places if _FLAG in at), None)
        flags = told if isinstance(told, list | tuple) else [told]
        lost = [str(number) for number, flag in enumerate(flags) if flag is True]
        if lost:
            where = f"device {', '.join(lost)}" if isinstance(told, list | tuple) else None
            self.findings.add("truncated", OVERFLOWED, len(lost), where)

    def _device(self, number: int, entries: object, blocks: pd.DataFrame) -> pd.DataFrame:
        rows = [*self._acts(entries if isinstance(entries, list) else [])]
        columns = [*zip(*rows, strict=True)] or [()] * len(_ACT_COLUMNS)
        # Texts stay Python's, which many rows share, until the table is whole; and beside missing
        # numbers pandas would keep large ones as floats.
        acts = pd.DataFrame({
            name: pd.Series(values, dtype="Int64" if name in _NULLABLE else object)
            for name, values in zip(_ACT_COLUMNS, columns, strict=True)
        })  # fmt: skip
        acts["size_bytes"] = acts["size_bytes"].astype("int64")
        own = blocks[blocks["device"] == number]
        in_use = own[own["state"].isin(_IN_USE)].assign(size_bytes=own["requested_bytes"])
        segments = own.drop_duplicates("segment_address")
        held = Held(in_use, int(segments["segment_bytes"].sum()))
        table = replayed(acts, held, self.findings).assign(device=f"GPU {number}")
        return table.assign(step=self._steps(number, table["time_ns"]))

    def _acts(self, entries: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        unknown = dropped = 0
        for entry in entries:
            action = entry.get("action") if isinstance(entry, dict) else None
            if not isinstance(action, str) or action not in _ACTIONS:
                unknown += 1
                continue
            # Newer versions write the free memory of the device where others have the address.
            address = None if action in ("oom", "snapshot") else _whole(entry.get("addr"))
            size = _whole(entry.get("size"), _LARGEST_SIZE)
            if action == "snapshot":
                size = 0
            if size is None or (address is None and action not in ("oom", "snapshot")):
                dropped += 1
                continue
            time_us = _whole(entry.get("time_us"), _LARGEST_NUMBER // 1000)
            text, phase = self.stacks.of(entry.get("frames"))
            category = entry.get("category")
            yield (
                action, address, size, _whole(entry.get("stream")),
                None if time_us is None else time_us * 1000,
                category if isinstance(category, str) else phase, text,
                _whole(entry.get("device_free")),
            )  # fmt: skip
        self.findings.add("dropped", "actions of a kind that is not known", unknown)
        self.findings.add("dropped", "actions without a usable address or size", dropped)

    def _blocks(self) -> Iterator[tuple[Any, ...]]:
        for segment in self.content["segments"]:
            known = _segment(segment)
            blocks = segment.get("blocks") if known else None
            if known is None or not isinstance(blocks, list):
                self.findings.add("dropped", "segments without address, size or blocks")
                continue
            address = known[1]
            for block in blocks:
                row = self._block(block, address)
                if row is None:
                    # Blocks of old snapshots have no address: each follows the one before it.
                    self.findings.add("dropped", "blocks without a usable size or state")
                    break
                yield (*known, *row)
                address = row[0] + row[1]

    def _block(self, block: Any, follows: int) -> tuple[Any, ...] | None:
        if not isinstance(block, dict):
            return None
        size, state = _whole(block.get("size"), _LARGEST_SIZE), block.get("state")
        if size is None or not isinstance(state, str):
            return None
        address = _whole(block.get("address"))
        requested, frames = block.get("requested_size"), block.get("frames")
        history = block.get("history")
        if isinstance(history, list) and history and isinstance(history[0], dict):
            requested = requested or history[0].get("real_size")
            frames = frames or history[0].get("frames")
        asked = _whole(requested, _LARGEST_SIZE)
        is_used = state in _IN_USE
        text, phase = self.stacks.of(frames)
        asked_bytes = (size if asked is None else asked) if is_used else 0
        return (follows if address is None else address, size, asked_bytes, state, phase, text)

    def _steps(self, number: int, times: pd.Series) -> pd.Series:
        """Return the step that runs on a device at each time, as the snapshot marks it."""
        marks = self.content.get("external_annotations")
        found = [_mark(mark, number) for mark in marks] if isinstance(marks, list) else []
        ordered = sorted(mark for mark in found if mark is not None)
        if not ordered:
            return pd.Series(pd.NA, index=times.index, dtype="Int32")
        steps = pd.array([step if is_start else None for _, is_start, step in ordered], "Int32")
        # In nanoseconds, a time that is missing lies before the first mark.
        known = times.fillna(-1).to_numpy(dtype=np.int64)
        at = np.searchsorted([time_ns for time_ns, *_ in ordered], known, "right") - 1
        return pd.Series(steps.take(at, allow_fill=True), index=times.index)


_BLOCK_COLUMNS = [
    "device", "segment_address", "segment_bytes", "segment_type", "pool", "stream", "is_expandable",
    "address", "size_bytes", "requested_bytes", "state", "phase", "stack",
]  # fmt: skip
_NULLABLE = {"time_ns", "address", "stream", "device_free_bytes"}
_ACT_COLUMNS = [
    "action", "address", "size_bytes", "stream", "time_ns", "phase", "stack", "device_free_bytes",
]  # fmt: skip


def _segment(segment: Any) -> tuple[Any, ...] | None:
    """Return what blocks repeat of their segment; None if it has no address or size."""
    if not isinstance(segment, dict):
        return None
    address = _whole(segment.get("address"))
    size = _whole(segment.get("total_size"), _LARGEST_SIZE)
    # Snapshots of PyTorch 2.0 know one device only and write none.
    device = _whole(segment.get("device", 0), 1 << 16)
    if address is None or size is None or device is None:
        return None
    kind, pool = segment.get("segment_type"), segment.get("segment_pool_id")
    pool = pool if isinstance(pool, tuple | list) else ()
    return (
        device, address, size, kind if isinstance(kind, str) else "",
        ",".join(str(_whole(number)) for number in pool), _whole(segment.get("stream")),
        segment.get("is_expandable") is True,
    )  # fmt: skip


def _mark(mark: Any, number: int) -> tuple[int, bool, int] | None:
    if not isinstance(mark, dict) or mark.get("device", number) != number:
        return None
    name, time_us = mark.get("name"), _whole(mark.get("time_us"), _LARGEST_NUMBER // 1000)
    step = step_number(name.strip("# ")) if isinstance(name, str) else None
    return (
        None
        if step is None or time_us is None
        else (time_us * 1000, mark.get("stage") == "START", step)
    )


def _whole(value: Any, largest: int = _LARGEST_NUMBER) -> int | None:
    return value if type(value) is int and 0 <= value <= largest else None
