"""Tables of power: samples, energy, hierarchy, scale, sweeps, limits and swings."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables.table import table
from workbench.tables.traces import Loaded, flagged_text

# Power telemetry as loaded, and the log of the job that drew it.

SCOPES = (
    "gpu", "module", "cpu", "memory", "node_dc", "node_ac", "switch", "rack", "row", "pdu", "panel",
    "switchboard", "msb", "utility", "facility", "cooling", "unknown",
)  # fmt: skip

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
class PowerLog(Loaded):
    """The tables of the power telemetry of one load; a plain bundle without methods."""

    power: pd.DataFrame
    entities: pd.DataFrame
    states: pd.DataFrame
    counters: pd.DataFrame
    quality: pd.DataFrame

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
        scopes = self.entities["scope"].value_counts(sort=False)
        metered = ", ".join(f"{count:,} {scope}" for scope, count in scopes.items())
        return (
            f"PowerLog: {len(self.power):,} readings of {len(self.entities):,} entities "
            f"({metered}); {flagged_text(self.quality)}"
        )


@dataclass(frozen=True, eq=False)
class PowerRollup(Loaded):
    """The tables of a roll-up of power telemetry; a plain bundle without methods."""

    rollup: pd.DataFrame
    quality: pd.DataFrame

    def __repr__(self) -> str:
        """Describe what was rolled up, and list the first findings that need a look."""
        readings = int(self.rollup["reading_count"].sum())
        return (
            f"PowerRollup: {readings:,} readings of {self.rollup['entity'].nunique():,} entities "
            f"in {len(self.rollup):,} cells; {flagged_text(self.quality)}"
        )


@dataclass(frozen=True, eq=False)
class JobLog(Loaded):
    """The tables of the log of one training job; a plain bundle without methods."""

    steps: pd.DataFrame
    spans: pd.DataFrame
    quality: pd.DataFrame

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


# Tables of limits on power: capping, feeds, ramps and grid specifications.

# When power was capped, how it shows, and what it cost.


CAPPING_EVENTS = table("""
    capping_events: One row per segment in which one device was held back by power, in order of
    start.

    entity: str - what was capped, as in `power_states`: node001/gpu3
    start_ns: int64 - start, halfway to the reading before; clock of the load
    end_ns: int64 - end, halfway to the reading after; clock of the load
    duration_s: float64 >=0 - end - start
    uncertain_s: float64 >=0 - start and end may each be wrong by so much, from the sampling
    evidence: str - what tells: clock reasons; violation counter; power at limit (capping is
        likely, not certain); none (the telemetry cannot tell)
    reason: str - power cap (0x4), power brake (0x80), both; not told without clock reasons
    reading_count: int64 >=1 - capped readings
    limit_w: float64? >=0 - median limit in force
    power_w: float64? >=0 - median power
    power_to_limit_ratio: float64? >=0 - power / limit
    clock_mhz: float64? >=0 - median clock
    uncapped_clock_mhz: float64? >=0 - median clock of the device under load, uncapped
    clock_loss_ratio: float64? <=1 - 1 - clock / uncapped clock; below 0 if faster
    held_back_s: float64? >=0 - increase of the violation counter
    is_cut: bool - whether it starts or ends at a gap, or with the log
""")

CAPPED_SHARE = table("""
    capped_share: One row per device: how much of its time was capped, and how much is known at
    all.

    entity: str - what was capped, as in `power_states`: node001/gpu3
    evidence: str - what tells: clock reasons; violation counter; power at limit (capping is
        likely, not certain); none (the telemetry cannot tell)
    event_count: int64 >=0 - segments of capping
    capped_s: float64 >=0 - time that was capped
    known_s: float64 >=0 - time that readings cover
    capped_share: float64? 0..1 - capped_s / known_s; missing if nothing is known
    covered_share: float64 0..1 - known_s / time from the first to the last reading of any device
""")

CAPPING_COST = table("""
    capping_cost: One row per attempt of a job: what capped steps took beyond steps that were not
    capped.

    attempt: int32 >=1 - run of the job, from 1
    capped_step_count: int64 >=0 - steps during which any device was capped
    uncapped_step_count: int64 >=0 - steps to compare with
    left_out_step_count: int64 >=0 - first steps of the attempt, steps far longer than their peers,
        and steps at the uncertain end of an event
    capped_median_s: float64? >=0 - median capped step
    uncapped_median_s: float64? >=0 - median uncapped step
    cost_s: float64? - sum over capped steps of duration - uncapped median
    low_cost_s: float64? - lower end of its bootstrap interval
    high_cost_s: float64? - upper end of its bootstrap interval
    local_cost_s: float64? - the same against the nearest uncapped steps on either side, the slower
    cost_ratio: float64? - cost / time of all steps kept
    doubt: str - why the cost may not be that of capping; empty if nothing speaks
