"""How documents become micro-batches: arrays in, arrays out, one function per strategy.

Plain Python where the next choice depends on the last one (a heap of a few micro-batches
is faster than arrays of them), numpy everywhere else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from workbench._shared.numbers import Floats, Ints
from workbench.errors import WorkbenchError

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
    # Whole batches only; what remains at the end of the stream is left over.
    full = int(ends[-1]) // (context * batch_sequences) * batch_sequences if len(ends) else 0
    edges = merged(ends[ends < full * context], np.arange(1, full + 1) * context)
    begin = np.concatenate([[0], edges[:-1]]).astype(np.int64) if len(edges) else edges
    number = np.searchsorted(ends, begin, side="right")
    start = begin - (ends - lengths)[number]
    sequence = begin // context
    return Packed(number, start, edges - begin, sequence, sequence // batch_sequences)


def greedy(pieces: Packed, *, context: int, batch_sequences: int, window: int) -> Packed:
    """Pack the pieces of a plain loader again over a window of batches, the longest first.

    Each piece goes where the sum of squares is smallest and has room; one that fits nowhere
    is split over the emptiest sequences. What does not fill a window is dropped.
    """
    count = batch_sequences * window
    full = int(pieces.length.sum()) // (count * context)
    at = pieces.micro_batch // count
    order = np.lexsort((-pieces.length, at))[: int(np.searchsorted(at, full))]
    edges = np.searchsorted(at, np.arange(full + 1)).tolist()
    lengths = pieces.length[order].tolist()
    placed: Parts = ([], [], [])
    for number, (first, stop) in enumerate(pairwise(edges)):
        _fill(lengths, range(first, stop), (number * count, count, context), placed)
    which, size, sequence = (np.array(column, np.int64) for column in placed)
    rows = order[which]
    # Parts of a split document follow each other.
    total = np.cumsum(size) - size
    is_first = np.diff(which, prepend=-1) != 0
    start = pieces.start[rows] + total - np.maximum.accumulate(np.where(is_first, total, 0))
    return Packed(pieces.number[rows], start, size, sequence, pieces.arrived[rows])


def _fill(lengths: list[int], rows: range, shape: tuple[int, int, int], placed: Parts) -> None:
    """Place descending lengths; note the row, size and sequence of every part.

    Sequences without room for the present length are parked by their room, and come back
    when lengths have fallen to it: every step costs the logarithm of a few sequences.
    """
    first, count, context = shape
    which, sizes, sequences = placed
    open_: list[tuple[int, int]] = [(0, sequence) for sequence in range(count)]
    parked: list[tuple[int, int, int]] = []
    room = [context] * count
    for row in rows:
        length = lengths[row]
        while parked and -parked[0][0] >= length:
            _, square, sequence = heappop(parked)
            heappush(open_, (square, sequence))
        while open_:
            square, sequence = open_[0]
            if room[sequence] >= length:
                heapreplace(open_, (square + length * length, sequence))
                room[sequence] -= length
                which.append(row)
                sizes.append(length)
                sequences.append(first + sequence)
                break
            heappop(open_)
            heappush(parked, (-room[sequence], square, sequence))
        else:
            for sequence, size in _split(parked, room, length):
                which.append(row)
                sizes.append(size)
                sequences.append(first + sequence)


def _split(
    parked: list[tuple[int, int, int]], room: list[int], length: int
) -> list[tuple[int, int]]:
    """Split one document over the sequences with the most room."""
    shares = []
    while length > 0 and parked and parked[0][0]:
        _, square, sequence = heappop(parked)
        size = min(length, room[sequence])
        room[sequence] -= size
        length -= size
        shares.append((sequence, size))
        heappush(parked, (-room[sequence], square + size * size, sequence))
    return shares


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
    # Attention is quadratic, the rest linear, and both are 1 at the crossover.
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
    sequences: list[int] = []
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
            [*held, *released, *at_once.get(batch, ())], lengths, work, (rows, sequences),
            (batch * batch_sequences, batch_sequences, limit),
        )  # fmt: skip
    chosen = np.array(rows, np.int64)
    return Packed(
        docs.number[chosen], docs.start[chosen], docs.length[chosen], np.array(sequences, np.int64),
        docs.batch[chosen],
        waiting={at: np.array(queue, np.int64) for at, queue in enumerate(waiting)},
        held_tokens=sum(lengths[row] for row in held),
        arrivals=np.bincount(level + 1, minlength=len(queues_from) + 1)[1:],
        most_waiting=np.array(most, np.int64),
    )  # fmt: skip


def _by_batch(rows: Ints, batch: Ints) -> dict[int, list[int]]:
    """Return the rows of each batch, in the order they come; batches ascend."""
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
    """Assign documents to micro-batches of one global batch; return those that fit nowhere."""
    first, count, limit = shape
    rows, micro_batches = out
    heap = [(0.0, micro_batch) for micro_batch in range(count)]
    used = [0] * count
    held = []
    # Micro-batches only grow: what is as long as one that did not fit does not fit either.
    too_long: float = np.inf
    for row in todo:
        length = lengths[row]
        if length >= too_long:
            held.append(row)
            continue
        load, micro_batch = heap[0]
        if used[micro_batch] + length < limit:
            heapreplace(heap, (load + work[row], micro_batch))
        else:
            micro_batch = min(range(count), key=used.__getitem__)
            if used[micro_batch] + length >= limit:
                held.append(row)
                too_long = length
                continue
            # Not the least loaded one, so the heap has to be built again.
            heap[:] = [(w + work[row] if p == micro_batch else w, p) for w, p in heap]
            heapify(heap)
        used[micro_batch] += length
        rows.append(row)
        micro_batches.append(first + micro_batch)
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
        sequences, count = _best_fitting(docs.length[order].tolist(), context)
        micro_batch = first + rng.permutation(count)[sequences]
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
    """Return the sequence of every document, and how many sequences there are."""
    rooms: list[tuple[int, int]] = []
    sequences = []
    count = 0
    for length in lengths:
        # Rooms ascend, so the first that is large enough is the tightest.
        at = bisect_left(rooms, (length, -1))
        if at < len(rooms):
            room, sequence = rooms.pop(at)
        else:
            room, sequence = context, count
            count += 1
        sequences.append(sequence)
        if room > length:
            insort(rooms, (room - length, sequence))
    return np.array(sequences, np.int64), count


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
    values = np.sort(np.concatenate([first, second]), kind="stable")
    return values[np.append(np.diff(values) > 0, True)] if len(values) else values


def windows(keys: Ints) -> list[Ints]:
    """Return the rows of each key 0, 1, 2 ... of an ascending column."""
    if not len(keys):
        return []
    edges = np.searchsorted(keys, np.arange(int(keys[-1]) + 2))
    rows = np.arange(len(keys))
    return [rows[a:b] for a, b in pairwise(edges.tolist())]


def joined(packs: list[Packed]) -> Packed:
    empty = np.empty(0, np.int64)

    def of(name: str) -> Ints:
        return np.concatenate([empty, *(getattr(pack, name) for pack in packs)])

    return Packed(of("number"), of("start"), of("length"), of("micro_batch"), of("arrived"))


Strategy: TypeAlias = Literal["plain", "greedy", "solver", "delay queues", "best fit"]

_K = 1024


_WHOLE = ("context_tokens", "batch_sequences", "window_batches")
# memory_ratio: at 1 a document as long as the context would never be packed.
_ABOVE = {"crossover_tokens": 0.0, "memory_ratio": 1.0, "solver_s": 0.0}


def is_whole(value: Any, least: int = 1) -> bool:
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return number and bool(value >= least)


def is_between(value: Any, low: float, high: float) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and bool(low < value < high)


@dataclass(frozen=True)
class PackingPlan:
    """A way of packing documents into global batches.

    Parameters
    ----------
    strategy
        ``"plain"`` concatenates all documents and cuts every context; ``"greedy"`` puts the
        pieces of a window again into sequences of one length, longest first; ``"solver"``
        does that exactly; ``"delay queues"`` packs sequences of any length and lets long
        documents wait for each other (WLB-LLM); ``"best fit"`` is best-fit decreasing with
        whole documents, as trainers ship it.
    context_tokens
        Length of a sequence, and the longest piece of a document.
    batch_sequences
        Micro-batches in a global batch: those of the pipeline times data-parallel ranks.
    crossover_tokens
        Length at which attention costs as much as everything else.
    window_batches
        Global batches that greedy, solver and best fit look at together.
    queues_from_tokens
        Lengths from which documents wait, ascending; only for delay queues.
    memory_ratio
        Tokens a micro-batch must stay below, over the context; only for delay queues.
    slack_ratio
        Tokens by which the solver may exceed the context, over the context.
    solver_s
        Seconds the solver has for each window.

    Raises
    ------
    WorkbenchError
        If a value is impossible; the message lists all of them.
    """

    strategy: Strategy = "plain"
    context_tokens: int = 128 * _K
    batch_sequences: int = 4
    crossover_tokens: float = 28 * _K
    window_batches: int = 1
    queues_from_tokens: tuple[int, ...] = (32 * _K, 64 * _K)
    memory_ratio: float = 1.25
    slack_ratio: float = 0.01
    solver_s: float = 10.0

    def __post_init__(self) -> None:
        values: dict[str, Any] = vars(self)
        if isinstance(values["queues_from_tokens"], list):
            # A plan is a key of dictionaries.
            object.__setattr__(self, "queues_from_tokens", tuple(values["queues_from_tokens"]))
        queues = values["queues_from_tokens"]
        wrong = [
            f"{name} {values[name]!r}, not a whole number of at least 1"
            for name in _WHOLE
            if not is_whole(values[name])
        ]
        wrong += [
            f"{name} {values[name]!r}, not a number above {least:g}"
            for name, least in _ABOVE.items()
            if not is_between(values[name], least, np.inf)
        ]
        if self.strategy not in get_args(Strategy):
            wrong.append(f"strategy {self.strategy!r}, not one of {get_args(Strategy)}")
        if not is_between(self.slack_ratio, -1e-12, 1):
            wrong.append(f"slack_ratio {self.slack_ratio!r}, not from 0 to below 1")
        if not _ascend(queues):
            wrong.append(f"queues_from_tokens {queues!r}, not ascending whole numbers from 1")
        if wrong:
            msg = "impossible packing plan:\n  - " + "\n  - ".join(wrong)
            raise WorkbenchError(msg)

    def label(self) -> str:
        """Name the plan in a few words, without what it shares with others."""
        if self.strategy == "delay queues":
            steps = "/".join(short_tokens(tokens) for tokens in self.queues_from_tokens)
            queues = f"queues from {steps}" if steps else "no queue"
            return f"{queues}, memory {self.memory_ratio:g}x"
        if self.strategy == "plain":
            return "plain"
        batches = "1 batch" if self.window_batches == 1 else f"{self.window_batches} batches"
        return f"{self.strategy}, {batches}"


def _ascend(values: Any) -> bool:
    is_integers = isinstance(values, tuple) and all(is_whole(value) for value in values)
    return is_integers and list(values) == sorted(set(values))


def short_tokens(tokens: int) -> str:
    """Write a number of tokens as people say it: 32K for 32,768."""
    return f"{tokens // _K}K" if tokens % _K == 0 else f"{tokens:,}"


def packing_plans(plan: PackingPlan, windows: Iterable[int] = (1, 2, 4, 8)) -> list[PackingPlan]:
    """List the ways of packing that WLB-LLM compares, for one model and context.

    Parameters
    ----------
    plan
        Its context, batch, crossover, queues and memory are kept.
    windows
        Batches that the greedy packer looks at together, one plan for each.

    Returns
    -------
    list of PackingPlan
        Plain, greedy with each window, no queue, the longest queue alone, all queues.
    """
    queues = plan.queues_from_tokens
    return [
        replace(plan, strategy="plain"),
        *(replace(plan, strategy="greedy", window_batches=window) for window in windows),
        *(
            replace(plan, strategy="delay queues", queues_from_tokens=queues[:count])
            for count in range(len(queues) + 1)
        ),
    ]


_GAP = 0.005


def solved(pieces: Packed, *, context: int, count: int, slack: float, limit_s: float) -> Packed:
    """Assign the pieces of every window to sequences so that the largest sum of squares is least.

    Pieces are not cut again; sequences may exceed the context by the slack. With none the
    lengths of a window must fill every sequence exactly, a subset-sum problem that solvers do
    not finish. A window that is not finished in time keeps the best assignment found.
    """
    out: list[Packed] = []
    unproven = 0
    for at, rows in enumerate(windows(pieces.micro_batch // count)):
        if pieces.length[rows].sum() < count * context:
            break
        sequence, proven = _assigned(pieces.length[rows] / context, count, slack, limit_s)
        unproven += not proven
        out.append(
            Packed(
                pieces.number[rows], pieces.start[rows], pieces.length[rows],
                at * count + sequence, pieces.arrived[rows],
            )
        )  # fmt: skip
    packed = joined(out)
    packed.notes.append(f"sequences up to {1 + slack:g} of the context")
    if unproven:
        packed.notes.append(
            f"{unproven} of {len(out)} windows stopped after {limit_s:g} s at the best found"
        )
    return packed


def _assigned(ratio: Floats, count: int, slack: float, limit_s: float) -> tuple[Ints, bool]:
    """Solve one window: binary x[i, j] = piece i in sequence j, and the largest sum of squares."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix, hstack, identity, kron

    size = len(ratio)
    # Variables: x[0, 0], x[0, 1], ... piece by piece, and the bound on all sums of squares last.
    each_once = hstack(
        [kron(identity(size), np.ones((1, count))), csr_matrix((size, 1))], format="csr"
    )
    per_sequence = kron(ratio[None, :], identity(count))
    fits = hstack([per_sequence, csr_matrix((count, 1))], format="csr")
    squares = kron(ratio[None, :] ** 2, identity(count))
    bounded = hstack([squares, -np.ones((count, 1))], format="csr")
    result = milp(
        c=np.append(np.zeros(size * count), 1.0),
        constraints=[
            LinearConstraint(each_once, 1, 1),
            LinearConstraint(fits, -np.inf, 1 + slack),
            LinearConstraint(bounded, -np.inf, 0),
        ],
        integrality=np.append(np.ones(size * count), 0),
        bounds=Bounds(0, np.append(np.ones(size * count), np.inf)),
        options={"time_limit": limit_s, "mip_rel_gap": _GAP},
    )
    if result.x is None:
        msg = (
            f"the solver found no way to put {size} pieces into {count} sequences in "
            f"{limit_s:g} s; give it more time or more slack, or take the greedy packer"
        )
        raise WorkbenchError(msg)
    return result.x[:-1].reshape(size, count).argmax(axis=1).astype(np.int64), result.status == 0
