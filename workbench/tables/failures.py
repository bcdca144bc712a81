"""Tables of failures, of the flight recorder and of goodput; causes and rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import table
from workbench.tables.traces import Loaded, flagged_text

# Failure logs as loaded: what failed, what the job did meanwhile, and which nodes there are.

FAILURES = table("""
    failures: One row per incident, in order of time; repeated and follow-on lines are folded into
    it, and so are those of all devices of a node and of all ranks of a job. The line that leads it
    gives everything but the times, the severity (the worst), the lists and the counts.

    start_ns: Int64? - first line of the incident; ns since the Unix epoch, or since the log began
        where `clock` is own
    end_ns: Int64? - last line of the incident; ns since the Unix epoch, or since the log began
        where `clock` is own
    clock: str - epoch (comparable with wall time), own (arbitrary zero) or none (no time recorded)
    node: str? - host; missing where ranks of several hosts report and none says which is at fault
    device: str? - PCI address such as 0000:9b:00, GPU index, NIC or port
    rank: Int32? >=0 - global rank, the first that reported
    replica: Int32? >=0 - data-parallel replica
    job: str? - job as its scheduler numbers it
    kind: str - who reported it: xid, sxid, amdgpu, kernel (of its host, network or disks), slurm,
        slurmstepd, torchelastic, nccl, nvrx, torchft, goodput, kubernetes, dcgm or megatron
    code: str? - code of that reporter: 79, NODE_FAIL, ...
    cause: str - what failed, in words: GPU has fallen off the bus
    category: str - gpu, gpu memory, nvlink, network, host, storage, software, scheduler, planned,
        follow-on (reported after another failure; one with none before it is unknown) or unknown
    severity: str - fatal (stops the job), warning, info, or unknown
    action: str? - what the reporter's manual asks for: reset GPU
    other_codes: str - further codes folded into the incident: 13, 43
    devices: str - all devices of the incident: 0000:1b:00, 0000:9b:00
    ranks: str - all ranks that reported it: 0-6, 8
    rank_count: int64 >=0 - how many these are
    line_count: int64 >=1 - lines, or events counted by them, folded in
    text: str - the line that leads it, shortened
    source: str - file, or archive and member
    line: int64 >=1 - line, or record, of the file, from 1
    assumed: str - what the caller said of its time: zone, year, boot; else empty
""")

TIMELINE = table("""
    timeline: What a job did when: one row per job, attempt, replica and state, in order of time.

    start_ns: Int64? - start; ns since the Unix epoch, or since the log began where `clock` is own
    end_ns: Int64? - end; missing while it lasts; ns since the Unix epoch, or since the log began
        where `clock` is own
    clock: str - epoch, own or none, as in `failures`
    job: str? - job as its scheduler numbers it
    attempt: Int32? >=1 - run of that job, from 1
    replica: Int32? >=0 - data-parallel replica
    state: str - queued, starting, running, checkpoint, detecting, terminating, allocating, health
        check, joining, loading, down, data loading, ended, or another the log names
    outcome: str? - how it ended, as written: COMPLETED, NODE_FAIL
    first_step: Int64? - training step at its start
    last_step: Int64? - training step at its end
    node_count: Int64? >=0 - nodes of the job
    gpu_count: Int64? >=0 - GPUs of the job
    nodes: str? - its hosts, comma-separated
    source: str - file, or archive and member
    line: int64 >=1 - line, or record, of the file, from 1
""")

INCIDENT_COUNTS = table("""
    incident_counts: How many incidents there are by the longest pause that is allowed inside one:
    one row per window and category.

    window_s: float64 >=0 - longest pause inside an incident; 0 folds nothing
    category: str - category of the line that leads, as in `failures`
    incident_count: int64 >=0 - incidents
    line_count: int64 >=0 - lines, or events counted by them, in these
""")

NODE_SPANS = table("""
    nodes: One row per host that the logs name, and the time over which they watched it.

    node: str - host
    first_ns: Int64? - first mention; ns since the Unix epoch, or since the log began where `clock`
        is own
    last_ns: Int64? - last mention; ns since the Unix epoch, or since the log began where `clock` is
        own
    clock: str - epoch, own or none, as in `failures`
    gpu_count: Int64? >=0 - GPUs, where the log says so
    failure_count: int64 >=0 - incidents of this host