""")

CAPPING_BLAME = table("""
    capping_blame: One row per device that was capped: which steps it was capped in, and decided.

    entity: str - what was capped, as in `power_states`: node001/gpu3
    event_count: int64 >=0 - segments of capping
    capped_step_count: int64 >=0 - steps during which it was capped
    blamed_step_count: int64 >=0 - of these, steps in which no other device was held back more
    blamed_share: float64 0..1 - blamed steps / all capped steps of the job
    blamed_s: float64? - what the blamed steps took beyond the median uncapped step
    clock_loss_ratio: float64? <=1 - median clock loss in its events
    doubt: str - why the blame may be wrong; empty if nothing speaks
""")

# What a power limit costs and buys: curves, knees, and how many GPUs a site can feed.


POWER_CURVE = table("""
    power_curve: One row per configuration and power limit, in order of the limit; ratios are
    against the largest limit of the configuration.

    gpu: str - product, as the sweep or the source names it
    job: str - what ran: the network, or the product as a whole
    configuration: str - setting of the job; 'median of n' where several are one curve
    configuration_count: int64 >=1 - configurations behind the row
    limit_w: float64 >=0 - power limit of one GPU
    power_w: float64? >=0 - mean power of one GPU
    speed_ratio: float64 >=0 - speed against the largest limit
    energy_ratio: float64? >=0 - energy of the same work against the largest limit
    saving_ratio: float64? <=1 - 1 - energy_ratio
    basis: str - measured, published, derived, interpolated or extrapolated
    is_extrapolated: bool - outside the limits that were measured or published
    doubt: str - why the number is in doubt; empty if it is not
    source: str - file, or publication
""")

POWER_KNEES = table("""
    power_knees: One row per GPU and job: limits that stand out on its curve; medians over
    configurations.

    gpu: str - product, as the sweep or the source names it
    job: str - what ran: the network, or the product as a whole
    configuration_count: int64 >=1 - curves behind the row
    largest_limit_w: float64 >=0 - largest limit
    least_energy_limit_w: float64? >=0 - limit at which the work costs least energy
    saving_ratio: float64? <=1 - energy saved there against the largest limit
    speed_loss_ratio: float64? <=1 - speed lost there; below 0 if it was faster
    time_increase_ratio: float64? - time added there, which is more than the speed lost
    kept_speed_share: float64 0..1 - speed that had to be kept
    kept_speed_limit_w: float64 >=0 - smallest limit that keeps it
    edp_limit_w: float64? >=0 - limit of least energy x time
    ed2p_limit_w: float64? >=0 - limit of least energy x time x time
    knee_limit_w: float64? >=0 - limit where the curve bends most
    per_watt_limit_w: float64 >=0 - limit of most speed per watt of limit
    doubt: str - why the row is in doubt; empty if it is not
""")

PROVISIONING = table("""
    provisioning: One row per curve and power limit: how many GPUs a site feeds, and what they do
    together.

    gpu: str - product, as the sweep or the source names it
    job: str - what ran: the network, or the product as a whole
    configuration: str - setting of the job; 'median of n' where several are one curve
    limit_w: float64 >=0 - power limit of one GPU
    gpu_count: int64 >=0 - GPUs that the site feeds at that limit
    speed_ratio: float64 >=0 - speed of one GPU against the largest limit
    throughput_ratio: float64 >=0 - of all GPUs, in GPUs that run at the largest limit
    reference_limit_w: float64 >=0 - limit that is compared with
    gain_ratio: float64 >=-1 - throughput / throughput at the reference limit - 1
    site_w: float64 >=0 - power of the site if every GPU draws its limit
    energy_ratio: float64? >=0 - site energy of the same work / at the reference limit
    is_best: bool - whether no other row of the curve has more throughput
    basis: str - measured, published, derived, interpolated or extrapolated
    is_extrapolated: bool - outside the limits that were measured or published
    doubt: str - why the number is in doubt; empty if it is not
    source: str - file, or publication
