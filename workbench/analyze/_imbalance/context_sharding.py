"""Context parallelism: how the attention of a micro-batch is shared among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats, Ints
from workbench.analyze._imbalance.packers import is_whole, merged
from workbench.analyze._imbalance.packing import Packing
from workbench.errors import WorkbenchError
from workbench.tables import CONTEXT_CHUNKS, CONTEXT_SHARDING, DOCUMENT_LENGTHS

ContextStrategy: TypeAlias = Literal["per sequence", "per document", "adaptive", "hybrid"]


@dataclass(frozen=True)
class _Chunks:
    """Runs of query tokens that one rank computes, and where they begin in their document."""

    document: Ints
    start: Ints
    length: Ints
    rank: Ints
    chunk: Ints

    def pairs(self, tile: int, launch: int) -> Floats:
        """Return query-key pairs as a kernel pays for them: whole tiles, and a fixed part."""
        # Division of the negative rounds up.
        padded = -(-self.length // tile) * tile
        return np.asarray((padded + launch) * (self.start + (self.length + 1) / 2))


def context_sharding(
    packing: Packing,
    *,
    ranks: int,
    tile_tokens: int = 128,
    launch_tokens: int = 512,
    hybrid_from_tokens: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Measure the attention of the slowest rank under every way of sharding a micro-batch.

    Parameters
    ----------
    packing
        What :func:`workbench.analyze.packing` returns.
    ranks
        Context-parallel ranks.
    tile_tokens
        Queries are computed in tiles of so many; a tile costs the same if it is not full.
        1 for none.
    launch_tokens
        Queries that a kernel could compute in the time it loses per run of queries; short
        runs are slow. 0 for pure FLOPs.
    hybrid_from_tokens
        Length from which hybrid cuts a document by itself; by default the length whose
        chunks are as long as ``launch_tokens``, at least one tile.
    seed
        For the order of documents within a micro-batch, which packers leave open.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CONTEXT_SHARDING`, one row per micro-batch, also
        for those without tokens.

    Raises
    ------
    WorkbenchError
        If a size is impossible.

    Notes
    -----
    A sequence, or each document of it, is cut into 2 n chunks; rank r takes chunks r and
    2 n - 1 - r. A run of q queries that begins p tokens into its document meets
    q (p + (q + 1) / 2) keys; here (tiles x tile + launch) (p + (q + 1) / 2). The cost is
    2 x the slowest rank's sum / crossover^2, in the unit of
    :data:`workbench.tables.MICRO_BATCHES`. Adaptive takes the better of per sequence and
    per document for each micro-batch; hybrid cuts long documents by themselves and the
    short ones together.

    References
    ----------
    arXiv:2503.17924 (adaptive sharding) and its future work (hybrid).
    """
    _refuse(ranks, tile_tokens, launch_tokens)
    pieces, plan = packing.documents, packing.plan
    count = plan.batch_sequences
    slot = (pieces["batch"] * count + pieces["micro_batch"]).to_numpy()
    # Packers place the longest first; in that order every sequence would begin with it.
    order = np.lexsort((np.random.default_rng(seed).random(len(slot)), slot))
    length, slot = pieces["length_tokens"].to_numpy()[order], slot[order]
    total = (int(pieces["batch"].max()) + 1) * count if len(pieces) else 0
    if hybrid_from_tokens is None:
        hybrid_from_tokens = 2 * ranks * max(launch_tokens, tile_tokens)
    long = length >= hybrid_from_tokens
    shape = (total, ranks, tile_tokens, launch_tokens)
    none = np.zeros_like(long)
    loads = {
        name: _loads(length, slot, alone, shape)
        for name, alone in (("per_sequence", none), ("per_document", ~none), ("hybrid", long))
    }
    scale = 2 / plan.crossover_tokens**2
    worst = {name: load.max(axis=1) * scale for name, load in loads.items()}
    pairs = np.bincount(slot, weights=length * (length + 1) / 2, minlength=total)
    tokens = np.bincount(slot, weights=length, minlength=total)
    table = pd.DataFrame(
        {
            "batch": np.arange(total) // count,
            "micro_batch": np.arange(total) % count,
            "length_tokens": tokens.astype(np.int64),
            "linear_cost": tokens / (plan.crossover_tokens * ranks),
            "even_cost": pairs * scale / ranks,
            "per_sequence_cost": worst["per_sequence"],
            "per_document_cost": worst["per_document"],
            "adaptive_cost": np.minimum(worst["per_sequence"], worst["per_document"]),
            "hybrid_cost": worst["hybrid"],
            **{f"{name}_ratio": _ratio(load) for name, load in loads.items()},
            "is_per_document": worst["per_document"] < worst["per_sequence"],
        }
    )
    return CONTEXT_SHARDING.check(table)