""")


@dataclass(frozen=True, eq=False)
class FailureLog(Loaded):
    """The tables of the failure logs of one load; a plain bundle without methods."""

    failures: pd.DataFrame
    timeline: pd.DataFrame
    nodes: pd.DataFrame
    quality: pd.DataFrame

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
        lines = int(self.failures["line_count"].sum())
        return (
            f"FailureLog: {len(self.failures):,} incidents from {lines:,} lines or events, "
            f"{len(self.timeline):,} states, {len(self.nodes):,} nodes"
            f"; {flagged_text(self.quality)}"
        )


# NCCL flight-recorder dumps as loaded, and what they show of a hang.

FLIGHT_RANKS = table("""
    ranks: One row per rank that left a dump.

    rank: int32 >=0 - global rank
    rank_source: str - argument, file name, groups (it is the only rank in all of them) or assumed
    node: str? - host, where the file name states it
    source: str - file, or archive and member
    version: str? - version of the dump format, e.g. 2.9
    nccl_version: str? - version of NCCL, e.g. 2.27.3
    entry_count: int64 >=0 - operations in the dump
    pending_count: int64 >=0 - of them not completed
    first_ns: Int64? - oldest operation was called; ns since the Unix epoch, by the clock of the
        rank's host
    last_ns: Int64? - newest operation was called; ns since the Unix epoch, by the clock of the
        rank's host
""")

FLIGHT_GROUPS = table("""
    groups: One row per process group, by name and members.

    group: str - its name; with members where several groups share one name
    description: str? - what it is for: TENSOR_MODEL_PARALLEL_GROUP
    members: str - global ranks in order of group rank, comma-separated
    group_size: int32 >=0 - members
    dumped_count: int64 >=0 - members that left a dump
    is_recorded: bool - members stand in a dump; else those that used the group
""")

FLIGHT_STATUS = table("""
    status: One row per rank and process group that it used: where it stands by its own count.

    rank: int32 >=0 - global rank
    local_group: str - number of the group inside this rank (pg_id)
    group: str? - group, where it can be told which it is
    joined_by: str - entries (they name both), order (both count groups as made) or none
    last_enqueued: Int64? - sequence number last called
    last_started: Int64? - last seen to start; missing where starts are not watched
    last_completed: Int64? - last seen to complete
""")

FLIGHT_ENTRIES = table("""
    entries: One row per recorded operation, by rank in the order of the calls.

    rank: int32 >=0 - global rank
    group: str? - process group
    record: Int64 - number of the record in its rank; older is smaller
    seq: Int64? - sequence number of collectives in the group
    p2p_seq: Int64? - sequence number of sends and receives
    op: Int64? - number of the operation in the group
    operation: str - all_reduce, _all_gather_base, send, recv, coalesced, ...
    kind: category - collective, p2p, or coalesced (stands for a batch of them)
    peer: Int32? >=0 - other rank of a send or receive
    in_sizes: str - shapes sent, e.g. 2048x5120; several are ;-separated
    out_sizes: str - shapes received
    in_count: Int64? >=0 - elements sent
    out_count: Int64? >=0 - elements received
    in_dtypes: str - their element types, ;-separated
    out_dtypes: str - element types received
    state: category - scheduled (called), started or completed on the GPU, or unknown; starts are
        seen only with TORCH_NCCL_ENABLE_TIMING; members of a batch have the state of the batch
    created_ns: Int64? - called; ns since the Unix epoch, by the clock of the rank's host
    started_ns: Int64? - seen to have started; ns since the Unix epoch, by the clock of the rank's
        host
    completed_ns: Int64? - seen to have completed; ns since the Unix epoch, by the clock of the
        rank's host
    timeout_ms: Int64? - after which the watchdog gives up
    retired: boolean? - no longer watched
    frame: str? - innermost line of the Python stack that is not torch's own, if stacks were
        recorded
""")

FLIGHT_WAITS = table("""
    flight_waits: One row per pending operation at the head of its queue and rank it waits for.

    rank: int32 >=0 - rank that waits
    group: str? - process group
    operation: str - operation it waits in
    kind: str - collective or p2p
    seq: Int64 - its sequence number; of p2p that of the waiting rank
    record: Int64 - its record in the waiting rank
    waits_for: int32 >=0 - rank that has not arrived
    why: str - not called, nothing pending, not posted (p2p), earlier in the group, not started,
        busy elsewhere (an older operation of its own is pending) or no dump
    waits_for_seq: Int64? - where that rank stands in the group
    is_sure: bool - follows from sequence numbers
""")

FLIGHT_POSITIONS = table("""
    flight_positions: One row per rank and process group it belongs to: what is pending, and where
    it stands.

    rank: int32 >=0 - global rank
    group: str - process group
    description: str? - what the group is for
    has_dump: bool - the rank left a dump
    pending_count: Int64? >=0 - operations not completed
    enqueued_seq: Int64? - last collective called
    completed_seq: Int64? - last collective completed
    behind_count: Int64? >=0 - collectives its members have called and it has not
    confidence: str - with which the rank is a suspect: high, medium, low; none if not a suspect
    reason: str - why the rank is a suspect; empty if it is none
    verdict: str - found, cannot tell or nothing hangs, as in `flight_suspects`
