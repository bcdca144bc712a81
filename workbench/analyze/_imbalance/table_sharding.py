"""Embedding tables on ranks: which shard goes where, what it costs, how well it balances."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats, Ints, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import EMBEDDING_TABLES, SHARD_BALANCE, TABLE_SHARDING

_GIB = 1 << 30
# Look-ups are int64.
_INDEX_BYTES = 8
# What torchrec found by measuring kernels.
_FULL_DIM, _HALF_DIM, _LEAST_DIM = 128, 64, 32
_HALF_PENALTY, _QUARTER_PENALTY = 1.15, 1.75
_BACKWARD = 2.0
_BATCHED_COPY = 2.455


@dataclass(frozen=True)
class ShardingAssumptions:
    """Inputs of the costs of shards: batch, bandwidths, memory.

    Bandwidths and batch are the defaults of torchrec's planner 1.9.2 (a V100 with one 100 Gbit/s
    port); the memory is that of an 80 GB GPU, as torchrec's 32 GiB cannot hold the largest tables.

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
        for field in fields(self):
            number = getattr(self, field.name)
            is_integer = field.type == "int"
            counts = isinstance(number, Real) and not isinstance(number, bool)
            if not counts or not 0 < number < np.inf or (is_integer and number % 1 != 0):
                kind = "whole number" if is_integer else "finite number"
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
    penalty = np.select(
        [pieces.dims >= _FULL_DIM, pieces.dims >= _HALF_DIM], [1.0, _HALF_PENALTY], _QUARTER_PENALTY
    )
    forward = (read + written) * penalty / _bytes_per_ms(using.hbm_gib_per_s)
    return (1 + _BACKWARD) * forward, 2 * written / _link(ranks, using)


def _link(ranks: int, using: ShardingAssumptions) -> float:
    """Return the bytes per ms of the slowest link: between hosts as soon as there are two."""
    # An exchange among all is over when its slowest link is.
    outside = ranks > using.ranks_per_host
    return _bytes_per_ms(using.inter_gib_per_s if outside else using.intra_gib_per_s)


def row_costs(
    pieces: Pieces, pooling: Floats, element: Ints, *, ranks: int, using: ShardingAssumptions
) -> tuple[Floats, Floats]:
    """Estimate the time of each shard of some rows on all ranks, in ms.

    Rows have no penalty for few columns, but a copy of the whole output backward.
    """
    read, written = _traffic(pieces, pooling, element, ranks=ranks, using=using, least=1)
    device = _bytes_per_ms(using.hbm_gib_per_s)
    lookup = (1 + _BACKWARD) * (read + written) / device + written * _BATCHED_COPY / device
    return lookup, 2 * written / _link(ranks, using)


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


Planner: TypeAlias = Literal["greedy", "in order", "round-robin", "random"]
BalanceBy: TypeAlias = Literal["perf", "size", "dim", "lookup"]
Scheme: TypeAlias = Literal["table", "column", "auto-column", "row", "table-row"]

_MOST_BYTES = 1 << 62
_DEFAULT = ShardingAssumptions()
_SEED = 0


class _Tables(NamedTuple):
    """The columns of the embedding tables that costs depend on."""

    names: list[str]
    rows: Ints
    dims: Ints
    pooling: Floats
    element: Ints


class _Plan(NamedTuple):
    """Shards with their costs, before they have a rank."""

    pieces: Pieces
    lookup: Floats
    communication: Floats
    width: int
    """Ranks that a group of shards takes."""


