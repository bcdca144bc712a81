"""Run the programs of all ranks as far as they come, with one fault among them.

Every host calls ahead of its GPU until it waits for it; a GPU runs its operations in order;
a collective ends when all members are in it. When something happens is the largest of the
times of what it needs, so the result does not depend on the order in which ranks are run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

START_NS = 1_736_942_400_000_000_000
FROZEN, FAILED, OTHER_OPERATION, OTHER_SIZE = HANG_FAULTS = (
    "frozen host", "failed GPU", "mismatched operation", "mismatched size",
)  # fmt: skip
_HOST_NS = (15_000, 60_000)
_COMPUTE_NS = (300_000, 900_000)
_LATENCY_NS, _BYTES_PER_US = 20_000, 200_000
_LOOK_NS = 100_000_000

_Key: TypeAlias = tuple[str, int, int, int]


class Fault(NamedTuple):
    """A fault: on which rank, at which of its calls."""

    kind: str
    rank: int
    position: int


@dataclass
class Record:
    call: Call
    seq: int
    p2p_seq: int
    created_ns: int
    done_ns: int | None = None


@dataclass
class Worker:
    """One rank: what it will call, what it has called, and where host and GPU stand."""

    rank: int
    groups: list[Group]
    calls: list[Call]
    host_gaps: list[int]
    compute_gaps: list[int]
    look_phase_ns: int
    records: list[Record] = field(default_factory=list)
    keys: list[_Key] = field(default_factory=list)
    counts: dict[object, int] = field(default_factory=lambda: defaultdict(int))
    sends: list[int] = field(default_factory=list)
    next_on_gpu: int = 0
    host_ns: int = START_NS
    gpu_ns: int = START_NS
    lost_ns: int | None = None

    def seen_ns(self, record: Record) -> int | None:
        """Return when the recorder saw the end of an operation, if it did.

        It looks every 100 ms. Of a GPU that failed it learns nothing more, not even of
        what ended since the last look.
        """
        if record.done_ns is None:
            return None
        # How long until the recorder looks again; 0 if it looks just then.
        late = -(record.done_ns - START_NS - self.look_phase_ns) % _LOOK_NS
        seen = record.done_ns + late
        return None if self.lost_ns is not None and seen >= self.lost_ns else seen


class _Meeting:
    """A collective, or a send and its receive: who is in it since when, and with which call."""

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}
        self.calls: dict[int, Call] = {}

    def enter(self, rank: int, call: Call, at_ns: int) -> None:
        if rank not in self.starts:
            self.starts[rank], self.calls[rank] = at_ns, call

    def done_ns(self, rank: int, call: Call) -> int | None:
        """Return when a rank is through, if it ever is, as far as is known by now."""
        needed: tuple[int, ...] = call.group.members
        if call.peer is not None:
            needed = (rank, call.peer)
        elif call.operation == "broadcast":
            # Its source needs nobody, and the others need the source alone.
            needed = (rank, call.group.members[0])
        if any(member not in self.starts for member in needed):
            return None
        if not call.is_p2p and any(not _fits(self.calls[member], call) for member in needed):
            return None
        last = max(self.starts[member] for member in needed)
        return last + _LATENCY_NS + call.size_bytes * 1000 // _BYTES_PER_US


def workers(job: HangJob, rng: np.random.Generator) -> list[Worker]:
    sharing = groups(job)
    ranks = []
    for rank in range(job.world_size):
        own = [group for group in sharing if rank in group.members]
        step = list(program(rank, job, {group.description: group for group in own}))
        calls = step * job.steps
        ranks.append(
            Worker(
                rank, own, calls,
                rng.integers(*_HOST_NS, size=len(calls)).tolist(),
                rng.integers(*_COMPUTE_NS, size=len(calls)).tolist(),
                int(rng.integers(_LOOK_NS)),
            )
        )  # fmt: skip
    return ranks


def run(ranks: list[Worker], fault: Fault | None) -> None:
    if fault is not None and fault.kind in {OTHER_OPERATION, OTHER_SIZE}:
        calls = ranks[fault.rank].calls
        calls[fault.position] = _another(calls[fault.position], fault.kind)
    meetings: dict[_Key, _Meeting] = defaultdict(_Meeting)
    moves = True
    while moves:
        moves = False
        for worker in ranks:
            before = (len(worker.records), worker.next_on_gpu, len(worker.sends))
            _call(worker, fault)
            _execute(worker, fault, meetings)
            _finish_sends(worker, meetings)
            moves |= before != (len(worker.records), worker.next_on_gpu, len(worker.sends))


def _call(worker: Worker, fault: Fault | None) -> None:
    """Let a host call ahead of its GPU, up to where it waits for it."""
    end = len(worker.calls)
    if fault is not None and (fault.kind, fault.rank) == (FROZEN, worker.rank):
        end = fault.position
    while len(worker.records) < end:
        if worker.records and worker.records[-1].call.syncs:
            if worker.sends or worker.next_on_gpu < len(worker.records):
                return
            worker.host_ns = max(worker.host_ns, *(r.done_ns or 0 for r in worker.records))
        at = len(worker.records)
        worker.host_ns += worker.host_gaps[at]
        worker.keys.append(_key(worker, worker.calls[at]))
        worker.records.append(_record(worker, worker.calls[at]))


def _record(worker: Worker, call: Call) -> Record:
    """Record a call, numbered as its group does: collectives and transfers apart."""
    worker.counts[call.group.name, call.is_p2p] += 1
    seq, p2p_seq = (worker.counts[call.group.name, is_p2p] for is_p2p in (False, True))
    return Record(call, seq, p2p_seq if call.is_p2p else 0, worker.host_ns)


def _key(worker: Worker, call: Call) -> _Key:
    """Name the meeting a call belongs to; the n-th send to a peer meets its n-th receive."""
    if call.peer is None:
        return (call.group.name, -1, -1, worker.counts[call.group.name, False])
    pair = (worker.rank, call.peer) if call.operation == "send" else (call.peer, worker.rank)
    worker.counts[pair] += 1
    return (call.group.name, *pair, worker.counts[pair])


def _execute(worker: Worker, fault: Fault | None, meetings: dict[_Key, _Meeting]) -> None:
    while worker.next_on_gpu < len(worker.records):
        at = worker.next_on_gpu
        record, meeting = worker.records[at], meetings[worker.keys[at]]
        start = max(worker.gpu_ns + worker.compute_gaps[at], record.created_ns)
        meeting.enter(worker.rank, record.call, start)
        if record.call.operation == "send":
            worker.sends.append(at)
            worker.gpu_ns = start
        else:
            done = meeting.done_ns(worker.rank, record.call)
            if done is None:
                return
            if fault is not None and fault == (FAILED, worker.rank, at):
                # Its share is sent, so its peers get through.
                worker.lost_ns = done
                return
            record.done_ns = worker.gpu_ns = done
        worker.next_on_gpu += 1


def _finish_sends(worker: Worker, meetings: dict[_Key, _Meeting]) -> None:
    open_sends = []
    for at in worker.sends:
        record = worker.records[at]
        record.done_ns = meetings[worker.keys[at]].done_ns(worker.rank, record.call)
        if record.done_ns is None:
            open_sends.append(at)
    worker.sends = open_sends


def _fits(call: Call, peer_call: Call) -> bool:
    return call[1:5] == peer_call[1:5]


def _another(call: Call, kind: str) -> Call:
    if kind == OTHER_OPERATION:
        operation = "_all_gather_base" if call.operation == "all_reduce" else "all_reduce"
        return call._replace(operation=operation)
    return call._replace(
        in_shape=(2 * call.in_shape[0], *call.in_shape[1:]),
        out_shape=(2 * call.out_shape[0], *call.out_shape[1:]),
    )


# What every rank of a small training job calls, in order, and in which groups.

WORLD, TENSOR, DATA, PIPELINE, MODEL = (
    "default_pg", "TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP",
    "PIPELINE_MODEL_PARALLEL_GROUP", "MODEL_PARALLEL_GROUP",
)  # fmt: skip
GROUPS = (WORLD, DATA, MODEL, TENSOR, PIPELINE)
_TOKENS, _HIDDEN, _PARAMETERS = 2048, 4096, 50_331_648
_WIDTHS = {"BFloat16": 2, "Float": 4, "Long": 8}


class HangJob(NamedTuple):
    """A job of ``tensor_ranks * dp_ranks * stages`` ranks, and how much its recorder keeps.

    ``layers`` are those of one stage; ``buffer_count`` is the recorder's length in
    operations (``TORCH_FR_BUFFER_SIZE``).
    """

    tensor_ranks: int = 2
    dp_ranks: int = 4
    stages: int = 2
    micro_batches: int = 4
    layers: int = 2
    steps: int = 6
    buffer_count: int = 16

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.tensor_ranks * self.dp_ranks * self.stages


class Group(NamedTuple):
    """A process group; ``members`` are global ranks in order of group rank."""

    name: str
    description: str
    members: tuple[int, ...]


class Call(NamedTuple):
    """One operation that a rank calls; ``syncs``: its host then waits for its GPU."""

    group: Group
    operation: str
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    dtype: str
    peer: int | None = None
    syncs: bool = False

    @property
    def is_p2p(self) -> bool:
        return self.peer is not None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the larger side."""
        sizes = [1, 1]
        for at, shape in enumerate((self.in_shape, self.out_shape)):
            for size in shape:
                sizes[at] *= size
        return max(sizes) * _WIDTHS[self.dtype]


