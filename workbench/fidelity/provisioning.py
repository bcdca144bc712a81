"""Claims about power limits: knees of public sweeps, and the arithmetic of a 150 MW site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from workbench import analyze, load
from workbench.fidelity.registry import Reading, claim, published

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
        count = int((names == row["gpu"]).sum())
        what, printed = f"{row['gpu']}: configurations", float(row["configuration_count"])
        yield Reading(what, printed, count, "1", source=row["source"])
    found = analyze.power_knees(curve)
    for row in published("power_knees"):
        mine = found[(found["gpu"] == row["gpu"]) & (found["job"] == row["job"])]
        name = f"{row['gpu']} {row['job']}"
        for words, printed_as, column in _KNEES:
            tolerance = 0.0 if column.endswith("_w") else float(row["tolerance"])
            unit = "W" if column.endswith("_w") else "1"
            here = mine[column].to_numpy(dtype="float64")[0]
            yield Reading(f"{name}: {words}", float(row[printed_as]), here, unit, tolerance)


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
    for words, here, tolerance, unit in (
        ("non-GPU power per GPU that +9 % implies", implied, 0.01, "W"),
        ("throughput gained at 1000 W", _gain(curve, 1_000, implied), 1e-4, "1"),
        ("all-in power per GPU", site / count, 0.5, "W"),
    ):
        row = facts[words]
        yield Reading(words, float(row["value"]), here, unit, tolerance, source=row["source"])


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
        here = _gain(more, 960, facts["non-GPU power per GPU that +9 % implies"])
        words = f"{method}: gain at 960 W"
        low, high = float(gain["low_gain_ratio"]), float(gain["high_gain_ratio"])
        yield Reading(f"{words}, against the least 1.9 / 1.7", low, here, "1", bound="at least")
        yield Reading(f"{words}, against the most 1.9 / 1.7", high, here, "1", bound="at most")


def _gain(curve: pd.DataFrame, limit_w: float, overhead_w: float) -> float:
    """Give the throughput gained at a limit, at the same power of the site."""
    table = analyze.provisioning(curve, overhead_w=overhead_w, **_SITE)
    return float(table["gain_ratio"].to_numpy()[table["limit_w"] == limit_w][0])
