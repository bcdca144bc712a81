"""The roots of a hang: ranks that are waited for and wait for nobody."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from workbench.analyze._failures.hang.waits import SYNCHRONISING, Op, Place, State, Wait


class Suspect(NamedTuple):
    """A suspected rank and why; the columns of FLIGHT_SUSPECTS that are not counted later."""

    rank: int | None
    confidence: str
    reason: str
    group: str | None = None
    seq: int | None = None
    operation: str | None = None
    evidence: str = ""
    waiting_count: int = 0


def roots(state: State, waits: list[Wait]) -> Iterator[Suspect]:
    """Yield every root with its reason, and ranks that stopped although they wait."""
    stalled: dict[int | None, Suspect] = {}
    for suspect in _stalled(state):
        stalled.setdefault(suspect.rank, suspect)
    edges = [wait for wait in waits if wait.rank not in stalled]
    incoming: dict[int, list[Wait]] = defaultdict(list)
    for wait in waits:
        incoming[wait.waits_for].append(wait)
    yield from stalled.values()
    early: dict[int, Suspect] = {}
    for rank, reasons in incoming.items():
        stopped = None if rank in stalled else _stopped_early(state, rank, reasons)
        if stopped is not None:
            early[rank] = stopped
    yield from early.values()
    for ranks in _ends(state, edges):
        # Who stopped by itself closes a circle; the others in it are its victims.
        if not ranks & early.keys():
            for rank in ranks - stalled.keys():
                yield _root(state, rank, ranks, incoming[rank])


def _ends(state: State, edges: list[Wait]) -> Iterator[set[int]]:
    """Yield the sets of ranks that wait for nobody outside: one rank, or a circle."""
    ranks = sorted({*state.have, *(edge.waits_for for edge in edges)})
    start = np.searchsorted(ranks, np.array([edge.rank for edge in edges], dtype=np.int64))
    end = np.searchsorted(ranks, np.array([edge.waits_for for edge in edges], dtype=np.int64))
    graph = scipy.sparse.coo_array(
        (np.ones(len(edges)), (start, end)), shape=(len(ranks), len(ranks))
    )
    # Ranks that wait for each other in a circle are one strongly connected component.
    count, component = scipy.sparse.csgraph.connected_components(
        graph, directed=True, connection="strong"
    )
    leaves = np.zeros(count, dtype=bool)
    # An edge to another component means that somebody inside waits for somebody outside.
    leaves[component[start][component[start] != component[end]]] = True
    components: dict[int, set[int]] = defaultdict(set)
    for rank, number in zip(ranks, component.tolist(), strict=True):
        components[number].add(rank)
    awaited = {edge.waits_for for edge in edges}
    for number, members in components.items():
        hangs = any(state.pending.get(rank) or rank in awaited for rank in members)
        if not leaves[number] and hangs:
            yield members


def _root(state: State, rank: int, ends: set[int], incoming: list[Wait]) -> Suspect:
    if len(ends) > 1:
        return _in_a_circle(rank, ends, incoming)
    if rank not in state.have:
        return _no_dump(state, rank, incoming)
    front = state.front(rank)
    if front is None:
        return _never_arrived(state, rank, incoming)
    if behind := [wait for wait in incoming if wait.why == "not started"]:
        wait = behind[0]
        words = f"has called {_named(wait)} and not started it; rank {wait.rank} has"
        return _suspect(rank, "medium", "not started", wait, words)
    return Suspect(
        rank, "low", "all entered", front.group, _number(front), front.operation,
        f"its oldest pending operation is {_op_named(front)}; whom that involves is there, and "
        "nobody is through",
    )  # fmt: skip


def _stalled(state: State) -> Iterator[Suspect]:
    for head in sorted(state.heads(), key=lambda op: op.record):
        collective = (str(head.group), int(head.seq or 0))
        peers = [rank for rank in state.members.get(collective[0], ()) if rank != head.rank]
        through = [rank for rank in peers if state.has_completed(rank, collective)]
        is_proof = head.operation in SYNCHRONISING or len(through) == len(peers)
        if not through or not is_proof:
            continue
        words = (
            f"has not completed {_op_named(head)}, which rank {listed(through, most=4)} "
            "completed: its GPU or its link failed, or its dump is older"
        )
        yield Suspect(head.rank, "medium", "stalled", head.group, head.seq, head.operation, words)


def _never_arrived(state: State, rank: int, incoming: list[Wait]) -> Suspect:
    """Weigh how many of the others have arrived where a rank is missing."""
    # Of equal ones the oldest call: ranks that run one program count their calls alike.
    wait = min(incoming, key=lambda wait: (-_weight(state, rank, wait), wait.record, wait.rank))
    share = _arrived(state, rank, wait)
    confidence = "medium" if share >= 1 / 2 else "low"
    if wait.is_sure and share == 1:
        confidence = "high"
    words = "waits for nobody"
    if wait.waits_for_seq is not None:
        words += f", last called number {wait.waits_for_seq:,} of group {wait.group}"
    peers = len(state.members.get(str(wait.group), ())) - 1
    if wait.kind == "p2p":
        words += f"; rank {wait.rank} waits in a {wait.operation}"
    else:
        count = f"{round(share * peers):,} of {peers:,}"
        words += f"; {count} other members have called {_named(wait)}"
    return _suspect(rank, confidence, "never arrived", wait, words)


def _weight(state: State, rank: int, wait: Wait) -> float:
    return 2 * _arrived(state, rank, wait) + wait.is_sure + (wait.kind == "collective") / 2


def _arrived(state: State, rank: int, wait: Wait) -> float:
    """Return the share of the other members that have called what a rank is awaited in."""
    if wait.kind == "p2p" or wait.group is None or wait.seq is None:
        return 1 / 2
    peers = [member for member in state.members[wait.group] if member != rank]
    arrived = sum(state.has_called(peer, (wait.group, wait.seq)) for peer in peers)
    return arrived / len(peers) if peers else 0.0


def _no_dump(state: State, rank: int, incoming: list[Wait]) -> Suspect:
    """Suspect a rank without a dump if nothing else is missing somewhere."""
    alone = [wait for wait in incoming if _explains_alone(state, wait)]
    wait = (alone or incoming)[0]
    words = f"left no dump; rank {wait.rank} waits in {_named(wait)}"
    if alone:
        words += ", which every member with a dump has called"
    return _suspect(rank, "medium" if alone else "low", "no dump", wait, words)


def _explains_alone(state: State, wait: Wait) -> bool:
    members = state.members.get(str(wait.group), ())
    if wait.kind == "p2p" or wait.seq is None:
        return False
    collective = (str(wait.group), wait.seq)
    with_dump = [rank for rank in members if rank in state.have]
    heads = [state.head(rank, collective[0]) for rank in with_dump]
    return 2 * len(with_dump) > len(members) and all(
        head is not None and head.seq == wait.seq for head in heads
    )


def _in_a_circle(rank: int, ends: set[int], incoming: list[Wait]) -> Suspect:
    """Suspect ranks that wait for each other; only numbers of collectives prove it."""
    inside = [wait for wait in incoming if wait.rank in ends]
    hard = [wait for wait in inside if wait.why == "not called"]
    wait = (hard or inside)[0]
    words = f"ranks {listed(sorted(ends))} wait for each other, "
    words += f"rank {wait.rank} for this one in {_named(wait)}"
    return _suspect(rank, "medium" if hard else "low", "deadlock", wait, words)


def _stopped_early(state: State, rank: int, incoming: list[Wait]) -> Suspect | None:
    """Suspect a rank that waits, if a peer held up by the same operations went on."""
    for wait in incoming:
        if wait.why != "not called":
            continue
        held, peer_held = _held_by(state, rank, wait.rank), _held_by(state, wait.rank, rank)
        if held and peer_held and held <= peer_held:
            words = (
                f"has not called {_named(wait)}, though rank {wait.rank}, which the same "
                "operations hold up, has: its host stopped on its own"
            )
            return _suspect(rank, "medium", "stopped early", wait, words)
    return None


def _held_by(state: State, rank: int, peer: int) -> frozenset[tuple[str, str, int]] | None:
    """Return what a rank has pending, so that it can be compared with another one.

    Members of one group run the same program. So an operation in a group that the other
    rank is not in is the same as one of that rank that has the same name and number in a
    group of the same purpose.
    """
    ops = state.pending.get(rank, [])
    if any(op.group is None or _number(op) is None for op in ops):
        return None
    return frozenset(
        (_comparable(state, str(op.group), peer), op.operation, _number(op) or 0) for op in ops
    )


def _comparable(state: State, group: str, peer: int) -> str:
    purpose = state.description.get(group)
    return group if purpose is None or peer in state.members[group] else f"any {purpose}"


def _suspect(rank: int, confidence: str, reason: str, wait: Wait, words: str) -> Suspect:
    return Suspect(rank, confidence, reason, wait.group, wait.seq, wait.operation, words)


def listed(ranks: Sequence[int], *, most: int = 8) -> str:
    return ", ".join(map(str, ranks[:most])) + (", ..." if len(ranks) > most else "")


def _named(wait: Wait) -> str:
    number = f" {wait.seq:,}" if wait.seq is not None else ""
    return f"{wait.operation}{number} of group {wait.group}"


def _op_named(op: Op) -> str:
    number = _number(op)
    with_peer = f" with rank {op.peer}" if op.peer is not None else ""
    name = op.operation if number is None else f"{op.operation} {number:,}"
    return f"{name} of group {op.group}{with_peer}"


def _number(op: Op) -> int | None:
    return op.p2p_seq if op.kind == "p2p" else op.seq


# Every member gives and takes as much as every other one.
_EQUAL_SIZES = {
    "all_reduce", "allreduce_coalesced", "broadcast", "reduce", "_all_gather_base",
    "all_gather_single", "_reduce_scatter_base", "reduce_scatter_single",
}  # fmt: skip


class _Call(NamedTuple):
    operations: tuple[str, ...]
    details: tuple[tuple[object, ...], ...]

    def words(self, position: int) -> str:
        name = self.operations[position] if position < len(self.operations) else "nothing"
        sent, received, *dtypes = (
            self.details[position] if position < len(self.details) else (None, None)
        )
        counts = [f"{count:,}" for count in (sent, received) if isinstance(count, int)]
        words = ["of " + " to ".join(counts)] if counts else []
        types = [str(dtype) for dtype in dict.fromkeys(dtypes) if dtype]
        return " ".join([name, *words, *([f"({' to '.join(types)})"] if types else [])])


def mismatches(state: State) -> Iterator[Suspect]:
    """Yield the ranks that called something else than their peers, in the first such place."""
    first: dict[str, int] = {}
    for (group, seq), ranks in state.calls.items():
        calls = {rank: _call(ops) for rank, ops in ranks.items()}
        is_open = any(op.state != "completed" for ops in ranks.values() for op in ops)
        if len(set(calls.values())) > 1 and is_open:
            first[group] = min(seq, first.get(group, seq))
    for group, seq in first.items():
        ranks = state.calls[group, seq]
        yield from _odd_ones((group, seq), {rank: _call(ops) for rank, ops in ranks.items()})


def _call(ops: list[Op]) -> _Call:
    counts = [
        (op.in_count, op.out_count) if op.operation in _EQUAL_SIZES else (None, None) for op in ops
    ]
    details = [(*sizes, op.in_dtypes, op.out_dtypes) for sizes, op in zip(counts, ops, strict=True)]
    return _Call(tuple(op.operation for op in ops), tuple(details))


def _odd_ones(collective: Place, calls: Mapping[int, _Call]) -> Iterator[Suspect]:
    group, seq = collective
    (usual, count), *minority = Counter(calls.values()).most_common()
    is_tie = bool(minority) and 2 * count <= len(calls)
    for rank, call in calls.items():
        if call == usual and not is_tie:
            continue
        contrast = usual if call != usual else minority[0][0]
        differ = call.operations != contrast.operations
        confidence = "low" if is_tie else "high" if differ else "medium"
        longest = max(len(call.operations), len(contrast.operations))
        differing = (n for n in range(longest) if call.words(n) != contrast.words(n))
        at = next(differing, 0)
        operation = call.operations[min(at, len(call.operations) - 1)]
        like_other = list(calls.values()).count(contrast)
        words = (
            f"as number {seq:,} of group {group} it called {call.words(at)}, "
            f"{like_other:,} of {len(calls):,} members {contrast.words(at)}"
        )
        yield Suspect(rank, confidence, "mismatch", group, seq, operation, words)
