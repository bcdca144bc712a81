"""Jobs recorded operation by operation."""

from __future__ import annotations

from workbench.tables._table import Column, Table

JOB_OPERATIONS = Table(
    "job_operations",
    "One row per operation of one worker of a pipelined, data-parallel job in one step. "
    "Workers of one tensor-parallel group share their rows.",
    {
        "step": Column("int64", "training step; steps may be a sample", lower=0),
        "dp_rank": Column("int32", "data-parallel rank", lower=0),
        "stage": Column("int32", "pipeline stage", lower=0),
        "operation": Column(
            "category", "forward-compute, backward-compute, forward-send, grads-reduce-scatter ..."
        ),
        "sequence": Column("int32", "order among equal operations of a worker in a step", lower=0),
        "micro_batch": Column(
            "Int32", "micro-batch; missing unless the operation computes", lower=0, nullable=True
        ),
        "chunk": Column(
            "Int32",
            "model chunk, counted along the pipeline; missing unless the operation computes",
            lower=0,
            nullable=True,
        ),
        "start_ns": Column("int64", "start, from the beginning of the step or of the job"),
        "dur_ns": Column("int64", "duration, waiting for peers included", lower=0),
    },
)

JOB_SLOWDOWN = Table(
    "job_slowdown",
    "One row: how much slower a job is than it would be if equal operations took equal time.",
    {
        "step_count": Column("int64", "steps replayed", lower=1),
        "worker_count": Column("int64", "pairs of data-parallel rank and stage", lower=1),
        "actual_ns": Column("float64", "mean step, as recorded", lower=0),
        "replay_ns": Column("float64", "mean step, replayed without launch delays", lower=0),
        "ideal_ns": Column("float64", "mean step with equal operations", lower=0),
        "slowdown_ratio": Column("float64", "S: replay / ideal", lower=0),
        "waste_ratio": Column("float64", "1 - 1 / S: GPU time that equal operations would save"),
        "delay_ratio": Column("float64", "of the recorded step: launch delays, lost by the replay"),
        "worst_workers_ratio": Column(
            "Float64", "M_W: of the excess, gone with the worst workers ideal", nullable=True
        ),
        "slow_workers_ratio": Column(
            "Float64",
            "of the excess, gone with all workers ideal that are slow beside the median of their "
            "stage; missing if there are none",
            nullable=True,
        ),
        "last_stage_ratio": Column(
            "Float64", "M_S: of the excess, gone with the last stage ideal", nullable=True
        ),
        "communication_ratio": Column(
            "Float64", "of the excess, gone with all transfers and collectives ideal", nullable=True
        ),
        "pauses_ratio": Column(
            "Float64",
            "of the excess, gone with the few longest computations ideal, each measured by the "
            "median of its kind and stage",
            nullable=True,
        ),
        "forward_backward_correlation": Column(
            "Float64", "Pearson's r of both durations of a micro-batch", -1, 1, nullable=True
        ),
        "within_rank_correlation": Column(
            "Float64", "the same, each by the median of its rank", -1, 1, nullable=True
        ),
        "verdict": Column(
            "category",
            "no straggler, worker, sequence lengths, last stage, communication, pauses, other",
        ),
        "note": Column("str", "what was left out, and what is doubtful", nullable=True),
    },
)

JOB_SLOWDOWN_BY = Table(
    "job_slowdown_by",
    "One row per part of a job: the slowdown if only this part kept its own durations.",
    {
        "dp_rank": Column(
            "Int32", "data-parallel rank; missing for parts of all", 0, nullable=True
        ),
        "stage": Column("Int32", "pipeline stage; missing for parts of all", 0, nullable=True),
        "operation": Column("category", "operation; missing if it is any", nullable=True),
        "slowdown_ratio": Column("float64", "S of the part: its replay / ideal", lower=0),
        "bound_ratio": Column(
            "Float64",
            "of a worker: the lower S of its rank and its stage; missing for other parts",
            lower=0,
            nullable=True,
        ),
    },
)


