"""Energy of power telemetry: of each entity, and of many together."""

from __future__ import annotations

from workbench.tables._table import Column, Table

_WINDOW = "ns since the Unix epoch, or since an own zero where `entities.clock` is own"
_METHOD = (
    "trapezoid (straight lines between readings), mlperf (each reading holds since the one "
    "before) or counter (differences of an energy counter)"
)

_BRIDGED = (
    "estimate to add for gaps between readings, as if power had gone straight across them; the "
    "time before the first and after the last reading is not in it"
)

ENERGY = Table(
    "energy",
    "One row per entity: its energy in a window of time, and how much of it readings cover.",
    {
        "entity": Column("str", "what was metered"),
        "method": Column("str", _METHOD),
        "start_ns": Column("int64", f"start of the window; {_WINDOW}"),
        "end_ns": Column("int64", f"end of the window; {_WINDOW}"),
        "energy_j": Column(
            "float64",
            "energy of the covered time alone, the least it can be; missing if nothing is covered",
            lower=0,
            nullable=True,
        ),
        "bridged_j": Column("float64", _BRIDGED, lower=0, nullable=True),
        "highest_j": Column(
            "float64",
            "the most it can be, if power was nowhere above the highest reading of the entity; "
            "missing if there is none",
            lower=0,
            nullable=True,
        ),
        "mean_w": Column(
            "float64", "energy over the covered time; missing with it", lower=0, nullable=True
        ),
        "covered_share": Column("float64", "of the window that readings cover", lower=0, upper=1),
        "unknown_s": Column("float64", "time of the window that nothing covers", lower=0),
        "reading_count": Column("int64", "readings with a value in the window", lower=0),
        "reset_count": Column("int64", "falls of the counter in the window, else 0", lower=0),
        "first_ns": Column("Int64", "first reading, or the start of the window", nullable=True),
        "last_ns": Column("Int64", "last reading, or the end of the window", nullable=True),
    },
)

ENERGY_TOTAL = Table(
    "energy_total",
    "One row: the energy of many entities in one window, and how much of it is known.",
    {
        "method": Column("str", _METHOD),
        "start_ns": Column("int64", f"start of the window; {_WINDOW}"),
        "end_ns": Column("int64", f"end of the window; {_WINDOW}"),
        "energy_j": Column(
            "float64",
            "energy of what is covered, the least it can be; missing if nothing is",
            lower=0,
            nullable=True,
        ),
        "bridged_j": Column("float64", _BRIDGED, lower=0, nullable=True),
        "highest_j": Column(
            "float64",
            "the most it can be, as of each entity; missing if an expected one never read",
            lower=0,
            nullable=True,
        ),
        "mean_w": Column(
            "float64",
            "mean power of all entities together while any of them was metered: means of entities "
            "that were metered at one time add up, those of runs one after the other do not",
            lower=0,
            nullable=True,
        ),
        "covered_share": Column(
            "float64", "covered time of all expected entities over their time", lower=0, upper=1
        ),
        "unknown_s": Column("float64", "entity-seconds that nothing covers", lower=0),
        "entity_count": Column("int64", "entities with an energy", lower=0),
        "expected_count": Column("int64", "entities there are", lower=0),
    },
)
