"""What every rank of a small training job calls, in order, and in which groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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
        """Return whether it is a send or a receive."""
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
    found: list[Group] = []
    for description in GROUPS:
        made: dict[tuple[int, ...], list[int]] = {}
        for rank in range(job.world_size):
            made.setdefault(_shared(rank, job, description), []).append(rank)
        for members in made.values():
            if len(members) > 1:
                found.append(Group(str(len(found)), description, tuple(members)))
    return found


def program(rank: int, job: HangJob, mine: dict[str, Group]) -> Iterator[Call]:
    """Give what a rank calls in one step: passes in order of 1F1B, then the optimizer.

    ``mine`` has the groups of the rank by description; where one is absent, nobody calls.
    """
    stage = rank // (job.tensor_ranks * job.dp_ranks)
    ahead = min(job.stages - 1 - stage, job.micro_batches)
    for _ in range(ahead):
        yield from _forward(job, mine, stage)
    for _ in range(job.micro_batches - ahead):
        yield from _forward(job, mine, stage)
        yield from _backward(job, mine, stage)
    for _ in range(ahead):
        yield from _backward(job, mine, stage)
    share = (_PARAMETERS // job.dp_ranks,)
    if DATA in mine:
        yield Call(mine[DATA], "_reduce_scatter_base", (_PARAMETERS,), share, "Float")
    if MODEL in mine:  # the norm of the gradients, which the host reads
        yield Call(mine[MODEL], "all_reduce", (1,), (1,), "Float", syncs=True)
    if DATA in mine:
        yield Call(mine[DATA], "_all_gather_base", share, (_PARAMETERS,), "BFloat16")
    if WORLD in mine:  # whether to stop, which the host reads
        yield Call(mine[WORLD], "all_reduce", (1,), (1,), "Long", syncs=True)


def _shared(rank: int, job: HangJob, description: str) -> tuple[int, ...]:
    """Return what the members of a rank's group have in common."""
    tensor = rank % job.tensor_ranks
    data = rank // job.tensor_ranks % job.dp_ranks
    stage = rank // (job.tensor_ranks * job.dp_ranks)
    return {
        WORLD: (), TENSOR: (data, stage), DATA: (tensor, stage), PIPELINE: (tensor, data),
        MODEL: (data,),
    }[description]  # fmt: skip


def _forward(job: HangJob, mine: dict[str, Group], stage: int) -> Iterator[Call]:
    if stage in {0, job.stages - 1} and TENSOR in mine:  # the tokens
        yield Call(mine[TENSOR], "broadcast", (1, _TOKENS), (1, _TOKENS), "Long")
    yield from _transfer("recv", job, mine, stage - 1)
    yield from _layers(job, mine)
    yield from _transfer("send", job, mine, stage + 1)


def _backward(job: HangJob, mine: dict[str, Group], stage: int) -> Iterator[Call]:
    yield from _transfer("recv", job, mine, stage + 1)
    yield from _layers(job, mine)
    yield from _transfer("send", job, mine, stage - 1)


def _layers(job: HangJob, mine: dict[str, Group]) -> Iterator[Call]:
    """Give the collectives of sequence parallelism, two per layer."""
    part, whole = (_TOKENS // job.tensor_ranks, 1, _HIDDEN), (_TOKENS, 1, _HIDDEN)
    for _ in range(job.layers if TENSOR in mine else 0):
        yield Call(mine[TENSOR], "_all_gather_base", part, whole, "BFloat16")
        yield Call(mine[TENSOR], "_reduce_scatter_base", whole, part, "BFloat16")


def _transfer(operation: str, job: HangJob, mine: dict[str, Group], other: int) -> Iterator[Call]:
    """Give the send or receive between a rank and its peer in another stage, if there is one."""
    if 0 <= other < job.stages:
        shape = (_TOKENS // job.tensor_ranks, 1, _HIDDEN)
        peer = mine[PIPELINE].members[other]
        # Megatron waits for the GPU after every receive (batch_p2p_sync).
        syncs = operation == "recv"
        yield Call(mine[PIPELINE], operation, shape, shape, "BFloat16", peer, syncs)