TRACE_DIFF = Table(
    "trace_diff",
    "One row per category (and name, or step) of two traces: what changed from a to b.",
    {
        "category": Column("category", "profiler category"),
        "name": Column("category", "name; missing unless compared by name", nullable=True),
        "step": Column(
            "Int32",
            "position of the step in its trace, from 0; missing unless by step",
            0,
            nullable=True,
        ),
        "change": Column("category", "added, removed, or both (in both traces)"),
        "a_count": Column("int64", "rows in a", lower=0),
        "b_count": Column("int64", "rows in b", lower=0),
        "difference_count": Column("int64", "b minus a"),
        "a_total_ns": Column("int64", "summed durations in a", lower=0),
        "b_total_ns": Column("int64", "summed durations in b", lower=0),
        "difference_ns": Column("int64", "b minus a"),
        "total_ratio": Column(
            "Float64", "b / a; missing if a has no duration", lower=0, nullable=True
        ),
        "a_per_step_ns": Column(
            "Float64", "a's total per rank and step; missing without steps", 0, nullable=True
        ),
        "b_per_step_ns": Column(
            "Float64", "b's total per rank and step; missing without steps", 0, nullable=True
        ),
    },
)


JOB_STEPS = Table(
    "job_steps",
    "One row per step of a job: as recorded, replayed, and with equal operations.",
    {
        "step": Column("int64", "training step", lower=0),
        "actual_ns": Column("float64", "the step as recorded", lower=0),
        "replay_ns": Column("float64", "replayed, without launch delays", lower=0),
        "ideal_ns": Column("float64", "replayed with equal operations", lower=0),
        "slowdown_ratio": Column("float64", "replay / ideal", lower=0),
        "delay_ratio": Column(
            "float64", "1 - replay / actual: launch delays, or the replay's error"
        ),
    },
)

JOB_SCHEDULE = Table(
    "job_schedule",
    "One row per operation of one step and data-parallel rank, in each version of the step: "
    "recorded, actual (replayed with own durations) and ideal (with equal ones).",
    {
        "version": Column("category", "recorded, actual or ideal"),
        "step": Column("int64", "training step", lower=0),
        "dp_rank": Column("int32", "data-parallel rank", lower=0),
        "stage": Column("int32", "pipeline stage", lower=0),
        "operation": Column("category", "as in job_operations"),
        "micro_batch": Column("Int32", "missing unless it computes", lower=0, nullable=True),
        "chunk": Column("Int32", "missing unless it computes", lower=0, nullable=True),
        "start_ns": Column("int64", "start, from the beginning of the step", lower=0),
        "dur_ns": Column("int64", "duration; recorded ones include the waiting for peers", lower=0),
    },
)

JOB_MICRO_BATCHES = Table(
    "job_micro_batches",
    "One row per micro-batch of one step and data-parallel rank on one stage: how long its "
    "forward and its backward pass computed.",
    {
        "step": Column("int64", "training step", lower=0),
        "dp_rank": Column("int32", "data-parallel rank", lower=0),
        "stage": Column("int32", "pipeline stage", lower=0),
        "micro_batch": Column("int32", "micro-batch of the step", lower=0),
        "forward_ns": Column("int64", "forward passes, all chunks of the stage", lower=0),
        "backward_ns": Column("int64", "backward passes, all chunks of the stage", lower=0),
    },
)

JOB_DISPERSION = Table(
    "job_dispersion",
    "One row per measure of imbalance of one job: what it says, and what it cannot see.",
    {
        "measure": Column("str", "what is measured"),
        "value_ratio": Column(
            "Float64", "its value; missing where the job cannot tell", lower=0, nullable=True
        ),
        "lost_share": Column(
            "Float64",
            "GPU time that the measure would call lost; missing if it speaks of none",
            0,
            1,
            nullable=True,
        ),
        "formula": Column("str", "how it is worked out"),
        "hides": Column("str", "what it cannot see"),
    },
)

JOB_TRUTH = Table(
    "job_truth",
    "One row per cause of slowness that was put into a simulated job.",
    {
        "cause": Column("category", "slow worker, last stage, sequence lengths, ..."),
        "dp_rank": Column("Int32", "where; missing if it is any rank", lower=0, nullable=True),
        "stage": Column("Int32", "where; missing if it is any stage", lower=0, nullable=True),
        "size_ratio": Column("float64", "how strong, as given", lower=0),
        "slowdown_ratio": Column(
            "float64", "mean step with this cause alone / without any", lower=0
        ),
    },
)