def groups(job: HangJob) -> list[Group]:
    """Return all groups of at least two ranks, in the order in which they are made.

    Ranks are laid out as Megatron does: tensor, then data, then pipeline.
    """
    groups_made: list[Group] = []
    for description in GROUPS:
        sharing: dict[tuple[int, ...], list[int]] = {}
        for rank in range(job.world_size):
            sharing.setdefault(_shared(rank, job, description), []).append(rank)
        for members in sharing.values():
            if len(members) > 1:
                groups_made.append(Group(str(len(groups_made)), description, tuple(members)))
    return groups_made


def program(rank: int, job: HangJob, group_of: dict[str, Group]) -> Iterator[Call]:
    """Yield the calls of a rank in one step: passes in order of 1F1B, then the optimizer.

    ``mine`` has the groups of the rank by description; where one is absent, nobody calls.
    """
    stage = rank // (job.tensor_ranks * job.dp_ranks)
    ahead = min(job.stages - 1 - stage, job.micro_batches)
    for _ in range(ahead):
        yield from _forward(job, group_of, stage)
    for _ in range(job.micro_batches - ahead):
        yield from _forward(job, group_of, stage)
        yield from _backward(job, group_of, stage)
    for _ in range(ahead):
        yield from _backward(job, group_of, stage)
    share = (_PARAMETERS // job.dp_ranks,)
    if DATA in group_of:
        yield Call(group_of[DATA], "_reduce_scatter_base", (_PARAMETERS,), share, "Float")
    if MODEL in group_of:  # the norm of the gradients, which the host reads
        yield Call(group_of[MODEL], "all_reduce", (1,), (1,), "Float", syncs=True)
    if DATA in group_of:
        yield Call(group_of[DATA], "_all_gather_base", share, (_PARAMETERS,), "BFloat16")
    if WORLD in group_of:  # whether to stop, which the host reads
        yield Call(group_of[WORLD], "all_reduce", (1,), (1,), "Long", syncs=True)


def _shared(rank: int, job: HangJob, description: str) -> tuple[int, ...]:
    """Return what the members of a rank's group have in common."""
    tensor = rank % job.tensor_ranks
    data = rank // job.tensor_ranks % job.dp_ranks
    stage = rank // (job.tensor_ranks * job.dp_ranks)
    return {
        WORLD: (), TENSOR: (data, stage), DATA: (tensor, stage), PIPELINE: (tensor, data),
        MODEL: (data,),
    }[description]  # fmt: skip


def _forward(job: HangJob, group_of: dict[str, Group], stage: int) -> Iterator[Call]:
    if stage in {0, job.stages - 1} and TENSOR in group_of:  # the tokens
        yield Call(group_of[TENSOR], "broadcast", (1, _TOKENS), (1, _TOKENS), "Long")
    yield from _transfer("recv", job, group_of, stage - 1)
    yield from _layers(job, group_of)
    yield from _transfer("send", job, group_of, stage + 1)


def _backward(job: HangJob, group_of: dict[str, Group], stage: int) -> Iterator[Call]:
    yield from _transfer("recv", job, group_of, stage + 1)
    yield from _layers(job, group_of)
    yield from _transfer("send", job, group_of, stage - 1)


def _layers(job: HangJob, group_of: dict[str, Group]) -> Iterator[Call]:
    """Yield the collectives of sequence parallelism, two per layer."""
    shard, full = (_TOKENS // job.tensor_ranks, 1, _HIDDEN), (_TOKENS, 1, _HIDDEN)
    for _ in range(job.layers if TENSOR in group_of else 0):
        yield Call(group_of[TENSOR], "_all_gather_base", shard, full, "BFloat16")
        yield Call(group_of[TENSOR], "_reduce_scatter_base", full, shard, "BFloat16")


def _transfer(
    operation: str, job: HangJob, group_of: dict[str, Group], stage: int
) -> Iterator[Call]:
    """Yield the send or receive between a rank and its peer in another stage, if there is one."""
    if 0 <= stage < job.stages:
        shape = (_TOKENS // job.tensor_ranks, 1, _HIDDEN)
        peer = group_of[PIPELINE].members[stage]
        # Megatron waits for the GPU after every receive (batch_p2p_sync).
        syncs = operation == "recv"
        yield Call(group_of[PIPELINE], operation, shape, shape, "BFloat16", peer, syncs)
