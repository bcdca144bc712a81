"""Tables of power: samples, energy, hierarchy, scale and sweeps."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import table
from workbench.tables.traces import SAYS_SYNTHETIC, flagged_text

# Power telemetry as loaded, and the log of the job that drew it.

SCOPES = (
    "gpu", "module", "cpu", "memory", "node_dc", "node_ac", "switch", "rack", "row", "pdu", "panel",
    "switchboard", "msb", "utility", "facility", "cooling", "unknown",
)  # fmt: skip
METHODS = ("instant", "avg_1s", "average", "counter", "meter", "estimate", "unknown")

POWER = table("""
    power: One row per reading, in order of entity and time. Readings that the source lost are rows
    without power; no row is made up.

    time_ns: int64 - instant of the reading; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    entity: category - what was metered, unique in the load: node001, node001/gpu3, rack7
    power_w: float64? >=0 - power; missing where the source reported none
""")

POWER_COUNTERS = table("""
    power_counters: One row per reading of an energy counter, as written: a fall is a reset.

    time_ns: int64 - instant of the reading; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    entity: category - what was metered, unique in the load: node001, node001/gpu3, rack7
    energy_j: float64? >=0 - energy since an own zero
""")

POWER_STATES = table("""
    power_states: One row per reading of what explains power: limit, clock, load and throttle
    reasons.

    time_ns: int64 - instant of the reading; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    entity: category - what was metered, unique in the load: node001, node001/gpu3, rack7
    limit_w: float64? >=0 - limit in force
    clock_mhz: float64? >=0 - SM clock
    busy_share: float64? 0..1 - utilisation
    temperature_c: float64? - temperature of the die
    reasons: Int64? >=0 - clock event reasons as NVML's bit mask: 0x4 software power cap, 0x8
        hardware slowdown, 0x20 software thermal, 0x40 hardware thermal, 0x80 power brake
    power_violation_ns: Int64? >=0 - time held back by the power cap, cumulative
""")

POWER_ENTITIES = table("""
    power_entities: One row per metered entity: what its readings mean and how many there are.

    entity: str - what was metered, unique in the load: node001, node001/gpu3, rack7
    scope: str - where it is metered: gpu, module, cpu, memory, node_dc, node_ac, switch, rack, row,
        pdu, panel, switchboard, msb, utility, facility, cooling, unknown
    method: str - instant; avg_1s (mean of the last second); average (window unknown); counter
        (difference of energies); meter (a power meter of its own); estimate; unknown
    node: str? - host
    device: str? - GPU index, UUID or PCI address in that host
    model: str? - product, as written
    period_s: float64? >=0 - median time between readings
    reading_count: int64 >=0 - readings with power
    missing_count: int64 >=0 - readings without power
    first_ns: Int64? - first reading; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    last_ns: Int64? - last reading; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    clock: str - epoch (wall time) or own (arbitrary zero)
    assumed: str - what the caller said of its time, unit or scope; else empty
    limit_w: float64? >=0 - limit, where the file states one
    source: str - file, or archive and member
""")

POWER_TOPOLOGY = table("""
    power_topology: One row per entity in the delivery tree, parents before their children.

    entity: str - what is fed: node001, rack7, msb2
    parent: str? - what feeds it; missing at the root
    level: str - gpu, node, rack, panel, switchboard, msb, utility, ...
    nameplate_w: float64? >=0 - rated power
    limit_w: float64? >=0 - what its feed allows
    loss_share: float64? optional 0..1 - of what it draws, what is lost in it before what it feeds:
        transformer, uninterruptible supply, fans; missing is none
""")


POWER_GRID = table("""
    power_grid: One row per entity and cell of a common grid of time, in order of entity and time.

    time_ns: int64 - start of the cell; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    entity: category - what was metered, unique in the load: node001, node001/gpu3, rack7
    power_w: float64? >=0 - time-weighted mean; missing where too little is known
    covered_share: float64 0..1 - of the cell that readings cover
    meter_period_s: float64? optional >=0 - median time between readings of the meter, the slowest
        of several: cells that are shorter are interpolated, and show nothing faster; missing where
        it is not known
