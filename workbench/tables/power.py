"""Tables of power: samples, energy, hierarchy, scale and sweeps."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import Column, Table
from workbench.tables.traces import SAYS_SYNTHETIC, flagged_text

# Power telemetry as loaded, and the log of the job that drew it.

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


# Energy of power telemetry: of each entity, and of many together.

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

# Power along the delivery tree: sums, what no meter explains, PUE, headroom.

_PARTS = "parts are the nearest meters below it, and what has neither a meter nor anything below it"

POWER_TREE = Table(
    "power_tree",
    "One row per thing in the delivery tree and cell of time, in order of the topology and time: "
    f"its power, and that of its parts. Its {_PARTS}.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "entity": Column("category", "what is fed"),
        "power_w": Column(
            "float64",
            "by its own meter if it has one, else of its parts; missing where unknown",
            lower=0,
            nullable=True,
        ),
        "parts_w": Column(
            "float64",
            "sum of its parts; missing where too few are known, and where there are none",
            lower=0,
            nullable=True,
        ),
        "is_metered": Column("bool", "whether it has a meter of its own"),
        "entity_count": Column("int64", "parts with a value", lower=0),
        "expected_count": Column("int64", "parts there are", lower=0),
        "covered_share": Column(
            "float64",
            "entity_count / expected_count; without parts, 1 where its meter has a value, else 0",
            lower=0,
            upper=1,
        ),
    },
)

POWER_RESIDUAL = Table(
    "power_residual",
    "One row per metered thing with parts and cell of time: what its meter shows and its parts "
    "do not.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "entity": Column("category", "what has a meter and parts"),
        "metered_w": Column("float64", "by its own meter", lower=0, nullable=True),
        "parts_w": Column("float64", "sum of its parts", lower=0, nullable=True),
        "residual_w": Column("float64", "metered_w - parts_w, missing with either", nullable=True),
        "residual_ratio": Column("float64", "residual_w / metered_w", nullable=True),
        "is_negative": Column("bool", "whether the parts draw more than the meter shows"),
        "covered_share": Column("float64", "of its parts with a value", lower=0, upper=1),
    },
)

PUE = Table(
    "pue",
    "One row per window of time: energy of the facility over energy of its IT.",
    {
        "start_ns": Column("int64", f"start of the window; {_TIME}"),
        "end_ns": Column("int64", f"end of the window; {_TIME}"),
        "facility_j": Column(
            "float64", "energy of the cells that both have; missing if none", lower=0, nullable=True
        ),
        "it_j": Column(
            "float64", "energy of the cells that both have; missing if none", lower=0, nullable=True
        ),
        "pue_ratio": Column(
            "float64", "facility_j / it_j; missing if no cell has both", lower=0, nullable=True
        ),
        "covered_share": Column(
            "float64", "of the window in which both are known", lower=0, upper=1
        ),
        "is_below_one": Column("bool", "less for the facility than for its IT: meters disagree"),
    },
)

POWER_HIERARCHY = Table(
    "power_hierarchy",
    "One row per thing in the delivery tree, in order of the topology: how near its power comes "
    "to its limit, how its children's peaks coincide, and what headroom can be used.",
    {
        "entity": Column("str", "what is fed"),
        "parent": Column("str", "what feeds it; missing at the root", nullable=True),
        "level": Column("str", "gpu, node, rack, panel, switchboard, msb, utility, ..."),
        "is_metered": Column("bool", "whether it has a meter of its own"),
        "child_count": Column("int64", "things it feeds directly", lower=0),
        "known_count": Column("int64", "of them, those with any value", lower=0),
        "nameplate_w": Column("float64", "rated power", lower=0, nullable=True),
        "limit_w": Column("float64", "what its feed allows", lower=0, nullable=True),
        "mean_w": Column("float64", "mean over the known cells", lower=0, nullable=True),
        "p99_w": Column("float64", "99th percentile of the known cells", lower=0, nullable=True),
        "peak_w": Column("float64", "highest known cell", lower=0, nullable=True),
        "peaks_w": Column(
            "float64",
            "sum of the peaks that the known children have on their own, over common cells",
            lower=0,
            nullable=True,
        ),
        "diversity_ratio": Column(
            "float64", "peaks_w / peak of the children's sum", lower=1, nullable=True
        ),
        "coincidence_share": Column("float64", "1 / diversity", lower=0, upper=1, nullable=True),
        "common_share": Column(
            "float64", "of the cells in which all known children have a value", lower=0, upper=1
        ),
        "load_factor_share": Column("float64", "mean_w / peak_w", lower=0, upper=1, nullable=True),
        "peak_nameplate_ratio": Column("float64", "peak_w / nameplate_w", lower=0, nullable=True),
        "peak_limit_ratio": Column("float64", "peak_w / limit_w", lower=0, nullable=True),
        "p99_limit_ratio": Column("float64", "p99_w / limit_w", lower=0, nullable=True),
        "nameplates_limit_ratio": Column(
            "float64", "sum of the children's nameplates / limit_w", lower=0, nullable=True
        ),
        "p99s_limit_ratio": Column(
            "float64", "sum of the children's own p99_w / limit_w", lower=0, nullable=True
        ),
        "headroom_w": Column("float64", "limit_w - peak_w; below 0 if over it", nullable=True),
        "usable_headroom_w": Column(
            "float64", "what could be added below it within all limits", lower=0, nullable=True
        ),
        "stranded_w": Column(
            "float64", "headroom that limits above or below make useless", lower=0, nullable=True
        ),
        "covered_share": Column(
            "float64", "of its time and parts that are known", lower=0, upper=1
        ),
    },
)

# Power of whole fleets over long times, in fewer numbers.

POWER_ROLLUP = Table(
    "power_rollup",
    "One row per entity and cell of time that holds readings, in order of entity and time: what "
    "suffices to make longer cells of it without loss.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "period_s": Column("float64", "length of the cell", lower=0),
        "reading_count": Column("int64", "readings in the cell", lower=1),
        "mean_w": Column("float64", "mean of the readings", lower=0),
        "min_w": Column("float64", "lowest reading", lower=0),
        "max_w": Column("float64", "highest reading", lower=0),
        "m2_w2": Column(
            "float64",
            "sum of squared deviations of the readings from their mean, W^2; their variance is "
            "this over reading_count",
            lower=0,
        ),
    },
)

POWER_SAMPLED = Table(
    "power_sampled",
    "One row per reading that a line through a long series must not lose, in order of time.",
    {
        "time_ns": Column("int64", f"instant of the reading; {_TIME}"),
        "power_w": Column(
            "float64", "power; missing where a gap begins or ends", lower=0, nullable=True
        ),
        "row": Column("int64", "row of the series that it was, from 0", lower=0),
    },
)

POWER_HEATMAP = Table(
    "power_heatmap",
    "One row per entity and column of a picture, in order of entity and time: whole watts of "
    "the cells of the grid that lie in it.",
    {
        "time_ns": Column("int64", f"start of the column; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "mean_w": Column(
            "Int32", "mean over the known cells, rounded; missing if none is", 0, nullable=True
        ),
        "max_w": Column(
            "Int32", "highest of the known cells, rounded; missing if none is", 0, nullable=True
        ),
        "covered_share": Column("float64", "of the cells that are known", lower=0, upper=1),
    },
)

# What a job draws and how long it takes under one power limit after the other.

POWER_SWEEPS = Table(
    "power_sweeps",
    "One row per job and power limit, all of one GPU: its mean power, and the time and energy of "
    "a piece of work that is the same under every limit of that job.",
    {
        "gpu": Column("str", "product, as the file or its name says", nullable=True),
        "job": Column("str", "what was run; limits are compared within one"),
        "dataset": Column("str", "what it was run on", nullable=True),
        "network": Column("str", "model that was run", nullable=True),
        "batch_count": Column("Int64", "samples of a batch", lower=1, nullable=True),
        "limit_w": Column("float64", "power limit of one GPU", lower=0, nullable=True),
        "power_w": Column("float64", "mean power of one GPU", lower=0, nullable=True),
        "time_s": Column(
            "float64", "time of the piece of work: an epoch, a window", lower=0, nullable=True
        ),
        "energy_j": Column("float64", "energy of one GPU in that time", lower=0, nullable=True),
        "gpu_count": Column("int64", "GPUs that the means are over", lower=1),
        "run_count": Column("int64", "measurements that the row is the mean of", lower=1),
        "variant": Column("str", "what differs between them: optimiser", nullable=True),
        "doubt": Column("str", "what is odd about the numbers; else empty"),
        "source": Column("str", "file, or archive and member"),
        "line": Column("int64", "line of the file, or record, of the first of them", lower=1),
    },
)