""")

FLIGHT_SUSPECTS = table("""
    flight_suspects: One row per suspect, most certain first; one row without a rank where there is
    none.

    rank: Int32? >=0 - suspected rank; missing where nobody is
    confidence: str - high, medium, low; none without a rank
    reason: str - never arrived, mismatch, stalled, not started, stopped early, no dump, deadlock,
        all entered, nothing pending or nothing hangs
    group: str? - process group where it shows
    description: str? - what that group is for
    seq: Int64? - sequence number there
    operation: str? - operation there
    waiting_count: int64 >=0 - ranks that wait for it, directly or through others
    pending_count: Int64? >=0 - operations it has not completed
    evidence: str - what the dumps say, in words
    verdict: str - of all rows together: found, cannot tell or nothing hangs
""")


@dataclass(frozen=True, eq=False)
class FlightRecording(Loaded):
    """The tables of the flight-recorder dumps of one hang; a plain bundle without methods."""

    ranks: pd.DataFrame
    groups: pd.DataFrame
    status: pd.DataFrame
    entries: pd.DataFrame
    quality: pd.DataFrame

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
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

FAILURE_TIMES = table("""
    failure_times: One row per failure, or replica hit by it: when it struck, whom, and how long
    each phase of its recovery takes.

    run: int32 >=0 - simulated history it belongs to; 0 for a log
    time_min: float64 - when it struck, from the beginning of the run; before 0: its recovery still
        reaches into the run
    node: Int64? >=0 - number of the node
    replica: Int32? >=0 - replica it hit; missing: all of them
    wait_min: float64 >=0 - waiting for a spare node
    detection_min: float64 >=0 - until it is noticed
    allocation_min: float64 >=0 - until nodes are assigned
    init_min: float64 >=0 - NCCL initialisation
    load_min: float64 >=0 - loading the checkpoint
    first_step_min: float64 >=0 - first step, beyond a usual one
    other_min: float64 >=0 - recovery that is not taken apart
    repair_min: float64? >=0 - until the node is a spare again
    is_follow_on: bool - a further replica hit by the failure of the row before
""")

SLOW_TIMES = table("""
    slow_times: One row per time that a straggler slows the whole job down.

    run: int32 >=0 - simulated history it belongs to; 0 for a log
    start_min: float64 - when it begins, from the beginning of the run
    dur_min: float64 >=0 - how long it lasts
    speed_ratio: float64 0..1 - speed of the job meanwhile; 1 is full
""")

GOODPUT = table("""
    goodput: Where the GPU time goes: one row per state, shares sum to 1.

    state: str - productive, lost work, checkpoint, straggler, waiting for a spare, a phase of the
        restart, global stall or its phases, re-join stall, degraded capacity
    scope: str - whom it stops: nobody, all GPUs, failed replica
    gpu_time_share: float64 0..1 - share of GPU time
    low_share: float64? 0..1 - lower end of its 95 % interval; missing if exact
    high_share: float64? 0..1 - upper end of the same
    convention: str - interval, poisson, renewal or replay
""")

GOODPUT_INPUTS = table("""
    goodput_inputs: Inputs of the goodput models as a failure log tells them, one row per input.

    quantity: str - input by its name in the models, with its unit: failure_interval_min, ...
    value: float64 >=0 - its value, in the unit its name ends in
    low: Float64? >=0 - lower end of its interval, in the same unit; missing where it is counted,
        not estimated
    high: Float64? >=0 - upper end, in the same unit
    sample_count: int64 >=1 - interruptions, recoveries, checkpoints or nodes that it rests on
    basis: str - how it was measured
    doubt: str - why it may be wrong; empty if nothing speaks against it
""")

GOODPUT_RUNS = table("""
    goodput_runs: Where the GPU time of every run went: one row per run and state.

    run: int32 >=0 - simulated history, or 0 for a log
    failure_count: int64 >=0 - failures that struck within the run
    state: str - as in `goodput`
    scope: str - whom it stops: nobody, all GPUs, failed replica
    gpu_time_share: float64 0..1 - share of GPU time
""")

GOODPUT_WINDOWS = table("""
    goodput_windows: The productive share of every window of every run.

    run: int32 >=0 - simulated history, or 0 for a log
    start_min: float64 >=0 - beginning of the window
    productive_share: float64 0..1 - share of GPU time
