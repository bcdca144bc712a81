"""Power telemetry as loaded, and the log of the job that drew it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables._table import Column, Table
from workbench.tables._traces import SAYS_SYNTHETIC, flagged_text

_TIME = "ns since the Unix epoch, or since an own zero where `entities.clock` is own"
_ENTITY = "what was metered, unique in the load: node001, node001/gpu3, rack7"
SCOPES = (
    "gpu",
    "module",
    "cpu",
    "memory",
    "node_dc",
    "node_ac",
    "switch",
    "rack",
    "row",
    "pdu",
    "panel",
    "switchboard",
    "msb",
    "utility",
    "facility",
    "cooling",
    "unknown",
)
METHODS = ("instant", "avg_1s", "average", "counter", "meter", "estimate", "unknown")

POWER = Table(
    "power",
    "One row per reading, in order of entity and time. Readings that the source lost are rows "
    "without power; no row is made up.",
    {
        "time_ns": Column("int64", f"instant of the reading; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "power_w": Column(
            "float64", "power; missing where the source reported none", lower=0, nullable=True
        ),
    },
)

POWER_COUNTERS = Table(
    "power_counters",
    "One row per reading of an energy counter, as written: a fall is a reset.",
    {
        "time_ns": Column("int64", f"instant of the reading; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "energy_j": Column("float64", "energy since an own zero", lower=0, nullable=True),
    },
)

POWER_STATES = Table(
    "power_states",
    "One row per reading of what explains power: limit, clock, load and throttle reasons.",
    {
        "time_ns": Column("int64", f"instant of the reading; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "limit_w": Column("float64", "limit in force", lower=0, nullable=True),
        "clock_mhz": Column("float64", "SM clock", lower=0, nullable=True),
        "busy_share": Column("float64", "utilisation", lower=0, upper=1, nullable=True),
        "temperature_c": Column("float64", "temperature of the die", nullable=True),
        "reasons": Column(
            "Int64",
            "clock event reasons as NVML's bit mask: 0x4 software power cap, 0x8 hardware "
            "slowdown, 0x20 software thermal, 0x40 hardware thermal, 0x80 power brake",
            lower=0,
            nullable=True,
        ),
        "power_violation_ns": Column(
            "Int64", "time held back by the power cap, cumulative", lower=0, nullable=True
        ),
    },
)

POWER_ENTITIES = Table(
    "power_entities",
    "One row per metered thing: what its readings mean and how many there are.",
    {
        "entity": Column("str", _ENTITY),
        "scope": Column("str", "where it is metered: " + ", ".join(SCOPES)),
        "method": Column(
            "str",
            "instant; avg_1s (mean of the last second); average (window unknown); counter "
            "(difference of energies); meter (a power meter of its own); estimate; unknown",
        ),
        "node": Column("str", "host", nullable=True),
        "device": Column("str", "GPU index, UUID or PCI address in that host", nullable=True),
        "model": Column("str", "product, as written", nullable=True),
        "period_s": Column("float64", "median time between readings", lower=0, nullable=True),
        "reading_count": Column("int64", "readings with power", lower=0),
        "missing_count": Column("int64", "readings without power", lower=0),
        "first_ns": Column("Int64", f"first reading; {_TIME}", nullable=True),
        "last_ns": Column("Int64", f"last reading; {_TIME}", nullable=True),
        "clock": Column("str", "epoch (wall time) or own (arbitrary zero)"),
        "assumed": Column("str", "what the caller said of its time, unit or scope; else empty"),
        "limit_w": Column("float64", "limit, where the file states one", lower=0, nullable=True),
        "source": Column("str", "file, or archive and member"),
    },
)

POWER_TOPOLOGY = Table(
    "power_topology",
    "One row per thing in the delivery tree, parents before their children.",
    {
        "entity": Column("str", "what is fed: node001, rack7, msb2"),
        "parent": Column("str", "what feeds it; missing at the root", nullable=True),
        "level": Column("str", "gpu, node, rack, panel, switchboard, msb, utility, ..."),
        "nameplate_w": Column("float64", "rated power", lower=0, nullable=True),
        "limit_w": Column("float64", "what its feed allows", lower=0, nullable=True),
    },
)

_METER_PERIOD = Column(
    "float64",
    "median time between readings of the meter, the slowest of several: cells that are shorter "
    "are interpolated, and show nothing faster; missing where it is not known",
    lower=0,
    nullable=True,
    optional=True,
)

POWER_GRID = Table(
    "power_grid",
    "One row per entity and cell of a common grid of time, in order of entity and time.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "power_w": Column(
            "float64",
            "time-weighted mean; missing where too little is known",
            lower=0,
            nullable=True,
        ),
        "covered_share": Column("float64", "of the cell that readings cover", lower=0, upper=1),
        "meter_period_s": _METER_PERIOD,
    },
)

POWER_TOTALS = Table(
    "power_totals",
    "One row per cell of a uniform grid of time: the power of many entities together.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "power_w": Column(
            "float64", "sum over entities; missing where too few are known", lower=0, nullable=True
        ),
        "entity_count": Column("int64", "entities that the sum holds", lower=0),
        "expected_count": Column("int64", "entities there are", lower=0),
        "covered_share": Column("float64", "entity_count / expected_count", lower=0, upper=1),
        "meter_period_s": _METER_PERIOD,
    },
)

LOGGED_STEPS = Table(
    "logged_steps",
    "One row per training step, in order of time; a step that was repeated after a restart "
    "has a row per attempt.",
    {
        "step": Column("int64", "number of the step, from 0 where the log counts none", lower=0),
        "attempt": Column("int32", "run of the job, from 1", lower=1),
        "start_ns": Column("int64", "start, ns since the Unix epoch"),
        "end_ns": Column("int64", "end, ns since the Unix epoch"),
        "token_count": Column("Int64", "tokens of the step, all ranks", lower=0, nullable=True),
        "sample_count": Column("Int64", "samples of the step, all ranks", lower=0, nullable=True),
        "source": Column("str", "file, or archive and member"),
        "line": Column("int64", "line of the file, from 1", lower=1),
    },
)

LOGGED_SPANS = Table(
    "logged_spans",
    "One row per stretch of a job that has a name, in order of time; they may nest.",
    {
        "kind": Column(
            "str",
            "run (start to stop of the job), initialisation, training, evaluation, checkpoint, "
            "restart (failure to the next step), or another the log names",
        ),
        "attempt": Column("int32", "run of the job, from 1", lower=1),
        "start_ns": Column("int64", "start, ns since the Unix epoch"),
        "end_ns": Column("Int64", "end; missing if the log ends before it", nullable=True),
        "step": Column("Int64", "step after which it began", lower=0, nullable=True),
        "source": Column("str", "file, or archive and member"),
        "line": Column("int64", "line of the file, from 1", lower=1),
    },
)


@dataclass(frozen=True, eq=False)
class PowerLog:
    """The tables of the power telemetry of one load; a plain bundle without methods."""

    power: pd.DataFrame
    entities: pd.DataFrame
    states: pd.DataFrame
    counters: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any of the files says that it was simulated; figures should say so too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Say what was loaded, and list the first findings that need a look."""
        scopes = self.entities["scope"].value_counts(sort=False)
        metered = ", ".join(f"{count:,} {scope}" for scope, count in scopes.items())
        return (
            f"PowerLog: {len(self.power):,} readings of {len(self.entities):,} entities "
            f"({metered}); {flagged_text(self.quality)}"
        )


@dataclass(frozen=True, eq=False)
class JobLog:
    """The tables of the log of one training job; a plain bundle without methods."""

    steps: pd.DataFrame
    spans: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether the file says that it was simulated; figures should say so too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Say what was loaded, and list the first findings that need a look."""
        return (
            f"JobLog: {len(self.steps):,} steps, {len(self.spans):,} spans"
            f"; {flagged_text(self.quality)}"
        )
