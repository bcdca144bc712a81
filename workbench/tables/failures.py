"""Tables of failures, of the flight recorder and of goodput."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import Column, Table
from workbench.tables.traces import SAYS_SYNTHETIC, flagged_text

# Failure logs as loaded: what failed, what the job did meanwhile, and which nodes there are.

_TIME = "ns since the Unix epoch, or since the log began where `clock` is own"

FAILURES = Table(
    "failures",
    "One row per incident, in order of time; repeated and follow-on lines are folded into it, "
    "and so are those of all devices of a node and of all ranks of a job. The line that leads it "
    "gives everything but the times, the severity (the worst), the lists and the counts.",
    {
        "start_ns": Column("Int64", f"first line of the incident; {_TIME}", nullable=True),
        "end_ns": Column("Int64", f"last line of the incident; {_TIME}", nullable=True),
        "clock": Column(
            "str",
            "epoch (comparable with wall time), own (arbitrary zero) or none (no time recorded)",
        ),
        "node": Column(
            "str",
            "host; missing where ranks of several hosts report and none says which is at fault",
            nullable=True,
        ),
        "device": Column(
            "str", "PCI address such as 0000:9b:00, GPU index, NIC or port", nullable=True
        ),
        "rank": Column("Int32", "global rank, the first that reported", lower=0, nullable=True),
        "replica": Column("Int32", "data-parallel replica", lower=0, nullable=True),
        "job": Column("str", "job as its scheduler numbers it", nullable=True),
        "kind": Column(
            "str",
            "who reported it: xid, sxid, amdgpu, kernel (of its host, network or disks), slurm, "
            "slurmstepd, torchelastic, nccl, nvrx, torchft, goodput, kubernetes, dcgm, spot or "
            "megatron",
        ),
        "code": Column("str", "code of that reporter: 79, NODE_FAIL, ...", nullable=True),
        "cause": Column("str", "what failed, in words: GPU has fallen off the bus"),
        "category": Column(
            "str",
            "gpu, gpu memory, nvlink, network, host, storage, software, scheduler, planned, "
            "follow-on (reported after another failure; one with none before it is unknown) or "
            "unknown",
        ),
        "severity": Column("str", "fatal (stops the job), warning, info, or unknown"),
        "action": Column("str", "what the reporter's manual asks for: reset GPU", nullable=True),
        "other_codes": Column("str", "further codes folded into the incident: 13, 43"),
        "devices": Column("str", "all devices of the incident: 0000:1b:00, 0000:9b:00"),
        "ranks": Column("str", "all ranks that reported it: 0-6, 8"),
        "rank_count": Column("int64", "how many these are", lower=0),
        "line_count": Column("int64", "lines, or events counted by them, folded in", lower=1),
        "text": Column("str", "the line that leads it, shortened"),
        "source": Column("str", "file, or archive and member"),
        "line": Column("int64", "line, or record, of the file, from 1", lower=1),
        "assumed": Column("str", "what the caller said of its time: zone, year, boot; else empty"),
    },
)

TIMELINE = Table(
    "timeline",
    "What a job did when: one row per job, attempt, replica and state, in order of time.",
    {
        "start_ns": Column("Int64", f"start; {_TIME}", nullable=True),
        "end_ns": Column("Int64", f"end; missing while it lasts; {_TIME}", nullable=True),
        "clock": Column("str", "epoch, own or none, as in `failures`"),
        "job": Column("str", "job as its scheduler numbers it", nullable=True),
        "attempt": Column("Int32", "run of that job, from 1", lower=1, nullable=True),
        "replica": Column("Int32", "data-parallel replica", lower=0, nullable=True),
        "state": Column(
            "str",
            "queued, starting, running, checkpoint, detecting, terminating, allocating, "
            "health check, joining, loading, down, data loading, ended, or another the log names",
        ),
        "outcome": Column("str", "how it ended, as written: COMPLETED, NODE_FAIL", nullable=True),
        "first_step": Column("Int64", "training step at its start", nullable=True),
        "last_step": Column("Int64", "training step at its end", nullable=True),
        "node_count": Column("Int64", "nodes of the job", lower=0, nullable=True),
        "gpu_count": Column("Int64", "GPUs of the job", lower=0, nullable=True),
        "nodes": Column("str", "its hosts, comma-separated", nullable=True),
        "source": Column("str", "file, or archive and member"),
        "line": Column("int64", "line, or record, of the file, from 1", lower=1),
    },
)

INCIDENT_COUNTS = Table(
    "incident_counts",
    "How many incidents there are by the longest pause that is allowed inside one: one row per "
    "window and category.",
    {
        "window_s": Column("float64", "longest pause inside an incident; 0 folds nothing", lower=0),
        "category": Column("str", "category of the line that leads, as in `failures`"),
        "incident_count": Column("int64", "incidents", lower=0),
        "line_count": Column("int64", "lines, or events counted by them, in these", lower=0),
    },
)

NODE_SPANS = Table(
    "nodes",
    "One row per host that the logs name, and the time over which they watched it.",
    {
        "node": Column("str", "host"),
        "first_ns": Column("Int64", f"first mention; {_TIME}", nullable=True),
        "last_ns": Column("Int64", f"last mention; {_TIME}", nullable=True),
        "clock": Column("str", "epoch, own or none, as in `failures`"),
        "gpu_count": Column("Int64", "GPUs, where the log says so", lower=0, nullable=True),
        "failure_count": Column("int64", "incidents of this host", lower=0),
    },
)

SLURM_RECORDS = Table(
    "slurm_records",
    "One row per record of sacct, in order of the file; its other columns follow, as text.",
    {
        "line": Column("int64", "first line of the record in the file, from 1", lower=1),
        "JobID": Column("str", "job, or step of a job, as sacct writes it"),
        "State": Column("str", "state, as sacct writes it"),
    },
)


@dataclass(frozen=True, eq=False)
class FailureLog:
    """The tables of the failure logs of one load; a plain bundle without methods."""

    failures: pd.DataFrame
    timeline: pd.DataFrame
    nodes: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any of the files says that it was simulated; figures should say so too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Say what was loaded, and list the first findings that need a look."""
        lines = int(self.failures["line_count"].sum())
        return (
            f"FailureLog: {len(self.failures):,} incidents from {lines:,} lines or events, "
            f"{len(self.timeline):,} states, {len(self.nodes):,} nodes"
            f"; {flagged_text(self.quality)}"
        )