""")

PUBLISHED_GAINS = table("""
    published_gains: One row per throughput gain that others published for a lower limit at the
    same site power.

    gpu: str - product, as the sweep or the source names it
    limit_w: float64 >=0 - power limit of one GPU
    reference_limit_w: float64 >=0 - limit that was compared with
    gain_ratio: float64 >=-1 - gain in throughput; 0.09 is 9 % more
    low_gain_ratio: float64 >=-1 - least gain that rounds to what was printed
    high_gain_ratio: float64 >=-1 - most gain that rounds to what was printed
    trust: str - how far the number can be trusted: printed (in the source), reported (by somebody
        else, of the source), calculated (from numbers of the other two)
    source: str - publication, and who reported it
""")

PROVISIONING_FACTS = table("""
    provisioning_facts: One row per published number about sites and their power.

    quantity: str - what it is
    value: float64 - number, in the unit of the row
    unit: str - W, 1 (a count or ratio)
    trust: str - how far the number can be trusted: printed (in the source), reported (by somebody
        else, of the source), calculated (from numbers of the other two)
    source: str - publication, and who reported it
""")

# Power shared out along the delivery tree while a job runs: who is capped, and what it costs.

POWER_LOADS = table("""
    power_loads: One row per load and instant: what it would draw, and what holding it back costs.

    time_ns: int64 - instant, or start of the cell; the same for all loads
    entity: category - what draws, as in the topology: node001, node001/gpu3
    demand_w: float64? >=0 - what it draws if nothing limits it; missing where unknown
    floor_w: float64 >=0 - least it can be held to: smallest limit, or floor of power smoothing
    job: str - what it works for; all loads of a job wait for its slowest
    priority: int64 - loads of a lower priority are cut first; the same at all instants
    gpu_count: int64 >=1 - GPUs behind it
    slowdown_per_w: float64 >=0 - share of its speed that it loses per watt it is cut
    step_s: float64? >=0 - length of a step of its job; missing where unknown
    doubt: str - what was assumed; empty if nothing
""")

POWER_MANAGEMENT = table("""
    power_management: One row per entity in the delivery tree and instant, in order of the topology
    and time: what it would draw, what it is granted, and what its breaker bears.

    time_ns: int64 - instant, as in the loads
    entity: category - what is fed
    is_load: bool - whether it is a load, not a feed
    job: str? - what a load works for; missing at a feed
    demand_w: float64? >=0 - its own, or of all loads below with the losses on the way
    limit_w: float64? >=0 - what its feed allows at that instant; missing if nothing limits it
    granted_w: float64? >=0 - what it draws
    loss_w: float64? >=0 - granted_w minus what its children draw; 0 in a load
    floor_w: float64? >=0 - its own, or of all loads below with the losses on the way
    is_capped: bool - whether it, or a load below it, is granted less than its demand
    is_below_floor: bool - load: granted less than its floor; feed: floors below it exceed its limit
    slowdown_share: float64? 0..1 - speed that it loses; of a feed, the most of any load below
    trip_ratio: float64? >=0 - of the overload that its breaker bears; from 1 on it has tripped
    doubt: str - what the numbers rest on; empty if nothing
""")

DEMAND_RESPONSE = table("""
    demand_response: One row per policy and share to shed: what it costs to hold a feed to a level
    for some time.

    policy: str - who is cut first: cost (least work lost), priority, slack (all alike)
    entity: str - feed that is held to the level
    shed_share: float64 0..1 - of the peak of the feed's demand, what must not be drawn
    level_w: float64 >=0 - what it may draw
    duration_min: float64 >=0 - how long it is held
    reduced_w: float64 >=0 - mean reduction of the feed
    lost_step_count: float64? >=0 - steps not done by the largest job whose step time is known;
        missing if none is
    lost_gpu_h: float64 >=0 - GPU-hours of work not done, waiting for the slowest included
    saved_j: float64 >=0 - energy not drawn at the root meanwhile, losses included
    catch_up_j: float64 >=0 - energy that the lost work draws when it is done later
    capped_count: int64 >=0 - loads capped at any instant
    below_floor_count: int64 >=0 - loads that would be pushed below their floor
    is_reached: bool - whether the level is kept with every load at its floor or above
    doubt: str - what the numbers rest on; empty if nothing
