"""Energy of power telemetry: of each entity, and of many together."""

from __future__ import annotations

from workbench.tables._table import Column, Table

_WINDOW = "ns since the Unix epoch, or since an own zero where `entities.clock` is own"
_METHOD = (
    "trapezoid (straight lines between readings), mlperf (each reading holds since the one "
    "before) or counter (differences of an energy counter)"
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
            "energy of the covered time alone; missing if nothing is covered",
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
            "energy of what is covered; missing if nothing is",
            lower=0,
            nullable=True,
        ),
        "mean_w": Column(
            "float64", "sum of the means of the entities that have one", lower=0, nullable=True
        ),
        "covered_share": Column(
            "float64", "covered time of all expected entities over their time", lower=0, upper=1
        ),
        "unknown_s": Column("float64", "entity-seconds that nothing covers", lower=0),
        "entity_count": Column("int64", "entities with an energy", lower=0),
        "expected_count": Column("int64", "entities there are", lower=0),
    },
)