""")


GOODPUT_LADDER = table("""
    goodput_ladder: From one case to another, one change at a time.

    change: str - what this row changes against the row before
    convention: str - interval, poisson or renewal
    productive_share: float64 0..1 - share of GPU time
    gain_ratio: float64 -1..1 - against the row before; may be negative
    printed_share: float64? 0..1 - as published, where it is
""")


GOODPUT_AT_SCALE = table("""
    goodput_at_scale: The productive share against the size of the job, with and without fault
    tolerance.

    gpu_count: int64 >=1 - GPUs of the job
    replica_count: int64 >=1 - replicas that fail alone
    failure_interval_min: float64 >=0 - mean time between failures of the job
    recovery_min: float64 >=0 - recovery of the synchronous job
    synchronous_share: float64? 0..1 - full restart; missing where the convention has no answer
    replica_share: float64? 0..1 - only the failed replica restarts
    convention: str - interval or poisson
""")

CHECKPOINT_CURVE = table("""
    checkpoint_curve: The productive share of a synchronous job against its checkpoint interval.

    checkpoint_interval_min: float64 >=0 - useful time between checkpoints
    productive_share: float64 0..1 - exact, failures are a Poisson process
    lost_work_share: float64 0..1 - work done again
    checkpoint_share: float64 0..1 - writing checkpoints
    recovery_share: float64 0..1 - restarting
    first_order_ratio: float64 - expected ETTR by the first-order formula; wrong where losses are
        large
""")

CHECKPOINT_OPTIMUM = table("""
    checkpoint_optimum: The best checkpoint interval by three methods.

    method: str - Young, Daly or numeric
    checkpoint_interval_min: float64 >=0 - useful time between checkpoints
    productive_share: float64 0..1 - exact share at that interval
""")

EXPECTED_ETTR = table("""
    expected_ettr: Effective training time by the first-order formula, beside the exact one.

    gpu_count: int64 >=1 - GPUs of the job
    failure_interval_min: float64 >=0 - mean time between failures of the job
    first_order_ratio: float64 - the formula; below 0 it has left its range
    exact_share: float64 0..1 - Daly's efficiency for the same inputs
    loss_ratio: float64 >=0 - failures x (restart + half a checkpoint interval): what must stay
        small
    verdict: str - valid, doubtful (over 0.2 lost per unit of time) or invalid
""")

SPARES = table("""
    spares: The productive share against the number of spare nodes.

    spare_count: int64 >=0 - spare nodes
    productive_share: float64 0..1 - mean over the runs
    low_share: float64? 0..1 - lower end of its 95 % interval
    high_share: float64? 0..1 - upper end of the same
    wait_min: float64 >=0 - mean waiting for a spare per failure
    offered_load_ratio: float64 >=0 - nodes in repair on average
""")


# Failures: causes, rates, and whether they are spread evenly.

CAUSE_COUNTS = table("""
    cause_counts: One row per cause: how many failures it explains, as somebody counted or printed
    them.

    cause: str - what failed
    category: str? - kind of cause: gpu, network, software, ...
    failure_count: int64 >=0 - failures
    printed_share: Float64? 0..1 - share of all failures as printed
""")

CAUSE_SHARES = table("""
    cause_shares: One row per cause, or category of causes, the most frequent first.

    cause: str - cause, or what the failures were put together by
    category: str? - category; missing if it has several
    failure_count: int64 >=0 - failures
    failure_share: Float64? 0..1 - of all failures, from the counts; missing if there are none
    low_share: float64 0..1 - lower end of the interval
    high_share: float64 0..1 - upper end of the interval
    cumulative_share: Float64? 0..1 - this cause and those before
    printed_share: Float64? 0..1 - share as printed by the source
""")

FAILURE_RATES = table("""
    failure_rates: One row per group of failures or nodes: failures over the time that nodes were
    watched.

    group: str - all, or the cause, category or node group
    failure_count: int64 >=0 - failures
    node_count: int64 >=1 - nodes watched
    exposure_node_days: float64 >=0 - time watched, all nodes together
    per_1000_node_days: float64 >=0 - failures per 1,000 node-days
    low_per_1000_node_days: float64 >=0 - lower end of the interval
    high_per_1000_node_days: float64 >=0 - upper end of the interval
    mtbf_h: Float64? >=0 - mean time between failures of all these nodes; missing if none failed
    low_mtbf_h: float64 >=0 - lower end of the interval
    high_mtbf_h: Float64? >=0 - upper end of the interval; missing if none failed
