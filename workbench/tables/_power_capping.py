"""When power was capped, how it shows, and what it cost."""

from __future__ import annotations

from workbench.tables._table import Column, Table

_ENTITY = "what was capped, as in `power_states`: node001/gpu3"
_EVIDENCE = (
    "what tells: clock reasons; violation counter; power at limit (capping is likely, not "
    "certain); none (the telemetry cannot tell)"
)

CAPPING_EVENTS = Table(
    "capping_events",
    "One row per stretch in which one device was held back by power, in order of start.",
    {
        "entity": Column("str", _ENTITY),
        "start_ns": Column("int64", "start, halfway to the reading before; clock of the load"),
        "end_ns": Column("int64", "end, halfway to the reading after; clock of the load"),
        "duration_s": Column("float64", "end - start", lower=0),
        "uncertain_s": Column(
            "float64", "start and end may each be wrong by so much, from the sampling", lower=0
        ),
        "evidence": Column("str", _EVIDENCE),
        "reason": Column(
            "str", "power cap (0x4), power brake (0x80), both; not told without clock reasons"
        ),
        "reading_count": Column("int64", "capped readings", lower=1),
        "limit_w": Column("float64", "median limit in force", lower=0, nullable=True),
        "power_w": Column("float64", "median power", lower=0, nullable=True),
        "power_to_limit_ratio": Column("float64", "power / limit", lower=0, nullable=True),
        "clock_mhz": Column("float64", "median clock", lower=0, nullable=True),
        "uncapped_clock_mhz": Column(
            "float64", "median clock of the device under load, uncapped", lower=0, nullable=True
        ),
        "clock_loss_ratio": Column(
            "float64", "1 - clock / uncapped clock; below 0 if faster", upper=1, nullable=True
        ),
        "held_back_s": Column(
            "float64", "increase of the violation counter", lower=0, nullable=True
        ),
        "is_cut": Column("bool", "whether it starts or ends at a gap, or with the log"),
    },
)

CAPPED_SHARE = Table(
    "capped_share",
    "One row per device: how much of its time was capped, and how much is known at all.",
    {
        "entity": Column("str", _ENTITY),
        "evidence": Column("str", _EVIDENCE),
        "event_count": Column("int64", "stretches of capping", lower=0),
        "capped_s": Column("float64", "time that was capped", lower=0),
        "known_s": Column("float64", "time that readings tell of", lower=0),
        "capped_share": Column(
            "float64", "capped_s / known_s; missing if nothing is known",
            lower=0, upper=1, nullable=True,
        ),
        "covered_share": Column(
            "float64", "known_s / time from the first to the last reading of any device",
            lower=0, upper=1,
        ),
    },
)  # fmt: skip

CAPPING_COST = Table(
    "capping_cost",
    "One row per attempt of a job: what capped steps took beyond steps that were not capped.",
    {
        "attempt": Column("int32", "run of the job, from 1", lower=1),
        "capped_step_count": Column("int64", "steps during which any device was capped", lower=0),
        "uncapped_step_count": Column("int64", "steps to compare with", lower=0),
        "left_out_step_count": Column(
            "int64",
            "first steps of the attempt, steps far longer than their like, and steps at the "
            "uncertain end of an event",
            lower=0,
        ),
        "capped_median_s": Column("float64", "median capped step", lower=0, nullable=True),
        "uncapped_median_s": Column("float64", "median uncapped step", lower=0, nullable=True),
        "cost_s": Column(
            "float64", "sum over capped steps of duration - uncapped median", nullable=True
        ),
        "low_cost_s": Column("float64", "lower end of its bootstrap interval", nullable=True),
        "high_cost_s": Column("float64", "upper end of its bootstrap interval", nullable=True),
        "local_cost_s": Column(
            "float64", "the same against the nearest uncapped steps on either side, the slower",
            nullable=True,
        ),
        "cost_ratio": Column("float64", "cost / time of all steps kept", nullable=True),
        "doubt": Column("str", "why the cost may not be that of capping; empty if nothing speaks"),
    },
)  # fmt: skip

CAPPING_BLAME = Table(
    "capping_blame",
    "One row per device that was capped: which steps it was capped in, and decided.",
    {
        "entity": Column("str", _ENTITY),
        "event_count": Column("int64", "stretches of capping", lower=0),
        "capped_step_count": Column("int64", "steps during which it was capped", lower=0),
        "blamed_step_count": Column(
            "int64", "of these, steps in which no other device was held back more", lower=0
        ),
        "blamed_share": Column(
            "float64", "blamed steps / all capped steps of the job", lower=0, upper=1
        ),
        "blamed_s": Column(
            "float64", "what the blamed steps took beyond the median uncapped step", nullable=True
        ),
        "clock_loss_ratio": Column(
            "float64", "median clock loss in its events", upper=1, nullable=True
        ),
        "doubt": Column("str", "why the blame may be wrong; empty if nothing speaks"),
    },
)