""")

POWER_TOTALS = table("""
    power_totals: One row per cell of a uniform grid of time: the power of many entities together.

    time_ns: int64 - start of the cell; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    power_w: float64? >=0 - sum over entities; missing where too few are known
    entity_count: int64 >=0 - entities that the sum holds
    expected_count: int64 >=0 - entities there are
    covered_share: float64 0..1 - entity_count / expected_count
    meter_period_s: float64? optional >=0 - median time between readings of the meter, the slowest
        of several: cells that are shorter are interpolated, and show nothing faster; missing where
        it is not known
""")

LOGGED_STEPS = table("""
    logged_steps: One row per training step, in order of time; a step that was repeated after a
    restart has a row per attempt.

    step: int64 >=0 - number of the step, from 0 where the log counts none
    attempt: int32 >=1 - run of the job, from 1
    start_ns: int64 - start, ns since the Unix epoch
    end_ns: int64 - end, ns since the Unix epoch
    token_count: Int64? >=0 - tokens of the step, all ranks
    sample_count: Int64? >=0 - samples of the step, all ranks
    loss: float64? optional - training loss in the unit of the objective, where the log states it
    source: str - file, or archive and member
    line: int64 >=1 - line or record of the file, from 1
""")

LOGGED_SPANS = table("""
    logged_spans: One row per named segment of a job, in order of time; they may nest.

    kind: str - run (start to stop of the job), initialisation, training, evaluation, checkpoint,
        restart (failure to the next step), or another the log names
    attempt: int32 >=1 - run of the job, from 1
    start_ns: int64 - start, ns since the Unix epoch
    end_ns: Int64? - end; missing if the log ends before it
    step: Int64? >=0 - step after which it began
    source: str - file, or archive and member
    line: int64 >=1 - line of the file, from 1
""")


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
        """Whether any file is marked as simulated; figures should say so, too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
        scopes = self.entities["scope"].value_counts(sort=False)
        metered = ", ".join(f"{count:,} {scope}" for scope, count in scopes.items())
        return (
            f"PowerLog: {len(self.power):,} readings of {len(self.entities):,} entities "
            f"({metered}); {flagged_text(self.quality)}"
        )


@dataclass(frozen=True, eq=False)
class PowerRollup:
    """The tables of a roll-up of power telemetry; a plain bundle without methods."""

    rollup: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any file is marked as simulated; figures should say so, too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Describe what was rolled up, and list the first findings that need a look."""
        readings = int(self.rollup["reading_count"].sum())
        return (
            f"PowerRollup: {readings:,} readings of {self.rollup['entity'].nunique():,} entities "
            f"in {len(self.rollup):,} cells; {flagged_text(self.quality)}"
        )


@dataclass(frozen=True, eq=False)
class JobLog:
    """The tables of the log of one training job; a plain bundle without methods."""

    steps: pd.DataFrame
    spans: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether the file is marked as simulated; figures should say so, too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
        return (
            f"JobLog: {len(self.steps):,} steps, {len(self.spans):,} spans"
            f"; {flagged_text(self.quality)}"
        )


# Energy of power telemetry: of each entity, and of many together.


ENERGY = table("""
    energy: One row per entity: its energy in a window of time, and how much of it readings cover.

    entity: str - what was metered
    method: str - trapezoid (straight lines between readings), mlperf (each reading holds since the
        one before) or counter (differences of an energy counter)
    start_ns: int64 - start of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    end_ns: int64 - end of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    energy_j: float64? >=0 - energy of the covered time alone, the least it can be; missing if
        nothing is covered
    bridged_j: float64? >=0 - estimate to add for gaps between readings, as if power had gone
        straight across them; the time before the first and after the last reading is not in it
    highest_j: float64? >=0 - the most it can be, if power was nowhere above the highest reading of
        the entity; missing if there is none
    mean_w: float64? >=0 - energy over the covered time; missing with it
    covered_share: float64 0..1 - of the window that readings cover
    unknown_s: float64 >=0 - time of the window that nothing covers
    reading_count: int64 >=0 - readings with a value in the window
    reset_count: int64 >=0 - falls of the counter in the window, else 0
    first_ns: Int64? - first reading, or the start of the window
    last_ns: Int64? - last reading, or the end of the window
