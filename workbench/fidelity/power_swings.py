"""Claims about swings: spectrum, bands, floors and stores on the power of 512 GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from workbench import analyze, load
from workbench.analyze import SmoothingPlan
from workbench.fidelity.registry import Reading, claim, published
from workbench.tables import POWER_TOTALS

_CELL_NS = 2_000_000_000
_KILO, _J_PER_KWH = 1e3, 3.6e6
_COLUMNS = {
    "swing": ("swing_w", _KILO),
    "fastest ramp": ("ramp_w_per_s", _KILO),
    "deviation": ("deviation_w", _KILO),
    "power": ("storage_w", _KILO),
    "energy": ("storage_j", _J_PER_KWH),
}


@claim(
    noun="power_swings",
    name="512 GPUs: spectrum, bands, floors and stores",
    source="mlcommons/training_results_v4.0, smc-ac-power, 64xSMC-H100-SXM-80GB, gpt3",
    needs=("power-mlperf-gpt3-512gpu",),
)
def gpt3_on_512_gpus(folder: Path) -> Iterator[Reading]:
    """Compare what follows from the sum of 64 meters at instants 2 s apart."""
    totals = _at_instants(folder)
    found = _spectrum(totals) | _bands(totals)
    for row in published("power_swings"):
        what, setting = row["what"], row["setting"]
        here = found.get((what, setting))
        yield Reading(
            what=f"{what}{f' ({setting})' if setting else ''}",
            printed=float(row["value"]),
            here=_smoothed(totals, what, float(setting)) if here is None else here,
            unit=row["unit"],
            tolerance=float(row["tolerance"]),
            source=row["source"],
        )


@claim(
    noun="power_swings",
    name="512 GPUs: the peak of the spectrum stays where it is in means of cells",
    source="mlcommons/training_results_v4.0, smc-ac-power, 64xSMC-H100-SXM-80GB, gpt3",
    needs=("power-mlperf-gpt3-512gpu",),
)
def peaks_of_means(folder: Path) -> Iterator[Reading]:
    """Compare the peaks in the totals that analyses work on, which average over a cell."""
    power, start, end = _run(folder)
    grid = analyze.power_grid(power, period_s=2, start_ns=start, end_ns=end)
    found = _spectrum(analyze.power_totals(grid))
    for row in published("power_swings"):
        if row["unit"] == "Hz":
            yield Reading(
                what=row["what"],
                printed=float(row["value"]),
                here=found[row["what"], ""],
                unit=row["unit"],
                tolerance=float(row["tolerance"]),
                source=row["source"],
            )


def _run(folder: Path) -> tuple[pd.DataFrame, int, int]:
    """Load the readings of all nodes, and when the run began and ended, less 2 s on each side."""
    log = load.power(folder / "power", scope="node_ac", progress=False)
    nodes = log.entities.loc[log.entities["scope"] == "node_ac", "entity"]
    (result,) = folder.glob("result_*.txt")
    spans = load.job_log(result).spans
    (run,) = spans[spans["kind"] == "run"].to_dict("records")
    power = log.power[log.power["entity"].isin(nodes)]
    return power, int(run["start_ns"]) + _CELL_NS, int(run["end_ns"]) - _CELL_NS


def _at_instants(folder: Path) -> pd.DataFrame:
    """Read every meter at the same instants, by straight lines, and add them up."""
    power, start, end = _run(folder)
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
    """Name the peaks and the largest changes."""
    peaks = analyze.power_peaks(analyze.power_spectrum(totals))
    second = peaks.loc[peaks["harmonic"] == 2, "frequency_hz"]
    ramps = analyze.power_ramps(totals, windows_s=[2])["ramp_w_per_s"]
    low, high = np.percentile(totals["power_w"].dropna(), [1, 99])
    return {
        ("highest peak of the spectrum", ""): float(peaks["frequency_hz"].iloc[0]),
        ("its second harmonic", ""): float(second.iloc[0]) if len(second) else np.nan,
        ("fastest ramp between two instants", ""): float(ramps.max()) / _KILO,
        ("swing", ""): float(high - low) / _KILO,
    }


def _bands(totals: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Split the energy over the published bands."""
    names = [row["setting"] for row in published("power_swings") if row["what"] == "band share"]
    ends = [tuple(map(float, name.split("-"))) for name in names]
    shares = analyze.band_shares(totals, [(low, high) for low, high in ends])["energy_share"]
    return {("band share", name): float(value) for name, value in zip(names, shares, strict=True)}


def _smoothed(totals: pd.DataFrame, what: str, setting: float) -> float:
    """Smooth by the plan that a row is about, and take its number from the summary."""
    kind, _, wanted = what.partition(": ")
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
