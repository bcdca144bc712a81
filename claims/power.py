"""Claims about power: energy, swings, provisioning and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from claims._power import band_shares, energy_total, power_ramps
from claims._step_energy import span_energy, work_energy
from claims.registry import Reading, beside, claim, published
from workbench import analyze, datasets, load, simulate
from workbench.analyze import SmoothingPlan
from workbench.tables import POWER_LOADS, POWER_TOPOLOGY, POWER_TOTALS

# Claims about energy and power: 64 nodes of a GPT-3 training, metered at the wall.

_CELL_S = 2.0
_LINES, _RULE = "straight lines between readings", "each reading since the one before"
_CELLS = "cells of 2 s that all nodes cover"
_AS_READ = "readings as they fall into cells of 2 s"
_METHODS = {_LINES: "trapezoid", _RULE: "mlperf"}
_PERCENTILES = {"1st percentile": 1, "50th percentile": 50, "99th percentile": 99}


@claim(
    noun="energy",
    name="512 GPUs, 64 nodes: energy, mean, peak, diversity",
    source="mlcommons/training_results_v4.0, smc-ac-power, 64xSMC-H100-SXM-80GB, gpt3",
    needs=("power-mlperf-gpt3-512gpu",),
)
def gpt3_energy_on_512_gpus(folder: Path) -> Iterator[Reading]:
    """Compare the run of one submission, each number under the convention it is told with."""
    power, start, end = _run(folder)
    numbers = _by_lines(power, start, end) | _by_cells(power) | _as_read(power, start, end)
    for row in published("power_numbers"):
        computed = numbers[row["what"], row["convention"]]
        yield beside(row, computed, f"{row['what']}, {row['convention']}")


def _by_lines(power: pd.DataFrame, start: int, end: int) -> dict[tuple[str, str], float]:
    result = {}
    for convention, method in _METHODS.items():
        energy = analyze.energy(power, method=method, start_ns=start, end_ns=end)  # type: ignore[arg-type]
        total = energy_total(energy).iloc[0]
        result["energy of the nodes", convention] = float(total["energy_j"]) / 3.6e6
        result["mean power", convention] = float(total["mean_w"]) / 1e3
        result["lowest mean of a node", convention] = float(energy["mean_w"].min())
        result["highest mean of a node", convention] = float(energy["mean_w"].max())
    return result


def _by_cells(power: pd.DataFrame) -> dict[tuple[str, str], float]:
    grid = analyze.power_grid(power, period_s=_CELL_S)
    totals = analyze.power_totals(grid)["power_w"].dropna()
    peaks = float(grid.groupby("entity", observed=True)["power_w"].max().sum())
    numbers = {
        "energy of the nodes": float(totals.sum()) * _CELL_S / 3.6e6,
        "highest cell": float(totals.max()) / 1e3,
        "sum of the peaks of the nodes": peaks / 1e3,
        "diversity factor": peaks / float(totals.max()),
    }
    numbers |= _percentiles(totals.to_numpy())
    return {(text, _CELLS): value for text, value in numbers.items()}


def _as_read(power: pd.DataFrame, start: int, end: int) -> dict[tuple[str, str], float]:
    """Sum the readings of each cell as if all had been taken at one instant.

    This keeps the depth of dips, and mixes instants up to 2 s apart: no analysis does so.
    """
    inside = power[power["time_ns"].between(start, end)]
    cell = inside["time_ns"] // round(_CELL_S * 1e9)
    wide = inside.assign(cell=cell).pivot_table(
        index="cell", columns="entity", values="power_w", aggfunc="mean", observed=True
    )
    wide = wide.interpolate(limit=3, limit_area="inside").dropna()
    totals = wide.sum(axis=1).to_numpy()
    result = {
        "energy of the nodes": float(totals.sum()) * _CELL_S / 3.6e6,
        "highest cell": float(totals.max()) / 1e3,
        "lowest cell": float(totals.min()) / 1e3,
    }
    result |= _percentiles(totals)
    return {(text, _AS_READ): value for text, value in result.items()}


def _percentiles(values: np.ndarray) -> dict[str, float]:
    return {name: float(np.percentile(values, at)) / 1e3 for name, at in _PERCENTILES.items()}


# Claims about swings: spectrum, bands, floors and stores on the power of 512 GPUs.

# The meters read every 2 s, at instants of their own.
_CELL_NS = 2_000_000_000
_KILO, _J_PER_KWH = 1e3, 3.6e6
_COLUMNS = {
    "swing": ("swing_w", _KILO), "fastest ramp": ("ramp_w_per_s", _KILO),
    "deviation": ("deviation_w", _KILO), "power": ("storage_w", _KILO),
    "energy": ("storage_j", _J_PER_KWH),
}  # fmt: skip


@claim(
    noun="power_swings",
    name="512 GPUs: spectrum, bands, floors and stores",
    source="mlcommons/training_results_v4.0, smc-ac-power, 64xSMC-H100-SXM-80GB, gpt3",
    needs=("power-mlperf-gpt3-512gpu",),
)
def gpt3_on_512_gpus(folder: Path) -> Iterator[Reading]:
    """Compare what follows from the sum of 64 meters at instants 2 s apart."""
    totals = _at_instants(folder)
    result = _spectrum(totals) | _bands(totals)
    for row in published("power_swings"):
        text, setting = row["what"], row["setting"]
        computed = result.get((text, setting))
        computed = _smoothed(totals, text, float(setting)) if computed is None else computed
        yield beside(row, computed, f"{text} ({setting})" if setting else text)


@claim(
    noun="power_swings",
    name="512 GPUs: the peak of the spectrum stays where it is in means of cells",
    source="mlcommons/training_results_v4.0, smc-ac-power, 64xSMC-H100-SXM-80GB, gpt3",
    needs=("power-mlperf-gpt3-512gpu",),
)
def peaks_of_means(folder: Path) -> Iterator[Reading]:
    """Compare the peaks in the totals that analyses work on, which average over a cell."""
    power, start, end = _run(folder, edge_ns=_CELL_NS)
    grid = analyze.power_grid(power, period_s=2, start_ns=start, end_ns=end)
    result = _spectrum(analyze.power_totals(grid))
    for row in published("power_swings"):
        if row["unit"] == "Hz":
            yield beside(row, result[row["what"], ""])


def _run(folder: Path, *, edge_ns: int = 0) -> tuple[pd.DataFrame, int, int]:
    """Return the power of all nodes, and the run without its edges."""
    log = load.power(folder / "power", scope="node_ac", progress=False)
    nodes = log.entities.loc[log.entities["scope"] == "node_ac", "entity"]
    (result,) = folder.glob("result_*.txt")
    spans = load.job_log(result).spans
    (run,) = spans[spans["kind"] == "run"].to_dict("records")
    power = log.power[log.power["entity"].isin(nodes)]
    return power, int(run["start_ns"]) + edge_ns, int(run["end_ns"]) - edge_ns


def _at_instants(folder: Path) -> pd.DataFrame:
    """Read every meter at the same instants, by straight lines, and add them up."""
    power, start, end = _run(folder, edge_ns=_CELL_NS)
    instants = np.arange(start, end + 1, _CELL_NS)
    total = np.zeros(len(instants))
    count = 0
    for _, readings in power.dropna(subset="power_w").groupby("entity", observed=True):
        times = readings["time_ns"].to_numpy()
        total += np.interp(instants - start, times - start, readings["power_w"].to_numpy())
        count += 1
    cells = pd.DataFrame({"time_ns": instants, "power_w": total, "covered_share": 1.0})
    return POWER_TOTALS.cast(cells.assign(entity_count=count, expected_count=count))


def _spectrum(totals: pd.DataFrame) -> dict[tuple[str, str], float]:
    peaks = analyze.power_peaks(analyze.power_spectrum(totals))
    second = peaks.loc[peaks["harmonic"] == 2, "frequency_hz"]
    ramps = power_ramps(totals, windows_s=[2])["ramp_w_per_s"]
    low, high = np.percentile(totals["power_w"].dropna(), [1, 99])
    return {
        ("highest peak of the spectrum", ""): float(peaks["frequency_hz"].iloc[0]),
        ("its second harmonic", ""): float(second.iloc[0]) if len(second) else np.nan,
        ("fastest ramp between two instants", ""): float(ramps.max()) / _KILO,
        ("swing", ""): float(high - low) / _KILO,
    }


def _bands(totals: pd.DataFrame) -> dict[tuple[str, str], float]:
    names = [row["setting"] for row in published("power_swings") if row["what"] == "band share"]
    ends = [tuple(map(float, name.split("-"))) for name in names]
    shares = band_shares(totals, [(low, high) for low, high in ends])["energy_share"]
    return {("band share", name): float(value) for name, value in zip(names, shares, strict=True)}


def _smoothed(totals: pd.DataFrame, text: str, setting: float) -> float:
    kind, _, wanted = text.partition(": ")
    plan = {
        "floor": SmoothingPlan(floor_share=min(setting, 1)),
        "store with a time constant": SmoothingPlan(storage_tau_s=setting),
        "store with limited ramps": SmoothingPlan(storage_ramp_w_per_s=setting * _KILO),
    }[kind]
    after = analyze.smoothing_summary(analyze.power_smoothing(totals, plan)).iloc[-1]
    if wanted == "more energy":
        return 100 * (float(after["energy_ratio"]) - 1)
    column, unit = _COLUMNS[wanted]
    return float(after[column]) / unit


# Claims about power limits: knees of public sweeps, and the arithmetic of a 150 MW site.

_META = "arXiv:2605.24461 as reported by supercomputing.news, 30 May 2026"
_KNEES = (
    ("largest limit", "largest_limit_w", "largest_limit_w"),
    ("limit of least energy", "least_energy_limit_w", "least_energy_limit_w"),
    ("energy saved there", "saving", "saving_ratio"),
    ("speed lost there", "speed_loss", "speed_loss_ratio"),
    ("smallest limit that keeps 95 %", "kept_95_limit_w", "kept_speed_limit_w"),
)
# Any site will do: with GPUs by the hundred thousand, whole GPUs do not matter to a ratio.
_SITE = {"budget_w": 150e6, "pue_ratio": 1.0, "fixed_w": 0.0}


@claim(
    noun="provisioning",
    name="limits of least energy on public sweeps",
    source="ml-energy/zeus, NSDI'23 trace: independent medians over its files",
    needs=("power-zeus-sweeps",),
)
def knees(folder: Path) -> Iterator[Reading]:
    """Compare limits exactly, and shares to their last digit."""
    # The folder also holds other sweeps, of the tool itself.
    curve = analyze.power_curve(load.power_sweeps(sorted(folder.glob("summary_power_*.csv"))))
    names = curve.drop_duplicates(["gpu", "job", "configuration"])["gpu"]
    for row in published("power_sweep_counts"):
        count, text = (names == row["gpu"]).sum(), f"{row['gpu']}: configurations"
        yield beside(row, count, text, column="configuration_count", unit="1")
    result = analyze.power_knees(curve)
    for row in published("power_knees"):
        own = result[(result["gpu"] == row["gpu"]) & (result["job"] == row["job"])]
        name = f"{row['gpu']} {row['job']}"
        for words, printed_as, column in _KNEES:
            tolerance = 0.0 if column.endswith("_w") else float(row["tolerance"])
            unit = "W" if column.endswith("_w") else "1"
            computed = own[column].to_numpy(dtype="float64")[0]
            yield Reading(f"{name}: {words}", float(row[printed_as]), computed, unit, tolerance)


@claim(noun="provisioning", name="1,200 W to 1,000 W at a fixed site power", source=_META)
def fixed_power() -> Iterator[Reading]:
    """Invert the published gain, and find it again from what it implies."""
    curve = analyze.published_curve("gb200-meta")
    facts = {row["quantity"]: row for row in published("power_provisioning")}
    slow = float(curve["speed_ratio"].to_numpy()[curve["limit_w"] == 1_000][0])
    gain = facts["throughput gained at 1000 W"]
    implied = analyze.overhead_w_implied(
        1 + float(gain["value"]), speed_share=slow, limit_w=1_000, reference_limit_w=1_200
    )
    site, count = (float(facts[name]["value"]) for name in ("site budget", "GPUs of the site"))
    for words, computed, tolerance, unit in (
        ("non-GPU power per GPU that +9 % implies", implied, 0.01, "W"),
        ("throughput gained at 1000 W", _gain(curve, 1_000, implied), 1e-4, "1"),
        ("all-in power per GPU", site / count, 0.5, "W"),
    ):
        yield beside(facts[words], computed, words, unit=unit, near=tolerance)


@claim(
    noun="provisioning",
    name="960 W: extrapolated speed within what the published gain allows",
    source=_META,
)
def extrapolated() -> Iterator[Reading]:
    """Ask every way to extrapolate; the published 1.9 / 1.7 is known to its rounding only."""
    curve = analyze.published_curve("gb200-meta")
    facts = {row["quantity"]: float(row["value"]) for row in published("power_provisioning")}
    gains = analyze.published_gains("GB200")
    gain = gains[gains["limit_w"] == 960].to_dict("records")[0]
    printed = facts["throughput gained at 960 W"]
    yield Reading("1.9 / 1.7 - 1", printed, float(gain["gain_ratio"]), "1", 5e-4)
    methods: tuple[analyze.Extrapolation, ...] = ("linear", "power", "quadratic", "cubic")
    for method in methods:
        more = analyze.extended_curve(curve, 960, method=method)
        computed = _gain(more, 960, facts["non-GPU power per GPU that +9 % implies"])
        words = f"{method}: gain at 960 W"
        low, high = float(gain["low_gain_ratio"]), float(gain["high_gain_ratio"])
        yield Reading(f"{words}, against the least 1.9 / 1.7", low, computed, "1", bound="at least")
        yield Reading(f"{words}, against the most 1.9 / 1.7", high, computed, "1", bound="at most")


def _gain(curve: pd.DataFrame, limit_w: float, overhead_w: float) -> float:
    table = analyze.provisioning(curve, overhead_w=overhead_w, **_SITE)
    return float(table["gain_ratio"].to_numpy()[table["limit_w"] == limit_w][0])


# Claims about energy of work: a real job on 512 GPUs, and what a failure cost a synthetic one.

_SYNTHETIC = "synthetic job, "


@claim(
    noun="step_energy",
    name="steps, tokens and evaluations of a real job",
    source="MLPerf Training v4.0, GPT-3 175B on 64 nodes (512 H100), AC meters",
    needs=("power-mlperf-gpt3-512gpu",),
)
def real_job(folder: Path) -> Iterator[Reading]:
    """Compare what steps, tokens and evaluations draw, and the power within a step."""
    log = load.power(folder, progress=False)
    job = load.job_log(folder, progress=False)
    power = analyze.power_of_scope(log.power, log.entities)
    work = work_energy(analyze.step_energy(power, job.steps))
    computed = _numbers(work, span_energy(power, job.spans))
    phases = analyze.phase_power(analyze.power_sum(power, period_s=0.5), job.steps)
    inside = phases[phases["place"] == "in steps"]["power_w"]
    computed |= {f"phase {n} of 10": watts / 1e3 for n, watts in enumerate(inside, start=1)}
    yield from _beside(computed, synthetic=False)


@claim(
    noun="step_energy",
    name="what the failure of the bundled synthetic job cost",
    source="data/fleet-demo, simulated; its truth is known",
    needs=("fleet-demo",),
)
def incident(folder: Path) -> Iterator[Reading]:
    """Compare the restart, the lost steps and their energy."""
    fleet = load.fleet(folder, tz="UTC", scope="node_ac", with_traces=False, progress=False)
    power = analyze.power_of_scope(fleet.power.power, fleet.power.entities)
    table = analyze.incident_energy(
        power, fleet.job.steps, fleet.job.spans, failures=fleet.failures.failures
    )
    (row,) = table.to_dict("records")
    computed = {
        f"{_SYNTHETIC}restart": row["restart_s"],
        f"{_SYNTHETIC}lost steps": row["lost_step_count"],
        f"{_SYNTHETIC}energy of the incident": row["energy_j"] / 1e3,
    }
    yield from _beside(computed, synthetic=True)


def _numbers(work: pd.DataFrame, spans: pd.DataFrame) -> dict[str, float]:
    count, median, mean, deviation = (
        dict(zip(work["measure"], work[name].astype("float64").tolist(), strict=True))
        for name in ("count", "median", "mean", "deviation")
    )
    seconds = (spans["end_ns"] - spans["start_ns"]).astype("float64") / 1e9
    of_kind = {kind: spans["kind"] == kind for kind in ("evaluation", "run")}
    evaluated, run = seconds[of_kind["evaluation"]].sum(), seconds[of_kind["run"]].sum()
    return {
        "steps": count["energy per step"],
        "duration of a step, median": median["duration of a step"],
        "energy per step, median": median["energy per step"] / 1e6,
        "energy per step, standard deviation": deviation["energy per step"] / 1e6,
        "energy per token, median": median["energy per token"],
        "time in evaluations": 100 * evaluated / run,
        "power in evaluations, mean": spans.loc[of_kind["evaluation"], "mean_w"].mean() / 1e3,
        "power in training, mean": mean["power in steps"] / 1e3,
        "energy of the run": spans.loc[of_kind["run"], "energy_j"].sum() / 3.6e6,
    }


def _beside(computed: Mapping[str, float], *, synthetic: bool) -> Iterator[Reading]:
    for row in published("step_energy"):
        if row["what"].startswith(_SYNTHETIC) == synthetic:
            yield beside(row, computed[row["what"]])


_METER = "data/fleet-demo and made readings; their powers are known"


@claim(noun="kernel_energy", name="powers put into a made meter", source=_METER)
def kernel_powers() -> Iterator[Reading]:
    """Meter one rank of the bundled job with known powers, and fit them from the readings."""
    trace = load.traces(datasets.path("fleet-demo") / "traces", progress=False)
    events = trace.events[trace.events["rank"] == 0]
    truth = {"compute": 420.0, "communication": 110.0, "idle": 90.0}
    meter = simulate.kernel_power(events, truth, idle_w=truth["idle"], average_s=0.005)
    table = analyze.kernel_energy(events, meter, average_s=0.005).set_index("kind")
    for kind, power in truth.items():
        near = float(table["high_w"][kind] - table["low_w"][kind])
        yield Reading(f"power of {kind}", power, float(table["power_w"][kind]), "W", near)
    measured = float(meter["power_w"].sum()) * 0.005
    energy = float(table["energy_j"].sum())
    yield Reading("energy of all kinds and idle", measured, energy, "J", 1e-6 * measured)


# Claims about power shared out along the delivery tree: laws, exact costs, published points.

_LAW = "law of the model"
_EXACT = "linear program (HiGHS) of the same loads and limits"
_CASES = 150
_NESTED_REACHED = 1.1, 1.25  # 99th percentile and worst, greedy over exact
_WATT = 1e-6


@claim(noun="power_management", name="conservation and limits at every instant", source=_LAW)
def conservation() -> Iterator[Reading]:
    """Add up children and losses of every feed again, under each policy, with made loads."""
    loads, topology = simulate.power_loads()
    parents = topology.set_index("entity")["parent"]
    for policy in ("cost", "priority", "slack"):
        table = analyze.power_management(loads, topology, policy=policy)
        table = table.assign(entity=table["entity"].astype(str))
        children = table.assign(entity=table["entity"].map(parents))
        below = children.groupby(["entity", "time_ns"])["granted_w"].sum()
        feeds = table[~table["is_load"]].set_index(["entity", "time_ns"])
        apart = feeds["granted_w"] - feeds["loss_w"] - below.reindex(feeds.index)
        error = float(apart.abs().max())
        yield Reading(f"{policy}: granted - losses - children, most", 0, error, "W", _WATT)
        over = float((feeds["granted_w"] / feeds["limit_w"]).max())
        name = f"{policy}: granted over limit, most"
        yield Reading(name, 1, over, "1", 1e-9, bound="at most")
        # The shortage that was made, and nobody else's.
        short = feeds[feeds["demand_w"] > feeds["limit_w"]].reset_index()["entity"].unique()
        yield Reading(f"{policy}: feeds that are short", 1, len(short), "1")


@claim(
    noun="power_management",
    name="a breaker trips when the published point says",
    source="Facebook Dynamo, ISCA 2016",
)
def breaker() -> Iterator[Reading]:
    """Hold a feed at the published overload without any cap, then with caps after 9 s.

    The curve goes through this point, so the time only checks the sum; that late caps stay below
    it is a result.
    """
    (row,) = published("power_breakers")
    ratio, seconds = float(row["overload_ratio"]), float(row["carried_s"])
    count = int(seconds) + 60
    loads = _loads([[100.0 * ratio] * count])
    tree = _tree([("root", None, 100.0), ("l0", "root", None)])
    for delay_s in (count, 9):
        table = analyze.power_management(loads, tree, delay_s=delay_s)
        heat = table.loc[table["entity"] == "root", "trip_ratio"].to_numpy()
        if delay_s == 9:
            yield Reading("share of it used if caps follow after 9 s", 1, heat.max(), "1",
                          bound="at most")  # fmt: skip
        else:
            trips_s = float(np.argmax(heat >= 1 - _WATT) + 1)
            yield Reading(f"{ratio:g} of the limit, time until it trips", seconds, trips_s, "s", 1)


@claim(noun="power_management", name="least cost beside the exact least cost", source=_EXACT)
def exact() -> Iterator[Reading]:
    """Compare GPUs x slowdown on random small trees, with one short feed and with nested ones.

    One feed after the other is exact for one. Where feeds hold each other it is not, and is
    reported short.
    """
    for is_nested, name in ((False, "one short feed"), (True, "nested feeds")):
        ratios = np.array([_over_exact(seed, is_nested=is_nested) for seed in range(_CASES)])
        for at, (words, value) in enumerate(
            (("99th percentile", np.quantile(ratios, 0.99)), ("worst", ratios.max()))
        ):
            reached = _NESTED_REACHED[at] if is_nested else None
            yield Reading(
                f"{name}: over the least, {words} of {_CASES}", 1, float(value), "1", _WATT,
                bound="at most", reached=reached,
            )  # fmt: skip


@claim(
    noun="power_management",
    name="the published site as a delivery tree",
    source="arXiv:2605.24461 as reported by supercomputing.news, 30 May 2026",
)
def site() -> Iterator[Reading]:
    """Let 83,000 GPUs of 1,200 W ask for more than 150 MW, and read what each is granted.

    PUE is the loss of the feed; network and overhead per GPU are as in the provisioning of the
    same site. The PUE was derived from that, so this checks one model by another.
    """
    facts = {row["quantity"]: row for row in published("power_provisioning")}
    fact = {name: float(row["value"]) for name, row in facts.items()}
    count, overhead = fact["GPUs of the site"], fact["non-GPU power per GPU that +9 % implies"]
    rated = fact["rated limit"]
    fixed = fact["network share of the site"] * fact["site budget"]
    slow = analyze.published_curve("gb200-meta").set_index("limit_w")["speed_ratio"][1_000.0]
    loads = _loads([[count * (rated + overhead)], [fixed]]).assign(
        gpu_count=int(count), floor_w=[count * overhead, fixed],
        slowdown_per_w=[(1 - slow) / (count * (rated - 1_000)), 0.0],
    )  # fmt: skip
    limits = [("site", None, fact["site budget"]), ("l0", "site", None), ("l1", "site", None)]
    tree = _tree(limits).assign(loss_share=[1 - 1 / fact["PUE assumed"], 0, 0])
    table = analyze.power_management(loads, tree).set_index("entity")
    here = float(table["granted_w"]["l0"]) / count - overhead
    near = 0.002 * fact["limit chosen"]
    yield beside(facts["limit chosen"], here, "power granted to each GPU", near=near)
    at_1000 = count * (1_000 + overhead)
    level = (at_1000 + fixed) * fact["PUE assumed"]
    tree = tree.assign(limit_w=[level, np.nan, np.nan])
    table = analyze.power_management(loads, tree).set_index("entity")
    lost = float(table["slowdown_share"]["l0"])
    yield Reading("speed lost at 1,000 W", 1 - float(slow), lost, "1", 1e-6)


def _loads(demand: list[list[float]], **columns: Any) -> pd.DataFrame:
    """Make loads l0, l1, ... of demands second by second."""
    count = len(demand[0])
    names = np.repeat([f"l{at}" for at in range(len(demand))], count)
    table = pd.DataFrame({"time_ns": np.tile(np.arange(count) * 10**9, len(demand))}).assign(
        entity=pd.Categorical(names),
        demand_w=np.ravel(demand), floor_w=0.0, job="job", priority=0, gpu_count=1,
        slowdown_per_w=1e-3, step_s=np.nan, doubt="",
    )  # fmt: skip
    return POWER_LOADS.of(table.assign(**columns))


def _tree(rows: list[tuple[str, str | None, float | None]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["entity", "parent", "limit_w"])
    return POWER_TOPOLOGY.of(table.assign(level="feed", nameplate_w=np.nan))


def _over_exact(seed: int, *, is_nested: bool) -> float:
    """Draw loads of a few jobs below one or several feeds; give greedy over exact cost."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    count, feeds = int(rng.integers(2, 9)), int(rng.integers(2, 5)) if is_nested else 1
    demand, feed = rng.uniform(100, 1_000, count), rng.integers(feeds, size=count)
    slack = demand * rng.uniform(0.1, 0.8, count)
    job = rng.integers(int(rng.integers(1, 5)), size=count)
    gpus, per_w = rng.integers(1, 9, count), rng.uniform(1e-5, 1e-3, count)
    below = np.array([feed == at for at in range(feeds)] + [feed >= 0] * is_nested)
    below = below[below.any(axis=1)]
    missing = rng.uniform(0, 1, len(below)) * (below @ slack)
    names = [f"f{at}" for at in range(len(below))]
    own = [names[int(np.argmax(below[:, at]))] for at in range(count)]
    tree = [(name, names[-1] if name != names[-1] else None, below[at] @ demand - missing[at])
            for at, name in enumerate(names)][::-1]  # fmt: skip
    tree += [(f"l{at}", name, None) for at, name in enumerate(own)]
    loads = _loads([[watts] for watts in demand]).assign(
        floor_w=demand - slack, job=[f"j{at}" for at in job], gpu_count=gpus, slowdown_per_w=per_w
    )
    table = analyze.power_management(loads, _tree(tree)).set_index("entity")
    cut = demand - table["granted_w"].reindex([f"l{at}" for at in range(count)]).to_numpy()
    weight = np.bincount(job, weights=gpus)
    slowed = np.array([(cut * per_w)[job == at].max(initial=0) for at in range(len(weight))])
    # Variables: slowdown of every job, then watts cut of every load.
    pays = np.c_[-np.eye(len(weight))[job], np.diag(per_w)]
    relieves = np.c_[np.zeros((len(below), len(weight))), -1.0 * below]
    best = linprog(
        np.r_[weight, np.zeros(count)], A_ub=np.r_[pays, relieves],
        b_ub=np.r_[np.zeros(count), -missing],
        bounds=[(0, None)] * len(weight) + [(0, watts) for watts in slack],
    )  # fmt: skip
    least = float(best.fun)
    return float(weight @ slowed) / least if least > 0 else 1.0
