"""Rules on power telemetry: capping, throttling, odd GPUs, idle power, swings, meters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pandas as pd

from workbench._shared.numbers import significant
from workbench.analyze._lib.finding_rules import Finding, needs, rows_of, rule
from workbench.analyze._power.capping import capped_share, capping_cost, capping_events
from workbench.analyze._power.energy import energy
from workbench.analyze._power.grid import power_grid, power_totals
from workbench.tables import POWER_TOTALS, Bundle, JobLog, PowerLog

_NVML = "NVML clocks event reasons, docs.nvidia.com/deploy/nvml-api"
_SWINGS = "arXiv:2508.14318, Power stabilization for AI training datacenters"
_POLCA = "doi:10.1145/3620666.3651329, Power management opportunities for LLMs in the cloud"
_SILICON = "arXiv:2208.11035, Not all GPUs are created equal"
# NVML's bits: hardware slowdown, software and hardware thermal slowdown, power brake.
_THERMAL, _BRAKE, _POWER_CAP = 0x20 | 0x40, 0x80, 0x4
_BUSY = 0.5
_OUTERMOST_FIRST = (
    "facility", "pdu", "row", "rack", "node_ac", "node_dc", "module", "gpu", "unknown",
)  # fmt: skip
_MOST_CELLS = 100_000


class Metered:
    """The tables that several rules on power read, each computed once."""

    domain = "power"
    needs = ("power logs",)

    def __init__(self, log: PowerLog, job: JobLog | None) -> None:
        self.log = log
        self.job = job
        self.gpus = log.entities[log.entities["scope"].isin(["gpu", "module"])]

    @classmethod
    def of(cls, bundle: Bundle) -> Metered | None:
        """Take the power log of a bundle if it holds readings."""
        log = bundle.power
        return (
            cls(log, bundle.job) if log is not None and log.power["power_w"].notna().any() else None
        )

    @cached_property
    def by_gpu(self) -> pd.DataFrame:
        """Mean power, clock and load of every GPU while it is busy."""
        states = self.log.states
        joined = self.with_power(states[states["entity"].isin(self.gpus["entity"])])
        busy = joined[joined["busy_share"] >= _BUSY]
        table = busy.groupby("entity").agg(
            power_w=("power_w", "mean"), clock_mhz=("clock_mhz", "median"),
            busy_share=("busy_share", "mean"), limit_w=("limit_w", "median"),
            temperature_c=("temperature_c", "max"), reading_count=("power_w", "count"),
        )  # fmt: skip
        readings = joined.groupby("entity")["power_w"].count()
        return table.assign(busy_time_share=table["reading_count"] / readings)

    def with_power(self, states: pd.DataFrame) -> pd.DataFrame:
        power = self.log.power.assign(entity=self.log.power["entity"].astype(str))
        named = states.assign(entity=states["entity"].astype(str))
        return named.merge(power, on=["time_ns", "entity"])

    @cached_property
    def events(self) -> pd.DataFrame:
        return capping_events(self.log.power, self.log.states)

    @cached_property
    def total(self) -> pd.DataFrame:
        """Sum over the outermost scope; the meters of one clock only."""
        entities = self.log.entities
        entities = entities[(entities["clock"] == entities["clock"].mode().iloc[0])
                            & (entities["reading_count"] > 1)]  # fmt: skip
        held = [scope for scope in _OUTERMOST_FIRST if (entities["scope"] == scope).any()]
        if not held:
            return POWER_TOTALS.empty()
        chosen = entities[entities["scope"] == held[0]]
        # Not the time that all cover: one meter that fails early would leave next to nothing.
        begin, end = int(chosen["first_ns"].median()), int(chosen["last_ns"].median())
        period_s = max(float(chosen["period_s"].max()), (end - begin) / 1e9 / _MOST_CELLS)
        if end - begin < 2 * period_s * 1e9:
            # Recordings one after the other have no sum, and fewer than three readings no change.
            return POWER_TOTALS.empty()
        rows = self.log.power[self.log.power["entity"].isin(chosen["entity"])]
        grid = power_grid(rows, period_s=period_s, start_ns=begin, end_ns=end)
        return power_totals(grid, least_covered_share=0.9)


def _named(names: pd.Index | pd.Series, most: int = 4) -> str:
    unique = [str(name) for name in pd.unique(pd.Series(names))]
    return ", ".join(unique[:most]) + (
        f" and {len(unique) - most} more" if len(unique) > most else ""
    )


@rule(Metered, reference=_NVML)
def capped_gpu(metered: Metered, *, least_share: float = 0.02) -> Iterator[Finding]:
    """GPUs are held back by their power limit."""
    needs(len(metered.log.states), 1, "readings of clocks, limits or utilization")
    shares = capped_share(metered.log.power, metered.log.states)
    # Meters of hosts have no limit of their own.
    shares = shares[shares["entity"].isin(metered.gpus["entity"])]
    held = shares[shares["capped_share"].fillna(0) >= least_share]
    if held.empty:
        return
    events = metered.events[metered.events["entity"].isin(held["entity"])]
    lost = events["clock_loss_ratio"].astype("float64")
    loss = float(np.nanmedian(lost)) if lost.notna().any() else float("nan")
    seconds, share, doubt, basis = 0.0, None, "no job log: the cost in steps is not known", ""
    if metered.job is not None and len(metered.job.steps) and len(events):
        cost = capping_cost(events, metered.job.steps)
        known = cost[cost["cost_s"].notna()]
        if len(known):
            seconds = max(float(known["cost_s"].sum()), 0.0)
            steps = metered.job.steps
            share = min(seconds / float((steps["end_ns"].max() - steps["start_ns"].min()) / 1e9), 1)
            doubt = "; ".join(sorted({str(text) for text in known["doubt"] if text}))
            basis = "steps during capping beyond the median of the others"
            if float(known["low_cost_s"].sum()) <= 0:
                doubt = doubt or "the interval of the cost includes 0: others set the pace"
    kinds = set(held["evidence"].astype(str))
    are, lose, their = ("is", "loses", "its") if len(held) == 1 else ("are", "lose", "their")
    yield Finding(
        f"{len(held)} of {len(shares)} GPUs {are} capped by {their} power limit"
        + (f" and {lose} {loss:.0%} of {their} clock" if loss > 0 else ""),
        where=f"{_named(held['entity'])}; {held['capped_share'].max():.0%} of the time at most",
        cost=seconds if basis else None,
        cost_unit="s of the job" if basis else "",
        cost_basis=basis,
        time_share=share,
        confidence="high" if "clock reasons" in kinds else "medium",
        doubt=doubt,
        evidence="analyze.capping_events, explore.capping_events (notebook 06)",
        next_step="compare limits with nvidia-smi -q -d POWER; raise or restore them",
    )


@rule(Metered, reference=_NVML)
def thermal_throttling(metered: Metered, *, least_share: float = 0.005) -> Iterator[Finding]:
    """GPUs lower their clocks because they are too hot."""
    states = metered.log.states
    needs(int(states["reasons"].notna().sum()), 1, "readings of the reasons for clocks")
    reasons = states["reasons"].fillna(0).astype("int64")
    is_hot = (reasons & _THERMAL) != 0
    by_gpu = is_hot.groupby(states["entity"].astype(str)).mean()
    by_gpu = by_gpu[by_gpu >= least_share].sort_values(ascending=False)
    if by_gpu.empty:
        return
    hottest = states.loc[is_hot, "temperature_c"].max()
    yield Finding(
        f"{len(by_gpu)} GPU{'s' * (len(by_gpu) > 1)} throttle for heat, up to {by_gpu.iloc[0]:.1%} "
        "of the time",
        where=_named(by_gpu.index) + (f"; up to {hottest:.0f} °C" if pd.notna(hottest) else ""),
        confidence="high",
        doubt="readings are samples: short throttling is missed",
        evidence="load.power(...).states (docs/power.md)",
        next_step="check fans, air flow, cold plates and the inlet temperature of these hosts",
    )


@rule(Metered, reference=_NVML)
def power_brake(metered: Metered) -> Iterator[Finding]:
    """The power brake of the host slows GPUs down."""
    states = metered.log.states
    needs(int(states["reasons"].notna().sum()), 1, "readings of the reasons for clocks")
    braked = states[(states["reasons"].fillna(0).astype("int64") & _BRAKE) != 0]
    if braked.empty:
        return
    yield Finding(
        f"The power brake acted on {braked['entity'].nunique()} GPUs in {len(braked)} readings",
        where=_named(braked["entity"]),
        confidence="high",
        evidence="load.power(...).states (docs/power.md)",
        next_step="check the power supplies and the rack's limit",
    )


@rule(Metered, reference=_SILICON)
def odd_gpu(
    metered: Metered, *, least_gap_share: float = 0.12, fewest_gpus: float = 4,
    least_deviations: float = 4.0,
) -> Iterator[Finding]:  # fmt: skip
    """A GPU draws less power than its peers at the same load."""
    table = metered.by_gpu
    table = table[(table["reading_count"] >= 10) & table["power_w"].notna()]
    needs(len(table), fewest_gpus, "GPUs with readings of power at work")
    middle = float(table["power_w"].median())
    spread = float((table["power_w"] - middle).abs().median()) * 1.4826
    low = table[(table["power_w"] < (1 - least_gap_share) * middle)
                & (middle - table["power_w"] > least_deviations * spread)]  # fmt: skip
    # Many low ones are another group (a stage, another job), not odd ones.
    if low.empty or len(low) > len(table) / 4:
        return
    clock = float(low["clock_mhz"].median() / table["clock_mhz"].median())
    yield Finding(
        f"{len(low)} GPU{'s' * (len(low) > 1)} draw {1 - low['power_w'].median() / middle:.0%} "
        "less than the median at full load",
        where=f"{_named(low.index)}; lowest {low['power_w'].min():.0f} W of {middle:.0f} W",
        confidence="high" if clock < 0.97 else "medium",
        doubt="" if clock < 0.97 else "clocks are as usual: it may simply have less work",
        evidence="analyze.energy, plot.energy (notebook 06)",
        next_step="compare clocks, limits and its time in compute kernels with a neighbour",
    )


@rule(Metered, reference=_POLCA)
def unequal_limits(metered: Metered) -> Iterator[Finding]:
    """GPUs of one model run under unequal power limits."""
    states = metered.log.states
    limits = (
        states.dropna(subset=["limit_w"]).groupby(states["entity"].astype(str))["limit_w"].median()
    )
    needs(len(limits), 4, "GPUs with a known limit")
    counts = limits.round(-1).value_counts()
    if len(counts) < 2 or counts.iloc[0] < 0.6 * len(limits):
        return
    odd = limits[limits.round(-1) != counts.index[0]]
    if len(odd) > len(limits) / 4:
        return
    yield Finding(
        f"{len(odd)} of {len(limits)} GPUs have another power limit than the others, "
        f"{counts.index[0]:.0f} W",
        where=", ".join(f"{name} ({watts:.0f} W)" for name, watts in odd.head(4).items()),
        confidence="medium",
        doubt="different models have different limits",
        evidence="load.power(...).states (docs/power.md)",
        next_step="set the limits alike: nvidia-smi -pl",
    )


@rule(Metered, reference=_POLCA)
def idle_gpus(
    metered: Metered, *, most_busy_share: float = 0.02, least_share: float = 0.05,
    fewest_readings: float = 10,
) -> Iterator[Finding]:  # fmt: skip
    """GPUs draw power without work."""
    states = metered.log.states
    states = states[states["entity"].isin(metered.gpus["entity"]) & states["busy_share"].notna()]
    needs(len(states), 1, "readings of the utilization of GPUs")
    joined = metered.with_power(states)
    is_idle = joined["busy_share"] <= most_busy_share
    if is_idle.sum() < fewest_readings:
        return
    periods = metered.gpus.assign(entity=metered.gpus["entity"].astype(str)).set_index("entity")
    drawn = joined["power_w"] * joined["entity"].map(periods["period_s"])
    share = float(drawn[is_idle].sum() / drawn.sum())
    if share < least_share:
        return
    gpus = joined.loc[is_idle, "entity"].value_counts()
    yield Finding(
        f"{share:.0%} of the GPU energy is drawn by GPUs without work, at "
        f"{joined.loc[is_idle, 'power_w'].median():.0f} W each",
        where=f"{is_idle.mean():.0%} of the readings; most on {_named(gpus.index, 3)}",
        cost=float(drawn[is_idle].sum()) / 3.6e6,
        cost_unit="kWh",
        cost_basis="power times period over readings with no utilisation",
        confidence="high",
        doubt="includes spares, start and restarts",
        evidence="analyze.energy, analyze.energy_waste (notebooks 06 and 07)",
        next_step="release spare nodes, or let them sleep; shorten restarts",
    )


def _median_of_others(shares: pd.Series) -> np.ndarray:
    values = shares.to_numpy()
    # One alone has nobody to be compared with.
    return np.array([np.median(np.delete(values, at)) if len(values) > 1 else values[at]
                     for at in range(len(values))])  # fmt: skip


@rule(Metered, reference=_POLCA)
def unused_gpu(
    metered: Metered, *, most_busy_share: float = 0.02, least_gap_share: float = 0.5,
    most_power_share: float = 0.35, fewest_readings: float = 10,
) -> Iterator[Finding]:  # fmt: skip
    """A GPU has no work while the others of its host work."""
    names = ["time_ns", "entity", "busy_share"]
    power = metered.log.power[metered.log.power["entity"].isin(metered.gpus["entity"])]
    power = power.assign(entity=power["entity"].astype(str)).dropna(subset=["power_w"])
    states = metered.log.states[names].assign(entity=metered.log.states["entity"].astype(str))
    joined = power.merge(states, on=names[:2], how="left")
    # Where no utilization is recorded, a GPU at work draws about as much as the others do.
    at_work_w = joined.groupby("entity")["power_w"].quantile(0.9).median()
    is_low = joined["power_w"] < most_power_share * at_work_w
    is_idle = (joined["busy_share"] <= most_busy_share).where(joined["busy_share"].notna(), is_low)
    counts = is_idle.groupby(joined["entity"]).agg(["sum", "count"])
    counts = counts[counts["count"] >= fewest_readings]
    needs(len(counts), 2, "GPUs with readings")
    periods = metered.gpus.assign(entity=metered.gpus["entity"].astype(str)).set_index("entity")
    share = (counts["sum"] / counts["count"]).astype("float64")
    # A host of which every GPU is idle is a spare.
    # Where no host is stated, a log is of one.
    host = periods["node"].astype(object).fillna(periods["source"]).reindex(counts.index)
    host = host if host.duplicated().any() else host.mask(host.notna(), "")
    others = share.groupby(host).transform(_median_of_others)
    unused = counts[share - others >= least_gap_share]
    if unused.empty:
        return
    hours = float((unused["sum"] * periods["period_s"].reindex(unused.index)).sum()) / 3600
    has = "has" if len(unused) == 1 else "have"
    yield Finding(
        f"{len(unused)} of {len(counts)} GPUs {has} no work for {share[unused.index].median():.0%} "
        "of the time, while others of the host work",
        where=_named(unused.sort_values("sum", ascending=False).index),
        cost=hours,
        cost_unit="GPU h",
        cost_basis="readings without work times their period",
        time_share=min(float(unused["sum"].sum() / counts["count"].sum()), 1.0),
        confidence="high" if joined["busy_share"].notna().any() else "medium",
        doubt="it may be kept for another job",
        evidence="analyze.energy, plot.energy (notebook 06)",
        next_step="check that a rank of the job runs on it, and that the scheduler gave it",
    )


@rule(Metered, reference=_SWINGS)
def power_swing(
    metered: Metered, *, least_share: float = 0.1, least_mean_w: float = 1000.0
) -> Iterator[Finding]:
    """The sum of power swings by a large part of its mean."""
    power = metered.total["power_w"].dropna()
    needs(len(power), 60, "readings of the sum of meters on one clock")
    if power.mean() < least_mean_w:
        return
    low, high = np.percentile(power, [1, 99])
    share = float((high - low) / power.mean())
    if share < least_share:
        return
    # Shorter means swing more: whoever compares must know which these are.
    cell_s = float(np.diff(metered.total["time_ns"].to_numpy()[:2])[0]) / 1e9
    yield Finding(
        f"Power swings by {share:.0%} of its mean: {low / 1e3:.3g} to {high / 1e3:.3g} kW",
        where=f"sum of {metered.total['expected_count'].max()} meters",
        cost=float(high - low) / 1e3,
        cost_unit="kW",
        cost_basis=f"99th minus 1st percentile of the sum, in means of {cell_s:.3g} s",
        confidence="high",
        doubt="includes start and end of the job",
        evidence="explore.power_spectrum (notebook 06), analyze.power_swings (docs/power.md)",
        next_step="check the limits of the feed (analyze.grid_check); smooth with a power floor",
    )


@rule(Metered, reference=_POLCA)
def meters_disagree(metered: Metered, *, least_share: float = 0.02) -> Iterator[Finding]:
    """A host's meter shows less than its GPUs."""
    entities = metered.log.entities
    hosts = entities[entities["scope"].isin(["node_ac", "node_dc"]) & entities["node"].notna()]
    needs(len(hosts), 1, "meters of hosts")
    means = metered.log.power.groupby(metered.log.power["entity"].astype(str))["power_w"].mean()
    gpus = metered.gpus[metered.gpus["node"].notna()]
    parts = gpus.assign(power_w=gpus["entity"].map(means)).groupby("node")["power_w"].sum()
    for row in rows_of(hosts):
        own, below = float(means.get(row.entity, np.nan)), float(parts.get(row.node, 0.0))
        if not below or np.isnan(own) or below < (1 + least_share) * own:
            continue
        yield Finding(
            f"The meter of {row.node} shows {own:.0f} W, its GPUs together {below:.0f} W",
            where=f"{row.entity} against {int((gpus['node'] == row.node).sum())} GPUs",
            cost=(below - own) / 1e3,
            cost_unit="kW",
            cost_basis="mean of the GPUs minus mean of the meter",
            confidence="high",
            evidence="analyze.overhead_w_measured (docs/power.md)",
            next_step="the meter may feed one of several supplies, or its unit is wrong",
        )


