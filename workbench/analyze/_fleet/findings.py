"""Rules on the log of a job: what stopped it, what was repeated, and how its steps vary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pandas as pd

from workbench.analyze._failures.findings import said_of
from workbench.analyze._failures.goodput_model.checkpoints import checkpoint_optimum
from workbench.analyze._fleet.incident_energy import NOT_TOLD, energy_waste, incident_energy
from workbench.analyze._lib.finding_rules import Cost, Finding, needs, rule
from workbench.tables import POWER, Bundle, JobLog

_META = "arXiv:2410.21680, Revisiting reliability in large-scale machine learning research clusters"
_DALY = "doi:10.1016/j.future.2004.11.016, Daly 2006"
_FALCON = "arXiv:2410.12588, Falcon"
_NO_CAUSE = "Interruption of unknown cause"
_MEGASCALE = "arXiv:2402.15627, MegaScale"


class Logged:
    """The tables that several rules on a job log read, each computed once."""

    domain = "fleet"
    needs = ("job logs",)

    def __init__(self, job: JobLog, bundle: Bundle) -> None:
        self.job = job
        self.bundle = bundle

    @classmethod
    def of(cls, bundle: Bundle) -> Logged | None:
        """Take the job log of a bundle if it holds steps."""
        job = bundle.job
        return cls(job, bundle) if job is not None and len(job.steps) else None

    @cached_property
    def states(self) -> pd.DataFrame:
        """Time and share of each state of the job."""
        table = energy_waste(POWER.empty(), self.job.steps, self.job.spans)
        return table.set_index("state")

    @cached_property
    def incidents(self) -> pd.DataFrame:
        """Interruptions with the work and the time each cost."""
        failures = self.bundle.failures.failures if self.bundle.failures is not None else None
        table = incident_energy(POWER.empty(), self.job.steps, self.job.spans, failures=failures)
        return table[table["start_ns"].notna() & table["restart_s"].notna()]

    @cached_property
    def lines(self) -> pd.DataFrame:
        """Lines of the log in order of time: ``step``, ``count`` of its steps, ``each_s``.

        What one line tells of many steps is evidence once.
        """
        steps = self.job.steps
        lengths = (steps["end_ns"] - steps["start_ns"]).astype("float64") / 1e9
        place = steps[["source", "line"]]
        line = (place != place.shift()).any(axis=1).cumsum()
        rows = pd.DataFrame({"step": steps["step"], "each_s": lengths}).groupby(line)
        return rows.agg(step=("step", "first"), count=("step", "size"), each_s=("each_s", "mean"))

    def time_s(self, state: str) -> float:
        """Time in a state; 0 if the log never was in it."""
        return float(self.states["time_s"].get(state, 0.0))

    @cached_property
    def gpus(self) -> tuple[float, str]:
        """GPUs of the job, and which data say so; NaN if none do."""
        failures, trace, power = self.bundle.failures, self.bundle.trace, self.bundle.power
        counts = {}
        if failures is not None:
            counts["the timeline"] = failures.timeline["gpu_count"].max()
        if trace is not None:
            counts["the traces"] = trace.ranks["world_size"].max()
        if power is not None:
            metered = int(power.entities["scope"].isin(["gpu", "module"]).sum())
            # A host that is not metered would be missing, so this is said last.
            counts["the power log"] = metered or None
        known = {name: float(count) for name, count in counts.items() if pd.notna(count)}
        return next(((count, name) for name, count in known.items()), (float("nan"), ""))

    @property
    def run_s(self) -> float:
        """Length of the log."""
        return float(self.states["time_s"].sum())

    def cost(self, seconds: float) -> Cost:
        """Return time that all GPUs lose as hours or seconds of the job, and as a share of it."""
        is_long = seconds >= 3600
        return {
            "cost": seconds / 3600 if is_long else seconds,
            "cost_unit": "h of the job" if is_long else "s of the job",
            "time_share": min(max(seconds / self.run_s, 0.0), 1.0),
        }


@rule(Logged, reference=_META)
def interruption(
    logged: Logged, *, least_share: float = 0.01, most_rows: float = 3
) -> Iterator[Finding]:
    """A failure stopped the job: restart and repeated steps."""
    table = logged.incidents
    lost = table["restart_s"].astype("float64") + table["lost_work_s"].astype("float64").fillna(0)
    cause = table["cause"].where(table["cause"].notna() & (table["cause"] != NOT_TOLD), _NO_CAUSE)
    # Many interruptions of one cause are one finding.
    for name, rows in table.assign(lost_s=lost).groupby(cause, sort=False):
        groups = [rows] if len(rows) > most_rows else [rows.loc[[at]] for at in rows.index]
        for group in groups:
            if group["lost_s"].sum() >= least_share * logged.run_s:
                yield _interruption(logged, str(name), group)


def _interruption(logged: Logged, cause: str, rows: pd.DataFrame) -> Finding:
    nodes = rows["node"].dropna().value_counts()
    hosts = ", ".join(nodes.index[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
    at = pd.Timestamp(int(rows["start_ns"].min()), tz="UTC").strftime("%Y-%m-%d %H:%M:%S UTC")
    steps = int(rows["lost_step_count"].fillna(0).sum())
    restart_s, work_s = float(rows["restart_s"].sum()), float(rows["lost_work_s"].fillna(0).sum())
    times = f", {len(rows)} times" if len(rows) > 1 else ""
    remedy = (
        "shorten detection and restart" if restart_s > work_s else "save checkpoints more often"
    )
    return Finding(
        f"{said_of(cause)}{times}: the job stood still for {restart_s:.3g} s and repeated "
        f"{steps} steps",
        where=f"{hosts or 'host unknown'}, {'first ' if len(rows) > 1 else ''}{at}",
        **logged.cost(float(rows["lost_s"].sum())),
        cost_basis="time to the next step and time of the steps that were lost",
        confidence="high" if hosts else "medium",
        doubt="" if hosts else "no failure log names the host at that time",
        evidence="analyze.incident_energy, plot.fleet_timeline (notebook 07)",
        next_step=(f"drain {nodes.index[0]}; " if hosts else "") + remedy,
    )


@rule(Logged, reference=_MEGASCALE)
def initialisation(logged: Logged, *, least_share: float = 0.015) -> Iterator[Finding]:
    """Time before the first step."""
    seconds = logged.time_s("initialisation")
    if seconds < least_share * logged.run_s:
        return
    yield Finding(
        f"{seconds:.3g} s pass before the first step",
        where="all ranks, first attempt",
        **logged.cost(seconds),
        cost_basis="initialisation in the job log",
        doubt="a share that shrinks in a longer run",
        evidence="analyze.energy_waste, plot.energy_waste (notebook 07)",
        next_step="time container start, NCCL initialisation, loading and compilation apart",
    )


@rule(Logged, reference=_MEGASCALE)
def evaluation_time(logged: Logged, *, least_share: float = 0.015) -> Iterator[Finding]:
    """Evaluations take a large part of the run."""
    seconds = logged.time_s("evaluation")
    count = int((logged.job.spans["kind"] == "evaluation").sum())
    if not count or seconds < least_share * logged.run_s:
        return
    yield Finding(
        f"{count} evaluations take {seconds / count:.3g} s each",
        where="all ranks",
        **logged.cost(seconds),
        cost_basis="time in evaluations by the job log",
        doubt="the run may need them as often as that",
        evidence="analyze.energy_waste, plot.energy_waste (notebook 07)",
        next_step="evaluate less often, on fewer batches, or on other GPUs from a checkpoint",
    )


@rule(Logged, reference=_DALY)
def checkpoint_time(logged: Logged, *, least_share: float = 0.015) -> Iterator[Finding]:
    """Checkpoints stop all GPUs."""
    seconds = logged.time_s("checkpoint")
    spans = logged.job.spans[logged.job.spans["kind"] == "checkpoint"]
    if spans.empty or seconds < least_share * logged.run_s:
        return
    yield Finding(
        f"{len(spans)} checkpoints stop all GPUs for {seconds / len(spans):.2g} s each",
        where="all ranks",
        **logged.cost(seconds),
        cost_basis="time in checkpoints by the job log",
        evidence="analyze.energy_waste, plot.energy_waste (notebook 07)",
        next_step="write asynchronously, to local disks first",
    )


@rule(Logged, reference=_DALY)
def checkpoint_interval(
    logged: Logged, *, least_gain_share: float = 0.01, fewest_interruptions: float = 3
) -> Iterator[Finding]:
    """The checkpoint interval is far from its optimum."""
    spans = logged.job.spans[logged.job.spans["kind"] == "checkpoint"]
    count = len(logged.incidents)
    needs(len(spans), 2, "checkpoints")
    needs(count, fewest_interruptions, "interruptions")
    write_min = logged.time_s("checkpoint") / len(spans) / 60
    useful_min = (logged.time_s("useful steps") + logged.time_s("lost steps")) / 60
    interval_min = useful_min / len(spans)
    failure_min = logged.run_s / 60 / count
    recovery_min = float(logged.incidents["restart_s"].mean()) / 60
    if write_min <= 0:
        return
    table = checkpoint_optimum(
        failure_interval_min=failure_min, recovery_min=recovery_min, write_min=write_min
    ).set_index("method")
    best_min = float(table["checkpoint_interval_min"]["numeric"])
    # First order: writing costs w / t, a failure loses half an interval on average.
    waste = write_min / interval_min + interval_min / 2 / failure_min
    least = write_min / best_min + best_min / 2 / failure_min
    if waste - least < least_gain_share:
        return
    more = "rarer" if best_min > interval_min else "more often"
    cost = logged.cost((waste - least) * logged.run_s)
    gpus, source = logged.gpus
    if source:
        gpu_h = (waste - least) * logged.run_s / 3600 * gpus
        cost = cost | {"cost": gpu_h, "cost_unit": "GPU-hours"}
    yield Finding(
        f"Checkpoints every {interval_min:.3g} min; {best_min:.3g} min would be best: save {more}",
        where="all ranks",
        **cost,
        cost_basis="writing and lost work at this interval and at the best one"
        + (f", times {gpus:.0f} GPUs by {source}" if source else ""),
        confidence="medium",
        doubt=f"{count} interruptions are the only evidence of how often the job fails",
        evidence="analyze.checkpoint_curve, explore.checkpoint_curve (notebook 03)",
        next_step=f"set the interval to about {best_min:.2g} min",
    )


@rule(Logged, reference=_META)
def repeated_work(logged: Logged, *, least_share: float = 0.02) -> Iterator[Finding]:
    """Steps were computed again after restarts, over all interruptions."""
    seconds = logged.time_s("lost steps") + logged.time_s("unfinished step")
    if seconds < least_share * logged.run_s or len(logged.incidents) < 2:
        return
    steps = int(logged.incidents["lost_step_count"].fillna(0).sum())
    yield Finding(
        f"{steps} steps were computed twice after {len(logged.incidents)} interruptions",
        where="all ranks",
        **logged.cost(seconds),
        cost_basis="time of the steps whose result was lost",
        doubt="part of the cost of each interruption",
        evidence="analyze.energy_waste, plot.energy_waste (notebook 07)",
        next_step="save checkpoints more often, or in memory",
    )


@rule(Logged, reference=_FALCON)
def slower_steps(
    logged: Logged,
    *,
    least_ratio: float = 1.015,
    fewest_steps: float = 20,
    least_deviations: float = 4.0,
) -> Iterator[Finding]:
    """From some step on, all steps take longer: a lasting slowdown."""
    lengths, steps = logged.lines["each_s"], logged.lines["count"]
    needs(len(lengths), 2 * fewest_steps, "lines on steps")
    # The split that explains most of the spread of the ranks: steps have outliers.
    ranks = lengths.rank().to_numpy()
    count = len(ranks)
    split = np.arange(1, count)
    shift = np.abs(ranks.cumsum()[:-1] - split * (count + 1) / 2) / np.sqrt(split * (count - split))
    fewest = int(fewest_steps)
    at = int(shift[fewest - 1 : count - fewest].argmax()) + fewest
    # Of ranks without a shift the deviation at any one split is this.
    deviations = float(shift[at - 1]) / np.sqrt((count + 1) / 12)
    early, late = float(lengths.iloc[:at].median()), float(lengths.iloc[at:].median())
    # What ends again, such as a cap, is not a lasting slowdown.
    latest = float(lengths.iloc[-fewest:].median())
    if min(late, latest) < least_ratio * early or deviations < least_deviations:
        return
    after = int(steps.iloc[at:].sum())
    lost = (late - early) * after
    first = int(logged.lines["step"].iloc[at])
    yield Finding(
        f"From step {first} on a step takes {1e3 * late:.4g} ms instead of {1e3 * early:.4g} ms",
        where=f"{after} of {steps.sum()} steps",
        **logged.cost(lost),
        cost_basis="median after minus median before, times the steps after",
        confidence="high" if deviations > 2 * least_deviations else "medium",
        evidence="plot.fleet_timeline (notebook 07)",
        next_step="find what changed then: a straggler in the traces, a capped GPU, a code path",
    )


@rule(Logged, reference=_MEGASCALE)
def outlier_steps(
    logged: Logged, *, least_ratio: float = 1.5, least_share: float = 0.01
) -> Iterator[Finding]:
    """Single steps of the log take far longer than their neighbours."""
    lines = logged.lines
    usual = lines["each_s"].rolling(21, center=True, min_periods=5).median()
    # A line on several steps tells their sum; at the most one of them takes all that is more.
    more = (lines["each_s"] - usual) * lines["count"]
    ratio = 1 + more / usual
    is_long = ratio > least_ratio
    lost = float(more[is_long].sum())
    if lost < least_share * logged.run_s:
        return
    gaps = lines["step"][is_long].diff().dropna()
    every = int(gaps.median()) if len(gaps) > 2 and gaps.std() < 0.2 * gaps.median() else 0
    worst = lines.iloc[int(more.to_numpy().argmax())]
    first, last = int(worst["step"]), int(worst["step"] + worst["count"]) - 1
    name = f"step {first}" if first == last else f"one of steps {first} to {last}"
    longest_s = float(worst["each_s"] + more.max() * (1 - 1 / worst["count"]))
    count = int(is_long.sum())
    who, their = ("steps take", "their") if count > 1 else ("step takes", "its")
    yield Finding(
        f"{count} {who} up to {ratio.max():.2g} times {their} neighbours"
        f"{f', one every {every} steps' if every else ''}",
        where=f"longest: {name}, {longest_s:.3g} s",
        **logged.cost(lost),
        cost_basis="their length minus the median of 21 neighbours",
        confidence="medium",
        evidence="plot.fleet_timeline (notebook 07)",
        next_step="look for garbage collection, evaluation, checkpoints or data loading there",
    )


@rule(Logged, reference=_META)
def time_not_told(logged: Logged, *, least_share: float = 0.015) -> Iterator[Finding]:
    """Time between steps that the log does not explain."""
    seconds = sum(logged.time_s(state) for state in ("not told", "between steps"))
    if seconds < least_share * logged.run_s:
        return
    yield Finding(
        f"{seconds:.3g} s of the run are in no step and no named span of the log",
        where="all ranks",
        **logged.cost(seconds),
        cost_basis="time between steps that the log does not name",
        confidence="medium",
        doubt="the log may simply not record what ran then",
        evidence="analyze.energy_waste (notebook 07)",
        next_step="log evaluation, checkpoints and data loading as spans",
    )
