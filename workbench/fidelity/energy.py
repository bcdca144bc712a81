"""Claims about energy and power: 64 nodes of a GPT-3 training, metered at the wall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from workbench import analyze, load
from workbench.fidelity.registry import Reading, claim, published

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
    log = load.power(folder / "power", scope="node_ac", progress=False)
    nodes = log.entities.loc[log.entities["scope"] == "node_ac", "entity"]
    power = log.power[log.power["entity"].isin(nodes)]
    (result,) = folder.glob("result_*.txt")
    spans = load.job_log(result).spans
    (run,) = spans[spans["kind"] == "run"].to_dict("records")
    start, end = int(run["start_ns"]), int(run["end_ns"])
    numbers = _by_lines(power, start, end) | _by_cells(power) | _as_read(power, start, end)
    for row in published("power_numbers"):
        yield Reading(
            what=f"{row['what']}, {row['convention']}",
            printed=float(row["value"]),
            here=numbers[row["what"], row["convention"]],
            unit=row["unit"],
            tolerance=float(row["tolerance"]),
            source=row["source"],
        )


def _by_lines(power: pd.DataFrame, start: int, end: int) -> dict[tuple[str, str], float]:
    """Integrate over the run by both rules."""
    found = {}
    for convention, method in _METHODS.items():
        energy = analyze.energy(power, method=method, start_ns=start, end_ns=end)  # type: ignore[arg-type]
        total = analyze.energy_total(energy).iloc[0]
        found["energy of the nodes", convention] = float(total["energy_j"]) / 3.6e6
        found["mean power", convention] = float(total["mean_w"]) / 1e3
        found["lowest mean of a node", convention] = float(energy["mean_w"].min())
        found["highest mean of a node", convention] = float(energy["mean_w"].max())
    return found


def _by_cells(power: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Sum cells of time that every node covers."""
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
    return {(what, _CELLS): value for what, value in numbers.items()}


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
    found = {
        "energy of the nodes": float(totals.sum()) * _CELL_S / 3.6e6,
        "highest cell": float(totals.max()) / 1e3,
        "lowest cell": float(totals.min()) / 1e3,
    }
    found |= _percentiles(totals)
    return {(what, _AS_READ): value for what, value in found.items()}


def _percentiles(values: np.ndarray) -> dict[str, float]:
    return {name: float(np.percentile(values, at)) / 1e3 for name, at in _PERCENTILES.items()}
