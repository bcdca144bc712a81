"""Failure logs as loaded: what failed, what the job did meanwhile, and which nodes there are."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables._table import Column, Table
from workbench.tables._traces import SAYS_SYNTHETIC, flagged_text

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