def table_sharding(
    tables: pd.DataFrame,
    *,
    ranks: int,
    planner: Planner = "greedy",
    balance_by: BalanceBy = "perf",
    scheme: Scheme = "table",
    assumptions: ShardingAssumptions = _DEFAULT,
) -> pd.DataFrame:
    """Place embedding tables on ranks, and estimate what every shard costs per step.

    A step waits for the slowest rank, so the largest sum over a rank is what counts. A
    table that costs more than the mean rank cannot be balanced unless it is cut.

    Parameters
    ----------
    tables
        Table :data:`workbench.tables.EMBEDDING_TABLES`.
    ranks
        GPUs of the job.
    planner
        ``"greedy"``: largest first, each to the least loaded rank that has room (also known as
        LPT); ``"in order"``: the same in the order of the tables; ``"round-robin"``: dealt out in
        turn; ``"random"``: anywhere, seed 0. The last two go on to the next rank with room.
    balance_by
        What the first two planners call load: ``"perf"`` (estimated time), ``"size"``
        (bytes), ``"dim"`` (columns) or ``"lookup"`` (columns times look-ups per sample).
    scheme
        ``"table"``: tables stay whole; ``"column"``: all are cut by columns, as far as
        ``least_dim_count`` allows; ``"auto-column"``: columns are halved until no shard costs
        more than ``split_ratio`` times the mean rank; ``"row"``: rows over all ranks;
        ``"table-row"``: rows over the ranks of one host.
    assumptions
        Batch, bandwidths and memory: :class:`workbench.analyze.ShardingAssumptions`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TABLE_SHARDING`, one row per shard, by table and place in
        it. Ranks without a shard have no row.

    Raises
    ------
    TableError
        If ``tables`` is not a table of embedding tables.
    WorkbenchError
        If a table does not fit (the message names it, and what it lacks), a name occurs
        twice, or an option is not possible.

    Notes
    -----
    Costs are those of torchrec's planner for pooled, unweighted tables in GPU memory
    (kernel "fused"). With n = batch x ranks samples, pooling L, dimension d, element bytes e,
    HBM bandwidth b and link bandwidth c (between hosts as soon as there are two):

    * table, column: forward = (8 n L + n L max(d, 32) e + n d e) / b, times 1.15 for d < 128
      and 1.75 for d < 64; look-up = 3 forward; communication = 2 n d e / c;
    * row: L is shared out, no penalty; look-up = 3 forward + 2.455 n d e / b;
    * table-row: the same on one host, communication inside at the intra-host bandwidth plus
      (ranks per host / ranks) of it between hosts.

    Indices, gradients of dense parts and prefetching are not part of it. Own choices: memory is
    that of the weights alone; a shard of rows has look-ups in proportion to its rows (torchrec
    shares them out equally, the same where rows divide evenly); the rule of ``"auto-column"``.

    References
    ----------
    torchrec 1.9.2, ``distributed/planner``: ``shard_estimators.py`` (costs),
    ``constants.py``, ``partitioners.py`` (greedy).
    """
    ranks = whole_number("ranks", ranks, least=1)
    sizes = _checked(tables)
    for option, value, choices in (
        ("planner", planner, tuple(PLANNERS)),
        ("balance_by", balance_by, get_args(BalanceBy)),
        ("scheme", scheme, get_args(Scheme)),
    ):
        if value not in choices:
            msg = f"{option} must be one of {choices}, not {value!r}"
            raise WorkbenchError(msg)
    plan = _CUTS[scheme](sizes, ranks, assumptions)
    bytes_ = memory(plan.pieces, sizes.element)
    weight = {
        "perf": plan.lookup + plan.communication,
        "size": bytes_.astype(np.float64),
        "dim": plan.pieces.dims.astype(np.float64),
        "lookup": plan.pieces.dims * sizes.pooling[plan.pieces.table] * plan.pieces.share,
    }[balance_by]
    # A group is placed as one, by the weight of its first shard, which is its largest.
    first = np.unique(plan.pieces.group, return_index=True)[1]
    loads = Loads(weight[first], bytes_[first], ranks // plan.width, assumptions.memory_bytes)
    try:
        placed = PLANNERS[planner](loads)
    except NoRoomError as error:
        shard = int(first[error.position])
        raise _no_room(sizes, plan.pieces, shard, int(bytes_[shard]), error.room) from None
    rank = placed[plan.pieces.group] * plan.width + plan.pieces.offset
    return _presented(sizes, plan, rank, bytes_, scheme, ranks)


def shard_balance(shards: pd.DataFrame) -> pd.DataFrame:
    """Add up what the shards of every rank cost.

    Parameters
    ----------
    shards
        Table :data:`workbench.tables.TABLE_SHARDING` of one job.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SHARD_BALANCE`: ``rank``, ``lookup_ms``,
        ``communication_ms``, ``perf_ms``, ``memory_bytes``, ``shard_count``; ranks without a
        shard have 0. Hand one of its columns to :func:`load_imbalance`.

    Raises
    ------
    WorkbenchError
        If the shards are of jobs of different size, or a rank does not exist.
    """
    TABLE_SHARDING.check(shards)
    if shards.empty:
        return SHARD_BALANCE.empty()
    sizes = shards["world_size"].unique().tolist()
    count, highest = sizes[0], int(shards["rank"].max())
    if len(sizes) > 1 or highest >= count:
        msg = f"shards of one job are needed; these are of {sizes} ranks, the highest is {highest}"
        raise WorkbenchError(msg)
    rank = shards["rank"].to_numpy()
    table = pd.DataFrame({"rank": np.arange(count, dtype=np.int32)})
    for name in ("lookup_ms", "communication_ms"):
        table[name] = np.bincount(rank, weights=shards[name].to_numpy(), minlength=count)
    table["perf_ms"] = table["lookup_ms"] + table["communication_ms"]
    # By groups, not by bincount: its sums are floats and would round many bytes.
    summed = shards.groupby("rank")["memory_bytes"].sum()
    table["memory_bytes"] = summed.reindex(range(count), fill_value=0).to_numpy(dtype=np.int64)
    table["shard_count"] = np.bincount(rank, minlength=count).astype(np.int64)
    return SHARD_BALANCE.check(table)


def _auto_columns(tables: _Tables, ranks: int, using: ShardingAssumptions) -> _Plan:
    """Halve the columns of a table until none of its shards costs too much."""
    cuts = np.ones(len(tables.names), dtype=np.int64)
    plan = _by_columns(tables, cuts, ranks, using)
    # From the uncut tables, so that the bound does not grow with the costs that cutting adds.
    most = using.split_ratio * (plan.lookup + plan.communication).sum() / ranks
    while tables.names:
        first = np.unique(plan.pieces.table, return_index=True)[1]
        perf = np.maximum.reduceat(plan.lookup + plan.communication, first)
        large = (perf > most) & (tables.dims // (2 * cuts) >= using.least_dim_count)
        if not large.any():
            break
        cuts = np.where(large, 2 * cuts, cuts)
        plan = _by_columns(tables, cuts, ranks, using)
    return plan


def _by_columns(tables: _Tables, cuts: Ints | int, ranks: int, using: ShardingAssumptions) -> _Plan:
    cuts = np.broadcast_to(cuts, len(tables.names))
    table, number = _numbered(cuts)
    start = number * tables.dims[table] // cuts[table]
    dims = (number + 1) * tables.dims[table] // cuts[table] - start
    zero = np.zeros(len(table), dtype=np.int64)
    alone = np.arange(len(table))
    pieces = Pieces(table, zero, tables.rows[table], start, dims, np.ones(len(table)), alone, zero)
    time = costs(pieces, tables.pooling, tables.element, ranks=ranks, using=using)
    return _Plan(pieces, *time, width=1)


def _rows(
    tables: _Tables, ranks: int, using: ShardingAssumptions, *, on_hosts: bool = False
) -> _Plan:
    width = min(ranks, using.ranks_per_host) if on_hosts else ranks
    if ranks % width:
        msg = f"{ranks} ranks do not fill hosts of {width}; table-row needs whole hosts"
        raise WorkbenchError(msg)
    pieces = _by_rows(tables, width)
    costs_of = host_row_costs if on_hosts else row_costs
    time = costs_of(pieces, tables.pooling, tables.element, ranks=ranks, using=using)
    return _Plan(pieces, *time, width=width)


def _by_rows(tables: _Tables, width: int) -> Pieces:
    """Cut the rows of every table into as many blocks as there are ranks, or rows."""
    block = -(-tables.rows // width)
    table, number = _numbered(-(-tables.rows // block))
    start = number * block[table]
    rows = np.minimum(block[table], tables.rows[table] - start)
    share = rows / tables.rows[table]
    return Pieces(table, start, rows, 0 * table, tables.dims[table], share, table, number)


_CUTS: dict[str, Callable[[_Tables, int, ShardingAssumptions], _Plan]] = {
    "table": lambda tables, ranks, using: _by_columns(tables, 1, ranks, using),
    "column": lambda tables, ranks, using: _by_columns(
        tables, np.maximum(tables.dims // using.least_dim_count, 1), ranks, using
    ),
    "auto-column": _auto_columns,
    "row": _rows,
    "table-row": partial(_rows, on_hosts=True),
}


def _numbered(counts: Ints) -> tuple[Ints, Ints]:
    table = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return table, np.arange(len(table)) - first[table]


def _checked(frame: pd.DataFrame) -> _Tables:
    EMBEDDING_TABLES.check(frame)
    twice = frame["table"].duplicated()
    if twice.any():
        name = frame.loc[twice, "table"].iloc[0]
        msg = f"{int(twice.sum()):,} names of tables occur twice, e.g. {name!r}; rename one"
        raise WorkbenchError(msg)
    columns = ("row_count", "dim_count", "pooling_ratio", "element_bytes")
    tables = _Tables(frame["table"].tolist(), *(frame[name].to_numpy() for name in columns))
    size = tables.rows.astype(np.float64) * tables.dims * tables.element
    bad = ~np.isfinite(tables.pooling) | (size >= _MOST_BYTES)
    if bad.any():
        name = tables.names[int(np.flatnonzero(bad)[0])]
        msg = f"table {name!r} has a size or a pooling_ratio that cannot be"
        raise WorkbenchError(msg)
    return tables


def _no_room(tables: _Tables, pieces: Pieces, shard: int, needed: int, room: int) -> WorkbenchError:
    table = int(pieces.table[shard])
    columns = "" if pieces.dims[shard] == tables.dims[table] else f" ({pieces.dims[shard]} columns)"
    return WorkbenchError(
        f"table {tables.names[table]!r}{columns} needs {needed / _GIB:.3g} GiB per rank, but the "
        f"rank with most room has {room / _GIB:.3g} GiB left: {(needed - room) / _GIB:.3g} GiB too "
        "little. Use more ranks, another scheme, or raise memory_gib in the assumptions"
    )


def _presented(
    tables: _Tables, plan: _Plan, rank: Ints, bytes_: Ints, scheme: str, ranks: int
) -> pd.DataFrame:
    pieces = plan.pieces
    names = pd.Series(tables.names, dtype=pd.Series([""]).dtype)
    cut = "column" if scheme in ("column", "auto-column") else scheme
    uncut = (pieces.rows == tables.rows[pieces.table]) & (pieces.dims == tables.dims[pieces.table])
    return TABLE_SHARDING.of(
        {
            "table": names.iloc[pieces.table].to_numpy(),
            "rank": rank.astype(np.int32),
            "world_size": np.full(len(rank), ranks, dtype=np.int32),
            "scheme": np.where(uncut & (cut == "column"), "table", cut),
            "first_row": pieces.first_row,
            "row_count": pieces.rows,
            "first_dim": pieces.first_dim,
            "dim_count": pieces.dims,
            "memory_bytes": bytes_,
            "lookup_ms": plan.lookup,
            "communication_ms": plan.communication,
            "perf_ms": plan.lookup + plan.communication,
        }
    )


class NoRoomError(Exception):
    """A load fits nowhere; says which, and how much room is left at best."""

    def __init__(self, position: int, room: int) -> None:
        super().__init__(position, room)
        self.position, self.room = position, room


class Loads(NamedTuple):
    """Loads to place, and the room at each place."""

    weight: Floats
    memory: Ints
    places: int
    room: int
    """Of each place."""


def least_loaded(loads: Loads, order: Ints) -> Ints:
    """Assign each load, in order, to the least loaded place that has room for it."""
    heap = [(0.0, target) for target in range(loads.places)]
    room = [loads.room] * loads.places
    weights, memory = loads.weight.tolist(), loads.memory.tolist()
    chosen = np.zeros(len(weights), dtype=np.int64)
    for position in order.tolist():
        full: list[tuple[float, int]] = []
        # Places without room for this load are set aside, and come back for smaller ones.
        while heap and room[heap[0][1]] < memory[position]:
            full.append(heapq.heappop(heap))
        if not heap:
            raise NoRoomError(position, max(room))
        load, target = heap[0]
        heapq.heapreplace(heap, (load + weights[position], target))
        for entry in full:
            heapq.heappush(heap, entry)
        room[target] -= memory[position]
        chosen[position] = target
    return chosen


def _wished(loads: Loads, wishes: Ints) -> Ints:
    """Assign each load to the place it prefers, or to the next one that has room."""
    room = [loads.room] * loads.places
    chosen = wishes.copy()
    for position, (wish, memory) in enumerate(
        zip(wishes.tolist(), loads.memory.tolist(), strict=True)
    ):
        tried = (target % loads.places for target in range(wish, wish + loads.places))
        target = next((target for target in tried if room[target] >= memory), None)
        if target is None:
            raise NoRoomError(position, max(room))
        room[target] -= memory
        chosen[position] = target
    return chosen


PLANNERS: dict[str, Callable[[Loads], Ints]] = {
    # Largest first, each on the least loaded place with room (LPT).
    "greedy": lambda loads: least_loaded(loads, np.argsort(-loads.weight, kind="stable")),
    "in order": lambda loads: least_loaded(loads, np.arange(len(loads.weight))),
    "round-robin": lambda loads: _wished(loads, np.arange(len(loads.weight)) % loads.places),
    "random": lambda loads: _wished(
        loads, np.random.default_rng(_SEED).integers(0, loads.places, len(loads.weight))
    ),
}
