"""A caching allocator like PyTorch's, and the memory snapshot of a training job made with it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data.make._folder import new_folder, write
from workbench.tables import SAYS_SYNTHETIC

_ROUND, _SMALL, _LARGE = 512, 1 << 20, 10 << 20
_SMALL_SEGMENT, _MIDDLE_SEGMENT, _STEP = 2 << 20, 20 << 20, 2 << 20
_FIRST_ADDRESS = 0x7F0000000000
_ACTIVE, _PENDING, _FREE = "active_allocated", "active_pending_free", "inactive"


class Frame(NamedTuple):
    """One line of a call stack."""

    name: str
    filename: str
    line: int


@dataclass
class _Block:
    address: int
    size: int
    requested: int = 0
    state: str = _FREE
    frames: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Segment:
    address: int
    size: int
    stream: int
    is_small: bool
    blocks: list[_Block]

    @property
    def is_free(self) -> bool:
        return all(block.state == _FREE for block in self.blocks)


class MemoryAllocator:
    """The caching allocator of PyTorch with its rounding, splitting and best fit.

    Parameters
    ----------
    limit_bytes
        What the device can hold.
    max_entries
        Actions that the recorder keeps, the last ones; None for all.

    Notes
    -----
    Requests up to 1 MiB share segments of 2 MiB, those below 10 MiB segments of 20 MiB; larger
    ones get a segment of their own, rounded up to 2 MiB. Rests of more than 512 B (small) or
    1 MiB (large) are split off. An allocation that does not fit releases unused segments first.

    References
    ----------
    PyTorch, ``c10/cuda/CUDACachingAllocator.cpp``.
    """

    def __init__(self, limit_bytes: int, max_entries: int | None = None) -> None:
        self.limit_bytes, self.max_entries = limit_bytes, max_entries
        self.segments: list[_Segment] = []
        self.acts: list[dict[str, Any]] = []
        self.held: dict[int, int] = {}
        self.time_us = 1_700_000_000_000_000
        self._next = _FIRST_ADDRESS
        self._frames: dict[tuple[Frame, ...], list[dict[str, Any]]] = {}

    @property
    def reserved_bytes(self) -> int:
        """Current state of the allocator."""
        return sum(segment.size for segment in self.segments)

    def alloc(self, size_bytes: int, stack: Sequence[Frame] = (), stream: int = 0) -> int:
        """Allocate memory and return its address.

        Raises
        ------
        MemoryError
            If it fits neither a free block nor, after unused segments are released, the device.
        """
        size = -(-size_bytes // _ROUND) * _ROUND
        frames = self._listed(stack)
        segment, block = self._free_block(size, stream) or self._new_block(size, stream, frames)
        rest = block.size - size
        if rest >= _ROUND if segment.is_small else rest > _SMALL:
            at = segment.blocks.index(block)
            segment.blocks.insert(at + 1, _Block(block.address + size, rest))
            block.size = size
        block.requested, block.state, block.frames = size_bytes, _ACTIVE, frames
        self.held[block.address] = size_bytes
        self._record("alloc", block.address, size_bytes, stream, frames)
        return block.address

    def free(self, address: int, *, is_pending: bool = False) -> None:
        """Take memory back; if pending, another stream still uses it until :meth:`complete`."""
        segment, block = self._at(address)
        del self.held[address]
        self._record("free_requested", address, block.requested, segment.stream, [])
        block.state = _PENDING
        if not is_pending:
            self.complete(address)

    def complete(self, address: int) -> None:
        """Complete a free: the memory can be given out again."""
        segment, block = self._at(address)
        self._record("free_completed", address, block.requested, segment.stream, [])
        block.state, block.requested, block.frames = _FREE, 0, []
        merged: list[_Block] = []
        for each in segment.blocks:
            if merged and merged[-1].state == each.state == _FREE:
                merged[-1].size += each.size
            else:
                merged.append(each)
        segment.blocks = merged

    def snapshot(self, **more: Any) -> dict[str, Any]:
        """Return what ``torch.cuda.memory._snapshot`` would, with further keys."""
        kept = self.acts if self.max_entries is None else self.acts[-self.max_entries :]
        segments = [
            {
                "device": 0, "address": segment.address, "total_size": segment.size,
                "stream": segment.stream, "segment_pool_id": (0, 0), "is_expandable": False,
                "segment_type": "small" if segment.is_small else "large",
                "allocated_size": sum(b.size for b in segment.blocks if b.state == _ACTIVE),
                "active_size": sum(b.size for b in segment.blocks if b.state != _FREE),
                "blocks": [
                    {"address": b.address, "size": b.size, "requested_size": b.requested,
                     "state": b.state, "frames": b.frames}
                    for b in segment.blocks
                ],
            }
            for segment in self.segments
        ]  # fmt: skip
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}
        return {
            "segments": segments, "device_traces": [kept], "allocator_settings": settings,
            "external_annotations": [], **more,
        }  # fmt: skip

    def _free_block(self, size: int, stream: int) -> tuple[_Segment, _Block] | None:
        fits = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            if segment.stream == stream and segment.is_small == (size <= _SMALL)
            for block in segment.blocks
            if block.state == _FREE and block.size >= size
        ]
        _, _, segment, block = min(fits, key=lambda fit: fit[:2]) if fits else (0, 0, None, None)
        return None if segment is None or block is None else (segment, block)

    def _new_block(
        self, size: int, stream: int, frames: list[dict[str, Any]]
    ) -> tuple[_Segment, _Block]:
        is_small = size <= _SMALL
        own = -(-size // _STEP) * _STEP
        length = _SMALL_SEGMENT if is_small else _MIDDLE_SEGMENT if size < _LARGE else own
        if self.reserved_bytes + length > self.limit_bytes:
            for segment in [each for each in self.segments if each.is_free]:
                self._record("segment_free", segment.address, segment.size, segment.stream, [])
                self.segments.remove(segment)
        if (left := self.limit_bytes - self.reserved_bytes) < length:
            self._record("oom", None, size, stream, frames, device_free=left)
            msg = f"out of memory: {size:,} bytes requested"
            raise MemoryError(msg)
        block = _Block(self._next, length)
        segment = _Segment(self._next, length, stream, is_small, [block])
        self._next += length + _STEP
        self.segments.append(segment)
        self._record("segment_alloc", segment.address, length, stream, frames)
        return segment, block

    def _at(self, address: int) -> tuple[_Segment, _Block]:
        return next(
            (segment, block)
            for segment in self.segments
            for block in segment.blocks
            if block.address == address
        )

    def _listed(self, stack: Sequence[Frame]) -> list[dict[str, Any]]:
        # Equal stacks are one list, as in PyTorch, so that the pickle holds each once.
        return self._frames.setdefault(tuple(stack), [frame._asdict() for frame in stack])

    def _record(
        self, action: str, address: int | None, size: int, stream: int, frames: Any, **more: int
    ) -> None:
        self.time_us += 7
        row = {"action": action, "size": size, "stream": stream, "frames": frames, **more}
        row |= {"time_us": self.time_us} | ({} if address is None else {"addr": address})
        self.acts.append(row)


_DEMO_LIMIT_BYTES = 400 << 20
_README = """# A synthetic memory snapshot