""")


# Power that swings: steps, ramps, spectra, what a grid allows, and what smoothing would do.


POWER_SWINGS = table("""
    power_swings: One row per training step, or window of one step period: how far power moves
    inside it.

    step: Int64? - number of the step; missing for windows
    start_ns: int64 - start of the window; ns, on the clock of the totals
    end_ns: int64 - end of the window; ns, on the clock of the totals
    low_w: float64? >=0 - 5th percentile of its cells
    high_w: float64? >=0 - 95th percentile of its cells
    swing_w: float64? >=0 - high_w - low_w
    range_w: float64? >=0 - largest cell - smallest
    mean_w: float64? >=0 - mean of its cells
    cell_count: int64 >=0 - known cells that begin in it
    covered_share: float64 0..1 - known cells / cells it should have
""")

POWER_SPECTRUM = table("""
    power_spectrum: One row per frequency above 0: how much of the AC component of power is there.

    frequency_hz: float64 >=0 - middle of the bin
    density_w2_per_hz: float64 >=0 - power spectral density (Welch)
    variance_share: float64 0..1 - of the variance at f > 0
    sensor_ratio: float64? 0..1 - amplitude left by averaging in the sensor; missing if that is not
        known
    nyquist_hz: float64 >=0 - half of the sampling frequency: nothing above it can be seen
    half_power_hz: float64? - where averaging takes 3 dB: 0.443 / averaging time
    segment_count: int64 >=1 - overlapping segments averaged
    covered_share: float64 0..1 - cells used / cells there are
    filled_count: int64 >=0 - missing cells interpolated
""")

POWER_PEAKS = table("""
    power_peaks: One row per peak of a spectrum, highest first.

    frequency_hz: float64 >=0 - of the highest bin
    period_s: float64 >=0 - 1 / frequency_hz
    density_w2_per_hz: float64 >=0 - density there
    variance_share: float64 0..1 - of its bin and two on either side
    harmonic: int64 >=1 - n, where it is n times the fundamental; else 1
    fundamental_hz: float64 >=0 - its fundamental; itself where harmonic is 1
    resolution_hz: float64 >=0 - distance of two bins
""")

GRID_CHECK = table("""
    grid_check: One row per requirement of a grid: its limit, what was measured, and the verdict.

    spec: str - name of the specification
    requirement: str - what is limited, in words
    limit: float64 >=0 - the most that is allowed, in `unit`
    measured: float64? >=0 - in `unit`; missing if unseen
    margin: float64? - limit - measured, in `unit`
    unit: str - W/s, W or share
    verdict: str - pass; fail; unknown (the meter cannot tell, so it is not pass)
    why: str - what the verdict rests on
    low_hz: float64? >=0 - lower end of the band
    high_hz: float64? >=0 - upper end of the band
    visible_share: float64 0..1 - of the requirement that the meter can see
    covered_share: float64 0..1 - of the time that is known
""")

POWER_SMOOTHING = table("""
    power_smoothing: One row per cell of the totals: power before and after smoothing, and where it
    goes.

    time_ns: int64 - start of the cell; ns, on the clock of the totals
    power_w: float64? - as measured, short gaps interpolated
    load_w: float64? - drawn by the machines, with ballast
    smoothed_w: float64? - drawn from the grid
    ballast_w: float64? >=0 - burnt on top: load above power
    unmet_w: float64? >=0 - held back: power above load, which slows the job
    storage_w: float64? - into the energy storage; below 0 out of it
    stored_j: float64? - charge at the end of the cell; from 0 where it is unlimited
    stored_share: float64? 0..1 - of its capacity; missing if unlimited
    lost_w: float64? >=0 - lost in the storage
    is_filled: bool - whether the cell was missing and interpolated
    meter_period_s: float64? optional >=0 - as in the totals
""")

SMOOTHING_SUMMARY = table("""
    smoothing_summary: Two rows: before and after smoothing. What it costs, what is left, what it
    needs.

    version: str - before or after
    mean_w: float64 >=0 - mean
    peak_w: float64 >=0 - largest cell
    swing_w: float64 >=0 - 99th - 1st percentile
    deviation_w: float64 >=0 - standard deviation
    ramp_w_per_s: float64 >=0 - fastest change between two cells
    energy_j: float64 >=0 - of all cells
    energy_ratio: float64 >=0 - energy_j / energy before
    ballast_j: float64 >=0 - burnt on top
    unmet_j: float64 >=0 - demand held back
    lost_j: float64 >=0 - lost in the storage
    stored_change_j: float64 - charge at the end - at the start
    storage_w: float64 >=0 - most power in or out of the storage
    storage_j: float64 >=0 - largest charge - smallest
    verdict: str? - worst verdict of the specification
    why: str? - requirements by verdict
    covered_share: float64 0..1 - cells used / cells there are
""")
