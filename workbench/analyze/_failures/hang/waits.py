"""Who waits for whom in a hang, from the flight-recorder dumps of its ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from workbench.analyze._failures.hang.state import Op, Place, State
from workbench.tables import FLIGHT_WAITS, FlightRecording


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


def waits_table(found: list[Wait]) -> pd.DataFrame:
    """Make table FLIGHT_WAITS."""
    if not found:
        return FLIGHT_WAITS.empty()
    frame = pd.DataFrame(found, columns=list(Wait._fields), dtype=object)
    frame = frame.sort_values(["rank", "record", "waits_for"], ignore_index=True)
    return FLIGHT_WAITS.check(FLIGHT_WAITS.cast(frame))


def waits(state: State) -> list[Wait]:
    """Return every wait of one rank for another one."""
    lags: dict[Place, list[_Lag]] = {}
    found: list[Wait] = []
    for head in state.heads():
        place = (str(head.group), int(head.seq or 0))
        if place not in lags:
            lags[place] = list(_lagging(state, place))
        found += [_wait(head, lag) for lag in lags[place] if lag.rank != head.rank]
        found += [_wait(head, lag) for lag in _not_there(state, head, place)]
    for ops in state.transfers.values():
        if (lag := _transfer_lag(state, ops[0])) is not None:
            found.append(_wait(ops[0], lag))
    return found


def _wait(op: Op, lag: _Lag) -> Wait:
    seq = op.p2p_seq if op.kind == "p2p" else op.seq
    return Wait(
        op.rank, op.group, op.operation, op.kind, seq, op.record,
        lag.rank, lag.why, lag.seq, lag.is_sure,
    )  # fmt: skip


def _lagging(state: State, place: Place) -> Iterator[_Lag]:
    """Give the members that have not come as far as a collective."""
    group, seq = place
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


def _not_there(state: State, head: Op, place: Place) -> Iterator[_Lag]:
    """Give the members that have called the same collective, and whose GPU is not there."""
    is_front = state.front(head.rank) is head
    if not is_front and head.state != "started":
        return
    for rank, ops in state.calls[place].items():
        if rank == head.rank or state.head(rank, place[0]) is not ops[0]:
            continue
        if head.state == "started" and ops[0].state == "scheduled" and rank in state.sees_starts:
            yield _Lag(rank, "not started", place[1], is_sure=False)
        elif is_front and state.front(rank) is not ops[0]:
            yield _Lag(rank, "busy elsewhere", place[1], is_sure=False)


def _transfer_lag(state: State, op: Op) -> _Lag | None:
    """Return what a send or receive waits for, if its other side is not there."""
    peer = int(op.peer or 0)
    if peer not in state.have:
        return _Lag(peer, "no dump", None, is_sure=False)
    other = "recv" if op.operation == "send" else "send"
    met = state.transfers.get((peer, str(op.group), other, op.rank))
    if not met:
        return _Lag(peer, "not posted", None, is_sure=False)
    if state.front(op.rank) is op and state.front(peer) is not met[0]:
        return _Lag(peer, "busy elsewhere", met[0].p2p_seq, is_sure=False)
    return None
