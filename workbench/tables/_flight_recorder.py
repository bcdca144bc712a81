"""NCCL flight-recorder dumps as loaded, and what they tell of a hang."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables._table import Column, Table
from workbench.tables._traces import SAYS_SYNTHETIC, flagged_text

_EPOCH = "ns since the Unix epoch, by the clock of the rank's host"

FLIGHT_RANKS = Table(
    "ranks",
    "One row per rank that left a dump.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "rank_source": Column(
            "str", "argument, file name, groups (it is the only rank in all of them) or assumed"
        ),
        "node": Column("str", "host, where the file name tells one", nullable=True),
        "source": Column("str", "file, or archive and member"),
        "version": Column("str", "version of the dump format, e.g. 2.9", nullable=True),
        "nccl_version": Column("str", "version of NCCL, e.g. 2.27.3", nullable=True),
        "entry_count": Column("int64", "operations in the dump", lower=0),
        "pending_count": Column("int64", "of them not completed", lower=0),
        "first_ns": Column("Int64", f"oldest operation was called; {_EPOCH}", nullable=True),
        "last_ns": Column("Int64", f"newest operation was called; {_EPOCH}", nullable=True),
    },
)

FLIGHT_GROUPS = Table(
    "groups",
    "One row per process group, by name and members.",
    {
        "group": Column("str", "its name; with members where several groups share one name"),
        "description": Column("str", "what it is for: TENSOR_MODEL_PARALLEL_GROUP", nullable=True),
        "members": Column("str", "global ranks in order of group rank, comma-separated"),
        "group_size": Column("int32", "members", lower=0),
        "dumped_count": Column("int64", "members that left a dump", lower=0),
        "is_recorded": Column("bool", "members stand in a dump; else those that used the group"),
    },
)

FLIGHT_STATUS = Table(
    "status",
    "One row per rank and process group that it used: where it stands by its own count.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "local_group": Column("str", "number of the group inside this rank (pg_id)"),
        "group": Column("str", "group, where it can be told which it is", nullable=True),
        "joined_by": Column(
            "str", "entries (they name both), order (both count groups as made) or none"
        ),
        "last_enqueued": Column("Int64", "sequence number last called", nullable=True),
        "last_started": Column(
            "Int64", "last seen to start; missing where starts are not watched", nullable=True
        ),
        "last_completed": Column("Int64", "last seen to complete", nullable=True),
    },
)

FLIGHT_ENTRIES = Table(
    "entries",
    "One row per recorded operation, by rank in the order of the calls.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "group": Column("str", "process group", nullable=True),
        "record": Column("Int64", "number of the record in its rank; older is smaller"),
        "seq": Column("Int64", "sequence number of collectives in the group", nullable=True),
        "p2p_seq": Column("Int64", "sequence number of sends and receives", nullable=True),
        "op": Column("Int64", "number of the operation in the group", nullable=True),
        "operation": Column("str", "all_reduce, _all_gather_base, send, recv, coalesced, ..."),
        "kind": Column("category", "collective, p2p, or coalesced (stands for a batch of them)"),
        "peer": Column("Int32", "other rank of a send or receive", lower=0, nullable=True),
        "in_sizes": Column("str", "shapes sent, e.g. 2048x5120; several are ;-separated"),
        "out_sizes": Column("str", "shapes received"),
        "in_count": Column("Int64", "elements sent", lower=0, nullable=True),
        "out_count": Column("Int64", "elements received", lower=0, nullable=True),
        "in_dtypes": Column("str", "their element types, ;-separated"),
        "out_dtypes": Column("str", "element types received"),
        "state": Column(
            "category",
            "scheduled (called), started or completed on the GPU, or unknown; starts are seen "
            "only with TORCH_NCCL_ENABLE_TIMING; members of a batch have the state of the batch",
        ),
        "created_ns": Column("Int64", f"called; {_EPOCH}", nullable=True),
        "started_ns": Column("Int64", f"seen to have started; {_EPOCH}", nullable=True),
        "completed_ns": Column("Int64", f"seen to have completed; {_EPOCH}", nullable=True),
        "timeout_ms": Column("Int64", "after which the watchdog gives up", nullable=True),
        "retired": Column("boolean", "no longer watched", nullable=True),
        "frame": Column("str", "innermost line of the Python stack that is not torch's own, if "
                        "stacks were recorded", nullable=True),
    },
)  # fmt: skip

FLIGHT_WAITS = Table(
    "flight_waits",
    "One row per pending operation at the head of its queue and rank it waits for.",
    {
        "rank": Column("int32", "rank that waits", lower=0),
        "group": Column("str", "process group", nullable=True),
        "operation": Column("str", "operation it waits in"),
        "kind": Column("str", "collective or p2p"),
        "seq": Column("Int64", "its sequence number; of p2p that of the waiting rank"),
        "record": Column("Int64", "its record in the waiting rank"),
        "waits_for": Column("int32", "rank that has not arrived", lower=0),
        "why": Column(
            "str",
            "not called, nothing pending, not posted (p2p), earlier in the group, not started, "
            "busy elsewhere (an older operation of its own is pending) or no dump",
        ),
        "waits_for_seq": Column("Int64", "where that rank stands in the group", nullable=True),
        "is_sure": Column("bool", "follows from sequence numbers"),
    },
)

FLIGHT_POSITIONS = Table(
    "flight_positions",
    "One row per rank and process group it belongs to: what is pending, and where it stands.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "group": Column("str", "process group"),
        "description": Column("str", "what the group is for", nullable=True),
        "has_dump": Column("bool", "the rank left a dump"),
        "pending_count": Column("Int64", "operations not completed", lower=0, nullable=True),
        "enqueued_seq": Column("Int64", "last collective called", nullable=True),
        "completed_seq": Column("Int64", "last collective completed", nullable=True),
        "behind_count": Column(
            "Int64", "collectives its members have called and it has not", lower=0, nullable=True
        ),
        "confidence": Column(
            "str", "with which the rank is a suspect: high, medium, low; none if it is no suspect"
        ),
        "reason": Column("str", "why the rank is a suspect; empty if it is none"),
        "verdict": Column("str", "found, cannot tell or nothing hangs, as in `flight_suspects`"),
    },
)

FLIGHT_SUSPECTS = Table(
    "flight_suspects",
    "One row per suspect, most certain first; one row without a rank where there is none.",
    {
        "rank": Column("Int32", "suspected rank; missing where nobody is", lower=0, nullable=True),
        "confidence": Column("str", "high, medium, low; none without a rank"),
        "reason": Column(
            "str",
            "never arrived, mismatch, stalled, not started, stopped early, no dump, deadlock, "
            "all entered, nothing pending or nothing hangs",
        ),
        "group": Column("str", "process group where it shows", nullable=True),
        "description": Column("str", "what that group is for", nullable=True),
        "seq": Column("Int64", "sequence number there", nullable=True),
        "operation": Column("str", "operation there", nullable=True),
        "waiting_count": Column(
            "int64", "ranks that wait for it, directly or through others", lower=0
        ),
        "pending_count": Column("Int64", "operations it has not completed", lower=0, nullable=True),
        "evidence": Column("str", "what the dumps say, in words"),
        "verdict": Column("str", "of all rows together: found, cannot tell or nothing hangs"),
    },
)


@dataclass(frozen=True, eq=False)
class FlightRecording:
    """The tables of the flight-recorder dumps of one hang; a plain bundle without methods."""

    ranks: pd.DataFrame
    groups: pd.DataFrame
    status: pd.DataFrame
    entries: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any of the files says that it was simulated; figures should say so too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Say what was loaded, and list the first findings that need a look."""
        pending = int(self.ranks["pending_count"].sum())
        return (
            f"FlightRecording of {len(self.ranks):,} ranks: {len(self.entries):,} operations, "
            f"{pending:,} of them pending, in {len(self.groups):,} groups"
            f"; {flagged_text(self.quality)}"
        )
