"""Pipeline schedules: what every stage runs in which order, when, and what it costs."""

from __future__ import annotations

from workbench.tables._table import Column, Table

_SCHEDULE = Column("category", "gpipe, 1f1b, interleaved, zero_bubble, zbv, dualpipe_v, or a name")
_STAGE = Column("int32", "pipeline stage", lower=0)
_ACTION = Column(
    "category",
    "F forward, B whole backward, or its two parts: I gradient of the inputs, W of the weights",
)
_MICRO_BATCH = Column("int32", "micro-batch of the step", lower=0)
_CHUNK = Column("int32", "part of the model, counted along it", lower=0)

PIPELINE_SCHEDULE = Table(
    "pipeline_schedule",
    "One row per pass of a training step: the order in which each stage runs its passes.",
    {
        "schedule": _SCHEDULE,
        "stage": _STAGE,
        "position": Column("int32", "place among the passes of its stage", lower=0),
        "action": _ACTION,
        "micro_batch": _MICRO_BATCH,
        "chunk": _CHUNK,
        "overlapped_with": Column(
            "Int32",
            "position of the pass that runs at the same time; missing if none does",
            lower=0,
            nullable=True,
        ),
    },
)

SCHEDULE_TIMES = Table(
    "schedule_times",
    "One row per pass of a training step: when it runs. Stage by stage, in their order.",
    {
        "schedule": _SCHEDULE,
        "stage": _STAGE,
        "action": _ACTION,
        "micro_batch": _MICRO_BATCH,
        "chunk": _CHUNK,
        "start_ns": Column("float64", "start, from the beginning of the step", lower=0),
        "dur_ns": Column("float64", "duration; of two that overlap, that of the pair", lower=0),
        "is_overlapped": Column("bool", "whether another pass of its stage runs meanwhile"),
        "is_critical": Column(
            "bool", "whether it is on a longest chain of passes, which a longer pass lengthens"
        ),
    },
)

SCHEDULE_STAGES = Table(
    "schedule_stages",
    "One row per stage of a schedule: how long it computes, waits, and what it keeps.",
    {
        "schedule": _SCHEDULE,
        "stage": _STAGE,
        "chunk_count": Column(
            "int32", "parts of the model the stage holds, all parts being equal", lower=1
        ),
        "busy_ns": Column("float64", "time with a pass running", lower=0),
        "idle_ns": Column("float64", "the rest of the step: its bubble", lower=0),
        "idle_share": Column("float64", "of the step", lower=0, upper=1),
        "peak_activations_count": Column(
            "int64",
            "most micro-batches kept at once, counted in each chunk: from the forward to the end "
            "of the backward",
            lower=0,
        ),
    },
)

SCHEDULE_COMPARISON = Table(
    "schedule_comparison",
    "One row per pipeline schedule: what a step takes, loses and keeps.",
    {
        "schedule": _SCHEDULE,
        "stage_count": Column("int32", "pipeline stages", lower=1),
        "micro_batch_count": Column("int32", "micro-batches of the step", lower=1),
        "chunk_count": Column("int32", "parts of the model on a stage", lower=1),
        "step_ns": Column("float64", "from the first pass to the end of the last", lower=0),
        "bubble_ns": Column("float64", "idle time of the stage that is idle longest", lower=0),
        "bubble_share": Column("float64", "idle time of all stages, of their step", 0, 1),
        "bubble_ratio": Column(
            "Float64", "idle / busy time of all stages; missing if none is busy", 0, nullable=True
        ),
        "critical_transfer_ns": Column(
            "float64", "of the longest chain of passes, spent between stages", lower=0
        ),
        "peak_activations_count": Column(
            "int64", "activations of a chunk that the fullest stage keeps at once", lower=0
        ),
        "peak_activations_ratio": Column(
            "float64", "the same in activations of a whole stage: divided by its chunks", lower=0
        ),
        "basis": Column("category", "modelled: an exact order, with durations as given"),
        "doubt": Column("str", "what may not hold; missing if nothing is known", nullable=True),
    },
)

JOB_PREDICTION = Table(
    "job_prediction",
    "One row per change to a recorded job: how long its steps would take.",
    {
        "change": Column("str", "what is asked"),
        "basis": Column(
            "category",
            "measured (as recorded), scaled (recorded durations times a factor), modelled (in "
            "another order, or with other micro-batches)",
        ),
        "step_count": Column("int64", "recorded steps drawn from", lower=1),
        "step_ns": Column("float64", "mean step, with launch delays as recorded", lower=0),
        "step_low_ns": Column("float64", "lower end of the interval of the mean", lower=0),
        "step_high_ns": Column("float64", "upper end of the interval of the mean", lower=0),
        "step_p5_ns": Column("float64", "1 of 20 steps is shorter", lower=0),
        "step_p95_ns": Column("float64", "1 of 20 steps is longer", lower=0),
        "change_ratio": Column("float64", "mean step / mean step as recorded - 1", lower=-1),
        "change_low_ratio": Column("float64", "lower end of its interval"),
        "change_high_ratio": Column("float64", "upper end of its interval"),
        "doubt": Column("str", "what may not hold; missing if nothing is known", nullable=True),
    },
)

JOB_HELD_OUT = Table(
    "job_held_out",
    "One row per way to predict the mean step of a job from half of its steps: how far off.",
    {
        "method": Column(
            "category",
            "joint steps, joint steps with delays, mean durations; own step for the replay of "
            "each step by itself",
        ),
        "split_count": Column("int64", "random halves; steps for the replay of own steps", lower=1),
        "error_ratio": Column("float64", "mean of predicted / recorded - 1"),
        "absolute_error_ratio": Column("float64", "mean of its absolute value", lower=0),
        "largest_error_ratio": Column("float64", "largest absolute value", lower=0),
    },
)
