"""Waits between the ranks of a hang, from their flight-recorder dumps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import (
    FLIGHT_ENTRIES,
    FLIGHT_GROUPS,
    FLIGHT_RANKS,
    FLIGHT_STATUS,
    FLIGHT_WAITS,
    FlightRecording,
)


class Wait(NamedTuple):
    """One rank that waits for another one; the columns of FLIGHT_WAITS."""

    rank: int
    group: str | None
    operation: str
    kind: str
    seq: int | None
    record: int
    waits_for: int
    why: str
    waits_for_seq: int | None
    is_sure: bool


class _Lag(NamedTuple):
    rank: int
    why: str
    seq: int | None
    is_sure: bool


def flight_waits(recording: FlightRecording) -> pd.DataFrame:
    """Find, for every rank that hangs, the ranks that have not arrived where it waits.

    A collective ends when all members of its group have entered it. A rank that holds one
    pending therefore waits for the members that have not called it, and those may wait
    elsewhere for others. Whoever is waited for and waits for nobody is where a hang comes
    from; see :func:`workbench.analyze.flight_suspects`.

    Parameters
    ----------
    recording
        What :func:`workbench.load.flight_recorder` returns.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FLIGHT_WAITS`, one row per waiting operation and rank
        it waits for. Members that have arrived give no row.

    Raises
    ------
    WorkbenchError
        If ``recording`` is something else, e.g. one of its tables.

    Notes
    -----
    NCCL runs the collectives of one group in order, so of each rank and group the first
    that has not completed (its head) is looked at, with sequence number s. A member m with
    last called number c and head h is waited for if

    * c < s: *not called*;
    * c is not known and it has nothing pending in the group: *nothing pending*;
    * h < s <= c: *earlier in the group*: it has called s, and its GPU is not there yet;
    * h = s, the waiting rank has started and m has not, though m's starts are seen: *not
      started*;
    * h = s, but m has an older operation pending in another group, while s is the oldest
      of the waiting rank: *busy elsewhere*;
    * it left no dump: *no dump*.

    A send waits for its receive and the other way round. The k-th pending send to a peer
    meets the k-th pending receive; without one it is *not posted*.

    References
    ----------
    PyTorch, ``torch/csrc/distributed/c10d/FlightRecorderDetail.hpp``; NVIDIA, NCCL user
    guide, "Collective Operations": every rank must call each collective, in one order.
    """
    return waits_table(waits(State(recording)))


def waits_table(edges: list[Wait]) -> pd.DataFrame:
    frame = pd.DataFrame(edges, columns=list(Wait._fields), dtype=object)
    return FLIGHT_WAITS.of(frame.sort_values(["rank", "record", "waits_for"], ignore_index=True))


def waits(state: State) -> list[Wait]:
    lags: dict[Place, list[_Lag]] = {}
    edges: list[Wait] = []
    for head in state.heads():
        collective = (str(head.group), int(head.seq or 0))
        if collective not in lags:
            lags[collective] = list(_lagging(state, collective))
        edges += [_wait(head, lag) for lag in lags[collective] if lag.rank != head.rank]
        edges += [_wait(head, lag) for lag in _not_there(state, head, collective)]
    for ops in state.transfers.values():
        if (lag := _transfer_lag(state, ops[0])) is not None:
            edges.append(_wait(ops[0], lag))
    return edges


def _wait(op: Op, lag: _Lag) -> Wait:
    seq = op.p2p_seq if op.kind == "p2p" else op.seq
    return Wait(
        op.rank, op.group, op.operation, op.kind, seq, op.record,
        lag.rank, lag.why, lag.seq, lag.is_sure,
    )  # fmt: skip


def _lagging(state: State, collective: Place) -> Iterator[_Lag]:
    """Yield the members that have not come as far as a collective."""
    group, seq = collective
    for rank in state.members.get(group, ()):
        called, head = state.called(rank, group), state.head(rank, group)
        if rank not in state.have:
            yield _Lag(rank, "no dump", None, is_sure=False)
        elif called is None:
            yield _Lag(rank, "nothing pending", None, is_sure=False)
        elif called < seq:
            yield _Lag(rank, "not called", called, is_sure=True)
        elif head is not None and int(head.seq or 0) < seq:
            yield _Lag(rank, "earlier in the group", int(head.seq or 0), is_sure=True)


def _not_there(state: State, head: Op, collective: Place) -> Iterator[_Lag]:
    """Yield the members that have called the same collective, and whose GPU is not there."""
    is_front = state.front(head.rank) is head
    if not is_front and head.state != "started":
        return
    for rank, ops in state.calls[collective].items():
        if rank == head.rank or state.head(rank, collective[0]) is not ops[0]:
            continue
        if head.state == "started" and ops[0].state == "scheduled" and rank in state.sees_starts:
            yield _Lag(rank, "not started", collective[1], is_sure=False)
        elif is_front and state.front(rank) is not ops[0]:
            yield _Lag(rank, "busy elsewhere", collective[1], is_sure=False)


def _transfer_lag(state: State, op: Op) -> _Lag | None:
    """Return what a send or receive waits for, if its other side is not there."""
    peer = int(op.peer or 0)
    if peer not in state.have:
        return _Lag(peer, "no dump", None, is_sure=False)
    counterpart = "recv" if op.operation == "send" else "send"
    # Seen from the peer, this rank is the other side.
    met = state.transfers.get((peer, str(op.group), counterpart, op.rank))
    if not met:
        return _Lag(peer, "not posted", None, is_sure=False)
    if state.front(op.rank) is op and state.front(peer) is not met[0]:
        return _Lag(peer, "busy elsewhere", met[0].p2p_seq, is_sure=False)
    return None


# Where every rank stands in every process group, as its flight-recorder dump tells.

# No member can finish one of these before every other has sent its share.
SYNCHRONISING = {
    "all_reduce", "allreduce_coalesced", "barrier", "all_reduce_barrier", "all_gather",
    "_all_gather_base", "all_gather_single", "all_gather_into_tensor_coalesced",
    "ALLGATHER_coalesced", "all_gather_v", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_single", "reduce_scatter_tensor_coalesced", "REDUCE_SCATTER_coalesced",
    "reduce_scatter_v", "all_to_all", "all_to_all_single", "all_to_all_v_single",
}  # fmt: skip


class Op(NamedTuple):
    rank: int
    group: str | None
    record: int
    seq: int | None
    p2p_seq: int | None
    operation: str
    kind: str
    peer: int | None
    state: str
    in_count: int | None
    out_count: int | None
    in_dtypes: str
    out_dtypes: str


Place = tuple[str, int]


class State:
    """Combined evidence of the dumps of all ranks; made once, only read afterwards."""

    def __init__(self, recording: FlightRecording) -> None:
        _check(recording)
        self.have = {int(rank) for rank in recording.ranks["rank"]}
        names = recording.groups["group"].astype(str)
        self.members = {
            group: tuple(int(rank) for rank in str(text).split(",") if rank)
            for group, text in zip(names, recording.groups["members"], strict=True)
        }
        self.description = {
            group: None if pd.isna(text) else str(text)
            for group, text in zip(names, recording.groups["description"], strict=True)
        }
        # Members of these are the ranks that used them; one that never did is not among them.
        self.unlisted = set(names[~recording.groups["is_recorded"]])
        self.ops = list(_ops(recording.entries))
        self.pending: dict[int, list[Op]] = defaultdict(list)
        self.calls: dict[Place, dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
        self.transfers: dict[tuple[int, str, str, int], list[Op]] = defaultdict(list)
        self._heads: dict[tuple[int, str], Op] = {}
        states = _unmixed(recording.entries, recording.status)
        self._called = _called(self.ops, states)
        # By its own count, what every rank saw end.
        self._last_completed = _last(states, "last_completed")
        self._oldest: dict[tuple[int, str], int] = {}
        # In order of record: the first that is pending is the front of its rank.
        for op in self.ops:
            self._add(op)
        # Not every recorder watches starts; where it saw none, a missing start proves nothing.
        self.sees_starts = {op.rank for op in self.ops if op.state == "started"}
        started = recording.entries["started_ns"].notna()
        self.sees_starts |= {int(rank) for rank in recording.entries.loc[started, "rank"]}

    def _add(self, op: Op) -> None:
        is_collective = op.kind == "collective" and op.group is not None and op.seq is not None
        if is_collective:
            self.calls[str(op.group), int(op.seq or 0)][op.rank].append(op)
            self._oldest.setdefault((op.rank, str(op.group)), int(op.seq or 0))
        if op.state == "completed":
            return
        self.pending[op.rank].append(op)
        if is_collective:
            key = (op.rank, str(op.group))
            if key not in self._heads or (op.seq or 0) < (self._heads[key].seq or 0):
                self._heads[key] = op
        elif op.kind == "p2p" and op.peer is not None and op.group is not None:
            self.transfers[op.rank, op.group, op.operation, op.peer].append(op)

    def front(self, rank: int) -> Op | None:
        ops = self.pending.get(rank)
        return ops[0] if ops else None

    def head(self, rank: int, group: str) -> Op | None:
        return self._heads.get((rank, group))

    def heads(self) -> Iterable[Op]:
        return self._heads.values()

    def called(self, rank: int, group: str) -> int | None:
        """Return the last collective of a group that a rank has called, if that is known."""
        return self._called.get((rank, group))

    def completed(self, rank: int, group: str) -> int | None:
        """Return the last collective of a group that a rank has completed, if that is known.

        Nothing older in the dump may mean that older ones ended, or that the recorder was
        too short for all that is pending; the status of the rank knows.
        """
        head = self.head(rank, group)
        by_entries = self.called(rank, group) if head is None else int(head.seq or 0) - 1
        oldest = self._oldest.get((rank, group))
        by_status = self._last_completed.get((rank, group))
        if by_entries is None or by_status is None or (oldest is not None and oldest <= by_entries):
            return by_entries
        return min(by_entries, by_status)

    def has_completed(self, rank: int, collective: Place) -> bool:
        done = self.completed(rank, collective[0])
        return rank in self.have and done is not None and done >= collective[1]

    def has_called(self, rank: int, collective: Place) -> bool:
        called = self.called(rank, collective[0])
        return rank in self.have and called is not None and called >= collective[1]


def _check(recording: object) -> None:
    if not isinstance(recording, FlightRecording):
        kind = type(recording).__name__
        msg = f"a FlightRecording is needed, not a {kind}; pass what load.flight_recorder returns"
        raise WorkbenchError(msg)
    FLIGHT_RANKS.check(recording.ranks)
    FLIGHT_GROUPS.check(recording.groups)
    FLIGHT_STATUS.check(recording.status)
    FLIGHT_ENTRIES.check(recording.entries)


def _ops(entries: pd.DataFrame) -> Iterable[Op]:
    chosen = entries[entries["kind"] != "coalesced"].sort_values(["rank", "record"], kind="stable")
    columns = {}
    for name in Op._fields:
        values = chosen[name].astype(object)
        columns[name] = values.where(values.notna(), None).tolist()
    return map(Op._make, zip(*columns.values(), strict=True))


def _unmixed(entries: pd.DataFrame, status: pd.DataFrame) -> pd.DataFrame:
    """Return the status of groups that only call collectives.

    A rank's status has one number per group, of the operation called last. Where a group
    sends and receives as well, that may be the number of either kind, so it says nothing.
    """
    mixed = entries.loc[entries["kind"] == "p2p", "group"].dropna().astype(str)
    return status[status["group"].notna() & ~status["group"].isin(set(mixed))]


def _called(ops: Iterable[Op], states: pd.DataFrame) -> Mapping[tuple[int, str], int]:
    """Find the last collective that every rank has called in every group."""
    last = _last(states, "last_enqueued")
    recorded: dict[tuple[int, str], int] = {}
    for op in ops:
        if op.group is not None and op.seq is not None:
            key = (op.rank, op.group)
            recorded[key] = max(recorded.get(key, 0), op.seq)
    return last | recorded


def _last(states: pd.DataFrame, column: str) -> dict[tuple[int, str], int]:
    rows = states.dropna(subset=[column])[["rank", "group", column]]
    return {(int(rank), str(group)): int(last) for rank, group, last in rows.to_numpy().tolist()}