**Nothing here was measured.** `data.make.memory` made the file from seed {seed}.

| file | like | holds |
|---|---|---|
| `synthetic_rank0.pickle` | `torch.cuda.memory._dump_snapshot` | \
a small model in training on a device of {limit_mib} MiB, until an allocation fails |

The licence is that of the workbench (MIT).
"""
_MODEL = "/opt/job/model.py"
_TORCH = "/usr/lib/python3/site-packages/torch/"
_STACKS = {
    "parameter": (Frame("__init__", _TORCH + "nn/modules/linear.py", 106),),
    "activation": (
        Frame("forward", _TORCH + "nn/modules/linear.py", 134),
        Frame("forward", _MODEL, 41),
    ),
    "attention": (Frame("forward", _MODEL, 58),),
    "gradient": (Frame("_engine_run_backward", _TORCH + "autograd/graph.py", 829),),
    "optimizer": (Frame("_init_group", _TORCH + "optim/adamw.py", 142),),
}  # fmt: skip


def memory_snapshot(
    out: str | Path,
    *,
    seed: int,
    steps: int = 3,
    layers: int = 8,
    limit_bytes: int = 2 << 30,
    max_entries: int | None = None,
) -> Path:
    """Write the memory snapshot of a small model in training.

    Each step keeps an activation per layer whose size follows the length of its batch, frees them
    in the backward pass and makes gradients; the first step makes the state of the optimizer.

    Parameters
    ----------
    out
        File to write, a pickle like that of ``torch.cuda.memory._dump_snapshot``.
    seed
        Seed of the lengths of the batches.
    steps, layers
        Training steps, and layers of the model.
    limit_bytes
        Memory of the device; training ends where it is exhausted, with an ``oom`` entry.
    max_entries
        Actions that the recorder keeps, the last ones; None for all.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    ValueError
        If there is no step or no layer.
    """
    if min(steps, layers) < 1:
        msg = f"steps={steps} and layers={layers} must be at least 1"
        raise ValueError(msg)
    rng = np.random.default_rng(seed)
    allocator = MemoryAllocator(limit_bytes, max_entries)
    marks: list[dict[str, Any]] = []
    try:
        weights = [_made(allocator, 9_437_184, "parameter") for _ in range(layers)]
        for step in range(steps):
            _mark(allocator, marks, step, "START")
            _step(allocator, len(weights), int(rng.integers(300, 4000)), is_first=step == 0)
            _mark(allocator, marks, step, "END")
    except MemoryError:
        # The job ends here, as the snapshot shows.
        pass
    path = Path(out)
    content = allocator.snapshot(external_annotations=marks, synthetic=SAYS_SYNTHETIC)
    path.write_bytes(pickle.dumps(content, protocol=4))
    return path


def memory(out: str | Path, *, seed: int) -> Path:
    """Write the demonstration of a job that runs out of memory.

    Parameters
    ----------
    out
        Folder to write into; made if absent, must be empty.
    seed
        Seed of the lengths of the batches.

    Returns
    -------
    pathlib.Path
        The snapshot, see :func:`memory_snapshot`.

    Raises
    ------
    FileExistsError
        If ``out`` holds files already.
    """
    folder = new_folder(out)
    write(folder / "README.md", _README.format(seed=seed, limit_mib=_DEMO_LIMIT_BYTES >> 20))
    name = "synthetic_rank0.pickle"
    return memory_snapshot(folder / name, seed=seed, limit_bytes=_DEMO_LIMIT_BYTES)


def _made(allocator: MemoryAllocator, size_bytes: int, kind: str) -> int:
    return allocator.alloc(size_bytes, _STACKS[kind])


def _mark(allocator: MemoryAllocator, marks: list[dict[str, Any]], step: int, stage: str) -> None:
    allocator.time_us += 1
    mark = {"name": f"ProfilerStep#{step}", "stage": stage, "device": 0}
    marks.append(mark | {"time_us": allocator.time_us})


def _step(allocator: MemoryAllocator, layers: int, tokens: int, *, is_first: bool) -> None:
    make: Callable[[int, str], int] = lambda size, kind: _made(allocator, size, kind)  # noqa: E731
    kept = []
    for _ in range(layers):
        kept.append(make(tokens * 6_144, "activation"))
        allocator.free(make(tokens * 24_576, "attention"))
    gradients = []
    for activation in reversed(kept):
        gradients.append(make(9_437_184, "gradient"))
        allocator.free(activation)
    for _ in range(2 * layers if is_first else 0):
        make(9_437_184, "optimizer")
    for gradient in gradients:
        allocator.free(gradient)