def context_chunks(
    lengths: pd.DataFrame,
    *,
    ranks: int,
    strategy: ContextStrategy = "per sequence",
    tile_tokens: int = 128,
    launch_tokens: int = 512,
) -> pd.DataFrame:
    """Show which rank computes which part of which document of one micro-batch.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`: the documents of the micro-batch.
    ranks
        Context-parallel ranks.
    strategy
        ``"per sequence"``, ``"per document"``, ``"adaptive"`` or ``"hybrid"``.
    tile_tokens, launch_tokens
        As for :func:`context_sharding`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CONTEXT_CHUNKS`: ``rank``, ``rank_count``, ``chunk``,
        ``document``, ``start_tokens`` (in the document), ``length_tokens``, ``pair_count`` as
        the kernel pays for them.

    Raises
    ------
    WorkbenchError
        If a size is impossible.
    ValueError
        If ``strategy`` is none of these.
    """
    _refuse(ranks, tile_tokens, launch_tokens)
    if strategy not in get_args(ContextStrategy):
        msg = f"strategy must be one of {get_args(ContextStrategy)}, not {strategy!r}"
        raise ValueError(msg)
    length = DOCUMENT_LENGTHS.check(lengths)["length_tokens"].to_numpy()
    document = np.arange(len(length))
    long = length >= 2 * ranks * max(launch_tokens, tile_tokens)

    def cut(alone: NDArray[np.bool_]) -> pd.DataFrame:
        frames = []
        for rows in (alone, ~alone):
            if not rows.any():
                continue
            tokens = length[rows]
            if rows is alone:
                chunks = _per_document(tokens, ranks)
            else:
                chunks = _per_sequence(tokens, np.zeros_like(tokens), ranks)
            columns = {
                "rank": chunks.rank,
                "rank_count": np.full(len(chunks.rank), ranks),
                "chunk": chunks.chunk,
                "document": document[rows][chunks.document],
                "start_tokens": chunks.start,
                "length_tokens": chunks.length,
                "pair_count": chunks.pairs(tile_tokens, launch_tokens),
            }
            frames.append(pd.DataFrame(columns))
        return CONTEXT_CHUNKS.joined(frames)

    choices = {
        "per sequence": [np.zeros_like(long)],
        "per document": [np.ones_like(long)],
        "adaptive": [np.zeros_like(long), np.ones_like(long)],
        "hybrid": [long],
    }
    tables = [cut(alone) for alone in choices[strategy]]
    best = min(tables, key=lambda table: table.groupby("rank")["pair_count"].sum().max())
    return CONTEXT_CHUNKS.check(best.sort_values(["rank", "chunk", "document"], ignore_index=True))


def _refuse(ranks: int, tile: int, launch: int) -> None:
    if not (is_whole(ranks) and is_whole(tile) and is_whole(launch, 0)):
        msg = (
            f"ranks ({ranks}) and tile_tokens ({tile}) must be at least 1, "
            f"launch_tokens ({launch}) at least 0, all of them whole numbers"
        )
        raise WorkbenchError(msg)


def _ratio(load: Floats) -> Floats:
    mean = load.mean(axis=1)
    even = np.ones(len(load))
    return np.asarray(np.divide(load.max(axis=1), mean, out=even, where=mean > 0))


def _loads(
    length: Ints, slot: Ints, alone: NDArray[np.bool_], shape: tuple[int, int, int, int]
) -> Floats:
    """Add up what every rank of every micro-batch computes; some documents are cut alone."""
    total, ranks, tile, launch = shape
    load = np.zeros((total, ranks))
    if alone.any():
        # Slots ascend, so the rows of a micro-batch lie together.
        first = np.flatnonzero(np.diff(slot[alone], prepend=-1))
        paid = _document_work(length[alone], ranks, tile, launch)
        load[slot[alone][first]] += np.add.reduceat(paid, first, axis=0)
    if not alone.all():
        chunks = _per_sequence(length[~alone], slot[~alone], ranks)
        cell = slot[~alone][chunks.document] * ranks + chunks.rank
        work = np.bincount(cell, weights=chunks.pairs(tile, launch), minlength=load.size)
        load += work.reshape(load.shape)
    return load


def _document_work(length: Ints, ranks: int, tile: int, launch: int) -> Floats:
    """Return the cost to each rank of each document that is cut on its own.

    The same as the pairs of :func:`_per_document`, without listing every chunk.
    """
    base, extra = np.divmod(length, 2 * ranks)
    work = np.zeros((len(length), ranks))
    for chunk in range(2 * ranks):
        size = base + (chunk < extra)
        start = chunk * base + np.minimum(chunk, extra)
        paid = (-(-size // tile) * tile + launch) * (start + (size + 1) / 2)
        work[:, min(chunk, 2 * ranks - 1 - chunk)] += np.where(size > 0, paid, 0.0)
    return work


def _per_document(length: Ints, ranks: int) -> _Chunks:
    """Cut every document into 2 n chunks; the remainder goes to the first, a token each."""
    chunk = np.arange(2 * ranks)[None, :]
    base, extra = np.divmod(length, 2 * ranks)
    size = base[:, None] + (chunk < extra[:, None])
    start = chunk * base[:, None] + np.minimum(chunk, extra[:, None])
    row, number = np.nonzero(size)
    return _Chunks(row, start[row, number], size[row, number], _rank(number, ranks), number)


def _per_sequence(length: Ints, group: Ints, ranks: int) -> _Chunks:
    """Cut every micro-batch into 2 n chunks, wherever its documents begin and end."""
    ends = np.cumsum(length)
    edge = np.flatnonzero(np.diff(group, append=group[-1] + 1))
    tokens = np.diff(ends[edge], prepend=0)
    first = ends[edge] - tokens
    # As even as whole tokens allow; short sequences leave chunks empty.
    cuts = first[:, None] + tokens[:, None] * np.arange(1, 2 * ranks) // (2 * ranks)
    stops = merged(ends, np.unique(cuts[cuts > first[:, None]]))
    begin = np.concatenate([[0], stops[:-1]])
    document = np.searchsorted(ends, begin, side="right")
    micro_batch = np.searchsorted(ends[edge], begin, side="right")
    # The chunk is the last one that begins at or before this token.
    into = begin - first[micro_batch]
    number = ((into + 1) * 2 * ranks - 1) // tokens[micro_batch]
    start = begin - (ends - length)[document]
    return _Chunks(document, start, stops - begin, _rank(number, ranks), number)


def _rank(chunk: Ints, ranks: int) -> Ints:
    # Zigzag: rank r takes an early and a late chunk, since causal attention grows along a sequence.
    return np.where(chunk < ranks, chunk, 2 * ranks - 1 - chunk)
