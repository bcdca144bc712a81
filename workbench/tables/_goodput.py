"""Goodput under failures: when things failed, where the GPU time went, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.tables._table import Column, Table

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
            "all GPUs restart; missing where the convention has no answer",
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
