"""Where every rank stands in every process group, as its flight-recorder dump tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import FLIGHT_ENTRIES, FLIGHT_GROUPS, FLIGHT_RANKS, FLIGHT_STATUS
from workbench.tables import FlightRecording as Recording

# No member can finish one of these before every other has sent its share.
SYNCHRONISING = {
    "all_reduce", "allreduce_coalesced", "barrier", "all_reduce_barrier", "all_gather",
    "_all_gather_base", "all_gather_single", "all_gather_into_tensor_coalesced",
    "ALLGATHER_coalesced", "all_gather_v", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_single", "reduce_scatter_tensor_coalesced", "REDUCE_SCATTER_coalesced",
    "reduce_scatter_v", "all_to_all", "all_to_all_single", "all_to_all_v_single",
}  # fmt: skip


class Op(NamedTuple):
    """One operation of one rank."""

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
    """What the dumps of all ranks say together; made once, only read afterwards."""

    def __init__(self, recording: Recording) -> None:
        _check(recording)
        self.have = {int(rank) for rank in recording.ranks["rank"]}
        self.members = {
            str(group): tuple(int(rank) for rank in str(text).split(",") if rank)
            for group, text in zip(
                recording.groups["group"], recording.groups["members"], strict=True
            )
        }
        self.description = {
            str(group): None if pd.isna(text) else str(text)
            for group, text in zip(
                recording.groups["group"], recording.groups["description"], strict=True
            )
        }
        self.ops = list(_ops(recording.entries))
        self.pending: dict[int, list[Op]] = defaultdict(list)
        self.calls: dict[Place, dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
        self.transfers: dict[tuple[int, str, str, int], list[Op]] = defaultdict(list)
        self._heads: dict[tuple[int, str], Op] = {}
        states = _unmixed(recording.entries, recording.status)
        self._called = _called(self.ops, states)
        self._last_completed = _last_completed(states)
        self._oldest: dict[tuple[int, str], int] = {}
        for op in self.ops:
            self._add(op)
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
        """Return the oldest operation of a rank that has not completed."""
        ops = self.pending.get(rank)
        return ops[0] if ops else None

    def head(self, rank: int, group: str) -> Op | None:
        """Return the first collective of a group that a rank has not completed."""
        return self._heads.get((rank, group))

    def heads(self) -> Iterable[Op]:
        """Give the first collective not completed of every rank and group."""
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

    def has_completed(self, rank: int, place: Place) -> bool:
        """Say whether it is known that a rank is through with a collective."""
        done = self.completed(rank, place[0])
        return rank in self.have and done is not None and done >= place[1]

    def has_called(self, rank: int, place: Place) -> bool:
        """Say whether it is known that a rank has called a collective."""
        called = self.called(rank, place[0])
        return rank in self.have and called is not None and called >= place[1]


def _check(recording: object) -> None:
    if not isinstance(recording, Recording):
        msg = (
            f"a FlightRecording is needed, not a {type(recording).__name__}; pass what "
            "load.flight_recorder returns"
        )
        raise WorkbenchError(msg)
    for table, frame in (
        (FLIGHT_RANKS, recording.ranks),
        (FLIGHT_GROUPS, recording.groups),
        (FLIGHT_STATUS, recording.status),
        (FLIGHT_ENTRIES, recording.entries),
    ):
        table.check(frame)


def _ops(entries: pd.DataFrame) -> Iterable[Op]:
    """Give the operations in order of their calls, without the stand-ins of batches."""
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
    found: dict[tuple[int, str], int] = {}
    for op in ops:
        if op.group is not None and op.seq is not None:
            key = (op.rank, op.group)
            found[key] = max(found.get(key, 0), op.seq)
    known = states.dropna(subset=["last_enqueued"])
    for rank, group, last in zip(
        known["rank"], known["group"], known["last_enqueued"], strict=True
    ):
        found.setdefault((int(rank), str(group)), int(last))
    return found


def _last_completed(states: pd.DataFrame) -> Mapping[tuple[int, str], int]:
    """Find the last collective that every rank saw end, by its own count."""
    known = states.dropna(subset=["last_completed"])
    return {
        (int(rank), str(group)): int(last)
        for rank, group, last in zip(
            known["rank"], known["group"], known["last_completed"], strict=True
        )
    }
