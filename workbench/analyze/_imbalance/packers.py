"""How documents become micro-batches: arrays in, arrays out, one function per strategy.

Plain Python where the next choice depends on the last one (a heap of a few micro-batches
is faster than arrays of them), numpy everywhere else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
# Row, size and micro-batch of every piece, while they are found.
Parts: TypeAlias = tuple[list[int], list[int], list[int]]


@dataclass(frozen=True)
class Documents:
    """A stream of documents cut to what can be packed, and the batch each arrives with."""

    number: Ints
    start: Ints
    length: Ints
    batch: Ints


@dataclass
class Packed:
    """Pieces of documents in micro-batches, counted through all batches."""

    number: Ints
    start: Ints
    length: Ints
    micro_batch: Ints
    arrived: Ints
    waiting: dict[int, Ints] = field(default_factory=dict)
    held_tokens: int = 0
    arrivals: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    most_waiting: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    notes: list[str] = field(default_factory=list)


def stream(lengths: Ints, *, longest: int, batch_tokens: int) -> Documents:
    """Cut documents longer than ``longest`` and say with which global batch each piece arrives."""
    pieces = -(-lengths // longest)
    number = np.repeat(np.arange(len(lengths)), pieces)
    first = np.cumsum(pieces) - pieces
    start = (np.arange(len(number)) - first[number]) * longest
    length = np.minimum(lengths[number] - start, longest)
    begin = np.cumsum(length) - length
    return Documents(number, start, length, begin // batch_tokens)


def chunked(lengths: Ints, *, context: int, batch_sequences: int) -> Packed:
    """Concatenate all documents and cut every ``context`` tokens, as plain data loaders do."""
    ends = np.cumsum(lengths)
    whole = int(ends[-1]) // (context * batch_sequences) * batch_sequences if len(ends) else 0
    edges = merged(ends[ends < whole * context], np.arange(1, whole + 1) * context)
    begin = np.concatenate([[0], edges[:-1]]).astype(np.int64) if len(edges) else edges
    number = np.searchsorted(ends, begin, side="right")
    start = begin - (ends - lengths)[number]
    sequence = begin // context
    return Packed(number, start, edges - begin, sequence, sequence // batch_sequences)


def greedy(pieces: Packed, *, context: int, batch_sequences: int, window: int) -> Packed:
    """Pack the pieces of a plain loader anew over a window of batches, the longest first.

    Each piece goes where the sum of squares is smallest and has room; one that fits nowhere
    is split over the emptiest sequences. What does not fill a window is left out.
    """
    count = batch_sequences * window
    whole = int(pieces.length.sum()) // (count * context)
    at = pieces.micro_batch // count
    order = np.lexsort((-pieces.length, at))[: int(np.searchsorted(at, whole))]
    edges = np.searchsorted(at, np.arange(whole + 1)).tolist()
    lengths = pieces.length[order].tolist()
    parts: Parts = ([], [], [])
    for number, (first, stop) in enumerate(pairwise(edges)):
        _fill(lengths, range(first, stop), (number * count, count, context), parts)
    which, size, place = (np.array(part, np.int64) for part in parts)
    rows = order[which]
    start = pieces.start[rows] + _offset(which, size)
    return Packed(pieces.number[rows], start, size, place, pieces.arrived[rows])


def _fill(lengths: list[int], rows: range, shape: tuple[int, int, int], parts: Parts) -> None:
    """Place descending lengths; note the row, size and sequence of every part.

    Sequences without room for the present length are parked by their room, and come back
    when lengths have fallen to it: every step costs the logarithm of a few sequences.
    """
    first, count, context = shape
    which, sizes, places = parts
    open_: list[tuple[int, int]] = [(0, place) for place in range(count)]
    parked: list[tuple[int, int, int]] = []
    room = [context] * count
    for row in rows:
        length = lengths[row]
        while parked and -parked[0][0] >= length:
            _, square, place = heappop(parked)
            heappush(open_, (square, place))
        while open_:
            square, place = open_[0]
            if room[place] >= length:
                heapreplace(open_, (square + length * length, place))
                room[place] -= length
                which.append(row)
                sizes.append(length)
                places.append(first + place)
                break
            heappop(open_)
            heappush(parked, (-room[place], square, place))
        else:
            for place, size in _split(parked, room, length):
                which.append(row)
                sizes.append(size)
                places.append(first + place)


def _split(
    parked: list[tuple[int, int, int]], room: list[int], length: int
) -> list[tuple[int, int]]:
    """Split one document over the sequences with the most room."""
    parts = []
    while length > 0 and parked and parked[0][0]:
        _, square, place = heappop(parked)
        size = min(length, room[place])
        room[place] -= size
        length -= size
        parts.append((place, size))
        heappush(parked, (-room[place], square + size * size, place))
    return parts


def delay_queues(
    docs: Documents,
    *,
    batch_sequences: int,
    limit: float,
    crossover: float,
    queues_from: tuple[int, ...],
) -> Packed:
    """Pack sequences of any length up to ``limit``; keep long documents until each gets one.

    Algorithm 1 of arXiv:2503.17924: documents from a queue's threshold on wait in it until
    there is one for every micro-batch of the global batch; then all documents, the longest
    first, go to the micro-batch with the least work, or if that is full to the shortest.
    """
    ratio = docs.length / crossover
    work = (ratio * ratio + ratio).tolist()
    lengths = docs.length.tolist()
    level = np.searchsorted(np.array(queues_from, np.int64), docs.length, side="right") - 1
    # Those that wait are few; the others of each batch are sorted once, all batches together.
    order = np.lexsort((-docs.length, docs.batch))
    at_once = _by_batch(order[level[order] < 0], docs.batch)
    to_queue = _by_batch(np.flatnonzero(level >= 0), docs.batch)
    waiting: list[deque[int]] = [deque() for _ in queues_from]
    most = [0] * len(queues_from)
    held: list[int] = []
    rows: list[int] = []
    places: list[int] = []
    for batch in range(int(docs.batch[-1]) + 1 if len(docs.batch) else 0):
        for row in to_queue.get(batch, ()):
            waiting[level[row]].append(row)
        released: list[int] = []
        for at, queue in enumerate(waiting):
            most[at] = max(most[at], len(queue))
            if len(queue) >= batch_sequences:
                released.extend(queue.popleft() for _ in range(batch_sequences))
        # Whoever waited is longer than whoever need not.
        released.sort(key=lengths.__getitem__, reverse=True)
        held = _spread(
            [*held, *released, *at_once.get(batch, ())], lengths, work, (rows, places),
            (batch * batch_sequences, batch_sequences, limit),
        )  # fmt: skip
    taken = np.array(rows, np.int64)
    return Packed(
        docs.number[taken], docs.start[taken], docs.length[taken], np.array(places, np.int64),
        docs.batch[taken],
        waiting={at: np.array(queue, np.int64) for at, queue in enumerate(waiting)},
        held_tokens=sum(lengths[row] for row in held),
        arrivals=np.bincount(level + 1, minlength=len(queues_from) + 1)[1:],
        most_waiting=np.array(most, np.int64),
    )  # fmt: skip


def _by_batch(rows: Ints, batch: Ints) -> dict[int, list[int]]:
    """Give the rows of each batch, in the order they come; batches ascend."""
    if not len(rows):
        return {}
    keys = batch[rows]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    edges = [*starts.tolist(), len(rows)]
    items = rows.tolist()
    return {
        key: items[first:stop]
        for key, (first, stop) in zip(keys[starts].tolist(), pairwise(edges), strict=True)
    }


def _spread(
    todo: list[int],
    lengths: list[int],
    work: list[float],
    out: tuple[list[int], list[int]],
    shape: tuple[int, int, float],
) -> list[int]:
    """Give every document to a micro-batch of one global batch; return those that fit nowhere."""
    first, count, limit = shape
    rows, places = out
    heap = [(0.0, place) for place in range(count)]
    used = [0] * count
    held = []
    # Micro-batches only grow: what is as long as one that did not fit does not fit either.
    too_long: float = np.inf
    for row in todo:
        length = lengths[row]
        if length >= too_long:
            held.append(row)
            continue
        load, place = heap[0]
        if used[place] + length < limit:
            heapreplace(heap, (load + work[row], place))
        else:
            place = min(range(count), key=used.__getitem__)
            if used[place] + length >= limit:
                held.append(row)
                too_long = length
                continue
            heap[:] = [(w + work[row] if p == place else w, p) for w, p in heap]
            heapify(heap)
        used[place] += length
        rows.append(row)
        places.append(first + place)
    return held


def best_fit(
    docs: Documents, *, context: int, batch_sequences: int, window: int, seed: int = 0
) -> Packed:
    """Best-fit decreasing over a window of batches: whole documents into the fullest that fits.

    The sequences of a window are shuffled afterwards, as a sampler does; in the order of their
    making the first ones would have all the long documents. Sequences are not full, so they
    are more than a plain loader makes; arrival is counted by the sequences made so far.
    """
    rng = np.random.default_rng(seed)
    out: list[Packed] = []
    first = 0
    for rows in windows(docs.batch // window):
        order = rows[np.argsort(-docs.length[rows], kind="stable")]
        places, count = _best_fitting(docs.length[order].tolist(), context)
        micro_batch = first + rng.permutation(count)[places]
        arrived = first + docs.batch[order] % window * count // window
        out.append(
            Packed(
                docs.number[order], docs.start[order], docs.length[order], micro_batch,
                arrived // batch_sequences,
            )
        )  # fmt: skip
        first += count
    return joined(out)


def _best_fitting(lengths: list[int], context: int) -> tuple[Ints, int]:
    """Give the sequence of every document, and how many sequences there are."""
    rooms: list[tuple[int, int]] = []
    places = []
    count = 0
    for length in lengths:
        at = bisect_left(rooms, (length, -1))
        if at < len(rooms):
            room, place = rooms.pop(at)
        else:
            room, place = context, count
            count += 1
        places.append(place)
        if room > length:
            insort(rooms, (room - length, place))
    return np.array(places, np.int64), count


def regrouped(packed: Packed, work: Floats, *, batch_sequences: int, window: int) -> Packed:
    """Sort the micro-batches of a window by work, so that those of one batch are alike.

    Without this, packing over several batches does not balance any of them.
    """
    per_window = batch_sequences * window
    window_of = np.arange(len(work)) // per_window
    order = np.lexsort((-work, window_of))
    rank = np.empty(len(work), np.int64)
    rank[order] = np.arange(len(work))
    packed.micro_batch = rank[packed.micro_batch]
    return packed


def merged(first: Ints, second: Ints) -> Ints:
    """Merge two ascending columns into one, each value once."""
    both = np.sort(np.concatenate([first, second]), kind="stable")
    return both[np.append(np.diff(both) > 0, True)] if len(both) else both


def windows(keys: Ints) -> list[Ints]:
    """Give the rows of each key 0, 1, 2 ... of an ascending column."""
    if not len(keys):
        return []
    edges = np.searchsorted(keys, np.arange(int(keys[-1]) + 2))
    rows = np.arange(len(keys))
    return [rows[a:b] for a, b in pairwise(edges.tolist())]


def _offset(which: Ints, lengths: Ints) -> Ints:
    """Give where each part of a split document begins; parts follow each other."""
    total = np.cumsum(lengths) - lengths
    first = np.concatenate([[True], which[1:] != which[:-1]]) if len(which) else which.astype(bool)
    return total - np.maximum.accumulate(np.where(first, total, 0))


def joined(parts: list[Packed]) -> Packed:
    """Put the pieces of several windows into one."""
    empty = np.empty(0, np.int64)

    def of(name: str) -> Ints:
        return np.concatenate([empty, *(getattr(part, name) for part in parts)])

    return Packed(of("number"), of("start"), of("length"), of("micro_batch"), of("arrived"))
