"""Tables of what was put into made data."""

from __future__ import annotations

from workbench.tables.table import table

JOB_TRUTH = table("""
    job_truth: One row per cause of slowness that was put into a simulated job.

    cause: category - slow worker, last stage, sequence lengths, ...
    dp_rank: Int32? >=0 - where; missing if it is any rank
    stage: Int32? >=0 - where; missing if it is any stage
    size_ratio: float64 >=0 - how strong, as given
    slowdown_ratio: float64 >=0 - mean step with this cause alone / without any
""")

TROUBLE_TRUTH = table("""
    trouble_truth: One row per trouble that was put into a job in memory.

    trouble: str - slow rank, checkpoints, power cap, ...
    where: str - rank, ranks, GPU or host that it hits; empty for the whole job
    strength_ratio: float64 >=0 - how strong, as given
    cost: Float64? >=0 - true cost, in `cost_unit`; missing if the trouble costs no time or energy
    cost_unit: str - unit of the cost, e.g. ms per step; empty without a cost
    loss_share: float64 0..1 - what is lost as a share of what there is: of the time, the energy,
        the power, or the readings
""")

FLEET_TRUTH = table("""
    fleet_truth: What was injected into a simulated training job: one row per fault.

    what: str - slow rank, late host, power cap, failing node or job restart
    rank: Int32? >=0 - global rank it hit
    node: str - host it hit
    first_step: Int32? >=0 - first training step it hit
    last_step: Int32? >=0 - last training step it hit
    start_ns: int64 - start; ns since the Unix epoch
    end_ns: int64 - end; ns since the Unix epoch
    size: float64 - how much, in the unit named in the next column
    unit: str - unit of the size, e.g. ms per step, W, x (times as long)
    seen_in: str - files that show it
""")

FAILURE_TRUTH = table("""
    failure_truth: What was injected into simulated failure logs: one row per incident, in order of
    time.

    start_ns: int64 - when it struck: its first line; ns since the Unix epoch
    end_ns: int64 - its last line; ns since the Unix epoch
    node: str? - host; missing where no host is at fault
    device: str? - PCI address of the GPU: 0000:9b:00
    code: str? - Xid; missing where the kernel says nothing
    other_codes: str - further Xids of the same incident: 63, 45
    cause: str - what failed, in words
    line_count: int64 >=0 - kernel log lines that report it
    is_fatal: bool - whether what runs on that device cannot go on
    is_job_stopped: bool - whether it stopped the job: not on an idle spare
    is_lemon: bool - whether the host fails far more often than others
    attempt: Int32? >=1 - attempt of the job that it stopped
    detected_ns: Int64? - when it was noticed; ns since the epoch
    ready_ns: Int64? - when the job had its nodes again
    resumed_ns: Int64? - when the job trained again
    lost_step_count: Int64? >=0 - steps computed again
""")

HANG_TRUTH = table("""
    hang_truth: One row for the fault that was put into a simulated job that hangs; none without
    one.

    fault: str - frozen host, failed GPU, mismatched operation or mismatched size
    rank: int32 >=0 - global rank it hit
    group: str - process group of the collective it hit
    description: str - what that group is for
    seq: int64 >=1 - sequence number of the collective in the group
    operation: str - what was to be called there
""")
