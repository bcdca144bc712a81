"""What a shard of an embedding table costs: memory, look-ups and communication."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench.errors import WorkbenchError

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

_GIB = 1 << 30
_INDEX_BYTES = 8
# What torchrec found by measuring kernels.
_FULL_DIM, _HALF_DIM, _LEAST_DIM = 128, 64, 32
_HALF_PENALTY, _QUARTER_PENALTY = 1.15, 1.75
_BACKWARD = 2.0
_BATCHED_COPY = 2.455


@dataclass(frozen=True)
class ShardingAssumptions:
    """What the costs of shards are worked out from: batch, bandwidths, memory.

    Bandwidths and batch are the defaults of torchrec's planner 1.9.2 (a V100 with
    one 100 Gbit/s port); the memory is that of an 80 GB GPU, as torchrec's 32 GiB
    cannot hold the largest tables.

    Attributes
    ----------
    batch_count
        Samples per rank and step.
    hbm_gib_per_s
        Memory bandwidth of a GPU.
    intra_gib_per_s
        Bandwidth between the GPUs of a host.
    inter_gib_per_s
        Bandwidth of a GPU to other hosts.
    ranks_per_host
        GPUs of a host.
    memory_gib
        Memory of a GPU for the weights of embeddings.
    split_ratio
        Columns are cut until no shard costs more than this times the mean rank.
    least_dim_count
        No shard gets fewer columns than this by cutting.
    """

    batch_count: int = 512
    hbm_gib_per_s: float = 897.0
    intra_gib_per_s: float = 600.0
    inter_gib_per_s: float = 12.5
    ranks_per_host: int = 8
    memory_gib: float = 80.0
    split_ratio: float = 0.6
    least_dim_count: int = 32

    def __post_init__(self) -> None:
        """Refuse values that no cost follows from."""
        for field in fields(self):
            number = getattr(self, field.name)
            whole = field.type == "int"
            counts = isinstance(number, Real) and not isinstance(number, bool)
            if not counts or not 0 < number < np.inf or (whole and number % 1 != 0):
                kind = "whole number" if whole else "finite number"
                msg = f"{field.name} must be a {kind} above 0, not {number!r}"
                raise WorkbenchError(msg)

    @property
    def memory_bytes(self) -> int:
        """Memory of a rank for weights."""
        return int(self.memory_gib * _GIB)


class Pieces(NamedTuple):
    """Shards without a rank yet, one entry each; a group is placed as one."""

    table: Ints
    """Position in the table of embedding tables."""
    first_row: Ints
    rows: Ints
    first_dim: Ints
    dims: Ints
    share: Floats
    """Of the table's look-ups."""
    group: Ints
    """Shards of one number belong together."""
    offset: Ints
    """Rank inside the place that the group gets."""


def costs(
    pieces: Pieces, pooling: Floats, element: Ints, *, ranks: int, using: ShardingAssumptions
) -> tuple[Floats, Floats]:
    """Estimate the time of each whole or column shard in look-ups and in communication, in ms."""
    read, written = _traffic(pieces, pooling, element, ranks=ranks, using=using)
    dims = pieces.dims
    penalty = np.where(
        dims >= _FULL_DIM, 1.0, np.where(dims >= _HALF_DIM, _HALF_PENALTY, _QUARTER_PENALTY)
    )
    forward = (read + written) * penalty / _bytes_per_ms(using.hbm_gib_per_s)
    outside = ranks > using.ranks_per_host
    gib_per_s = using.inter_gib_per_s if outside else using.intra_gib_per_s
    return (1 + _BACKWARD) * forward, 2 * written / _bytes_per_ms(gib_per_s)


def row_costs(
    pieces: Pieces, pooling: Floats, element: Ints, *, ranks: int, using: ShardingAssumptions
) -> tuple[Floats, Floats]:
    """Estimate the time of each shard of some rows on all ranks, in ms.

    Rows have no penalty for few columns, but a copy of the whole output backward.
    """
    read, written = _traffic(pieces, pooling, element, ranks=ranks, using=using, least=1)
    device = _bytes_per_ms(using.hbm_gib_per_s)
    lookup = (1 + _BACKWARD) * (read + written) / device + written * _BATCHED_COPY / device
    outside = ranks > using.ranks_per_host
    gib_per_s = using.inter_gib_per_s if outside else using.intra_gib_per_s
    return lookup, 2 * written / _bytes_per_ms(gib_per_s)


def host_row_costs(
    pieces: Pieces, pooling: Floats, element: Ints, *, ranks: int, using: ShardingAssumptions
) -> tuple[Floats, Floats]:
    """Estimate the time of each shard of some rows on the ranks of one host, in ms."""
    lookup, _ = row_costs(pieces, pooling, element, ranks=ranks, using=using)
    _, written = _traffic(pieces, pooling, element, ranks=ranks, using=using)
    oneway = written / _bytes_per_ms(using.intra_gib_per_s)
    if ranks > using.ranks_per_host:
        oneway += written * (using.ranks_per_host / ranks) / _bytes_per_ms(using.inter_gib_per_s)
    return lookup, 2 * oneway


def memory(pieces: Pieces, element: Ints) -> Ints:
    """Give the bytes of each shard's weights."""
    return pieces.rows * pieces.dims * element[pieces.table]


def _traffic(
    pieces: Pieces,
    pooling: Floats,
    element: Ints,
    *,
    ranks: int,
    using: ShardingAssumptions,
    least: int = _LEAST_DIM,
) -> tuple[Floats, Floats]:
    """Count the bytes that a step reads and that it writes, per shard."""
    samples = using.batch_count * ranks
    lookups = samples * pooling[pieces.table] * pieces.share
    size = element[pieces.table]
    read = np.ceil(lookups * _INDEX_BYTES) + lookups * np.maximum(pieces.dims, least) * size
    return read, (samples * pieces.dims * size).astype(np.float64)


def _bytes_per_ms(gib_per_s: float) -> float:
    return gib_per_s * _GIB / 1000