""")

ENERGY_TOTAL = table("""
    energy_total: One row: the energy of many entities in one window, and how much of it is known.

    method: str - trapezoid (straight lines between readings), mlperf (each reading holds since the
        one before) or counter (differences of an energy counter)
    start_ns: int64 - start of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    end_ns: int64 - end of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    energy_j: float64? >=0 - energy of what is covered, the least it can be; missing if nothing is
    bridged_j: float64? >=0 - estimate to add for gaps between readings, as if power had gone
        straight across them; the time before the first and after the last reading is not in it
    highest_j: float64? >=0 - the most it can be, as of each entity; missing if an expected one
        never read
    mean_w: float64? >=0 - mean power of all entities together while any of them was metered: means
        of entities that were metered at one time add up, those of runs one after the other do not
    covered_share: float64 0..1 - covered time of all expected entities over their time
    unknown_s: float64 >=0 - entity-seconds that nothing covers
    entity_count: int64 >=0 - entities with an energy
    expected_count: int64 >=0 - entities there are
""")

# Power along the delivery tree: sums, what no meter explains, PUE, headroom.


POWER_TREE = table("""
    power_tree: One row per entity in the delivery tree and cell of time, in order of the topology
    and time: its power, and that of its parts. Its parts are the nearest meters below it, and what
    has neither a meter nor anything below it.

    time_ns: int64 - start of the cell; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    entity: category - what is fed
    power_w: float64? >=0 - by its own meter if it has one, else of its parts; missing where unknown
    parts_w: float64? >=0 - sum of its parts; missing where too few are known, and where there are
        none
    is_metered: bool - whether it has a meter of its own
    entity_count: int64 >=0 - parts with a value
    expected_count: int64 >=0 - parts there are
    covered_share: float64 0..1 - entity_count / expected_count; without parts, 1 where its meter
        has a value, else 0
""")

POWER_RESIDUAL = table("""
    power_residual: One row per metered entity with parts and cell of time: what its meter shows and
    its parts do not.

    time_ns: int64 - start of the cell; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    entity: category - what has a meter and parts
    metered_w: float64? >=0 - by its own meter
    parts_w: float64? >=0 - sum of its parts
    residual_w: float64? - metered_w - parts_w, missing with either
    residual_ratio: float64? - residual_w / metered_w
    is_negative: bool - whether the parts draw more than the meter shows
    covered_share: float64 0..1 - of its parts with a value
""")

PUE = table("""
    pue: One row per window of time: energy of the facility over energy of its IT.

    start_ns: int64 - start of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    end_ns: int64 - end of the window; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    facility_j: float64? >=0 - energy of the cells that both have; missing if none
    it_j: float64? >=0 - energy of the cells that both have; missing if none
    pue_ratio: float64? >=0 - facility_j / it_j; missing if no cell has both
    covered_share: float64 0..1 - of the window in which both are known
    is_below_one: bool - less for the facility than for its IT: meters disagree