# NCCL flight-recorder dumps as loaded, and what they tell of a hang.

_EPOCH = "ns since the Unix epoch, by the clock of the rank's host"

FLIGHT_RANKS = Table(
    "ranks",
    "One row per rank that left a dump.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "rank_source": Column(
            "str", "argument, file name, groups (it is the only rank in all of them) or assumed"
        ),
        "node": Column("str", "host, where the file name states it", nullable=True),
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


# Goodput under failures: when things failed, where the GPU time went, and what would change it.

# What a restart consists of, in order, and its column of the table of failures; the last is for
# recoveries nobody took apart.
RESTART_PHASES: Mapping[str, str] = {
    "detection": "detection_min",
    "allocation": "allocation_min",
    "NCCL init": "init_min",
    "checkpoint load": "load_min",
    "first step": "first_step_min",
    "recovery": "other_min",
}
_SHARE = "share of GPU time"

FAILURE_TIMES = Table(
    "failure_times",
    "One row per failure, or replica hit by it: when it struck, whom, and how long each phase of "
    "its recovery takes.",
    {
        "run": Column("int32", "simulated history it belongs to; 0 for a log", lower=0),
        "time_min": Column(
            "float64",
            "when it struck, from the beginning of the run; before 0: its recovery still reaches "
            "into the run",
        ),
        "node": Column("Int64", "number of the node", lower=0, nullable=True),
        "replica": Column("Int32", "replica it hit; missing: all of them", lower=0, nullable=True),
        "wait_min": Column("float64", "waiting for a spare node", lower=0),
        "detection_min": Column("float64", "until it is noticed", lower=0),
        "allocation_min": Column("float64", "until nodes are assigned", lower=0),
        "init_min": Column("float64", "NCCL initialisation", lower=0),
        "load_min": Column("float64", "loading the checkpoint", lower=0),
        "first_step_min": Column("float64", "first step, beyond a usual one", lower=0),
        "other_min": Column("float64", "recovery that is not taken apart", lower=0),
        "repair_min": Column("float64", "until the node is a spare again", lower=0, nullable=True),
        "is_follow_on": Column("bool", "a further replica hit by the failure of the row before"),
    },
)

SLOW_TIMES = Table(
    "slow_times",
    "One row per time that a straggler slows the whole job down.",
    {
        "run": Column("int32", "simulated history it belongs to; 0 for a log", lower=0),
        "start_min": Column("float64", "when it begins, from the beginning of the run"),
        "dur_min": Column("float64", "how long it lasts", lower=0),
        "speed_ratio": Column("float64", "speed of the job meanwhile; 1 is full", 0, 1),
    },
)

GOODPUT = Table(
    "goodput",
    "Where the GPU time goes: one row per state, shares sum to 1.",
    {
        "state": Column(
            "str",
            "productive, lost work, checkpoint, straggler, waiting for a spare, a phase of the "
            "restart, global stall or its phases, re-join stall, degraded capacity",
        ),
        "scope": Column("str", "whom it stops: nobody, all GPUs, failed replica"),
        "gpu_time_share": Column("float64", _SHARE, lower=0, upper=1),
        "low_share": Column(
            "float64", "lower end of its 95 % interval; missing if exact", 0, 1, nullable=True
        ),
        "high_share": Column("float64", "upper end of the same", 0, 1, nullable=True),
        "convention": Column("str", "interval, poisson, renewal or replay"),
    },
)

GOODPUT_RUNS = Table(
    "goodput_runs",
    "Where the GPU time of every run went: one row per run and state.",
    {
        "run": Column("int32", "simulated history, or 0 for a log", lower=0),
        "failure_count": Column("int64", "failures that struck within the run", lower=0),
        "state": Column("str", "as in `goodput`"),
        "scope": Column("str", "whom it stops: nobody, all GPUs, failed replica"),
        "gpu_time_share": Column("float64", _SHARE, lower=0, upper=1),
    },
)

