"""Claims about energy of work: a real job on 512 GPUs, and what a failure cost a synthetic one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from workbench import analyze, load
from workbench.fidelity.registry import Reading, claim, published

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
    work = analyze.work_energy(analyze.step_energy(power, job.steps))
    here = _numbers(work, analyze.span_energy(power, job.spans))
    phases = analyze.phase_power(analyze.power_sum(power, period_s=0.5), job.steps)
    inside = phases[phases["place"] == "in steps"]["power_w"]
    here |= {f"phase {n} of 10": watts / 1e3 for n, watts in enumerate(inside, start=1)}
    yield from _beside(here, synthetic=False)


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
    here = {
        "restart": row["restart_s"],
        "lost steps": row["lost_step_count"],
        "energy of the incident": row["energy_j"] / 1e3,
    }
    yield from _beside({_SYNTHETIC + name: value for name, value in here.items()}, synthetic=True)


def _numbers(work: pd.DataFrame, spans: pd.DataFrame) -> dict[str, float]:
    """Name the numbers of the real job as they are printed, in the units they are printed in."""
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


def _beside(here: Mapping[str, float], *, synthetic: bool) -> Iterator[Reading]:
    """Lay what is computed here beside what was printed elsewhere."""
    for row in published("step_energy"):
        if row["what"].startswith(_SYNTHETIC) == synthetic:
            yield Reading(
                what=row["what"],
                printed=float(row["value"]),
                here=float(here[row["what"]]),
                unit=row["unit"],
                tolerance=float(row["tolerance"]),
                source=row["source"],
            )