""")


MTTF_BY_SIZE = table("""
    mttf_by_size: One row per size of job: the mean time to failure, and how it scales with size.

    gpu_count: int64 >=1 - GPUs of the job
    kind: str - measured or projected
    mttf_h: Float64? >=0 - mean time to failure; missing if none failed
    low_mttf_h: Float64? >=0 - lower end of the interval; missing without counts
    high_mttf_h: Float64? >=0 - upper end of the interval; missing without counts, or if none failed
    failure_count: Int64? >=0 - failures; missing if not counted
    exposure_h: Float64? >=0 - time jobs of that size ran, added up
    per_1000_node_days: Float64? >=0 - failures per 1,000 node-days; missing if none failed
    slope_ratio: Float64? - failures grow with size to this power, over the rows with counts; 1:
        every GPU is as likely to fail. The same in every row; missing if it cannot be known
    low_slope_ratio: Float64? - lower end of the interval
    high_slope_ratio: Float64? - upper end of the interval
""")


FAILURE_TREND = table("""
    failure_trend: One row: whether failures became more or less frequent while the nodes were
    watched.

    failure_count: int64 >=0 - failures
    node_count: int64 >=1 - nodes watched
    exposure_node_days: float64 >=0 - time watched, all nodes together
    growth_ratio: Float64? >=0 - failures grow with time to this power: above 1 ever more often;
        missing if there are too few failures
    low_growth_ratio: Float64? >=0 - lower end of the interval
    high_growth_ratio: Float64? >=0 - upper end of the interval
    laplace_ratio: Float64? - Laplace's test, in standard deviations: above 0 ever more often
    p_value_share: Float64? 0..1 - probability of so strong a trend if the rate is constant
""")

LEMON_NODES = table("""
    lemon_nodes: One row per node, the most suspicious first: whether it fails more often than
    chance has it.

    node: str - node
    failure_count: int64 >=0 - failures
    exposure_node_days: float64 >=0 - time it was watched
    expected_count: float64 >=0 - failures if all nodes had the same rate
    p_value_share: float64 0..1 - probability of so many by chance
    adjusted_p_value_share: float64 0..1 - the same for that many nodes at once
    shrunk_per_1000_node_days: float64 >=0 - its rate, drawn towards that of all nodes; to rank by
    is_lemon: bool - fails more often than the false discovery rate allows
    dispersion_ratio: Float64? >=0 - variance / mean of the counts of all nodes; 1 if only chance
        is at work. The same in every row; missing if none failed
    recall_share: Float64? 0..1 - of lemons as assumed, how many such an observation finds. The
        same in every row; missing if so few nodes have no whole lemon
""")

LEMON_RECALL = table("""
    lemon_recall: One row per length of observation: how many of the assumed lemons it finds.

    observed_days: float64 >=0 - how long the nodes are watched
    failure_count: float64 >=0 - failures to expect, all nodes
    least_failures_count: Int64? >=1 - failures from which a node is flagged; missing if none can
        be
    recall_share: float64 0..1 - of the lemons that are flagged
    precision_share: Float64? 0..1 - of the flagged that are lemons
""")

FAILURE_GAPS = table("""
    failure_gaps: One row: whether the failures of the whole system come in bursts.

    gap_count: int64 >=0 - times between failures
    together_count: int64 >=0 - failures at the same instant as one before
    mean_h: Float64? >=0 - mean time between failures
    variation_ratio: Float64? >=0 - standard deviation / mean of the gaps; 1 by chance
    shape_ratio: Float64? >=0 - Weibull shape: below 1 bursts, above 1 regular; missing if there are
        too few failures
    low_shape_ratio: Float64? >=0 - lower end of the interval
    high_shape_ratio: Float64? >=0 - upper end of the interval
    p_value_share: Float64? 0..1 - probability of such a shape by chance
""")

JOB_FAILURES = table("""
    job_failures: One row per run of a job that failed: what failed on its nodes around its end.

    job: str? - job as its scheduler numbers it
    attempt: Int32? >=1 - run of that job, from 1
    end_ns: int64 - when it ended, ns since the Unix epoch
    outcome: str - how it ended, as written
    primary_cause: str - earliest fatal cause, else earliest; unknown if none
    causes: str - all causes seen, in order of time, joined by ' + '
    cause_count: int64 >=0 - different causes seen
""")

CRASH_LOOPS = table("""
    crash_loops: One row per series of runs of one job that failed shortly after each other.

    job: str - job as its scheduler numbers it
    run_count: int64 >=1 - failed runs in a row
    first_ns: int64 - end of the first of them, ns since the Unix epoch
    last_ns: int64 - end of the last of them, ns since the Unix epoch
    primary_cause: str - most frequent primary cause of these runs
""")