@rule(Metered, reference=_POLCA)
def telemetry_gaps(
    metered: Metered, *, least_share: float = 0.1, fewest_readings: float = 10
) -> Iterator[Finding]:
    """Meters are silent for a large part of the time."""
    entities = metered.log.entities
    # Fewer readings, as of a command typed now and then, tell no rate.
    entities = entities[entities["reading_count"] >= fewest_readings]
    needs(len(entities), 1, "meters with enough readings")
    first, last = entities["first_ns"].astype("float64"), entities["last_ns"].astype("float64")
    # What most meters of a clock cover; recordings one after the other share no time.
    begin = first.groupby(entities["clock"]).transform("median")
    end = last.groupby(entities["clock"]).transform("median")
    own, window = last - first, end - begin
    shared = (last.clip(upper=end) - first.clip(lower=begin)).clip(lower=0)
    # Clocks of several files may have zeros of their own, so most must share the time.
    most = (shared > 0.5 * window).groupby(entities["clock"]).transform("mean") > 0.5
    is_common = (window > 0.5 * own) & (shared > 0) & most
    span = window.where(is_common, own)
    known = entities["reading_count"] * entities["period_s"] * 1e9
    lacking = 1 - (known / span).clip(upper=1)
    silent = entities.assign(lacking=lacking)
    silent = silent[silent["lacking"] > least_share]
    if silent.empty:
        return
    worst = silent.sort_values("lacking", ascending=False)
    chosen = metered.log.power[metered.log.power["entity"].isin(silent["entity"])]
    drawn = energy(chosen)[["energy_j", "bridged_j"]].sum() / 3.6e6
    yield Finding(
        f"{len(silent)} of {len(entities)} meters {'is' if len(silent) == 1 else 'are'} silent "
        f"for up to {worst['lacking'].iloc[0]:.0%} of the time",
        where=_named(worst["entity"]),
        confidence="high",
        doubt=f"sums and energies lack that time: {significant(drawn.iloc[0])} kWh as recorded, "
        f"{significant(drawn.sum())} kWh if power went straight on in the gaps",
        evidence="analyze.energy, plot.energy (notebook 06)",
        next_step="look at what happened to these hosts then; raise the rate of the collector",
    )


@rule(Metered, reference=_NVML)
def hot_gpu(
    metered: Metered, *, most_c: float = 88.0, least_gap_c: float = 12.0
) -> Iterator[Finding]:
    """A GPU is far hotter than its peers."""
    hottest = metered.log.states.groupby(metered.log.states["entity"].astype(str))[
        "temperature_c"
    ].max()
    hottest = hottest.dropna()
    needs(len(hottest), 2, "GPUs with readings of temperature")
    middle = float(hottest.median())
    hot = hottest[(hottest >= most_c) | (hottest > middle + least_gap_c)].sort_values()[::-1]
    if hot.empty:
        return
    yield Finding(
        f"{len(hot)} GPU{'s' * (len(hot) > 1)} reach {hot.iloc[0]:.0f} °C; the median reaches "
        f"{middle:.0f} °C",
        where=_named(hot.index),
        confidence="medium",
        evidence="load.power(...).states (docs/power.md)",
        next_step="check the cooling of these slots before they throttle",
    )