GOODPUT_WINDOWS = Table(
    "goodput_windows",
    "The productive share of every window of every run.",
    {
        "run": Column("int32", "simulated history, or 0 for a log", lower=0),
        "start_min": Column("float64", "beginning of the window", lower=0),
        "productive_share": Column("float64", _SHARE, lower=0, upper=1),
    },
)

GOODPUT_SWEEP = Table(
    "goodput_sweep",
    "The productive share while one input is varied.",
    {
        "parameter": Column("str", "input that is varied, e.g. replicas"),
        "value": Column("float64", "its value, in the unit its name ends in"),
        "convention": Column("str", "interval, poisson or renewal"),
        "productive_share": Column(
            "float64", f"{_SHARE}; missing where the convention has no answer", 0, 1, nullable=True
        ),
    },
)

GOODPUT_LADDER = Table(
    "goodput_ladder",
    "From one case to another, one change at a time.",
    {
        "change": Column("str", "what this row changes against the row before"),
        "convention": Column("str", "interval, poisson or renewal"),
        "productive_share": Column("float64", _SHARE, lower=0, upper=1),
        "gain_ratio": Column("float64", "against the row before; may be negative", -1, 1),
        "printed_share": Column("float64", "as published, where it is", 0, 1, nullable=True),
    },
)

GOODPUT_SENSITIVITY = Table(
    "goodput_sensitivity",
    "What halving or doubling one input does, the largest effect first.",
    {
        "parameter": Column("str", "input that is changed"),
        "value": Column("float64", "its value in the base case, in the unit its name ends in"),
        "base_share": Column("float64", f"{_SHARE} that is productive in the base case", 0, 1),
        "halved_share": Column("float64", "with half of it", 0, 1, nullable=True),
        "doubled_share": Column("float64", "with twice of it", 0, 1, nullable=True),
    },
)

GOODPUT_AT_SCALE = Table(
    "goodput_at_scale",
    "The productive share against the size of the job, with and without fault tolerance.",
    {
        "gpu_count": Column("int64", "GPUs of the job", lower=1),
        "replica_count": Column("int64", "replicas that fail alone", lower=1),
        "failure_interval_min": Column("float64", "mean time between failures of the job", lower=0),
        "recovery_min": Column("float64", "recovery of the synchronous job", lower=0),
        "synchronous_share": Column(
            "float64",
            "full restart; missing where the convention has no answer",
            0,
            1,
            nullable=True,
        ),
        "replica_share": Column("float64", "only the failed replica restarts", 0, 1, nullable=True),
        "convention": Column("str", "interval or poisson"),
    },
)

CHECKPOINT_CURVE = Table(
    "checkpoint_curve",
    "The productive share of a synchronous job against its checkpoint interval.",
    {
        "checkpoint_interval_min": Column("float64", "useful time between checkpoints", lower=0),
        "productive_share": Column("float64", "exact, failures are a Poisson process", 0, 1),
        "lost_work_share": Column("float64", "work done again", 0, 1),
        "checkpoint_share": Column("float64", "writing checkpoints", 0, 1),
        "recovery_share": Column("float64", "restarting", 0, 1),
        "first_order_ratio": Column(
            "float64", "expected ETTR by the first-order formula; wrong where losses are large"
        ),
    },
)

CHECKPOINT_OPTIMUM = Table(
    "checkpoint_optimum",
    "The best checkpoint interval by three methods.",
    {
        "method": Column("str", "Young, Daly or numeric"),
        "checkpoint_interval_min": Column("float64", "useful time between checkpoints", lower=0),
        "productive_share": Column("float64", "exact share at that interval", 0, 1),
    },
)

EXPECTED_ETTR = Table(
    "expected_ettr",
    "Effective training time by the first-order formula, beside the exact one.",
    {
        "gpu_count": Column("int64", "GPUs of the job", lower=1),
        "failure_interval_min": Column("float64", "mean time between failures of the job", lower=0),
        "first_order_ratio": Column("float64", "the formula; below 0 it has left its range"),
        "exact_share": Column("float64", "Daly's efficiency for the same inputs", 0, 1),
        "loss_ratio": Column(
            "float64",
            "failures x (restart + half a checkpoint interval): what must stay small",
            lower=0,
        ),
        "verdict": Column("str", "valid, doubtful (over 0.2 lost per unit of time) or invalid"),
    },
)

SPARES = Table(
    "spares",
    "The productive share against the number of spare nodes.",
    {
        "spare_count": Column("int64", "spare nodes", lower=0),
        "productive_share": Column("float64", "mean over the runs", 0, 1),
        "low_share": Column("float64", "lower end of its 95 % interval", 0, 1, nullable=True),
        "high_share": Column("float64", "upper end of the same", 0, 1, nullable=True),
        "wait_min": Column("float64", "mean waiting for a spare per failure", lower=0),
        "offered_load_ratio": Column("float64", "nodes in repair on average", lower=0),
    },
)