""")

POWER_HIERARCHY = table("""
    power_hierarchy: One row per entity in the delivery tree, in order of the topology: how near its
    power comes to its limit, how its children's peaks coincide, and what headroom can be used.

    entity: str - what is fed
    parent: str? - what feeds it; missing at the root
    level: str - gpu, node, rack, panel, switchboard, msb, utility, ...
    is_metered: bool - whether it has a meter of its own
    child_count: int64 >=0 - entities it feeds directly
    known_count: int64 >=0 - of them, those with any value
    nameplate_w: float64? >=0 - rated power
    limit_w: float64? >=0 - what its feed allows
    mean_w: float64? >=0 - mean over the known cells
    p99_w: float64? >=0 - 99th percentile of the known cells
    peak_w: float64? >=0 - highest known cell
    peaks_w: float64? >=0 - sum of the peaks that the known children have on their own, over common
        cells
    diversity_ratio: float64? >=1 - peaks_w / peak of the children's sum
    coincidence_share: float64? 0..1 - 1 / diversity
    common_share: float64 0..1 - of the cells in which all known children have a value
    load_factor_share: float64? 0..1 - mean_w / peak_w
    peak_nameplate_ratio: float64? >=0 - peak_w / nameplate_w
    peak_limit_ratio: float64? >=0 - peak_w / limit_w
    p99_limit_ratio: float64? >=0 - p99_w / limit_w
    nameplates_limit_ratio: float64? >=0 - sum of the children's nameplates / limit_w
    p99s_limit_ratio: float64? >=0 - sum of the children's own p99_w / limit_w
    headroom_w: float64? - limit_w - peak_w; below 0 if over it
    usable_headroom_w: float64? >=0 - what could be added below it within all limits
    stranded_w: float64? >=0 - headroom that limits above or below make useless
    covered_share: float64 0..1 - of its time and parts that are known
""")

# Power of whole fleets over long times, in fewer numbers.

POWER_ROLLUP = table("""
    power_rollup: One row per entity and cell of time that holds readings or time between two of
    them, in order of entity and time: what suffices to make longer cells of it.

    time_ns: int64 - start of the cell; ns since the Unix epoch
    entity: category - what was metered, unique in the load: node001, node001/gpu3, rack7
    period_s: float64 >=0 - length of the cell
    reading_count: int64 >=0 - readings in the cell, each stamp of an entity once
    mean_w: float64? >=0 - mean of the readings, each counted alike; missing where there are none
    min_w: float64? >=0 - lowest reading
    max_w: float64? >=0 - highest reading
    m2_w2: float64 >=0 - sum of squared deviations of the readings from their mean, W^2; their
        variance is this over reading_count
    energy_j: float64? >=0 - energy of the covered time, straight lines between readings; missing
        where none is covered
    covered_share: float64 0..1 - of the cell that lies between readings near enough to know it
""")

POWER_SAMPLED = table("""
    power_sampled: One row per reading that a line through a long series must not lose, in order of
    time.

    time_ns: int64 - instant of the reading; ns since the Unix epoch, or since an own zero where
        `entities.clock` is own
    power_w: float64? >=0 - power; missing where a gap begins or ends
    row: int64 >=0 - row of the series that it was, from 0
""")


# What a job draws and how long it takes under one power limit after the other.

POWER_SWEEPS = table("""
    power_sweeps: One row per job and power limit, all of one GPU: its mean power, and the time and
    energy of a piece of work that is the same under every limit of that job.

    gpu: str? - product, as the file or its name says
    job: str - what was run; limits are compared within one
    dataset: str? - what it was run on
    network: str? - model that was run
    batch_count: Int64? >=1 - samples of a batch
    limit_w: float64? >=0 - power limit of one GPU
    power_w: float64? >=0 - mean power of one GPU
    time_s: float64? >=0 - time of the piece of work: an epoch, a window
    energy_j: float64? >=0 - energy of one GPU in that time
    gpu_count: int64 >=1 - GPUs that the means are over
    run_count: int64 >=1 - measurements that the row is the mean of
    variant: str? - what differs between them: optimiser
    doubt: str - what is odd about the numbers; else empty
    source: str - file, or archive and member
    line: int64 >=1 - line of the file, or record, of the first of them
""")
